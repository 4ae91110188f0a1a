"""Smart mining: anchors with negatives from their neighborhood in the whole data (Harwood et al., 2017).

(a, p, n_1, ..., n_h):  p uniform in the class of a,  n_1..n_h uniform among N(a), without replacement
N(a): the nearest samples of other classes, found in embeddings of all samples at the start of an epoch
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array
from ...neighbors.nearest import nearest
from ...numerics.types import AnyArray
from .base import Classes, Ints, by_class, check_integer, deal, same_class
from .embedded import EmbeddingSampler


def nearest_of_other_classes(rows: AnyArray, classes: Classes, k: int, distance: str) -> Ints:
    """Return for each sample the k nearest samples of other classes, (n, k); -1 for samples of unknown class.

    rows: (n, d) embeddings of all samples; distance: "cosine" or "euclidean".
    """
    x = rows[classes.order]
    # sorted by class, so that the samples of one class are neighbors: those of place p are first..first + size - 1
    first = np.repeat(classes.starts, classes.counts)
    size = np.repeat(classes.counts, classes.counts)

    def own_class(places: Ints) -> tuple[Ints, Ints]:
        of_query = np.repeat(np.arange(len(places)), size[places])
        begins = np.cumsum(size[places]) - size[places]
        return of_query, first[places][of_query] + np.arange(len(of_query)) - begins[of_query]

    found = np.full((len(rows), k), -1)
    found[classes.order] = classes.order[nearest(x, x, k, distance=distance, hidden=own_class)[1]]
    return found


def with_negatives(classes: Classes, places: Ints, near: Ints, negatives: int, rng: np.random.Generator) -> Ints:
    """Return (k, 2 + negatives) anchors, which are at `places` in ``classes.order``, positives and negatives.

    near: (n, m) samples of other classes, of which negatives are drawn for each anchor.
    """
    anchors = classes.order[places]
    positives = same_class(classes, places, rng)
    choice = np.argsort(rng.random((len(places), near.shape[1])), axis=1)[:, :negatives]
    drawn = np.take_along_axis(near[anchors], choice, axis=1)
    return np.concatenate([anchors[:, None], positives[:, None], drawn], axis=1)


class SmartMiningSampler(EmbeddingSampler):
    """Batches of anchors, each with a positive and with hard negatives: samples of other classes that are near it.

    The neighbors are searched in embeddings of all samples. ``nearfar train`` and `DeepMetric` embed them at the start
    of an epoch; in your own loop, call ``refit(embeddings)`` when ``needs_embeddings()``.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings. Samples that are alone
        in their class are never anchors.
    batch_size : int
        Number of samples in a global batch, across all processes; a multiple of 2 + `negatives`.
    negatives : int
        Number of negatives of each anchor in a batch, at least 1.
    neighbors : int
        Number of nearest samples of other classes from which these are drawn, at least `negatives`. With as many as
        `negatives`, the nearest are always taken, among them samples with a wrong label.
    every : int
        Number of epochs after which the neighbors are searched again.
    normalize : bool
        Whether to compare embeddings of unit length.
    seed : int
        Seed of the random order of all epochs.
    rounds : int, optional
        Number of times that each sample is an anchor in an epoch. None makes an epoch about as long as the data, with
        some of the samples as anchors.

    Raises
    ------
    ValueError
        If `batch_size` is not a multiple of 2 + `negatives` or asks for more anchors than there are, if no triplet is
        possible, or if there are fewer samples of other classes than `neighbors`.

    Notes
    -----
    A batch lists a, p, n_1, ..., n_h, and again: ``x.view(-1, 2 + negatives, d)`` are the groups. Losses see all pairs
    of a batch; a sample may be in it twice, as an anchor and as a negative of another.

    The search is exact, in blocks. The paper searches in an approximate graph of neighbors, adapts how hard the samples
    are with a controller, and trains with the sum of the triplet loss and `TripletGlobalLoss`.

    Examples
    --------
    >>> labels = [0, 0, 1, 1, 2, 2]
    >>> sampler = SmartMiningSampler(labels, batch_size=3, negatives=1, neighbors=1, normalize=False, rounds=1)
    >>> sampler.refit([[0.0], [1.0], [1.4], [9.0], [9.5], [20.0]])
    >>> sorted((anchor, negative) for anchor, _, negative in sampler)
    [(0, 2), (1, 2), (2, 1), (3, 4), (4, 3), (5, 3)]
    """

    def __init__(
        self,
        labels: ArrayLike,
        batch_size: int,
        *,
        negatives: int = 2,
        neighbors: int = 10,
        every: int = 1,
        normalize: bool = True,
        seed: int = 0,
        rounds: int | None = None,
    ) -> None:
        check_integer("negatives", negatives, least=1)
        check_integer("neighbors", neighbors, least=negatives)
        if rounds is not None:
            check_integer("rounds", rounds, least=1)
        samples = len(as_array(labels))
        super().__init__((samples, neighbors), samples, batch_size=batch_size, seed=seed, every=every)
        self.classes = by_class(labels)
        self.negatives = negatives
        self.neighbors = neighbors
        self.normalize = normalize
        self.rounds = rounds
        known = len(self.classes.order)
        self.places = np.flatnonzero(np.repeat(self.classes.counts > 1, self.classes.counts))
        if len(self.classes.counts) < 2 or not len(self.places):
            raise ValueError("labels: expected a class with two samples and another class, got none")
        others = known - int(self.classes.counts.max())
        if neighbors > others:
            raise ValueError(
                f"neighbors: expected at most {others}, the samples outside the largest class, got {neighbors}"
            )
        group = 2 + negatives
        if batch_size % group or batch_size > group * len(self.places):
            expected = f"a multiple of 2 + negatives = {group}, at most {group} x {len(self.places)} anchors"
            raise ValueError(f"batch_size: must be {expected}, got {batch_size}")
        self._anchors = batch_size // group  # in a batch
        self._round = -(-len(self.places) // self._anchors)  # batches in which every anchor occurs
        if rounds is None:
            self._batches = min(max(1, round(known / batch_size)), self._round)
        else:
            self._batches = rounds * self._round

    def find(self, rows: AnyArray, rng: np.random.Generator) -> Ints:
        distance = "cosine" if self.normalize else "euclidean"
        return nearest_of_other_classes(rows, self.classes, self.neighbors, distance)

    def plan(self, rng: np.random.Generator) -> Ints:
        near = self.found()
        deals = [deal(len(self.places), self._anchors, rng, drop_last=False) for _ in range(self.rounds or 1)]
        anchors = self.places[np.concatenate(deals)[: self._batches].ravel()]
        return with_negatives(self.classes, anchors, near, self.negatives, rng).reshape(-1, self.batch_size)

    def batches_per_epoch(self) -> int:
        return self._batches

    def settings(self) -> dict[str, Any]:
        own = {"negatives": self.negatives, "neighbors": self.neighbors, "normalize": self.normalize}
        return {**super().settings(), **own, "rounds": self.rounds}
