"""Batches of classes from few groups, as of products of one kind (Cakir, He, Xia, Kulis & Sclaroff, 2019).

    batch = G groups x P classes of each x m samples of each,  P = batch_size / (G m)

The classes of one group are hard to distinguish, and those of different groups are easy. An epoch visits every group
once (`rounds` times), in random order. The classes of a group are dealt in random order, and so are the samples of a
class: none occurs a second time before all have occurred once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array, class_numbers
from .base import ClassBatchSampler, Classes, Ints, by_class, check_integer, deal_classes


class HierarchicalSampler(ClassBatchSampler):
    """Batches whose classes come from a few groups, for labels of two levels.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings.
    groups : (n,) array-like
        Group of each sample, such as the kind of product: integers or strings. All samples of a class are in the same
        group.
    m : int
        Number of samples per class in a batch.
    batch_size : int
        Number of samples in a global batch, across all processes; a multiple of m times `groups_per_batch`.
    groups_per_batch : int
        Number of groups in a batch; 2 in the paper.
    seed : int
        Seed of the random order of all epochs.
    rounds : int, optional
        Number of visits of each group per epoch. By default, an epoch is about as long as the data.
    drop_last : bool
        Whether to drop the last, incomplete batch of a round. By default, it is completed with groups of the round's
        first batch, which are then visited once more.

    Raises
    ------
    ValueError
        If there is not one group for each label, a class is in two groups, `batch_size` is not a multiple of m times
        `groups_per_batch`, or there are fewer groups than a batch needs.

    Notes
    -----
    All groups are visited equally often, whatever their size. If a group has fewer classes than P, its classes occur
    several times in a batch, each time with other samples as long as there are any. The published code makes batches of
    every pair of groups, whose number grows with the square of the number of groups.

    Examples
    --------
    >>> labels = np.repeat(np.arange(8), 4)
    >>> sampler = HierarchicalSampler(labels, labels // 2, m=2, batch_size=8)
    >>> batch = next(iter(sampler))
    >>> len(set(labels[batch])), len(set(labels[batch] // 2))
    (4, 2)
    """

    def __init__(
        self,
        labels: ArrayLike,
        groups: ArrayLike,
        m: int,
        batch_size: int,
        *,
        groups_per_batch: int = 2,
        seed: int = 0,
        rounds: int | None = None,
        drop_last: bool = False,
    ) -> None:
        for name, value in (("m", m), ("batch_size", batch_size), ("groups_per_batch", groups_per_batch)):
            check_integer(name, value, 1)
        if batch_size % (m * groups_per_batch):
            detail = f"must be a multiple of m={m} times groups_per_batch={groups_per_batch}"
            raise ValueError(f"batch_size: {detail}, got {batch_size}")
        self.m = m
        self.per_group = batch_size // (m * groups_per_batch)  # classes
        self.members = by_class(labels)
        super().__init__(
            _grouped(self.members, groups, len(as_array(labels))),
            groups_per_batch,
            f"groups_per_batch={groups_per_batch}",
            samples=len(as_array(labels)),
            batch_size=batch_size,
            seed=seed,
            rounds=1,
            drop_last=drop_last,
        )
        if rounds is None:
            rounds = max(1, round(len(self.members.order) / (self.batches_per_epoch() * batch_size)))
        check_integer("rounds", rounds, 1)
        self.rounds = rounds

    def draw(self, visits: Ints, rng: np.random.Generator) -> Ints:
        chosen = deal_classes(self.classes, visits.ravel(), self.per_group, rng)  # groups hold classes
        return deal_classes(self.members, chosen.ravel(), self.m, rng).reshape(-1, self.batch_size)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "m": self.m, "groups_per_batch": self.per_batch}


def _grouped(members: Classes, groups: ArrayLike, samples: int) -> Classes:
    """Return the classes sorted by group, with numbers of classes instead of samples."""
    of_sample = as_array(groups, "groups")
    if of_sample.shape != (samples,):
        raise ValueError(f"groups: expected one for each of {samples} labels, got shape {of_sample.shape}")
    (numbers,) = class_numbers(of_sample, names=("groups",))
    numbers = numbers[members.order]
    of_class = numbers[members.starts] if len(members.starts) else numbers
    # the group of each class is that of its first sample; any other sample in another group is an error
    other = np.flatnonzero(numbers != np.repeat(of_class, members.counts))
    if len(other):
        sample = int(members.order[other[0]])
        detail = f"sample {sample} is in {of_sample[sample]!r}, another sample of its class is not"
        raise ValueError(f"groups: a class must be in one group; {detail}")
    return by_class(of_class)
