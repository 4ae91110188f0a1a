"""Plain seeded shuffle, for losses on class proxies or a classification layer."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array
from .base import BatchSampler, Ints, chances_of, deal, hands_of


class RandomBatchSampler(BatchSampler):
    """Plain shuffle with a seed, where an epoch visits every sample once.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample. Only their number is used; they are an argument so that all samplers are constructed in
        the same way.
    batch_size : int
        Number of samples in a global batch, across all processes.
    seed : int
        Seed of the random order of all epochs.
    drop_last : bool
        Whether to drop the last, incomplete batch. By default, it is completed with samples of the epoch's first batch,
        so that every sample is visited and all batches have the same size.
    weights : (n,) array-like, optional
        Weights of the samples, at least 0. The samples of an epoch are drawn in proportion to them, with replacement.
        By default, every sample is visited once.

    Raises
    ------
    ValueError
        If there are fewer samples than `batch_size`, or if `weights` does not have one finite number of at least 0 for
        each sample.

    Examples
    --------
    >>> next(iter(RandomBatchSampler([0, 0, 1, 1], batch_size=4, weights=[0, 0, 0, 2.5])))
    [3, 3, 3, 3]
    """

    def __init__(
        self,
        labels: ArrayLike,
        batch_size: int,
        *,
        seed: int = 0,
        drop_last: bool = False,
        weights: ArrayLike | None = None,
    ) -> None:
        super().__init__(len(as_array(labels)), batch_size, seed)
        self.drop_last = drop_last
        self.chances = None if weights is None else chances_of(weights, self.samples)
        if self.samples < batch_size:
            raise ValueError(f"batch_size: {batch_size} is more than the {self.samples} items")

    def plan(self, rng: np.random.Generator) -> Ints:
        if self.chances is None:
            return deal(self.samples, self.batch_size, rng, self.drop_last)
        size = (self.batches_per_epoch(), self.batch_size)
        return rng.choice(self.samples, size=size, p=self.chances)

    def batches_per_epoch(self) -> int:
        return hands_of(self.samples, self.batch_size, self.drop_last)

    def settings(self) -> dict[str, Any]:
        own: dict[str, Any] = {"drop_last": self.drop_last}
        if self.chances is not None:
            own["weights"] = sha256(self.chances.tobytes()).hexdigest()[:16]
        return {**super().settings(), **own}
