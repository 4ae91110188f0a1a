"""The base of all batch samplers: seeded epochs, division among processes, exact resumption.

A sampler implements ``plan(rng)``, which returns the (batches, batch_size) sample indices of an epoch, and
``batches_per_epoch()``. A plan depends on the seed and the epoch alone, so any process can draw it: rank r of w takes
the rows ``[r * batch_size / w, (r + 1) * batch_size / w)`` of every global batch, and all ranks together see the
batches of a single process. The number of processes is read when an epoch starts, so a run can continue with another
number of processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from ...labels import as_array, class_numbers, is_missing
from ...settings import Checked
from .. import distributed
from ..objective.relations import UNKNOWN

Ints = NDArray[np.int64]


class Classes(NamedTuple):
    """The samples of known class, sorted by class.

    Attributes
    ----------
    order : (n,) integers
        Sample indices, one class after another.
    starts, counts : (C,) integers
        Where each class begins in `order`, and its number of samples.
    """

    order: Ints
    starts: Ints
    counts: Ints

    def shuffled(self, rng: np.random.Generator) -> Classes:
        """Return the classes with the samples of each in random order."""
        of_class = np.repeat(np.arange(len(self.counts)), self.counts)
        return self._replace(order=self.order[np.lexsort((rng.random(len(self.order)), of_class))])

    def only(self, keep: NDArray[np.bool_]) -> Classes:
        """Return the classes that the mask `keep`, (C,), selects."""
        counts = self.counts[keep]
        return Classes(self.order[np.repeat(keep, self.counts)], np.cumsum(counts) - counts, counts)


def by_class(labels: ArrayLike | Sequence[Any]) -> Classes:
    """Sort samples by class; labels are (n,) integers (-1 unknown, left out), strings, or anything that sorts."""
    labels = as_array(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels: expected one class per sample, got an array of shape {labels.shape}")
    if labels.dtype.kind in "biuSU":
        missing = 0
    else:
        missing = sum(map(is_missing, labels))
    if missing:
        raise ValueError(f"labels: {missing} of {len(labels)} are missing (None or NaN); use -1 for an unknown class")
    known = np.arange(len(labels))
    if labels.dtype.kind in "iu":
        known = known[labels != UNKNOWN]
    (of_class,) = class_numbers(labels[known])
    counts = np.bincount(of_class)
    order = known[np.argsort(of_class, kind="stable")]
    # `order` lists the samples class by class; class c has counts[c] of them from starts[c] on
    return Classes(order, np.cumsum(counts) - counts, counts)


def same_class(classes: Classes, places: Ints, rng: np.random.Generator) -> Ints:
    """Return for each place in `classes.order` another random sample of its class, or itself if it is the only one."""
    c = np.searchsorted(classes.starts, places, side="right") - 1
    starts = classes.starts[c]
    counts = classes.counts[c]
    # 1..n_c - 1 places further, from the end of the class back to its start: never the sample itself
    step = 1 + rng.integers(0, np.maximum(counts - 1, 1))
    return classes.order[starts + (places - starts + step) % counts]


def other_class(classes: Classes, places: Ints, rng: np.random.Generator) -> Ints:
    """Return for each place in `classes.order` a random sample of the other classes."""
    c = np.searchsorted(classes.starts, places, side="right") - 1
    starts = classes.starts[c]
    counts = classes.counts[c]
    # number 0..n - n_c - 1 of the samples outside the class; those after it are n_c places further
    outside = rng.integers(0, len(classes.order) - counts)
    return classes.order[np.where(outside < starts, outside, outside + counts)]


def occurrences(sequence: Ints) -> Ints:
    """Return for each entry how often its value occurred before it.

    >>> occurrences(np.array([4, 7, 4, 4, 7]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(sequence, kind="stable")
    ordered = sequence[order]
    first = np.searchsorted(ordered, ordered)  # where the run of each value begins
    before = np.empty(len(sequence), dtype=np.int64)
    before[order] = np.arange(len(sequence)) - first
    return before


def deal_classes(classes: Classes, visits: Ints, m: int, rng: np.random.Generator) -> Ints:
    """Return the (len(visits), m) sample indices of a sequence of class visits.

    The k-th visit of a class, k = 0, 1, ..., takes places k m to (k + 1) m - 1 of its shuffled samples, modulo n_c.
    """
    classes = classes.shuffled(rng)
    place = occurrences(visits)[:, None] * m + np.arange(m)
    return classes.order[classes.starts[visits, None] + place % classes.counts[visits, None]]


def deal(items: int, hand: int, rng: np.random.Generator, drop_last: bool) -> Ints:
    """Deal 0..items-1 in random order into (hands, hand); the last hand is completed from the first, or dropped.

    No hand holds an item twice, because the first hand shares none with the last.
    """
    order = rng.permutation(items)
    hands = hands_of(items, hand, drop_last)
    return np.resize(order, hands * hand).reshape(hands, hand)


def hands_of(items: int, hand: int, drop_last: bool) -> int:
    """Return how many hands `deal` returns."""
    if drop_last:
        return items // hand
    return -(-items // hand)  # rounded up


def chances_of(weights: ArrayLike, samples: int) -> NDArray[np.float64]:
    """Return the checked weights, scaled to sum 1."""
    chances = np.asarray(weights, dtype=np.float64)
    if chances.shape != (samples,):
        raise ValueError(f"weights: expected one for each of {samples} samples, got shape {chances.shape}")
    if not np.isfinite(chances).all() or (chances < 0).any() or not chances.any():
        raise ValueError("weights: must be finite and not negative, and one above 0")
    # first by the largest, so that the sum of very large weights does not overflow
    chances = chances / chances.max()
    return chances / chances.sum()


def check_integer(name: str, value: Any, least: int) -> None:
    """Raise unless a setting is an integer of at least `least`; a float such as 64 / 2 would fail only in an epoch."""
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: must be at least {least}, got {value}")


DIVIDERS = ("BatchSamplerShard", "DataLoaderDispatcher")
"""Classes of accelerate that divide batches; the second one with `dispatch_batches=True`."""
MOST_CALLERS = 8  # between a sampler and the dispatcher are three methods of DataLoader


def refuse_second_division(sampler: BatchSampler, caller: FrameType | None) -> None:
    """Raise if accelerate divides the batches of a sampler, which gave each process its part of them already.

    Accelerate reads batches in its own order and drops those of another size, so that a training would end after one;
    or the first process alone reads them, and the others get parts of its part. What a caller does with the batches
    shows only in the callers themselves: `prepare` gives no sign to a sampler.
    """
    if distributed.world() == 1:
        return
    for _ in range(MOST_CALLERS):
        if caller is None:
            return
        if type(caller.f_locals.get("self")).__name__ in DIVIDERS:
            raise ValueError(
                f"{type(sampler).__name__}: gives each of {distributed.world()} processes its part of a batch, which "
                "accelerate would divide again; do not pass the DataLoader to Accelerator.prepare (in Trainer, "
                "override get_train_dataloader; in AccelerateMixin of skorch, get_iterator)"
            )
        caller = caller.f_back


class BatchSampler(Checked, Sampler[list[int]]):
    """Base class of batch samplers, for ``DataLoader(batch_sampler=...)``.

    A subclass implements ``plan(rng)`` and ``batches_per_epoch()``.

    Parameters
    ----------
    samples : int
        Number of samples in the data. It is only named in messages and checked on resumption.
    batch_size : int
        Number of samples in a global batch, across all processes; at least 1.
    seed : int
        Seed of all epochs, at least 0. It must be the same in every process.

    Attributes
    ----------
    epoch : int
        Epoch that the next iteration yields. It increases when an epoch is finished.

    Notes
    -----
    An iteration that was interrupted starts the same epoch again; only `load_state_dict` continues in the middle of an
    epoch.
    """

    def __init__(self, samples: int, batch_size: int, seed: int) -> None:
        check_integer("batch_size", batch_size, least=1)
        check_integer("seed", seed, least=0)
        self.samples = samples
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self._start = 0  # first batch of the next iteration
        self._given = 0  # batches yielded in this epoch
        self._spent = False  # whether the epoch was yielded to its end

    def plan(self, rng: np.random.Generator) -> Ints:
        """Return the (batches, batch_size) sample indices of one epoch."""
        raise NotImplementedError

    def batches_per_epoch(self) -> int:
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the epochs, which must be the same in a resumed run."""
        return {"samples": self.samples, "batch_size": self.batch_size, "seed": self.seed}

    def __len__(self) -> int:
        return self.batches_per_epoch()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value}' for key, value in self.settings().items())})"

    def __iter__(self) -> Iterator[list[int]]:
        if self._spent:
            self._enter(self.epoch + 1)
        rows = self._rows_of_rank()
        refuse_second_division(self, sys._getframe(1))
        plan = self.plan(np.random.default_rng((self.seed, self.epoch)))
        self._given = self._start
        self._start = 0
        for batch in plan[self._given :]:
            self._given += 1
            self._spent = self._given == len(plan)  # set before the yield: a loader may never ask for one more batch
            yield batch[rows].tolist()

    def _rows_of_rank(self) -> slice:
        world = distributed.world()
        rank = distributed.rank()
        if self.batch_size % world:
            raise ValueError(f"batch_size: must divide among {world} processes, got {self.batch_size}")
        # every process draws the same plan and takes its own columns, so that their batches are disjoint
        part = self.batch_size // world
        return slice(rank * part, (rank + 1) * part)

    def _enter(self, epoch: int, start: int = 0) -> None:
        self.epoch = epoch
        self._start = start
        self._given = start
        self._spent = False

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration yield this epoch; if it is the one being resumed, from where it stopped."""
        if epoch != self.epoch or self._spent:
            self._enter(epoch)

    def state_dict(self, done: int | None = None) -> dict[str, Any]:
        """Return the position of the sampler, for `load_state_dict`.

        Parameters
        ----------
        done : int, optional
            Number of batches of this epoch that training has finished. Pass it if a loader with workers fetches batches
            in advance. By default, the number of batches that were yielded.
        """
        if done is None:
            batch = self._given
        else:
            batch = done
        return {"epoch": self.epoch, "batch": batch, "settings": self.settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position: the next iteration yields the rest of that epoch.

        Parameters
        ----------
        state : dict
            Position as returned by `state_dict`.

        Raises
        ------
        ValueError
            If the state is that of a sampler with other settings or other data.
        """
        if state["settings"] != self.settings():
            raise ValueError(f"sampler state: taken with {state['settings']}, this sampler has {self.settings()}")
        epoch = int(state["epoch"])
        batch = int(state["batch"])
        if batch >= self.batches_per_epoch():
            epoch = epoch + 1
            batch = 0
        self._enter(epoch, batch)


class ClassBatchSampler(BatchSampler):
    """Batches of `per_batch` classes, where an epoch visits every class `rounds` times.

    Parameters
    ----------
    classes : Classes
        Classes to draw from.
    per_batch : int
        Number of classes in a batch.
    why : str
        Settings that ask for `per_batch` classes, for the message if there are fewer.
    samples, batch_size, seed
        As in `BatchSampler`.
    rounds : int, optional
        Number of visits of each class per epoch, at least 1. None makes an epoch about as long as the data.
    drop_last : bool
        Whether to drop the last, incomplete batch of a round instead of completing it with classes of the round's first
        batch.
    """

    def __init__(
        self,
        classes: Classes,
        per_batch: int,
        why: str,
        *,
        samples: int,
        batch_size: int,
        seed: int,
        rounds: int | None,
        drop_last: bool,
    ) -> None:
        super().__init__(samples, batch_size, seed)
        found = len(classes.counts)
        if per_batch > found:
            needed = f"batch_size={batch_size} with {why} needs {per_batch} classes, got {found}"
            advice = ""
            if found:
                advice = f"; {found * (batch_size // per_batch)} would do"
            raise ValueError(f"batch_size: {needed}{advice}")
        if rounds is not None and rounds < 1:
            raise ValueError(f"rounds: must be at least 1, got {rounds}")
        self.classes = classes
        self.per_batch = per_batch
        self.drop_last = drop_last
        self._round = hands_of(found, per_batch, drop_last)  # batches in which every class occurs once
        if rounds is None:
            self.rounds = max(1, round(len(classes.order) / (self._round * batch_size)))
        else:
            self.rounds = rounds

    def plan(self, rng: np.random.Generator) -> Ints:
        found = len(self.classes.counts)
        rounds = [deal(found, self.per_batch, rng, self.drop_last) for _ in range(self.rounds)]
        return self.draw(np.concatenate(rounds), rng)

    def draw(self, visits: Ints, rng: np.random.Generator) -> Ints:
        """Return the (batches, batch_size) samples of the (batches, per_batch) classes."""
        raise NotImplementedError

    def batches_per_epoch(self) -> int:
        return self.rounds * self._round

    def settings(self) -> dict[str, Any]:
        own = {"classes": len(self.classes.counts), "rounds": self.rounds, "drop_last": self.drop_last}
        return {**super().settings(), **own}
