"""Triplets of every row: its nearest rows of the same class, each with its nearest rows of other classes."""

from __future__ import annotations

import numpy as np

from ....neighbors import by_class
from ....numerics.types import Array, Ints


def nearest_triplets(X: Array, labels: Ints, k: int, rivals: int) -> Ints:
    """Return triplets (m, 3): each row, each of its k nearest of its class, each of its `rivals` nearest of others.

    In classes with fewer rows, all rows are used. Rows of unknown class (-1) are in no triplet. The triplets are in the
    order of the classes.
    """
    rows = np.concatenate(by_class.rows_of_classes(labels))
    mates = by_class.nearest_of_class(X, labels, k)[rows]  # (n, k), -1 where there are fewer
    foes = by_class.nearest_of_others(X, labels, rivals)[rows]  # (n, rivals)
    anchors, positives, negatives = np.broadcast_arrays(rows[:, None, None], mates[:, :, None], foes[:, None])
    there = (positives >= 0) & (negatives >= 0)
    return np.stack([anchors[there], positives[there], negatives[there]], axis=1)
