"""Locally linear metric adaptation (Chang & Yeung, 2004).

    y(x) = x + B pi(x),   pi_r(x) = exp(-|x - c_r|^2 / (2 omega^2))
    min_B  sum_S |y_i - y_j|^2 + lam sum_{i, j} exp(-d_ij^2 / sigma^2) (|y_i - y_j| - d_ij)^2,   d_ij = |x_i - x_j|

S holds the similar pairs, and the c_r are the rows in them. The map is not linear, and is defined for new rows as well.
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
    """Return the fields of all stages and the solution of the last stage; see `LLMA` for the settings."""
    centers = smooth_shift.far_rows(X[np.unique(np.r_[similar.i, similar.j])], n_centers)
    return smooth_shift.shifts(X, similar.i, similar.j, similar.weights, centers, **settings)


class LLMA(FromPairs, MetricLearner):
    """Move similar rows toward each other by a smooth field, while nearby rows keep their distances.

    Parameters
    ----------
    lam : float
        Weight of the term that preserves distances, at least 0.
    omega : float, optional
        Width of the Gaussian bumps of the field, above 0. By default, a third of the root mean square distance between
        rows and centers.
    sigma : float, optional
        Range within which rows keep their distances, above 0. By default, the square root of the median squared
        distance of the pairs that keep their distance.
    n_centers : int
        Maximum number of centers, at least 1. They are chosen far from each other among the rows of similar pairs.
    n_neighbors : int or None
        Number of nearest rows to which each row keeps its distance. None preserves the distances between all rows, as
        in the paper, and suits a few thousand rows.
    n_stages : int
        Number of maps that are applied one after another, at least 1. Each has half the width of the previous one, and
        half its range if `sigma` is given.
    ridge : float
        Weight of |B|^2 in the objective, in units of its mean curvature, above 0. It smooths the field between
        centers.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    max_iter : int
        Maximum number of iterations of each stage.
    tol : float
        Stop when an iteration lowers the objective by less than ``tol * max(1, objective)``, for features scaled to a
        standard deviation of 1.
    warm_start : bool
        Start from the coefficients of the previous fit if their shape is the same.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    centers_ : list of ndarray of shape (k, d)
        Centers c of each stage.
    coef_ : list of ndarray of shape (d, k)
        Coefficients B of each stage.
    widths_ : ndarray of shape (n_stages,)
        Width omega of each stage.
    objective_ : float
        Objective of the last stage. `history_`, `n_iter_` and `converged_` are also those of the last stage.

    Notes
    -----
    Chang & Yeung, "Locally linear metric adaptation for semi-supervised clustering", ICML 2004. Dissimilar pairs are
    not used. The widths are settings and not variables, because a sigma of 0 would remove the second term. `ridge` and
    the defaults are not from the paper, and neither is L-BFGS, which is run in units of the majorizer of the paper;
    steps of the majorizer then determine whether to stop.
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
        last: list[Array] = []
        if self.warm_start:
            last = getattr(self, "coef_", [])
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
        return {}  # the map is the fields, which `_solve` returns as attributes

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_)

    def transform(self, X: AnyArray) -> AnyArray:
        """Return the rows (n, d), moved by the field: Euclidean distances between them are the learned distances.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows to transform.

        Returns
        -------
        ndarray of shape (n, d)
            Moved rows.
        """
        check_is_fitted(self)
        with error_context(self):
            X = self._rows(X, reset=False)
            Y = X.astype(np.float64)
            for field in zip(self.centers_, self.coef_, self.widths_, strict=True):
                # each stage moves what the stages before it have moved
                Y = Field(*field)(Y)
            return Y.astype(X.dtype)
