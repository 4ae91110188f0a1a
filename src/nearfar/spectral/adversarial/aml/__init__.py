"""Adversarial metric learning (Chen, Gong, Yang, Li, Wei & Li, 2018).

    min_M  tr(M S) + tr(M^-1 D) + alpha (tr(M S') + tr(M^-1 D'))
    S', D': S and D of pairs (p, p') that, for this M, minimize
        sum_D |p - p'|_M^2 + sum_S |p - p'|_{M^-1}^2 + beta sum (|x - p|_M^2 + |x' - p'|_M^2)
    =>  p - p' = P (x - x'),  P = beta M^2 (2 I + beta M^2)^-1 for similar, c I, c = beta / (2 + beta), for dissimilar
    =>  F(M) = tr(M S) + (1 + alpha c^2) tr(M^-1 D) + alpha tr(M P S P)

S and D are the mean scatters of the similar and of the dissimilar pairs. The adversary moves similar points apart and
dissimilar points together, but not far from their places. No generated point needs to be stored.
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
    """Return L (d, d) as `x` with its objective F; ``attributes["gmml_objective"]`` is F of the geometric mean."""
    first = psd.sharp_factor(S, D)
    plain = adversary.value(first, S, D, alpha, beta)[0]
    if solver == "alternate":
        found = adversary.alternate(S, D, first, alpha, beta, max_iter, tol)
        L = found.x
    else:
        # search over K with L = K half, from K = 2 I: the first step has length 1, and with a single feature it would
        # lead from K = 1 to 0, where F is infinite
        half = first / 2
        if start is None:
            K = 2 * np.eye(len(S))
        else:
            K = start @ inv(half)

        def fun(K: Array) -> tuple[float, Array]:
            F, G = adversary.value(K @ half, S, D, alpha, beta)
            return F / plain, 2 / plain * K @ half @ G @ half.T  # dF/dL = 2 L G

        found = optimize.lbfgs(fun, K, max_iter=max_iter, tol=tol, report=report)
        L = found.x @ half
    F = adversary.value(L, S, D, alpha, beta)[0]
    history = plain * np.asarray(found.history)
    return found.with_x(psd.compress(L), objective=F, history=history, attributes={"gmml_objective": plain})


class AML(FromPairs, Mahalanobis):
    """Learn a geometric mean metric on pairs that an adversary makes hard to distinguish.

    Parameters
    ----------
    alpha : float
        Weight of the pairs of the adversary, at least 0. With 0, this is `GMML`. The demonstration of the paper uses
        10.
    beta : float
        Weight of the term that keeps the points of the adversary in place, above 0. In the limits 0 and infinity, this
        is `GMML` as well.
    solver : {"bilevel", "alternate"}
        "bilevel" minimizes F, which takes the response of the adversary to M into account. "alternate" fixes the pairs
        of the adversary and M in turn; its fixed point is not a minimum of F, and its `objective_` (also F) is larger.
    reg : float or "auto"
        Weight of the identity that is added to both scatters, in units of the mean eigenvalue of the similar scatter.
        "auto" adds 1e-6, and only if the similar scatter is nearly singular.
    n_components : int, optional
        Number of dimensions of the learned space: the directions with the largest eigenvalues of M are kept. By
        default, all directions are kept.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    max_iter : int
        Maximum number of iterations.
    tol : float
        With "bilevel", stop when the largest entry of the gradient of F falls below `tol` times the value of F at the
        start. With "alternate", stop when the relative change of M is at most `tol`.
    warm_start : bool
        Start from the solution of the previous fit. Used only with ``solver="bilevel"``.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    objective_ : float
        Value of F for the learned metric.
    gmml_objective_ : float
        Value of F for the geometric mean metric.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Chen, Gong, Yang, Li, Wei & Li, "Adversarial metric learning", IJCAI 2018. The scatters are means. The published
    code has beta^2 where the derivation gives beta, and M instead of its inverse for dissimilar adversaries. The
    survey of Ghojogh et al. (2022) sums the first two terms of the adversary over the real pairs, which no generated
    point could change.
    """

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

    @property
    def _span(self) -> bool | str:
        return geodesic.span_setting(self.reg)

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, alpha=self.alpha)
        checks.above(0, beta=self.beta)
        checks.one_of(SOLVERS, solver=self.solver)
        S, D = scatter.pair_scatters(X, pairs).mean()
        S, D = geodesic.regularized(S, D, self.reg, features=work.features)
        found = aml(
            S, D, alpha=self.alpha, beta=self.beta, solver=self.solver, start=work.start(S.shape), **self._search()
        )
        if work.repeats:
            found = self._with_repeated(found, S, D, work.repeats)
        return found.with_x(found.x[: self.n_components])

    def _with_repeated(self, found: Solution, S: Array, D: Array, repeats: int) -> Solution:
        """Return the solution with objectives that count the last direction, along which no rows differ, so often."""
        last = S[-1:, -1:], D[-1:, -1:], self.alpha, self.beta
        length = np.array([[np.linalg.norm(found.x[:, -1])]])  # of L along it
        more = repeats * adversary.value(length, *last)[0]
        plain = repeats * adversary.value(psd.sharp_factor(*last[:2]), *last)[0]
        attributes = {"gmml_objective": found.attributes["gmml_objective"] + plain}
        history = None if found.history is None else found.history + more
        return found.with_x(found.x, objective=found.value + more, history=history, attributes=attributes)

    def adversarial_pairs(self, X: AnyArray, pairs: AnyArray, pair_labels: AnyArray) -> Array:
        """Return the response of the adversary to pairs of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        pairs : array-like of shape (m, 2)
            Pairs of row numbers of X.
        pair_labels : array-like of shape (m,)
            +1 for similar pairs and -1 for dissimilar pairs.

        Returns
        -------
        ndarray of shape (m, 2, d)
            Pairs of points that replace the given pairs.
        """
        check_is_fitted(self)
        with error_context(self):
            X = np.asarray(self._rows(X, reset=False), dtype=np.float64)
            ij = constraints.check_indices(pairs, 2, len(X), "pairs")
            similar = constraints.check_pair_labels(pair_labels, len(ij))
            return adversary.moved(X[ij], similar, self.get_mahalanobis_matrix(), self.beta)
