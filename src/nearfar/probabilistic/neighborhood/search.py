"""The neighborhood methods' search: sums over neighbor probabilities, less a ridge, made as large as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...fit_warnings import warn
from ...numerics import gradient_descent
from ...numerics.constraints import generator
from ...numerics.optimize import Report, Solution, lbfgs, one_thread
from ...numerics.types import Array, Ints, Seed
from .. import neighbor_softmax
from ..neighbor_softmax import AnchorBlock, SortedRows

FINE = 5  # iterations in float64 after a search in float32
STILL = 1e-2  # relative change of components, apart from their length, below which a search has not moved
WHOLE_NUMBER_TOL = 1e-3  # distance of a sum of probabilities from a whole number below which each is 0 or 1
VANISHED = 1e-8  # relative distance from the objective at L = 0 below which components are as good as 0
Terms = Callable[[Array], tuple[float, Array]]  # L -> F, dF/dL


class Ridge(NamedTuple):
    """The penalty weight tr(L shape L'), where a `shape` of None is the identity."""

    weight: float = 0.0
    shape: Array | None = None

    def __call__(self, L: Array) -> tuple[float, Array]:
        """Value and gradient."""
        turned = L if self.shape is None else L @ self.shape
        return self.weight * float(np.vdot(L, turned)), 2 * self.weight * turned


NO_RIDGE = Ridge()


def negative(L: Array, terms: Terms, ridge: Ridge, n: float) -> tuple[float, Array]:
    """(ridge - F) / n and its gradient."""
    F, gradient = terms(L)
    if not ridge.weight:
        return -F / n, gradient / -n
    value, slope = ridge(L)
    return (value - F) / n, (slope - gradient) / n


def dense(rows: SortedRows, kind: str, weight: Array, blocks: Iterable[AnchorBlock] | None = None) -> Terms:
    """F over all pairs of rows, or over the blocks' anchors and all rows."""
    X = rows.X
    sizes = rows.sizes

    def terms(L: Array) -> tuple[float, Array]:
        Z = X @ L.T.astype(X.dtype)
        if X.shape[1] < 2 * len(L):
            F, G = neighbor_softmax.neighbor_metric(Z, X, sizes, kind, weight, blocks=blocks)
            return F, 2.0 * L @ G
        F, U = neighbor_softmax.neighbor_sums(Z, sizes, kind, weight, blocks=blocks)
        return F, 2.0 * (U.T @ X).astype(np.float64)

    return terms


def of_rows(L: Array, X: Array, labels: Ints, kind: str, ridge: Ridge) -> tuple[float, Array]:
    """F - ridge over all pairs of some rows, and its gradient divided by the number of anchors."""
    rows = neighbor_softmax.sorted_rows(X, labels)
    n = float(rows.weight.sum())
    value, gradient = negative(L, dense(rows, kind, rows.weight), ridge, n)
    return -n * value, -gradient


def maximize(
    terms: Terms,
    L0: Array,
    *,
    ridge: Ridge,
    n: float,
    max_iter: int,
    tol: float,
    patience: int = 1,
    report: Report | None = None,
) -> Solution:
    """Find components at a maximum of F - ridge.

    Parameters
    ----------
    terms : callable
        L -> (F, dF/dL).
    n : float
        Number of anchors: the search works on F / n, and `tol` is on that.
    patience : int
        The iterations that `tol` is on, together.
    """
    with one_thread():
        found = lbfgs(
            lambda L: negative(L, terms, ridge, n),
            L0,
            stop=gradient_descent.Stalls(tol, patience),
            max_iter=max_iter,
            tol=1e-3 * tol,
            report=report,
        )
    return in_sums(found, terms, ridge, n)


def in_sums(found: Solution, terms: Terms, ridge: Ridge, n: float) -> Solution:
    """Return the solution with its objective as the maximized sum; warn if under a ridge it is that of L = 0."""
    if ridge.weight:
        at_zero = negative(np.zeros_like(found.x), terms, ridge, n)[0]
        if abs(found.value - at_zero) <= VANISHED * max(1.0, abs(at_zero)):
            warn("reg is so large that the components vanish; use a smaller reg")
    return found.times(-n)


def warned_if_stuck(found: Solution, L0: Array, n: float, kind: str, ridge: Ridge) -> Solution:
    """Return the solution; warn if a search for accuracy stays at its start because each row has one neighbor there.

    Then all probabilities are 0 or 1, so that their sum is a whole number and the gradient vanishes (the gradient of
    log-probabilities does not). If every row's neighbor is of its class, nothing was left to learn.
    """
    # a ridge alone makes L shorter
    if L0.any():
        kept = float(np.vdot(found.x, L0)) / float(np.vdot(L0, L0))
    else:
        kept = 0.0
    stays = float(np.linalg.norm(found.x - kept * L0)) <= STILL * float(np.linalg.norm(found.x))
    right = found.value + ridge(found.x)[0]
    if kind == "accuracy" and stays and right < n - 0.5 and abs(right - round(right)) < WHOLE_NUMBER_TOL:
        message = (
            "the search stays at its start: rows lie too far apart for a kernel of unit width, each has one neighbor"
        )
        warn(f'{message}; scale the features, or the start (init_scale="median") where the learner can')
    return found


def maximize_dense(
    rows: SortedRows,
    kind: str,
    L0: Array,
    *,
    ridge: Ridge,
    max_iter: int,
    tol: float,
    dtype: str = "float64",
    patience: int = 1,
    report: Report | None = None,
    warm: bool = False,
) -> Solution:
    """Find components over all pairs of rows; with "float32", search in float32 and end with few steps in float64.

    A `warm` start is the result of another search, so this search may rightly end where it begins.
    """
    weight = rows.weight
    settings: dict[str, Any] = {"ridge": ridge, "n": float(weight.sum()), "report": report}

    def search(L: Array, dtype: str, max_iter: int, tol: float) -> Solution:
        return maximize(dense(rows.astype(dtype), kind, weight), L, max_iter=max_iter, tol=tol, **settings)

    if dtype == "float64":
        settings["patience"] = patience
        found = search(L0, dtype, max_iter, tol)
        if warm:
            return found
        return warned_if_stuck(found, L0, settings["n"], kind, ridge)
    coarse = search(L0, dtype, max(1, max_iter - FINE), max(tol, 1e-5))
    fine = search(coarse.x, "float64", max(1, min(FINE, max_iter - coarse.n_iter)), max(tol, 1e-5))
    if warm:
        fine = fine
    else:
        fine = warned_if_stuck(fine, L0, settings["n"], kind, ridge)
    history = np.concatenate([coarse.history, fine.history])
    spent = coarse.n_iter + fine.n_iter
    converged = coarse.converged or fine.converged
    if converged:
        message = ""
    else:
        message = f"{fine.message}, after {coarse.n_iter} in float32"
    return fine.with_x(fine.x, n_iter=spent, history=history, converged=converged, message=message)


def maximize_in_batches(
    rows: SortedRows,
    kind: str,
    L0: Array,
    *,
    batch_size: int,
    ridge: Ridge,
    max_iter: int,
    tol: float,
    dtype: str = "float64",
    seed: Seed = None,
    report: Report | None = None,
    warm: bool = False,
) -> Solution:
    """Find components by steps on `batch_size` anchors among all rows; each step's gradient is right on average."""
    rows, weight, rng = rows.astype(dtype), rows.weight, generator(seed)
    n = float(weight.sum())
    blocks = list(neighbor_softmax.cut(rows.sizes, max(1, min(neighbor_softmax.height(len(rows.X)), batch_size // 8))))

    def epoch() -> Iterator[list[AnchorBlock]]:
        return neighbor_softmax.batches(blocks, batch_size, rng)

    def on_batch(L: Array, batch: list[AnchorBlock]) -> tuple[float, Array]:
        share = sum(weight[block.start : block.stop].sum() for block in batch) / n
        return negative(L, dense(rows, kind, weight, batch), ridge._replace(weight=ridge.weight * share), n)

    step = gradient_descent.step_length(L0)
    found = gradient_descent.descend(on_batch, epoch, L0, step=step, max_iter=max_iter, tol=tol, report=report)
    terms = dense(rows, kind, weight)
    value = negative(found.x, terms, ridge, n)[0]
    found = in_sums(found.with_x(found.x, objective=value), terms, ridge, n)
    return found if warm else warned_if_stuck(found, L0, n, kind, ridge)
