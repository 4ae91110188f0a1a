"""Polynomial curves through 0 instead of straight axes: nearest points on them, lengths along them, gradients of both.

    theta(t) = sum_j C_j t^j,  j = 1..c;   T(x) = argmin_t |theta(t) - x|;   A(a, b) = int_a^b |theta'(t)| dt
    y(x) = A(0, 1) A(0, T(x))

Lengths on one curve are differences, so distances along curves are Euclidean distances between rows of y. Only b = X C
is needed of the points, and only the Gram matrix C'C of a curve. Arrays run over m curves first, then over n points.

A search changes its curves little from one evaluation to the next. The last nearest points are therefore guesses of the
next ones, from which Newton's method leads to a stationary point s. With u = t - s,

    |theta(t) - x|^2 - |theta(s) - x|^2 = 2 u^2 Q(u)

so that s is the nearest point if and only if Q, a polynomial of degree 2 c - 2, is nowhere negative. For c = 2 and 3, a
formula in its coefficients proves this. If it does not, and for higher degrees, all stationary points are compared.
"""

from __future__ import annotations

import numpy as np

from ....numerics.types import Array, Bools
from .real_roots import horner, real_roots, value_and_slope

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
NODES = (NODES + 1) / 2
WEIGHTS = WEIGHTS / 2
VANISHES = 1e-20  # share of the largest squared coefficient below which a coefficient counts as 0
MIN_CURVATURE = 1e-8  # least second derivative, relative to the size of the curve
FORMULAS = (2, 3)  # degrees c for which a formula proves that Q has no real roots
GUESS_STEPS = 5  # most steps of Newton's method from a guess
SETTLED = 1e-9  # size of the last step, relative to the points on a curve, after which a next one would be rounding
NO_ROOT_MARGIN = 1e-9  # relative size of a discriminant below which rounding may decide whether there are real roots
CURVE_BLOCK_POINTS = 1 << 14  # nearest points computed at a time: more would take more memory, and as much time


def embed(curves: Array, X: Array) -> Array:
    """Return y (n, m) of rows X (n, d) on curves (m, d, c)."""
    return Embedding(curves, X).y


class Embedding:
    """Coordinates y (n, m) of rows X (n, d) on curves (m, d, c), computed one block of rows at a time, and gradients.

    Parameters
    ----------
    curves : ndarray of shape (m, d, c)
        Coefficients of the curves.
    X : ndarray of shape (n, d)
        Rows.
    guess : ndarray of shape (m, n), optional
        Nearest points on similar curves.
    """

    def __init__(self, curves: Array, X: Array, guess: Array | None = None) -> None:
        step = max(1, CURVE_BLOCK_POINTS // len(curves))
        self.rows = [slice(a, a + step) for a in range(0, len(X), step)]
        self.blocks = []
        for rows in self.rows:
            near = None if guess is None else guess[:, rows]
            self.blocks.append(Curves(curves, X[rows], near))
        self.y = np.concatenate([block.one[:, None] * block.along for block in self.blocks], axis=1).T

    def pull_back(self, G: Array) -> Array:
        """Return the gradient with respect to the curves (m, d, c), given that with respect to y (n, m)."""
        parts = [block.gradient(G[rows].T) for rows, block in zip(self.rows, self.blocks, strict=True)]
        return np.sum(parts, axis=0)

    @property
    def nearest(self) -> Array:
        """Nearest points T (m, n)."""
        return np.concatenate([block.T for block in self.blocks], axis=1)

    def least_curvature(self) -> float:
        """Return the smallest second derivative at a nearest point."""
        return min(float(block.second.min()) for block in self.blocks)


class Curves:
    """Curves C (m, d, c) and the nearest points on them to the rows of X (n, d).

    Parameters
    ----------
    C : ndarray of shape (m, d, c)
        Coefficients of the curves.
    X : ndarray of shape (n, d)
        Rows.
    guess : ndarray of shape (m, n), optional
        Approximate nearest points.

    Attributes
    ----------
    T : ndarray of shape (m, n)
        Parameters of the nearest points.
    second : ndarray of shape (m, n)
        Half the second derivative of the squared distance at T, which is above 0 if T is a minimum.
    along : ndarray of shape (m, n)
        Lengths A(0, T).
    one : ndarray of shape (m,)
        Lengths A(0, 1).
    """

    def __init__(self, C: Array, X: Array, guess: Array | None = None) -> None:
        self.C = C
        self.X = X
        self.c = C.shape[2]
        self.gram = C.transpose(0, 2, 1) @ C
        j = np.arange(1, self.c + 1)
        self.speed_square = antidiagonals(np.outer(j, j) * self.gram)
        b = X @ C
        self.T = nearest(self.gram, b, guess)
        self.second = second_derivative(self.gram, b, self.T)
        one, self.one_moments = self.length(np.ones((len(C), 1)))
        self.one = one[:, 0]
        self.along, self.moments = self.length(self.T)

    def speed(self, t: Array) -> Array:
        """Return |theta'(t)| for t (m, k)."""
        return np.sqrt(np.maximum(horner(self.speed_square.T[:, :, None], t), 0.0))

    def length(self, t: Array) -> tuple[Array, Array]:
        """Return A(0, t) for t (m, k), signed like t, and int_0^t s^e / |theta'(s)| ds for e < 2 c - 1, (m, k, e).

        The latter are the terms of the gradient of the former.
        """
        degrees = 2 * self.c - 1
        if self.c == 1:  # the speed is constant
            nodes = np.array([0.5])
            weights = np.array([1.0])
        else:
            nodes = NODES
            weights = WEIGHTS
        at_nodes = from_one(nodes, degrees)
        powers_of_t = from_one(t, degrees)
        # |theta'(t node)|, (m, k, nodes)
        speed = (self.speed_square[:, None] * powers_of_t) @ at_nodes.T
        np.sqrt(np.maximum(speed, 0.0, out=speed), out=speed)
        along = t * (speed @ weights)
        inverse = np.divide(1.0, speed, out=speed, where=speed > 0)  # 0 where the speed is 0
        moments = inverse @ (weights[:, None] * at_nodes)
        moments *= powers_of_t
        moments *= t[:, :, None]
        return along, moments

    def gradient(self, g: Array) -> Array:
        """Return sum_i g_i dy_i / dC for g (m, n): through A(0, 1), through A(0, T) at fixed T, and through T."""
        T = self.T
        c = self.c
        K = self.length_gradient(self.one_moments, np.sum(g * self.along, axis=1)[:, None])
        outer = self.one[:, None] * g
        K += self.length_gradient(self.moments, outer)
        size = np.trace(self.gram, axis1=1, axis2=2)[:, None] + np.finfo(np.float64).tiny
        # dT/dC from g(T, C) = theta'(T)' (theta(T) - x) = 0:
        # dT/dC_j = -[(theta - x) j T^(j-1) + theta' T^j] / second, and dA(0, T)/dT = |theta'(T)|
        r = -outer * self.speed(T) / np.maximum(self.second, MIN_CURVATURE * size)
        p = powers(T, c)
        P = slopes(T, c) * r[:, :, None]
        cross = p.transpose(0, 2, 1) @ P
        return self.C @ (K + cross + cross.transpose(0, 2, 1)) - self.X.T @ P

    def length_gradient(self, moments: Array, g: Array) -> Array:
        """Return K (m, c, c) with C K = sum_i g_i dA(0, t_i) / dC at fixed t, from the moments of t and g (m, k)."""
        total = (g[:, None, :] @ moments)[:, 0]
        j = np.arange(1, self.c + 1)
        return np.outer(j, j) * total[:, j[:, None] + j - 2]


def from_one(t: Array, k: int) -> Array:
    """Return 1, t, ..., t^(k-1) along a new last axis."""
    p = np.ones((*t.shape, k))
    for e in range(1, k):
        np.multiply(p[..., e - 1], t, out=p[..., e])
    return p


def powers(t: Array, c: int) -> Array:
    """Return t, t^2, ..., t^c along a new last axis."""
    return from_one(t, c + 1)[..., 1:]


def slopes(t: Array, c: int) -> Array:
    """Return 1, 2 t, ..., c t^(c-1)."""
    return from_one(t, c) * np.arange(1, c + 1)


def bends(t: Array, c: int) -> Array:
    """Return 0, 2, 6 t, ..., c (c - 1) t^(c-2)."""
    p = np.zeros((*t.shape, c))
    p[..., 1:] = slopes(t, c - 1) * np.arange(2, c + 1)
    return p


def antidiagonals(A: Array) -> Array:
    """Return the antidiagonal sums of m matrices (m, c, c): the ascending coefficients of sum_jk A_jk t^(j+k)."""
    m, c, _ = A.shape
    found = np.zeros((m, 2 * c - 1))
    for j in range(c):
        found[:, j : j + c] += A[:, j]
    return found


def second_derivative(gram: Array, b: Array, t: Array) -> Array:
    """Return |theta'|^2 + (theta - x)' theta'' for t (m, n), b (m, n, c)."""
    c = gram.shape[1]
    P = slopes(t, c)
    p = powers(t, c)
    return np.einsum("mnj,mnj->mn", P @ gram, P) + np.einsum("mnj,mnj->mn", p @ gram - b, bends(t, c))


def nearest(gram: Array, b: Array, guess: Array | None = None) -> Array:
    """Return argmin_t |theta(t)|^2 - 2 theta(t)' x, given grams (m, c, c) and b (m, n, c); ties go to the smallest t.

    Curves whose last coefficients vanish are treated as curves of lower degree. A `guess` (m, n) near the result only
    saves time.
    """
    size = np.diagonal(gram, axis1=1, axis2=2)
    there = size > VANISHES * size.max(axis=1, keepdims=True)
    degree = np.where(there, np.arange(1, gram.shape[1] + 1), 0).max(axis=1)
    t = np.zeros(b.shape[:2])
    for c in np.unique(degree[degree > 0]):
        of = degree == c
        guess_of = None if guess is None else guess[of]
        t[of] = lowest(gram[of, :c, :c], b[of, :, :c], guess_of)
    return t


def lowest(gram: Array, b: Array, guess: Array | None = None) -> Array:
    """Return `nearest` for curves of full degree."""
    m, n, c = b.shape
    if c == 1:
        return b[:, :, 0] / gram[:, 0]
    # half the derivative, sum_jk j G_jk t^(j+k-1) - sum_j j b_j t^(j-1), by ascending coefficients (2 c, m, n)
    j = np.arange(1, c + 1)
    half = np.zeros((2 * c, m, n))
    half[1:] = antidiagonals(j[:, None] * gram).T[:, :, None]
    half[:c] -= np.moveaxis(j * b, 2, 0)
    size = np.repeat(np.trace(gram, axis1=1, axis2=2), n)
    each = half.reshape(2 * c, -1)
    if guess is None or c not in FORMULAS:
        return of_all_roots(each, size, common_roots(half[:, :, 0], n)).reshape(m, n)
    t, known = from_guess(each, guess.ravel(), size)
    missing = np.flatnonzero(~known)  # few during a search
    if len(missing) > 0:
        t[missing] = of_all_roots(each[:, missing], size[missing])
    return t.reshape(m, n)


def of_all_roots(half: Array, size: Array, common: Array | None = None) -> Array:
    """Return the lowest of all roots of half the derivative (2 c, n), refined by Newton's method."""
    found = real_roots(half, common)
    integral = half / np.arange(1, len(half) + 1)[:, None]
    value = found * horner(integral[:, None], found)
    least = value.min(axis=0)
    t = np.where(value <= least + 1e-12 * np.abs(least), found, np.inf).min(axis=0)
    for _ in range(2):
        t = t - newton_step(half, t, size)
    return t


def newton_step(half: Array, t: Array, size: Array) -> Array:
    """Return the Newton step to subtract from t (n,); 0 where the second derivative is not positive."""
    slope, second = value_and_slope(half, t)
    return np.divide(slope, second, out=np.zeros_like(t), where=second > MIN_CURVATURE * size)


def from_guess(half: Array, guess: Array, size: Array) -> tuple[Array, Bools]:
    """Return stationary points near guesses (n,), and where they are certainly the nearest points.

    The second result is False where Newton's method does not converge or leads to a minimum other than the lowest.
    """
    unit = np.abs(guess).mean()
    t = guess
    with np.errstate(over="ignore", invalid="ignore"):  # steps that diverge
        for _ in range(GUESS_STEPS):
            move = newton_step(half, t, size)
            t = t - move
            settled = np.abs(move) <= SETTLED * np.maximum(np.abs(t), unit)
            if settled.all():
                break
        return t, settled & nowhere_negative(quotient(half, t))


def quotient(half: Array, s: Array) -> Array:
    """Return the ascending coefficients (2 c - 1, n) of Q(u), with int_s^(s+u) half = u^2 Q(u) at roots s (n,)."""
    # half(s + u) = sum_e h_e u^e by repeated division by t - s (Shaw & Traub, 1974); h_0 = 0
    h = half.copy()
    for k in range(len(h) - 1):
        for e in range(len(h) - 2, k - 1, -1):
            h[e] += s * h[e + 1]
    return h[1:] / np.arange(2, len(h) + 1)[:, None]


def nowhere_negative(a: Array) -> Bools:
    """Return where polynomials of degree 2 or 4, with ascending coefficients (3, n) or (5, n), are certainly positive.

    For degree 4, u is scaled so that the first and the last coefficient are 1: there is no real root if the
    discriminant is above 0 and one of two further polynomials in the coefficients is (Rees, 1922).
    """
    ends = (a[0] > 0) & (a[-1] > 0)
    with np.errstate(all="ignore"):  # comparisons with values that are not finite are False
        if len(a) == 3:
            return ends & (4 * a[0] * a[2] > (1 + NO_ROOT_MARGIN) * a[1] ** 2)
        u = np.sqrt(np.sqrt(a[0] / a[4]))
        p = a[1] * u / a[0]
        q = a[2] * u**2 / a[0]
        r = a[3] * u**3 / a[0]
        I = 12 - 3 * r * p + q * q
        J = q * (72 + 9 * r * p - 2 * q * q) - 27 * (p * p + r * r)
        cubed = 4 * I**3
        above = cubed - J * J > NO_ROOT_MARGIN * (np.abs(cubed) + J * J)
        r2 = r * r
        complex_roots = (8 * q > 3 * r2) | (64 - 16 * q * q + 16 * r2 * q - 16 * r * p - 3 * r2 * r2 > 0)
        return ends & above & complex_roots


def common_roots(half: Array, n: int) -> Array:
    """Return candidates for the roots of the c-th derivative, computed once per curve because b does not affect it.

    `half` is (2 c, m), c > 1; the result is repeated for the n points.
    """
    c = len(half) // 2
    j = np.arange(c, 2 * c)
    factor = np.prod(j[:, None] - np.arange(c), axis=1)
    return np.repeat(real_roots(half[c:] * factor[:, None]), n, axis=1)
