"""Plain seeded shuffle, for losses on class proxies or a classification layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import BatchSampler, Ints, deal, hands_of


class RandomBatchSampler(BatchSampler):
    """Plain seeded shuffle: an epoch visits every sample once.

    Parameters
    ----------
    labels : (n,) array-like
        Only its length counts, so that all samplers are made the same way.
    batch_size : int
        Samples of a global batch.
    seed : int
        Seed of all epochs.
    drop_last : bool
        Drop the last, incomplete batch. By default it is completed with samples of the epoch's first batch, so that
        every sample is visited and no batch is smaller than the others.

    Raises
    ------
    ValueError
        If there are fewer samples than `batch_size`.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0, drop_last: bool = False) -> None:
        super().__init__(len(np.asarray(labels)), batch_size, seed)
        self.drop_last = drop_last
        if self.samples < batch_size:
            raise ValueError(f"batch_size: {batch_size} is more than the {self.samples} samples")

    def plan(self, rng: np.random.Generator) -> Ints:
        return deal(self.samples, self.batch_size, rng, self.drop_last)

    def batches_per_epoch(self) -> int:
        return hands_of(self.samples, self.batch_size, self.drop_last)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "drop_last": self.drop_last}
