"""k-means for few and for many clusters: seeds, Lloyd's steps, and two searches that leave his local optima.

Greedy k-means++ (Arthur & Vassilvitskii, 2007) draws some candidates for each next seed with probability D_i, the
squared distance of row i to the nearest seed so far, and keeps the one that leaves the smallest sum of D. Here
candidates of several seeds are drawn at once, with the D' of their block's beginning, so that their distances are one
matrix product. A candidate counts with probability D_i / D'_i <= 1 when its turn comes: that is a draw from D. With
more clusters than one per 64 rows these products would cost more than all that follows, and any rows are seeds.

After Lloyd's steps, clusters breathe (Fritzke, 2020): those of the largest error get a second center, and as many
centers are dropped of which rows miss least. Then single rows change their cluster (Hartigan & Wong, 1979): row x of
cluster a goes to b where that lowers the sum of squares, with the moves of both means taken into account:

    |b| / (|b| + 1) |x - mean_b|^2  <  |a| / (|a| - 1) |x - mean_a|^2

which finds much in clusters of few rows, where Lloyd's steps end at once. Only the nearest means are candidates, and in
one step each cluster takes part in one move, the best of its own, so that all gains add up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..numerics.types import Bools, Ints

Rows: TypeAlias = NDArray[np.floating[Any]]
Nearest: TypeAlias = Callable[[Rows, Rows], tuple[Rows, Ints]]  # squared distance to, and number of the nearest center

TOGETHER = 16  # maximum number of seeds whose candidates are drawn at once; with more, too many would be rejected
MAX_KMEANS_DISTANCES = 1 << 24  # maximum number of distances in memory
CACHED_DISTANCES = 1 << 19  # distances of one block that is searched several times
ROWS_OF_LARGE_CLUSTERS = 64  # rows per cluster from which greedy seeds cost little compared with Lloyd's steps
BREATHS = 12  # maximum number of breathing steps
BREATHING_SHARE = 0.1  # share of the clusters that get a second center in a breathing step
FEWEST_BREATHING = 5  # number of such clusters in the first step, at least
WORTH_A_BREATH = 0.03  # relative decrease of the sum of squares after which another breathing step follows
EXCHANGES = 4  # maximum number of times that candidates for the exchange of rows are computed
EXCHANGE_STEPS = 20  # maximum number of exchange steps with the same candidates
EXCHANGE_CANDIDATES = 4  # number of nearest means to which a row may move
WORTH_AN_EXCHANGE = 0.01  # relative decrease after which candidates are computed again
WORTH_A_STEP = 1e-4  # relative decrease after which another exchange step follows
SMALLEST_GAIN = 1e-5  # smallest gain of a move, relative to the gain of the old cluster; less may be rounding


class Clustering(NamedTuple):
    """Cluster of each row (n,), sum of squared distances to the centers, and centers (k, d)."""

    numbers: Ints
    inertia: float
    centers: Rows


def kmeans(rows: Rows, k: int, rng: np.random.Generator, *, iterations: int = 25, nearest: Nearest) -> Clustering:
    """Find k clusters of rows (n, d) with a small sum of squared distances to their means.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    k : int
        Number of clusters, from 1 to n.
    rng : Generator
        Random number generator.
    iterations : int
        Maximum number of Lloyd iterations.
    nearest : callable
        Function that finds the nearest centers in Lloyd's algorithm.
    """
    if len(rows) < ROWS_OF_LARGE_CLUSTERS * k:
        # breathing and exchange replace poor seeds at a lower price than greedy ones and Lloyd's steps have here
        centers = rows[rng.choice(len(rows), k, replace=False)]
        iterations = 0
    else:
        centers = rows[seeds(rows, k, rng)]
    square = np.einsum("nd,nd->n", rows, rows)
    return exchanged(rows, square, breathed(rows, square, centers, iterations, nearest))


def plain_kmeans(rows: Rows, k: int, rng: np.random.Generator, *, iterations: int = 25, nearest: Nearest) -> Clustering:
    """Find k clusters of rows (n, d) by Lloyd's steps from random rows, as most papers do; arguments as of `kmeans`."""
    return lloyd(rows, rows[rng.choice(len(rows), k, replace=False)], iterations, nearest)


def seeds(rows: Rows, k: int, rng: np.random.Generator) -> Ints:
    """Return the numbers of k different rows (n, d) far from each other.

    They are chosen by greedy k-means++ with 2 + log k candidates for each.
    """
    n = len(rows)
    tries = 2 + int(np.log(k))
    square = np.einsum("nd,nd->n", rows, rows)
    found = [int(rng.integers(n))]
    D = _squares(rows, square, np.array(found))[0]
    D[found] = 0
    while len(found) < k:
        # draw rows with probability D_i / sum D: the place of a uniform number in the cumulative sum
        mass = np.cumsum(D, dtype=np.float64)
        if mass[-1] <= 0:  # all other rows equal seeds
            rest = np.setdiff1d(np.arange(n), found)
            return np.concatenate([found, rest[: k - len(found)]]).astype(np.intp)
        drawn = tries * max(1, min(TOGETHER, MAX_KMEANS_DISTANCES // (tries * n)))
        candidates = np.minimum(np.searchsorted(mass, mass[-1] * rng.random(drawn), side="right"), n - 1)
        # u D' < D with probability D / D', where D' is D of now, and D that of the candidate's turn
        bar = rng.random(drawn) * D[candidates]
        squares = _squares(rows, square, candidates)
        at = 0
        while len(found) < k:
            count = at + np.flatnonzero(bar[at:] < D[candidates[at:]])[:tries]
            if len(count) < tries:
                break
            # (tries, n): the distances that remain if a candidate becomes the next seed
            left = np.minimum(squares[count], D)
            best = int(left.sum(axis=1).argmin())
            found.append(int(candidates[count[best]]))
            D = left[best]
            at = int(count[-1]) + 1
            D[found[-1]] = 0
    return np.array(found)


def _squares(rows: Rows, square: Rows, some: Ints) -> Rows:
    """Squared distances (s, n) of some rows to all."""
    out: Rows = rows[some] @ rows.T
    out *= -2
    out += square
    out += square[some, None]
    return np.maximum(out, 0, out=out)


def lloyd(rows: Rows, centers: Rows, iterations: int, nearest: Nearest, *, keep_empty: bool = False) -> Clustering:
    """Run Lloyd's algorithm from these centers (k, d).

    It ends when no row changes its cluster. A row whose center did not move is compared only with centers that moved,
    of which there soon are few. A center that has lost all its rows moves to a row far from its own center, or with
    `keep_empty` stays where it is.
    """
    squares, numbers = nearest(rows, centers)
    for _ in range(iterations):
        after = means(rows, numbers, centers, None if keep_empty else squares)
        # while no center moves, no row can change its cluster
        moved = (after != centers).any(axis=1)
        if not moved.any():
            break
        before = numbers
        centers = after
        squares, numbers = _again(rows, centers, moved, squares, numbers, nearest)
        if np.array_equal(numbers, before):
            break
    return Clustering(numbers, float(squares.sum(dtype=np.float64)), centers)


def means(rows: Rows, numbers: Ints, centers: Rows, squares: Rows | None) -> Rows:
    """Return the mean of each cluster.

    The center of a cluster without rows becomes a row that is far from its own center, or stays if `squares` is None.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    numbers : ndarray of shape (n,)
        Cluster of each row.
    centers : ndarray of shape (k, d)
        Current centers.
    squares : ndarray of shape (n,), optional
        Squared distances of the rows to their centers.
    """
    k = len(centers)
    n = len(rows)
    size = np.bincount(numbers, minlength=k)
    # a sparse (k, n) matrix of ones times the rows sums them by cluster
    member = csr_array((np.ones(n, dtype=rows.dtype), (numbers, np.arange(n))), shape=(k, n))
    found: Rows = (member @ rows) / np.maximum(size, 1)[:, None].astype(rows.dtype)
    empty = np.flatnonzero(size == 0)
    if squares is None:
        found[empty] = centers[empty]
    elif len(empty):
        found[empty] = rows[np.argsort(-squares, kind="stable")[: len(empty)]]
    return found


def _again(
    rows: Rows, centers: Rows, moved: NDArray[np.bool_], squares: Rows, numbers: Ints, nearest: Nearest
) -> tuple[Rows, Ints]:
    """The nearest centers after some moved."""
    lost = moved[numbers]
    there = np.flatnonzero(moved)
    stayed = np.flatnonzero(~moved)
    found, which = nearest(rows, centers[there])
    which = there[which]
    # a row whose center stayed keeps its distance, and only centers that moved can be nearer; the others are compared
    # with all centers
    squares = np.where(lost, np.inf, squares)
    numbers = numbers.copy()
    if len(stayed) and lost.any():
        squares[lost], near = nearest(rows[lost], centers[stayed])
        numbers[lost] = stayed[near]
    closer = found < squares
    return np.where(closer, found, squares), np.where(closer, which, numbers)


def nearest_centers(rows: Rows, centers: Rows, count: int, square: Rows | None = None) -> tuple[Rows, Ints]:
    """Return the squared distances to and the numbers of the nearest centers, nearest first, (n, count) each.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    centers : ndarray of shape (k, d)
        Centers.
    count : int
        Number of centers to return for each row, at most k.
    square : ndarray of shape (n,), optional
        Squared lengths of the rows, if they are known.
    """
    n = len(rows)
    if square is None:
        square = np.einsum("nd,nd->n", rows, rows)
    # |x - c|^2 = |x|^2 + (|c|^2 - 2 x.c), of which the bracket orders the centers of a row
    constant = np.einsum("kd,kd->k", centers, centers)
    factor = np.ascontiguousarray(-2 * centers.T)
    squares = np.empty((n, count), dtype=rows.dtype)
    numbers = np.empty((n, count), dtype=np.intp)
    step = max(1, CACHED_DISTANCES // len(centers))
    for start in range(0, n, step):
        block = slice(start, start + step)
        D = rows[block] @ factor
        D += constant
        row = np.arange(len(D))
        for place in range(count):
            at = D.argmin(axis=1)
            numbers[block, place] = at
            squares[block, place] = D[row, at]
            D[row, at] = np.inf
    squares += square[:, None]
    return np.maximum(squares, 0, out=squares), numbers


def breathed(rows: Rows, square: Rows, centers: Rows, iterations: int, nearest: Nearest) -> Rows:
    """Move centers from where they are least needed to where the error is large, as long as the sum of squares falls.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    square : ndarray of shape (n,)
        Squared lengths of the rows.
    centers : ndarray of shape (k, d)
        Current centers.
    iterations : int
        Maximum number of Lloyd iterations before each round.
    nearest : callable
        Function that finds the nearest centers in Lloyd's algorithm.
    """
    k = len(centers)
    centers = settled(rows, centers, iterations, nearest)
    if not 2 <= k < len(rows):
        return centers
    count = max(int(BREATHING_SHARE * k), min(FEWEST_BREATHING, k // 2))
    if len(rows) < ROWS_OF_LARGE_CLUSTERS * k:
        fewest = count  # each breath costs much beside what fewer clusters can gain
        toward = 1.0  # the rows of a class without a center are apart from all others
    else:
        fewest = 1
        toward = 0.5  # the farthest of many rows are far from each other too
    smallest = np.inf
    kept = _Breath(rows, square, centers)
    now = kept
    for _ in range(BREATHS):
        if now.inertia > (1 - WORTH_A_BREATH) * smallest:
            count //= 2
        if now.inertia < smallest:
            kept = now
            smallest = now.inertia
        if count < fewest or smallest == 0:
            break
        moved = kept.moved(count, toward)
        if moved is None:
            break
        now = _Breath(rows, square, settled(rows, moved, iterations, nearest))
    return kept.centers


def settled(rows: Rows, centers: Rows, iterations: int, nearest: Nearest) -> Rows:
    """Return the centers (k, d) after Lloyd's algorithm; without iterations, no distances are computed."""
    if iterations == 0:
        return centers
    return lloyd(rows, centers, iterations, nearest).centers


class _Breath:
    """Centers, with the two nearest of each row.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    square : ndarray of shape (n,)
        Their squared lengths.
    centers : ndarray of shape (k, d)
    """

    def __init__(self, rows: Rows, square: Rows, centers: Rows) -> None:
        self.rows = rows
        self.squares, self.near = nearest_centers(rows, centers, 2, square)
        self.inertia = float(self.squares[:, 0].sum(dtype=np.float64))
        self.centers = means(rows, self.near[:, 0], centers, self.squares[:, 0])

    def moved(self, count: int, toward: float) -> Rows | None:
        """Add `count` centers where the error is largest, drop as many that are needed least; None if too few.

        A new center lies a fraction `toward` of the way from the old center to the farthest row of its cluster.
        """
        k = len(self.centers)
        own = self.near[:, 0]
        size = np.bincount(own, minlength=k)
        # sum of squares of each cluster, (k,)
        error = np.bincount(own, self.squares[:, 0], minlength=k)
        large = np.argsort(-error, kind="stable")[:count]
        large = large[size[large] > 1]
        if len(large) == 0:
            return None
        # rows by cluster, and in each the farthest first
        order = np.lexsort((-self.squares[:, 0], own))
        first = np.cumsum(size) - size
        farthest = self.rows[order[first[large]]]
        new = self.centers[large] + np.asarray(toward, self.rows.dtype) * (farthest - self.centers[large])
        # the two nearest of all centers, of which only the distances to the new ones are computed
        squares, near = nearest_centers(self.rows, new, min(2, len(new)))
        squares = np.concatenate([self.squares, squares], axis=1)
        near = np.concatenate([self.near, near + k], axis=1)
        two = np.argsort(squares, axis=1, kind="stable")[:, :2]
        squares = np.take_along_axis(squares, two, axis=1)
        near = np.take_along_axis(near, two, axis=1)
        dropped = _least_needed(squares, near, k + len(new), len(new))
        if dropped is None:
            return None
        # rows of a dropped center go to their second nearest, which is never dropped with it
        numbers = np.where(dropped[near[:, 0]], near[:, 1], near[:, 0])
        place = np.cumsum(~dropped) - 1
        centers = np.concatenate([self.centers, new])[~dropped]
        return means(self.rows, place[numbers], centers, squares[:, 0])


def _least_needed(squares: Rows, near: Ints, k: int, count: int) -> Bools | None:
    """Mark the centers (k,) without which the sum of squares rises least; none of them gets rows of another one.

    Parameters
    ----------
    squares, near : ndarray of shape (n, 2)
        Distances and numbers of the two nearest of the k centers.
    k, count : int
        How many centers there are, and how many to mark. None is returned if there are not so many.
    """
    own = near[:, 0]
    # without a center, each of its rows has the distance to its second nearest
    rise = np.bincount(own, squares[:, 1] - squares[:, 0], minlength=k)
    order = np.argsort(own, kind="stable")
    stop = np.cumsum(np.bincount(own, minlength=k))
    marked = np.zeros(k, dtype=bool)
    needed = np.zeros(k, dtype=bool)
    left = count
    for center in np.argsort(rise, kind="stable").tolist():
        if left == 0:
            return marked
        start = stop[center - 1] if center else 0
        heirs = near[order[start : stop[center]], 1]  # which centers get its rows
        if needed[center] or marked[heirs].any():
            continue
        marked[center] = True
        needed[heirs] = True
        left -= 1
    return None


def exchanged(rows: Rows, square: Rows, centers: Rows) -> Clustering:
    """Move single rows between clusters as long as the sum of squares falls.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    square : ndarray of shape (n,)
        Squared lengths of the rows.
    centers : ndarray of shape (k, d)
        Current centers.
    """
    count = min(EXCHANGE_CANDIDATES, len(centers))
    before = np.inf
    for _ in range(EXCHANGES):
        squares, candidates = nearest_centers(rows, centers, count, square)
        before = min(before, float(squares[:, 0].sum(dtype=np.float64)))
        centers = means(rows, candidates[:, 0], centers, squares[:, 0])
        exchange = Exchange(rows, centers, candidates)
        inertia = exchange.run()
        # compute the means again, because those of the exchange have accumulated rounding errors
        centers = means(rows, exchange.numbers, exchange.centers, None)
        if inertia > (1 - WORTH_AN_EXCHANGE) * before:
            break
        before = inertia
    rest = rows - centers[exchange.numbers]
    return Clustering(exchange.numbers, float(np.einsum("nd,nd->", rest, rest, dtype=np.float64)), centers)


class Exchange:
    """Rows that change their clusters one by one; everything that depends on a move is updated.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    centers : ndarray of shape (k, d)
        Means of the clusters.
    candidates : ndarray of shape (n, m)
        Clusters to which each row may move; the first is its own.
    """

    def __init__(self, rows: Rows, centers: Rows, candidates: Ints) -> None:
        self.rows = rows
        self.centers = centers.copy()
        self.candidates = candidates
        self.row = np.arange(len(rows))
        self.place = np.zeros(len(rows), dtype=np.intp)  # of the own cluster among the candidates
        self.numbers = candidates[:, 0].copy()
        self.size = np.bincount(self.numbers, minlength=len(centers))
        self.squares = np.empty(candidates.shape, dtype=rows.dtype)
        self.measure(np.ones(candidates.shape, dtype=bool))

    def measure(self, wanted: Bools) -> None:
        """Compute the squared distances of rows to the marked candidates (n, m)."""
        row, place = np.nonzero(wanted)
        step = max(1, CACHED_DISTANCES // self.rows.shape[1])
        for start in range(0, len(row), step):
            i = row[start : start + step]
            j = place[start : start + step]
            rest = self.centers[self.candidates[i, j]] - self.rows[i]
            self.squares[i, j] = np.einsum("nd,nd->n", rest, rest)

    @property
    def inertia(self) -> float:
        return float(self.squares[self.row, self.place].sum(dtype=np.float64))

    def run(self) -> float:
        """Move rows until no step lowers the sum of squares by much; return the sum of squares."""
        inertia = self.inertia
        for _ in range(EXCHANGE_STEPS):
            gain = self.step()
            inertia = self.inertia
            if gain <= WORTH_A_STEP * inertia:
                break
        return inertia

    def step(self) -> float:
        """Move rows of which no two share a cluster; return the decrease of the sum of squares."""
        size = self.size[self.candidates]
        own = self.squares[self.row, self.place]
        own_size = self.size[self.numbers]
        # what the own cluster gains without the row: nothing if the row is alone
        loss = np.where(own_size > 1, own * (own_size / np.maximum(own_size - 1, 1)), 0)
        cost = self.squares * (size / (size + 1))
        cost[self.row, self.place] = np.inf
        best = cost.argmin(axis=1)
        gain = loss - cost[self.row, best]
        moving = np.flatnonzero(gain > SMALLEST_GAIN * loss)
        if len(moving) == 0:
            return 0.0
        gain = gain[moving]
        source = self.numbers[moving]
        target = self.candidates[moving, best[moving]]
        largest = np.zeros(len(self.centers))
        np.maximum.at(largest, source, gain)
        np.maximum.at(largest, target, gain)
        # of equal gains the first row moves: each cluster is named once
        chosen = np.flatnonzero((gain == largest[source]) & (gain == largest[target]))
        chosen = chosen[_first_to_name(source[chosen], target[chosen], len(self.centers))]
        self.move(moving[chosen], source[chosen], target[chosen], best[moving[chosen]])
        return float(gain[chosen].sum())

    def move(self, row: Ints, source: Ints, target: Ints, place: Ints) -> None:
        """Move rows (q,) from their clusters to others; no cluster may occur twice."""
        x = self.rows[row]
        one = np.ones((), dtype=self.rows.dtype)
        # the mean of n rows without x is mu + (mu - x) / (n - 1), and with x it is mu + (x - mu) / (n + 1)
        self.centers[source] += (self.centers[source] - x) * (one / (self.size[source] - 1)[:, None])
        self.centers[target] += (x - self.centers[target]) * (one / (self.size[target] + 1)[:, None])
        self.size[source] -= 1
        self.size[target] += 1
        self.numbers[row] = target
        self.place[row] = place
        touched = np.zeros(len(self.centers), dtype=bool)
        touched[source] = True
        touched[target] = True
        self.measure(touched[self.candidates])


def _first_to_name(source: Ints, target: Ints, k: int) -> Bools:
    """Mark the moves that are the first to name both of their clusters."""
    order = np.arange(len(source))
    first = np.full(k, len(source))
    np.minimum.at(first, source, order)
    np.minimum.at(first, target, order)
    return (first[source] == order) & (first[target] == order)
