"""Triplets of every row: its nearest rows of the same class, each with its nearest rows of other classes."""

from __future__ import annotations

import numpy as np

from ....neighbors.nearest import nearest
from ....numerics.types import Array, Ints


def nearest_triplets(X: Array, labels: Ints, k: int, rivals: int) -> Ints:
    """Return triplets (m, 3): each row, each of its k nearest of its class, each of its `rivals` nearest of others.

    In classes with fewer rows, all rows are used. Rows of unknown class (-1) are in no triplet.
    """
    found = [np.zeros((0, 3), dtype=np.intp)]
    for c in range(int(labels.max()) + 1):
        own = np.flatnonzero(labels == c)
        others = np.flatnonzero((labels != c) & (labels >= 0))
        if len(own) < 2:
            continue
        mates = own[nearest(X[own], X[own], min(k, len(own) - 1), exclude_self=True)[1]]
        foes = others[nearest(X[own], X[others], min(rivals, len(others)))[1]]
        triplets = np.broadcast_arrays(own[:, None, None], mates[:, :, None], foes[:, None])
        found.append(np.stack(triplets, axis=-1).reshape(-1, 3))
    return np.concatenate(found)
