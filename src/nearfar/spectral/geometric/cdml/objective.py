"""Searches for curves by squared hinges on the squared distances of pairs along them, all at once or in batches.

When curves begin to bend, the nearest points of some rows jump to distant branches, and the value jumps as well. No
line search gets past a jump, even at the beginning. The best straight lines are therefore found first, because nothing
jumps there, and steps of Adam lead past the jumps that end a search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ....numerics import checks, gradient_descent, psd, scatter
from ....numerics.constraints import Pairs, generator
from ....numerics.optimize import Report, Solution, lbfgs, stopped
from ....numerics.pair_differences import PairList
from ....numerics.types import AnyArray, Array, Ints, Seed
from . import curves

LARGE = 1_000_000  # nearest points per evaluation above which batches are used
PASSING = 50  # steps of Adam to get past a jump
ADAM_STEP_SHARE = 0.2  # length of these steps, as a share of the usual one
FALL = 0.01  # the search continues if the value decreases by at least this share from jump to jump
LINE_SEARCH_TRIES = 8  # steps of a line search: if all of them meet jumps, shorter ones would as well
BEND = 1e-2  # size of the higher coefficients of a start, as a share of the linear ones


def check_margins(margins: Any) -> tuple[float, float]:
    """Return the margins (near, far); raise a ValueError unless 0 <= near < far."""
    needs = "margins must be two numbers, 0 <= near < far"
    found = checks.table(margins, needs)
    if found.shape != (2,) or not np.isfinite(found).all() or not 0 <= found[0] < found[1]:
        raise ValueError(f"{needs}; got {margins!r}")
    return float(found[0]), float(found[1])


def start(X: Array, pairs: Pairs, init: str | AnyArray, m: int, c: int, level: float, seed: Seed) -> Array:
    """Return nearly straight curves (m, d, c) with the mean squared distance `level` between pairs, or the user's."""
    d = X.shape[1]
    if not isinstance(init, str):
        needs = f"init must be a finite array of shape {(m, d, c)}"
        given = checks.table(init, needs)
        if given.shape != (m, d, c) or not np.isfinite(given).all():
            raise ValueError(f"{needs}; got shape {given.shape}")
        return given
    checks.one_of(("pca", "gmml"), init=init)
    if init == "pca":
        L = scatter.axes(X, m)[1].T
    else:
        S, D = scatter.pair_scatters(X, pairs).mean()
        ridge = (0.1 * np.trace(S) / d or 1.0) * np.eye(d)
        # L'L = (S + ridge)^-1 # (D + ridge), the geometric mean of GMML, of which the m longest directions begin the
        # curves
        L = psd.compress(psd.sharp_factor(S + ridge, D + ridge), m)
    listed = PairList(pairs.i, pairs.j, len(X))
    mean = np.average(listed.squared_distances(X @ L.T), weights=pairs.weights[listed.order])
    if mean > 0:
        # squared distances scale with the square of L
        L = L * np.sqrt(level / mean)
    found = BEND * np.sqrt(np.mean(L**2)) * generator(seed).normal(size=(m, d, c))
    found[:, :, 0] = L
    return found


class PlacedPairs(NamedTuple):
    """Some pairs: their weights, limits and signs in the order of the list, and the rows that occur in them."""

    rows: Ints
    listed: PairList
    weight: Array
    limit: Array
    sign: Array


class PairLoss:
    """Mean of w max(0, d^2 - near)^2 over similar and w max(0, far - d^2)^2 over dissimilar pairs, + lam |curves|^2.

    Both sums are divided by the total weight of all pairs of both kinds. The nearest points of an evaluation are the
    guesses for the next one.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    pairs : Pairs
        Pairs of rows.
    margins : (float, float)
        Squared distances (near, far).
    lam : float
        Weight of the penalty.
    """

    def __init__(self, X: Array, pairs: Pairs, margins: tuple[float, float], lam: float) -> None:
        self.X = X
        self.pairs = pairs
        self.lam = lam
        self.limit = np.where(pairs.similar, *margins)
        # both kinds of pairs are divided by one total
        self.weight = pairs.weights / pairs.weights.sum()
        self.curvature = np.inf
        self.whole = self.placed_pairs(np.arange(len(pairs.i)))
        self.guess: Array | None = None

    def placed_pairs(self, batch: Ints) -> PlacedPairs:
        """Return the pairs with these numbers."""
        # the nearest points of only those rows are searched for that occur in the batch
        rows, places = np.unique(np.r_[self.pairs.i[batch], self.pairs.j[batch]], return_inverse=True)
        listed = PairList(places[: len(batch)], places[len(batch) :], len(rows))
        chosen = batch[listed.order]
        return PlacedPairs(rows, listed, self.weight[chosen], self.limit[chosen], self.pairs.sign[chosen])

    def __call__(self, C: Array, batch: Ints | None = None) -> tuple[float, Array]:
        """Return value and gradient, or the share of a batch in them."""
        if batch is None:
            rows, listed, weight, limit, sign = self.whole
        else:
            rows, listed, weight, limit, sign = self.placed_pairs(batch)
        if self.guess is None:
            self.guess = np.zeros((len(C), len(self.X)))
        found = curves.Embedding(C, self.X[rows], self.guess[:, rows])
        self.guess[:, rows] = found.nearest
        # sum_p w_p [s_p (d_p^2 - limit_p)]_+^2, with the derivative 2 w_p [...]_+ s_p with respect to d_p^2
        excess = np.maximum(sign * (listed.squared_distances(found.y) - limit), 0.0)
        slope = 2 * weight * excess * sign
        G = found.pull_back(2 * listed.laplacian_times(slope, found.y))
        self.curvature = found.least_curvature()
        # a batch has its share of the penalty, so that the batches of a pass add up to the whole objective
        share = self.lam * float(weight.sum())
        value = float(weight @ excess**2) + share * float(np.sum(C**2))
        return value, G + 2 * share * C


class Best:
    """Loss that remembers the best curves at which it was evaluated.

    Parameters
    ----------
    loss : PairLoss
        Loss to evaluate.
    C : ndarray of shape (m, d, c)
        First curves.
    """

    def __init__(self, loss: PairLoss, C: Array) -> None:
        self.loss = loss
        self.C = C
        self.value = loss(C)[0]

    def __call__(self, C: Array) -> tuple[float, Array]:
        value, gradient = self.loss(C)
        if value < self.value:
            self.C = C.copy()
            self.value = value
        return value, gradient


def minimize(
    X: Array,
    pairs: Pairs,
    C: Array,
    margins: tuple[float, float],
    lam: float,
    *,
    straight: bool = False,
    solver: str = "auto",
    batch_size: int = 1024,
    seed: Seed = None,
    max_iter: int = 200,
    tol: float = 1e-5,
    report: Report | None = None,
) -> Solution:
    """Search from the curves C (m, d, c), or with `straight` from the best lines near their linear coefficients."""
    loss = PairLoss(X, pairs, margins, lam)
    if solver == "auto":
        if len(np.unique(np.r_[pairs.i, pairs.j])) * len(C) > LARGE:
            solver = "adam"
        else:
            solver = "lbfgs"
    best = Best(loss, C)
    spent = 0
    if straight and C.shape[2] > 1 and max_iter > 1:
        lines = lbfgs(loss, C[:, :, :1], max_iter=max_iter // 2, tol=tol, report=report)
        # the bends keep their size relative to the lines
        bends = C[:, :, 1:] * np.sqrt(np.mean(lines.x**2) / (np.mean(C[:, :, :1] ** 2) or 1.0))
        best = Best(loss, np.concatenate([lines.x, 0 * bends], axis=2))
        spent = lines.n_iter
        C = np.concatenate([lines.x, bends], axis=2)
    if solver == "lbfgs":
        found = past_jumps(best, C, max_iter=max_iter - spent, tol=tol, report=report)
    else:
        rng = generator(seed)
        m = len(pairs.i)

        def batches() -> Iterator[Ints]:
            order = rng.permutation(m)
            return iter(np.array_split(order, -(-m // batch_size)))

        step = gradient_descent.step_length(C[:, :, 0])
        found = gradient_descent.descend(loss, batches, C, step=step, max_iter=max_iter - spent, tol=tol, report=report)
    best(found.x)
    value = loss(best.C)[0]
    message = found.message
    if message and spent:
        message = f"{message}, after {spent} iterations on straight lines"
    changes = {"n_iter": spent + found.n_iter, "attributes": {"curvature": loss.curvature}}
    return found.with_x(best.C, objective=value, message=message, **changes)


def past_jumps(best: Best, C: Array, *, max_iter: int, tol: float, report: Report | None) -> Solution:
    """Run L-BFGS from C; if a jump ends it, continue from the best curves that some steps of Adam find beyond the jump.

    The search has converged if the gradient vanishes, or if jumps end it twice with little decrease in between.
    """
    spent = 0
    settled = False
    ended = np.inf
    history = [best.value]
    while spent < max_iter and not settled:
        found = lbfgs(best, C, max_iter=max_iter - spent, tol=tol, report=report, tries=LINE_SEARCH_TRIES)
        spent += found.n_iter
        if found.history is not None:
            history.extend(found.history)
        # a second jump soon after the first: the search is as good as it gets
        settled = found.converged or ended - best.value <= FALL * max(1.0, best.value)
        if not settled:
            ended = best.value
            C = best.C
            adam = gradient_descent.Adam(ADAM_STEP_SHARE * gradient_descent.step_length(best.C[:, :, 0]))
            for k in range(min(PASSING, max_iter - spent)):
                value, gradient = best(C)
                # steps that decrease to 0, so that the last ones end in the valley beyond the jump
                C = adam(C, gradient, (1 + np.cos(np.pi * k / PASSING)) / 2)
                history.append(value)
                spent += 1
            C = best.C
    slope = float(np.abs(best(best.C)[1]).max())
    if settled:
        message = ""
    else:
        message = stopped("the search", spent, "gradient", slope, tol)
    return Solution(
        x=best.C,
        objective=best.value,
        n_iter=spent,
        converged=settled,
        message=message,
        history=np.minimum.accumulate(history),
    )
