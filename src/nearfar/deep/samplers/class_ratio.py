"""Class ratio batches (Oh Song, Jegelka, Rathod & Murphy, 2017).

C_b = round(ratio * batch_size) classes, one sample of each at least,
the remaining batch_size - C_b drawn without replacement from the chosen classes
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array
from .base import ClassBatchSampler, Classes, Ints, by_class


def class_ratio(classes: Classes, chosen: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Return `size` sample indices of the chosen classes: a random one of each, then others of all of them alike.

    If the classes hold fewer samples than that, all are returned, and random ones once more.
    """
    counts = classes.counts[chosen]
    ends = np.cumsum(counts)
    places = np.arange(ends[-1]) - np.repeat(ends - counts, counts)  # 0..n_c-1 in every class
    members = classes.order[np.repeat(classes.starts[chosen], counts) + places]
    first = ends - counts + rng.integers(0, counts)
    key = rng.random(len(members))  # drawn apart from `first`, so that all other samples are equally likely
    key[first] -= 1.0
    drawn = members[np.argsort(key)]
    while len(drawn) < size:
        drawn = np.append(drawn, rng.permutation(members))
    return drawn[:size]


class ClassRatioSampler(ClassBatchSampler):
    """Batches with a fixed ratio of classes to samples, as used to train facility location clustering.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings.
    batch_size : int
        Number of samples in a global batch, across all processes; 128 in the paper.
    ratio : float
        Number of classes per sample, in (0, 1]. The paper uses 0.25 for CUB-200-2011 and Cars-196, and 0.75 for
        Stanford Online Products.
    seed : int
        Seed of the random order of all epochs.
    rounds : int, optional
        Number of visits of each class per epoch, at least 1. None makes an epoch about as long as the data.
    drop_last : bool
        Whether to drop the last, incomplete batch of a round. By default, it is completed with classes of the round's
        first batch, which are then visited once more.

    Raises
    ------
    ValueError
        If `ratio` is not in (0, 1], or asks for more classes than there are.

    Notes
    -----
    The paper states the ratio, but not the epoch; here, an epoch visits every class `rounds` times. If the selected
    classes have fewer than `batch_size` samples, some samples occur twice in the batch.
    """

    def __init__(
        self,
        labels: ArrayLike,
        batch_size: int,
        ratio: float,
        *,
        seed: int = 0,
        rounds: int | None = 1,
        drop_last: bool = False,
    ) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio: must be in (0, 1], got {ratio}")
        self.ratio = ratio
        super().__init__(
            by_class(labels),
            max(1, round(ratio * batch_size)),
            f"ratio={ratio}",
            samples=len(as_array(labels)),
            batch_size=batch_size,
            seed=seed,
            rounds=rounds,
            drop_last=drop_last,
        )

    def draw(self, visits: Ints, rng: np.random.Generator) -> Ints:
        return np.stack([class_ratio(self.classes, chosen, self.batch_size, rng) for chosen in visits])

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "ratio": self.ratio}
