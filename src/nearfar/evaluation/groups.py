"""Gallery items by class, and groups of items that a query of their class and group does not search."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fit_warnings import warn
from ..labels import check_lengths, class_numbers
from ..numerics.types import AnyArray, Ints

MARKED_WORDS = 1 << 21  # 4-byte words of rows that are marked at a time


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
        # the n-th member listed for a class is row begin + n of the sorted rows
        return at, self.rows[np.arange(len(at)) - (np.cumsum(size) - size - begin)[at]]

    def of_rows(self, classes: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Return the position in `rows` (b,) and the gallery row of all members of the classes of these rows."""
        return self.of(classes[rows])


def kinds_of(
    query_class: Ints,
    gallery_class: Ints,
    groups: Any,
    gallery_groups: Any,
    leave_one_out: bool,
    ids: Any = None,
    gallery_ids: Any = None,
) -> tuple[Ints, Ints] | None:
    """Number the pairs (class, group) of queries and gallery, or (class, id); None without groups and ids.

    Raises
    ------
    ValueError
        If only one side has groups or ids, there is not one per row, or there are both.
    """
    if ids is not None or gallery_ids is not None:
        if groups is not None or gallery_groups is not None:
            raise ValueError("ids: does not work with groups, which leave out the query itself: both have one group")
        if leave_one_out:
            raise ValueError("ids: works only with a gallery; without one, a query does not search itself anyway")
        if ids is None or gallery_ids is None:
            raise ValueError("ids: expected ids and gallery_ids together, got only one of them")
        return _kinds_of_ids(query_class, gallery_class, ids, gallery_ids)
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
    # one number for each pair of a class and a group
    query_kind, gallery_kind = class_numbers(query_class * number + found[0], gallery_class * number + found[-1])
    return query_kind, gallery_kind


def _kinds_of_ids(query_class: Ints, gallery_class: Ints, ids: Any, gallery_ids: Any) -> tuple[Ints, Ints]:
    """Return the numbers of the ids of queries and gallery, each of which must be of one class."""
    query_id, gallery_id = class_numbers(ids, gallery_ids, names=("ids", "gallery_ids"))
    check_lengths(len(query_class), query_id, "ids")
    check_lengths(len(gallery_class), gallery_id, "gallery_ids")
    # the class of each id in the gallery; -1 for an id that only a query has
    class_of = np.full(1 + max(query_id.max(), gallery_id.max()), -1)
    class_of[gallery_id] = gallery_class
    other = (class_of[query_id] >= 0) & (class_of[query_id] != query_class)
    if other.any():
        at = int(np.flatnonzero(other)[0])
        raise ValueError(f"ids: row {at} and the gallery item of the same id are of different classes")
    return query_id, gallery_id


def count_in_gallery(x: AnyArray, y: AnyArray, query_class: Ints, gallery_class: Ints) -> int:
    """Return the number of queries that equal a gallery item of their class."""
    dtype = np.result_type(x, y, np.float32)
    return int(np.isin(_marks(x, query_class, dtype), _marks(y, gallery_class, dtype)).sum())


def _marks(rows: AnyArray, classes: Ints, dtype: Any) -> Any:
    """Return a number of 64 bits for each row and its class, equal for equal ones."""
    words = np.dtype(dtype).itemsize // 4 * rows.shape[1]
    # odd random factors: sums of words times these, modulo 2^64, differ for different rows but for chance
    factors = np.random.default_rng(0).integers(2**63, size=words + 1, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    marks = classes.astype(np.uint64) * factors[-1]
    step = max(1, MARKED_WORDS // words)
    for start in range(0, len(rows), step):
        part = np.add(rows[start : start + step], 0.0, dtype=dtype, order="C")  # a copy, in which -0 is 0
        words_of = part.view(np.uint32).astype(np.uint64)
        marks[start : start + step] += (words_of * factors[:-1]).sum(axis=1, dtype=np.uint64)
    return marks


def warn_of_queries_in_gallery(count: int, n: int) -> None:
    """Warn if all queries are in the gallery themselves, where each finds itself first."""
    if count == n:
        warn(
            f"gallery: it contains all {n:,} queries, so that each finds itself; leave them out of it, or pass ids= "
            "and gallery_ids="
        )
