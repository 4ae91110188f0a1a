"""Triplets for Siamese networks (Hoffer & Ailon, 2015).

(a, p, n):  every sample once as anchor a,  p uniform in its class,  n uniform outside;  or triplets that are given
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array
from .base import BatchSampler, Classes, Ints, by_class, deal, hands_of, other_class, same_class


def triplets(classes: Classes, places: Ints, rng: np.random.Generator) -> Ints:
    """Return (k, 3) anchors, positives and negatives."""
    anchors = classes.order[places]
    return np.stack([anchors, same_class(classes, places, rng), other_class(classes, places, rng)], 1)


class TripletSampler(BatchSampler):
    """Batches of triplets, drawn from the classes or mined in advance.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings. Samples that are alone
        in their class are never anchors.
    batch_size : int
        Number of samples in a global batch, across all processes; a multiple of 3, for batch_size / 3 triplets.
    triplets : (t, 3) array-like of int, optional
        Anchor, positive and negative of each triplet, as returned by ``mine_offline``. An epoch visits each of them
        once. By default, every sample is an anchor once per epoch, with a random positive and negative.
    seed : int
        Seed of the random order of all epochs.
    drop_last : bool
        Whether to drop the last, incomplete batch. By default, it is completed with triplets of the epoch's first
        batch.

    Raises
    ------
    ValueError
        If `batch_size` is not a multiple of 3 or asks for more triplets than there are, or if no triplet is possible.

    Notes
    -----
    A batch lists a_1, p_1, n_1, a_2, p_2, n_2, ...: ``x.view(-1, 3, d)`` are the triplets.
    """

    def __init__(
        self,
        labels: ArrayLike,
        batch_size: int,
        *,
        triplets: ArrayLike | None = None,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(len(as_array(labels)), batch_size, seed)
        self.classes = by_class(labels)
        self.drop_last = drop_last
        self.given = None if triplets is None else _given(triplets, self.samples)
        anchors = np.repeat(self.classes.counts > 1, self.classes.counts)
        if len(self.classes.counts) > 1:
            self.places = np.flatnonzero(anchors)
        else:
            self.places = np.zeros(0, dtype=np.int64)
        self.count = len(self.places) if self.given is None else len(self.given)
        if not self.count:
            raise ValueError("labels: expected a class with two samples and another class, got none")
        if batch_size % 3 or batch_size > 3 * self.count:
            raise ValueError(
                f"batch_size: must be a multiple of 3, at most 3 x {self.count} triplets, got {batch_size}"
            )

    def plan(self, rng: np.random.Generator) -> Ints:
        order = deal(self.count, self.batch_size // 3, rng, self.drop_last).ravel()
        if self.given is not None:
            return self.given[order].reshape(-1, self.batch_size)
        return triplets(self.classes, self.places[order], rng).reshape(-1, self.batch_size)

    def batches_per_epoch(self) -> int:
        return hands_of(self.count, self.batch_size // 3, self.drop_last)

    def settings(self) -> dict[str, Any]:
        given = 0 if self.given is None else crc32(self.given.tobytes())
        return {**super().settings(), "triplets": self.count, "given": given, "drop_last": self.drop_last}


def _given(triplets: ArrayLike, samples: int) -> Ints:
    found = np.ascontiguousarray(triplets, dtype=np.int64)
    if found.ndim != 2 or found.shape[1] != 3:
        raise ValueError(f"triplets: expected (t, 3) indices, got shape {found.shape}")
    if len(found) and (found.min() < 0 or found.max() >= samples):
        raise ValueError(f"triplets: indices must be in 0..{samples - 1}, got {found.min()}..{found.max()}")
    return found
