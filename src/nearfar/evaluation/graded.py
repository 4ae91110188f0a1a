"""Scores of items that are more or less relevant to each other, such as items with several labels or levels.

    DCG@k(q) = sum_{i=1..k} g(q, i) / log2(i + 1)        g: gain of the i-th nearest item
    nDCG@k(q) = DCG@k(q) / that of the best order

The gain of two items with sets of labels is their number of labels in common. An item is relevant if its gain is above
0; queries without a relevant item are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import as_rows, unit_rows
from ..numerics.types import Array, Bools, Ints
from .rerank import row_blocks

Gains = Callable[[Any], Array]


class Graded(NamedTuple):
    """Means over the queries that have a relevant item.

    Attributes
    ----------
    ndcg : float
        nDCG at `k`.
    recall_at_1 : float
        Share of the queries whose nearest item is relevant.
    map_at_r : float
        MAP@R, with all items of a gain above 0 as relevant.
    k : int
        Number of items that nDCG looks at.
    queries : int
        Number of queries.
    """

    ndcg: float
    recall_at_1: float
    map_at_r: float
    k: int
    queries: int

    def __str__(self) -> str:
        return f"Recall@1 {self.recall_at_1:.4f}, MAP@R {self.map_at_r:.4f}, nDCG@{self.k} {self.ndcg:.4f}"


class GradedQueries(NamedTuple):
    """Scores of single queries that have a relevant item.

    Attributes
    ----------
    place : ndarray of int, shape (q,)
        Which of all queries they are.
    ndcg, recall_at_1, map_at_r : ndarray of shape (q,)
        Their scores.
    """

    place: Ints
    ndcg: Array
    recall_at_1: Array
    map_at_r: Array

    def mean(self, k: int) -> Graded:
        """Return the means over the queries, with `k`, the number of items of nDCG."""
        if not len(self.place):
            return Graded(np.nan, np.nan, np.nan, k, 0)
        ndcg, recall, precision = (float(each.mean()) for each in self[1:])
        return Graded(ndcg, recall, precision, k, len(self.place))


def ndcg_at_k(embeddings: Any, relevance: Any, k: int = 10, *, gallery: Any = None) -> float:
    """Compute nDCG: how far the nearest items, by cosine, come in the order of their relevance.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings of the queries.
    relevance : array-like of shape (n, m)
        Gain of each item of the gallery for each query, 0 or more; also a sparse array of SciPy.
    k : int
        Number of nearest items that count.
    gallery : array-like of shape (m, d), optional
        Embeddings that are searched. By default, each query searches all others.

    Returns
    -------
    float
        Mean over the queries with a relevant item; NaN if there is none.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a gain is negative or not finite.

    Examples
    --------
    >>> rows = [[1, 0], [0.9, 0.1], [0.5, 0.5], [0, 1]]
    >>> ndcg_at_k(rows, [[0, 2, 1, 0], [2, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]], k=2)
    1.0
    """
    sparse = hasattr(relevance, "tocsr")
    gains: Any = relevance.tocsr() if sparse else np.asarray(relevance, dtype=np.float64)
    queries = as_rows(embeddings, "embeddings")
    others = queries if gallery is None else as_rows(gallery, "gallery")
    if gains.shape != (len(queries), len(others)):
        raise ValueError(
            f"relevance: expected shape {(len(queries), len(others))}, queries and items, got {gains.shape}"
        )
    values: Any = gains.data if sparse else gains
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("relevance: gains must be finite, and 0 or more")
    found = _graded(queries, gallery, lambda part: gains[part].toarray() if sparse else gains[part].copy(), k)
    return found.mean(k).ndcg


def label_set_scores(
    embeddings: Any,
    hot: Any,
    k: int = 10,
    *,
    gallery: Any = None,
    gallery_hot: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
) -> Graded:
    """Score embeddings of items with several labels each, which are relevant to each other by labels in common.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings of the queries.
    hot : array-like of shape (n, labels)
        Which labels each query has, 1 or 0.
    k : int
        Number of nearest items that nDCG looks at.
    gallery, gallery_hot : array-like, optional
        Embeddings that are searched, and their labels. By default, each query searches all others.
    groups, gallery_groups : array-like, optional
        Object, camera or video of each item: no query finds items of its own group that have a label in common.

    Returns
    -------
    Graded
        The scores.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> rows = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
    >>> print(label_set_scores(rows, [[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 1]], k=2))
    Recall@1 1.0000, MAP@R 0.8750, nDCG@2 0.9033
    """
    how: dict[str, Any] = {"gallery": gallery, "gallery_hot": gallery_hot}
    how |= {"groups": groups, "gallery_groups": gallery_groups}
    return label_set_scores_of_queries(embeddings, hot, k, **how).mean(k)


def label_set_scores_of_queries(
    embeddings: Any,
    hot: Any,
    k: int = 10,
    *,
    gallery: Any = None,
    gallery_hot: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
) -> GradedQueries:
    """Return the scores of single queries, of which `label_set_scores` has the means."""
    sets = np.asarray(hot, dtype=np.float32)
    others = sets if gallery is None else np.asarray(gallery_hot, dtype=np.float32)
    if sets.ndim != 2 or sets.shape[1:] != others.shape[1:]:
        raise ValueError(
            f"hot: expected (n, labels) and the same labels in the gallery, got {sets.shape}, {others.shape}"
        )
    if len(sets) != len(embeddings):
        raise ValueError(f"hot: expected {len(embeddings)} rows, one for each embedding, got {len(sets)}")
    hidden = None
    if groups is not None:
        of_queries = np.asarray(groups)
        of_items = of_queries if gallery is None else np.asarray(gallery_groups)

        def hidden(part: Any) -> Bools:
            same: Bools = of_queries[part][:, None] == of_items
            return same

    queries = as_rows(embeddings, "embeddings")
    return _graded(queries, gallery, lambda part: (sets[part] @ others.T).astype(np.float64), k, hidden)


def _graded(
    queries: Array, gallery: Any, gains_of: Gains, k: int, hidden: Callable[[Any], Bools] | None = None
) -> GradedQueries:
    """Return the scores of queries; `gains_of` gives the gains (b, m) of some of them.

    `hidden` gives which items (b, m) these queries do not find if they are relevant.
    """
    if k < 1:
        raise ValueError(f"k: expected an integer of at least 1, got {k}")
    rows = unit_rows(queries)
    others = rows if gallery is None else unit_rows(as_rows(gallery, "gallery"))
    m = len(others)
    # 1 / log2(i + 1) for the ranks i = 1..k
    discount = 1 / np.log2(np.arange(min(k, m)) + 2)
    ranks = np.arange(1, m + 1)
    found = []
    places = []
    for part in row_blocks(np.arange(len(rows)), 64 * m):
        gains = gains_of(part)
        # cosines (b, m); a query does not find itself, and what is hidden is neither found nor relevant
        likeness = rows[part] @ others.T
        if gallery is None:
            gains[np.arange(len(part)), part] = 0
            likeness[np.arange(len(part)), part] = -np.inf
        if hidden is not None:
            apart = hidden(part) & (gains > 0)
            gains[apart] = 0
            likeness[apart] = -np.inf
        # stable, so that ties are in the order of the gallery on every machine
        order = np.argsort(-likeness, axis=1, kind="stable")
        ranked = np.take_along_axis(gains, order, axis=1)
        # the gains of the best order: the largest first; without a gain above 0, nothing can be found
        best = -np.sort(-gains, axis=1)[:, : len(discount)]
        fair = best[:, 0] > 0
        ranked = ranked[fair]
        hits = ranked > 0
        relevant = hits.sum(axis=1)
        precision = hits.cumsum(axis=1) / ranks
        # precision at the rank of each relevant item among the R nearest, over R
        map_at_r = (precision * hits * (ranks <= relevant[:, None])).sum(axis=1) / relevant
        ndcg = (ranked[:, : len(discount)] @ discount) / (best[fair] @ discount)
        found.append(np.stack([ndcg, hits[:, 0], map_at_r]))
        places.append(part[fair])
    scores = np.concatenate(found, axis=1) if found else np.empty((3, 0))
    return GradedQueries(np.concatenate(places) if places else np.empty(0, int), *scores)
