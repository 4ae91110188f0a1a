"""Episodes of few-shot learning, many at once: N classes, with K support samples and some query samples of each.

N-way K-shot: N of the C classes without replacement, and K + Q samples of each without replacement, of which the
first K are the support.
"""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple

import numpy as np

from .types import Ints

EPISODE_BLOCK_VALUES = 2**22  # random numbers in one block of episodes


class EpisodeShape(NamedTuple):
    """Size of an episode.

    Attributes
    ----------
    ways, shots, queries : int
        Number of classes, of support samples per class, and of query samples per class.
    balanced : bool
        Whether every class has `queries` query samples. Otherwise, ways x queries samples are drawn from all classes
        of the episode together.
    """

    ways: int
    shots: int
    queries: int
    balanced: bool = True

    @property
    def per_class(self) -> int:
        return self.shots + self.queries

    @property
    def support(self) -> int:
        return self.ways * self.shots

    @property
    def size(self) -> int:
        return self.ways * self.per_class


def check_shape(shape: EpisodeShape, counts: Ints, names: tuple[str, str, str]) -> None:
    """Raise a ValueError unless classes of these sizes (C,) can hold such episodes.

    `names` are the names of the three numbers for error messages.

    Raises
    ------
    ValueError
        A number is below 1 (2 for the ways), or fewer classes than ways have shots + queries samples.
    """
    ways, shots, queries = names
    check_count(ways, shape.ways, least=2)
    check_count(shots, shape.shots, least=1)
    check_count(queries, shape.queries, least=1)
    enough = int((counts >= shape.per_class).sum())
    if enough < shape.ways:
        raise ValueError(
            f"{ways}: {shape.ways} classes with {shape.shots} + {shape.queries} samples each are needed, "
            f"got {enough} of {len(counts)} classes with {shape.per_class} or more"
        )


def check_count(name: str, value: int, *, least: int) -> None:
    """Raise a ValueError unless the value is an integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name}: must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: must be at least {least}, got {value}")


def draw_episodes(counts: Ints, shape: EpisodeShape, episodes: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw episodes independently of each other.

    Parameters
    ----------
    counts : ndarray of shape (C,)
        Number of samples of each class, at least shots + queries.
    shape : EpisodeShape
        Size of an episode.
    episodes : int
        Number of episodes.
    rng : Generator
        Random number generator.

    Returns
    -------
    classes : ndarray of shape (episodes, ways)
        Classes of each episode.
    flat : ndarray of shape (episodes, size)
        way * width + place of each sample, where width = counts.max() and place is the number of the sample within its
        class. The support comes first, class by class, then the queries (class by class if balanced).
    """
    width = int(counts.max())
    step = max(1, EPISODE_BLOCK_VALUES // max(shape.ways * width, len(counts)))
    blocks = [_draw(counts, shape, min(step, episodes - lo), rng) for lo in range(0, episodes, step)]
    classes, flat = zip(*blocks, strict=True)
    return np.concatenate(classes), np.concatenate(flat)


def _draw(counts: Ints, shape: EpisodeShape, episodes: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    classes = rng.random((episodes, len(counts))).argpartition(shape.ways - 1)[:, : shape.ways]
    classes = rng.permuted(classes, axis=1)  # the order that argpartition leaves depends on the numbers of the classes
    width = int(counts.max())
    keys = rng.random((episodes, shape.ways, width))
    keys[np.arange(width) >= counts[classes][..., None]] = np.inf
    cuts = (shape.shots - 1, shape.per_class - 1)
    places = keys.argpartition(cuts, axis=2)[..., : shape.per_class]  # the K smallest keys, then the Q next
    flat = np.arange(shape.ways)[:, None] * width + places
    support = flat[..., : shape.shots].reshape(episodes, -1)
    query = flat[..., shape.shots :].reshape(episodes, -1)
    if not shape.balanced:
        query = _any_class(keys, support, shape, rng)
    return classes, np.concatenate([support, query], axis=1)


def _any_class(keys: np.ndarray, support: Ints, shape: EpisodeShape, rng: np.random.Generator) -> Ints:
    """Draw ways x queries samples from all that are not support; keys are infinite where a class has no sample."""
    flat = keys.reshape(len(keys), -1)
    # new random numbers, because those that remain after the smallest ones went to the support are large in small
    # classes
    rest = np.where(np.isinf(flat), np.inf, rng.random(flat.shape))
    np.put_along_axis(rest, support, np.inf, axis=1)
    wanted = shape.ways * shape.queries
    return rest.argpartition(wanted - 1, axis=1)[:, :wanted]
