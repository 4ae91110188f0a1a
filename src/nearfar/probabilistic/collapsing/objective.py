"""The convex problem of collapsing classes, and how far a metric is from its optimum.

    f(M) = sum_i w_i KL(p0_i || p_i) = <M, S0> + sum_i w_i (log sum_{k != i} exp(-d_ik) - log(n_c - 1))
    G = S0 - T(p),  S0 = sum_c 2 w_c n_c / (n_c - 1) S_c,  T(p) = sum_ij w_i p_ij x_ij x_ij'

with p0_i uniform over the class of i. If pairs are given, p0_i is uniform over the m_i rows that are similar to i, m_i
replaces n_c - 1, and S0 = sum_ij w_i p0_ij x_ij x_ij'. Up to the constant, the dual problem is max_p sum_i w_i H(p_i)
over p with S0 - T(p) positive semi-definite. The gap between f(M) and the dual value of the p of M is <M, G>.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, inv, solve_triangular

from ...numerics import psd, scatter
from ...numerics.constraints import Pairs
from ...numerics.optimize import lbfgs
from ...numerics.types import AnyArray, Array, Ints
from .. import neighbor_softmax
from ..neighbor_softmax import AnchorBlock, SortedRows

WEIGHTINGS = ("sample", "pair")
BARRIER = 0.1  # weight of the barrier at the optimum, as a share of the weight of the rows
BARRIER_STEPS = 60
BARRIER_MEMORY = 30
Target = tuple[SortedRows, Ints, Callable[[Array], Array]]


class Inner(NamedTuple):
    """Strictly feasible dual point p: its slack S0 - T(p), positive definite, and its dual value."""

    slack: Array
    value: float


class Collapse:
    """The objective f, its gradient G and the duality gap.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    supervision : ndarray of shape (n,) or Pairs
        Class codes, where rows with -1 are left out; or pairs, of which only the similar ones count. Rows in no similar
        pair serve as neighbors only.
    weighting : {"sample", "pair"}
        Weight w_i of each row: 1, or n_c - 1, which gives every pair of one class the same weight.
    trace : float
        Weight of the penalty tr(M).
    frobenius : float
        Weight of the penalty |M|^2 / 2.
    """

    def __init__(
        self, X: Array, supervision: Ints | Pairs, weighting: str = "sample", trace: float = 0.0, frobenius: float = 0.0
    ) -> None:
        self.trace = trace
        self.frobenius = frobenius
        if isinstance(supervision, Pairs):
            self.rows, mates, scattered = by_pairs(X, supervision)
        else:
            self.rows, mates, scattered = by_labels(X, supervision)
        # mates: n_c - 1 or m_i, the number of rows with p0_ij > 0; rows without any are no anchors
        if weighting == "pair":
            self.weight = np.where(mates > 0, mates, 0.0)
        else:
            self.weight = np.where(mates > 0, 1.0, 0.0)
        self.constant = -float(self.weight @ np.log(np.maximum(mates, 1)))
        S0 = scattered(self.weight / np.maximum(mates, 1)) + trace * np.eye(X.shape[1])
        if frobenius:
            self.S0 = S0
        else:
            self.S0 = psd.regularize_singular(S0, name="the within-class scatter (give reg)")

    def scaling(self) -> Array:
        """Return a symmetric A, about S0^(-1/2), for which the start L = A gives distances of about 1 in classes."""
        S = self.S0 + self.frobenius * np.eye(len(self.S0))
        return psd.power(S, -0.5, 1e-12 * float(np.trace(S))) * np.sqrt(self.weight.sum() / len(S))

    def __call__(self, L: Array) -> tuple[float, Array]:
        """Return f and G at M = L' L."""
        X = self.rows.X
        F, T = neighbor_softmax.neighbor_metric(
            X @ L.T, X, self.rows.sizes, "normalizer", self.weight, blocks=self.anchors()
        )
        value = float(np.vdot(L, L @ self.S0)) - F + self.constant
        G = self.S0 - psd.symmetrize(T)
        if not self.frobenius:
            return value, G
        M = L.T @ L
        return value + self.frobenius * float(np.vdot(M, M)) / 2, G + self.frobenius * M

    def anchors(self) -> list[AnchorBlock]:
        """Return the blocks of rows that hold an anchor."""
        blocks = neighbor_softmax.cut(self.rows.sizes, neighbor_softmax.height(len(self.rows.X)))
        return [block for block in blocks if self.weight[block.start : block.stop].any()]

    @cached_property
    def rows_of_type(self) -> dict[str, AnyArray]:
        """The rows in double and in single precision."""
        return {dtype: self.rows.astype(dtype).X for dtype in ("float64", "float32")}

    def on_factor(self, L: Array, dtype: str = "float64") -> tuple[float, Array]:
        """Return f and df/dL = 2 L G in O(n^2 k) for L (k, d), while f and G take O(n^2 d); no Frobenius penalty."""
        X = self.rows_of_type[dtype]
        F, U = neighbor_softmax.neighbor_sums(
            X @ L.T.astype(dtype), self.rows.sizes, "normalizer", self.weight, blocks=self.anchors()
        )
        LS0 = L @ self.S0
        return float(np.vdot(L, LS0)) - F + self.constant, 2 * (LS0 - U.T @ X)

    def gap(self, L: Array, f: float, G: Array) -> float:
        """Return a bound on f - min f: the difference between f and the value of a dual point near that of M."""
        if self.frobenius:
            # <M, G> - beta |M|^2 / 2 + |[G - beta M]_-|^2 / (2 beta), beta = `frobenius`
            complementarity = float(np.vdot(L, L @ G))
            M = L.T @ L
            w = np.linalg.eigvalsh(G - self.frobenius * M)
            square = self.frobenius * float(np.vdot(M, M))
            return complementarity - square / 2 + float(np.sum(np.minimum(w, 0.0) ** 2)) / (2 * self.frobenius)
        if self.inner is None:
            return np.inf
        return self.gap_towards(self.inner, L, f, G)

    def gap_towards(self, inner: Inner, L: Array, f: float, G: Array) -> float:
        """Return the bound without a Frobenius penalty, from a dual point between that of M and the inner one.

        With p and q the dual points of M and of the inner one, (1 - t) p + t q has the slack (1 - t) G + t slack. It is
        feasible for t = l / (1 + l), where -l is the smallest eigenvalue of G relative to the slack. Its value is at
        least the weighted mean of the values of p, f - <M, G>, and of q.
        """
        complementarity = float(np.vdot(L, L @ G))
        C = cholesky(inner.slack, lower=True)
        # smallest eigenvalue of C^-1 G C'^-1, slack = C C'
        low = np.linalg.eigvalsh(solve_triangular(C, solve_triangular(C, G, lower=True).T, lower=True))[0]
        t = max(0.0, -low) / (1 + max(0.0, -low))
        return float(f - (1 - t) * (f - complementarity) - t * inner.value)

    @cached_property
    def inner(self) -> Inner | None:
        """Strictly feasible dual point, searched for from the start of the search for M."""
        # 1.1 rather than 1: the first step has length 1, and with one feature it would lead from 1 to 0
        return self.found_inside(1.1 * np.eye(self.rows.X.shape[1]), BARRIER)

    def found_inside(self, K0: Array, share: float) -> Inner | None:
        """Return the p of an M on the way to min f(M) - t log det M, where G = t M^-1 is definite and <M, G> = t d.

        Rich kernels may have no such p. With a trace penalty, p0 is returned then: its slack is the penalty times I,
        and its value is 0.

        Parameters
        ----------
        K0 : ndarray of shape (d, d)
            Start of the search over L = K A.
        share : float
            Weight t d of the barrier, as a share of the weight of the rows.
        """
        A = self.scaling()
        seen = dict[str, Any]()
        t = share * float(self.weight.sum()) / len(A)
        least = psd.ZERO_EIGENVALUE_IN_EPS * psd.EPS * float(np.trace(self.S0))

        def with_barrier(K: Array) -> tuple[float, Array]:
            # f - t log det(K' K), and its derivative 2 (K A G A - t K'^-1) with respect to K, L = K A; (d, d)
            L = K @ A
            f, G = self(L)
            seen.update(slack=G, value=f - float(np.vdot(L, L @ G)))
            return f - 2 * t * float(np.linalg.slogdet(K)[1]), 2 * (K @ (A @ G @ A) - t * inv(K).T)

        def inside(before: float = 0.0, now: float = 0.0) -> bool:
            return bool(np.linalg.eigvalsh(seen["slack"])[0] > least)

        lbfgs(with_barrier, K0, stop=inside, max_iter=BARRIER_STEPS, tol=0.0, memory=BARRIER_MEMORY)
        if inside():
            return Inner(**seen)
        if self.trace:
            return Inner(self.trace * np.eye(len(A)), 0.0)
        return None


def by_labels(X: Array, labels: Ints) -> Target:
    """Return the sorted rows, the number n_c - 1 of each, and the map from the shares w_i / (n_c - 1) to S0."""
    rows = neighbor_softmax.sorted_rows(X, labels)
    codes = np.repeat(np.arange(len(rows.sizes)), rows.sizes)

    def scattered(share: Array) -> Array:
        # S0 = sum_i 2 n_c share_i (x_i - m_c)(x_i - m_c)'
        C = rows.X - scatter.class_means(rows.X, codes)[codes]
        return (C * (2 * share * rows.sizes[codes])[:, None]).T @ C

    return rows, rows.sizes[codes] - 1, scattered


def by_pairs(X: Array, pairs: Pairs) -> Target:
    """Return the same for given pairs; rows in similar pairs come first, so that blocks of other rows can be skipped.

    Each row is its own class, because the normalizer needs no classes, and large classes cost a product.
    """
    near = pairs.part(similar=True)
    mates = np.bincount(np.r_[near.i, near.j], minlength=len(X))
    order = np.argsort(mates == 0, kind="stable")
    place = np.argsort(order)
    rows = SortedRows(X[order], np.ones(len(X), dtype=np.intp), order)
    i = place[near.i]
    j = place[near.j]
    return rows, mates[order], lambda share: scatter.weighted_outer(rows.X, i, j, share[i] + share[j])
