"""The base of samplers whose batches depend on embeddings of all samples, which change while the network learns.

Such a sampler asks for embeddings when a new round of epochs begins, and finds something in them: the neighbors of each
sample, or its cluster. What it found belongs to its state, so that a resumed run draws the batches of an uninterrupted
one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from ...numerics.distances import as_rows
from ...numerics.types import AnyArray
from .base import BatchSampler, Ints, check_integer


class EmbeddingSampler(BatchSampler):
    """Base class of batch samplers that look at embeddings of all samples every few epochs.

    A subclass implements ``find(rows, rng)``, which returns the numbers that its plans need, ``plan(rng)``, which reads
    them from ``found()``, and ``batches_per_epoch()``. In your own loop:

    >>> def train_with(sampler, loader, embed_all_samples, step):
    ...     for _ in range(20):
    ...         if sampler.needs_embeddings():
    ...             sampler.refit(embed_all_samples())
    ...         for items, labels in loader:
    ...             step(items, labels)

    Parameters
    ----------
    shape : tuple of int
        Shape of what is found; the first length is the number of samples.
    below : int
        What is found are numbers from -1 to ``below - 1``.
    samples, batch_size, seed
        As in `BatchSampler`.
    every : int
        Number of epochs for which embeddings are used, at least 1.
    """

    def __init__(self, shape: tuple[int, ...], below: int, *, batch_size: int, seed: int, every: int) -> None:
        super().__init__(shape[0], batch_size, seed)
        check_integer("every", every, least=1)
        self.shape = shape
        self.below = below
        self.every = every
        self._found: Ints | None = None
        self._found_in = 0  # the epoch before which the embeddings came

    def find(self, rows: AnyArray, rng: np.random.Generator) -> Ints:
        """Return what the plans need, of the shape that was announced.

        Parameters
        ----------
        rows : ndarray of float32 or float64, shape (n, d)
            Embeddings of all samples.
        rng : Generator
            Random numbers, seeded for every epoch.
        """
        raise NotImplementedError

    @property
    def coming(self) -> int:
        """The epoch that the next iteration yields."""
        return self.epoch + 1 if self._spent else self.epoch

    def needs_embeddings(self) -> bool:
        """Return whether `refit` should be called before the next epoch."""
        return self._found is None or self.coming // self.every != self._found_in // self.every

    def refit(self, embeddings: ArrayLike | torch.Tensor) -> None:
        """Look at embeddings, on which the batches depend from the next epoch on.

        Parameters
        ----------
        embeddings : (n, d) array-like or tensor
            Embeddings of all samples, in the order of the labels. With several processes, each passes all of them.

        Raises
        ------
        ValueError
            If there is not one finite row for each sample.
        """
        rows = as_rows(embeddings)
        if len(rows) != self.samples:
            raise ValueError(f"embeddings: expected one row for each of {self.samples} samples, got {len(rows)}")
        epoch = self.coming
        found = self.find(rows, np.random.default_rng((self.seed, epoch, 1)))  # other draws than those of the plan
        self._found = self._checked(found)
        self._found_in = epoch

    def found(self) -> Ints:
        """Return what the last call of `refit` found.

        Raises
        ------
        ValueError
            If it was never called.
        """
        if self._found is None:
            detail = "needs the embeddings of all samples: call refit(embeddings) before the first epoch"
            raise ValueError(f"{type(self).__name__}: {detail}")
        return self._found

    def _checked(self, found: Any) -> Ints:
        """Return numbers that a plan may use as indices; a checkpoint may be damaged."""
        numbers = np.asarray(found)
        if numbers.shape != self.shape or numbers.dtype.kind not in "iu":
            expected = f"expected integers of shape {self.shape}, got {numbers.dtype} of shape {numbers.shape}"
            raise ValueError(f"{type(self).__name__}: {expected}")
        if numbers.size and not (numbers.min() >= -1 and numbers.max() < self.below):
            got = f"{numbers.min()}..{numbers.max()}"
            raise ValueError(f"{type(self).__name__}: expected numbers in -1..{self.below - 1}, got {got}")
        return numbers.astype(np.int64)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "every": self.every}

    def state_dict(self, done: int | None = None) -> dict[str, Any]:
        found = None if self._found is None else torch.from_numpy(self._found)
        return {**super().state_dict(done), "found": found, "found_in": self._found_in}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        found = None if state["found"] is None else self._checked(state["found"])
        found_in = int(state["found_in"])
        super().load_state_dict(state)
        self._found = found
        self._found_in = found_in
