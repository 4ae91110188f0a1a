"""Samplers of single items, for ``DataLoader(sampler=...)``; only `HierarchicalSampler` gives whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from ...deep.samplers.base import by_class
from .absent import Absent, find
from .mismatch import Mismatch

ABSENT = {
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
        self.classes = by_class(np.unique(np.asarray(labels), return_inverse=True)[1])  # -1 is a class as any other
        self.m = int(m)
        self.batch_size = batch_size
        number = len(self.classes.counts)
        # of the classes, at first as they appear; each batch shuffles that of the one before, as the original does
        firsts = self.classes.order[self.classes.starts[:number]]
        self.order = np.argsort(firsts)
        once = self.m * number
        if batch_size is not None:
            if length_before_new_iter < batch_size or batch_size % self.m:
                detail = f"must be a multiple of m={m} and at most length_before_new_iter={length_before_new_iter}"
                raise Mismatch(f"batch_size: {detail}, got {batch_size}")
            if once < batch_size:
                raise Mismatch(f"batch_size: m={m} of each of {number} classes are fewer than {batch_size}")
        step = batch_size or once
        self.length = max(length_before_new_iter, step) - max(length_before_new_iter, step) % step

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        per_batch = (self.batch_size or self.m * len(self.order)) // self.m
        items: list[int] = []
        while len(items) < self.length:
            np.random.shuffle(self.order)
            for c in self.order[:per_batch]:
                items += self._draw(int(c))
        return iter(items[: self.length])

    def _draw(self, c: int) -> Sequence[int]:
        start = self.classes.starts[c]
        own = self.classes.order[start : start + self.classes.counts[c]]
        drawn = np.random.choice(own, self.m, replace=len(own) < self.m)
        return [int(i) for i in drawn]


class FixedSetOfTriplets(Sampler[int]):
    """Triplets that are drawn once: anchor, positive, negative, and so on, the triplets in a new order in each epoch.

    Parameters
    ----------
    labels : (n,) labels
    num_triplets : int
    """

    def __init__(self, labels: Any, num_triplets: int) -> None:
        classes = by_class(np.unique(np.asarray(labels), return_inverse=True)[1])
        self.num_triplets = int(num_triplets)
        rich = np.flatnonzero(classes.counts > 1)
        if len(classes.counts) < 2 or not len(rich):
            raise Mismatch("FixedSetOfTriplets: labels: expected two classes, one of them with two samples")
        number = self.num_triplets
        own = np.random.choice(rich, number)
        other = np.random.randint(0, len(classes.counts) - 1, number)
        other = other + (other >= own)
        place = np.random.randint(0, classes.counts[own])
        second = np.random.randint(0, classes.counts[own] - 1)
        second = second + (second >= place)
        third = np.random.randint(0, classes.counts[other])
        starts = np.asarray(classes.starts)
        anchors = classes.order[starts[own] + place]
        positives = classes.order[starts[own] + second]
        negatives = classes.order[starts[other] + third]
        self.fixed_set_of_triplets = np.stack([anchors, positives, negatives], axis=1)

    def __len__(self) -> int:
        return 3 * self.num_triplets

    def __iter__(self) -> Iterator[int]:
        order = np.random.permutation(self.num_triplets)
        return iter(self.fixed_set_of_triplets[order].flatten().tolist())


class HierarchicalSampler(Sampler[list[int]]):
    """Batches of few groups of classes, for ``DataLoader(batch_sampler=...)``; all tuples come equally often.

    Parameters
    ----------
    labels : (n, levels) labels
    batch_size : int
        A multiple of `super_classes_per_batch`, which shares it.
    samples_per_class : int or "all"
        Samples of a class; those of smaller classes repeat. "all" fills the share of a group with whole classes.
    batches_per_super_tuple : int
        How often each tuple of groups comes in an epoch.
    super_classes_per_batch : int
        The number of groups of a batch.
    inner_label, outer_label : int
        The columns of the labels that hold classes and groups.
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        samples_per_class: int | str,
        batches_per_super_tuple: int = 4,
        super_classes_per_batch: int = 2,
        inner_label: int = 0,
        outer_label: int = 1,
    ) -> None:
        labels = np.asarray(labels)
        if labels.ndim != 2:
            raise Mismatch(f"HierarchicalSampler: expected labels of shape (n, levels), got {labels.shape}")
        self.share = batch_size // super_classes_per_batch
        whole = samples_per_class == "all" or self.share % int(samples_per_class) == 0
        if batch_size % super_classes_per_batch or not whole:
            detail = f"must be a multiple of {super_classes_per_batch} groups times {samples_per_class} samples"
            raise Mismatch(f"batch_size: {detail}, got {batch_size}")
        self.samples_per_class = samples_per_class
        self.batches_per_super_tuple = batches_per_super_tuple
        self.super_classes_per_batch = super_classes_per_batch
        self.groups = []  # of each group, the samples of each of its classes
        for group in np.unique(labels[:, outer_label]):
            own = np.flatnonzero(labels[:, outer_label] == group)
            inner = labels[own, inner_label]
            self.groups.append([own[inner == c] for c in np.unique(inner)])
        if samples_per_class != "all":
            needed = self.share // int(samples_per_class)
            fewest = min(len(group) for group in self.groups)
            if fewest < needed:
                raise Mismatch(f"HierarchicalSampler: a group has {fewest} classes, and a batch takes {needed} of each")

    def __len__(self) -> int:
        return self.batches_per_super_tuple * comb(len(self.groups), self.super_classes_per_batch)

    def __iter__(self) -> Iterator[list[int]]:
        tuples = list(combinations(range(len(self.groups)), self.super_classes_per_batch))
        tuples = tuples * self.batches_per_super_tuple
        for k in np.random.permutation(len(tuples)):
            yield [i for group in tuples[k] for i in self._draw(group)]

    def _draw(self, group: int) -> list[int]:
        classes = self.groups[group]
        found: list[int] = []
        for c in np.random.permutation(len(classes)):
            if len(found) >= self.share:
                break
            own = classes[c]
            number = len(own) if self.samples_per_class == "all" else int(self.samples_per_class)
            drawn = np.random.choice(own, number, replace=len(own) < number)
            found += [int(i) for i in drawn]
        return found[: self.share]


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
