"""Geometric mean metric learning on subspaces (Zhu, Cheng, Hu, Wang & Zhang, 2018).

    d_M(X_i, X_j)^2 = tr(M (T_i - T_j)^2),  T_i = X_i (X_i' M X_i)^-1 X_i'
    M <- (S + lam I)^-1 #_t (D + lam I),  tr M = d

S and D are the means of (T_i - T_j)^2 over the similar and over the dissimilar pairs. T_i is Y Y' for the basis Y of
the span of X_i that L maps to orthonormal columns, where M = L' L.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...estimators.base import FromPairs, MetricLearner, Workspace, error_context
from ...numerics import checks, manifolds, psd
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution, stopped
from ...numerics.types import AnyArray, Array, Ints
from .. import geodesic


def grassmann_gmml(
    U: Array,
    pairs: Pairs | LabelPairs,
    t: float = 0.5,
    reg: float | str = 0.1,
    *,
    n_rounds: int = 20,
    tol: float = 1e-6,
    keep: str = "best",
) -> Solution:
    """Return L (d, d) as `x` from bases U (n, d, q); ``attributes["rule"]`` is the M within T_i."""
    M = np.eye(U.shape[1])
    change = np.inf
    rounds: list[Solution] = []
    while len(rounds) < n_rounds and change > tol:
        # bases Y_i with Y_i' M Y_i = I, then M <- (S + lam I)^-1 #_t (D + lam I) with tr M = d
        L, value = geodesic.unit_mean(manifolds.unit_bases(U, M), pairs, t, reg)
        rounds.append(Solution(psd.compress(L), value, attributes={"rule": M}))
        # a fixed point is sought, not the minimum of a function: the change of M ends the alternation
        change = float(np.linalg.norm(L.T @ L - M) / np.linalg.norm(M))
        M = L.T @ L
    history = np.array([found.objective for found in rounds])
    if keep == "best":
        kept = rounds[int(history.argmin())]
    else:
        kept = rounds[-1]
    converged = change <= tol or n_rounds == 1
    if converged:
        message = ""
    else:
        message = stopped("the alternation", n_rounds, "relative change", change, tol)
    return kept.with_x(kept.x, n_iter=len(rounds), converged=converged, message=message, history=history)


class GrassmannGMML(FromPairs, MetricLearner):
    """Learn a metric on subspaces, such as the spans of sets of images.

    `fit` and `transform` take bases X of shape (n, d, q). Any basis of each subspace gives the same result; orthonormal
    ones are most accurate. Rows of shape (n, d) represent the lines through them and the origin.

    Parameters
    ----------
    t : float
        Point on the geodesic, in [0, 1]: 0 gives the inverse of the similar scatter, and 1 gives the dissimilar
        scatter.
    reg : float or "auto"
        Weight of the identity that is added to both scatters, in units of the mean eigenvalue of the similar scatter.
        "auto" adds 1e-6, and only if the similar scatter is nearly singular.
    n_rounds : int
        Maximum number of rounds of the alternation, at least 1. With 1, T_i remains the orthogonal projector onto the
        subspace.
    tol : float
        Stop when the relative change of M in a round is at most `tol`.
    keep : {"best", "last"}
        Which round to keep: that with the smallest objective, or the last one.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (d, d)
        Linear map L: `transform` returns the entries of L T_i, shape (n, d^2).
    rule_ : ndarray of shape (d, d)
        Metric M inside T_i, which is that of the previous round.

    Notes
    -----
    Zhu, Cheng, Hu, Wang & Zhang, "Towards generalized and efficient metric learning on Riemannian manifold", IJCAI
    2018. T_i does not depend on the basis, so no QR factorization is needed. The objective may rise from one round to
    the next, and in our experiments the accuracy of nearest neighbors fell when it did; this is the reason for `keep`.

    There is no `partial_fit`: T_i depends on M, so every round needs all bases again, and sums over them would serve
    only one round.
    """

    _holds = ("n_features_in_", "components_", "rule_")
    _matrices = True

    def __init__(
        self,
        t: float = 0.5,
        *,
        reg: float | str = 0.1,
        n_rounds: int = 20,
        tol: float = 1e-6,
        keep: str = "best",
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.t = t
        self.reg = reg
        self.n_rounds = n_rounds
        self.tol = tol
        self.keep = keep
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _rows(self, X: AnyArray, y: AnyArray | None = None, reset: bool = True, least: int | None = None) -> Any:
        found = manifolds.through_rows(super()._rows, X, y, reset, least)
        points = found[0] if isinstance(found, tuple) else found
        manifolds.require_spans(points)
        return found

    def _order(self, X: AnyArray) -> Ints:
        return super()._order(X.reshape(len(X), -1))

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        return Workspace(manifolds.spans(X.astype(np.float64)), order)

    def _solve(self, U: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.between(0, 1, t=self.t)
        checks.counts(1, n_rounds=self.n_rounds)
        checks.one_of(("best", "last"), keep=self.keep)
        return grassmann_gmml(U, pairs, **self._settings("t", "reg", "n_rounds", "tol", "keep"))

    def transform(self, X: AnyArray) -> AnyArray:
        """Return the entries of L T_i: Euclidean distances between the transformed rows are the learned distances.

        Parameters
        ----------
        X : array-like of shape (n, d, q) or (n, d)
            Bases of the subspaces.

        Returns
        -------
        ndarray of shape (n, d^2)
            Transformed subspaces.
        """
        check_is_fitted(self)
        with error_context(self):
            X = self._rows(X, reset=False)
            if X.shape[1] != len(self.rule_):
                raise ValueError(f"X must hold subspaces of {len(self.rule_)} dimensions; got shape {X.shape}")
            T = manifolds.projectors(manifolds.spans(X.astype(np.float64)), self.rule_)
            return (self.components_ @ T).reshape(len(T), -1).astype(X.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.size)
