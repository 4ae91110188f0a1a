"""The learner that held-out rows or classes choose, by one standard error (Breiman, 1984).

    chosen = argmax_l mean_f s_lf,   if mean_f (s_lf - s_0f) > sd_f (s_lf - s_0f) / sqrt(F),   else 0

s_lf is the score in fold f of learner l, fitted to what the fold leaves, F the number of folds, and 0 the Euclidean
distance. Held-out rows of known classes score the accuracy of their k nearest neighbors among the others; those of
held-out classes, which search each other, MAP@R.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_consistent_length

import nearfar

from ...catalog import BY_NAME
from ...evaluation import map_at_r
from ...expressions import Call, parse, plain, settings_of
from ...fit_warnings import warn
from ...labels import class_numbers
from ...neighbors import nearest
from ...numerics import checks, constraints
from ...numerics.optimize import Solution
from ...numerics.standard_columns import standardized
from ...numerics.types import AnyArray, Array, Ints
from ..base import FromLabels, Mahalanobis, Supervised, Workspace, with_signature_hint

EUCLIDEAN = "Euclidean"
CANDIDATES = ("CovarianceMetric", "DiscriminantWhitening", "LFDA", "GMML", "LMNN", "NCA")
FOR_NEW_CLASSES = (*CANDIDATES, "GMML(t=0.1)")
OF_FEW_CLASSES = ("DiscriminantWhitening", "GMML(t=0.1)")
"""Learners that seldom do harm to classes to come, where only rows of the known ones can choose."""
HELD_OUT = ("rows", "classes")
HALVES_DRAWN = 5  # of the classes; each half is held out once
TIE = 1e-6  # relative: the mean of a gain in one fold only is its standard error, up to rounding
MOST_FEATURES = 4096  # above it, a (d, d) matrix of each learner takes too long
FEWEST_CHOOSING_CLASSES = 4  # two to learn from, and two to score


class Fold(NamedTuple):
    """Numbers of the rows to learn from, and of those to score."""

    train: Ints
    test: Ints


class AutoMetric(FromLabels, Mahalanobis):
    """Choose among linear learners and the plain Euclidean distance by nested folds, and fit the one that is chosen.

    Columns are standardized first. Every learner is fitted to the rows that a fold leaves, and scored on the rows of
    the fold: by the accuracy of nearest neighbors, or by MAP@R if the fold holds out classes. The best one is taken if
    it is better than the Euclidean distance of the standardized columns by more than the standard error over the folds.

    Parameters
    ----------
    learners : sequence of str, optional
        Linear learners to choose from, perhaps with settings, such as "GMML(t=0.1)". By default, `CANDIDATES` of
        this module, with "GMML(t=0.1)" if classes are held out.
    n_neighbors : int
        Number of neighbors that vote where rows are held out, at least 1.
    n_folds : int
        Number of folds, at least 2. Each class is spread over them.
    n_repeats : int
        Number of times that folds are drawn, at least 1.
    hold_out : {"rows", "classes"}
        Whether a fold consists of rows of every class, or of whole classes, for data to which new classes will come. In
        the latter case, halves of the classes are held out, the rows of a fold search each other, and their score is
        MAP@R. Of fewer than four classes, rows are held out, and by default only learners are compared that seldom do
        harm to new classes.
    max_rows : int
        Largest number of rows that choose. The learner that is chosen is fitted to all rows.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the folds.

    Attributes
    ----------
    chosen_ : str
        The learner that was chosen, as it is given, or "Euclidean".
    chosen_by_ : str
        What the scores are: "accuracy on held-out rows" or "MAP@R on held-out classes".
    fold_scores_ : dict
        Score in each fold, by the learner.
    components_ : ndarray of shape (k, d)
        Linear map of the metric, of the columns as they are given.

    Notes
    -----
    Folds of few rows choose by chance between learners that are about as good. The rule of one standard error is that
    of Breiman, Friedman, Olshen & Stone, Classification and Regression Trees, 1984.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = AutoMetric(("LFDA", "GMML")).fit(X, y)
    >>> learner.chosen_ in ("LFDA", "GMML", "Euclidean"), learner.components_.shape[1]
    (True, 13)
    """

    _center = False  # the size of a column shows whether its deviation is rounding

    def __init__(
        self,
        learners: Sequence[str] | None = None,
        *,
        n_neighbors: int = 3,
        n_folds: int = 5,
        n_repeats: int = 1,
        hold_out: str = "rows",
        max_rows: int = 1000,
        random_state: Any = 0,
    ) -> None:
        self.learners = learners
        self.n_neighbors = n_neighbors
        self.n_folds = n_folds
        self.n_repeats = n_repeats
        self.hold_out = hold_out
        self.max_rows = max_rows
        self.random_state = random_state

    @with_signature_hint
    def fit(
        self, X: AnyArray, y: AnyArray | None = None, *, groups: AnyArray | None = None, unlabeled: Any = None
    ) -> AutoMetric:
        """Choose a learner on held-out rows or classes, and fit it to all rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n,)
            Class labels of any kind.
        groups : array-like of shape (n,), optional
            Group of each row, such as the person or the scan that it is from. The rows of a group are in one fold, and
            do not find each other.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : AutoMetric
            The fitted learner.
        """
        return self._fit(X, y, unlabeled=unlabeled, groups=groups)

    def _supervise(
        self, X: AnyArray, y: AnyArray | None, *, groups: AnyArray | None = None, **given: Any
    ) -> Supervised:
        supervised = super()._supervise(X, y, **given)
        codes = None
        if groups is not None:
            (codes,) = class_numbers(groups, names=("groups",))
            check_consistent_length(supervised.X, codes)
            _, codes = checks.encode(codes[supervised.order])  # by first appearance, whatever their names
        return replace(supervised, known=(*supervised.known, codes))

    def _solve(self, X: Array, labels: Ints, groups: Ints | None, work: Workspace) -> Solution:
        checks.counts(1, n_neighbors=self.n_neighbors, n_repeats=self.n_repeats)
        checks.counts(2, n_folds=self.n_folds)
        checks.counts(4, max_rows=self.max_rows)
        checks.one_of(HELD_OUT, hold_out=self.hold_out)
        if X.shape[1] > MOST_FEATURES:
            raise ValueError(f"X has {X.shape[1]} features; AutoMetric compares up to {MOST_FEATURES}: name a learner")
        known = labels >= 0
        codes = labels[known]
        by_classes = self.hold_out == "classes" and codes.max() + 1 >= FEWEST_CHOOSING_CLASSES
        learners = self._candidates(by_classes=by_classes)
        for text in learners:
            _made(text)
        rows, _, scale = standardized(X[known])
        apart = usable(None if groups is None else groups[known], codes)
        scores = self._scores(rows, codes, learners, by_classes=by_classes, groups=apart)
        best = chosen(scores)
        components = np.eye(X.shape[1])
        if best != EUCLIDEAN:
            components = _made(best).fit(rows, codes).components_
        about = {
            "chosen": best,
            "chosen_by": "MAP@R on held-out classes" if by_classes else "accuracy on held-out rows",
            "fold_scores": {one: list(values) for one, values in scores.items()},
        }
        return Solution(components / scale, attributes=about)

    def _candidates(self, *, by_classes: bool) -> tuple[str, ...]:
        """Return the learners to choose from."""
        if self.learners is not None:
            return tuple(self.learners)
        if self.hold_out == "rows":
            return CANDIDATES
        return FOR_NEW_CLASSES if by_classes else OF_FEW_CLASSES

    def _scores(
        self, rows: Array, labels: Ints, learners: Sequence[str], *, by_classes: bool, groups: Ints | None = None
    ) -> dict[str, list[float]]:
        """Return the score of each candidate in every fold; candidates that cannot be fitted are left out."""
        rng = constraints.generator(self.random_state)
        kept = sampled(labels, self.max_rows, rng)
        rows = rows[kept]
        labels = labels[kept]
        groups = None if groups is None else groups[kept]
        folds = list(halves_of_classes(labels, rng, groups) if by_classes else self._folds(labels, rng, groups))

        def score(Z: Array, fold: Fold) -> float:
            if by_classes:
                apart = None if groups is None else groups[fold.test]
                return map_at_r(Z[fold.test], labels[fold.test], groups=apart, distance="euclidean")
            return accuracy(Z, labels, fold, self.n_neighbors)

        found = {EUCLIDEAN: [score(rows, fold) for fold in folds]}
        for text in learners:
            found[text] = []
            for fold in folds:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # the fit to all rows warns
                        Z = _made(text).fit(rows[fold.train], labels[fold.train]).transform(rows)
                except (ValueError, ArithmeticError):
                    del found[text]
                    break
                found[text].append(score(Z, fold))
        return found

    def _folds(self, labels: Ints, rng: np.random.Generator, groups: Ints | None = None) -> Iterator[Fold]:
        """Yield the folds of rows in which all candidates are scored; a group is in one of them."""
        for _ in range(self.n_repeats):
            if groups is None:
                fold_of = spread(labels, self.n_folds, rng)
            else:
                fold_of = spread_groups(labels, groups, self.n_folds, rng)
            for fold in range(self.n_folds):
                test = np.flatnonzero(fold_of == fold)
                train = np.flatnonzero(fold_of != fold)
                if len(test) and len(np.unique(labels[train])) > 1:
                    yield Fold(train, test)


def chosen(scores: dict[str, list[float]]) -> str:
    """Return the name with the largest mean, if it gains more than one standard error over the Euclidean distance.

    >>> chosen({"Euclidean": [0.8, 0.7, 0.9], "LFDA": [0.9, 0.8, 0.9], "GMML": [0.9, 0.7, 0.9]})
    'LFDA'
    >>> chosen({"Euclidean": [0.8, 0.7, 0.9], "LFDA": [0.9, 0.7, 0.9]})
    'Euclidean'
    """
    plain = np.array(scores[EUCLIDEAN])
    best = max(scores, key=lambda name: float(np.mean(scores[name])) if scores[name] else -1.0)
    gains = np.array(scores[best]) - plain
    if len(gains) < 2:
        return EUCLIDEAN
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5
    return best if gains.mean() > (1 + TIE) * error else EUCLIDEAN


def accuracy(Z: Array, labels: Ints, fold: Fold, k: int) -> float:
    """Return the share of the rows to score that most of their k nearest rows agree with; the nearest ones win ties."""
    queries = Z[fold.test]
    k = min(k, len(fold.train))
    _, found = nearest.nearest(queries, Z[fold.train], k)
    votes = np.zeros((len(queries), int(labels.max()) + 1))
    for place in range(k):
        # a vote is worth a little more the nearer it is
        np.add.at(votes, (np.arange(len(queries)), labels[fold.train][found[:, place]]), 1 + (k - place) / (k + 1) ** 2)
    return float(np.mean(votes.argmax(axis=1) == labels[fold.test]))


def spread(labels: Ints, n_folds: int, rng: np.random.Generator) -> Ints:
    """Return the fold of each row (n,), which spread every class as evenly as can be."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.intp)
    folds[order] = np.arange(len(labels)) % n_folds
    return folds


def usable(groups: Ints | None, labels: Ints) -> Ints | None:
    """Return groups if rows of a class are in several, and else None, with a warning."""
    if groups is None:
        return None
    if len(np.unique(np.stack([labels, groups]), axis=1).T) > len(np.unique(labels)):
        return groups
    warn("groups are not used, because all rows of every class are in one group")
    return None


def spread_groups(labels: Ints, groups: Ints, n_folds: int, rng: np.random.Generator) -> Ints:
    """Return the fold of each row (n,): those of a group are in one, and classes spread over them as far as they can.

    The largest groups come first, each into the fold that has the fewest rows of its classes, then of all rows.
    """
    groups = np.unique(groups, return_inverse=True)[1]
    held = np.zeros((int(groups.max()) + 1, int(labels.max()) + 1))  # rows of each class in each group
    np.add.at(held, (groups, labels), 1)
    order = rng.permutation(len(held))
    order = order[np.argsort(-held[order].sum(axis=1), kind="stable")]
    filled = np.zeros((n_folds, held.shape[1]))
    share = np.maximum(held.sum(axis=0), 1)
    fold_of = np.empty(len(held), dtype=np.intp)
    for group in order:
        of_classes = filled @ (held[group] / share)
        fold = np.lexsort((filled.sum(axis=1), of_classes))[0]
        filled[fold] += held[group]
        fold_of[group] = fold
    return fold_of[groups]


def halves_of_classes(labels: Ints, rng: np.random.Generator, groups: Ints | None = None) -> Iterator[Fold]:
    """Yield folds that hold out one half of the classes, and then the other, several times.

    Rows to learn from whose group is among those to score are left out.
    """
    count = int(labels.max()) + 1
    for _ in range(HALVES_DRAWN):
        order = rng.permutation(count)
        first = np.isin(labels, order[: count // 2])
        for held in (first, ~first):
            test = np.flatnonzero(held)
            train = np.flatnonzero(~held if groups is None else ~held & ~np.isin(groups, groups[held]))
            if finds_any(labels[test], None if groups is None else groups[test]) and finds_any(labels[train]):
                yield Fold(train, test)


def finds_any(labels: Ints, groups: Ints | None = None) -> bool:
    """Return whether there are two rows of a class, which are in two groups."""
    there = labels if groups is None else np.unique(np.stack([labels, groups]), axis=1)[0]
    return len(there) > len(np.unique(there))


def sampled(labels: Ints, most: int, rng: np.random.Generator) -> Ints:
    """Return the numbers of at most `most` rows, in increasing order, with about the same share of each class."""
    n = len(labels)
    if n <= most:
        return np.arange(n)
    fold = spread(labels, -(-n // most), rng)
    return np.flatnonzero(fold == 0)


def _made(text: str) -> Any:
    """Return a linear learner of the catalog with the settings of a text."""
    expected = f"learners must be linear learners of the catalog, such as {CANDIDATES}"
    call = parse(text, expected)
    if isinstance(call, Call):
        method = BY_NAME.get(call.name)
        kind: Any = getattr(nearfar, call.name) if method is not None and method.kind == "learner" else AutoMetric
        if kind is not AutoMetric and issubclass(kind, Mahalanobis) and not kind._matrices:
            return kind(**settings_of(call, signature(kind).parameters, plain))
    raise ValueError(f"{expected}; got {text!r}")
