"""Large margins over target neighbours: the objective, its gradient, and a bound on how far the optimum can be.

    f(M) = (1 - mu) <M, C> + mu sum_t h(1 - <M, A_t>),   C = sum_{i, j in N_i} (x_i - x_j)(x_i - x_j)'
    A_t = (x_i - x_l)(x_i - x_l)' - (x_i - x_j)(x_i - x_j)',   M = L' L

h is the hinge [u]_+ or its square. For slopes a_t >= 0 (of the hinge at most 1) the matrix of the gradient is
G = (1 - mu) C - mu sum_t a_t A_t, and where G is positive semi-definite

    min f >= mu sum_t a_t    (hinge)          min f >= mu sum_t (a_t - a_t^2 / 4)    (squared hinge)

Any slopes are made feasible by a factor theta <= 1. The slopes of the bare hinge jump at its kink, so that theta stays
far below 1 even near the optimum: the search uses a hinge rounded over a width, whose slopes settle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from . import impostors
from .distances import squared_distances
from .impostors import Impostors
from .types import Array, Ints

CHUNK = 1 << 17  # pairs looked at together


class Hinge(NamedTuple):
    """[u]_+ with its kink rounded over `width` (0: bare), or its square."""

    squared: bool = False
    width: float = 0.0

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Sum of values and slopes at u > 0."""
        if self.squared:
            return float(u @ u), 2 * u
        if self.width == 0:
            return float(u.sum()), np.ones_like(u)
        a = np.minimum(u / self.width, 1.0)
        return float((u - self.width / 2 * a) @ a), a

    def bound(self, theta: float, total: float, squares: float) -> float:
        """The dual value of slopes times the best factor up to theta."""
        if not self.squared:
            return theta * total
        theta = min(theta, 2 * total / max(squares, 1e-300))
        return theta * total - theta**2 * squares / 4


def signed_laplacian_times(i: Ints, j: Ints, weight: Array, Y: Array) -> Array:
    """(diag(W 1) - W) Y for the graph with edges i-j of any sign; fast where i consists of few rising runs."""
    order, n = np.argsort(i, kind="stable"), len(Y)
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))])
    W = csr_array((weight[order], j[order], starts), shape=(n, n))
    out = (np.bincount(i, weight, n) + np.bincount(j, weight, n))[:, None] * Y
    out -= W @ Y
    out -= W.T @ Y
    return out


class Pushed(NamedTuple):
    """Sums over all triplets of values, slopes and squared slopes, and the graph with the slopes as signed weights."""

    value: float
    total: float
    squares: float
    i: Ints
    j: Ints
    weight: Array


class Active(NamedTuple):
    """Some triplets with a positive hinge: its value, the number of the pull, and of the impostor."""

    u: Array
    pull: Ints
    impostor: Ints


class Certificate(NamedTuple):
    """What is known of f at M.

    Attributes
    ----------
    value : float
        f itself.
    bound : float
        At most min f.
    rounding : float
        The part of the gap that is left where all slopes are feasible.
    directions, excess : ndarray of shape (d, q), (q,)
        M + t v v' has a smaller f for each direction v and small t, the more so the larger the excess.
    """

    value: float
    bound: float
    rounding: float
    directions: Array
    excess: Array


class LargeMargin:
    """The problem on given rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    i, j : ndarray of shape (q,)
        Pulled pairs by rising i.
    mu : float
        In (0, 1]: weight of the push.
    squared : bool
        Squared hinge.
    weight : ndarray of shape (q,), optional
        Weights of the pulls.
    labels : ndarray of shape (n,), optional
        Sorted. With them impostors are searched and every row has the same number of pulls; else `fixed` holds them.
    fixed : Impostors, optional
    """

    def __init__(
        self,
        X: Array,
        i: Ints,
        j: Ints,
        mu: float = 0.5,
        squared: bool = False,
        *,
        weight: Array | None = None,
        labels: Ints | None = None,
        fixed: Impostors | None = None,
    ) -> None:
        self.X, self.i, self.j, self.mu, self.squared, self.weight = X, i, j, mu, squared, weight
        self.labels, self.fixed, self.k = labels, fixed, len(i) // len(X)
        w = np.ones(len(i)) if weight is None else weight
        self.C = X.T @ signed_laplacian_times(i, j, w, X)
        self.C = (self.C + self.C.T) / 2

    def on(self, X: Array) -> LargeMargin:
        """The same pulls and pushes on other rows."""
        same = (self.mu, self.squared)
        return LargeMargin(X, self.i, self.j, *same, weight=self.weight, labels=self.labels, fixed=self.fixed)

    def scan(self, L: Array, slack: float = 0.0) -> Impostors:
        """All impostors at L, and those whose squared distance is up to (1 + slack) times too large."""
        if self.fixed is not None or self.labels is None:
            return self.fixed or Impostors(self.i[:0], self.i[:0])
        Z = self.X @ L.T
        reach = impostors.pair_squares(Z, self.i, self.j).reshape(-1, self.k).max(axis=1)
        return impostors.find(Z, self.labels, (1 + slack) * (1 + reach))

    def active(self, Z: Array, near: Impostors) -> Iterator[Active]:
        """Triplets whose hinge is positive, in chunks."""
        reach = 1 + impostors.pair_squares(Z, self.i, self.j)
        for start in range(0, len(near.i), CHUNK):
            part = slice(start, start + CHUNK)
            far = impostors.pair_squares(Z, near.i[part], near.l[part])
            if near.target is None:
                pull = near.i[part, None] * self.k + np.arange(self.k)
            else:
                pull = near.target[part, None]
            u = (reach[pull] - far[:, None]).ravel()
            hit = np.flatnonzero(u > 0)
            yield Active(u[hit], pull.ravel()[hit], start + hit // pull.shape[1])

    def push(self, Z: Array, near: Impostors, hinge: Hinge) -> Pushed:
        """The hinges of the listed impostors."""
        pulled, pushed, sums = np.zeros(len(self.i)), np.zeros(len(near.i)), np.zeros(3)
        for u, pull, impostor in self.active(Z, near):
            value, a = hinge(u)
            pulled += np.bincount(pull, a, len(pulled))
            first = impostor[0] if len(impostor) else 0
            counts = np.bincount(impostor - first, a)
            pushed[first : first + len(counts)] += counts
            sums += np.array([value, a.sum(), a @ a])
        at = np.flatnonzero(pushed)
        weight = np.concatenate([pulled, -pushed[at]])
        i, j = np.concatenate([self.i, near.i[at]]), np.concatenate([self.j, near.l[at]])
        return Pushed(float(sums[0]), float(sums[1]), float(sums[2]), i, j, weight)

    def kinks(self, L: Array, near: Impostors) -> Array:
        """All positive hinges below 1, rising."""
        parts = [one.u[one.u < 1] for one in self.active(self.X @ L.T, near)]
        return np.sort(np.concatenate([np.zeros(0), *parts]))

    def __call__(self, L: Array, near: Impostors, hinge: Hinge) -> tuple[float, Array]:
        """f and df/dL over the listed impostors."""
        Z, LC = self.X @ L.T, L @ self.C
        pushed = self.push(Z, near, hinge)
        Y = signed_laplacian_times(pushed.i, pushed.j, pushed.weight, Z)
        value = (1 - self.mu) * float(np.vdot(LC, L)) + self.mu * pushed.value
        return value, 2 * ((1 - self.mu) * LC + self.mu * Y.T @ self.X)

    def value(self, L: Array, near: Impostors, hinge: Hinge) -> float:
        """f alone."""
        return (1 - self.mu) * float(np.vdot(L @ self.C, L)) + self.mu * self.push(self.X @ L.T, near, hinge).value

    def in_metric(self, L: Array, near: Impostors, hinge: Hinge) -> tuple[Pushed, Array]:
        """The push, and df/dM."""
        pushed = self.push(self.X @ L.T, near, hinge)
        A = self.X.T @ signed_laplacian_times(pushed.i, pushed.j, pushed.weight, self.X)
        return pushed, (1 - self.mu) * self.C + self.mu * (A + A.T) / 2

    def certify(self, L: Array, near: Impostors, hinge: Hinge) -> Certificate:
        """The exact f at L, with a lower bound of min f from the (rounded) hinge's slopes."""
        value = self.value(L, near, Hinge(self.squared))
        if not near.complete:
            return Certificate(value, -np.inf, 0.0, np.zeros((len(self.C), 0)), np.zeros(0))
        pushed, G = self.in_metric(L, near, hinge)
        theta, V, excess = self.feasible(((1 - self.mu) * self.C - G) / self.mu)
        bound, rest = (self.mu * hinge.bound(t, pushed.total, pushed.squares) for t in (theta, 1.0))
        return Certificate(value, bound, value - rest, V, excess)

    def feasible(self, S: Array) -> tuple[float, Array, Array]:
        """The largest theta with theta mu S <= (1 - mu) C, and the directions that keep it below 1."""
        limit, d = (1 - self.mu) / self.mu, len(S)
        ridge = 1e-12 * max(float(np.trace(self.C)) / d, 1e-300)
        w, V = eigh(S, self.C + ridge * np.eye(d))
        over = w > limit
        return (min(1.0, limit / w[-1]) if w[-1] > 0 else 1.0), V[:, over], w[over] - limit

    def differences(self, L: Array, anchors: int = 50) -> tuple[float, Array]:
        """Pulls and <A_t, M> of all triplets of some rows, to see what a change of scale does."""
        Z = self.X @ L.T
        square = impostors.pair_squares(Z, self.i, self.j)
        weighed = square if self.weight is None else square * self.weight
        if self.fixed is not None or self.labels is None:
            near = self.scan(L)
            far = impostors.pair_squares(Z, near.i, near.l)
            return float(weighed.sum()), far - square[near.target]
        rows = np.arange(0, len(Z), -(-len(Z) // anchors))
        far = squared_distances(Z[rows], Z)
        apart = self.labels[rows, None] != self.labels
        reach = square.reshape(-1, self.k)[rows]
        pairs = np.nonzero(apart)
        return float(reach.sum()), (far[pairs][:, None] - reach[pairs[0]]).ravel()
