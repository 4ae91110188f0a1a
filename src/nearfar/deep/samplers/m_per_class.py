"""m samples per class (Hermans, Beyer & Leibe, 2017).

    batch = P classes without replacement x m samples of each,  P = batch_size / m

An epoch visits every class once (`rounds` times), in random order. The samples of a class are dealt in random order
too, and none comes a second time before all have come once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import ClassBatchSampler, Classes, Ints, by_class, check_integer, occurrences


def m_per_class(classes: Classes, visits: Ints, m: int, rng: np.random.Generator) -> Ints:
    """Return the (len(visits), m) sample indices of a sequence of class visits.

    The k-th visit of a class takes places k m to (k + 1) m - 1 of its shuffled samples, around the end.
    """
    classes = classes.shuffled(rng)
    place = occurrences(visits)[:, None] * m + np.arange(m)
    return classes.order[classes.starts[visits, None] + place % classes.counts[visits, None]]


class MPerClassSampler(ClassBatchSampler):
    """Batches of batch_size / m classes with m samples each, for ``DataLoader(data, batch_sampler=...)``.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers (-1 unknown, never drawn) or strings.
    m : int
        Samples per class and batch.
    batch_size : int
        Samples of a global batch, a multiple of m.
    seed : int
        Seed of all epochs.
    allow_repeat : bool
        Whether classes with fewer than m samples take part by repeating theirs, so that a set of small classes stays
        whole. If not, they are left out; `left_out` counts them.
    rounds : int, optional
        Visits of each class per epoch. None makes the epoch about as long as the data.
    drop_last : bool
        Drop the last, incomplete batch of a round. By default it is completed with classes of the round's first
        batch, which are thus visited once more.

    Attributes
    ----------
    left_out : int
        Number of classes that are never drawn.

    Raises
    ------
    ValueError
        If `batch_size` is no multiple of `m`, or needs more classes than there are.

    Notes
    -----
    Repeats of one image are only useful with random augmentation: without it their embeddings are equal.

    Examples
    --------
    >>> sampler = MPerClassSampler([0, 0, 0, 1, 1, 1, 2, 2], m=2, batch_size=4)
    >>> len(sampler), [len(batch) for batch in sampler]
    (2, [4, 4])
    """

    def __init__(
        self,
        labels: ArrayLike,
        m: int,
        batch_size: int,
        *,
        seed: int = 0,
        allow_repeat: bool = True,
        rounds: int | None = 1,
        drop_last: bool = False,
    ) -> None:
        for name, value in (("m", m), ("batch_size", batch_size)):
            check_integer(name, value, 1)
        if batch_size % m:
            raise ValueError(f"batch_size: must be a multiple of m, got batch_size={batch_size} and m={m}")
        classes = by_class(labels)
        keep = classes.counts >= (1 if allow_repeat else m)
        self.m = m
        self.left_out = int((~keep).sum())
        why = f"m={m}" + (f" ({self.left_out} classes with fewer than {m} samples left out)" if self.left_out else "")
        super().__init__(
            classes.only(keep),
            batch_size // m,
            why,
            samples=len(np.asarray(labels)),
            batch_size=batch_size,
            seed=seed,
            rounds=rounds,
            drop_last=drop_last,
        )

    def draw(self, visits: Ints, rng: np.random.Generator) -> Ints:
        return m_per_class(self.classes, visits.ravel(), self.m, rng).reshape(-1, self.batch_size)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "m": self.m}
