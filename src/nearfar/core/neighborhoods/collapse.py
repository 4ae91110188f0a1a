"""The convex problem of collapsing classes, and how far a metric is from its optimum.

    f(M) = sum_i w_i KL(p0_i || p_i) = <M, S0> + sum_i w_i (log sum_{k != i} exp(-d_ik) - log(n_c - 1))
    G = S0 - T(p),  S0 = sum_c 2 w_c n_c / (n_c - 1) S_c,  T(p) = sum_ij w_i p_ij x_ij x_ij'

with p0_i uniform over the class of i. Up to the constant, its dual is max_p sum_i w_i H(p_i) over p with S0 - T(p)
positive semi-definite, and f(M) less the dual value of M's own p is <M, G>.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from .. import eig, psd, scatter
from ..types import Array, Ints
from . import softmax
from .softmax import SortedRows

WEIGHTINGS = ("sample", "pair")
TRIES = 12


class Inner(NamedTuple):
    """A dual point strictly inside: its slack matrix S0 - T(p), positive definite, and its value."""

    slack: Array
    value: float


class Collapse:
    """f, G and the duality gap.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    labels : ndarray of shape (n,)
        Codes; -1 rows are left out.
    weighting : {"sample", "pair"}
        w_i = 1, or n_c - 1: every same-class pair the same.
    trace, frobenius : float
        Adds trace tr(M) + frobenius |M|^2 / 2.
    """

    def __init__(
        self, X: Array, labels: Ints, weighting: str = "sample", trace: float = 0.0, frobenius: float = 0.0
    ) -> None:
        self.rows: SortedRows = softmax.sorted_rows(X, labels)
        self.trace, self.frobenius = trace, frobenius
        n = self.rows.sizes
        per_class = np.where(n > 1, n - 1.0 if weighting == "pair" else 1.0, 0.0)
        self.weight = np.repeat(per_class, n)
        self.constant = -float(per_class @ (n * np.log(np.maximum(n - 1, 1))))
        codes = np.repeat(np.arange(len(n)), n)
        C = self.rows.X - scatter.class_means(self.rows.X, codes)[codes]
        S0 = (C * np.repeat(2 * per_class * n / np.maximum(n - 1, 1), n)[:, None]).T @ C + trace * np.eye(X.shape[1])
        self.S0 = S0 if frobenius else eig.shrunk(S0, name="the within-class scatter (give reg)")
        self.inner: Inner | None = None

    def scaling(self) -> Array:
        """A symmetric A for which the start L = A has the median squared distance 1 within classes."""
        S = self.S0 + self.frobenius * np.eye(len(self.S0))
        return psd.power(S, -0.5, 1e-12 * float(np.trace(S))) * np.sqrt(self.weight.sum() / len(S))

    def __call__(self, L: Array) -> tuple[float, Array]:
        """f and G at M = L' L."""
        X = self.rows.X
        F, T = softmax.neighbor_metric(X @ L.T, X, self.rows.sizes, "normaliser", self.weight)
        value = float(np.vdot(L, L @ self.S0)) - F + self.constant
        G = self.S0 - psd.symmetrize(T)
        if not self.frobenius:
            return value, G
        M = L.T @ L
        return value + self.frobenius * float(np.vdot(M, M)) / 2, G + self.frobenius * M

    def gap(self, L: Array, f: float, G: Array) -> float:
        """A bound on f - min f: f less the value of a dual point near M's own."""
        complementarity = float(np.vdot(L, L @ G))
        if self.frobenius:
            M = L.T @ L
            w = np.linalg.eigvalsh(G - self.frobenius * M)
            square = self.frobenius * float(np.vdot(M, M))
            return complementarity - square / 2 + float(np.sum(np.minimum(w, 0.0) ** 2)) / (2 * self.frobenius)
        if self.inner is None:
            self.inner = self.find_inner()
        if self.inner is None:
            return np.inf
        C = cholesky(self.inner.slack, lower=True)
        low = np.linalg.eigvalsh(solve_triangular(C, solve_triangular(C, G, lower=True).T, lower=True))[0]
        t = max(0.0, -low) / (1 + max(0.0, -low))
        return float(f - (1 - t) * (f - complementarity) - t * self.inner.value)

    def find_inner(self) -> Inner | None:
        """The p of a large enough multiple of the within-class whitening: its picks are the nearest rows.

        Rich kernels may have none such. With a trace penalty p0 serves then, whose slack is the penalty's and value 0.
        """
        A = self.scaling()
        for k in range(TRIES):
            L = 2.0**k * A
            f, G = self(L)
            try:
                cholesky(G)
            except LinAlgError:
                continue
            return Inner(G, f - float(np.vdot(L, L @ G)))
        return Inner(self.trace * np.eye(len(A)), 0.0) if self.trace else None
