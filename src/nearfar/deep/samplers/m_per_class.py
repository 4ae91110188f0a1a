"""m samples per class (Hermans, Beyer & Leibe, 2017).

    batch = P classes without replacement x m samples of each,  P = batch_size / m

An epoch visits every class once (`rounds` times), in random order. The samples of a class are dealt in random order
too, and none occurs a second time before all have occurred once.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...labels import as_array
from .base import ClassBatchSampler, Classes, Ints, by_class, chances_of, check_integer, deal_classes


def weighted_per_class(
    classes: Classes, visits: Ints, m: int, chances: NDArray[np.float64], rng: np.random.Generator
) -> Ints:
    """Return the (len(visits), m) sample indices of class visits, drawn with replacement in proportion to chances.

    chances: (n,), of every sample; those of a class need not sum to 1, but one of them is above 0.
    """
    upto = np.cumsum(chances[classes.order])
    begins = np.append(0.0, upto)[classes.starts][visits, None]
    ends = upto[classes.starts + classes.counts - 1][visits, None]
    level = begins + rng.random((len(visits), m)) * (ends - begins)
    level = np.minimum(level, np.nextafter(ends, begins))  # rounding must not lead into the next class
    return classes.order[np.searchsorted(upto, level, side="right")]


class MPerClassSampler(ClassBatchSampler):
    """Batches of batch_size / m classes with m samples each, for ``DataLoader(data, batch_sampler=...)``.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings.
    m : int
        Number of samples per class in a batch, at least 1.
    batch_size : int
        Number of samples in a global batch, across all processes; a multiple of m.
    seed : int
        Seed of the random order of all epochs.
    allow_repeat : bool
        Whether classes with fewer than m samples are used, with repeated samples, so that a data set of small classes
        remains complete. Otherwise, they are left out.
    rounds : int, optional
        Number of visits of each class per epoch, at least 1. None makes an epoch about as long as the data.
    drop_last : bool
        Whether to drop the last, incomplete batch of a round. By default, it is completed with classes of the round's
        first batch, which are then visited once more.
    weights : (n,) array-like, optional
        Weights of the samples, at least 0. The samples of a class are drawn in proportion to them, with replacement;
        classes whose samples all have a weight of 0 are left out. By default, all samples of a class are used equally
        often.

    Attributes
    ----------
    left_out : int
        Number of classes that are never drawn.

    Raises
    ------
    ValueError
        If `batch_size` is not a multiple of `m` or needs more classes than there are, or if `weights` does not have one
        finite number of at least 0 for each sample.

    Notes
    -----
    Repeated images are only useful with random augmentation, since their embeddings are equal without it.

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
        weights: ArrayLike | None = None,
    ) -> None:
        for name, value in (("m", m), ("batch_size", batch_size)):
            check_integer(name, value, 1)
        if batch_size % m:
            raise ValueError(f"batch_size: must be a multiple of m, got batch_size={batch_size} and m={m}")
        classes = by_class(labels)
        keep = classes.counts >= (1 if allow_repeat else m)
        self.chances = None if weights is None else chances_of(weights, len(as_array(labels)))
        reason = f"fewer than {m} samples"
        if self.chances is not None and len(classes.starts):
            keep = keep & (np.add.reduceat(self.chances[classes.order], classes.starts) > 0)
            reason = f"{reason} or without weight"
        self.m = m
        self.left_out = int((~keep).sum())
        why = f"m={m}" + (f" ({self.left_out} classes with {reason} left out)" if self.left_out else "")
        super().__init__(
            classes.only(keep),
            batch_size // m,
            why,
            samples=len(as_array(labels)),
            batch_size=batch_size,
            seed=seed,
            rounds=rounds,
            drop_last=drop_last,
        )

    def draw(self, visits: Ints, rng: np.random.Generator) -> Ints:
        if self.chances is None:
            drawn = deal_classes(self.classes, visits.ravel(), self.m, rng)
        else:
            drawn = weighted_per_class(self.classes, visits.ravel(), self.m, self.chances, rng)
        return drawn.reshape(-1, self.batch_size)

    def settings(self) -> dict[str, Any]:
        own: dict[str, Any] = {"m": self.m}
        if self.chances is not None:
            own["weights"] = sha256(self.chances.tobytes()).hexdigest()[:16]
        return {**super().settings(), **own}
