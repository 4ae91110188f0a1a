"""The error of leave-one-out kernel regression, in blocks: never an n x n matrix.

    f = sum_i |e_i|^2,  e_i = h_i - y_i,  h_i = sum_j p_ij y_j,  p_ij = exp(-d_ij) / sum_{k != i} exp(-d_ik)

With V_ij = -df/dd_ij = 2 p_ij e_i' (y_j - h_i) and S = V + V', df/dL = 2 U' X where U = S Z - diag(S 1) Z, Z = X L'.
"""

from __future__ import annotations

import numpy as np

from ....numerics.types import Array
from ...neighbor_softmax import cut, exponentiate, exponents, with_ones

REGRESSION_BLOCK_PAIRS = 1 << 16  # pairs of one block, so that two tables of them stay in the cache
MIN_REGRESSION_ROWS = 16  # least rows of a block


def leave_one_out_error(L: Array, X: Array, Y: Array) -> tuple[float, Array]:
    """Return f and df/dL for L (k, d), rows X (n, d) and targets Y (n, m), in O(n^2 (k + m))."""
    Z = X @ L.T
    Y1 = with_ones(Y)
    f = 0.0
    Z1 = with_ones(Z)
    S1 = np.zeros((Z1.shape[1], len(X)))
    sizes = np.array([len(X)])
    height = max(MIN_REGRESSION_ROWS, REGRESSION_BLOCK_PAIRS // len(X))
    for block, P, _ in exponents(Z, sizes, cut(sizes, height)):
        rows = slice(block.start, block.stop)
        exponentiate(P)
        sums = P @ Y1  # (b, m + 1): sum_j k_ij y_j, and sum_j k_ij in the last column
        h = sums[:, :-1] / sums[:, -1:]
        e = h - Y[rows]
        f += float(np.vdot(e, e))
        # P becomes V_ij = 2 p_ij e_i' (y_j - h_i); each divisor is at least 1, because exponents are relative to the
        # nearest neighbor of each row
        e *= 2 / sums[:, -1:]
        P *= np.column_stack([e, -np.einsum("nm,nm->n", e, h)]) @ Y1.T
        S1[:, rows] += (P @ Z1).T
        S1 += Z1[rows].T @ P
    # 2 U' X with U = S Z - diag(S 1) Z, S1 = [S Z, S 1]'
    return f, 2 * (S1[:-1] - S1[-1] * Z.T) @ X
