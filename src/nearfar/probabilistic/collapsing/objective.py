"""The convex problem of collapsing classes, and how far a metric is from its optimum.

    f(M) = sum_i w_i KL(p0_i || p_i) = <M, S0> + sum_i w_i (log sum_{k != i} exp(-d_ik) - log(n_c - 1))
    G = S0 - T(p),  S0 = sum_c 2 w_c n_c / (n_c - 1) S_c,  T(p) = sum_ij w_i p_ij x_ij x_ij'

with p0_i uniform over the class of i. Where pairs are given instead, p0_i is uniform over the m_i rows that they call
similar to i, m_i stands for n_c - 1, and S0 = sum_ij w_i p0_ij x_ij x_ij'. Up to the constant, its dual is
max_p sum_i w_i H(p_i) over p with S0 - T(p) positive semi-definite, and f(M) less the dual value of M's own p is
<M, G>.
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
BARRIER = 0.1  # share of the rows that its term is worth at the optimum
BARRIER_STEPS = 60
BARRIER_MEMORY = 30
Target = tuple[SortedRows, Ints, Callable[[Array], Array]]


class Inner(NamedTuple):
    """A dual point strictly inside: its slack matrix S0 - T(p), positive definite, and its value."""

    slack: Array
    value: float


class Collapse:
    """The objective f, its gradient G and the duality gap.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    told : ndarray of shape (n,) or Pairs
        Codes, where rows with -1 are left out; or pairs, of which only the similar ones count. Rows in none of these
        serve as neighbors.
    weighting : {"sample", "pair"}
        Weight w_i of each row: 1, or n_c - 1, which gives every pair of one class the same weight.
    trace : float
        Weight of the penalty tr(M).
    frobenius : float
        Weight of the penalty |M|^2 / 2.
    """

    def __init__(
        self, X: Array, told: Ints | Pairs, weighting: str = "sample", trace: float = 0.0, frobenius: float = 0.0
    ) -> None:
        self.trace = trace
        self.frobenius = frobenius
        if isinstance(told, Pairs):
            self.rows, mates, scattered = by_pairs(X, told)
        else:
            self.rows, mates, scattered = by_labels(X, told)
        self.weight = np.where(mates > 0, mates if weighting == "pair" else 1.0, 0.0)
        self.constant = -float(self.weight @ np.log(np.maximum(mates, 1)))
        S0 = scattered(self.weight / np.maximum(mates, 1)) + trace * np.eye(X.shape[1])
        if frobenius:
            self.S0 = S0
        else:
            self.S0 = psd.regularize_singular(S0, name="the within-class scatter (give reg)")

    def scaling(self) -> Array:
        """A symmetric A for which the start L = A has the median squared distance 1 within classes."""
        S = self.S0 + self.frobenius * np.eye(len(self.S0))
        return psd.power(S, -0.5, 1e-12 * float(np.trace(S))) * np.sqrt(self.weight.sum() / len(S))

    def __call__(self, L: Array) -> tuple[float, Array]:
        """f and G at M = L' L."""
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
        """Blocks of rows, without those in which no row is an anchor."""
        blocks = neighbor_softmax.cut(self.rows.sizes, neighbor_softmax.height(len(self.rows.X)))
        return [block for block in blocks if self.weight[block.start : block.stop].any()]

    @cached_property
    def rows_of_type(self) -> dict[str, AnyArray]:
        """The rows in double and in single precision."""
        return {dtype: self.rows.astype(dtype).X for dtype in ("float64", "float32")}

    def on_factor(self, L: Array, dtype: str = "float64") -> tuple[float, Array]:
        """f and df/dL = 2 L G, in O(n^2 k) for L (k, d) where f and G take O(n^2 d); not with a Frobenius penalty."""
        X = self.rows_of_type[dtype]
        F, U = neighbor_softmax.neighbor_sums(
            X @ L.T.astype(dtype), self.rows.sizes, "normalizer", self.weight, blocks=self.anchors()
        )
        LS0 = L @ self.S0
        return float(np.vdot(L, LS0)) - F + self.constant, 2 * (LS0 - U.T @ X)

    def gap(self, L: Array, f: float, G: Array) -> float:
        """A bound on f - min f: f less the value of a dual point near M's own."""
        if self.frobenius:
            complementarity = float(np.vdot(L, L @ G))
            M = L.T @ L
            w = np.linalg.eigvalsh(G - self.frobenius * M)
            square = self.frobenius * float(np.vdot(M, M))
            return complementarity - square / 2 + float(np.sum(np.minimum(w, 0.0) ** 2)) / (2 * self.frobenius)
        if self.inner is None:
            return np.inf
        return self.gap_towards(self.inner, L, f, G)

    def gap_towards(self, inner: Inner, L: Array, f: float, G: Array) -> float:
        """The same without a Frobenius penalty: the dual point lies between M's own and the inner one.

        With p and q the dual points of M and of the inner one, (1 - t) p + t q has the slack (1 - t) G + t slack. It is
        feasible for t = l / (1 + l), where -l is the smallest eigenvalue of G relative to the slack. Its value is at
        least the mean of both values, of which p's is f - <M, G>.
        """
        complementarity = float(np.vdot(L, L @ G))
        C = cholesky(inner.slack, lower=True)
        low = np.linalg.eigvalsh(solve_triangular(C, solve_triangular(C, G, lower=True).T, lower=True))[0]
        t = max(0.0, -low) / (1 + max(0.0, -low))
        return float(f - (1 - t) * (f - complementarity) - t * inner.value)

    @cached_property
    def inner(self) -> Inner | None:
        """The inner dual point found from the start of a search."""
        # the first step has length 1: with one feature it must not lead from 1 to 0
        return self.found_inside(1.1 * np.eye(self.rows.X.shape[1]), BARRIER)

    def found_inside(self, K0: Array, share: float) -> Inner | None:
        """The p of an M on the way to min f(M) - t log det M, where G = t M^-1 is definite and <M, G> = t d.

        Rich kernels may have none such. With a trace penalty p0 serves then, whose slack is the penalty's and value 0.

        Parameters
        ----------
        K0 : ndarray of shape (d, d)
            Start of the search over L = K A.
        share : float
            What t log det is worth at the optimum: t d, as a share of the rows' weight.
        """
        A = self.scaling()
        seen = dict[str, Any]()
        t = share * float(self.weight.sum()) / len(A)
        least = psd.ZERO_EIGENVALUE_IN_EPS * psd.EPS * float(np.trace(self.S0))

        def with_barrier(K: Array) -> tuple[float, Array]:
            L = K @ A
            f, G = self(L)
            seen.update(slack=G, value=f - float(np.vdot(L, L @ G)))
            return f - 2 * t * float(np.linalg.slogdet(K)[1]), 2 * (K @ (A @ G @ A) - t * inv(K).T)

        def inside(before: float = 0.0, now: float = 0.0) -> bool:
            return bool(np.linalg.eigvalsh(seen["slack"])[0] > least)

        lbfgs(with_barrier, K0, stop=inside, max_iter=BARRIER_STEPS, tol=0.0, memory=BARRIER_MEMORY)
        if inside():
            return Inner(**seen)
        return Inner(self.trace * np.eye(len(A)), 0.0) if self.trace else None


def by_labels(X: Array, labels: Ints) -> Target:
    """Sorted rows, how many others p0 of each counts, and the map from w_i p0_i to S0."""
    rows = neighbor_softmax.sorted_rows(X, labels)
    codes = np.repeat(np.arange(len(rows.sizes)), rows.sizes)

    def scattered(share: Array) -> Array:
        C = rows.X - scatter.class_means(rows.X, codes)[codes]
        return (C * (2 * share * rows.sizes[codes])[:, None]).T @ C

    return rows, rows.sizes[codes] - 1, scattered


def by_pairs(X: Array, pairs: Pairs) -> Target:
    """The same for given pairs: rows that are similar to some come first, so that blocks of other rows can be left out.

    Each row is a class of its own: the normalizer needs no classes, and large ones cost a product.
    """
    near = pairs.part(similar=True)
    mates = np.bincount(np.r_[near.i, near.j], minlength=len(X))
    order = np.argsort(mates == 0, kind="stable")
    place = np.argsort(order)
    rows = SortedRows(X[order], np.ones(len(X), dtype=np.intp), order)
    i = place[near.i]
    j = place[near.j]
    return rows, mates[order], lambda share: scatter.weighted_outer(rows.X, i, j, share[i] + share[j])
