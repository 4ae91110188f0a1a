"""Hinge losses on squared distances under a positive semi-definite metric, solved exactly through their dual."""

from __future__ import annotations

import numpy as np

from .. import psd
from ..optimize import Report, Solution, lbfgs, stopped
from ..types import Array

MEMORY = 30
UNEVEN = 100  # of one feature's size to another's, from which the search is slow


def hinge_primal(M: Array, Z: Array, s: Array, b: Array, c: Array, A0: Array, gamma: float) -> float:
    """sum_p c_p [s_p (z_p' M z_p - b_p)]_+ + gamma |M - A0|^2."""
    margins = s * (np.einsum("pd,pd->p", Z @ M, Z) - b)
    return float(c @ np.maximum(margins, 0.0) + gamma * np.sum((M - A0) ** 2))


def hinge_psd_dual(
    Z: Array,
    s: Array,
    b: Array,
    c: Array,
    A0: Array,
    gamma: float,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """min over PSD M of sum_p c_p [s_p (z_p' M z_p - b_p)]_+ + gamma |M - A0|_F^2.

    Parameters
    ----------
    Z : ndarray of shape (m, d)
        Differences of the pairs.
    s : ndarray of shape (m,)
        +1: the squared distance should stay below b; -1: above.
    b : ndarray of shape (m,)
        Bounds.
    c : ndarray of shape (m,)
        Weights, at least 0.
    A0 : ndarray of shape (d, d)
        Where the regulariser pulls to.
    gamma : float
        Above 0.
    tol : float
        On the duality gap, relative to the primal value.
    start : ndarray of shape (m,), optional
        Multipliers to begin with.

    Returns
    -------
    Solution
        `x` is M; `objective` the primal value; `duality_gap` bounds its distance to the optimum;
        ``attributes["dual"]`` the multipliers a (m,).

    Notes
    -----
    Over 0 <= a <= c, with M(a) = [A0 - Z' diag(a s) Z / (2 gamma)]_+, the dual
    gamma |A0|^2 - gamma |M(a)|^2 - sum_p a_p s_p b_p is smooth and concave; its gradient holds the margins. One
    evaluation costs O(m d^2 + d^3).
    """

    def metric(a: Array) -> Array:
        return psd.project(A0 - (Z * (a * s)[:, None]).T @ Z / (2 * gamma))[0]

    def negative_dual(a: Array) -> tuple[float, Array]:
        M = metric(a)
        value = gamma * np.sum(A0**2) - gamma * np.sum(M**2) - a @ (s * b)
        margins = s * (np.einsum("pd,pd->p", Z @ M, Z) - b)
        seen[:] = [float(c @ np.maximum(margins, 0.0) + gamma * np.sum((M - A0) ** 2))]
        return -float(value), -margins

    def certified(before: float, now: float) -> bool:
        return seen[0] + now <= tol * max(1.0, seen[0])

    seen: list[float] = []  # the primal value at the last point
    a, spent, gap, primal = np.zeros(len(s)) if start is None else np.clip(start, 0.0, c), 0, np.inf, np.inf
    M = metric(a)
    while spent < max_iter:
        found = lbfgs(
            negative_dual,
            a,
            stop=certified,
            max_iter=max_iter - spent,
            tol=1e-12,
            bounds=(0.0, c),
            memory=MEMORY,
            report=report,
        )
        a, spent, M = found.x, spent + found.n_iter, metric(found.x)
        primal = hinge_primal(M, Z, s, b, c, A0, gamma)
        gap = primal + negative_dual(a)[0]
        if gap <= tol * max(1.0, abs(primal)) or found.n_iter <= 1:
            break
    converged = bool(gap <= tol * max(1.0, abs(primal)))
    message = "" if converged else stopped("the dual", spent, "duality gap", gap, tol) + uneven(Z)
    return Solution(M, primal, spent, converged, message, max(float(gap), 0.0), attributes={"dual": a})


def uneven(Z: Array) -> str:
    """What to say of differences Z (m, d) of which some features are far larger than others; else nothing."""
    sizes = np.linalg.norm(Z, axis=0)
    sizes = sizes[sizes > 0]
    ratio = float(sizes.max() / sizes.min()) if len(sizes) else 1.0
    return f"; features differ by a factor of {ratio:.1g} in size: scale them" if ratio >= UNEVEN else ""
