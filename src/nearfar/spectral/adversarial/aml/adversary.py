"""Adversary of pairs, which moves similar points apart and dissimilar points together, as measured by a metric M.

    p - p' = P (x - x'),  P = beta M^2 (2 I + beta M^2)^-1     for similar pairs
    p - p' = c (x - x'),  c = beta / (2 + beta)                for dissimilar pairs
    F(M) = tr(M S) + (1 + alpha c^2) tr(M^-1 D) + alpha tr(M P S P)

Midpoints do not move.
"""

from __future__ import annotations

import numpy as np

from ....numerics import psd
from ....numerics.optimize import Solution, stopped
from ....numerics.types import Array, Bools

# difference of eigenvalues, relative to the largest, below which a derivative replaces their divided difference
EQUAL_EIGENVALUES = 1e-5


def value(L: Array, S: Array, D: Array, alpha: float, beta: float) -> tuple[float, Array]:
    """Return F and dF/dM at M = L' L; P M P has the eigenvalues h(m) = m g(m)^2 for eigenvalues m of M."""
    m, U = psd.spectrum(L.T @ L)
    a = 1 + alpha * (beta / (2 + beta)) ** 2  # 1 + alpha c^2
    h = stretched(m, beta)[0]
    S_U = U.T @ S @ U
    inverse = (U / m) @ U.T  # M^-1, (d, d)
    B = inverse @ D
    gap = m[:, None] - m
    near = np.abs(gap) <= EQUAL_EIGENVALUES * m[0]
    middle = stretched((m[:, None] + m) / 2, beta)[1]
    # divided differences H_kl = (h(m_k) - h(m_l)) / (m_k - m_l), with which d tr(h(M) S) / dM = U (H * U'SU) U'
    H = np.where(near, middle, (h[:, None] - h) / np.where(near, 1.0, gap))
    # dF/dM = S - (1 + alpha c^2) M^-1 D M^-1 + alpha U (H * U'SU) U'
    # F = tr(M S) + (1 + alpha c^2) tr(M^-1 D) + alpha tr(h(M) S), with tr(M S) = sum_k m_k (U'SU)_kk
    F = m @ np.diag(S_U) + a * np.trace(B) + alpha * h @ np.diag(S_U)
    return float(F), S - a * B @ inverse + alpha * U @ (H * S_U) @ U.T


def stretched(m: Array, beta: float) -> tuple[Array, Array]:
    """Return h(m) and h'(m), for h(m) = m g^2 with g = beta m^2 / (2 + beta m^2)."""
    b = beta * m**2
    g = b / (2 + b)
    return m * g**2, g**2 * (10 + b) / (2 + b)


def confusion(M: Array, beta: float) -> Array:
    """Return P = beta M^2 (2 I + beta M^2)^-1, which maps the difference of a similar pair to its adversarial one."""
    m, U = psd.spectrum(M)
    b = beta * m**2
    return (U * (b / (2 + b))) @ U.T


def alternate(S: Array, D: Array, L: Array, alpha: float, beta: float, max_iter: int, tol: float) -> Solution:
    """Repeat M <- (S + alpha P S P)^-1 #_1/2 (1 + alpha c^2) D until the relative change of M is at most `tol`."""
    # 1 + alpha c^2, c = beta / (2 + beta): dissimilar pairs move by a constant
    a = 1 + alpha * (beta / (2 + beta)) ** 2
    plain = value(L, S, D, alpha, beta)[0]
    history = [1.0]
    change = np.inf
    for k in range(1, max_iter + 1):
        M = L.T @ L
        P = confusion(L.T @ L, beta)
        # for fixed P, F is least where M (S + alpha P S P) M = (1 + alpha c^2) D: the midpoint of a geodesic
        L = psd.sharp_factor(S + alpha * P @ S @ P.T, a * D)
        change = float(np.linalg.norm(L.T @ L - M) / np.linalg.norm(M))
        history.append(value(L, S, D, alpha, beta)[0] / plain)
        if change <= tol:
            return Solution(L, history[-1], k, history=np.array(history))
    message = stopped("the alternation", max_iter, "relative change", change, tol)
    return Solution(
        x=L, objective=history[-1], n_iter=max_iter, converged=False, message=message, history=np.array(history)
    )


def moved(points: Array, similar: Bools, M: Array, beta: float) -> Array:
    """Return the pairs (m, 2, d) of the adversary, which have the same midpoints as the given pairs."""
    half = (points[:, 0] - points[:, 1]) / 2
    answer = np.where(similar[:, None], half @ confusion(M, beta), beta / (2 + beta) * half)
    middle = points.mean(axis=1)
    return np.stack([middle + answer, middle - answer], axis=1)
