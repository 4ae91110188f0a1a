"""Maximally collapsing metric learning (Globerson & Roweis, 2005).

    min_{M PSD}  sum_i KL(p0_i || p_i) + reg tr(M)   (or reg |M|^2 / 2)
    p_ij = exp(-d_ij) / sum_{k != i} exp(-d_ik),  d_ij = (x_i - x_j)' M (x_i - x_j)

p0_i is uniform over the other rows of the class of i, or over the rows that are similar to i in the given pairs. The
problem is convex in M.
"""

from __future__ import annotations

import numpy as np

from ...estimators.base import FromPairs, Mahalanobis, Workspace
from ...numerics import certified_psd, checks, constraints, gradient_descent, initialization, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Report, Solution, lbfgs
from ...numerics.types import Array, Ints
from .objective import WEIGHTINGS, Collapse


def mcml(
    X: Array,
    supervision: Ints | Pairs,
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
    """Return L (d, d) at the convex optimum, or L (rank, d) at a local optimum. See `MCML`."""
    problem = Collapse(X, supervision, weighting, **{penalty: reg})
    if rank is not None:
        if start is None:
            # the directions of largest total scatter relative to S0; (rank, d)
            directions = psd.gevd(scatter.total(X), problem.S0, rank)[1].T
            start = initialization.median_scaled(X, directions)
        return low_rank(problem, start, max_iter, tol, report)
    A = problem.scaling()
    return certified_psd.minimize(problem, problem.gap, A, max_iter=max_iter, tol=tol, start=start, report=report)


def low_rank(problem: Collapse, L0: Array, max_iter: int, tol: float, report: Report | None) -> Solution:
    """Return a local minimum over L (k, d) with few rows."""
    n = float(problem.weight.sum())

    def per_row(L: Array) -> tuple[float, Array]:
        f, G = problem(L)
        return f / n, 2 / n * L @ G  # df/dL = 2 L G

    stop = gradient_descent.hardly_changes(1e-2 * tol)
    found = lbfgs(per_row, L0, stop=stop, max_iter=max_iter, tol=0.0, report=report)
    return found.with_x(psd.compress(found.x), objective=problem(found.x)[0])


class MCML(FromPairs, Mahalanobis):
    """Bring each class as close to a single point as possible, and far from the others.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (rows of L). By default, the number of features.
    reg : float
        Weight of the penalty relative to the sum over rows, at least 0.
    penalty : {"trace", "frobenius"}
        Penalty on M: its trace, or half its squared Frobenius norm.
    rank_mode : {"truncate", "factor"}
        How to use `n_components`. "truncate" solves for M and keeps its leading eigenvectors, scaled by the square
        roots of their eigenvalues, as in the paper. "factor" searches over L with `n_components` rows, which is not
        convex.
    weighting : {"sample", "pair"}
        Whether every row has the same weight, as in the paper, or every pair of rows of one class.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, |objective|)``. With ``rank_mode="factor"``, stop when an
        iteration lowers f, the objective divided by the total weight of the rows, by at most ``0.01 * tol * max(1,
        |f|)``.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    objective_ : float
        Value of the objective for M before truncation: the sum of KL divergences plus the penalty.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum. Not set with ``rank_mode="factor"``.
    kkt_ : ndarray of shape (2,)
        Violation of the optimality conditions: the negative part of the smallest eigenvalue of the gradient G with
        respect to M, and ``abs(<M, G>)``. Both are 0 at the optimum. Not set with ``rank_mode="factor"``.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Globerson & Roweis, NIPS 2005.

    Here p0 is normalized, and p is normalized for each row; a survey's account omits both normalizers, and calls the
    solution of a convex problem unique. The paper alternates gradient steps and projections. Here a full-rank factor is
    optimized, and projected gradient steps follow if that search stalls.

    Rows that are alone in their class are not used as anchors. If some direction has no scatter within classes and
    there is no penalty, the objective has no minimum: a small value is added to the scatter, with a warning.

    The paper uses labels only. With given pairs, only the similar ones count, and all other rows are pushed away, so
    list every similar row of each anchor. Rows in no similar pair serve as neighbors only; dissimilar pairs are used
    for `threshold_`.
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
            start = None  # rows of L that are 0 or dependent would stay so during the search
        supervision: Ints | Pairs
        if isinstance(pairs, LabelPairs):
            supervision = pairs.labels
        else:
            supervision = constraints.with_similar(pairs)
        settings = self._settings("reg", "penalty", "weighting")
        found = mcml(X, supervision, **settings, rank=rank, start=start, **self._search())
        return found.with_x(found.x[:k])
