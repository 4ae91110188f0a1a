"""Which queries fail, and which classes are confused, from one exact neighbor search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..evaluation.groups import Members, kinds_of
from ..neighbors.nearest import nearest
from .content import Items

RANKING_DEPTH = 100  # number of neighbors among which the first correct one is sought


@dataclass(frozen=True, eq=False)
class QueryNeighbors:
    """The neighbors of every query that has a relevant item to find.

    Parameters
    ----------
    queries : Items
        Queries.
    gallery : Items
        Items to search; the same object if every query searches the other queries.
    kept : ndarray of int, shape (q,)
        Queries with at least one relevant item.
    index : ndarray, shape (q, k)
        Their neighbors in the gallery, nearest first.
    distances : ndarray, shape (q, k)
        Distances of these neighbors.
    right : ndarray of bool, shape (q, k)
        Whether each neighbor has the class of the query.
    relevant : ndarray of int, shape (q,)
        Number of relevant items of each query.
    """

    queries: Items
    gallery: Items
    kept: NDArray[np.int64]
    index: NDArray[np.int64]
    distances: NDArray[np.float64]
    right: NDArray[np.bool_]
    relevant: NDArray[np.int64]

    @property
    def depth(self) -> int:
        """Number k of neighbors of each query."""
        return self.right.shape[1]

    def rank_of_first_relevant(self) -> NDArray[np.int64]:
        """Rank of the first relevant neighbor of each kept query, counted from 1; k + 1 if none is relevant."""
        return np.where(self.right.any(axis=1), self.right.argmax(axis=1), self.depth) + 1

    def query_labels(self) -> NDArray[np.int64]:
        """Class of each kept query."""
        return self.queries.labels[self.kept]


def query_neighbors(
    queries: Items, gallery: Items | None, distance: str, depth: int = RANKING_DEPTH
) -> QueryNeighbors | None:
    """Find the nearest items of every query, without those of its own class and group.

    Returns
    -------
    QueryNeighbors or None
        None if no query has a relevant item, for example if every class has one item.
    """
    alone = gallery is None
    pool = gallery or queries
    n_hidden = np.full(len(queries), int(alone))
    hidden = None
    kinds = kinds_of(queries.labels, pool.labels, queries.groups, None if alone else pool.groups, alone)
    if kinds is not None:
        query_kinds = kinds[0]
        members = Members(*kinds)
        n_hidden = members.sizes[query_kinds]
        hidden = partial(members.of_rows, query_kinds)
    relevant = np.bincount(pool.labels, minlength=len(queries.classes))[queries.labels] - n_hidden
    kept = np.flatnonzero(relevant > 0)
    if not len(kept):
        return None
    k = min(depth, int((len(pool) - n_hidden[kept]).min()))
    rows = (queries.embeddings, pool.embeddings)
    distances, index = nearest(*rows, k, distance=distance, exclude_self=alone, hidden=hidden)
    index = index[kept]
    distances = distances[kept]
    right = pool.labels[index] == queries.labels[kept][:, None]
    return QueryNeighbors(
        queries=queries, gallery=pool, kept=kept, index=index, distances=distances, right=right, relevant=relevant[kept]
    )


def worst_rows(
    retrieved: QueryNeighbors, count: int, per_class: int = 2, among: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the rows of the worst queries with a wrong nearest neighbor, worst first.

    The worst query is the one whose first relevant neighbor has the highest rank; among equals, the one with the
    closest wrong neighbor. At most `per_class` queries of each class are taken, so that one bad class does not hide the
    others. With `among` (q,), only these queries are considered.
    """
    order = np.lexsort((retrieved.distances[:, 0], -retrieved.rank_of_first_relevant()))
    order = order[~retrieved.right[order, 0] & (True if among is None else among[order])]
    labels = retrieved.query_labels()[order]
    by_class = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[by_class], labels[by_class])
    place = np.empty(len(order), dtype=np.int64)
    place[by_class] = np.arange(len(order)) - starts
    return order[place < per_class][:count]


def random_rows(retrieved: QueryNeighbors, count: int, seed: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of some random queries, without the `excluded` ones."""
    rest = np.setdiff1d(np.arange(len(retrieved.kept)), excluded)
    chosen = np.random.default_rng(seed).permutation(rest)[:count]
    return np.sort(chosen)


def class_recall(retrieved: QueryNeighbors) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Recall@1 of every class with queries.

    Returns
    -------
    classes, recall, counts : ndarray, shape (c,)
        Class indices, the share of their queries with a right nearest neighbor, and the number of queries.
    """
    labels = retrieved.query_labels()
    counts = np.bincount(labels)
    hits = np.bincount(labels, weights=retrieved.right[:, 0])
    present = np.flatnonzero(counts)
    return present, hits[present] / counts[present], counts[present]


@dataclass(frozen=True, eq=False)
class Confusion:
    """Two classes whose items are each other's nearest neighbors.

    `rows` are the rows of `QueryNeighbors` whose nearest neighbor crosses between the classes; `forth` of them are
    queries of `first`, `back` of `second`, out of `total` queries of both classes.
    """

    first: int
    second: int
    rows: NDArray[np.int64]
    forth: int
    back: int
    total: int

    @property
    def rate(self) -> float:
        """Share of the two classes' queries whose nearest neighbor is of the other class."""
        return len(self.rows) / self.total


def confusions(retrieved: QueryNeighbors, count: int) -> list[Confusion]:
    """The most confused pairs of classes, by the share of crossing nearest neighbors (at least two crossings)."""
    labels = retrieved.query_labels()
    others = retrieved.gallery.labels[retrieved.index[:, 0]]
    wrong = np.flatnonzero(labels != others)
    low = np.minimum(labels, others)[wrong]
    high = np.maximum(labels, others)[wrong]
    pairs, inverse, crossings = np.unique(np.stack([low, high], 1), axis=0, return_inverse=True, return_counts=True)
    sizes = np.bincount(labels, minlength=len(retrieved.queries.classes))
    rates = crossings / sizes[pairs].sum(axis=1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -crossings, -rates))
    order = order[crossings[order] > 1][:count]
    members = [wrong[inverse.reshape(-1) == p] for p in order]
    return [_confusion(retrieved, pairs[p], rows, labels, sizes) for p, rows in zip(order, members, strict=True)]


def _confusion(
    retrieved: QueryNeighbors,
    pair: NDArray[np.int64],
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> Confusion:
    forth = int((labels[rows] == pair[0]).sum())
    nearest_first = rows[np.argsort(retrieved.distances[rows, 0], kind="stable")]
    return Confusion(
        first=int(pair[0]),
        second=int(pair[1]),
        rows=nearest_first,
        forth=forth,
        back=len(rows) - forth,
        total=int(sizes[pair].sum()),
    )
