"""The features and directions with the largest weights in a learned linear metric, and how certain they are."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from ..fit_warnings import LEARNER, warn
from ..labels import as_array
from ..numerics import checks, constraints, psd
from ..numerics.types import AnyArray, Array, Ints
from .validation import error_context

NUMBERS = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")


class Explanation(NamedTuple):
    """Shares of the learned squared distance, with intervals from fits on random halves of the rows.

    Attributes
    ----------
    names : list of str
        Names of the features.
    weights : ndarray of shape (d,)
        Share of each feature alone in the mean squared distance: M_kk var_k divided by their sum, which does not
        depend on units.
    low, high : ndarray of shape (d,)
        Bounds of the intervals of the weights, which may be on one side of the weight.
    directions : ndarray of shape (k, d)
        Unit vectors, in units of the standard deviation of each feature, along which the metric stretches most.
    shares : ndarray of shape (k,)
        Share of each direction in the trace of the metric, in these units.
    stability : ndarray of shape (k,)
        Mean share of each direction that is in the span of the first k directions of another half, at most 1.
    """

    names: list[str]
    weights: Array
    low: Array
    high: Array
    directions: Array
    shares: Array
    stability: Array

    def table(self, most: int = 10) -> str:
        """Return the features with the largest weights as lines of text: name, weight and interval.

        A weight outside of its interval is marked.
        """
        order = np.argsort(-self.weights, kind="stable")[:most]
        width = max(len(self.names[k]) for k in order)
        lines = []
        for k in order:
            interval = f"({self.low[k]:.1%} to {self.high[k]:.1%})"
            if not self.low[k] <= self.weights[k] <= self.high[k]:
                interval += "  outside"
            lines.append(f"{self.names[k]:{width}}  {self.weights[k]:6.1%}  {interval}")
        return "\n".join(lines)

    def direction_table(self, most: int = 3) -> str:
        """Return the directions as lines of text: share, and the features with the largest entries."""
        lines = []
        for direction, share in zip(self.directions, self.shares, strict=True):
            order = np.argsort(-np.abs(direction), kind="stable")[:most]
            entries = [f"{direction[k]:+.2f} {self.names[k]}" for k in order if direction[k]]
            lines.append(f"{share:6.1%}  {', '.join(entries)}")
        return "\n".join(lines)


def explain(
    learner: Any,
    X: AnyArray,
    y: AnyArray | None = None,
    *,
    pairs: AnyArray | None = None,
    pair_labels: AnyArray | None = None,
    triplets: AnyArray | None = None,
    quadruplets: AnyArray | None = None,
    prefit: bool = False,
    n_directions: int = 3,
    n_fits: int = 30,
    level: float = 0.9,
    random_state: Any = 0,
) -> Explanation:
    """Explain which features have large weights in a learned linear metric, and which of them are reliable.

    Parameters
    ----------
    learner : estimator
        Linear learner, of which clones are fitted.
    X : array-like of shape (n, d), (m, 2, d), (m, 3, d) or (m, 4, d)
        Rows; or pairs, triplets or quadruplets of points.
    y : array-like of shape (n,) or (m,), optional
        Class labels of the rows; for pairs of points, +1 for similar and -1 for dissimilar pairs.
    pairs, triplets, quadruplets : array-like of shape (m, 2), (m, 3) or (m, 4), optional
        Row numbers of X, from which the learner learns instead of labels.
    pair_labels : array-like of shape (m,), optional
        +1 for similar and -1 for dissimilar pairs. By default, all pairs are similar.
    prefit : bool
        Explain the fitted learner itself. Only the intervals come from clones, which are fitted on halves.
    n_directions : int
        Number of directions to return, at least 1; no more than d are returned.
    n_fits : int
        Number of fits on random halves of each class, or of the pairs, triplets or quadruplets, at least 2.
    level : float
        Share of these fits inside the intervals, in (0, 1).
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the halves.

    Returns
    -------
    Explanation
        Weights, directions and their intervals.

    Notes
    -----
    The mean of half of the rows, drawn without replacement, varies about the mean of all rows as much as the latter
    varies about its expectation (the delete-half jackknife). Draws with replacement would repeat rows, so that rows
    would be their own neighbors. Pairs that share rows are not independent: their intervals are too narrow if few rows
    are in many pairs.

    A weight may be outside of its interval. The metric of half of the data then differs from that of all data, as it
    does if regularization has more influence on fewer rows.

    Examples
    --------
    >>> from nearfar import RCA
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = rng.normal(size=(200, 3)) * [0.1, 1, 1] + np.c_[y, 0 * y, 0 * y]
    >>> found = explain(RCA(), X, y, n_fits=10)
    >>> bool(found.weights[0] > 0.8), bool(found.low[0] > 0.7)
    (True, True)
    """
    with error_context(learner):
        checks.counts(1, n_directions=n_directions)
        checks.counts(2, n_fits=n_fits)
        checks.between(0, 1, level=level)
        tuples = {"pairs": pairs, "triplets": triplets, "quadruplets": quadruplets}
        lists = {name: np.asarray(listed) for name, listed in tuples.items() if listed is not None}
        if pair_labels is not None:
            lists["pair_labels"] = np.asarray(pair_labels)
        points = np.asarray(X, dtype=np.float64)
        data = Given(points, None if y is None else as_array(y, "y"), lists)
        rows = np.unique(points.reshape(-1, points.shape[-1]), axis=0) if points.ndim == 3 else points
        names = [str(name) for name in getattr(X, "columns", [f"x{k}" for k in range(rows.shape[1])])]
        fitted = learner if prefit else data.fitted(learner)
        if not hasattr(fitted, "get_mahalanobis_matrix"):
            name = type(learner).__name__
            raise ValueError(f"learner must be linear, with get_mahalanobis_matrix; {name} has no weights of features")
        k = min(n_directions, rows.shape[1])
        deviation = rows.std(axis=0)
        weights, directions, shares = anatomy(fitted.get_mahalanobis_matrix(), deviation, k)
        rng = constraints.generator(random_state)
        drawn = np.empty((n_fits, rows.shape[1]))
        kept = np.empty((n_fits, k))
        strata = data.strata()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for fit in range(n_fits):
                # how much of the directions is in the span of those of a fit on another half
                again = data.fitted(learner, halves(strata, rng))
                drawn[fit], others, _ = anatomy(again.get_mahalanobis_matrix(), deviation, k)
                kept[fit] = np.sum((directions @ others.T) ** 2, axis=1)
        warn_once(caught, n_fits)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Explanation(
        names=names,
        weights=weights,
        low=low,
        high=high,
        directions=directions,
        shares=shares,
        stability=kept.mean(axis=0),
    )


class Given(NamedTuple):
    """What a learner is fitted to: rows or tuples of points, their labels, and lists of row numbers."""

    X: Array
    y: AnyArray | None
    lists: Mapping[str, AnyArray]

    def fitted(self, learner: Any, half: Ints | None = None) -> Any:
        """Return a clone that is fitted to all data, or to a half of the rows, or of the pairs or larger tuples."""
        if self.lists:
            lists = self.lists if half is None else {name: listed[half] for name, listed in self.lists.items()}
            return clone(learner).fit(self.X, **lists)
        X = self.X if half is None else self.X[half]
        if self.y is None:
            return clone(learner).fit(X)
        return clone(learner).fit(X, self.y if half is None else self.y[half])

    def strata(self) -> Ints:
        """Return codes of the groups of which halves are drawn: classes, or similar and dissimilar pairs."""
        if self.lists:
            labels = self.lists.get("pair_labels")
            size = len(next(iter(self.lists.values())))
        else:
            labels = self.y
            size = len(self.X)
        return np.zeros(size, dtype=np.intp) if labels is None else checks.encode(checks.numbered(labels))[1]


def warn_once(caught: Sequence[warnings.WarningMessage], n_fits: int) -> None:
    """Give each kind of warning of the fits on halves once; they differ in their numbers only."""
    kinds: dict[tuple[Any, str], list[str]] = {}
    for one in caught:
        text = str(one.message)
        kinds.setdefault((type(one.message), NUMBERS.sub("", text)), []).append(text)
    for (kind, _), texts in kinds.items():
        learner, _, message = texts[0].partition(": ")
        if learner != LEARNER.get():
            message = texts[0]
        warn(f"{min(len(texts), n_fits)} of {n_fits} fits on halves, such as: {message}", kind)


def anatomy(M: Array, deviation: Array, k: int) -> tuple[Array, Array, Array]:
    """Return weights (d,), the first k directions (k, d) and their shares (k,) of M in units of the deviations."""
    # M_kl s_k s_l, the metric on standardized features
    scaled = M * deviation[:, None] * deviation
    total = max(float(np.trace(scaled)), np.finfo(np.float64).tiny)
    w, V = psd.spectrum(scaled)
    return np.diag(scaled) / total, V[:, :k].T, w[:k] / total


def halves(labels: Ints, rng: np.random.Generator) -> Ints:
    """Return the row numbers of a random half of each class, in increasing order.

    At least two rows of each class are kept, or all rows of a smaller one.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    sizes = checks.class_sizes(labels)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # half of each class, at least 2 rows if there are so many
    taken = np.minimum(np.maximum(-(-sizes // 2), 2), sizes)
    return np.sort(order[place < np.repeat(taken, sizes)])
