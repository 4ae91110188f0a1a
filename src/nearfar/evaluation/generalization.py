"""How far unseen classes are from seen ones: H-divergence, joint error, diversity.

    eps_unseen(h) <= eps_seen(h) + d_H + lambda                       (bound quoted by Chu et al., 2020)
    d_H    = 1 - error of a seen/unseen discriminator
    lambda = error on seen + error on unseen of one classifier of all classes
    diversity = trace of the covariance of embeddings

Discriminator and classifier are 1-nearest-neighbor rules. They learn from one half of the samples and are tested on the
other half, over several random splits.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ..labels import check_lengths, class_numbers
from ..neighbors.nearest import nearest
from ..numerics.distances import as_rows
from ..numerics.types import AnyArray, Bools, Ints
from .intervals import Interval, interval, stratified_parts


def h_divergence(
    seen: Any, unseen: Any, *, splits: int = 10, distance: str = "euclidean", scaled: bool = False, seed: int = 0
) -> Interval:
    """Measure how well a nearest-neighbor rule separates two sets of embeddings: d_H = 1 - its error.

    Parameters
    ----------
    seen : array-like of shape (n, d)
        Embeddings of seen classes, at least two.
    unseen : array-like of shape (m, d)
        Embeddings of unseen classes, at least two. The larger set is subsampled to the size of the smaller.
    splits : int
        Number of random halvings; each gives one value.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance of the nearest-neighbor rule.
    scaled : bool
        Return the common form 2 (1 - 2 error) instead, in [-2, 2].
    seed : int
        Seed of the generator that draws subsamples and halves.

    Returns
    -------
    Interval
        Mean and half-width of its 95% confidence interval over the splits: about 1/2 for equal distributions, 1 for
        separable sets.

    Notes
    -----
    Chu et al., 2020 (JRD). The paper does not state the ratio of the split; here each set is halved.
    """
    x, y = _both(seen, unseen, splits)
    size = min(len(x), len(y))
    if size < 2:
        raise ValueError(f"seen, unseen: expected at least 2 rows each, got {len(x)} and {len(y)}")
    side = np.repeat([0, 1], size)
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(splits):
        # equally many of both sets, so that a rule without any information is wrong half of the time
        rows = np.concatenate([x[rng.choice(len(x), size, replace=False)], y[rng.choice(len(y), size, replace=False)]])
        errors.append(np.mean(_mistakes(rows, side, halves(side, rng), distance)[0]))
    error = np.array(errors)
    return interval(2.0 * (1.0 - 2.0 * error) if scaled else 1.0 - error)


def joint_error(
    seen: Any,
    seen_labels: Any,
    unseen: Any,
    unseen_labels: Any,
    *,
    splits: int = 10,
    distance: str = "euclidean",
    seed: int = 0,
) -> Interval:
    """Compute the error of one nearest-neighbor classifier of all classes, on seen plus on unseen samples.

    It is lambda of the bound.

    Parameters
    ----------
    seen : array-like of shape (n, d)
        Embeddings of seen classes.
    seen_labels : array-like of shape (n,)
        Their classes, each with at least two samples.
    unseen : array-like of shape (m, d)
        Embeddings of unseen classes.
    unseen_labels : array-like of shape (m,)
        Their classes, each with at least two samples. Seen and unseen classes are different even if their labels are
        equal.
    splits : int
        Number of random halvings, drawn within classes.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance of the nearest-neighbor rule.
    seed : int
        Seed of the generator that draws halves.

    Returns
    -------
    Interval
        In [0, 2]; 0 for perfectly separated classes.
    """
    x, y = _both(seen, unseen, splits)
    (a,) = class_numbers(seen_labels, names=("seen_labels",))
    (b,) = class_numbers(unseen_labels, names=("unseen_labels",))
    check_lengths(len(x), a, "seen_labels")
    check_lengths(len(y), b, "unseen_labels")
    # unseen classes are numbered after the seen ones: the same label is another class there
    classes = np.concatenate([a, b + a.max() + 1])
    if np.bincount(classes).min() < 2:
        raise ValueError("seen_labels, unseen_labels: expected at least 2 samples of every class")
    rows = np.concatenate([x, y])
    is_unseen = np.repeat([False, True], [len(x), len(y)])
    rng = np.random.default_rng(seed)
    sums = []
    for _ in range(splits):
        wrong, tested = _mistakes(rows, classes, halves(classes, rng), distance)
        # an error rate of each set: a sum over both would depend on their sizes
        sums.append(wrong[~is_unseen[tested]].mean() + wrong[is_unseen[tested]].mean())
    return interval(sums)


def diversity(embeddings: Any) -> float:
    """Return the trace of the covariance of embeddings, their mean squared distance from their mean.

    Compare it between seen and unseen classes, on raw embeddings: unit vectors hide it (Chen et al., 2022).

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.

    Returns
    -------
    float
        At least 0; 0 for a single row.
    """
    x = as_rows(embeddings)
    return float(np.var(x, axis=0, dtype=np.float64).sum())


def halves(classes: Ints, rng: np.random.Generator) -> Bools:
    """Return a mask (n,) of a random half of every class; the odd sample of a class is on a random side."""
    return stratified_parts(classes, 2, rng) == 0


def _both(seen: Any, unseen: Any, splits: int) -> tuple[AnyArray, AnyArray]:
    """Check both sets of embeddings, and return them as arrays."""
    if not isinstance(splits, Integral) or splits < 1:
        raise ValueError(f"splits: expected an integer of at least 1, got {splits!r}")
    x = as_rows(seen, "seen")
    y = as_rows(unseen, "unseen")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"unseen: expected {x.shape[1]} columns as in seen, got {y.shape[1]}")
    return x, y


def _mistakes(rows: AnyArray, classes: Ints, known: Bools, distance: str) -> tuple[Bools, Ints]:
    """Return whether 1-NN from the known half errs on each row of the other half, and the numbers of these rows."""
    learned = np.flatnonzero(known)
    tested = np.flatnonzero(~known)
    _, index = nearest(rows[tested], rows[learned], 1, distance=distance)
    return classes[learned[index[:, 0]]] != classes[tested], tested
