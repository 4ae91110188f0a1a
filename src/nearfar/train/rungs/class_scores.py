"""Scores of single classes, and what to expect of an epoch, or of another choice, that the same classes have made.

The best of several scores is too high: its noise has helped to choose it. The score of a class does not choose itself
where all the other classes choose:

    k(c) = argmax_k  mean of score[k] over the items of all classes but c
    score of c = score[k(c), c]

The mean over the classes is nearly unbiased for what all of them choose, and no class is lost for the comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...evaluation.retrieval import Retrieval, retrieve
from ...numerics.types import AnyArray, Array, Ints


class ClassScores(NamedTuple):
    """Scores of each class with items that have something to find.

    Attributes
    ----------
    counts : ndarray of int, shape (C,)
        Number of such items.
    map_at_r, recall_at_1 : ndarray of shape (C,)
        Means over these items.
    """

    counts: Ints
    map_at_r: Array
    recall_at_1: Array

    @classmethod
    def of(cls, found: Retrieval, labels: Ints) -> ClassScores:
        """Return the means of the scores of queries with classes (n,)."""
        scored = found.relevant > 0  # items that are alone in their class find nothing
        return cls.means(labels[scored], found.map_at_r[scored], found.first_rank[scored] == 1)

    @classmethod
    def means(cls, labels: Ints, map_at_r: Array, recall_at_1: AnyArray) -> ClassScores:
        """Return the means of the scores of queries that have something to find, (q,), over those with equal labels."""
        codes = np.unique(labels, return_inverse=True)[1]
        counts = np.bincount(codes)
        return cls(counts, np.bincount(codes, map_at_r) / counts, np.bincount(codes, recall_at_1) / counts)

    def mean(self, by_class: Array) -> float:
        """Return the mean over the items of a score of each class."""
        return float(np.average(by_class, weights=self.counts))


def search(
    rows: AnyArray,
    labels: Ints,
    *,
    groups: AnyArray | None = None,
    asks: NDArray[np.bool_] | None = None,
    searched: AnyArray | None = None,
    ks: Iterable[int] = (1,),
) -> tuple[Retrieval, Ints]:
    """Search items as an evaluation does, by cosine, and return the scores of the queries and their classes.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Embeddings of the items.
    labels : ndarray of shape (n,)
        Their classes.
    groups : ndarray of shape (n,), optional
        Items of one group are not relevant to each other.
    asks : ndarray of bool, shape (n,), optional
        Which items are queries, which search only the others. By default, each item searches all others.
    searched : ndarray of shape (n, d), optional
        Other embeddings of the same items, which are searched instead of `rows`.
    ks : iterable of int
        Values of K of Recall@K.

    Examples
    --------
    >>> rows = np.array([[1, 0], [1, 0.1], [0, 1], [1, 0.2]])  # two queries, then a document of each
    >>> classes = np.array([0, 1, 1, 0])
    >>> search(rows, classes)[0].first_rank
    array([2, 3, 2, 2])
    >>> search(rows, classes, asks=np.array([True, True, False, False]))[0].first_rank
    array([1, 2])
    """
    if asks is None and searched is None:
        return retrieve(rows, labels, groups=groups, ks=ks), labels
    queries = np.arange(len(rows))
    documents = queries
    if asks is not None:
        queries = np.flatnonzero(asks)
        documents = np.flatnonzero(~asks)
    found = retrieve(
        rows[queries],
        labels[queries],
        gallery=(rows if searched is None else searched)[documents],
        gallery_labels=labels[documents],
        groups=part_of(groups, queries),
        gallery_groups=part_of(groups, documents),
        ids=queries,
        gallery_ids=documents,
        ks=ks,
    )
    return found, labels[queries]


def part_of(values: AnyArray | None, chosen: AnyArray) -> AnyArray | None:
    """Return what belongs to the chosen items, such as their groups; None if nothing belongs to any."""
    return None if values is None else values[chosen]


def left_out(deciding: Array, counts: Ints, scores: Array | None = None) -> Array:
    """Return the score of each class at what the other classes choose, (C,).

    Parameters
    ----------
    deciding : ndarray of shape (K, C)
        Scores of K things for C classes, at least two; the first one with the largest mean is chosen.
    counts : ndarray of int, shape (C,)
        Numbers of items, with which classes count.
    scores : ndarray of shape (K, C), optional
        Scores to return; by default, those that decide.

    Examples
    --------
    >>> epochs = np.array([[0.5, 0.9, 0.5], [0.6, 0.5, 0.6]])  # the mean of the first is larger because of one class
    >>> left_out(epochs, np.array([10, 10, 10]))
    array([0.5, 0.5, 0.5])
    """
    weighted = deciding * counts
    others = (weighted.sum(axis=1, keepdims=True) - weighted) / (counts.sum() - counts)
    chosen = others.argmax(axis=0)  # (C,)
    found: Array = (deciding if scores is None else scores)[chosen, np.arange(len(counts))]
    return found


def optimism(deciding: Array, counts: Ints, scores: Array | None = None) -> Array:
    """Return by how much the scores of what all classes choose are higher than those of `left_out`, (C,)."""
    chosen = int(np.argmax(deciding @ counts))
    scores = deciding if scores is None else scores
    found: Array = scores[chosen] - left_out(deciding, counts, scores)
    return found
