"""Learners from pairs that need all rows at once and support weights of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ..numerics.constraints import LabelPairs
from ..numerics.types import AnyArray, Array
from .base import FromPairs
from .mahalanobis import Self, Supervised
from .sums import check_sample_weight
from .validation import error_context, with_signature_hint


class WeightedPairs(FromPairs):
    """Learners from pairs with weights of rows: `FromPairs` with ``fit(X, y, sample_weight=...)``.

    `_solve` gets the weights as ``pairs.row_weight``.
    """

    n_pairs: int | str | None

    @with_signature_hint
    def fit(
        self: Self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        pair_weights: AnyArray | None = None,
        rows: AnyArray | None = None,
        sample_weight: AnyArray | None = None,
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
        rows : array-like of shape (n,), optional
            Number that `pairs` uses for each row of X, by default 0 to n - 1. Pairs with other numbers are left out,
            so that the same list can be passed to every fold of a grid search (route ``rows=np.arange(n)`` along with
            it).
        sample_weight : array-like of shape (n,), optional
            Number of times that each labeled row counts, at least 0: a weight of 2 has the same effect as passing the
            row twice. By default, every row counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        given = {"pairs": pairs, "pair_labels": pair_labels, "pair_weights": pair_weights, "rows": rows}
        if sample_weight is None:
            return self._fit(X, y, **given, unlabeled=unlabeled)
        with error_context(self):
            told = [name for name, value in given.items() if value is not None]
            if told:
                raise ValueError(f"sample_weight goes with labels y, not with {told[0]}=")
            if self.n_pairs != "all":
                raise ValueError(f"sample_weight goes with n_pairs='all'; got n_pairs={self.n_pairs!r}")
            weight = check_sample_weight(sample_weight, _num_samples(X))
            if not weight.any():
                raise ValueError("sample_weight is zero for every row; some weight must be above 0")
        counted = np.flatnonzero(weight > 0)
        X = _safe_indexing(X, counted)
        y = None if y is None else _safe_indexing(y, counted)
        return self._fit(X, y, row_weight=weight[counted], unlabeled=unlabeled)

    def _supervise(
        self, X: AnyArray, y: AnyArray | None, *, row_weight: Array | None = None, **given: Any
    ) -> Supervised:
        supervised = super()._supervise(X, y, **given)
        (pairs,) = supervised.known
        if row_weight is None or not isinstance(pairs, LabelPairs):
            return supervised
        own = row_weight if supervised.order is None else row_weight[supervised.order]
        return replace(supervised, known=(pairs._replace(row_weight=own),))
