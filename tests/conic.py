"""Small problems over positive semi-definite matrices for a generic interior-point solver, as an independent oracle."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse


def triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and scale of the upper triangle, column by column: svec(M) = scale * M[i, j]."""
    j, i = np.tril_indices(d)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))


def svec(A: np.ndarray) -> np.ndarray:
    i, j, scale = triangle(len(A))
    return scale * A[i, j]


def smat(v: np.ndarray) -> np.ndarray:
    d = int((np.sqrt(8 * len(v) + 1) - 1) / 2)
    i, j, scale = triangle(d)
    A = np.zeros((d, d))
    A[i, j] = A[j, i] = v / scale
    return A


def solve(P: np.ndarray, q: np.ndarray, rows: list[tuple[np.ndarray, np.ndarray, str, int]]) -> np.ndarray:
    """min 1/2 x'Px + q'x with b - A x in the cones named by rows (A, b, cone, size)."""
    clarabel = pytest.importorskip("clarabel")
    cones = {
        "zero": clarabel.ZeroConeT,
        "positive": clarabel.NonnegativeConeT,
        "second": clarabel.SecondOrderConeT,
        "psd": clarabel.PSDTriangleConeT,
    }
    A = sparse.csc_matrix(np.vstack([row[0] for row in rows]))
    b = np.concatenate([row[1] for row in rows])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    kinds = [cones[kind](size) for _, _, kind, size in rows]
    found = clarabel.DefaultSolver(sparse.csc_matrix(np.triu(P)), q, A, b, kinds, settings).solve()
    assert str(found.status) == "Solved"
    return np.array(found.x)


def farthest(S: np.ndarray, Z: np.ndarray) -> tuple[float, np.ndarray]:
    """max sum_p sqrt(z_p' M z_p) with tr(M S) <= 1: its value and M."""
    d, m = len(S), len(Z)
    k = d * (d + 1) // 2
    Q = np.stack([svec(np.outer(z, z)) for z in Z])
    rows = [(np.r_[svec(S), np.zeros(m)][None], np.ones(1), "positive", 1)]
    for p in range(m):
        # |(t, (q - 1) / 2)| <= (q + 1) / 2, that is t^2 <= q
        A = np.zeros((3, k + m))
        A[0, :k], A[1, :k], A[2, k + p] = -Q[p] / 2, -Q[p] / 2, -1
        rows.append((A, np.array([0.5, -0.5, 0.0]), "second", 3))
    rows.append((np.hstack([-np.eye(k), np.zeros((k, m))]), np.zeros(k), "psd", d))
    x = solve(np.zeros((k + m,) * 2), np.r_[np.zeros(k), -np.ones(m)], rows)
    return float(x[k:].sum()), smat(x[:k])


def hinge(Z: np.ndarray, s: np.ndarray, b: np.ndarray, c: np.ndarray, A0: np.ndarray, gamma: float) -> np.ndarray:
    """The M of sum_p c_p [s_p (z_p' M z_p - b_p)]_+ + gamma |M - A0|^2."""
    d, m = len(A0), len(Z)
    k = d * (d + 1) // 2
    Q = np.stack([svec(np.outer(z, z)) for z in Z])
    P = np.diag(np.r_[np.full(k, 2 * gamma), np.zeros(m)])
    q = np.r_[-2 * gamma * svec(A0), c]
    rows = [
        (np.hstack([s[:, None] * Q, -np.eye(m)]), s * b, "positive", m),
        (np.hstack([np.zeros((m, k)), -np.eye(m)]), np.zeros(m), "positive", m),
        (np.hstack([-np.eye(k), np.zeros((k, m))]), np.zeros(k), "psd", d),
    ]
    return smat(solve(P, q, rows)[:k])
