"""The scikit-learn base classes: what all learners share. The module of a learner holds its formula.

How to add a learner
--------------------
Write one module at the path in `catalog.py`: a docstring (name, paper, formula), one pure function, one final class::

    class GMML(FromPairs, Mahalanobis):                # how supervision arrives, what is learned
        def __init__(self, t=0.5, *, n_components=None, n_pairs="all", random_state=None):
            self.t = t                                 # only store settings, as scikit-learn requires
            ...

        def _solve(self, X, pairs, work):              # X: float64, centered; pairs: Pairs or LabelPairs
            return gmml(X, pairs, self.t)              # L (k, d), or a numerics.optimize.Solution with x = L

`MetricLearner._fit` runs a fit: `_supervise` validates the arguments and returns `Supervised` rows, `_workspace` maps
them to the coordinates of the problem, `_solve` solves it, and `_store` sets the fitted attributes. Only `_store`
changes the learner. Besides X, `_solve` gets:

=============  ==========================================================================================
FromLabels     ``labels``: codes 0..c-1, -1 unlabeled; there are at least two classes and one similar pair
FromPairs      ``pairs``: `Pairs` (i, j, similar, weight), or `LabelPairs` if the setting is ``n_pairs="all"``;
               `scatter.pair_scatters` takes both, `constraints.written_out` converts `LabelPairs` to `Pairs`
FromTriplets   ``labels, triplets``: one of them is None; triplets (m, 3) are (anchor, positive, negative)
FromChunklets  ``chunklets``: codes, -1 for rows in none; with ``_links = True`` also which chunklets differ in class
FromSets       ``candidates``: (n, q) booleans, the classes that each row may have
=============  ==========================================================================================

It also gets ``work``, the `Workspace`: `work.start()` returns the last components if `warm_start` is set, and
`work.as_given(values)` returns values of the rows of X in the user's order.

The base classes validate the input; check `n_components`, `max_iter` and `tol`; center the rows (unless ``_center =
False``); sort them if constraints come from labels, so that their order does not matter; set the fitted attributes
(`Solution.attributes` adds others); cast to the float type of the input; and prefix every ValueError with the name of
the estimator. Functions in `numerics` and in the modules of methods therefore just raise ``ValueError("reg must be
...")`` (`numerics.checks` has the usual checks). `_solve` passes `self._settings("reg", ...)` and `self._search()`
(`max_iter`, `tol`, `report`) to its function. A linear method that needs only differences of rows sets ``_span =
True``: see `Mahalanobis`.

A closed form that needs only sums over each class also takes weights, parts of a table, sparse rows and Dask
collections: see `sums`.

`tests/test_learners.py` states the laws that every learner obeys, and what the reference of a method holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from ..labels import as_array
from ..numerics import checks, constraints
from ..numerics.constraints import LabelPairs, Pairs
from ..numerics.types import AnyArray, Bools, Ints
from .kernel import KernelMetric
from .mahalanobis import Mahalanobis, MetricLearner, Self, Supervised, Workspace
from .validation import error_context, holds_tuples, rows_of_points, with_signature_hint

__all__ = [
    "FromChunklets",
    "FromLabels",
    "FromPairs",
    "FromSets",
    "FromTriplets",
    "KernelMetric",
    "Mahalanobis",
    "MetricLearner",
    "Supervised",
    "Workspace",
    "error_context",
    "with_signature_hint",
]


class FromLabels(MetricLearner):
    """Learners from labels: `fit(X, y)`.

    A class with ``_y_required = False`` gets ``labels=None`` from `fit(X)`.
    """

    @with_signature_hint
    def fit(self: Self, X: AnyArray, y: AnyArray | None = None, *, unlabeled: Any = None) -> Self:
        """Learn from labeled rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n,)
            Class labels of any kind.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(X, y, unlabeled=unlabeled)

    def _supervise(self, X: AnyArray, y: AnyArray | None, *, unlabeled: Any = None, **given: Any) -> Supervised:
        if y is None and not self._y_required:
            return Supervised(self._rows(X), (None,))
        rows = self._labeled(X, y, unlabeled)
        checks.require_classes(rows.labels, similar=self._y_required)
        return Supervised(rows.X, (rows.labels,), rows.order, classes=rows.classes)


class FromPairs(MetricLearner):
    """Learners from pairs: `fit(X, y)` or `fit(X, pairs=..., pair_labels=..., pair_weights=...)`.

    With labels, the setting `n_pairs` determines which pairs are used: "all" (every pair, exact and never listed, for
    methods that need only the scatters of the pairs), an integer (that many pairs of each kind, drawn with
    `random_state`) or None (20 c^2 pairs of each kind for c classes, at most `_most_pairs`: 500,000, unless a method
    that takes too long for them sets fewer). A method that cannot use weights sets ``_weights = False``.
    """

    _weights = True
    _both_kinds = True
    _most_pairs = constraints.MAX_DEFAULT_PAIRS

    @with_signature_hint
    def fit(
        self: Self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        pair_weights: AnyArray | None = None,
        conflicts: str | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> Self:
        """Learn from labeled rows, from pairs of rows, or from pairs of points.

        Parameters
        ----------
        X : array-like of shape (n, d), or (m, 2, d)
            Training rows, or pairs of points.
        y : array-like of shape (n,), or (m,), optional
            Class labels of the rows, which are ignored if `pairs` is given. For pairs of points, +1 for similar pairs
            and -1 for dissimilar pairs.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X.
        pair_labels : array-like of shape (m,), optional
            +1 for similar pairs and -1 for dissimilar pairs. By default, all pairs are similar.
        pair_weights : array-like of shape (m,), optional
            Weights of the pairs, at least 0. By default, all weights are 1.
        conflicts : {"raise", "keep", "drop"}, optional
            What to do if annotators disagree, so that a pair has both labels: raise an error, use it with both labels,
            or leave it out. By default, "raise" for pairs of row numbers, and "keep" for pairs of points, because
            different items can have equal points.
        rows : array-like of shape (n,), optional
            Number that `pairs` uses for each row of X, by default 0 to n - 1. Pairs with other numbers are left out,
            so that the same list can be passed to every fold of a grid search (route ``rows=np.arange(n)`` along with
            it).
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(
            X,
            y,
            pairs=pairs,
            pair_labels=pair_labels,
            pair_weights=pair_weights,
            conflicts=conflicts,
            rows=rows,
            unlabeled=unlabeled,
        )

    def _supervise(
        self,
        X: AnyArray,
        y: AnyArray | None,
        *,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        pair_weights: AnyArray | None = None,
        conflicts: str | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
        **given: Any,
    ) -> Supervised:
        checks.only_with("pairs", pairs, pair_labels=pair_labels, pair_weights=pair_weights, rows=rows)
        if pairs is None and holds_tuples(X, 2) and not self._matrices:
            # pairs of points become pairs of numbers of their distinct points
            points, numbers = rows_of_points(X)
            checked = constraints.pairs_of_points(numbers, y, conflicts)
            self._require_kinds(checked)
            return Supervised(self._rows(points), (checked,), pairs=checked, points=points)
        if pairs is None:
            checks.only_with("pairs", None, conflicts=conflicts)
            known = self._labeled(X, y, unlabeled, "; pass labels, or pairs= and pair_labels=")
            return Supervised(known.X, (self._from_labels(known.labels),), known.order, classes=known.classes)
        X = self._rows(X)
        if pair_weights is not None and not self._weights:
            raise ValueError("pair_weights must be None: this method weighs all pairs equally")
        if rows is not None:
            # pairs of rows that a split left out are dropped with their labels and weights
            pairs, pair_labels, pair_weights = constraints.present(
                pairs, rows, len(X), "pairs", pair_labels, pair_weights
            )
        checked = self._from_pairs(pairs, pair_labels, pair_weights, len(X), conflicts)
        self._require_kinds(checked)
        return Supervised(X, (checked,), pairs=checked)

    def _require_kinds(self, pairs: Pairs) -> None:
        """Raise a ValueError if a method that needs both kinds of pairs gets one kind only."""
        if self._both_kinds:
            # a pair of weight 0 is none
            counted = pairs.weights > 0
            constraints.require_both(int((pairs.similar & counted).sum()), int((~pairs.similar & counted).sum()))

    def _from_pairs(
        self, pairs: AnyArray, pair_labels: Any, pair_weights: Any, n: int, conflicts: str | None = None
    ) -> Pairs:
        """Return the user's pairs of rows 0..n-1, checked."""
        return constraints.check_pairs(pairs, pair_labels, pair_weights, n, conflicts)

    def _from_labels(self, labels: Ints) -> Pairs | LabelPairs:
        """Return the pairs that the setting `n_pairs` requests from labels."""
        checks.require_classes(labels)
        n_pairs: Any = getattr(self, "n_pairs", "all")
        if n_pairs == "all":
            return LabelPairs(labels, getattr(self, "weighting", "pairs"))
        if n_pairs is not None:
            checks.counts(1, n_pairs=n_pairs)
        return constraints.pairs_from_labels(labels, n_pairs, getattr(self, "random_state", None), self._most_pairs)


class FromTriplets(MetricLearner):
    """Learners from triplets: `fit(X, y)` or `fit(X, triplets=...)`.

    `_solve` gets labels and triplets, one of which is None.
    """

    @with_signature_hint
    def fit(
        self: Self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        triplets: AnyArray | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> Self:
        """Learn from labeled rows or from triplets of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n,), optional
            Class labels. Ignored if `triplets` is given.
        triplets : array-like of shape (m, 3), optional
            Row numbers (anchor, positive, negative): the anchor should be nearer to the positive than to the negative.
        rows : array-like of shape (n,), optional
            Number that `triplets` uses for each row of X, by default 0 to n - 1. Triplets of other rows are left out,
            so that the same list can be passed to every fold of a grid search (route ``rows=np.arange(n)`` along with
            it).
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(X, y, triplets=triplets, rows=rows, unlabeled=unlabeled)

    def _supervise(
        self,
        X: AnyArray,
        y: AnyArray | None,
        *,
        triplets: AnyArray | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
        **given: Any,
    ) -> Supervised:
        checks.only_with("triplets", triplets, rows=rows)
        if triplets is None and holds_tuples(X, 3):
            points, numbers = rows_of_points(X)  # different items can have equal points
            return Supervised(self._rows(points), (None, numbers))
        if triplets is None:
            known = self._labeled(X, y, unlabeled, "; pass labels, or triplets=")
            checks.require_classes(known.labels)
            return Supervised(known.X, (known.labels, None), known.order, classes=known.classes)
        X = self._rows(X)
        if rows is not None:
            triplets = constraints.present(triplets, rows, len(X), "triplets")[0]
        return Supervised(X, (None, constraints.check_indices(triplets, 3, len(X), "triplets")))


class FromChunklets(MetricLearner):
    """Learners from chunklets: `fit(X, y)`, `fit(X, chunklets=...)` or `fit(X, pairs=...)`.

    With labels, each class is one chunklet, unless `n_chunklets` asks for small ones to be drawn. Similar pairs form
    chunklets by transitive closure. With ``_links = True``, `_solve` also gets (c, c) booleans that are True for
    chunklets of different classes.
    """

    _links = False

    @with_signature_hint
    def fit(
        self: Self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        chunklets: AnyArray | None = None,
        negative_links: AnyArray | None = None,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> Self:
        """Learn from labeled rows, or from chunklets: small sets of rows that are known to be of the same class.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n,), optional
            Class labels. Ignored if chunklets or pairs are given.
        chunklets : array-like of shape (n,), optional
            Number of the chunklet of each row, or -1 for rows that are in none.
        negative_links : array-like of shape (m, 2), optional
            Pairs of numbers of chunklets that are of different classes. By default, any two chunklets are of different
            classes.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X, instead of chunklets. Rows that are connected by similar pairs form one
            chunklet.
        pair_labels : array-like of shape (m,), optional
            +1 for similar pairs and -1 for dissimilar pairs. By default, all pairs are similar.
        rows : array-like of shape (n,), optional
            Number that `pairs` uses for each row of X, by default 0 to n - 1. Pairs of other rows, and links to
            chunklets of other rows, are left out, so that the same list can be passed to every fold of a grid search
            (route ``rows=np.arange(n)`` along with it).
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(
            X,
            y,
            chunklets=chunklets,
            negative_links=negative_links,
            pairs=pairs,
            pair_labels=pair_labels,
            rows=rows,
            unlabeled=unlabeled,
        )

    def _supervise(
        self,
        X: AnyArray,
        y: AnyArray | None,
        *,
        chunklets: AnyArray | None = None,
        negative_links: AnyArray | None = None,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
        **given: Any,
    ) -> Supervised:
        checks.only_with("chunklets", chunklets, negative_links=negative_links)
        checks.only_with("pairs", pairs, pair_labels=pair_labels)
        if chunklets is not None and pairs is not None:
            raise ValueError("chunklets and pairs must not both be given; pass one of them")
        if chunklets is None and pairs is None:
            checks.only_with("pairs or chunklets", None, rows=rows)
            known = self._labeled(X, y, unlabeled, "; pass labels, chunklets= or pairs=")
            checks.require_classes(known.labels)
            return Supervised(known.X, self._linked(*self._from_labels(known.labels)), known.order)
        X = self._rows(X)
        if chunklets is not None:
            checked = constraints.check_chunklets(
                chunklets, negative_links, len(X), partly=rows is not None, linked=self._links
            )
            return Supervised(X, self._linked(*checked))
        if rows is not None:
            pairs, pair_labels = constraints.present(pairs, rows, len(X), "pairs", pair_labels)
        checked_pairs = constraints.check_pairs(pairs, pair_labels, None, len(X))
        # similar pairs are transitive: chains of them are chunklets, which dissimilar pairs tell apart
        closed = constraints.close(checked_pairs, len(X), linked=self._links)
        return Supervised(X, self._linked(*closed))

    def _linked(self, chunklets: Ints, apart: Bools) -> tuple[Any, ...]:
        """Return the chunklets, and which of them differ in class if `_solve` takes that."""
        if self._links:
            return chunklets, apart
        return (chunklets,)

    def _from_labels(self, labels: Ints) -> tuple[Ints, Bools]:
        """Return one chunklet per class, or as many as `n_chunklets` drawn at random; with links, also which differ."""
        n_chunklets = getattr(self, "n_chunklets", None)
        chunklets = labels
        if n_chunklets is not None:
            size = getattr(self, "chunklet_size", 2)
            seed = getattr(self, "random_state", None)
            checks.counts(1, n_chunklets=n_chunklets)
            checks.counts(2, chunklet_size=size)
            chunklets = constraints.chunklets_from_labels(labels, n_chunklets, size, seed)
        if not self._links:
            return chunklets, np.zeros((0, 0), dtype=bool)
        known = chunklets >= 0
        first = np.unique(chunklets[known], return_index=True)[1]
        kind = labels[known][first]  # (c,), the class of each chunklet
        return chunklets, kind[:, None] != kind


class FromSets(MetricLearner):
    """Learners from candidate classes: `fit(X, y)` with labels, or with a 0/1 matrix of candidates."""

    @with_signature_hint
    def fit(self: Self, X: AnyArray, y: AnyArray | None = None, *, unlabeled: Any = None) -> Self:
        """Learn from rows for which only candidate classes are known.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n, q) or (n,)
            Matrix that is 1 where row i may be of class k and 0 elsewhere, or labels, each of which is the only
            candidate of its row.
        unlabeled : object, optional
            Value in y that marks rows for which any class is a candidate, such as -1.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(X, y, unlabeled=unlabeled)

    def _supervise(self, X: AnyArray, y: AnyArray | None, *, unlabeled: Any = None, **given: Any) -> Supervised:
        if y is None or as_array(y, "y").shape[1:] in ((), (1,)):
            known = self._labeled(X, y, unlabeled)
            checks.require_classes(known.labels)
            labels = known.labels[:, None]
            return Supervised(known.X, ((labels == np.arange(labels.max() + 1)) | (labels < 0),), known.order)
        X = self._rows(X)
        candidates = check_array(y)
        whole = np.isin(candidates, (0, 1)).all() and candidates.any(axis=1).all()
        if candidates.shape[0] != len(X) or not whole:
            needs = f"y must be a 0/1 matrix with {len(X)} rows, like X, and a 1 in every row"
            raise ValueError(f"{needs}; got shape {candidates.shape}, values {np.unique(candidates)[:5].tolist()}")
        return Supervised(X, (candidates.astype(bool),))
