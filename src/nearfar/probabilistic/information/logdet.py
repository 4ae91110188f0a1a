"""The metric nearest to a prior, in the LogDet divergence, under soft bounds on squared distances of pairs.

    min_{A PD, xi}  D(A, A0) + sum_c gamma_c D(xi_c, b_c)   s.t.  s_c (p_c - xi_c) <= 0,  p_c = v_c' A v_c
    D(A, B) = tr(A B^-1) - log det(A B^-1) - d

s_c = +1 for similar pairs (b_c an upper bound), -1 for dissimilar ones (a lower bound). Given A, the best slack xi_c is
p_c where the bound is violated and b_c elsewhere, so that

    f(A) = D(A, A0) + sum over violated c of gamma_c (p_c / b_c - log(p_c / b_c) - 1),

convex and once differentiable, remains to be minimized. In coordinates in which the prior, and then the current A, is
the identity, the Hessian is I + sum gamma_c (n_c n_c') x (n_c n_c') over unit vectors n_c: it is never singular and has
few clusters of eigenvalues. Newton steps by conjugate gradients therefore need a few products with the matrix of the
violated pairs, instead of thousands of rank-one updates. One sweep of such updates gives the best start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import ddot, dsymv, dsyr, dsyrk

from ...fit_warnings import warn
from ...numerics.optimize import Report, Solution, stopped
from ...numerics.types import Array, Bools
from .logdet_newton import DENSE_PAIRS_PER_FEATURE, again, conjugate, logdet, logdet_gap, step

SWEPT_PAIRS = 20_000  # most pairs of the first sweep: more of them take longer than the Newton steps that they save
# sweeps after which the change of the multipliers is compared with that after half as many, and how much of it means
# that there is no progress
LOOKS = tuple(512 << k for k in range(20))
HARDLY_LESS = 0.9
IDENTICAL = 1e-24  # squared distance under the prior, relative to the largest


class Bounded(NamedTuple):
    """Pairs with a bound each.

    Attributes
    ----------
    V : ndarray of shape (c, d)
        Differences of the pairs' points.
    sign : ndarray of shape (c,)
        +1.0 if the bound is an upper bound on the squared distance, -1.0 if it is a lower bound.
    bound : ndarray of shape (c,)
        Bounds on the squared distances, above 0.
    gamma : ndarray of shape (c,)
        Cost of a violation: infinite for hard bounds, 0 for pairs that do not count.
    """

    V: Array
    sign: Array
    bound: Array
    gamma: Array

    def violated(self, p: Array) -> Bools:
        """Return where squared distances p are on the wrong side of their bound."""
        return self.sign * (p - self.bound) > 0

    def part(self, keep: Bools) -> Bounded:
        return Bounded(*(field[keep] for field in self))


def nearest(
    pairs: Bounded,
    L0: Array,
    solver: str = "newton",
    *,
    last: Array | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return the solution A as `x` (d, d).

    Parameters
    ----------
    pairs : Bounded
    L0 : ndarray of shape (d, d)
        Invertible; the prior is L0' L0.
    solver : {"newton", "projections"}
        `projections` works with infinite gamma too.
    last : ndarray of shape (k, d), optional
        Components from which "newton" starts, if they are invertible and better than its default start.
    tol : float
        See `newton` and `projections`.

    Returns
    -------
    Solution
        ``attributes["dual"]``: multipliers (c,), 0 for satisfied bounds; ``attributes["slacks"]``: xi (c,).

    Notes
    -----
    If there are fewer pairs than features, the problem is solved in the span of the differences.
    """
    U = pairs.V @ L0.T  # (c, d), differences in coordinates in which the prior is I
    usable = apart(np.einsum("cd,cd->c", U, U), pairs.sign) & (pairs.gamma > 0)
    inner = pairs._replace(V=U).part(usable)
    # in the unit of the bounds, whose squares may not be numbers in the unit of the rows
    unit = float(np.max(pairs.bound))
    # v' A v and the bounds divided by the same number leave A as it is
    inner = inner._replace(V=inner.V / np.sqrt(unit), bound=inner.bound / unit)
    d = U.shape[1]
    Q = None
    if 0 < len(inner.V) < d:
        Q = np.linalg.qr(inner.V.T)[0]  # (d, q), orthonormal basis of the differences
        inner = inner._replace(V=inner.V @ Q)
    search: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "report": report}
    if solver == "newton":
        found = newton(inner, start=again(last, L0, Q), **search)
    else:
        found = projections(inner, **search)
    if Q is None:
        A = found.x
    else:
        # outside of the span, A stays I
        A = np.eye(d) + Q @ (found.x - np.eye(Q.shape[1])) @ Q.T
    dual = np.zeros(len(U))
    slacks = pairs.bound.copy()
    dual[usable] = found.attributes["dual"] / unit
    slacks[usable] = found.attributes["slacks"] * unit
    A = L0.T @ A @ L0
    return found.with_x((A + A.T) / 2, attributes={"dual": dual, "slacks": slacks})


def apart(p: Array, sign: Array) -> Bools:
    """Return which pairs join different points; warn of dissimilar pairs of identical points."""
    different = p > IDENTICAL * p.max(initial=0.0)
    lost = int((~different & (sign < 0)).sum())
    if lost:
        warn(f"{lost} dissimilar pairs join identical points; no metric can separate them")
    return different


def expect_both(sign: Array) -> None:
    """Warn if all pairs are similar, or all are dissimilar."""
    if abs(sign.sum()) == len(sign):
        warn(
            "all pairs are of one kind, so that their bounds only shrink or only stretch the metric; add the other kind"
        )


def penalty(p: Array, pairs: Bounded) -> float:
    """Return the sum over violated pairs of gamma (p / b - log(p / b) - 1)."""
    x = p / pairs.bound
    return float(pairs.gamma @ np.where(pairs.sign * (x - 1) > 0, x - np.log(x) - 1, 0.0))


def penalty_along(p: Array, q: Array, pairs: Bounded) -> Callable[[float], float]:
    """Return the penalty as a function of t, for a step that moves squared distances p to p + t q; see `step`."""
    return lambda t: penalty(p + t * q, pairs)


def multipliers(p: Array, pairs: Bounded) -> Array:
    """Return the optimal multipliers at squared distances p: s gamma (1 / b - 1 / p) where violated, else 0."""
    # s d/dp of gamma (p / b - log(p / b) - 1)
    return np.maximum(0.0, pairs.sign * pairs.gamma * (1 / pairs.bound - 1 / p))


def newton(
    pairs: Bounded, *, start: Array | None = None, max_iter: int, tol: float, report: Report | None = None
) -> Solution:
    """Run Newton's method from one sweep of projections or a better `start`, in coordinates in which A is I.

    Stop when the duality gap is at most tol^2 / 2: every squared distance is then within a factor of about 1 +- tol of
    its value at the optimum.

    Notes
    -----
    With A = L' L and rows u_c = L v_c, a step leads to L' (I + S) L. The gradient with respect to S is E = L L' - I +
    sum_c s_c dual_c u_c u_c', and the gap of A and these multipliers is tr(E) - log det(I + E). A step takes a few
    products of the violated rows (m, d) with a (d, d) matrix, O(m d^2).
    """
    d = pairs.V.shape[1]
    one = np.eye(pairs.V.shape[1])
    history = []
    # f falls from the better of both starts, so a warm start can only help
    L = swept(pairs)
    if start is not None and value_of(start, pairs) < value_of(L, pairs):
        L = start
    U = pairs.V @ L.T
    volume = logdet(L)
    for k in range(max_iter + 1):
        p = np.einsum("cd,cd->c", U, U)  # p_c = v_c' A v_c
        T = L @ L.T
        slack = penalty(p, pairs)
        # D(A, I) = tr A - log det A - d
        history.append(float(T.trace()) - d - volume + slack)
        # the slope of the penalty at p: at the optimum, A^-1 = I + sum_c s_c dual_c v_c v_c'
        dual = multipliers(p, pairs)
        bad = dual > 0
        # (m, d), the violated rows: only these have a slope and a curvature
        W = U[bad]
        E = T - one + (W.T * (pairs.sign * dual)[bad]) @ W
        gap = logdet_gap(E)
        if report is not None and k:
            report(k, history[-1], gap)
        if gap <= tol**2 / 2 or k == max_iter:
            break
        # second derivatives of the penalty: gamma / p^2
        S = direction(E, W, (pairs.gamma / p**2)[bad])
        q = np.einsum("cd,cd->c", U @ S, U)  # dp_c/dt at A + t L' S L
        C = step(S, E, T, penalty_along(p, q, pairs), slack)
        # A <- L' (I + S) L with I + S = C C': the coordinates in which A is I move along
        L = C.T @ L
        U = U @ C
        volume += logdet(C)
    converged = bool(gap <= tol**2 / 2)
    if converged:
        message = ""
    else:
        message = stopped("Newton's method", k, "duality gap", gap, tol**2 / 2)
    attributes = {"dual": dual, "slacks": np.where(bad, p, pairs.bound)}
    return Solution(
        x=L.T @ L,
        objective=history[-1],
        n_iter=max(1, k),
        converged=converged,
        message=message,
        duality_gap=gap,
        history=np.array(history),
        attributes=attributes,
    )


def swept(pairs: Bounded) -> Array:
    """Return a triangular L with L' L = A after one sweep of `projections` in a shuffled order, or I if it is no worse.

    From this start, Newton's method takes half as many steps as from I, where most of them are damped. Only
    `SWEPT_PAIRS` of many pairs are swept, with the total weight of all.
    """
    d = pairs.V.shape[1]
    prior = np.eye(d)
    A = np.eye(d, order="F")
    mixed = np.random.default_rng(0).permutation(len(pairs.V))[:SWEPT_PAIRS]
    signs = pairs.sign[mixed].tolist()
    bounds = pairs.bound[mixed].tolist()
    scale = len(pairs.V) / max(len(mixed), 1)  # keeps the total weight
    gammas = (scale * pairs.gamma[mixed]).tolist()
    for v, s, b, gamma in zip(pairs.V[mixed], signs, bounds, gammas, strict=True):
        A = project_one(A, v, s, gamma, 0.0, b)[0]
    L, failed = lapack.dpotrf(A, clean=1)
    if failed or not value_of(L, pairs) < value_of(prior, pairs):
        return prior
    return L


def value_of(L: Array, pairs: Bounded) -> float:
    """Return f(L' L) + d for a triangular L."""
    U = pairs.V @ L.T
    return float(np.vdot(L, L)) - logdet(L) + penalty(np.einsum("cd,cd->c", U, U), pairs)


def direction(E: Array, U: Array, h: Array) -> Array:
    """Return S with S + sum_c h_c (u_c' S u_c) u_c u_c' = -E, by conjugate gradients, more exactly the smaller E is.

    For few pairs, the solution is exact: q_c = u_c' S u_c solves an (m, m) system with the matrix (u_b' u_c)^2.
    """
    if len(U) <= DENSE_PAIRS_PER_FEATURE * U.shape[1]:
        root = np.sqrt(h)
        # (I + K) y = h^(1/2) (u_c'E u_c), K_bc = h_b^(1/2) (u_b'u_c)^2 h_c^(1/2); S = sum_c h_c^(1/2) y_c u_c u_c' - E
        K = dsyrk(1.0, (np.sqrt(root)[:, None] * U).T, trans=1)  # upper triangle
        np.square(K, out=K)
        K.ravel("K")[:: len(K) + 1] += 1.0
        y = lapack.dposv(K, root * np.einsum("cd,cd->c", U @ E, U), overwrite_a=1)[1]
        return (U.T * (root * y)) @ U - E
    return conjugate(E, lambda P: (U.T * (h * np.einsum("cd,cd->c", U @ P, U))) @ U)


def projections(pairs: Bounded, *, max_iter: int, tol: float, report: Report | None = None) -> Solution:
    """Project on one bound at a time, in cycles, from the prior I (Davis et al., Algorithm 1, corrected).

    Stop when a sweep changes the multipliers by at most tol times their length; with hard bounds, also if twice as many
    sweeps change them by hardly less. If no metric is within all bounds, the multipliers grow for ever.

    Notes
    -----
    Each Bregman projection depends on the previous one, and takes two BLAS calls (`symv`, `syr`) on one triangle of A,
    in place.
    """
    c, d = pairs.V.shape
    A = np.eye(d, order="F")
    dual = [0.0] * c
    slack = pairs.bound.tolist()
    hard = bool(np.isinf(pairs.gamma).any())
    earlier = np.inf  # change after half as many sweeps
    listed = list(zip(pairs.V, pairs.sign.tolist(), pairs.gamma.tolist(), strict=True))
    for k in range(1, max_iter + 1):
        before = np.array(dual)
        for j, (v, s, gamma) in enumerate(listed):
            # each bound is met by itself, which may violate the others: the multipliers give what to take back
            A, dual[j], slack[j] = project_one(A, v, s, gamma, dual[j], slack[j])
        # a sweep that changes no multiplier has met all conditions of the optimum
        change = float(np.abs(before - dual).sum())
        length = float(np.linalg.norm(dual))
        if report is not None:
            report(k, change, tol * length)
        if change <= tol * length:
            break
        # bounds that no metric meets let the multipliers grow at a constant rate
        if hard and k in LOOKS:
            if change > HARDLY_LESS * earlier:
                break
            earlier = change
    converged = bool(change <= tol * length)
    if converged:
        message = ""
    else:
        message = stopped("projections", k, "change of the multipliers", change, tol * length)
        if hard:
            message += "; the hard bounds may be infeasible: use a finite gamma, or looser bounds"
    A = np.triu(A) + np.triu(A, 1).T  # only the upper triangle was updated
    attributes = {"dual": np.array(dual), "slacks": np.array(slack)}
    value, gap = primal_and_gap(A, attributes["dual"], pairs)
    return Solution(
        x=A, objective=value, n_iter=k, converged=converged, message=message, duality_gap=gap, attributes=attributes
    )


def project_one(A: Array, v: Array, s: float, gamma: float, dual: float, slack: float) -> tuple[Array, float, float]:
    """Return A (upper triangle, overwritten), the multiplier and the slack after the projection on one bound."""
    Av = dsymv(1.0, A, v)
    p = ddot(v, Av)
    # a = min(dual, gamma / (gamma + 1) s (1 / p - 1 / xi))
    a = s * (1 / p - 1 / slack) / (1 + 1 / gamma)
    if a > dual:
        a = dual
    if a == 0:
        return A, dual, slack
    # A <- A + s a / (1 - s a p) A v v' A,  dual <- dual - a,  1 / xi <- 1 / xi + s a / gamma
    A = dsyr(s * a / (1 - s * a * p), Av, a=A, overwrite_a=1)
    return A, dual - a, 1 / (1 / slack + s * a / gamma)


def primal_and_gap(A: Array, dual: Array, pairs: Bounded) -> tuple[float, float | None]:
    """Return f(A) and its distance from the dual value; for hard bounds D(A, I) and None."""
    volume = float(np.linalg.slogdet(A)[1])
    divergence = float(np.trace(A)) - len(A) - volume
    if np.isinf(pairs.gamma).any():
        return divergence, None
    value = divergence + penalty(np.einsum("cd,cd->c", pairs.V @ A, pairs.V), pairs)
    # dual value: log det A^-1 + sum_c gamma_c log(1 - s_c dual_c b_c / gamma_c)
    bound = -volume + float(pairs.gamma @ np.log1p(-pairs.sign * dual * pairs.bound / pairs.gamma))
    return value, max(0.0, value - bound)
