"""Distances of similar and of dissimilar pairs, all or a sample, for their histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..evaluation.groups import Members, kinds_of
from ..numerics.distances import pair_distances
from .content import Items

PAIR_SAMPLE = 100_000  # maximum number of pairs of each kind
OVERLAP_BINS = 100  # bins of the histograms from which the overlap is computed


@dataclass(frozen=True, eq=False)
class PairDistances:
    """Sorted distances of pairs of one class and of two classes, and whether they are all pairs or a sample."""

    similar: NDArray[np.float64]
    dissimilar: NDArray[np.float64]
    complete: bool

    def edges(self, bins: int) -> NDArray[np.float64]:
        """Edges (bins + 1,) of histograms of both."""
        low = min(self.similar[0], self.dissimilar[0])
        high = max(self.similar[-1], self.dissimilar[-1])
        return np.linspace(low, high + 1e-9 * abs(high) or 1.0, bins + 1)

    def overlap(self) -> float:
        """Area that the two histograms share, in [0, 1]."""
        edges = self.edges(OVERLAP_BINS)
        shares = [np.histogram(d, edges)[0] / len(d) for d in (self.similar, self.dissimilar)]
        return float(np.minimum(*shares).sum())


def measure_pairs(
    queries: Items, gallery: Items | None, distance: str, *, sample: int = PAIR_SAMPLE, seed: int = 0
) -> PairDistances | None:
    """Compute the distances of all pairs if there are few, else of a uniform random sample of each kind.

    Parameters
    ----------
    queries : Items
        Queries.
    gallery : Items
        Pairs are (query, gallery item); without a gallery, two different queries. Pairs of one class and group are left
        out.
    distance : str
        "cosine" (1 - cosine), "euclidean" or "sqeuclidean".
    sample : int
        Maximum number of pairs of each kind.
    seed : int
        Seed of the generator that draws the sample.

    Returns
    -------
    PairDistances or None
        None if one of the two kinds has no pair.
    """
    n = len(queries)
    m = len(gallery or queries)
    complete = n * m <= 2 * sample
    if complete:
        picked = _all_pairs(queries, gallery)
    else:
        picked = _drawn_pairs(queries, gallery, sample, seed)
    pool = gallery or queries
    measured = [np.sort(pair_distances(queries.embeddings, pool.embeddings, i, j, distance)) for i, j in picked]
    if not all(map(len, measured)):
        return None
    return PairDistances(measured[0], measured[1], complete)


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def _kinds(queries: Items, gallery: Items | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each query and each gallery item; items with equal numbers are not a pair.

    Equal numbers mean the same item, or the same class and group. The items are sorted by class.
    """
    alone = gallery is None
    pool = gallery or queries
    kinds = kinds_of(queries.labels, pool.labels, queries.groups, None if alone else pool.groups, alone)
    if kinds is not None:
        return kinds
    rank = np.empty(len(pool), dtype=np.int64)
    rank[np.argsort(pool.labels, kind="stable")] = np.arange(len(pool))
    return rank if alone else np.full(len(queries), len(pool)), rank


def _all_pairs(queries: Items, gallery: Items | None) -> tuple[Pairs, Pairs]:
    if gallery is None:
        i, j = np.triu_indices(len(queries), 1)
    else:
        i, j = (axis.ravel() for axis in np.indices((len(queries), len(gallery))))
    same = queries.labels[i] == (gallery or queries).labels[j]
    query_kinds, gallery_kinds = _kinds(queries, gallery)
    similar = same & (query_kinds[i] != gallery_kinds[j])
    return (i[similar], j[similar]), (i[~same], j[~same])


def _drawn_pairs(queries: Items, gallery: Items | None, sample: int, seed: int) -> tuple[Pairs, Pairs]:
    """Draw pairs uniformly: a query in proportion to its number of partners, then one of its partners uniformly."""
    rng = np.random.default_rng(seed)
    pool = gallery or queries
    counts = np.bincount(pool.labels, minlength=len(queries.classes))
    size = counts[queries.labels]
    start = (np.cumsum(counts) - counts)[queries.labels]
    query_kinds, gallery_kinds = _kinds(queries, gallery)
    members = Members(query_kinds, gallery_kinds)  # sorted by class
    away = members.sizes[query_kinds]
    first = members.begins[query_kinds]
    i = _weighted(rng, size - away, sample)
    place = start[i] + rng.integers(0, np.maximum(size[i] - away[i], 1))
    place += np.where(place >= first[i], away[i], 0)
    k = _weighted(rng, len(pool) - size, sample)
    other = rng.integers(0, np.maximum(len(pool) - size[k], 1))
    other += np.where(other >= start[k], size[k], 0)
    return (i, members.rows[place]), (k, members.rows[other])


def _weighted(rng: np.random.Generator, weights: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if not weights.sum():
        return np.zeros(0, dtype=np.int64)
    return rng.choice(len(weights), size=count, p=weights / weights.sum())
