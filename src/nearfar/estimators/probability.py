"""Probabilities from distances: the logistic curve of Platt (1999), with targets for which its slope is finite."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..numerics.types import Array, Bools

SIGMOID_STEPS = 100  # most Newton steps
SLOPE_RIDGE = 1e-9  # keeps the Hessian definite if all distances are equal


def fit_sigmoid(distance: Array, similar: Bools) -> tuple[float, float]:
    """Return the maximum-likelihood slope a and offset b of P(similar) = 1 / (1 + exp(-(b - a d))).

    Parameters
    ----------
    distance : ndarray of shape (m,)
        Distances of the pairs.
    similar : ndarray of shape (m,)
        Whether each pair is similar. Both kinds are required.

    Notes
    -----
    Platt, "Probabilistic outputs for support vector machines", 1999. The targets are (n+ + 1) / (n+ + 2) and 1 / (n- +
    2) instead of 1 and 0, so that the slope is finite even if a threshold separates the two kinds. Newton's method
    halves any step that raises the loss.
    """
    if similar.all() or not similar.any():
        raise ValueError(
            f"pairs must hold both similar and dissimilar ones; got {similar.sum()} of {len(similar)} similar"
        )
    positive = int(similar.sum())
    negative = len(similar) - positive
    target = np.where(similar, (positive + 1) / (positive + 2), 1 / (negative + 2))
    unit = float(np.std(distance)) or 1.0
    center = float(np.mean(distance))
    # standardized distances, so that the Hessian is well conditioned in any unit
    A = np.stack([-(distance - center) / unit, np.ones(len(distance))], axis=1)  # (m, 2): slope, offset
    # slope 0, and the offset of the share of similar pairs
    w = np.array([0.0, np.log((positive + 1) / (negative + 1))])

    def loss(w: Array) -> float:
        u = A @ w
        return float(np.sum(np.logaddexp(0.0, u) - target * u))

    value = loss(w)
    for _ in range(SIGMOID_STEPS):
        # gradient A' (p - target), Hessian A' diag(p (1 - p)) A
        p = expit(A @ w)
        gradient = A.T @ (p - target)
        H = (A * (p * (1 - p))[:, None]).T @ A + SLOPE_RIDGE * np.eye(2)
        step = np.linalg.solve(H, gradient)
        share = 1.0
        while share > 1e-10 and loss(w - share * step) > value:
            share /= 2
        w = w - share * step
        now = loss(w)
        if value - now <= 1e-12 * max(1.0, abs(now)):
            break
        value = now
    slope = w[0] / unit
    return float(slope), float(w[1] + slope * center)


def similar_probability(distance: Array, sigmoid: tuple[float, float]) -> Array:
    """Return P(similar) at the given distances under a curve found by `fit_sigmoid`."""
    slope, offset = sigmoid
    return expit(offset - slope * np.asarray(distance, dtype=np.float64))
