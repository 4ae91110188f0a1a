"""The metric nearest to a prior in the LogDet divergence, with a penalty on violated comparisons of distances.

    min_{M PD}  f(M) = D(M, M0) + sum_c w_c (sqrt p_c - sqrt q_c)_+^2,   p_c = v_c' M v_c,  q_c = u_c' M u_c
    D(A, B) = tr(A B^-1) - log det(A B^-1) - d

v_c is the difference of two points that should be nearer to each other than the two points with the difference u_c. If
p > q, a term is p + q - 2 sqrt(p q). The geometric mean is concave, and value and slope of a term are 0 at p = q, so
that f is strictly convex in M although distances are square roots.

A term is homogeneous and thus equals alpha p + beta q, with its slopes alpha <= w and beta <= 0. The dual problem is
therefore to maximize log det(M0^-1 + sum_c alpha_c v_c v_c' + beta_c u_c u_c'), and the Hessian of a term has rank one:
(w / 2) sqrt(p q) A x A with A = v v' / p - u u' / q.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from ....numerics.optimize import Report, Solution, stopped
from ....numerics.types import Array
from ..logdet_newton import DENSE_PAIRS_PER_FEATURE, again, conjugate, logdet, logdet_gap, step


def nearest(
    near: Array,
    far: Array,
    weight: Array,
    L0: Array,
    *,
    last: Array | None = None,
    max_iter: int,
    tol: float,
    report: Report | None = None,
) -> Solution:
    """Return the solution M as `x` (d, d).

    Parameters
    ----------
    near, far : ndarray of shape (c, d)
        Differences v and u.
    weight : ndarray of shape (c,)
        Weights w of the comparisons.
    L0 : ndarray of shape (d, d)
        Invertible; the prior is L0' L0.
    last : ndarray of shape (k, d), optional
        Components to start from, if they are invertible and better than the prior.
    tol : float
        Stop when the duality gap is at most tol^2 / 2: every squared distance is then within a factor of about 1 +-
        tol of its value at the optimum.

    Notes
    -----
    If there are fewer differences than features, the problem is solved in their span.
    """
    R = np.concatenate([near, far]) @ L0.T  # (2 c, d), in coordinates in which the prior is I
    d = len(L0)
    if len(R) >= d:
        found = newton(R, weight, max_iter, tol, report, again(last, L0, None))
        M = found.x
    else:
        Q = np.linalg.qr(R.T)[0]  # (d, 2 c), an orthonormal basis of the differences
        found = newton(R @ Q, weight, max_iter, tol, report, again(last, L0, Q))
        M = np.eye(d) + Q @ (found.x - np.eye(Q.shape[1])) @ Q.T  # outside of the span, M stays I
    M = L0.T @ M @ L0
    return found.with_x((M + M.T) / 2)


def residual(s: Array, weight: Array) -> float:
    """Return the sum of w (sqrt p - sqrt q)^2 over comparisons with p > q; s holds all p, then all q."""
    near, far = np.split(np.sqrt(s), 2)
    short = np.maximum(near - far, 0.0)
    return float(weight @ (short * short))


def residual_along(s: Array, change: Array, weight: Array) -> Callable[[float], float]:
    """Return the residual as a function of t, for a step that moves s to s + t change; see `logdet_newton.step`."""
    return lambda t: residual(np.maximum(s + t * change, 0.0), weight)


def newton(
    R: Array, weight: Array, max_iter: int, tol: float, report: Report | None = None, start: Array | None = None
) -> Solution:
    """Find M, as `x`, by Newton's method in coordinates where first the prior, then the current M = L' L, is I.

    It starts at the best multiple of the prior, or at a better `start`. A step leads to L' (I + S) L. The gradient with
    respect to S is E = L (M0^-1 + sum_c alpha_c v_c v_c' + beta_c u_c u_c') L' - I, and the gap of M and these slopes
    is tr(E) - log det(I + E).
    """
    m = len(weight)
    d = R.shape[1]
    one = np.eye(d)
    history = []
    # t I minimizes d t - d log t + t residual(I): t = d / (d + residual)
    L = one * np.sqrt(d / (d + residual(np.einsum("cd,cd->c", R, R), weight)))

    def value(L: Array) -> float:
        U = R @ L.T
        return float(np.vdot(L, L)) - logdet(L) + residual(np.einsum("cd,cd->c", U, U), weight)

    if start is not None and value(start) < value(L):
        L = start
    # rows L v and L u, whose squared lengths are p and q
    R = R @ L.T
    volume = logdet(L)
    for k in range(max_iter + 1):
        s = np.einsum("cd,cd->c", R, R)  # all p, then all q
        p, q = np.split(s, 2)
        wrong = np.flatnonzero((p > q) & (weight > 0))
        pair = np.concatenate([wrong, m + wrong])
        w = weight[wrong]
        p = p[wrong]
        q = q[wrong]
        W = R[pair]
        # below 1, because p > q where a comparison is violated
        r = np.sqrt(q / p)
        T = L @ L.T
        miss = residual(s, weight)
        history.append(float(T.trace()) - d - volume + miss)
        # alpha = w (1 - sqrt(q / p)), beta = w (1 - sqrt(p / q)); u and its part of the gradient are 0 if q is 0
        inverse = np.divide(1.0, r, out=np.ones_like(r), where=r > 0)
        slopes = np.concatenate([w * (1 - r), w * (1 - inverse)])
        E = T - one + (W.T * slopes) @ W
        gap = logdet_gap(E)
        if report is not None and k:
            report(k, history[-1], gap)
        if gap <= tol**2 / 2 or k == max_iter:
            break
        S = direction(E, W, p, q, w)
        change = np.einsum("cd,cd->c", R @ S, R)  # ds/dt at I + t S
        C = step(S, E, T, residual_along(s, change, weight), miss)
        R = R @ C
        L = C.T @ L
        volume += logdet(C)
    converged = bool(gap <= tol**2 / 2)
    if converged:
        message = ""
    else:
        message = stopped("Newton's method", k, "duality gap", gap, tol**2 / 2)
    return Solution(
        x=L.T @ L,
        objective=history[-1],
        n_iter=max(1, k),
        converged=converged,
        message=message,
        duality_gap=gap,
        history=np.array(history),
    )


def direction(E: Array, W: Array, p: Array, q: Array, weight: Array) -> Array:
    """Return S with S + sum_c h_c <A_c, S> A_c = -E, h_c = (w / 2) sqrt(p q), for rows W of v and then of u.

    For few comparisons, the solution is exact: <A_c, S> solves a system of squared inner products. For many, conjugate
    gradients solve it more exactly the smaller E is.
    """
    c = len(p)
    d = W.shape[1]
    h = weight * np.sqrt(p * q) / 2
    # A_c = v v' / p - u u' / q: the coefficients of the rows v and u, (2 c,)
    a = np.concatenate([1 / p, -np.divide(1.0, q, out=np.zeros_like(q), where=q > 0)])
    if 0 < c <= DENSE_PAIRS_PER_FEATURE * d:
        # (I + K) y = h^(1/2) <A_c, E>, K_bc = h_b^(1/2) <A_b, A_c> h_c^(1/2); S = sum_c h_c^(1/2) y_c A_c - E
        root = np.concatenate([h, h]) ** 0.5 * a
        scaled = np.sqrt(np.abs(root))[:, None] * W
        G = scaled @ scaled.T
        G *= G
        K = G[:c, :c] - G[:c, c:] - G[c:, :c] + G[c:, c:]
        K.ravel()[:: c + 1] += 1.0
        e = root * np.einsum("cd,cd->c", W @ E, W)
        y = lapack.dposv(K, e[:c] + e[c:], overwrite_a=1)[1]
        return (W.T * (root * np.concatenate([y, y]))) @ W - E

    def curvature(P: Array) -> Array:
        # sum_c h_c <A_c, P> A_c, (d, d)
        s = a * np.einsum("cd,cd->c", W @ P, W)
        s = h * (s[:c] + s[c:])
        return (W.T * (a * np.concatenate([s, s]))) @ W

    return conjugate(E, curvature)
