"""Comparison of two models on the same queries: which queries each answers, and intervals of score differences.

    D = sum_q (s_q - s'_q) / n                    s_q, s'_q: a score of query q by this model and by the other

The interval of D is that of the mean of s_q - s'_q in `per_class`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..labels import text_array
from ..numerics.types import Array
from .content import Items, Other
from .per_class import average_precision, interval_over_classes
from .retrieval import QueryNeighbors, query_neighbors, worst_rows

NUMBERED = re.compile(r"(.*)\[\d+\]", re.DOTALL)  # names that `Dataset.from_array` gives to items without names
SHOWN_QUERIES = 8  # maximum number of shown queries that only one model answers correctly


class OtherItemsError(ValueError):
    """Two models were evaluated on different items. The message is one line."""


@dataclass(frozen=True)
class Difference:
    """Means over queries for this model and the other one, and the 95% interval (low, high) of their difference."""

    this: float
    other: float
    interval: tuple[float, float] | None

    @property
    def size(self) -> float:
        """The mean of this model minus that of the other one."""
        return self.this - self.other

    @property
    def clear(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True, eq=False)
class Against:
    """Neighbors of the same queries by this model and by another one.

    Attributes
    ----------
    this : QueryNeighbors
        Neighbors by this model.
    other : QueryNeighbors
        Neighbors by the other model.
    gained : ndarray of int
        Queries whose nearest neighbor is correct with this model only; the clearest cases first, at most two per class.
    lost : ndarray of int
        Queries whose nearest neighbor is correct with the other model only, in the same way.
    differences : dict
        Differences of Recall@1, and of MAP@R if all relevant ranks were computed, by the names of the scores.
    """

    this: QueryNeighbors
    other: QueryNeighbors
    gained: NDArray[np.int64]
    lost: NDArray[np.int64]
    differences: dict[str, Difference]

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many queries both models answer correctly, this one alone, the other alone, and neither."""
        this = self.this.right[:, 0]
        other = self.other.right[:, 0]
        both = int((this & other).sum())
        by_this = int(this.sum())
        by_other = int(other.sum())
        return both, by_this - both, by_other - both, len(this) - by_this - by_other + both


def compare_neighbors(retrieved: QueryNeighbors, other: Other) -> Against:
    """Compare the neighbors that a model found with those of another.

    Raises
    ------
    OtherItemsError
        If the other model was evaluated on other items.
    """
    alone = retrieved.gallery is retrieved.queries
    _check_same(retrieved.queries, other.queries, other.name)
    if alone != (other.gallery is None):
        raise OtherItemsError(f"{other.name}: cannot be compared, because only one of the two has a gallery")
    if other.gallery is not None:
        _check_same(retrieved.gallery, other.gallery, f"{other.name}, gallery")
    if other.gallery is None:
        gallery = None
    else:
        gallery = replace(other.gallery, groups=retrieved.gallery.groups)
    others = query_neighbors(replace(other.queries, groups=retrieved.queries.groups), gallery, other.distance)
    assert others is not None  # this model has found some, and the classes are the same
    right_here = retrieved.right[:, 0]
    right_there = others.right[:, 0]
    labels = retrieved.query_labels()
    differences = {"recall_at_1": difference(right_here.astype(float), right_there.astype(float), labels)}
    precision = average_precision(retrieved)
    other_precision = average_precision(others)
    if precision is not None and other_precision is not None:
        differences["map_at_r"] = difference(precision, other_precision, labels)
    gained = worst_rows(others, SHOWN_QUERIES, among=right_here)
    lost = worst_rows(retrieved, SHOWN_QUERIES, among=right_there)
    return Against(retrieved, others, gained, lost, differences)


def difference(this: Array, other: Array, labels: NDArray[np.int64]) -> Difference:
    """Means of two scores of each query (n,), and the interval of their difference over classes."""
    return Difference(float(this.mean()), float(other.mean()), interval_over_classes(this - other, labels))


def _check_same(items: Items, other: Items, name: str) -> None:
    if len(items) != len(other):
        raise OtherItemsError(f"{name}: has {len(other):,} items, expected the same {len(items):,} items as this model")
    classes = [text_array(each.classes)[each.labels] for each in (items, other)]
    differs = classes[0] != classes[1]
    if len(items.names) and len(other.names) and _array_of(items.names) == _array_of(other.names):
        differs |= text_array(items.names) != text_array(other.names)
    if differs.any():
        first = int(differs.argmax())
        got, expected = (f"{each.name(first)!r} of class {each.class_name(first)!r}" for each in (other, items))
        raise OtherItemsError(f"{name}: has other items; number {first} is {got}, expected {expected}")


def _array_of(names: Sequence[str]) -> str | None:
    """Return the name of an array whose items are only numbered, "test" for test[0], ...; None if items have names.

    Numbered items are compared by their numbers alone, because files with the same items may have different names.
    """
    numbered = [NUMBERED.fullmatch(str(name)) for name in names]
    arrays = {None if match is None else match[1] for match in numbered}
    return arrays.pop() if len(arrays) == 1 else None
