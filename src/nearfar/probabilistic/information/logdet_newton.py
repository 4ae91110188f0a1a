"""Steps of Newton's method on problems with the LogDet divergence, in coordinates in which the current metric is I.

A step leads from M = L' L to L' (I + t S) L; E is the gradient by S at S = 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from ...numerics.types import Array

SINGULAR = 1e-8  # diagonal entry of a triangular factor, relative to the largest, below which it is singular
DENSE_PAIRS_PER_FEATURE = 5  # pairs per feature up to which one dense system beats conjugate gradients


def logdet(C: Array) -> float:
    """Return log det(C C') of a triangular C."""
    return 2 * float(np.log(C.diagonal()).sum())


def logdet_gap(E: Array) -> float:
    """Return the LogDet divergence tr(E) - log det(I + E) of I + E from I, or a close upper bound if E is small.

    It is infinite unless I + E is positive definite.
    """
    r = float(np.linalg.norm(E))
    if r < 0.1:
        # sum_{k >= 2} (-1)^k tr(E^k) / k <= r^2 / 2 + r^3 / (3 (1 - r)), where the difference would lose digits
        return r * r / 2 + r**3 / (3 * (1 - r))
    C, failed = lapack.dpotrf(np.eye(len(E)) + E, lower=1)
    if failed:
        return np.inf
    return max(0.0, float(E.trace()) - logdet(C))


def again(last: Array | None, L0: Array, Q: Array | None) -> Array | None:
    """Return triangular L with last' last = L0' (L' L) L0, in coordinates Q (d, q) if given; None if singular."""
    if last is None:
        return None
    G = last @ np.linalg.inv(L0)
    if Q is not None:
        G = G @ Q
    if len(G) < G.shape[1]:
        return None
    L = np.asarray(np.linalg.qr(G, mode="r"))
    L *= np.where(L.diagonal() < 0, -1.0, 1.0)[:, None]
    if not L.diagonal().min() > SINGULAR * L.diagonal().max():
        return None
    return L


def conjugate(E: Array, curvature: Callable[[Array], Array], max_iter: int = 200) -> Array:
    """Solve S + curvature(S) = -E, for a positive semi-definite map, by conjugate gradients."""
    S = np.zeros_like(E)
    R = -E  # the residual -E - S - curvature(S)
    P = R.copy()
    rr = float(np.vdot(E, E))
    goal = rr * min(0.01, rr)
    for _ in range(max_iter):
        HP = P + curvature(P)
        a = rr / float(np.vdot(P, HP))
        S += a * P
        R -= a * HP
        before = rr
        rr = float(np.vdot(R, R))
        if rr <= goal:
            break
        P = R + rr / before * P
    return (S + S.T) / 2


def step(S: Array, E: Array, T: Array, cost: Callable[[float], float], start: float) -> Array:
    """Return a triangular C with C C' = I + t S, halving t from at most 1 until f with penalty cost(t) decreases."""
    t = 1.0
    one = np.eye(len(S))
    trace = float(np.vdot(S, T))
    slope = float(np.vdot(E, S))
    for _ in range(60):
        C, failed = lapack.dpotrf(one + t * S, lower=1, clean=1)
        if failed and t == 1:
            # after the halving below, nine tenths of the way to a singular I + t S
            t = min(1.0, -1.8 / float(np.linalg.eigvalsh(S)[0]))
        elif not failed:
            # f(L' (I + t S) L) up to a constant: tr(T) + t tr(T S) - log det(I + t S) + cost(t)
            value = t * trace - logdet(C) + cost(t)
            if value <= start + 1e-4 * t * slope + 1e-14 * abs(start):
                break
        t /= 2
    return C
