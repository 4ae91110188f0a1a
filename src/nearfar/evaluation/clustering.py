"""k-means of embeddings and how well its clusters match the classes.

    n_kc samples of class c in cluster k, sizes n_k and n_c, entropies H, mutual information I:
    NMI        I / mean(H_classes, H_clusters), arithmetic or geometric mean
    AMI        (I - E[I]) / (arithmetic mean - E[I]), E[I] over random partitions of the same sizes (Vinh et al., 2010)
    pair F1    2 P R / (P + R), P = TP / sum_k C(n_k, 2), R = TP / sum_c C(n_c, 2), TP = sum_kc C(n_kc, 2)

The arithmetic NMI is never above the geometric one.
"""

from __future__ import annotations

from importlib.util import find_spec
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from ..labels import class_numbers
from ..neighbors.kmeans import Rows, kmeans, plain_kmeans
from ..numerics.distances import as_rows, check_distance, unit_rows
from ..numerics.types import Array, Ints
from ..progress import counted

NAMES = ("labels", "clusters")


class Clusters(NamedTuple):
    """A clustering: cluster numbers (n,), the sum of squared distances to the centers, and the engine that was used."""

    numbers: Ints
    inertia: float
    engine: str


def cluster(
    embeddings: Any,
    n_clusters: int,
    *,
    distance: str = "cosine",
    restarts: int = 1,
    iterations: int = 25,
    seed: int = 0,
    engine: str = "auto",
    plain: bool = False,
) -> Clusters:
    """Cluster embeddings by k-means, improved by breathing steps and exchanges of rows after Lloyd's steps.

    The inertia is smaller than after Lloyd's steps alone, especially if the clusters have few rows.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings; they are normalized first if ``distance="cosine"``.
    n_clusters : int
        Number of clusters; for scores, the number of classes.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared. "cosine" normalizes the rows first.
    restarts : int
        Number of runs from different seeds, at least 1; the clustering with the smallest inertia is kept.
    iterations : int
        Maximum number of Lloyd's steps per run. With more than one cluster per 64 rows there are none, as the later
        steps improve more in less time.
    seed : int
        Seed of the generator. The same seed and engine give the same result.
    engine : {"auto", "faiss", "scikit-learn"}
        Library that finds the nearest centers; "auto" chooses faiss if it is installed. Results differ by rounding.
    plain : bool
        Use Lloyd's steps from random rows alone, as most papers do, for scores that can be compared with theirs.

    Returns
    -------
    Clusters
        Cluster numbers, the inertia and the engine.

    Raises
    ------
    ValueError
        If `n_clusters` is not in 1..n, `restarts` is below 1, or the distance or engine is unknown.

    Notes
    -----
    Breathing k-means: Fritzke, arXiv:2006.15666, 2020.
    """
    rows = as_rows(embeddings, "embeddings")
    if not isinstance(n_clusters, Integral) or not 1 <= n_clusters <= len(rows):
        raise ValueError(f"n_clusters: expected 1 to {len(rows)} (the rows), got {n_clusters}")
    engine = checked_engine(engine, restarts)
    if check_distance(distance) == "cosine":
        rows = unit_rows(rows)
    # squares of float32 must neither overflow nor vanish; a power of 2 changes no digit
    exponent = int(np.frexp(np.abs(rows).max())[1])
    rows = np.ldexp(rows, -exponent)
    rows = np.ascontiguousarray(rows - rows.mean(axis=0, dtype=np.float64), dtype=np.float32)
    nearest = _faiss if engine == "faiss" else _sklearn
    rng = np.random.default_rng(seed)
    find = plain_kmeans if plain else kmeans
    found = [
        find(rows, n_clusters, rng, iterations=iterations, nearest=nearest)
        for _ in counted(range(restarts), "clustering", restarts)
    ]
    best = min(found, key=lambda result: result.inertia)
    with np.errstate(over="ignore"):
        return Clusters(best.numbers, float(np.ldexp(best.inertia, 2 * exponent)), engine)


def checked_engine(engine: str, restarts: int) -> str:
    """Return the engine to use; raise a ValueError if it is unknown, or there is less than one restart."""
    if not isinstance(restarts, Integral) or restarts < 1:
        raise ValueError(f"restarts: expected at least 1, got {restarts}")
    if engine == "auto":
        return "faiss" if find_spec("faiss") else "scikit-learn"
    if engine not in ("faiss", "scikit-learn"):
        raise ValueError(f'engine: expected "auto", "faiss" or "scikit-learn", got {engine!r}')
    return engine


def _faiss(rows: Rows, centers: Rows) -> tuple[Rows, Ints]:
    import faiss

    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(np.ascontiguousarray(centers))
    squares, numbers = index.search(np.ascontiguousarray(rows), 1)
    return squares[:, 0], numbers[:, 0].astype(np.intp)


def _sklearn(rows: Rows, centers: Rows) -> tuple[Rows, Ints]:
    from sklearn.metrics import pairwise_distances_argmin_min

    numbers, squares = pairwise_distances_argmin_min(rows, centers, metric="sqeuclidean")
    return squares.astype(np.float32), numbers.astype(np.intp)


class Table(NamedTuple):
    """The filled cells of a contingency table: counts of cells, and sizes of the classes and clusters."""

    cells: Ints
    row: Ints
    column: Ints
    classes: Ints
    clusters: Ints


def contingency(labels: Any, clusters: Any) -> Table:
    """Count samples per (class, cluster); both arguments (n,), of any hashable kind."""
    (a,) = class_numbers(labels, names=NAMES[:1])
    (b,) = class_numbers(clusters, names=NAMES[1:])
    if len(a) != len(b) or len(a) == 0:
        raise ValueError(f"clusters: expected {len(a)} numbers, one per label and at least one, got {len(b)}")
    width = int(b.max()) + 1
    keys, cells = np.unique(a * width + b, return_counts=True)
    return Table(cells, keys // width, keys % width, np.bincount(a), np.bincount(b))


def nmi(labels: Any, clusters: Any, average: str = "arithmetic") -> float:
    """Return the normalized mutual information of two partitions; name its mean with it, as the literature uses both.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Class of each sample, of any hashable type.
    clusters : array-like of shape (n,)
        Cluster of each sample, of any hashable type.
    average : {"arithmetic", "geometric"}
        Mean of the two entropies in the denominator.

    Returns
    -------
    float
        In [0, 1]: 1 for equal partitions, including two partitions of one part, and 0 if only one of them has one part.

    Examples
    --------
    >>> nmi(["a", "a", "b", "b"], [1, 1, 0, 0])
    1.0
    """
    if average not in ("arithmetic", "geometric"):
        raise ValueError(f'average: expected "arithmetic" or "geometric", got {average!r}')
    table = contingency(labels, clusters)
    h = _entropy(table.classes)
    g = _entropy(table.clusters)
    if average == "arithmetic":
        mean = (h + g) / 2
    else:
        mean = np.sqrt(h * g)
    if len(table.classes) == len(table.clusters) == 1:
        return 1.0
    if mean > 0:
        return float(np.clip(_information(table) / mean, 0.0, 1.0))  # NMI = I / mean(H, G), up to rounding
    return 0.0


def ami(labels: Any, clusters: Any) -> float:
    """Return the adjusted mutual information (arithmetic mean): 0 on average for random clusters, 1 for equal ones.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Class of each sample, of any hashable type.
    clusters : array-like of shape (n,)
        Cluster of each sample, of any hashable type.

    Returns
    -------
    float
        At most 1; it can be slightly negative.

    Notes
    -----
    Vinh, Epps & Bailey, JMLR 11, 2010. The expectation is computed once per pair of distinct sizes, so that many
    classes of few sizes cost little.
    """
    table = contingency(labels, clusters)
    n = int(table.cells.sum())
    parts = len(table.classes), len(table.clusters)
    if parts in ((1, 1), (n, n)):
        return 1.0
    if 1 in parts:
        return 0.0
    # E[I] of random clusters of the same sizes
    expected = _expected_information(table)
    # AMI = (I - E[I]) / ((H + G) / 2 - E[I]); the denominator keeps its sign, and is never 0
    gap = (_entropy(table.classes) + _entropy(table.clusters)) / 2 - expected
    smallest = np.finfo(np.float64).eps
    if abs(gap) < smallest:
        gap = float(np.copysign(smallest, gap))
    return float((_information(table) - expected) / gap)


def pairwise_f1(labels: Any, clusters: Any) -> float:
    """Return the F1 score of the pairs that share a cluster against the pairs that share a class.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Class of each sample, of any hashable type.
    clusters : array-like of shape (n,)
        Cluster of each sample, of any hashable type.

    Returns
    -------
    float
        In [0, 1]; 0 if no pair shares both. Pairs are counted exactly, as 64-bit integers.
    """
    table = contingency(labels, clusters)
    common = _pairs_within(table.cells)
    if common == 0:
        return 0.0
    # precision is common / clustered, recall is common / classes
    return 2.0 * common / (_pairs_within(table.classes) + _pairs_within(table.clusters))


def _pairs_within(sizes: Ints) -> int:
    """Return the number of pairs inside parts of the given sizes: sum m (m - 1) / 2."""
    return int((sizes * (sizes - 1) // 2).sum())


def _entropy(sizes: Ints) -> float:
    """Return H = -sum p log p of a partition into parts of the given sizes."""
    p = sizes / sizes.sum()
    return float(-(p * np.log(p)).sum())


def _information(table: Table) -> float:
    """Return I = sum p_ab log(p_ab / (p_a p_b)) over the cells of class a and cluster b."""
    n = table.cells.sum()
    p = table.cells / n
    return float((p * np.log(n * table.cells / (table.classes[table.row] * table.clusters[table.column]))).sum())


def _expected_information(table: Table) -> float:
    """Return E[I] of random partitions with the same sizes, summed over pairs of distinct sizes times their number."""
    n = int(table.cells.sum())
    a, times_a = np.unique(table.classes, return_counts=True)
    b, times_b = np.unique(table.clusters, return_counts=True)
    total = 0.0
    for size, times in zip(a, times_a, strict=True):
        total += float(times * (times_b @ _expected_cells(int(size), b, n)))
    return total


def _expected_cells(a: int, b: Ints, n: int) -> Array:
    """Return the expected term of I of a cell, for a class of size a and clusters of the distinct sizes b, (len(b),).

    The number x of common items has the hypergeometric distribution P(x), x = max(1, a + b - n) .. min(a, b):

        sum_x P(x) (x / n) log(n x / (a b))
        P(x) = a! b! (n - a)! (n - b)! / (n! x! (a - x)! (b - x)! (n - a - b + x)!)
    """
    # all x of all sizes b in one array; `at` is the one of them to which each belongs
    low = np.maximum(1, a + b - n)
    length = np.minimum(a, b) - low + 1
    at = np.repeat(np.arange(len(b)), length)
    # x counts from low[b] up within its size b
    x = np.arange(len(at)) - (np.cumsum(length) - length - low)[at]
    c = b[at]
    # log P(x), by log-gammas: the factorials of a large n overflow
    chance = gammaln(a + 1) + gammaln(n - a + 1) - gammaln(n + 1) - gammaln(x + 1) - gammaln(a - x + 1)
    chance += gammaln(c + 1) + gammaln(n - c + 1) - gammaln(c - x + 1) - gammaln(n - a - c + x + 1)
    terms: Array = x / n * np.log(n * x / (a * c)) * np.exp(chance)
    return np.bincount(at, terms, minlength=len(b)).astype(np.float64, copy=False)
