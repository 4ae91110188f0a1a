"""Gallery items by class, and groups of items that a query of their class and group does not search."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..labels import check_lengths, class_numbers
from ..numerics.types import Ints


class Members:
    """Gallery rows of every class."""

    def __init__(self, query_class: Ints, gallery_class: Ints) -> None:
        self.rows = np.argsort(gallery_class, kind="stable")
        self.sizes = np.bincount(gallery_class, minlength=1 + max(query_class.max(), gallery_class.max()))
        self.begins = np.cumsum(self.sizes) - self.sizes

    def of(self, classes: Ints) -> tuple[Ints, Ints]:
        """Return the position in `classes` and the gallery row of all members, in order."""
        size = self.sizes[classes]
        begin = self.begins[classes]
        at = np.repeat(np.arange(len(classes)), size)
        return at, self.rows[np.arange(len(at)) - (np.cumsum(size) - size - begin)[at]]

    def of_rows(self, classes: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Return the position in `rows` (b,) and the gallery row of all members of the classes of these rows."""
        return self.of(classes[rows])


def kinds_of(
    query_class: Ints, gallery_class: Ints, groups: Any, gallery_groups: Any, leave_one_out: bool
) -> tuple[Ints, Ints] | None:
    """Number the pairs (class, group) of queries and gallery; None without groups.

    Raises
    ------
    ValueError
        If only one side has groups, or there is not one group per row.
    """
    if (gallery_groups is not None) != (groups is not None and not leave_one_out):
        if leave_one_out:
            needs = "none without a gallery"
        else:
            needs = "groups and gallery_groups together, or neither"
        raise ValueError(f"gallery_groups: expected {needs}")
    if groups is None:
        return None
    sides = (groups,) if leave_one_out else (groups, gallery_groups)
    found = class_numbers(*sides, names=("groups", "gallery_groups"))
    for part, rows, name in zip(found, (query_class, gallery_class), ("groups", "gallery_groups"), strict=False):
        check_lengths(len(rows), part, name)
    number = 1 + max(part.max() for part in found)
    query_kind, gallery_kind = class_numbers(query_class * number + found[0], gallery_class * number + found[-1])
    return query_kind, gallery_kind
