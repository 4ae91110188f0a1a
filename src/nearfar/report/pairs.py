"""Distances of similar and of dissimilar pairs, all or a sample, for their histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.distances import pair_distances
from .content import Items

SAMPLE = 100_000  # pairs of each kind
BINS = 100  # of the histograms whose overlap is told


@dataclass(frozen=True, eq=False)
class PairDistances:
    """Sorted distances of pairs of one class and of two classes, and whether they are all pairs or a sample."""

    similar: NDArray[np.float64]
    dissimilar: NDArray[np.float64]
    complete: bool

    def edges(self, bins: int) -> NDArray[np.float64]:
        """Edges (bins + 1,) of histograms of both."""
        low, high = min(self.similar[0], self.dissimilar[0]), max(self.similar[-1], self.dissimilar[-1])
        return np.linspace(low, high + 1e-9 * abs(high) or 1.0, bins + 1)

    def overlap(self) -> float:
        """Area that the two histograms share, in [0, 1]."""
        edges = self.edges(BINS)
        shares = [np.histogram(d, edges)[0] / len(d) for d in (self.similar, self.dissimilar)]
        return float(np.minimum(*shares).sum())


def measure_pairs(
    queries: Items, gallery: Items | None, distance: str, *, sample: int = SAMPLE, seed: int = 0
) -> PairDistances | None:
    """Measure all pairs where there are few, else a seeded sample drawn uniformly from each kind.

    Parameters
    ----------
    queries, gallery : Items
        Pairs are (query, gallery item); without a gallery, two different queries.
    distance : str
        "cosine" (1 - cosine), "euclidean" or "sqeuclidean".
    sample : int
        Most pairs of each kind.
    seed : int
        Draws the sample.

    Returns
    -------
    PairDistances or None
        None where one of the two kinds has no pair.
    """
    n, m = len(queries), len(gallery or queries)
    complete = n * m <= 2 * sample
    picked = _all_pairs(queries, gallery) if complete else _drawn_pairs(queries, gallery, sample, seed)
    pool = gallery or queries
    measured = [np.sort(pair_distances(queries.embeddings, pool.embeddings, i, j, distance)) for i, j in picked]
    if not all(map(len, measured)):
        return None
    return PairDistances(measured[0], measured[1], complete)


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def _all_pairs(queries: Items, gallery: Items | None) -> tuple[Pairs, Pairs]:
    if gallery is None:
        i, j = np.triu_indices(len(queries), 1)
        same = queries.labels[i] == queries.labels[j]
    else:
        i, j = (axis.ravel() for axis in np.indices((len(queries), len(gallery))))
        same = queries.labels[i] == gallery.labels[j]
    return (i[same], j[same]), (i[~same], j[~same])


def _drawn_pairs(queries: Items, gallery: Items | None, sample: int, seed: int) -> tuple[Pairs, Pairs]:
    """Draw a query with weight = its number of partners, then a partner uniformly: every pair is as likely."""
    rng = np.random.default_rng(seed)
    pool = gallery or queries
    order = np.argsort(pool.labels, kind="stable")
    counts = np.bincount(pool.labels, minlength=len(queries.classes))
    starts = np.cumsum(counts) - counts
    size, start = counts[queries.labels], starts[queries.labels]
    alone = gallery is None
    i = _weighted(rng, size - alone, sample)
    place = rng.integers(0, np.maximum(size[i] - alone, 1))
    if alone:
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        place += place >= rank[i] - start[i]
    j = order[start[i] + place] if len(i) else i
    k = _weighted(rng, len(pool) - size, sample)
    other = rng.integers(0, np.maximum(len(pool) - size[k], 1))
    other += np.where(other >= start[k], size[k], 0)
    return (i, j), (k, order[other] if len(k) else k)


def _weighted(rng: np.random.Generator, weights: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if not weights.sum():
        return np.zeros(0, dtype=np.int64)
    return rng.choice(len(weights), size=count, p=weights / weights.sum())
