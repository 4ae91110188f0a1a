"""Metric learning by information geometry (Wang & Jin, 2009).

    min_{M PD}  KL(N(0, X M X') | N(0, K_L))  =>  M = (X' K_L^-1 X)^-1,  K_L = Y Y' + lam I
    M^-1 = 1/lam (S_w + sum_c lam n_c / (lam + n_c) mu_c mu_c')

Y holds the one-hot labels, and S_w is the scatter within classes. Up to constants, the objective is
tr(K_L^-1 X M X') - log det M.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import Supervised, Workspace, with_signature_hint
from ...estimators.sums import LabelSums
from ...numerics import checks, mahalanobis, psd, scatter
from ...numerics.class_sums import ClassMoments
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from . import label_precision


def information_geometry(
    X: Array,
    labels: AnyArray,
    lam: float = 0.5,
    shrinkage: float | str = 0.0,
    n_components: int | None = None,
    features: int | None = None,
    repeats: int = 0,
) -> Solution:
    """Return L (k, d) as `x`; labels are codes (n,) or memberships (n, c); see `InformationGeometryMetric`.

    X may hold coordinates of rows with so many `features`, the last of which represents `repeats` more.
    """
    # M = (B / lam)^-1 with B = lam X' K_L^-1 X
    B = label_precision.label_precision(X, labels, lam)
    B = mahalanobis.regularized(B, shrinkage, label_precision.degrees_of_freedom(labels), features)
    L, value = label_precision.inverse_metric(B, lam, repeats)
    return Solution(scatter.widest(L, X, n_components), value)


class InformationGeometryMetric(LabelSums):
    """Find the metric whose kernel is closest to the kernel of the labels, in closed form.

    Parameters
    ----------
    n_components : int, optional
        Number of directions to keep, those along which the rows differ most under the metric. By default, all are kept.
    lam : float
        Regularization of the label kernel, above 0. As it goes to 0, M / lam becomes the inverse scatter within
        classes; as it grows, the inverse scatter of all rows.
    center : bool
        Whether to subtract the mean of the rows first. The formula depends on the origin; with False, the origin of X
        is used.
    shrinkage : float or "auto"
        Share of the scaled identity that is mixed into M^-1, in [0, 1], because few rows or many features make an
        inverse uncertain. "auto" adds 0.3 tr(M^-1) / (n - c) to its diagonal for n rows of c classes, as if the
        identity had been seen in 0.3 rows for each feature. Columns are first divided by their standard deviation, and
        multiplied by the root of the share of their variance that the classes explain: their units do not matter, and
        columns of noise do not become loud, unless most classes have one or two rows. The paper uses none: 0.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    objective_ : float
        Value of the objective at the solution.

    Notes
    -----
    Wang & Jin, AISTATS 2009. We do not know their lam.

    The kernel of more rows than features is singular; the pseudo-determinant is used. A survey writes the label kernel
    with label vectors instead of one-hot vectors. `fit` also takes memberships of shape (n, c) with c > 1 instead of
    labels.

    It takes O(n d^2 + d^3) time, without an n x n matrix.

    Examples
    --------
    >>> X = np.array([[0.0, 0], [0, 3], [1, 0], [1, 3.1]])
    >>> M = InformationGeometryMetric(lam=0.01, shrinkage=1e-3).fit(X, [0, 0, 1, 1]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 10 * M[1, 1])
    True
    """

    _center = False

    def __init__(
        self, n_components: int | None = None, *, lam: float = 0.5, center: bool = True, shrinkage: float | str = "auto"
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.center = center
        self.shrinkage = shrinkage

    @property
    def _span(self) -> bool | str:
        if not self.center:  # the origin may be outside of the span of the differences
            return False
        return True if checks.is_zero(self.shrinkage) else "full"

    @with_signature_hint
    def fit(
        self, X: Any, y: AnyArray | None = None, *, sample_weight: AnyArray | None = None, unlabeled: Any = None
    ) -> InformationGeometryMetric:
        """Learn from labeled rows.

        Parameters
        ----------
        X : array-like, CSR or Dask collection of shape (n, d)
            Rows.
        y : array-like of shape (n,) or (n, c)
            Class labels of any type, or the memberships of each row in c classes.
        sample_weight : array-like of shape (n,), optional
            Weights of the labeled rows, at least 0: a weight of 2 has the same effect as repeating the row. By default,
            1.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight=sample_weight, unlabeled=unlabeled)

    def _supervise(self, X: AnyArray, y: AnyArray | None, **given: Any) -> Supervised:
        if y is None or np.asarray(y).ndim < 2 or np.asarray(y).shape[1] == 1:
            return super()._supervise(X, y, **given)
        X = self._rows(X)
        Y = np.asarray(y, dtype=np.float64)
        if Y.shape[0] != len(X) or not np.isfinite(Y).all():
            raise ValueError(f"y must be {len(X)} labels or finite memberships, one row each; got shape {Y.shape}")
        return Supervised(X, (Y,))

    @property
    def _in_deviations(self) -> bool:
        return self.shrinkage == "auto"

    def _solve(self, X: Array, labels: AnyArray, work: Workspace) -> Solution:
        self._check_settings()
        if self.center:
            X = X - X.mean(axis=0)
        return information_geometry(
            X,
            labels,
            lam=self.lam,
            shrinkage=self.shrinkage,
            n_components=self.n_components,
            features=work.features,
            repeats=work.repeats,
        )

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        self._check_settings()
        means = sums.mean
        if self.center:
            means = means - rows.center
        B = label_precision.precision_of_sums(sums.within, sums.count, means, self.lam)
        B = mahalanobis.regularized(B, self.shrinkage, sums.n - len(sums.count), work.features)
        L, value = label_precision.inverse_metric(B, self.lam, work.repeats)
        if self.n_components is None:
            return Solution(psd.compress(L), value)
        U = psd.leading(L @ rows.total @ L.T, self.n_components)[1]
        return Solution(scatter.widest_along(L, U, self.n_components), value)

    def _check_settings(self) -> None:
        checks.above(0, lam=self.lam)
        checks.share(("auto",), shrinkage=self.shrinkage)
