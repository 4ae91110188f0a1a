"""Episodes (Vinyals et al., 2016): N-way K-shot tasks drawn from the training classes.

    batch = N classes without replacement x (K support + Q query samples of each, without replacement)

The support comes first, class by class: `nearfar.deep.episodes.split_episode` splits a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...labels import as_array
from ...numerics.episodes import EpisodeShape, check_shape, draw_episodes
from .base import BatchSampler, Classes, Ints, by_class

QUERIES = ("balanced", "random")


def episodes(classes: Classes, shape: EpisodeShape, n_episodes: int, rng: np.random.Generator) -> Ints:
    """Return the (n_episodes, size) samples of independent episodes."""
    drawn, flat = draw_episodes(classes.counts, shape, n_episodes, rng)
    way, place = np.divmod(flat, classes.counts.max())
    return classes.order[np.take_along_axis(classes.starts[drawn], way, axis=1) + place]


class EpisodeSampler(BatchSampler):
    """Batches that are N-way K-shot episodes.

    Parameters
    ----------
    labels : (n,) array-like
        Class of each sample: integers, where unknown classes (-1) are never drawn, or strings.
    n_way : int
        Number N of classes in an episode.
    k_shot : int
        Number K of support samples of each class.
    n_query : int
        Number Q of query samples of each class. Classes with fewer than ``k_shot + n_query`` samples are left out.
    n_episodes : int
        Number of episodes, each of which is a batch, per epoch; at least 1.
    seed : int
        Seed of the random order of all epochs.
    query : {"balanced", "random"}
        "balanced" draws `n_query` samples of each class; "random" draws ``n_way * n_query`` from all classes of the
        episode together.

    Attributes
    ----------
    left_out : int
        Number of classes with too few samples, which are never drawn.

    Raises
    ------
    ValueError
        If fewer than `n_way` classes have enough samples.

    Notes
    -----
    All classes, and all samples of a class, are equally likely. With several processes, each gets a part of every
    episode. Pair losses put the parts together again, but `split_episode` needs the whole episode.

    Examples
    --------
    >>> sampler = EpisodeSampler([0, 0, 0, 1, 1, 1, 2, 2, 2], n_way=2, k_shot=1, n_query=2, n_episodes=3)
    >>> len(sampler), [len(batch) for batch in sampler]
    (3, [6, 6, 6])
    """

    def __init__(
        self,
        labels: ArrayLike,
        n_way: int = 5,
        k_shot: int = 1,
        n_query: int = 15,
        n_episodes: int = 100,
        *,
        seed: int = 0,
        query: str = "balanced",
    ) -> None:
        if query not in QUERIES:
            raise ValueError(f"query: must be one of {', '.join(QUERIES)}, got {query!r}")
        if n_episodes < 1:
            raise ValueError(f"n_episodes: must be at least 1, got {n_episodes}")
        self.shape = EpisodeShape(n_way, k_shot, n_query, query == "balanced")
        classes = by_class(labels)
        check_shape(self.shape, classes.counts, ("n_way", "k_shot", "n_query"))
        keep = classes.counts >= self.shape.per_class
        self.classes = classes.only(keep)
        self.left_out = int((~keep).sum())
        self.n_episodes = n_episodes
        super().__init__(len(as_array(labels)), self.shape.size, seed)

    def plan(self, rng: np.random.Generator) -> Ints:
        return episodes(self.classes, self.shape, self.n_episodes, rng)

    def batches_per_epoch(self) -> int:
        return self.n_episodes

    def settings(self) -> dict[str, Any]:
        own = {**self.shape._asdict(), "n_episodes": self.n_episodes, "classes": len(self.classes.counts)}
        return {**super().settings(), **own}
