"""Supervision given as points, such as pairs of shape (m, 2, d), turned into rows and their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.types import AnyArray, Ints


def holds_tuples(X: Any, size: int) -> bool:
    """Return whether X is an array of tuples of `size` points each, shape (m, size, d)."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return len(shape) == 3 and shape[1] == size


def rows_of_points(points: AnyArray) -> tuple[AnyArray, Ints]:
    """Return the different points as rows (n, d), and for each tuple the numbers of its rows (m, size).

    >>> rows, numbers = rows_of_points(np.array([[[0.0, 1.0], [2.0, 3.0]], [[2.0, 3.0], [4.0, 5.0]]]))
    >>> rows.tolist(), numbers.tolist()
    ([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[0, 1], [1, 2]])
    """
    points = np.asarray(points)
    m, size, d = points.shape
    rows, numbers = np.unique(points.reshape(-1, d), axis=0, return_inverse=True)
    return rows, numbers.reshape(m, size)
