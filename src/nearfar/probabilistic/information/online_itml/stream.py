"""A metric that is updated by one pair after another: exact and explicit LogDet steps toward a squared distance.

    A+ = argmin_{A PD}  D(A, A_t) + eta / 2 (z' A z - y)^2 = A_t + (yb - yh) / yh^2 A_t z z' A_t

With yh = z' A_t z, the new squared distance yb = z' A+ z is a root of eta yh yb^2 - (eta y yh - 1) yb - yh = 0.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from ....numerics import constraints
from ....numerics.constraints import Pairs
from ....numerics.types import AnyArray, Array


def follow(A: Array, Z: Array, sign: Array, target: Array, eta: float, mode: str = "implicit") -> tuple[Array, int]:
    """Return A after the pairs with differences Z, one by one, and the number of pairs that changed it.

    Parameters
    ----------
    A : ndarray of shape (d, d)
        The metric, positive definite.
    Z : ndarray of shape (m, d)
        Differences of the rows of each pair.
    sign : ndarray of shape (m,)
        Meaning of the target: +1, an upper bound; -1, a lower bound; 0, a value to approach.
    target : ndarray of shape (m,)
        Squared distances, above 0.
    eta : float
        Step size, in units of 1 / squared distance^2.
    mode : {"implicit", "explicit"}
        Type of step, as for `OnlineITML`.

    Notes
    -----
    Each step depends on the previous one. It takes two BLAS calls (`symv`, `syr`) on one triangle of A, in place:
    O(d^2).
    """
    A = np.array(A, order="F")
    step = STEPS[mode]
    updates = 0
    for z, s, y in zip(Z, sign.tolist(), target.tolist(), strict=True):
        Az = blas.dsymv(1.0, A, z)
        yh = float(blas.ddot(z, Az))
        if yh <= 0 or s * (yh - y) < 0 or yh == y:
            continue
        # A + (yb - yh) / yh^2 A z z' A
        A = blas.dsyr((step(yh, y, eta) - yh) / yh**2, Az, a=A, overwrite_a=1)
        updates += 1
    return np.triu(A) + np.triu(A, 1).T, updates


def implicit(yh: float, y: float, eta: float) -> float:
    """Return the new squared distance yb, by the formula of the root without cancellation."""
    b = eta * y * yh - 1
    root = (b * b + 4 * eta * yh * yh) ** 0.5
    if b > 0:
        return (b + root) / (2 * eta * yh)
    return 2 * yh / (root - b)


def explicit(yh: float, y: float, eta: float) -> float:
    """Return yb under A+^-1 = A^-1 + 2 eta_t (yh - y) z z', with eta_t <= eta such that z' A z at most doubles."""
    return yh / (1 + max(2 * eta * (yh - y) * yh, -0.5))


STEPS = {"implicit": implicit, "explicit": explicit}


def with_targets(pairs: AnyArray, targets: AnyArray, n: int) -> Pairs:
    """Return a user's pairs of rows 0..n-1 in their order, with the squared distances to approach as weights."""
    ij = constraints.check_indices(pairs, 2, n, "pairs")
    y = constraints.check_weights(targets, len(ij), "targets")
    if not y.all():
        raise ValueError(f"targets must be squared distances above 0; got 0 for pair {int(y.argmin())}")
    return Pairs(ij[:, 0], ij[:, 1], np.ones(len(ij), dtype=bool), y)


def in_order(pairs: AnyArray, pair_labels: AnyArray | None, n: int, conflicts: str | None = None) -> Pairs:
    """Return labeled pairs of rows 0..n-1 in their order; a pair may occur again, by default also with both labels."""
    return constraints.pairs_of_points(constraints.check_indices(pairs, 2, n, "pairs"), pair_labels, conflicts)
