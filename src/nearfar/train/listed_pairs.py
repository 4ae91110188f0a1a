"""Listed pairs of items instead of classes: their batches, and the relations of the items in a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..deep.objective.relations import UNKNOWN, LabelSets
from ..deep.samplers.base import BatchSampler, by_class, deal, hands_of, same_class
from ..numerics.constraints import Pairs
from ..numerics.types import AnyArray, Ints
from ..quoting import quoted
from .config import TrainConfig, TrainError


class KnownPairs(NamedTuple):
    """Labeled pairs of n items.

    Attributes
    ----------
    listed : ndarray of shape (m,)
        Pairs (i, j) of items with i < j, encoded as i n + j, ascending.
    degree : ndarray of shape (m,)
        Whether each pair is similar, 1 or 0, or to which degree; -1 for unknown.
    n : int
        Number of items.
    tuples : ndarray of shape (t, w)
        Items that are trained together; -1 after the last of a tuple.
    labels : ndarray of shape (n,), optional
        Classes, which decide on pairs that are not listed.
    """

    listed: Ints
    degree: AnyArray
    n: int
    tuples: Ints
    labels: Ints | None = None

    @classmethod
    def of(cls, pairs: Pairs, n: int) -> KnownPairs:
        """Sort checked pairs."""
        return cls._sorted(pairs.i * n + pairs.j, pairs.similar.astype(np.int64), n, None, None)

    @classmethod
    def among(cls, train: Dataset, *, degrees: bool = False) -> KnownPairs | None:
        """Return the pairs that are listed of training items; None without any.

        Without `degrees`, every degree of similarity above 0 is 1.
        """
        listed = train.listed
        if listed is None:
            return None
        n = len(train)
        degree = listed.degree if degrees else np.ceil(listed.degree).astype(np.int64)
        codes = np.minimum(listed.i, listed.j) * n + np.maximum(listed.i, listed.j)
        return cls._sorted(codes, degree, n, listed.tuples, train.labels if listed.by_class else None)

    @classmethod
    def _sorted(cls, codes: Ints, degree: AnyArray, n: int, tuples: Ints | None, labels: Ints | None) -> KnownPairs:
        order = np.argsort(codes)
        if tuples is None:
            tuples = np.stack(np.divmod(codes[order], n), axis=1)
        return cls(codes[order], degree[order], n, tuples, labels)

    def relation(self, items: Tensor) -> Tensor:
        """Return the (b, b) relation matrix of b items, given by their numbers: 1 and 0 for known pairs, else -1."""
        a = items.numpy()
        wanted = np.minimum(a[:, None], a) * self.n + np.maximum(a[:, None], a)
        at = np.minimum(np.searchsorted(self.listed, wanted), len(self.listed) - 1)
        if self.labels is None:
            others = np.full(wanted.shape, UNKNOWN)
        else:
            others = np.where(a[:, None] == a, UNKNOWN, self.labels[a][:, None] == self.labels[a])
        return torch.from_numpy(np.where(self.listed[at] == wanted, self.degree[at], others.astype(self.degree.dtype)))


class KnownSets(NamedTuple):
    """Sets of labels of n items.

    Attributes
    ----------
    hot : ndarray of shape (n, labels)
        Which labels each item has, 1 or 0.
    """

    hot: AnyArray

    @classmethod
    def among(cls, train: Dataset) -> KnownSets | None:
        """Return the sets of training items; None if they have one class each."""
        if not train.has_label_sets:
            return None
        assert train.class_labels is not None
        return cls(train.class_labels.hot(train.classes)[train.labels])

    def relation(self, items: Tensor) -> LabelSets:
        """Return the sets of b items, given by their numbers."""
        return LabelSets(torch.from_numpy(self.hot[items.numpy()]))


class KnownPairBatches(BatchSampler):
    """Batches of the items of listed tuples, such as both of a pair: every tuple is in one batch of an epoch.

    Where a batch would hold more tuples than there are, it holds each once. Tuples that are shorter than others are
    filled up with random items, after a random item of the anchor's class if the tuple has only negatives.
    """

    def __init__(self, known: KnownPairs, batch_size: int, seed: int) -> None:
        self.tuples = known.tuples
        self.mates = None  # the classes in which an anchor with negatives alone finds a positive
        if known.labels is not None and not (known.degree > 0).any():
            self.mates = by_class(known.labels)
        width = known.tuples.shape[1] + (self.mates is not None)
        if not len(known.tuples):
            raise ValueError("pairs: no tuple has all of its items among the training items")
        if width == 2 and batch_size % 2:
            raise ValueError(f"batch_size: must be even, for both items of every pair; got {batch_size}")
        if batch_size < width:
            raise ValueError(f"batch_size: expected at least {width}, for all items of a tuple, got {batch_size}")
        self.count = min(batch_size // width, len(known.tuples))
        super().__init__(known.n, self.count * width, seed)

    def plan(self, rng: np.random.Generator) -> Ints:
        tuples = self.tuples[deal(len(self.tuples), self.count, rng, drop_last=False)]  # (batches, count, w)
        if self.mates is not None:
            place = np.argsort(self.mates.order)
            mates = same_class(self.mates, place[tuples[..., 0]], rng)
            tuples = np.insert(tuples, 1, mates, axis=2)
        filled = np.where(tuples < 0, rng.integers(0, self.samples, tuples.shape), tuples)
        return filled.reshape(-1, self.batch_size)

    def batches_per_epoch(self) -> int:
        return hands_of(len(self.tuples), self.count, drop_last=False)


def refuse_classes(config: TrainConfig) -> None:
    """Raise a TrainError if a setting needs classes, which are unknown if pairs are given."""
    plain = TrainConfig.of(data=config.data, validation=0.0)
    for name in ("validation", "sampler", "episodes"):
        if getattr(config, name) != getattr(plain, name):
            raise TrainError(
                f"{name}: {quoted(getattr(config, name))} needs classes, but pairs were given; leave it out, or pass y"
            )
