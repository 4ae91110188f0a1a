"""Pairs for Siamese networks (Hadsell, Chopra & LeCun, 2006).

every sample once as anchor a, with one partner:  similar (uniform in its class)  or  dissimilar (uniform outside)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import BatchSampler, Classes, Ints, by_class, deal, hands_of, other_class, same_class


def pairs(classes: Classes, places: Ints, similar: np.ndarray, rng: np.random.Generator) -> Ints:
    """Return (k, 2) anchors and partners; an anchor that is alone in its class gets a dissimilar partner."""
    anchors = classes.order[places]
    partner = same_class(classes, places, rng)
    similar = similar & (partner != anchors)
    if not similar.all():
        partner = np.where(similar, partner, other_class(classes, places, rng))
    return np.stack([anchors, partner], 1)


class PairSampler(BatchSampler):
    """Batches of pairs, a fixed share of them similar.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers (-1 unknown, never drawn) or strings.
    batch_size : int
        Samples of a global batch, even: batch_size / 2 pairs.
    similar : float
        Share of similar pairs in every batch.
    seed : int
        Seed of all epochs.
    drop_last : bool
        Drop the last, incomplete batch. By default it is completed with anchors of the epoch's first batch.

    Raises
    ------
    ValueError
        If batch_size is odd or larger than twice the samples, or no pair of a wanted kind exists: dissimilar pairs need
        two classes, similar pairs need a class of two samples.

    Notes
    -----
    An epoch has every sample once as anchor. A batch lists a_1, b_1, a_2, b_2, ...: ``x.view(-1, 2, d)`` are the pairs.
    """

    def __init__(
        self,
        labels: ArrayLike,
        batch_size: int,
        *,
        similar: float = 0.5,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(len(np.asarray(labels)), batch_size, seed)
        self.classes, self.similar, self.drop_last = by_class(labels), similar, drop_last
        found = len(self.classes.order)
        if batch_size % 2 or batch_size > 2 * found:
            raise ValueError(f"batch_size: must be even and at most 2 x {found} samples, got {batch_size}")
        if not 0 <= similar <= 1:
            raise ValueError(f"similar: must be in [0, 1], got {similar}")
        if len(self.classes.counts) < 2 and (similar < 1 or found < 2):
            raise ValueError(f"labels: dissimilar pairs need two classes, got {len(self.classes.counts)}")
        if similar and (self.classes.counts < 2).all():
            raise ValueError(f"labels: similar pairs need a class of two samples, got {found} of one")

    def plan(self, rng: np.random.Generator) -> Ints:
        count = self.batch_size // 2
        places = deal(len(self.classes.order), count, rng, self.drop_last)
        similar = np.broadcast_to(np.arange(count) < round(self.similar * count), places.shape)
        return pairs(self.classes, places.ravel(), similar.ravel(), rng).reshape(-1, self.batch_size)

    def batches_per_epoch(self) -> int:
        return hands_of(len(self.classes.order), self.batch_size // 2, self.drop_last)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "similar": self.similar, "drop_last": self.drop_last}
