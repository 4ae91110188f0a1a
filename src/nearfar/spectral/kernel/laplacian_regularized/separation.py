"""The cheapest positive semi-definite matrix under which given differences have at least a given length.

    min_{Q PSD} <C, Q>   s.t.  z_p' Q z_p >= c
    dual:  max_{a >= 0} c sum_p a_p   s.t.  S = C - sum_p a_p z_p z_p' PSD

A semidefinite program, solved by a primal-dual interior-point method (Helmberg, Rendl, Vanderbei & Wolkowicz, 1996;
Kojima, Shindoh & Hara, 1997; Monteiro, 1997) whose primal and dual iterates are feasible, so that the difference of
their values is a certificate at every step. Few constraints are active: they are found by adding the most violated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, eigvalsh, solve_triangular

from ....numerics.optimize import Report, Solution, stopped
from ....numerics.types import Array

FIRST_GAP = 0.03  # relative gap of the first rounds, in which constraints are collected
MIN_BARRIER_FALL = 1e-2  # smallest factor by which the weight of the barrier decreases in one step
MAX_STEP_TO_BOUNDARY = 0.9  # share of the way to the boundary that a step may go


def cheapest(
    C: Array, Z: Array, c: float = 1.0, *, tol: float = 1e-6, max_iter: int = 200, report: Report | None = None
) -> Solution:
    """Return Q with the smallest <C, Q> for which z' Q z >= c for every row z of Z.

    Parameters
    ----------
    C : ndarray of shape (q, q)
        Positive definite matrix.
    Z : ndarray of shape (m, q)
        Nonzero rows.
    c : float
        Bound, above 0, which only sets the scale.
    tol : float
        Stop when the duality gap falls below `tol` times the objective.
    max_iter : int
        Maximum number of interior-point steps in total.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `x` is Q, which is feasible; `duality_gap` bounds the difference between <C, Q> and the optimum, over all rows
        of Z; ``attributes["dual"]`` are the multipliers (m,).

    Notes
    -----
    One step costs O(k^2 q + k^3 + q^3) for the k constraints in use, which are rarely more than 10 q.
    """
    # W = root' Q root with root root' = C, u = root^-1 z:  min tr W  s.t.  u' W u >= c
    root = cholesky(C, lower=True)
    U = solve_triangular(root, Z.T, lower=True).T
    size = 4 * len(C)
    spent = 0
    rough = FIRST_GAP
    active = np.argsort(lengths(U), kind="stable")[:size]
    while True:
        found = interior_path(U[active], rough, max_iter - spent, report)
        spent += found.n_iter
        reached = lengths(U, found.x)
        low = np.argsort(reached, kind="stable")[:size]
        worse = low[reached[low] < 1 - rough / 2]
        if not found.converged or spent >= max_iter or (len(worse) == 0 and rough <= tol / 2):
            break
        active = np.union1d(active, worse)
        if len(worse) == 0:
            rough = tol / 2
    W = c * found.x / reached.min()
    dual = np.zeros(len(Z))
    dual[active] = found.attributes["dual"]
    value = float(np.trace(W))
    gap = float(np.trace(W) - c * dual.sum())
    converged = bool(gap <= tol * value)
    if converged:
        message = ""
    else:
        message = stopped("the interior-point method", spent, "duality gap", gap, tol * value)
    # Q = root'^-1 W root^-1, (q, q)
    half = solve_triangular(root, W, lower=True, trans="T")
    Q = solve_triangular(root, half.T, lower=True, trans="T")
    return Solution(
        x=(Q + Q.T) / 2,
        objective=value,
        n_iter=spent,
        converged=converged,
        message=message,
        duality_gap=max(gap, 0.0),
        attributes={"dual": dual},
    )


def lengths(U: Array, Q: Array | None = None) -> Array:
    """Return u' Q u for every row u."""
    if Q is None:
        return np.einsum("mq,mq->m", U, U)
    return np.einsum("mq,mq->m", U @ Q, U)


class SeparationPoint(NamedTuple):
    """Strictly feasible point: u' Q u = 1 + s, S = I - sum_p a_p u_p u_p'."""

    Q: Array
    s: Array
    S: Array
    a: Array

    @property
    def gap(self) -> float:
        return float(np.trace(self.Q) - self.a.sum())


def interior_path(U: Array, tol: float, max_iter: int, report: Report | None = None) -> Solution:
    """Solve the same problem with C = I, c = 1 and all constraints at once; `x` is Q."""
    q = U.shape[1]
    m = len(U)
    # sum_p a_p u_p u_p' <= I / 2, so that S = I - this is definite; and Q with u' Q u >= 2 for all u: strictly feasible
    a = np.full(m, 0.5 / float(np.linalg.norm(U, 2)) ** 2)
    Q = 2 / lengths(U).min() * np.eye(q)
    here = SeparationPoint(Q, lengths(U, Q) - 1, np.eye(q) - (U * a[:, None]).T @ U, a)
    k = 0
    while here.gap > tol * np.trace(here.Q) and k < max_iter:
        k += 1
        try:
            after = predicted_and_corrected(here, U)
        except LinAlgError:
            break
        # rounding has taken over
        if after.gap >= here.gap:
            break
        here = after
        if report is not None:
            report(k, float(np.trace(here.Q)), here.gap)
    value = float(np.trace(here.Q))
    converged = bool(here.gap <= tol * value)
    return Solution(
        x=here.Q,
        objective=value,
        n_iter=max(k, 1),
        converged=converged,
        duality_gap=here.gap,
        attributes={"dual": here.a},
    )


def predicted_and_corrected(here: SeparationPoint, U: Array) -> SeparationPoint:
    """Take one step: try mu = 0, then aim at the mu that this suggests, with second-order terms (Mehrotra, 1992).

    A direction solves the linearized conditions Q S = mu I and s_p a_p = mu, with ds_p = u_p' dQ u_p and
    dS = -sum_p da_p u_p u_p':

        sum_q (u_p' Q u_q u_p' S^-1 u_q + delta_pq s_p / a_p) da_q = 1 + mu / a_p - mu u_p' S^-1 u_p + second order
    """
    Q, s, S, a = here
    inverse = cho_solve(cho_factor(S), np.eye(len(S)))
    B = U @ inverse
    h = np.einsum("mq,mq->m", B, U)  # u_p' S^-1 u_p, (m,)
    system = cho_factor((U @ Q @ U.T) * (B @ U.T) + np.diag(s / a))

    def direction(mu: float, curved: Array, bent: Array) -> SeparationPoint:
        # dQ = mu S^-1 - Q - Q dS S^-1 - curved, symmetrized; of second order: curved = dQ dS S^-1, bent = ds da
        da = cho_solve(system, 1 + (mu - bent) / a - mu * h + lengths(U, curved))
        dS = -(U * da[:, None]).T @ U
        dQ = mu * inverse - Q - (Q @ dS @ inverse) - curved
        dQ = (dQ + dQ.T) / 2
        return SeparationPoint(dQ, lengths(U, dQ), dS, da)

    first = direction(0.0, np.zeros_like(Q), np.zeros_like(a))
    mu = here.gap / (len(Q) + len(a))
    mu *= max((moved(here, first, U).gap / here.gap) ** 2, MIN_BARRIER_FALL)
    return moved(here, direction(mu, first.Q @ first.S @ inverse, first.s * first.a), U)


def moved(here: SeparationPoint, by: SeparationPoint, U: Array) -> SeparationPoint:
    """Move as far as the boundary allows, on the primal and on the dual side separately."""
    t = min(reach(here.Q, by.Q), ratio(here.s, by.s))
    r = min(reach(here.S, by.S), ratio(here.a, by.a))
    Q = here.Q + t * by.Q
    return SeparationPoint(Q, lengths(U, Q) - 1, here.S + r * by.S, here.a + r * by.a)


def reach(A: Array, D: Array) -> float:
    """Return the longest step up to 1 that keeps A + step D well inside the positive definite matrices."""
    # with A = R R', A + t D is definite for t < -1 / low if low, the smallest eigenvalue of R^-1 D R'^-1, is negative
    root = cholesky(A, lower=True)
    half = solve_triangular(root, D, lower=True)
    low = float(eigvalsh(solve_triangular(root, half.T, lower=True), subset_by_index=[0, 0])[0])
    if low >= 0:
        return 1.0
    return min(1.0, -MAX_STEP_TO_BOUNDARY / low)


def ratio(v: Array, d: Array) -> float:
    """Return the longest step up to 1 that keeps the positive numbers v + step d well above 0."""
    return min(1.0, MAX_STEP_TO_BOUNDARY / float(np.max(-d / v, initial=MAX_STEP_TO_BOUNDARY)))
