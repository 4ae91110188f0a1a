"""Locally linear metric adaptation (Chang & Yeung, 2004).

    y(x) = x + B pi(x),   pi_r(x) = exp(-|x - c_r|^2 / (2 omega^2))
    min_B  sum_S |y_i - y_j|^2 + lam sum_{i, j} exp(-d_ij^2 / sigma^2) (|y_i - y_j| - d_ij)^2,   d_ij = |x_i - x_j|

S: similar pairs; c_r: the rows in them. A map that is not linear, and is defined for new rows too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ....estimators.base import FromPairs, MetricLearner, Workspace, error_context
from ....numerics import checks
from ....numerics.constraints import LabelPairs, Pairs, with_similar, written_out
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array, Ints
from . import smooth_shift
from .smooth_shift import Field


def llma(X: Array, similar: Pairs, n_centers: int = 200, **settings: Any) -> tuple[list[Field], Solution]:
    """The fields of all stages, and how the last was found; see `LLMA` for the settings."""
    centers = smooth_shift.far_rows(X[np.unique(np.r_[similar.i, similar.j])], n_centers)
    return smooth_shift.shifts(X, similar.i, similar.j, similar.weights, centers, **settings)


class LLMA(FromPairs, MetricLearner):
    """Move similar rows toward each other by a smooth field, while nearby rows keep their distances.

    Parameters
    ----------
    lam : float
        Weight of kept distances; at least 0.
    omega : float, optional
        Width of the field's bumps; above 0. Default: a third of the root mean square distance of rows and centers.
    sigma : float, optional
        Range over which rows keep their distance; above 0. Default: from the median squared distance of those pairs.
    n_centers : int
        At most so many rows of similar pairs, far from each other, are centers.
    n_neighbors : int or None
        Each row keeps its distance to so many nearest ones; None: to all, as in the paper, for a few thousand rows.
    n_stages : int
        Maps one after the other, each with half the width of the last, and half the range where `sigma` is given.
    ridge : float
        Weight of |B|^2 in the objective, in units of its mean curvature; above 0. It smooths the field between centers.
    n_pairs : int, "all" or None
        Pairs made from labels: this many of each kind, all, or 20 c^2 of each kind for c classes.
    max_iter : int
        Of each stage.
    tol : float
        On the fall of the objective in a step, relative to it where it is above 1 (for features of deviation 1).
    warm_start : bool
        Start from the last fit where its centers are the same.
    verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    centers_, coef_ : list of ndarray of shape (k, d), of ndarray of shape (d, k)
        c and B of each stage.
    widths_ : ndarray of shape (n_stages,)
        omega of each stage.
    objective_ : float
        Of the last stage, as `history_`, `n_iter_` and `converged_`.

    Notes
    -----
    Chang & Yeung, "Locally linear metric adaptation for semi-supervised clustering", ICML 2004. Dissimilar pairs are
    not used. The widths are settings, not variables: a sigma of 0 would void the second term. `ridge` and defaults are
    ours, and so is L-BFGS in units of the paper's majorizer, whose own steps then tell whether to stop.
    """

    _both_kinds = False
    _holds = ("n_features_in_", "centers_", "coef_", "widths_")

    def __init__(
        self,
        lam: float = 0.1,
        *,
        omega: float | None = None,
        sigma: float | None = None,
        n_centers: int = 200,
        n_neighbors: int | None = 50,
        n_stages: int = 1,
        ridge: float = 1e-2,
        n_pairs: int | str | None = None,
        max_iter: int = 200,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.lam = lam
        self.omega = omega
        self.sigma = sigma
        self.n_centers = n_centers
        self.n_neighbors = n_neighbors
        self.n_stages = n_stages
        self.ridge = ridge
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, lam=self.lam)
        checks.counts(1, n_centers=self.n_centers, n_stages=self.n_stages)
        checks.above(0, ridge=self.ridge)
        checks.above(0, **checks.not_none(omega=self.omega, sigma=self.sigma))
        similar = with_similar(written_out(pairs)).part(similar=True)
        settings = self._settings("n_centers", "lam", "omega", "sigma", "n_neighbors", "n_stages", "ridge")
        last = getattr(self, "coef_", []) if self.warm_start else []
        fields, found = llma(X, similar, last=last, **settings, **self._search())
        attributes = {
            **found.attributes,
            "centers": [field.centers for field in fields],
            "coef": [field.coef for field in fields],
            "widths": np.array([field.width for field in fields]),
        }
        return found.with_x(found.x, attributes=attributes)

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        return Workspace(np.asarray(X, dtype=np.float64), order)

    def _learned_map(self, components: Array, work: Workspace, dtype: Any) -> dict[str, Any]:
        return {}  # the fields, which `_solve` reports

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_)

    def transform(self, X: AnyArray) -> AnyArray:
        """The rows (n, d) where the field takes them: Euclidean distances between them are the learned ones."""
        check_is_fitted(self)
        with error_context(self):
            X = self._rows(X, reset=False)
            Y = X.astype(np.float64)
            for field in zip(self.centers_, self.coef_, self.widths_, strict=True):
                Y = Field(*field)(Y)
            return Y.astype(X.dtype)
