"""Large margins over target neighbors: the objective, its gradient, and a bound on how far the optimum can be.

    f(M) = (1 - mu) <M, C> + mu sum_t h(1 - <M, A_t>),   C = sum_{i, j in N_i} (x_i - x_j)(x_i - x_j)'
    A_t = (x_i - x_l)(x_i - x_l)' - (x_i - x_j)(x_i - x_j)',   M = L' L

h is the hinge [u]_+ or its square. For slopes a_t >= 0 (of the hinge at most 1) the matrix of the gradient is
G = (1 - mu) C - mu sum_t a_t A_t, and where G is positive semi-definite

    min f >= mu sum_t a_t    (hinge)          min f >= mu sum_t (a_t - a_t^2 / 4)    (squared hinge)

Any slopes become feasible if they are multiplied by a small enough factor theta <= 1. The slopes of the bare hinge jump
at its kink, so that theta stays far below 1 even near the optimum. The search therefore uses a hinge whose kink is
rounded over a width, so that its slopes converge.

`PullsAndPushes` determines from labels or triplets which rows pull and push, and returns this problem as a
`LargeMargin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ....numerics import scatter
from ....numerics.constraints import generator
from ....numerics.pair_differences import Edges, pair_squares, squared_distances
from ....numerics.types import Array, Ints, Seed
from .. import impostors
from ..impostors import Impostors
from . import mining as triplet_mining

MAX_ANCHORS = 25_000  # rows up to which all are anchors; the time grows with anchors times pushing rows
MAX_PUSHERS = 100_000  # rows up to which impostors are searched for among all
MINING = (None, "batch_all", *triplet_mining.STRATEGIES)
PAIRS_PER_CHUNK = 1 << 17  # pairs whose hinges are computed at a time
NO_REACH = -1e200  # 1 + d_ij of an empty place: its hinge is 0 against every impostor
NONE = Impostors(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), None)


class Hinge(NamedTuple):
    """Hinge [u]_+ with its kink rounded over `width` (0: not rounded), or its square."""

    squared: bool = False
    width: float = 0.0

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Sum of values, and slopes."""
        if self.squared:
            # h(u) = [u]_+^2,  h'(u) = 2 [u]_+
            v = np.maximum(u, 0.0)
            return float(np.vdot(v, v)), 2 * v
        if self.width == 0:
            # h(u) = [u]_+,  h'(u) = 1 where u > 0
            a = (u > 0).astype(np.float64)
            return float(np.vdot(u, a)), a
        # h(u) = u^2 / (2 width) up to the width, u - width / 2 above it: both are a u - a^2 width / 2 with a = h'(u)
        a = u / self.width
        np.clip(a, 0.0, 1.0, out=a)
        return float(np.vdot(u, a) - self.width / 2 * np.vdot(a, a)), a

    def bound(self, theta: float, total: float, squares: float) -> float:
        """Return the dual value of the slopes times the best factor up to theta."""
        if not self.squared:
            # the slopes theta a_t have the dual value theta sum_t a_t
            return theta * total
        # theta sum_t a_t - theta^2 / 4 sum_t a_t^2 is largest at theta = 2 sum_t a_t / sum_t a_t^2
        theta = min(theta, 2 * total / max(squares, 1e-300))
        return theta * total - theta**2 * squares / 4


class Graph(Edges):
    """Pulls and impostors as edges; `pull` and `push` hold the edge of each.

    Parameters
    ----------
    i, j : ndarray of shape (q,)
        Pulled pairs.
    near : Impostors
        Impostors.
    n : int
        Number of rows.
    """

    def __init__(self, i: Ints, j: Ints, near: Impostors, n: int) -> None:
        left = np.concatenate([i.astype(near.i.dtype), near.i])
        right = np.concatenate([j.astype(near.l.dtype), near.l])
        super().__init__(left, right, n)
        self.near = near
        self.pull = self.of[: len(i)]
        self.push = self.of[len(i) :]


class Pushed(NamedTuple):
    """Sums over all triplets of values, slopes and squared slopes, and the signed weight of each edge."""

    value: float
    total: float
    squares: float
    weight: Array


class Dual(NamedTuple):
    """Slopes in the form that a bound needs: sum_t a_t A_t, sum_t a_t, and a lower bound on sum_t a_t^2."""

    S: Array
    total: float
    squares: float

    def mixed(self, other: Dual, share: float) -> Dual:
        """Return the weighted mean with other slopes, which are valid slopes as well by convexity."""
        rest = 1 - share
        total = rest * self.total + share * other.total
        squares = rest * self.squares + share * other.squares
        return Dual(rest * self.S + share * other.S, total, squares)


class Certificate(NamedTuple):
    """Information on f at M.

    Attributes
    ----------
    value : float
        Value of f.
    bound : float
        Lower bound on min f.
    rounding : float
        Part of the gap that remains if all slopes are feasible.
    directions, excess : ndarray of shape (d, q), (q,)
        f is smaller at M + t v v' for each direction v and small t, and the more so the larger the excess.
    rounded : float
        Value of f with the rounded hinge of the search.
    kinks : ndarray
        Positive hinges below 1, in increasing order.
    positive : int
        Number of positive hinges.
    """

    value: float
    bound: float
    rounding: float
    directions: Array
    excess: Array
    rounded: float
    kinks: Array
    positive: int


class LargeMargin:
    """Large-margin problem on given rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    i, j : ndarray of shape (q,)
        Pulled pairs, in order of increasing i.
    mu : float
        Weight of the push term, in (0, 1].
    squared : bool
        Use the squared hinge.
    weight : ndarray of shape (q,), optional
        Weights of the pulls. By default, all 1.
    labels : ndarray of shape (n,), optional
        Sorted class codes. If given, impostors are searched for, and every row has the same number of pulls; empty
        places hold pulls of a row to itself (all places of a row that is not an anchor). Otherwise, `fixed` holds the
        impostors.
    fixed : Impostors, optional
        Listed impostors.
    pushers : ndarray of int, optional
        Rows among which impostors are searched for, in increasing order. By default, all rows.
    unit : float
        Factor that turns values of this problem into those of the problem with all rows, if it holds a sample of them.
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
        pushers: Ints | None = None,
        unit: float = 1.0,
    ) -> None:
        self.X = X
        self.i = i
        self.j = j
        self.mu = mu
        self.squared = squared
        self.weight = weight
        self.labels = labels
        self.fixed = fixed
        self.pushers = pushers
        self.unit = unit
        self.k = len(i) // len(X)
        self.empty = i == j  # places without a pull, in classes of few rows
        if fixed is None:
            fixed = NONE
        self.pulls = Graph(i, j, fixed, len(X))
        w = weight
        if w is None:
            w = np.ones(len(i))
        # C = sum_q w_q (x_i - x_j)(x_i - x_j)', (d, d), in parts of n pulls: `weighted_outer` sums so few by their
        # differences, which leaves exact zeros in directions without a pull
        self.C = np.zeros((X.shape[1], X.shape[1]))
        for start in range(0, len(i), len(X)):
            part = slice(start, start + len(X))
            self.C = self.C + scatter.weighted_outer(X, i[part], j[part], w[part])

    def on(self, X: Array) -> LargeMargin:
        """Return the problem with the same pulls and pushes on other rows."""
        return LargeMargin(
            X,
            self.i,
            self.j,
            self.mu,
            self.squared,
            weight=self.weight,
            labels=self.labels,
            fixed=self.fixed,
            pushers=self.pushers,
            unit=self.unit,
        )

    def scan(self, L: Array, slack: float = 0.0) -> Graph:
        """Find all impostors at L, and rows whose squared distance is too large by a factor of up to 1 + slack."""
        if self.fixed is not None or self.labels is None:
            return self.pulls
        Z = self.X @ L.T
        # row l is an impostor of i where d_il < 1 + max_j d_ij
        reach = pair_squares(Z, self.i, self.j).reshape(-1, self.k).max(axis=1)
        no_pull = self.empty.reshape(-1, self.k).all(axis=1)
        radius = np.where(no_pull, 0.0, (1 + slack) * (1 + reach))
        near = impostors.find(Z, self.labels, radius, pushers=self.pushers)
        return Graph(self.i, self.j, near, len(Z))

    def margins(self, square: Array, edges: Graph) -> Iterator[tuple[slice, Array]]:
        """Yield u = 1 + d_ij - d_il of chunks of m impostors, (k, m): one row for each pull j that they compete with.

        Listed impostors compete with one pull each: (1, m).
        """
        near = edges.near
        reach = 1 + square[edges.pull]
        reach[self.empty] = NO_REACH
        if near.target is None:
            # (k, n): column i holds the pulls of row i
            reach = np.ascontiguousarray(reach.reshape(-1, self.k).T)
            column = near.i
        else:
            # (1, q): column q is pull q
            reach = reach[None]
            column = near.target
        for start in range(0, len(column), PAIRS_PER_CHUNK):
            part = slice(start, start + PAIRS_PER_CHUNK)
            u = reach.take(column[part], 1)
            u -= square.take(edges.push[part])
            yield part, u

    def push(self, square: Array, edges: Graph, hinge: Hinge) -> Pushed:
        """Return the hinges of the listed impostors, from the squared lengths of all edges."""
        near = edges.near
        sums = np.zeros(3)
        pulled = np.zeros(len(self.i))
        pushed = np.zeros(len(near.i))
        for part, u in self.margins(square, edges):
            value, a = hinge(u)  # a = h'(u), (k, m) or (1, m)
            np.sum(a, axis=0, out=pushed[part])
            sums += np.array([value, pushed[part].sum(), np.vdot(a, a)])
            if near.target is None:
                # the impostors of a row follow one another: sum a over each such run
                first = np.flatnonzero(np.diff(near.i[part], prepend=-1))
                pulled.reshape(-1, self.k).T[:, near.i[part][first]] += np.add.reduceat(a, first, axis=1)
            else:
                pulled += np.bincount(near.target[part], a[0], len(pulled))
        # df/dd of each edge: + sum of a where it is pulled, - sum of a where it is pushed
        weight = edges.summed(pulled, edges.pull)
        weight -= edges.summed(pushed, edges.push)
        return Pushed(float(sums[0]), float(sums[1]), float(sums[2]), weight)

    def __call__(self, L: Array, edges: Graph, hinge: Hinge) -> tuple[float, Array, Pushed]:
        """Return f and df/dL over the listed impostors, and the sums of their push."""
        Z = self.X @ L.T  # (n, k)
        LC = L @ self.C  # (k, d)
        pushed = self.push(edges.squares(Z), edges, hinge)
        Y = edges.laplacian_times(pushed.weight, Z)  # (n, k); sum_e w_e L x_e x_e' = Y' X
        # f = (1 - mu) tr(L C L') + mu sum_t h(u_t)
        value = (1 - self.mu) * float(np.vdot(LC, L)) + self.mu * pushed.value
        # df/dL = 2 L G,  G = (1 - mu) C - mu sum_t a_t A_t
        gradient = 2 * ((1 - self.mu) * LC + self.mu * Y.T @ self.X)
        return value, gradient, pushed

    def value(self, L: Array, edges: Graph, hinge: Hinge) -> float:
        """Return f without its gradient."""
        square = edges.squares(self.X @ L.T)
        push = sum(hinge(u)[0] for _, u in self.margins(square, edges))
        return (1 - self.mu) * float(np.vdot(L @ self.C, L)) + self.mu * push

    def in_metric(self, square: Array, edges: Graph, hinge: Hinge) -> tuple[Pushed, Array]:
        """Return the push term and df/dM."""
        pushed = self.push(square, edges, hinge)
        return pushed, (1 - self.mu) * self.C - self.mu * self.pushes(pushed.weight, edges)

    def pushes(self, weight: Array, edges: Graph) -> Array:
        """Return sum_t a_t A_t for slopes that sum to these weights of the edges."""
        A = self.X.T @ edges.laplacian_times(weight, self.X)
        return -(A + A.T) / 2

    def mean(self, slopes: list[Pushed], edges: Graph) -> Dual:
        """Return the mean of several slopes, which is closer to feasible than each of them."""
        weight = np.zeros_like(slopes[0].weight)
        for pushed in slopes:  # a loop, because all of them stacked would take much memory
            weight += pushed.weight
        weight /= len(slopes)
        total = float(np.mean([pushed.total for pushed in slopes]))
        squares = float(np.mean([pushed.squares for pushed in slopes]))
        return Dual(self.pushes(weight, edges), total, squares)

    def bound(self, dual: Dual) -> float:
        """Return a lower bound on min f."""
        theta = self.feasible(dual.S)[0]
        return self.mu * Hinge(self.squared).bound(theta, dual.total, dual.squares)

    def certify(self, L: Array, edges: Graph, hinge: Hinge) -> Certificate:
        """Return the exact f at L, with a lower bound on min f from the slopes of the (rounded) hinge."""
        pull = (1 - self.mu) * float(np.vdot(L @ self.C, L))
        square = edges.squares(self.X @ L.T)
        u = np.concatenate([np.zeros(0), *(u[u > 0] for _, u in self.margins(square, edges))])  # positive hinges
        value = pull + self.mu * Hinge(self.squared)(u)[0]
        # G = df/dM = (1 - mu) C - mu S, so that S = ((1 - mu) C - G) / mu
        pushed, G = self.in_metric(square, edges, hinge)
        rest = (pull + self.mu * pushed.value, np.sort(u[u < 1]), len(u))
        # impostors that are not listed would add slopes, so there is no bound
        if not edges.near.complete:
            return Certificate(value, -np.inf, 0.0, np.zeros((len(self.C), 0)), np.zeros(0), *rest)
        theta, V, excess = self.feasible(((1 - self.mu) * self.C - G) / self.mu)
        bound = self.mu * hinge.bound(theta, pushed.total, pushed.squares)
        bound_if_feasible = self.mu * hinge.bound(1.0, pushed.total, pushed.squares)
        return Certificate(value, bound, value - bound_if_feasible, V, excess, *rest)

    def feasible(self, S: Array) -> tuple[float, Array, Array]:
        """Return the largest theta with theta mu S <= (1 - mu) C, and the directions that keep it below 1."""
        # theta mu S <= (1 - mu) C  <=>  theta w <= limit for all generalized eigenvalues, S v = w C v
        limit = (1 - self.mu) / self.mu
        d = len(S)
        ridge = 1e-12 * max(float(np.trace(self.C)) / d, 1e-300)  # C is singular in directions without a pull
        # increasing: the last eigenvalue decides on theta
        w, V = eigh(S, self.C + ridge * np.eye(d))
        theta = 1.0
        if w[-1] > limit:
            theta = limit / w[-1]
        over = w > limit
        return theta, V[:, over], w[over] - limit

    def differences(self, L: Array, anchors: int = 50) -> tuple[float, Array]:
        """Return the pulls and <A_t, M> of all triplets of some rows, which show the effect of a change of scale."""
        Z = self.X @ L.T
        square = pair_squares(Z, self.i, self.j)
        # (m,) squared lengths of the pulls, times their weights
        weighed = square
        if self.weight is not None:
            weighed = square * self.weight
        if self.fixed is not None or self.labels is None:
            near = self.pulls.near
            far = pair_squares(Z, near.i, near.l)
            return float(weighed.sum()), far - square[near.target]
        pulling = np.flatnonzero(~self.empty.reshape(-1, self.k).all(axis=1))
        length = np.einsum("np,np->n", Z[pulling], Z[pulling])
        order = pulling[np.argsort(length, kind="stable")]  # invariant to rotations of the features
        rows = order[:: max(1, -(-len(order) // anchors))]
        far = squared_distances(Z[rows], Z)  # (b, n)
        apart = self.labels[rows, None] != self.labels
        reach = square.reshape(-1, self.k)[rows]
        pulled = ~self.empty.reshape(-1, self.k)[rows]
        pairs = np.nonzero(apart)
        gaps = far[pairs][:, None] - reach[pairs[0]]  # <A_t, M> = d_il - d_ij, (m, k) for m pairs (i, l)
        return float(reach.sum()), gaps[pulled[pairs[0]]]


class PullsAndPushes(NamedTuple):
    """Rules by which labels become pulls and pushes, named like the settings of `LMNN`."""

    n_neighbors: int = 3
    mu: float = 0.5
    squared: bool = False
    mining: str | None = None
    pull: str = "targets"
    seed: Seed = None

    def pose(self, X: Array, labels: Ints | None, triplets: Ints | None, L: Array) -> LargeMargin:
        """Return the problem on rows sorted by class, or on triplets, with neighbors searched for under L."""
        if labels is not None and self.mining in (None, "batch_all"):
            anchors = self.anchors(len(X))
            near = impostors.target_neighbors(X @ L.T, labels, self.n_neighbors, anchors)
            if len(X) > MAX_PUSHERS:
                return self.of_drawn_rows(X, labels, anchors, near)
            i = np.repeat(np.arange(len(X)), near.shape[1])
            return LargeMargin(X, i, near.ravel(), self.mu, self.squared, labels=labels)
        if labels is not None:
            triplets = triplet_mining.mine(X @ L.T, labels, self.mining or "", self.n_neighbors, seed=self.seed)
        return from_triplets(X, np.asarray(triplets), mu=self.mu, squared=self.squared, pull=self.pull)

    def of_drawn_rows(self, X: Array, labels: Ints, anchors: Ints, near: Ints) -> LargeMargin:
        """Return the problem in which m drawn rows push on behalf of all n, each with the weight w = n / m.

        f = (1 - mu) <M, C> + mu w sum_t h_t = unit ((1 - nu) <M, C> + nu sum_t h_t),  unit = 1 - mu + mu w,
        nu = mu w / unit: large margins of another weight. The rows that neither pull nor push are left out.
        """
        n = len(X)
        pushers = np.sort(generator(self.seed).choice(n, MAX_PUSHERS, replace=False))
        # rows that pull, are pulled to, or push
        kept = np.unique(np.concatenate([anchors, near[anchors].ravel(), pushers]))
        w = n / MAX_PUSHERS
        unit = 1 - self.mu + self.mu * w
        return LargeMargin(
            X[kept],
            np.repeat(np.arange(len(kept)), near.shape[1]),
            np.searchsorted(kept, near[kept]).ravel(),
            self.mu * w / unit,
            self.squared,
            labels=labels[kept],
            pushers=np.searchsorted(kept, pushers),
            unit=unit,
        )

    def anchors(self, n: int) -> Ints:
        """Return the rows that act as anchors, in increasing order: all rows, or a sample of many."""
        if n <= MAX_ANCHORS:
            return np.arange(n)
        return np.sort(generator(self.seed).choice(n, MAX_ANCHORS, replace=False))


def from_triplets(X: Array, triplets: Ints, mu: float, squared: bool, pull: str = "targets") -> LargeMargin:
    """Return the problem of listed triplets (m, 3).

    Each pull has the weight 1, or with "triplets" the number of its triplets.
    """
    a, p, n = triplets[np.argsort(triplets[:, 0], kind="stable")].T
    # each pair (a, p) is one pull, coded as a n + p
    edges, target, count = np.unique(a * len(X) + p, return_inverse=True, return_counts=True)
    i, j = np.divmod(edges, len(X))
    weight = None
    if pull == "triplets":
        weight = count.astype(float)
    return LargeMargin(X, i, j, mu, squared, weight=weight, fixed=Impostors(a, n, target.ravel()))
