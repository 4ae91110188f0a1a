"""Products instead of photos: of the nearest items, the first of each value of a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..numerics.types import AnyArray, Bools, Ints

FIRST = 4  # items looked at for each group that is wanted, and how much more each further time


def first_of_groups(search: Callable[[int], Any], column: Callable[[], AnyArray], *, k: int, most: int) -> Any:
    """Find the k nearest groups of each query, each by its nearest item.

    The nearest items are asked for, four times as many each time, until they are of k groups; so an exact search of
    items gives an exact search of groups.

    Parameters
    ----------
    search : callable
        Number of items -> what has ``distances`` (n, count) and ``positions`` (n, count), nearest first; -1 for none.
    column : callable
        Gives, after a search, the value of each item that its positions count, (m,); items where it is missing stand
        alone.
    k, most : int
        Groups that are wanted, items that there are.
    """
    count = min(FIRST * k, most)
    while True:
        found = search(count)
        first = first_in_rows(numbered(column()), found.positions)
        enough = first.sum(axis=1) >= k
        if count >= most or enough.all():
            break
        count = min(FIRST * count, most)
    width = min(k, first.shape[1])
    order = np.argsort(~first, axis=1, kind="stable")[:, :width]
    kept = np.take_along_axis(first, order, axis=1)
    distances = np.where(kept, np.take_along_axis(found.distances, order, axis=1), np.inf)
    positions = np.where(kept, np.take_along_axis(found.positions, order, axis=1), -1)
    return found._replace(distances=distances, positions=positions)


def numbered(column: AnyArray) -> Ints:
    """Return the number of each item's group, (m,); each item without a value has a number of its own."""
    values, numbers = np.unique(column, return_inverse=True)
    if column.dtype.kind == "f":
        alone = np.isnan(column)
    elif column.dtype.kind == "U":
        alone = column == ""
    else:
        alone = np.zeros(len(column), dtype=bool)
    numbers[alone] = len(values) + np.arange(int(alone.sum()))
    return numbers.astype(np.intp)


def first_in_rows(groups: Ints, positions: Ints) -> Bools:
    """Return which cells of (n, count) positions are the first of their group in their row; -1 is never."""
    there = positions >= 0
    own = np.where(there, groups[np.maximum(positions, 0)], -1)
    order = np.argsort(own, axis=1, kind="stable")
    ordered = np.take_along_axis(own, order, axis=1)
    fresh = np.ones(own.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty(own.shape, dtype=bool)
    np.put_along_axis(first, order, fresh, axis=1)
    return first & there
