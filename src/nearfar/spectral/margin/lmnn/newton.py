"""Newton's method over metrics, in the coordinates of a factor: M = K' (I + D) K for a symmetric D of few rows.

    f(D) ~ f + <g, D> + <D, H D> / 2,   g = K G K',   H = mu sum_t h''(u_t) a_t a_t',   a_t = K A_t K'

Only triplets at the rounded kink of the hinge bend f. If there are few, the matrix over D is cheap, and a handful of
steps settles the slopes in all directions at once, which takes gradients hundreds of steps. Steps are damped
(Levenberg, 1944; Marquardt, 1963) as much as it takes for f to fall.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh

from ....numerics.optimize import Report
from ....numerics.types import Array, Ints
from .objective import Graph, Hinge, LargeMargin, Pushed

MAX_NEWTON_ROWS = 44  # rows of K: the matrix has a row for each of r (r + 1) / 2 entries
FEATURE_BLOCK_VALUES = 1 << 19  # values in one block of features
NEWTON_STEPS = 4
DAMPING_TRIES = 10
LITTLE = 1e-7  # share of f: a step that promises to lower it by less is the last
SAFE = 0.9  # share by which a direction of M may shrink in a step
MAX_STEP_GROWTH = 100.0  # times its length by which it may grow: where H is singular, D would be unbounded
DAMPING = 1e-3  # share of the mean curvature that is added at first
MIN_DAMPING = 1e-9  # smallest such share: with less, a singular H would stay singular


class Damping:
    """How much of its mean curvature is added to H; it goes on from step to step.

    Parameters
    ----------
    share : float
    """

    def __init__(self, share: float = DAMPING) -> None:
        self.share = share

    def seen(self, promised: float, fall: float) -> bool:
        """Damp less after a step that kept most of its promise; damp more and return False after one that broke it."""
        if fall <= 1e-4 * promised:
            self.share *= 10
            return False
        if fall > 0.4 * promised:
            self.share = max(self.share / 5, MIN_DAMPING)
        return True

    def failed(self) -> None:
        """Reset the share if none helped: this says nothing about the next place, and the share would only grow."""
        self.share = DAMPING


def descend(
    problem: LargeMargin,
    K: Array,
    edges: Graph,
    hinge: Hinge,
    damping: Damping,
    steps: int = NEWTON_STEPS,
    report: Report | None = None,
) -> tuple[Array, list[Pushed]]:
    """K after some steps over the given impostors, and the slopes on the way."""
    seen = []
    for k in range(1, steps + 1):
        f, slope, pushed = problem(K, edges, hinge)
        g = (slope @ K.T + K @ slope.T) / 4
        seen.append(pushed)
        if report is not None:
            report(k, f, float(np.abs(slope).max()))
        H, entries = curvature(problem, K, edges, hinge)
        for _ in range(DAMPING_TRIES):
            D = step(H, g, entries, damping.share)
            after = cholesky(np.eye(len(K)) + D) @ K
            promised = -float(np.vdot(g, D))
            if damping.seen(promised, f - problem.value(after, edges, hinge)):
                break
        else:
            damping.failed()
            break
        K = after
        if promised <= LITTLE * max(1.0, f) and damping.share <= 1e-3:
            break
    return K, seen


def step(H: Array, g: Array, entries: tuple[Ints, Ints, Array], share: float) -> Array:
    """D, with its eigenvalues cut so that I + D is positive definite, also after rounding."""
    a, b, weight = entries
    ridge = share * max(float(np.trace(H)) / len(H), 1e-12)
    x = cho_solve(cho_factor(H + ridge * np.eye(len(H))), -g[a, b] * weight) / weight
    D = np.zeros(g.shape)
    D[a, b] = D[b, a] = x
    w, V = eigh(D)
    if w[0] > -SAFE and w[-1] < MAX_STEP_GROWTH:
        return D
    return (V * np.clip(w, -SAFE, MAX_STEP_GROWTH)) @ V.T


def curvature(problem: LargeMargin, K: Array, edges: Graph, hinge: Hinge) -> tuple[Array, tuple[Ints, Ints, Array]]:
    """H over the upper triangle of D, rows (a, b), weighted so that its vectors have the length of D."""
    a, b = np.triu_indices(len(K))
    weight = np.where(a == b, 1.0, np.sqrt(2.0))
    Z = problem.X @ K.T
    push, pull = kinks(problem, edges.squares(Z), edges, hinge)
    H = np.zeros((len(a), len(a)))
    block = max(1, FEATURE_BLOCK_VALUES // len(a))
    for start in range(0, len(push), block):
        pushed = push[start : start + block]
        pulled = pull[start : start + block]
        far = Z[edges.a[pushed]] - Z[edges.b[pushed]]
        near = Z[edges.a[pulled]] - Z[edges.b[pulled]]
        A = (far[:, a] * far[:, b] - near[:, a] * near[:, b]) * weight
        H += A.T @ A
    return problem.mu * (2.0 if hinge.squared else 1 / hinge.width) * H, (a, b, weight)


def kinks(problem: LargeMargin, square: Array, edges: Graph, hinge: Hinge) -> tuple[Ints, Ints]:
    """The edges of the push and of the pull of every triplet at which f bends."""
    near = edges.near
    high = np.inf if hinge.squared else hinge.width
    found = []
    for part, u in problem.margins(square, edges):
        target, p = np.nonzero((u > 0) & (u < high))
        p += part.start
        found.append((p, problem.k * near.i[p] + target if near.target is None else near.target[p]))
    p, pull = (np.concatenate([np.zeros(0, np.intp), *(of[k] for of in found)]) for k in (0, 1))
    return edges.push[p], edges.pull[pull]
