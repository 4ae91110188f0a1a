"""The nearest rows of the class of each row, and those of other classes, exactly and in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ..numerics.checks import class_sizes
from ..numerics.types import Array, Ints
from .nearest import nearest

LARGE_CLASS_ROWS = 512  # rows from which a class has a search of its own; small classes share one


def nearest_of_class(X: Array, labels: Ints, k: int) -> Ints:
    """Return the k nearest other rows of the class of each row, nearest first, shape (n, k); -1 where there are fewer.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes 0, 1, ...; rows with -1 have no neighbors and are none.
    k : int
        Number of neighbors, at least 1.
    """
    found = np.full((len(X), k), -1)
    sizes = class_sizes(labels)
    for rows in groups_of_classes(labels):
        codes = labels[rows]
        available = sizes[codes] - 1  # other rows of the class, for each of these rows
        width = min(k, int(available.max()))
        if width == 0:
            continue
        others = partial(other_classes, codes) if codes[0] != codes[-1] else None
        # in a class of few rows, the places beyond them hold arbitrary rows, which -1 replaces
        near = rows[nearest(X[rows], X[rows], width, exclude_self=True, hidden=others)[1]]
        found[rows, :width] = np.where(np.arange(width) < available[:, None], near, -1)
    return found


def groups_of_classes(labels: Ints) -> Iterator[Ints]:
    """Yield the rows of one large class, or of several small classes of up to `LARGE_CLASS_ROWS` rows in all."""
    group: list[Ints] = []
    count = 0
    for own in rows_of_classes(labels):
        if group and count + len(own) > LARGE_CLASS_ROWS:
            yield np.concatenate(group)
            group = []
            count = 0
        if len(own) > 0:
            group.append(own)
            count += len(own)
    if group:
        yield np.concatenate(group)


def other_classes(codes: Ints, queries: Ints) -> tuple[Ints, Ints]:
    """Return the position in `queries` and the row of every pair of rows of different classes (n,)."""
    at, row = np.nonzero(codes[queries, None] != codes)
    return at, row


def nearest_of_others(X: Array, labels: Ints, k: int) -> Ints:
    """Return the k nearest rows of other classes of each row, nearest first, shape (n, k); -1 where there are fewer.

    The rows of all small classes are searched for at once, each without the rows of its own class.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes 0, 1, ...; rows with -1 have no neighbors and are none.
    k : int
        Number of neighbors, at least 1.

    Examples
    --------
    >>> nearest_of_others(np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 1]), 2).tolist()
    [[1, 2], [0, -1], [0, -1]]
    """
    found = np.full((len(X), k), -1)
    known = np.flatnonzero(labels >= 0)
    sizes = class_sizes(labels)
    for own in rows_of_classes(labels):
        width = min(k, len(known) - len(own))
        if len(own) > LARGE_CLASS_ROWS and width > 0:
            others = known[labels[known] != labels[own[0]]]
            found[own, :width] = others[nearest(X[own], X[others], width)[1]]
    small = known[sizes[labels[known]] <= LARGE_CLASS_ROWS]
    available = len(known) - sizes[labels[small]]  # rows of other classes, for each of these rows
    width = min(k, int(available.max(initial=0)))
    if width == 0:
        return found
    codes = labels[known]
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(sizes) - sizes

    def own_class(queries: Ints) -> tuple[Ints, Ints]:
        """Return the position in `queries` and the place in `known` of every row of the classes of these queries."""
        # every member of the class of every query, flat: a (b, n) mask of the same would be mostly False
        of = labels[small[queries]]
        at = np.repeat(np.arange(len(of)), sizes[of])
        within = np.arange(len(at)) - np.repeat(np.cumsum(sizes[of]) - sizes[of], sizes[of])
        return at, order[np.repeat(starts[of], sizes[of]) + within]

    near = known[nearest(X[small], X[known], width, hidden=own_class)[1]]
    found[small, :width] = np.where(np.arange(width) < available[:, None], near, -1)
    return found


def rows_of_classes(labels: Ints) -> list[Ints]:
    """Return the numbers of the rows of each class 0, 1, ..., in increasing order."""
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]  # -1 sorts first
    return np.split(order, np.cumsum(class_sizes(labels))[:-1])
