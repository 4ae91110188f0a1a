"""Polynomial curves through 0 in place of straight axes: nearest points on them, lengths along them, gradients of both.

    theta(t) = sum_j C_j t^j,  j = 1..c;   T(x) = argmin_t |theta(t) - x|;   A(a, b) = int_a^b |theta'(t)| dt
    y(x) = A(0, 1) A(0, T(x))

Lengths on one curve are differences, so distances along curves are Euclidean between rows of y. All that is needed of
the points is b = X C; of a curve, its Gram matrix C'C. Arrays run over m curves first, then over n points.
"""

from __future__ import annotations

import numpy as np

from ....numerics.types import Array
from .real_roots import horner, real_roots, value_and_slope

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
NODES = (NODES + 1) / 2
WEIGHTS = WEIGHTS / 2
VANISHES = 1e-20  # share of the largest squared coefficient
MIN_CURVATURE = 1e-8  # least second derivative, relative to the curve's size
CURVE_BLOCK_POINTS = 1 << 14  # nearest points at a time: more would take memory and save no time


def embed(curves: Array, X: Array) -> Array:
    """Return y (n, m) of rows X (n, d) on curves (m, d, c)."""
    return Embedding(curves, X).y


class Embedding:
    """y (n, m) of rows X (n, d) on curves (m, d, c), computed a block of rows at a time, and its gradients."""

    def __init__(self, curves: Array, X: Array) -> None:
        step = max(1, CURVE_BLOCK_POINTS // len(curves))
        self.rows = [slice(a, a + step) for a in range(0, len(X), step)]
        self.blocks = [Curves(curves, X[rows]) for rows in self.rows]
        self.y = np.concatenate([block.one[:, None] * block.along for block in self.blocks], axis=1).T

    def pull_back(self, G: Array) -> Array:
        """Return the gradient in the curves, given that in y (n, m)."""
        return np.sum([b.gradient(G[rows].T) for rows, b in zip(self.rows, self.blocks, strict=True)], axis=0)

    def least_curvature(self) -> float:
        """The least second derivative at a nearest point."""
        return min(float(block.second.min()) for block in self.blocks)


class Curves:
    """Curves C (m, d, c) and the nearest points on them to the rows of X (n, d).

    Attributes
    ----------
    T : ndarray of shape (m, n)
    second : ndarray of shape (m, n)
        Half the second derivative of the squared distance at T, above 0 where T is a minimum.
    along : ndarray of shape (m, n)
        A(0, T).
    one : ndarray of shape (m,)
        A(0, 1).
    """

    def __init__(self, C: Array, X: Array) -> None:
        self.C = C
        self.X = X
        self.c = C.shape[2]
        self.gram = C.transpose(0, 2, 1) @ C
        j = np.arange(1, self.c + 1)
        self.speed_square = antidiagonals(np.outer(j, j) * self.gram)
        b = X @ C
        self.T = nearest(self.gram, b)
        self.second = second_derivative(self.gram, b, self.T)
        self.one = self.length(np.ones((len(C), 1)))[:, 0]
        self.along = self.length(self.T)

    def speed(self, t: Array) -> Array:
        """|theta'(t)| for t (m, k)."""
        return np.sqrt(np.maximum(horner(self.speed_square.T[:, :, None], t), 0.0))

    def speed_at_nodes(self, t: Array) -> Array:
        """|theta'| at the nodes of every interval (0, t), (m, k, nodes) for t (m, k)."""
        degrees = 2 * self.c - 1
        square = (self.speed_square[:, None] * from_one(t, degrees)) @ from_one(NODES, degrees).T
        return np.sqrt(np.maximum(square, 0.0, out=square), out=square)

    def length(self, t: Array) -> Array:
        """A(0, t) for t (m, k), negative for negative t."""
        return t * (self.speed_at_nodes(t) @ WEIGHTS)

    def gradient(self, g: Array) -> Array:
        """sum_i g_i dy_i / dC for g (m, n): through A(0, 1), through A(0, T) at fixed T, and through T."""
        T = self.T
        c = self.c
        K = self.length_gradient(np.ones((len(g), 1)), np.sum(g * self.along, axis=1)[:, None])
        outer = self.one[:, None] * g
        K += self.length_gradient(T, outer)
        size = np.trace(self.gram, axis1=1, axis2=2)[:, None] + np.finfo(np.float64).tiny
        r = -outer * self.speed(T) / np.maximum(self.second, MIN_CURVATURE * size)
        p = powers(T, c)
        P = slopes(T, c) * r[:, :, None]
        cross = p.transpose(0, 2, 1) @ P
        return self.C @ (K + cross + cross.transpose(0, 2, 1)) - self.X.T @ P

    def length_gradient(self, t: Array, g: Array) -> Array:
        """K (m, c, c) with C K = sum_i g_i dA(0, t_i) / dC at fixed t, for t and g (m, k)."""
        speed = self.speed_at_nodes(t)
        degrees = 2 * self.c - 1
        inverse = np.divide(1.0, speed, out=speed, where=speed > 0)  # 0 where curves stand still
        moments = inverse @ (WEIGHTS[:, None] * from_one(NODES, degrees)) * from_one(t, degrees)
        moments = np.einsum("mk,mke->me", g * t, moments)
        j = np.arange(1, self.c + 1)
        return np.outer(j, j) * moments[:, j[:, None] + j - 2]


def from_one(t: Array, k: int) -> Array:
    """1, t, ..., t^(k-1) along a new last axis."""
    p = np.ones((*t.shape, k))
    for e in range(1, k):
        np.multiply(p[..., e - 1], t, out=p[..., e])
    return p


def powers(t: Array, c: int) -> Array:
    """t, t^2, ..., t^c along a new last axis."""
    return from_one(t, c + 1)[..., 1:]


def slopes(t: Array, c: int) -> Array:
    """1, 2 t, ..., c t^(c-1)."""
    return from_one(t, c) * np.arange(1, c + 1)


def bends(t: Array, c: int) -> Array:
    """0, 2, 6 t, ..., c (c - 1) t^(c-2)."""
    p = np.zeros((*t.shape, c))
    p[..., 1:] = slopes(t, c - 1) * np.arange(2, c + 1)
    return p


def antidiagonals(A: Array) -> Array:
    """Return the antidiagonal sums of m matrices (m, c, c): the rising coefficients of sum_jk A_jk t^(j+k)."""
    m, c, _ = A.shape
    found = np.zeros((m, 2 * c - 1))
    for j in range(c):
        found[:, j : j + c] += A[:, j]
    return found


def second_derivative(gram: Array, b: Array, t: Array) -> Array:
    """|theta'|^2 + (theta - x)' theta'' for t (m, n), b (m, n, c)."""
    c = gram.shape[1]
    P = slopes(t, c)
    p = powers(t, c)
    return np.einsum("mnj,mnj->mn", P @ gram, P) + np.einsum("mnj,mnj->mn", p @ gram - b, bends(t, c))


def nearest(gram: Array, b: Array) -> Array:
    """Return argmin_t |theta(t)|^2 - 2 theta(t)' x, given grams (m, c, c) and b (m, n, c); ties go to the smallest t.

    Curves whose last coefficients vanish are handled as curves of lower degree.
    """
    size = np.diagonal(gram, axis1=1, axis2=2)
    there = size > VANISHES * size.max(axis=1, keepdims=True)
    degree = np.where(there, np.arange(1, gram.shape[1] + 1), 0).max(axis=1)
    t = np.zeros(b.shape[:2])
    for c in np.unique(degree[degree > 0]):
        of = degree == c
        t[of] = lowest(gram[of, :c, :c], b[of, :, :c])
    return t


def lowest(gram: Array, b: Array) -> Array:
    """`nearest` of curves of full degree.

    Candidates hold all roots of half the derivative, sum_jk j G_jk t^(j+k-1) - sum_j j b_j t^(j-1); the lowest is
    polished by Newton's method.
    """
    m, n, c = b.shape
    j = np.arange(1, c + 1)
    half = np.zeros((2 * c, m, n))
    half[1:] = antidiagonals(j[:, None] * gram).T[:, :, None]
    half[:c] -= np.moveaxis(j * b, 2, 0)
    found = real_roots(half.reshape(2 * c, -1), common_roots(half[:, :, 0], n)).reshape(-1, m, n)
    integral = half / np.arange(1, 2 * c + 1)[:, None, None]
    value = found * horner(integral[:, None], found)
    least = value.min(axis=0)
    t = np.where(value <= least + 1e-12 * np.abs(least), found, np.inf).min(axis=0)
    size = np.trace(gram, axis1=1, axis2=2)[:, None]
    for _ in range(2):
        slope, second = value_and_slope(half, t)
        t = t - np.divide(slope, second, out=np.zeros_like(t), where=second > MIN_CURVATURE * size)
    return t


def common_roots(half: Array, n: int) -> Array | None:
    """Return candidates for the roots of the c-th derivative, which does not depend on b: found once for every curve.

    `half` is (2 c, m); the result is repeated for the n points. For straight curves it is None.
    """
    c = len(half) // 2
    if c == 1:
        return None
    j = np.arange(c, 2 * c)
    factor = np.prod(j[:, None] - np.arange(c), axis=1)
    return np.repeat(real_roots(half[c:] * factor[:, None]), n, axis=1)
