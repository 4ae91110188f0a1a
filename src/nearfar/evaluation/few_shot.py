"""N-way K-shot accuracy of embeddings: episodes classified by prototypes or by the nearest support sample.

    prototype:  class of argmin_c d(z_q, p_c),    p_c = mean of the K support embeddings of class c
    nearest:    class of argmin_s d(z_q, z_s) over the N K support samples

The score is the mean accuracy over episodes with its 95% interval, 1.96 s / sqrt(episodes). One-shot runs that belong
to a data set are scored from given distances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..labels import check_lengths, class_numbers
from ..numerics.distances import as_rows, check_distance, unit_rows
from ..numerics.episodes import EpisodeShape, check_count, check_shape, draw_episodes
from ..numerics.types import AnyArray, Array, Bools
from .intervals import Interval, interval

CLASSIFIERS = ("prototype", "nearest")
GATHERED_VALUES = 2**22  # number of embedding values that are gathered at a time


class FewShot(NamedTuple):
    """Accuracy over few-shot episodes, and how these were drawn.

    Attributes
    ----------
    accuracy : Interval
        Mean accuracy, half-width of its 95% confidence interval, and the accuracy of each episode.
    ways : int
        Number of classes per episode.
    shots : int
        Number of support samples per class.
    queries : int
        Number of query samples per class.
    episodes : int
        Number of episodes.
    classifier : str
        How queries were classified.
    distance : str
        Distance by which embeddings were compared.
    classes : int
        Number of classes from which episodes were drawn.
    left_out : int
        Number of classes with too few samples.
    """

    accuracy: Interval
    ways: int
    shots: int
    queries: int
    episodes: int
    classifier: str
    distance: str
    classes: int
    left_out: int

    def __str__(self) -> str:
        return (
            f"{self.ways}-way {self.shots}-shot accuracy {self.accuracy} "
            f"({self.classifier}, {self.distance}; {self.episodes} episodes, {self.queries} queries per class, "
            f"chance {1 / self.ways:.4f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes except the values of the episodes, as plain data for JSON."""
        return self._asdict() | {"accuracy": self.accuracy.mean, "interval_95": self.accuracy.half}


def few_shot(
    embeddings: Any,
    labels: Any,
    *,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    episodes: int = 600,
    classifier: str = "prototype",
    distance: str = "cosine",
    seed: int = 0,
) -> FewShot:
    """Compute the mean accuracy of N-way K-shot classification over random episodes.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    ways : int
        Number N of classes per episode.
    shots : int
        Number K of support samples per class.
    queries : int
        Number Q of query samples per class. Classes with fewer than K + Q samples are left out.
    episodes : int
        Number of episodes, which are drawn independently.
    classifier : {"prototype", "nearest"}
        Assign a query to the class with the nearest mean, or to the class of the nearest support sample. For one shot,
        both are the same.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared. With "cosine", prototypes are means of unit vectors.
    seed : int
        Seed of the generator that draws the episodes.

    Returns
    -------
    FewShot
        The accuracy with its interval.

    Raises
    ------
    ValueError
        If a setting is not valid, or fewer than `ways` classes have enough samples.

    Notes
    -----
    Snell, Swersky & Zemel, "Prototypical networks for few-shot learning", NIPS 2017.

    Examples
    --------
    >>> rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    >>> few_shot(rows, ["a", "a", "b", "b"], ways=2, queries=1, episodes=10).accuracy.mean
    1.0
    """
    if classifier not in CLASSIFIERS:
        raise ValueError(f"classifier: expected one of {', '.join(CLASSIFIERS)}, got {classifier!r}")
    check_count("episodes", episodes, least=1)
    x = _prepared(as_rows(embeddings), check_distance(distance))
    shape = EpisodeShape(ways, shots, queries)
    (y,) = class_numbers(labels)
    check_lengths(len(x), y)
    counts = np.bincount(y)
    check_shape(shape, counts, ("ways", "shots", "queries"))
    keep = counts >= shape.per_class
    picked = _samples(y, keep, shape, episodes, np.random.default_rng(seed))
    accuracy = interval(_accuracies(x, picked, shape, classifier, distance == "cosine"), "normal")
    return FewShot(
        accuracy=accuracy,
        ways=ways,
        shots=shots,
        queries=queries,
        episodes=episodes,
        classifier=classifier,
        distance=distance,
        classes=int(keep.sum()),
        left_out=int((~keep).sum()),
    )


def _prepared(x: AnyArray, distance: str) -> AnyArray:
    """Return rows of unit length for cosine; otherwise centered rows, in a unit near their largest value.

    Centering reduces rounding, and the unit, a power of two, keeps squares of float32 values in their range; neither
    changes the order of distances.
    """
    if distance == "cosine":
        return unit_rows(x).astype(x.dtype)
    centered = x - x.mean(axis=0, dtype=np.float64)
    exponent = int(np.frexp(np.abs(centered).max())[1])
    return np.ldexp(centered, -exponent).astype(x.dtype)


def _samples(
    y: AnyArray, keep: Bools, shape: EpisodeShape, episodes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the (episodes, size) rows of each episode: the support, sorted by class, then the queries."""
    counts = np.bincount(y)
    starts = np.cumsum(counts) - counts
    order = np.argsort(y, kind="stable")
    kept = np.flatnonzero(keep)
    classes, flat = draw_episodes(counts[kept], shape, episodes, rng)
    # draws are numbered as if every class had as many samples as the largest one
    way, place = np.divmod(flat, counts[kept].max())
    return order[np.take_along_axis(starts[kept][classes], way, axis=1) + place]


def _accuracies(x: AnyArray, picked: NDArray[np.int64], shape: EpisodeShape, classifier: str, cosine: bool) -> Array:
    # queries of an episode are sorted by class, too
    truth = np.repeat(np.arange(shape.ways), shape.queries)
    step = max(1, GATHERED_VALUES // (shape.size * x.shape[1]))
    found = [
        _classified(x[picked[lo : lo + step]], shape, classifier, cosine) == truth for lo in range(0, len(picked), step)
    ]
    return np.concatenate(found).mean(axis=1)


def _classified(z: AnyArray, shape: EpisodeShape, classifier: str, cosine: bool) -> NDArray[np.int64]:
    """Return the (e, queries) way of each query of (e, size, d) episodes."""
    support = z[:, : shape.support]
    query = z[:, shape.support :]
    if classifier == "prototype":
        support = support.reshape(len(z), shape.ways, shape.shots, -1).mean(axis=2)  # (e, ways, d)
        if cosine:
            # the mean of unit vectors is shorter than 1; only its direction counts
            support = unit_rows(support.reshape(-1, z.shape[2])).reshape(support.shape).astype(z.dtype)
    half_squares = np.square(support).sum(axis=2) / 2  # |s|^2 / 2 - q.s has the order of |q - s|^2
    nearest = (half_squares[:, None] - query @ support.swapaxes(1, 2)).argmin(axis=2)
    return nearest if classifier == "prototype" else nearest // shape.shots


def one_shot_accuracy(distances: Any, answers: Any) -> Interval:
    """Compute the accuracy over one-shot classification runs, each with its own training and test items.

    Parameters
    ----------
    distances : sequence of array-likes of shape (tests, training)
        For each run, the distances of the test items from the training items, one of each class.
    answers : sequence of array-likes of shape (tests,)
        For each run, the number of the correct training item of each test item.

    Returns
    -------
    Interval
        Over runs: mean accuracy, half-width of its 95% confidence interval (1.96 s / sqrt(runs)), and the accuracy of
        each run.

    Notes
    -----
    Lake, Salakhutdinov & Tenenbaum, "Human-level concept learning through probabilistic program induction", Science
    350, 2015.

    Examples
    --------
    >>> one_shot_accuracy([[[0.1, 0.9], [0.8, 0.7]]], [[0, 1]]).mean
    1.0
    """
    if len(distances) != len(answers) or not len(distances):
        raise ValueError(f"answers: expected one row per run, got {len(distances)} runs and {len(answers)} answers")
    return interval([_one_run(d, a) for d, a in zip(distances, answers, strict=True)], "normal")


def _one_run(distances: Any, answers: Any) -> float:
    d = as_rows(distances, "distances")
    right = np.asarray(answers)
    if right.shape != (len(d),) or right.dtype.kind not in "iu":
        raise ValueError(f"answers: expected {len(d)} integers in every run, got {right.dtype} of {right.shape}")
    if right.min() < 0 or right.max() >= d.shape[1]:
        raise ValueError(f"answers: expected numbers of training items, 0..{d.shape[1] - 1}, got {right.tolist()}")
    return float((d.argmin(axis=1) == right).mean())
