"""A mean and its 95% interval, and Recall@K over ten disjoint parts of the test items.

half-width = t_{0.975, n-1} s / sqrt(n)        (or 1.96 s / sqrt(n)), s the sample standard deviation
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from ..labels import check_lengths, class_numbers
from ..numerics.distances import as_rows
from ..numerics.types import Array, Ints
from .protocol import mean_score
from .retrieval import retrieve

ONLY_RECALL: dict[str, Any] = {"whole": False, "up_to_r": False}


PARTS = 10
"""Number of disjoint parts of a test whose scores give an interval, as in the JRD paper."""


class Interval(NamedTuple):
    """A mean, the half-width of its 95% confidence interval, and the values (n,) that it summarizes."""

    mean: float
    half: float
    values: Array

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.half:.4f}"


def interval(values: Any, kind: str = "t") -> Interval:
    """Return the mean of independent values with its 95% confidence interval.

    Parameters
    ----------
    values : array-like of shape (n,)
        Values, at least one.
    kind : {"t", "normal"}
        Distribution of the interval: Student's t, or normal.

    Returns
    -------
    Interval
        The half-width is NaN for a single value.

    Examples
    --------
    >>> print(interval([0.5, 0.6, 0.7]))
    0.6000 ± 0.2484
    """
    from scipy.stats import t

    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"values: expected a sequence of numbers, got shape {x.shape}")
    if kind not in ("t", "normal"):
        raise ValueError(f'kind: expected "t" or "normal", got {kind!r}')
    if x.size == 1:
        return Interval(float(x[0]), float("nan"), x)
    if kind == "t":
        width = float(t.ppf(0.975, x.size - 1))
    else:
        width = 1.959963984540054  # the quantile 0.975 of the normal distribution
    return Interval(float(x.mean()), width * float(x.std(ddof=1)) / float(np.sqrt(x.size)), x)


def subset_recall(
    embeddings: Any,
    labels: Any,
    *,
    ks: Iterable[int] | int = (1,),
    parts: int = PARTS,
    distance: str = "cosine",
    kind: str = "t",
    seed: int = 0,
) -> dict[int, Interval]:
    """Compute Recall@K of disjoint parts of the test items, each with every class, with a 95% confidence interval.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding; every class needs at least two samples per part (20 for ten parts).
    ks : int or iterable of int
        Values of K for Recall@K.
    parts : int
        Number of disjoint parts. The samples of each class are permuted and dealt in turn to the parts, from a random
        one on.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    kind : {"t", "normal"}
        Distribution of the interval: Student's t, or normal.
    seed : int
        Seed of the generator that draws the parts.

    Returns
    -------
    dict of int to Interval
        Recall for each K.

    Raises
    ------
    ValueError
        If a class is too small to give every part two samples.

    Notes
    -----
    Chu et al., 2020 (JRD).

    Each part is searched separately, so do not compare these recalls with those of the whole set.
    """
    x = as_rows(embeddings)
    (classes,) = class_numbers(labels)
    check_lengths(len(x), classes)
    check_parts(classes, parts)
    part = stratified_parts(classes, parts, np.random.default_rng(seed))
    if isinstance(ks, Iterable):
        ks = tuple(ks)  # every part reads them
    found = [retrieve(x[part == p], classes[part == p], ks=ks, distance=distance, **ONLY_RECALL) for p in range(parts)]
    return {k: interval([mean_score(one, one.found(k)) for one in found], kind) for k in found[0].ks}


def check_parts(classes: Ints, parts: int) -> None:
    """Raise a ValueError unless there are two parts or more, each with two samples of every class."""
    sizes = np.bincount(classes)
    if not isinstance(parts, Integral):
        raise ValueError(f"parts: expected 2 or more, got {parts!r}")
    if parts < 2 or sizes.min() < 2 * parts:
        small = int((sizes < 2 * parts).sum())
        raise ValueError(
            f"parts: expected 2 or more, each with 2 samples of every class; for {parts} parts, "
            f"{small} of {len(sizes)} classes have fewer than {2 * parts} samples"
        )


def stratified_parts(classes: Ints, parts: int, rng: np.random.Generator) -> Ints:
    """Return the part 0..parts-1 of every sample (n,): each class is permuted and dealt in turn to the parts."""
    sizes = np.bincount(classes)
    order = np.lexsort((rng.random(len(classes)), classes))
    # the place of each sample in its permuted class
    turn = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    part = np.empty(len(classes), dtype=np.intp)
    part[order] = (turn + np.repeat(rng.integers(parts, size=len(sizes)), sizes)) % parts
    return part
