"""Maximally collapsing metric learning (Globerson & Roweis, 2005).

    min_{M PSD}  sum_i KL(p0_i || p_i) + reg tr(M)   (or reg |M|^2 / 2)
    p_ij = exp(-d_ij) / sum_{k != i} exp(-d_ik),  d_ij = (x_i - x_j)' M (x_i - x_j)

p0_i: uniform over the other rows of i's class, or over the rows that pairs call similar to i. Convex in M.
"""

from __future__ import annotations

import numpy as np

from ...estimators.base import FromPairs, Mahalanobis, Workspace
from ...numerics import certified_psd, checks, constraints, eig, gradient_descent, initialization, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Report, Solution, lbfgs
from ...numerics.types import Array, Ints
from .objective import WEIGHTINGS, Collapse


def mcml(
    X: Array,
    told: Ints | Pairs,
    reg: float = 0.0,
    penalty: str = "trace",
    weighting: str = "sample",
    *,
    rank: int | None = None,
    start: Array | None = None,
    max_iter: int = 500,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """L (d, d) at the convex optimum, or (rank, d) at a local one over so many rows; see `MCML`."""
    problem = Collapse(X, told, weighting, **{penalty: reg})
    if rank is not None:
        first = eig.gevd(scatter.total(X), problem.S0, rank)[1].T
        return low_rank(
            problem, initialization.median_scaled(X, first) if start is None else start, max_iter, tol, report
        )
    A = problem.scaling()
    return certified_psd.minimize(problem, problem.gap, A, max_iter=max_iter, tol=tol, start=start, report=report)


def low_rank(problem: Collapse, L0: Array, max_iter: int, tol: float, report: Report | None) -> Solution:
    """A local minimum over L of few rows."""
    n = float(problem.weight.sum())

    def per_row(L: Array) -> tuple[float, Array]:
        f, G = problem(L)
        return f / n, 2 / n * L @ G

    found = lbfgs(
        per_row, L0, stop=gradient_descent.hardly_changes(1e-2 * tol), max_iter=max_iter, tol=0.0, report=report
    )
    return found.with_x(psd.compress(found.x), objective=problem(found.x)[0])


class MCML(FromPairs, Mahalanobis):
    """Bring each class as near to one point as possible, and far from the others.

    Parameters
    ----------
    n_components : int, optional
        Rows of L; default: as many as features.
    reg : float
        Weight of the penalty beside a sum over rows.
    penalty : "trace" or "frobenius"
        tr(M), or half the squared Frobenius norm of M.
    rank_mode : "truncate" or "factor"
        With `n_components`: solve for M and keep its leading eigenvectors, scaled by the roots of their eigenvalues
        (paper), or search over L of so many rows, which is not convex.
    weighting : "sample" or "pair"
        Every row weighs the same (paper), or every pair of one class.
    max_iter : int
    tol : float
        Stop where the duality gap is below ``tol * max(1, |objective|)``; with ``rank_mode="factor"`` where a step
        lowers the objective per row by less than a hundredth of `tol`, relative to it where it is above 1.
    warm_start : bool
    verbose : bool

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    objective_ : float
        The sum of KL divergences and the penalty, of M before truncation.
    duality_gap_ : float
        Bounds the distance of `objective_` to the minimum (not with ``rank_mode="factor"``).
    kkt_ : ndarray of shape (2,)
        Negative part of the smallest eigenvalue of the gradient G by M, and abs(<M, G>): 0, 0 at the optimum (not with
        ``rank_mode="factor"``).

    Notes
    -----
    Globerson & Roweis, NIPS 18, 2005. p0 is normalized and p has a normalizer per row; a survey's account has
    neither, and calls a convex problem's solution unique. The paper alternates gradient steps and projections; here
    a full-rank factor is searched, and projected gradient steps follow where that search stalls. Rows alone in their
    class are no anchors. Where some direction has no scatter within classes and nothing is penalized, there is no
    minimum: a little is added to the scatter, with a warning.

    The paper has labels only. Of given pairs the similar ones count, and all other rows are pushed away: say all that
    is known of each anchor. Rows in no similar pair are neighbors only; dissimilar pairs set `threshold_`.
    """

    _weights = False
    _both_kinds = False
    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.0,
        penalty: str = "trace",
        rank_mode: str = "truncate",
        weighting: str = "sample",
        max_iter: int = 500,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.penalty = penalty
        self.rank_mode = rank_mode
        self.weighting = weighting
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg)
        checks.one_of(("trace", "frobenius"), penalty=self.penalty)
        checks.one_of(("truncate", "factor"), rank_mode=self.rank_mode)
        checks.one_of(WEIGHTINGS, weighting=self.weighting)
        k = self.n_components
        start = work.start()
        rank = k if self.rank_mode == "factor" else None
        if start is not None and rank is not None and not np.linalg.matrix_rank(start) == len(start) == rank:
            start = None
        told = pairs.labels if isinstance(pairs, LabelPairs) else constraints.with_similar(pairs)
        settings = (self.reg, self.penalty, self.weighting)
        found = mcml(X, told, *settings, rank=rank, start=start, **self._search())
        return found.with_x(found.x[:k])
