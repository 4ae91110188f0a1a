"""Adversarial metric learning (Chen, Gong, Yang, Li, Wei & Li, 2018).

    min_M  tr(M S) + tr(M^-1 D) + alpha (tr(M S') + tr(M^-1 D'))
    S', D': S and D of pairs (p, p') that, for this M, minimize
        sum_D |p - p'|_M^2 + sum_S |p - p'|_{M^-1}^2 + beta sum (|x - p|_M^2 + |x' - p'|_M^2)
    =>  p - p' = P (x - x'),  P = beta M^2 (2 I + beta M^2)^-1 for similar, c I, c = beta / (2 + beta), for dissimilar
    =>  F(M) = tr(M S) + (1 + alpha c^2) tr(M^-1 D) + alpha tr(M P S P)

S, D: mean scatters of the similar and of the dissimilar pairs. Adversaries make similar pairs far apart and dissimilar
ones near, without leaving their places by much; no generated point needs storing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import inv
from sklearn.utils.validation import check_is_fitted

from ....estimators.base import FromPairs, Mahalanobis, Workspace, error_context
from ....numerics import checks, constraints, optimize, psd, scatter
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Report, Solution
from ....numerics.types import AnyArray, Array
from ... import geodesic
from . import adversary

SOLVERS = ("bilevel", "alternate")


def aml(
    S: Array,
    D: Array,
    alpha: float = 1.0,
    beta: float = 1.0,
    solver: str = "bilevel",
    *,
    start: Array | None = None,
    max_iter: int = 200,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """L (d, d) as `x`, F its objective, ``attributes["gmml_objective"]`` F without adversaries in the learning."""
    first = psd.sharp_factor(S, D)
    plain = adversary.value(first, S, D, alpha, beta)[0]
    if solver == "alternate":
        found = adversary.alternate(S, D, first, alpha, beta, max_iter, tol)
        L = found.x
    else:
        # the first step has length 1: with K = 1 it would lead a single feature to 0, where F is infinite
        half = first / 2
        K = 2 * np.eye(len(S)) if start is None else start @ inv(half)

        def fun(K: Array) -> tuple[float, Array]:
            F, G = adversary.value(K @ half, S, D, alpha, beta)
            return F / plain, 2 / plain * K @ half @ G @ half.T

        found = optimize.lbfgs(fun, K, max_iter=max_iter, tol=tol, report=report)
        L = found.x @ half
    F = adversary.value(L, S, D, alpha, beta)[0]
    history = plain * np.asarray(found.history)
    return found.with_x(psd.compress(L), objective=F, history=history, attributes={"gmml_objective": plain})


class AML(FromPairs, Mahalanobis):
    """Learn a geometric mean metric on pairs that an adversary makes hard to tell apart.

    Parameters
    ----------
    alpha : float
        Weight of the adversary's pairs. 0 gives `GMML`. Paper's demonstration: 10.
    beta : float
        How much the adversary keeps points in place: 0 and infinity give `GMML` too.
    solver : "bilevel" or "alternate"
        "bilevel" minimizes F, the adversary's answer to M taken into account. "alternate" fixes the adversary's pairs,
        then M, in turn: its fixed point is no minimum of F, and its `objective_` (F as well) is larger.
    reg : float or "auto"
        Added to both scatters, in units of the similar one's mean eigenvalue; "auto": 1e-6, where that is singular.
    n_components : int, optional
        Keep this many directions, those of largest eigenvalue.
    n_pairs, weighting, random_state
        As for `GMML`.
    max_iter : int
    tol : float
        On the gradient of F relative to F at the start, or on the relative change of M.
    warm_start : bool
        Start from the last fit ("bilevel").
    verbose : bool

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    objective_, gmml_objective_ : float
        F of the metric found and of the geometric mean alone.

    Notes
    -----
    Chen, Gong, Yang, Li, Wei & Li, "Adversarial metric learning", IJCAI 2018. Scatters are means. The published code
    has beta^2 where the derivation gives beta, and M instead of its inverse on dissimilar adversaries. A survey
    sums the adversary's first two terms over the real pairs, which no generated point could change.
    """

    _span = True

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        *,
        solver: str = "bilevel",
        reg: float | str = 0.1,
        n_components: int | None = None,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        max_iter: int = 200,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.solver = solver
        self.reg = reg
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, alpha=self.alpha)
        checks.above(0, beta=self.beta)
        checks.one_of(SOLVERS, solver=self.solver)
        S, D = geodesic.regularized(*scatter.pair_scatters(X, pairs).mean(), self.reg)
        found = aml(S, D, self.alpha, self.beta, self.solver, start=work.start(S.shape), **self._search())
        return found.with_x(found.x[: self.n_components])

    def adversarial_pairs(self, X: AnyArray, pairs: AnyArray, pair_labels: AnyArray) -> Array:
        """The adversary's answer (m, 2, d) for pairs (m, 2) of rows of X; `pair_labels` are +1 similar, -1 not."""
        check_is_fitted(self)
        with error_context(self):
            X = np.asarray(self._rows(X, reset=False), dtype=np.float64)
            ij = constraints.check_indices(pairs, 2, len(X), "pairs")
            similar = constraints.check_pair_labels(pair_labels, len(ij))
            return adversary.moved(X[ij], similar, self.get_mahalanobis_matrix(), self.beta)
