"""Listed pairs of items instead of classes: their batches, and the relations of the items in a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..deep.objective.relations import UNKNOWN
from ..deep.samplers.base import BatchSampler, deal, hands_of
from ..numerics.constraints import Pairs
from ..numerics.types import Bools, Ints
from ..quoting import quoted
from .config import TrainConfig, TrainError


class KnownPairs(NamedTuple):
    """Labeled pairs of n items.

    Attributes
    ----------
    listed : ndarray of shape (m,)
        Pairs (i, j) of items with i < j, encoded as i n + j, ascending.
    similar : ndarray of shape (m,)
        Whether each pair is similar.
    n : int
        Number of items.
    """

    listed: Ints
    similar: Bools
    n: int

    @classmethod
    def of(cls, pairs: Pairs, n: int) -> KnownPairs:
        """Sort checked pairs."""
        listed = pairs.i * n + pairs.j
        order = np.argsort(listed)
        return cls(listed[order], pairs.similar[order], n)

    def relation(self, items: Tensor) -> Tensor:
        """Return the (b, b) relation matrix of b items, given by their numbers: 1 and 0 for listed pairs, else -1."""
        a = items.numpy()
        wanted = np.minimum(a[:, None], a) * self.n + np.maximum(a[:, None], a)
        at = np.minimum(np.searchsorted(self.listed, wanted), len(self.listed) - 1)
        return torch.from_numpy(np.where(self.listed[at] == wanted, self.similar[at].astype(np.int64), UNKNOWN))


class KnownPairBatches(BatchSampler):
    """Batches of both items of listed pairs: every pair is in one batch of an epoch; the last batch is completed.

    Where a batch would hold more pairs than there are, it holds each once.
    """

    def __init__(self, known: KnownPairs, batch_size: int, seed: int) -> None:
        if batch_size % 2:
            raise ValueError(f"batch_size: must be even, for both items of every pair; got {batch_size}")
        super().__init__(known.n, min(batch_size, 2 * len(known.listed)), seed)
        self.ends = np.stack(np.divmod(known.listed, known.n), axis=1)

    def plan(self, rng: np.random.Generator) -> Ints:
        return self.ends[deal(len(self.ends), self.batch_size // 2, rng, drop_last=False)].reshape(-1, self.batch_size)

    def batches_per_epoch(self) -> int:
        return hands_of(len(self.ends), self.batch_size // 2, drop_last=False)


def refuse_classes(config: TrainConfig) -> None:
    """Raise a TrainError if a setting needs classes, which are unknown if pairs are given."""
    plain = TrainConfig.of(data=config.data, validation=0.0)
    for name in ("validation", "sampler", "episodes"):
        if getattr(config, name) != getattr(plain, name):
            raise TrainError(
                f"{name}: {quoted(getattr(config, name))} needs classes, but pairs were given; leave it out, or pass y"
            )
