"""Batches within one cluster of the embeddings (Sanakoyeu, Tschernezki, Büchler & Ommer, 2019).

    batch = P classes x m samples of each, all from one cluster,  P = batch_size / m
    clusters: k-means of the embeddings of all samples, every T epochs; a new cluster gets the number of the old one
    with which it shares most samples (the assignment that maximizes the samples that keep their number)

All clusters give equally many batches, in random order. Samples that are alone of their class in a cluster are left
out, unless fewer than two classes would remain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from ...labels import as_array
from ...neighbors.kmeans import kmeans
from ...numerics.distances import unit_rows
from ...numerics.types import AnyArray
from ..objective.relations import UNKNOWN
from .base import Classes, Ints, by_class, check_integer, deal, deal_classes, hands_of
from .embedded import EmbeddingSampler

CENTER_DISTANCES = 2**24  # distances to centers in memory at a time
RESTARTS = 5  # of k-means, as in the published code


def nearest_center(rows: AnyArray, centers: AnyArray) -> tuple[AnyArray, Ints]:
    """Return the squared distance (n,) of each row to its nearest center, and the number (n,) of that center."""
    squares = np.empty(len(rows), dtype=rows.dtype)
    numbers = np.empty(len(rows), dtype=np.intp)
    length = np.einsum("kd,kd->k", centers, centers)
    block = max(1, CENTER_DISTANCES // len(centers))
    for start in range(0, len(rows), block):
        x = rows[start : start + block]
        # |x - c|^2 - |x|^2 = |c|^2 - 2 x.c, (b, k)
        beyond = length - 2 * (x @ centers.T)
        found = beyond.argmin(axis=1)
        numbers[start : start + block] = found
        least = np.take_along_axis(beyond, found[:, None], axis=1)[:, 0]
        squares[start : start + block] = np.maximum(least + np.einsum("nd,nd->n", x, x), 0)
    return squares, numbers


def matched(clusters: Ints, before: Ints, number: int) -> Ints:
    """Return clusters (n,) with other numbers, so that most samples keep the one that they had `before`, (n,)."""
    shared = np.bincount(clusters * number + before, minlength=number * number).reshape(number, number)
    new, old = linear_sum_assignment(shared, maximize=True)
    name = np.empty(number, dtype=np.int64)
    name[new] = old
    return name[clusters]


def of_cluster(class_of: Ints, inside: np.ndarray) -> Classes:
    """Return the classes of a cluster, without those that have one sample there if two others remain.

    class_of: (n,) classes of all samples, -1 if unknown; inside: (n,) bool.
    """
    classes = by_class(np.where(inside, class_of, UNKNOWN))
    several = classes.counts > 1
    return classes.only(several) if several.sum() > 1 else classes


def batches_of(classes: Classes, batches: int, per_batch: int, m: int, rng: np.random.Generator) -> Ints:
    """Return (batches, per_batch m) samples: m of each of `per_batch` classes, all of which are visited alike.

    If there are fewer classes, they occur several times in a batch, with other samples as long as there are any.
    """
    found = len(classes.counts)
    deals = -(-batches // hands_of(found, per_batch, drop_last=False))
    visits = np.concatenate([deal(found, per_batch, rng, drop_last=False) for _ in range(deals)])[:batches]
    return deal_classes(classes, visits.ravel(), m, rng).reshape(batches, per_batch * m)


class ClusterSampler(EmbeddingSampler):
    """Batches whose samples come from one cluster of the embeddings, so that the classes in a batch are similar.

    With `DivideAndConquer`, each cluster trains a part of the embedding. The clusters are found in embeddings of all
    samples. ``nearfar train`` and `DeepMetric` embed them; in your own loop, call ``refit(embeddings)`` when
    ``needs_embeddings()``.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings.
    batch_size : int
        Number of samples in a global batch, across all processes; a multiple of m. The paper's code has 80.
    m : int
        Number of samples per class in a batch, at least 1.
    clusters : int
        Number of clusters K, at most that of the samples; 4 and 8 in the paper.
    every : int
        Number of epochs T after which the clusters are found again; 2 in the paper.
    until : int, optional
        Number of epochs with clusters. The batches of later epochs come from all samples, and train the whole
        embedding. By default, all epochs have clusters.
    normalize : bool
        Whether to scale the embeddings to unit length first.
    seed : int
        Seed of the clusters and of the random order of all epochs.

    Raises
    ------
    ValueError
        If `batch_size` is not a multiple of m, or there are fewer samples than `clusters`.

    Notes
    -----
    An epoch is about as long as the data; in the published code it is as long as the largest cluster needs. That code
    clusters the features of the trunk instead of the embeddings.

    Examples
    --------
    >>> sampler = ClusterSampler([0, 0, 1, 1, 2, 2, 3, 3], batch_size=4, m=2, clusters=2)
    >>> sampler.refit([[0.0, 1.0]] * 4 + [[1.0, 0.0]] * 4)
    >>> sorted(sorted(batch) for batch in sampler)
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """

    def __init__(
        self,
        labels: ArrayLike,
        batch_size: int,
        *,
        m: int = 4,
        clusters: int = 4,
        every: int = 2,
        until: int | None = None,
        normalize: bool = True,
        seed: int = 0,
    ) -> None:
        check_integer("m", m, least=1)
        check_integer("clusters", clusters, least=1)
        if until is not None:
            check_integer("until", until, least=1)
        samples = len(as_array(labels))
        super().__init__((samples,), clusters, batch_size=batch_size, seed=seed, every=every)
        if batch_size % m:
            raise ValueError(f"batch_size: must be a multiple of m, got batch_size={batch_size} and m={m}")
        self.classes = by_class(labels)
        known = self.classes.order
        if clusters > len(known):
            raise ValueError(f"clusters: expected at most {len(known)}, the samples of known class, got {clusters}")
        self.m = m
        self.number = clusters
        self.until = until
        self.normalize = normalize
        self.class_of = np.full(samples, UNKNOWN)
        self.class_of[known] = np.repeat(np.arange(len(self.classes.counts)), self.classes.counts)
        self._batches = max(1, round(len(known) / batch_size))

    @property
    def whole(self) -> bool:
        """Whether the batches of the coming epoch come from all samples."""
        return self.until is not None and self.coming >= self.until

    @property
    def clusters(self) -> Ints:
        """Cluster of each sample in the coming epoch, (n,): -1 if its class is unknown, or if all train together."""
        return np.full(self.samples, -1) if self.whole else self.found()

    def needs_embeddings(self) -> bool:
        return not self.whole and super().needs_embeddings()

    def find(self, rows: AnyArray, rng: np.random.Generator) -> Ints:
        known = self.classes.order
        x: AnyArray = unit_rows(rows[known]) if self.normalize else rows[known]
        largest = np.abs(x).max()
        if largest > 0:
            x = x / largest  # squares of float32 must neither overflow nor vanish
        x = np.ascontiguousarray(x - x.mean(axis=0, dtype=np.float64), dtype=np.float32)
        found = [kmeans(x, self.number, rng, nearest=nearest_center) for _ in range(RESTARTS)]
        numbers = min(found, key=lambda clustering: clustering.inertia).numbers.astype(np.int64)
        if self._found is not None:
            numbers = matched(numbers, self._found[known], self.number)
        clusters = np.full(self.samples, -1)
        clusters[known] = numbers
        return clusters

    def plan(self, rng: np.random.Generator) -> Ints:
        per_batch = self.batch_size // self.m
        if self.whole:
            return batches_of(self.classes, self._batches, per_batch, self.m, rng)
        clusters = self.found()
        filled = np.unique(clusters[self.classes.order])  # of equal rows, k-means makes fewer clusters
        rounds = -(-self._batches // len(filled))
        of_batch = np.concatenate([rng.permutation(filled) for _ in range(rounds)])[: self._batches]
        plan = np.empty((self._batches, self.batch_size), dtype=np.int64)
        for cluster in np.unique(of_batch):
            batches = np.flatnonzero(of_batch == cluster)
            classes = of_cluster(self.class_of, clusters == cluster)
            plan[batches] = batches_of(classes, len(batches), per_batch, self.m, rng)
        return plan

    def batches_per_epoch(self) -> int:
        return self._batches

    def settings(self) -> dict[str, Any]:
        own = {"m": self.m, "clusters": self.number, "until": self.until, "normalize": self.normalize}
        return {**super().settings(), **own}
