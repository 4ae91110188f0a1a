"""Learn two metrics at once: the distance in one view is the threshold for the distance in the other.

    f(M, P) = sum_p w_p log(1 + exp(s_p (|x_p|_M^2 - |z_p|_P^2))) + reg_x pen(M) + reg_z pen(P),  sum_p w_p = 1

pen is the trace, or half the squared Frobenius norm. Both metrics are diagonal blocks of one PSD matrix L' L, and f
depends on these blocks alone, so the search and the certificate for one metric also serve two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, eigvalsh
from scipy.special import entr

from ....numerics import checks, psd, scatter
from ....numerics.pair_differences import PairList
from ....numerics.types import AnyArray, Array
from ..logistic import softplus

PENALTIES = ("trace", "frobenius")


class TwoViews(NamedTuple):
    """Problem of two views; a call with L (r, d + e) returns f and df/d(L' L).

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Rows in the main view.
    Z : ndarray of shape (n, e)
        Rows in the privileged view; e may be 0.
    pairs : PairList
        The pairs.
    s : ndarray of shape (m,)
        Sign of each pair, in the order of the list.
    w : ndarray of shape (m,)
        Weight of each pair, in the order of the list.
    reg : (float, float)
        Weights reg_x and reg_z of the penalties.
    penalty : {"trace", "frobenius"}
        Penalty on each metric.
    """

    X: Array
    Z: Array
    pairs: PairList
    s: Array
    w: Array
    reg: tuple[float, float]
    penalty: str = "trace"

    def __call__(self, L: Array) -> tuple[float, Array]:
        value, sigma = softplus(self.s * self.excess(L))
        pull = self.w * self.s * sigma
        f = float(self.w @ value)
        blocks = []
        for (view, half), reg, sign in zip(self.halves(L), self.reg, (1.0, -1.0), strict=True):
            M = half.T @ half
            if self.penalty == "trace":
                penalty = float(np.trace(M))
                slope = np.eye(len(M))
            else:
                penalty = float(np.vdot(M, M) / 2)
                slope = M
            f += reg * penalty
            # sum_p w_p s_p sigma_p x_p x_p', or minus that of the z_p
            G = sign * view.T @ self.pairs.laplacian_times(pull, view)
            blocks.append(G + reg * slope)
        return f, psd.symmetrize(block_diag(*blocks))

    def excess(self, L: Array) -> Array:
        """Return |x_p|_M^2 - |z_p|_P^2 of each pair (m,)."""
        (X, X_half), (Z, Z_half) = self.halves(L)
        return self.pairs.squared_distances(X @ X_half.T) - self.pairs.squared_distances(Z @ Z_half.T)

    def halves(self, L: Array) -> list[tuple[Array, Array]]:
        """Return each view with its columns of L."""
        d = self.X.shape[1]
        return [(self.X, L[:, :d]), (self.Z, L[:, d:])]

    def gap(self, L: Array, f: float, G: Array) -> float:
        """Return a bound on f - min f; without penalties, only the violation of the optimality conditions."""
        d = self.X.shape[1]
        # for each view with features: (reg, its columns of L, its block of G)
        halves = zip(self.reg, self.halves(L), (G[:d, :d], G[d:, d:]), strict=True)
        blocks = [(reg, half, B) for reg, (_, half), B in halves if len(B)]
        if all(reg > 0 for reg, *_ in blocks):
            if self.penalty == "trace":
                return self.dual_gap(L, f, blocks)
            return sum(strong_gap(*block) for block in blocks)
        # without a penalty there is no bound: <M, G> plus the negative part of G, in units of tr M
        rest = sum(negative(B) * float(np.vdot(half, half)) for _, half, B in blocks)
        return max(float(np.vdot(L, L @ G)), 0.0) + rest

    def dual_gap(self, L: Array, f: float, blocks: list[tuple[float, Array, Array]]) -> float:
        """Return f minus the dual value sum_p w_p H(a_p), H(a) = -a log a - (1 - a) log(1 - a).

        a is sigma, reduced by a factor with which the gradient has no negative eigenvalue.
        """
        shrink = min(reg / (reg + negative(B)) for reg, _, B in blocks)
        a = shrink * softplus(self.s * self.excess(L))[1]
        return max(f - float(self.w @ (entr(a) + entr(1 - a))), 0.0)

    def scaling(self) -> Array:
        """Return coordinates for the search: roots of the inverse covariances, divided by the root of their width."""
        views = [view for view in (self.X, self.Z) if view.shape[1]]
        roots = []
        for view in views:
            C = scatter.total(view) / len(view)
            floor = 1e-4 * float(np.trace(C)) / len(C) or 1.0
            # C^(-1/2) / sqrt(2 width): mean squared distance 1 in each view
            roots.append(psd.power(C, -0.5, floor=floor) / np.sqrt(2 * len(C)))
        return block_diag(*roots)


def second(view: AnyArray | None, n: int) -> Array:
    """Return the user's second view of n rows, after validation; if it is None, a view without features."""
    needs = "privileged must be a matrix of finite numbers"
    if view is None:
        return np.zeros((n, 0))
    Z = checks.table(view, needs)
    if Z.ndim != 2 or not np.isfinite(Z).all():
        raise ValueError(f"{needs}; got shape {Z.shape}, {int((~np.isfinite(Z)).sum())} values NaN or infinite")
    if len(Z) != n:
        raise ValueError(f"privileged must have the {n} rows of X; got {len(Z)}")
    return Z


def negative(G: Array) -> float:
    """Return the negative part of the smallest eigenvalue."""
    return max(0.0, -float(eigvalsh(G, subset_by_index=[0, 0])[0]))


def strong_gap(reg: float, L: Array, G: Array) -> float:
    """Return max over PSD M' of <G, M - M'> - reg / 2 |M - M'|^2, a bound on f - min f if f is reg-strongly convex."""
    M = L.T @ L
    D = M - psd.project(M - G / reg)[0]
    return float(np.vdot(G, D)) - reg / 2 * float(np.vdot(D, D))


def unit_scale(X: Array) -> float:
    """Return the root mean square distance of two rows; 1 if all are equal."""
    n, d = X.shape
    if d == 0:
        return 1.0
    return float(np.sqrt(2 * np.trace(scatter.total(X)) / max(n - 1, 1))) or 1.0
