"""Curvilinear distance metric learning (Chen, Luo, Yang, Gong, Li & Huang, 2019).

    theta_l(t) = sum_{j=1..c} m_lj t^j,  T_l(x) = argmin_t |theta_l(t) - x|,  A_l(a, b) = int_a^b |theta_l'(t)| dt
    d(x, x')^2 = sum_l A_l(0, 1)^2 A_l(T_l(x), T_l(x'))^2 = |y(x) - y(x')|^2,  y_l(x) = A_l(0, 1) A_l(0, T_l(x))
    min_m  mean_S max(0, d^2 - near)^2 + mean_D max(0, far - d^2)^2 + lam |m|^2

Means are over all pairs. With c = 1 this is a Mahalanobis distance, L of rows m_l1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ....estimators.base import FromPairs, MetricLearner, Workspace, error_context
from ....numerics import checks
from ....numerics.constraints import LabelPairs, Pairs, written_out
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array, Ints
from . import curves, objective

SOLVERS = ("auto", "lbfgs", "adam")


def cdml(X: Array, pairs: Pairs, start: Array, margins: tuple[float, float], lam: float, **search: Any) -> Solution:
    """Curves (m, d, c) as `x`, from those of `start`; ``attributes["curvature"]`` as in `CDML`."""
    return objective.minimize(X, pairs, start, margins, lam, **search)


class CDML(FromPairs, MetricLearner):
    """Measure distances along learned curves instead of lines.

    Parameters
    ----------
    n_components : int, optional
        Curves. Default: the number of features, at most 16.
    degree : int
        c, of the curves; 1 gives a Mahalanobis distance.
    margins : (float, float)
        Squared distances up to which similar pairs, and from which dissimilar pairs, cost nothing.
    lam : float
        Weight of the squared coefficients.
    init : "pca", "gmml" or array-like of shape (n_components, d, degree)
        Linear coefficients from which the best straight lines are sought, scaled so that pairs have a mean squared
        distance between the margins; then come higher ones, small and random at first. Or all coefficients, in the
        units of `components_`.
    solver : "auto", "lbfgs" or "adam"
        All pairs at once, or batches; "auto" takes batches above a million nearest points.
    batch_size : int
        Pairs in a batch.
    n_pairs : int, "all" or None
        Pairs made from labels: this many of each kind, all, or 20 c^2 of each kind for c classes.
    max_iter : int
        Iterations, or passes over the pairs; up to half of them are iterations on straight lines.
    tol : float
        On the gradient, or on the change of the objective with batches. Where jumps of the objective end the search,
        it goes on as long as it falls by 1 % from one to the next; `converged_` says that one of these ended it.
    warm_start : bool
        Start from the last fit.
    verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (m, d, c)
        Coefficients, of rows less `mean_` in units of `scale_`.
    mean_ : ndarray of shape (d,)
    scale_ : float
        Root mean squared length of the centered rows.
    curvature_ : float
        Least second derivative at a nearest point; near 0, some row is about to jump along its curve.

    Notes
    -----
    Chen, Luo, Yang, Gong, Li & Huang, "Curvilinear distance metric learning", NeurIPS 2019. Distances are of an
    explicit embedding; lengths are by 32 Gauss-Legendre nodes and gradients exact (implicit ones through T), where the
    published code takes random differences. Centering, units, `degree`, `lam`, the start and the straight lines before
    the curves are ours. The objective is not convex, and jumps where a nearest point changes branch: where a jump ends
    L-BFGS, it goes on from the best of some steps of Adam. The best curves met are kept.
    """

    _holds = ("n_features_in_", "components_", "mean_", "scale_")

    def __init__(
        self,
        n_components: int | None = None,
        *,
        degree: int = 3,
        margins: tuple[float, float] = (2.0, 8.0),
        lam: float = 1e-3,
        init: str | AnyArray = "pca",
        solver: str = "auto",
        batch_size: int = 1024,
        n_pairs: int | str | None = None,
        max_iter: int = 400,
        tol: float = 1e-5,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.degree = degree
        self.margins = margins
        self.lam = lam
        self.init = init
        self.solver = solver
        self.batch_size = batch_size
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        R = X.astype(np.float64)
        mean = R.mean(axis=0)
        R -= mean
        scale = float(np.sqrt(np.mean(np.sum(R * R, axis=1)))) or 1.0
        attributes = {"mean_": mean, "scale_": scale}
        return Workspace(R / scale, order, last=self._last_components(), attributes=attributes)

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.counts(1, degree=self.degree, batch_size=self.batch_size)
        checks.at_least(0, lam=self.lam)
        checks.one_of(SOLVERS, solver=self.solver)
        near, far = objective.check_margins(self.margins)
        pairs = written_out(pairs)
        m = self.n_components or min(X.shape[1], 16)
        last = work.start((m, X.shape[1], self.degree))
        init = self.init if last is None else last
        start = objective.start(X, pairs, init, m, self.degree, (near + far) / 2, self.random_state)
        search = self._settings("solver", "batch_size") | self._search()
        search |= {"straight": isinstance(init, str), "seed": self.random_state}
        return cdml(X, pairs, start, (near, far), self.lam, **search)

    def transform(self, X: AnyArray) -> AnyArray:
        """y (n, m) of rows X (n, d): Euclidean distances between its rows are the learned ones."""
        check_is_fitted(self)
        with error_context(self):
            X = self._rows(X, reset=False)
            R = (X.astype(np.float64) - self.mean_) / self.scale_
            return curves.embed(self.components_.astype(np.float64), R).astype(X.dtype)
