"""Search for groups of items, such as products with several photos: the nearest item of each value of a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..labels import holds_texts
from ..numerics.types import AnyArray, Bools, Ints

GROWTH = 4
"""Items searched for each group in the first round, and the factor by which every further round searches more."""


def first_of_groups(search: Callable[[int], Any], column: Callable[[], AnyArray], *, k: int, most: int) -> Any:
    """Find the k nearest groups of each query, each by its nearest item.

    It searches for the nearest items, four times as many in each round, until they belong to k groups. The groups are
    therefore exact if the search for items is.

    Parameters
    ----------
    search : callable
        Function from a number of items to a named tuple with ``distances`` and ``positions`` of shape (n, count),
        nearest first; -1 where nothing was found.
    column : callable
        Function that returns, after a search, the value of each item to which positions can refer, of shape (m,). An
        item without a value is a group of its own.
    k : int
        Number of groups to find.
    most : int
        Number of items that there are.
    """
    count = min(GROWTH * k, most)
    while True:
        found = search(count)
        first = first_of_group_in_row(numbered(column()), found.positions)
        enough = first.sum(axis=1) >= k
        if count >= most or enough.all():
            break
        count = min(GROWTH * count, most)
    # a stable sort moves the first of every group to the front of its row, nearest first
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
    elif holds_texts(column):
        alone = column == ""
    else:
        alone = np.zeros(len(column), dtype=bool)
    numbers[alone] = len(values) + np.arange(int(alone.sum()))
    return numbers.astype(np.intp)


def first_of_group_in_row(groups: Ints, positions: Ints) -> Bools:
    """Return a mask (n, count) of the positions that are the first of their group in their row; -1 never is."""
    there = positions >= 0
    group = np.where(there, groups[np.maximum(positions, 0)], -1)  # of each position
    # in a stable order by group, the first of a group is the one that differs from its predecessor
    order = np.argsort(group, axis=1, kind="stable")
    ordered = np.take_along_axis(group, order, axis=1)
    differs = np.ones(group.shape, dtype=bool)
    differs[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty(group.shape, dtype=bool)
    np.put_along_axis(first, order, differs, axis=1)
    return first & there
