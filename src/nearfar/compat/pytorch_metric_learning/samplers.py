"""Samplers of single items, for ``DataLoader(sampler=...)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from ...deep.samplers.base import by_class
from .absent import Absent, find

ABSENT = {
    "FixedSetOfTriplets": "nearfar.TripletSampler draws triplets anew in each epoch",
    "HierarchicalSampler": "nearfar.HierarchicalSampler(labels, groups, m, batch_size) makes batches of few groups",
    "TuplesToWeightsSampler": "nearfar.RandomBatchSampler(weights=...) takes weights of samples",
}


class MPerClassSampler(Sampler[int]):
    """`m` items of each class in turn; `nearfar.MPerClassSampler` makes whole batches, seeded, for several processes.

    Parameters
    ----------
    labels : (n,) labels
    m : int
        Items of a class in a row; those of smaller classes repeat.
    batch_size : int, optional
        With it no batch holds a class twice. It must be a multiple of m.
    length_before_new_iter : int
        About how many items an epoch has.
    """

    def __init__(
        self, labels: Any, m: int, batch_size: int | None = None, length_before_new_iter: int = 100000
    ) -> None:
        self.classes = by_class(np.asarray(labels))
        self.m = int(m)
        self.batch_size = batch_size
        number = len(self.classes.counts)
        once = self.m * number
        if batch_size is not None:
            if length_before_new_iter < batch_size or batch_size % self.m:
                told = f"must be a multiple of m={m} and at most length_before_new_iter={length_before_new_iter}"
                raise ValueError(f"batch_size: {told}, got {batch_size}")
            if once < batch_size:
                raise ValueError(f"batch_size: m={m} of each of {number} classes are fewer than {batch_size}")
        step = batch_size or once
        self.length = max(length_before_new_iter, step) - max(length_before_new_iter, step) % step

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        per_batch = (self.batch_size or self.m * len(self.classes.counts)) // self.m
        found: list[int] = []
        while len(found) < self.length:
            for c in np.random.permutation(len(self.classes.counts))[:per_batch]:  # noqa: NPY002  # drawn as the original does
                found += self._draw(int(c))
        return iter(found[: self.length])

    def _draw(self, c: int) -> Sequence[int]:
        start = self.classes.starts[c]
        own = self.classes.order[start : start + self.classes.counts[c]]
        drawn = np.random.choice(own, self.m, replace=len(own) < self.m)  # noqa: NPY002  # drawn as the original does
        return [int(i) for i in drawn]


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
