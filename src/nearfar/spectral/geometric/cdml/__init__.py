"""Curvilinear distance metric learning (Chen, Luo, Yang, Gong, Li & Huang, 2019).

    theta_l(t) = sum_{j=1..c} m_lj t^j,  T_l(x) = argmin_t |theta_l(t) - x|,  A_l(a, b) = int_a^b |theta_l'(t)| dt
    d(x, x')^2 = sum_l A_l(0, 1)^2 A_l(T_l(x), T_l(x'))^2 = |y(x) - y(x')|^2,  y_l(x) = A_l(0, 1) A_l(0, T_l(x))
    min_m  mean_S max(0, d^2 - near)^2 + mean_D max(0, far - d^2)^2 + lam |m|^2

The means are over all pairs. With c = 1, this is a Mahalanobis distance, whose L has the rows m_l1.
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
    """Return curves (m, d, c) as `x`, from the initial curves `start`; for ``attributes["curvature"]`` see `CDML`."""
    return objective.minimize(X, pairs, start, margins, lam, **search)


class CDML(FromPairs, MetricLearner):
    """Measure distances along learned curves instead of straight lines.

    Parameters
    ----------
    n_components : int, optional
        Number of curves. By default, the number of features, at most 16.
    degree : int
        Degree c of the curves, at least 1. With 1, the result is a Mahalanobis distance.
    margins : (float, float)
        Squared distances (near, far): similar pairs nearer than the first and dissimilar pairs farther than the second
        have no loss.
    lam : float
        Weight of the penalty on the squared coefficients, at least 0.
    init : "pca", "gmml" or array-like of shape (n_components, d, degree)
        Initial linear coefficients, scaled so that the mean squared distance of the pairs is between the margins.
        From there, the best straight lines are found first; then the higher coefficients are added, small and random
        at first. An array holds all initial coefficients, in the units of `components_`.
    solver : {"auto", "lbfgs", "adam"}
        "lbfgs" uses all pairs at once, and "adam" uses batches. "auto" uses batches above a million nearest points.
    batch_size : int
        Number of pairs in a batch, at least 1.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    max_iter : int
        Maximum number of iterations, or of passes over the pairs with batches. Up to half of them are spent on
        straight lines.
    tol : float
        Tolerance on the gradient, or with batches on the change of the objective. If jumps of the objective end the
        search, it is restarted as long as the objective falls by 1 % from one jump to the next. `converged_` is True
        if one of these criteria ended the search.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs, the batches and the initial higher coefficients.

    Attributes
    ----------
    components_ : ndarray of shape (m, d, c)
        Coefficients of the curves, for rows that are centered by `mean_` and divided by `scale_`.
    mean_ : ndarray of shape (d,)
        Mean of the training rows.
    scale_ : float
        Root mean square length of the centered training rows.
    curvature_ : float
        Smallest second derivative at a nearest point. If it is near 0, some row is about to jump along its curve.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Chen, Luo, Yang, Gong, Li & Huang, "Curvilinear distance metric learning", NeurIPS 2019. Distances are those of an
    explicit embedding. Lengths are computed with 32 Gauss-Legendre nodes and gradients are exact (implicit through T),
    where the published code uses random differences. Centering, units, `degree`, `lam`, the initial curves and the
    straight lines before the curves are not from the paper.

    The objective is not convex, and it jumps where a nearest point changes branch. If a jump ends L-BFGS, the search
    continues from the best of several steps of Adam. The best curves that were found are kept.
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
        start = objective.start(X, pairs, init=init, m=m, c=self.degree, level=(near + far) / 2, seed=self.random_state)
        search = self._settings("solver", "batch_size") | self._search()
        search |= {"straight": isinstance(init, str), "seed": self.random_state}
        return cdml(X, pairs, start, (near, far), self.lam, **search)

    def transform(self, X: AnyArray) -> AnyArray:
        """Return the coordinates y (n, m) of rows X (n, d): Euclidean distances between them are the learned distances.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows to transform.

        Returns
        -------
        ndarray of shape (n, m)
            Transformed rows.
        """
        check_is_fitted(self)
        with error_context(self):
            X = self._rows(X, reset=False)
            R = (X.astype(np.float64) - self.mean_) / self.scale_
            return curves.embed(self.components_.astype(np.float64), R).astype(X.dtype)
