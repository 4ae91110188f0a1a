"""Pairs for Siamese networks (Hadsell, Chopra & LeCun, 2006).

every sample once as anchor a, with one partner:  similar (uniform in its class)  or  dissimilar (uniform outside)
a sample that is alone in its class:  only with a dissimilar partner
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array
from .base import BatchSampler, Classes, Ints, by_class, deal, hands_of, other_class, same_class


def pairs(classes: Classes, places: Ints, similar: np.ndarray, rng: np.random.Generator) -> Ints:
    """Return (k, 2) anchors, at `places` in ``classes.order``, and partners; similar: (k,) bool."""
    anchors = classes.order[places]
    partner = same_class(classes, places, rng)
    if not similar.all():
        partner = np.where(similar, partner, other_class(classes, places, rng))
    return np.stack([anchors, partner], 1)


def deal_anchors(alone: np.ndarray, hands: int, count: int, similar: int, rng: np.random.Generator) -> Ints:
    """Deal anchors into (hands, count), of which the first `similar` of a hand are not alone in their class.

    Parameters
    ----------
    alone : (n,) bool
        Samples that are alone in their class.

    Notes
    -----
    A sample that is alone is dealt once, or not at all if there are more of them than places. The others fill the
    remaining places, and are dealt repeatedly if there are too few.
    """
    first = hands * similar
    rest = hands * (count - similar)
    lone = rng.permutation(np.flatnonzero(alone))[:rest]
    # np.resize repeats the permutation where there are fewer samples than places
    others = np.resize(rng.permutation(np.flatnonzero(~alone)), first + rest - len(lone))
    dissimilar = rng.permutation(np.append(lone, others[first:]))
    return np.concatenate([others[:first].reshape(hands, similar), dissimilar.reshape(hands, -1)], 1)


class PairSampler(BatchSampler):
    """Batches of pairs, of which a fixed share is similar.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings.
    batch_size : int
        Number of samples in a global batch, across all processes; even, for batch_size / 2 pairs.
    similar : float
        Share of similar pairs in every batch, in [0, 1], rounded to whole pairs.
    seed : int
        Seed of the random order of all epochs.
    drop_last : bool
        Whether to drop the last, incomplete batch. By default, it is completed with anchors of the epoch's first batch.

    Raises
    ------
    ValueError
        If `batch_size` is odd or larger than twice the number of samples, or if there is no pair of a requested kind:
        dissimilar pairs need two classes, and similar pairs need a class of two samples.

    Notes
    -----
    An epoch has every sample once as an anchor as far as the share allows. A sample that is alone in its class forms no
    similar pair, so it is an anchor only if there is room among the dissimilar pairs; otherwise, samples of other
    classes are anchors twice.

    A batch lists a_1, b_1, a_2, b_2, ...: ``x.view(-1, 2, d)`` are the pairs.
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
        super().__init__(len(as_array(labels)), batch_size, seed)
        self.classes = by_class(labels)
        self.similar = similar
        self.drop_last = drop_last
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
        share = round(self.similar * count)
        # samples that are alone in their class have no similar partner, so they begin dissimilar pairs only
        alone = np.repeat(self.classes.counts == 1, self.classes.counts)
        if share and alone.any():
            places = deal_anchors(alone, self.batches_per_epoch(), count, share, rng)
        else:
            places = deal(len(self.classes.order), count, rng, self.drop_last)
        similar = np.broadcast_to(np.arange(count) < share, places.shape)
        return pairs(self.classes, places.ravel(), similar.ravel(), rng).reshape(-1, self.batch_size)

    def batches_per_epoch(self) -> int:
        return hands_of(len(self.classes.order), self.batch_size // 2, self.drop_last)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "similar": self.similar, "drop_last": self.drop_last}
