"""Hinge losses on squared distances under a positive semi-definite metric, solved exactly through their dual."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....numerics import psd
from ....numerics.optimize import Report, Solution, lbfgs, stopped
from ....numerics.types import Array

HINGE_DUAL_MEMORY = 30  # correction pairs of L-BFGS
SLOW_DISTANCE_RATIO = 10  # ratio of the median squared distance to the largest bound above which the search is slow
SLOW_SCALE_RATIO = 100  # ratio of the sizes of two features above which the search is slow


class Hinges(NamedTuple):
    """Objective sum_p c_p [s_p (z_p' M z_p - b_p)]_+ + gamma |M - A0|_F^2 of a matrix M.

    Attributes
    ----------
    Z : ndarray of shape (m, d)
        Differences z of the pairs.
    s : ndarray of shape (m,)
        +1 if the squared distance should stay below b, -1 if above.
    b : ndarray of shape (m,)
        Bounds.
    c : ndarray of shape (m,)
        Weights, at least 0.
    A0 : ndarray of shape (d, d)
        Matrix toward which the regularizer pulls M.
    gamma : float
        Weight of the regularizer.
    """

    Z: Array
    s: Array
    b: Array
    c: Array
    A0: Array
    gamma: float

    def __call__(self, M: Array) -> float:
        """Return the value at M."""
        return self.given(M, self.margins(M))

    def given(self, M: Array, margins: Array) -> float:
        """Return the value at M, whose margins are known."""
        return float(self.c @ np.maximum(margins, 0.0) + self.gamma * np.sum((M - self.A0) ** 2))

    def margins(self, M: Array) -> Array:
        """Return s_p (z_p' M z_p - b_p)."""
        return self.s * (np.einsum("pd,pd->p", self.Z @ M, self.Z) - self.b)

    def metric(self, a: Array) -> Array:
        """Return the PSD M for multipliers a: [A0 - Z' diag(a s) Z / (2 gamma)]_+."""
        return psd.project(self.A0 - (self.Z * (a * self.s)[:, None]).T @ self.Z / (2 * self.gamma))[0]

    def dual(self, a: Array, M: Array) -> float:
        """Return the dual value at multipliers a, whose metric is M."""
        return float(self.gamma * np.sum(self.A0**2) - self.gamma * np.sum(M**2) - a @ (self.s * self.b))


def minimize(
    hinges: Hinges,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """Return the minimum over PSD M, for gamma above 0.

    Parameters
    ----------
    hinges : Hinges
        Objective.
    tol : float
        Stop when the duality gap falls below `tol` times the objective.
    max_iter : int
        Maximum number of iterations.
    start : ndarray of shape (m,), optional
        Initial multipliers.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `x` is M, `objective` the primal value, `duality_gap` a bound on its distance to the optimum, and
        ``attributes["dual"]`` the multipliers a (m,).

    Notes
    -----
    Over 0 <= a <= c, with M(a) = [A0 - Z' diag(a s) Z / (2 gamma)]_+, the dual
    gamma |A0|^2 - gamma |M(a)|^2 - sum_p a_p s_p b_p is smooth and concave; its gradient holds the margins. One
    evaluation costs O(m d^2 + d^3).
    """
    seen = [np.inf]  # the primal value at the last point

    # a = scale * t: the second derivative of the dual by each t is 1 / 2, in any unit of the rows
    square = np.einsum("pd,pd->p", hinges.Z, hinges.Z)
    scale = np.sqrt(hinges.gamma) / np.where(square > 0, square, 1.0)

    def negative_dual(t: Array) -> tuple[float, Array]:
        M = hinges.metric(scale * t)
        margins = hinges.margins(M)
        seen[0] = hinges.given(M, margins)
        return -hinges.dual(scale * t, M), -scale * margins

    def certified(before: float, now: float) -> bool:
        return seen[0] + now <= tol * max(1.0, seen[0])

    if start is None:
        a = np.zeros(len(hinges.s))
    else:
        a = np.clip(start, 0.0, hinges.c)
    spent = 0
    gap = np.inf
    primal = np.inf
    M = hinges.metric(a)
    limits: dict[str, Any] = {
        "tol": 1e-12,
        "bounds": (0.0, hinges.c / scale),
        "memory": HINGE_DUAL_MEMORY,
        "report": report,
    }
    while spent < max_iter:
        found = lbfgs(negative_dual, a / scale, stop=certified, max_iter=max_iter - spent, **limits)
        # rounding of the scale may leave a multiplier just above its bound
        a = np.minimum(scale * found.x, hinges.c)
        spent = spent + found.n_iter
        M = hinges.metric(a)
        primal = hinges(M)
        # weak duality: primal - dual bounds the distance to the optimum for any feasible a
        gap = primal - hinges.dual(a, M)
        if gap <= tol * max(1.0, abs(primal)) or found.n_iter <= 1:
            break
    limit = tol * max(1.0, abs(primal))
    converged = bool(gap <= limit)
    if converged:
        message = ""
    else:
        message = stopped("the dual", spent, "duality gap", gap, limit) + (uneven(hinges.Z) or far(hinges))
    return Solution(
        x=M,
        objective=primal,
        n_iter=spent,
        converged=converged,
        message=message,
        duality_gap=max(float(gap), 0.0),
        attributes={"dual": a},
    )


def uneven(Z: Array) -> str:
    """Return a hint if some features of the differences Z (m, d) are far larger than others, else ""."""
    sizes = np.linalg.norm(Z, axis=0)
    sizes = sizes[sizes > 0]
    if len(sizes) == 0:
        return ""
    ratio = float(sizes.max() / sizes.min())
    if ratio < SLOW_SCALE_RATIO:
        return ""
    return f"; features differ by a factor of {ratio:.1g} in size: scale them"


def far(hinges: Hinges) -> str:
    """Return a hint if the differences are far longer than the bounds allow, as in a small unit of length, else ""."""
    middle = float(np.median(np.einsum("pd,pd->p", hinges.Z, hinges.Z)))
    largest = float(hinges.b.max())
    if middle < SLOW_DISTANCE_RATIO * largest:
        return ""
    return f"; the median squared distance {middle:.3g} is far above the bound {largest:.3g}: scale the features"
