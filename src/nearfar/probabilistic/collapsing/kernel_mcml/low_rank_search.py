"""Collapse classes in a space of many directions, such as that of a kernel, if the optimal metric uses few of them.

    L = K A,  M = L' L,  K (k, r) with k far below r

At the optimum, M has a rank far below r: 40 of 300 on letters. An iteration of L-BFGS over a K of few rows costs
O(n^2 k) instead of O(n^2 r), at first in single precision. Between two searches, all r directions are checked: G =
df/dM must have no negative eigenvalue, and the duality gap must be small. Directions along which f still decreases
become new rows of K, and rows of K that have become negligible are dropped.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import inv

from ....numerics import certified_psd, psd, scatter
from ....numerics.optimize import Report, Solution, lbfgs
from ....numerics.types import Array
from ..objective import Collapse, Inner

FIRST_ROWS = 80  # rows of K at the start; on five data sets, 39 to 72 of 300 remained at the end
MAX_NEW_ROWS = 64  # most rows that one check of all directions adds
MEMORY = 20  # correction pairs of L-BFGS
SINGLE_ROWS = 300  # rows from which single precision saves more time than the second search takes
SINGLE_FTOL = 1e-6  # relative decrease of f in one iteration that single precision still resolves
SINGLE_LOST = 1e-4  # squared length of a row of K, relative to the longest, below which it is dropped
DOUBLE_FTOL = 1e-5  # the decrease that ends the first search in double precision, in units of `tol`
DOUBLE_LOST = 1e-6
FTOL_FACTOR = 0.1  # factor on that decrease after each check of all directions
MIN_FTOL = 1e-15
STEPS_PER_SEARCH = 150  # iterations between two checks of the gap
MAX_ROUNDS = 10
HALVINGS = 12  # most halvings of new rows, until f is lower with them than without
BARRIER_SHARE = 0.01  # weight of the barrier at its optimum, as a share of the weight of the rows
BARRIER_START = 0.3  # added to all eigenvalues of M before the search with a barrier, in units of t / median(|w|)


class RowSearch:
    """Searches over K with few rows, which share a maximum number of iterations."""

    def __init__(self, problem: Collapse, A: Array, max_iter: int, report: Report | None) -> None:
        self.problem = problem
        self.A = A
        self.max_iter = max_iter
        self.report = report
        self.history: list[float] = []

    @property
    def left(self) -> int:
        """Number of iterations that are left."""
        return self.max_iter - len(self.history)

    def value(self, K: Array) -> float:
        """Return f."""
        return self.problem.on_factor(K @ self.A)[0]

    def improved(self, K: Array, dtype: str, ftol: float, lost: float) -> Array:
        """Return a K of lower f, with orthogonal rows, the longest first, and without rows that are lost."""
        scale = max(1.0, abs(self.value(K)))

        def on_factor(K: Array) -> tuple[float, Array]:
            # L = K A with a symmetric A: df/dK = (df/dL) A, (k, r)
            f, gradient = self.problem.on_factor(K @ self.A, dtype)
            return f / scale, gradient @ self.A / scale

        def each(k: int, value: float, rest: float) -> None:
            self.history.append(scale * value)
            if self.report is not None:
                self.report(len(self.history), scale * value, scale * rest)

        steps = min(self.left, STEPS_PER_SEARCH)
        if steps > 0:
            K = lbfgs(on_factor, K, max_iter=steps, tol=0.0, ftol=ftol, memory=MEMORY, report=each).x
        K = psd.compress(K)
        square = np.einsum("kr,kr->k", K, K)
        K = K[square >= lost * square[0]]
        if self.history:
            self.history[-1] = self.value(K)  # of the remaining rows, in double precision
        return K

    def with_new_rows(self, K: Array, w: Array, V: Array) -> Array:
        """Return K with new rows along those eigenvectors V (r, r) of G whose eigenvalues w (r,) are negative.

        w is in decreasing order.
        """
        falling = w < 0
        directions = V[:, falling][:, -MAX_NEW_ROWS:]
        slopes = -w[falling][-MAX_NEW_ROWS:]
        if len(slopes) == 0:
            return K
        # rows along v with a squared length in proportion to -v'Gv, the longest as long as a mean row of K
        typical = np.sqrt(np.mean(np.einsum("kr,kr->k", K, K)))
        rows = typical * np.sqrt(slopes / slopes.max())[:, None] * directions.T
        value = self.value(K)
        for _ in range(HALVINGS):
            longer = np.vstack([K, rows])
            if self.value(longer) < value:
                return longer
            rows = rows / 2
        return K


def minimize(
    problem: Collapse,
    *,
    max_iter: int = 500,
    tol: float = 1e-3,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """Return a metric whose value is within ``tol * max(1, |f|)`` of the minimum.

    Parameters
    ----------
    problem : Collapse
        Problem with a trace penalty.
    max_iter : int
        Maximum number of iterations of all searches together.
    tol : float
        Tolerance of the duality gap.
    start : ndarray of shape (k, r), optional
        Initial L. By default, the directions that separate the classes best.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `x` is L (k, r), without directions that M does not use.
    """
    A = problem.scaling()
    search = RowSearch(problem, A, max_iter, report)
    if start is None:
        K = first_rows(problem, A)
    else:
        K = start @ inv(A)
    if len(problem.rows.X) >= SINGLE_ROWS:
        # most of the way in single precision, at half the price; double precision decides
        K = search.improved(K, "float32", SINGLE_FTOL, SINGLE_LOST)
    inner: Inner | None = None

    def gap(L: Array, f: float, G: Array) -> float:
        if inner is None:
            return np.inf
        return problem.gap_towards(inner, L, f, G)

    ftol = DOUBLE_FTOL * tol
    for _ in range(MAX_ROUNDS):
        K = search.improved(K, "float64", max(ftol, MIN_FTOL), DOUBLE_LOST)
        L = K @ A
        f, G = problem(L)
        # A G A = df/d(K' K), (r, r), has no negative eigenvalue at the optimum
        w, V = psd.spectrum(A @ G @ A)
        limit = tol * max(1.0, abs(f))
        if gap(L, f, G) > limit:
            inner = found_near(problem, K, w)
        if gap(L, f, G) <= limit or search.left <= 0:
            break
        # directions along which f falls, which the rows of K do not reach
        K = search.with_new_rows(K, w, V)
        ftol = FTOL_FACTOR * ftol

    history = np.array(search.history)
    found = certified_psd.finished(problem, gap, K @ A, len(history), tol, history)
    if found.converged or search.left <= 0:
        return found
    last = certified_psd.minimize(
        problem, gap, A, max_iter=search.left, tol=tol, start=found.x, report=later(report, len(history))
    )
    both = np.concatenate([history, np.asarray(last.history)])
    return certified_psd.finished(problem, gap, last.x, len(both), tol, both)


def later(report: Report | None, done: int) -> Report | None:
    """Return a function that reports iterations with numbers that continue after `done`."""
    if report is None:
        return None
    return lambda k, value, rest: report(done + k, value, rest)


def first_rows(problem: Collapse, A: Array) -> Array:
    """Return the K (k, r) of the directions that separate the classes best, with the trace of K = I, K' K (r, r)."""
    back = inv(A)
    k = min(FIRST_ROWS, len(A))
    U = psd.gevd(scatter.total(problem.rows.X), back @ back, k)[1]
    return np.sqrt(len(A) / k) * U.T @ back


def found_near(problem: Collapse, K: Array, w: Array) -> Inner | None:
    """Return an inner dual point from a search that starts near K; w (r,) are the eigenvalues of A G A.

    At the optimum with the barrier -t log det, G = t M^-1: in a direction that M does not use without the barrier,
    and in which G has the eigenvalue g, M has the eigenvalue t / g.
    """
    t = BARRIER_SHARE * float(problem.weight.sum()) / len(w)
    added = BARRIER_START * t / max(float(np.median(np.abs(w))), 1e-300)
    lengths, V = psd.spectrum(K.T @ K + added * np.eye(len(w)))
    return problem.found_inside((V * np.sqrt(lengths)) @ V.T, BARRIER_SHARE)
