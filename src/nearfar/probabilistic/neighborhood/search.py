"""The search of the neighborhood methods: maximize F - ridge, where F is a sum over neighbor probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...fit_warnings import warn
from ...numerics import checks, gradient_descent, initialization
from ...numerics.constraints import generator
from ...numerics.optimize import Report, Solution, lbfgs, one_thread
from ...numerics.types import Array, Ints, Seed
from .. import neighbor_softmax
from ..neighbor_softmax import AnchorBlock, SortedRows

FINE = 5  # iterations in float64 after a search in float32
STILL = 0.15  # relative change of the components, up to scale, below which a search has not moved
WHOLE_NUMBER_TOL = 1e-3  # distance of a sum of probabilities from a whole number below which each is 0 or 1
VANISHED = 1e-8  # relative distance from the objective at L = 0 below which the components count as 0
TOO_WIDE = "rows are too close together for a kernel of unit width, so that all are equally likely neighbors"
TOO_NARROW = "rows are too far apart for a kernel of unit width, so that each has only one neighbor"
NO_GRADIENT = "the gradient is too small there"
Terms = Callable[[Array], tuple[float, Array]]  # L -> F, dF/dL


class Ridge(NamedTuple):
    """The penalty weight tr(L shape L'), where a `shape` of None is the identity."""

    weight: float = 0.0
    shape: Array | None = None

    def __call__(self, L: Array) -> tuple[float, Array]:
        """Return weight tr(L shape L') and its gradient 2 weight L shape."""
        shaped = L
        if self.shape is not None:
            shaped = L @ self.shape
        return self.weight * float(np.vdot(L, shaped)), 2 * self.weight * shaped


NO_RIDGE = Ridge()


def kernel_ridge(reg: float | None, norm: str, n: int, basis: Array | None) -> Ridge:
    """Return the ridge of a kernel method as one on L (k, r), with T = basis L' (m, k).

    Parameters
    ----------
    reg : float or None
        Weight, at least 0. If None, 1e-3 n for n rows.
    norm : {"rkhs", "coef"}
        What is penalized: tr(T' K T), which is |L|^2, or |T|^2 = tr(L basis' basis L').
    n : int
        Number of rows.
    basis : ndarray of shape (m, r)
        Basis of the kernel map of m landmarks.
    """
    checks.one_of(("rkhs", "coef"), reg_norm=norm)
    weight = 1e-3 * n if reg is None else reg
    checks.at_least(0, reg=weight)
    if norm == "rkhs":
        return Ridge(weight)
    assert basis is not None
    return Ridge(weight, basis.T @ basis)


def negative(L: Array, terms: Terms, ridge: Ridge, n: float) -> tuple[float, Array]:
    """Return (ridge - F) / n and its gradient."""
    F, gradient = terms(L)
    if not ridge.weight:
        return -F / n, gradient / -n
    value, slope = ridge(L)
    return (value - F) / n, (slope - gradient) / n


def dense(rows: SortedRows, kind: str, weight: Array, blocks: Iterable[AnchorBlock] | None = None) -> Terms:
    """Return F, as a function of L, over all pairs of rows, or over the anchors of some blocks and all rows."""
    X = rows.X
    sizes = rows.sizes

    def terms(L: Array) -> tuple[float, Array]:
        Z = X @ L.T.astype(X.dtype)  # (n, k)
        if X.shape[1] < 2 * len(L):
            # dF/dL = 2 L dF/dM: two products per block, of width d; else 2 U' X: three products, of width k
            F, G = neighbor_softmax.neighbor_metric(Z, X, sizes, kind, weight, blocks=blocks)
            return F, 2.0 * L @ G
        F, U = neighbor_softmax.neighbor_sums(Z, sizes, kind, weight, blocks=blocks)
        return F, 2.0 * (U.T @ X).astype(np.float64)

    return terms


def of_rows(L: Array, X: Array, labels: Ints, kind: str, ridge: Ridge) -> tuple[float, Array]:
    """Return F - ridge over all pairs of some rows, and its gradient divided by the number of anchors."""
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
        Function that takes L and returns (F, dF/dL).
    n : float
        Number of anchors. The search maximizes F / n, to which `tol` refers.
    patience : int
        Number of iterations whose joint gain `tol` bounds.
    """
    with one_thread():
        found = lbfgs(
            lambda L: negative(L, terms, ridge, n),
            L0,
            # F is not concave: an iteration may gain little before the next one gains much
            stop=gradient_descent.Stalls(tol, patience),
            max_iter=max_iter,
            tol=1e-3 * tol,
            report=report,
        )
    return in_sums(found, terms, ridge, n)


def in_sums(found: Solution, terms: Terms, ridge: Ridge, n: float) -> Solution:
    """Return the solution with the maximized sum as its objective; warn if a ridge has driven L to 0."""
    if ridge.weight:
        at_zero = negative(np.zeros_like(found.x), terms, ridge, n)[0]
        if abs(found.value - at_zero) <= VANISHED * max(1.0, abs(at_zero)):
            warn("reg is so large that all components become 0; use a smaller reg")
    return found.times(-n)


def moves(x: Array, x0: Array) -> bool:
    """Return whether a search from x0 has led to other directions x; a ridge alone, which shortens x0, does not."""
    kept = 0.0
    if x0.any():
        # the multiple of x0 that is nearest to x
        kept = float(np.vdot(x, x0)) / float(np.vdot(x0, x0))
    return float(np.linalg.norm(x - kept * x0)) > STILL * float(np.linalg.norm(x))


def standstill(found: Solution, L0: Array, n: float, kind: str, ridge: Ridge, terms: Terms) -> str:
    """Return why the search stays at its start: the kernel is too narrow or too wide there; "" if it does not stay.

    If it is too narrow for a search for accuracy, all probabilities are 0 or 1, so that their sum is an integer and the
    gradient is 0 (unlike the gradient of the log-probabilities). If the neighbor of every row is of its class, there is
    nothing left to learn, and "" is returned. If it is too wide, F is what it is at L = 0. A gradient that is small for
    another reason, such as rows of a kernel in a small unit, leaves the search exactly at its start.
    """
    if moves(found.x, L0):
        return ""
    right = found.value + ridge(found.x)[0]
    if not ridge.weight and abs(right - terms(np.zeros_like(L0))[0]) <= VANISHED * n:
        return TOO_WIDE
    if kind == "accuracy" and right < n - 0.5 and abs(right - round(right)) < WHOLE_NUMBER_TOL:
        return TOO_NARROW
    if right < n - 0.5 and np.array_equal(found.x, L0):
        return NO_GRADIENT
    return ""


def search_off_start(
    search: Callable[[Array], Solution], cause: Callable[[Solution, Array], str], L0: Array, X: Array
) -> Solution:
    """Search from L0, or if the search cannot leave it, from L0 in the scale of the distances between the rows X.

    Parameters
    ----------
    search : callable
        Function that takes a start and returns what is found from there.
    cause : callable
        Function that takes what was found and its start, and returns why the search has stayed there, or "".
    L0 : ndarray of shape (k, d)
        First start.
    X : ndarray of shape (n, d)
        Rows.

    Returns
    -------
    Solution
        It has not converged if the search leaves neither start.
    """
    found = search(L0)
    if not cause(found, L0):
        return found
    L0 = initialization.median_scaled(X, L0)
    found = search(L0)
    why = cause(found, L0)
    if not why:
        return found
    return replace(found, converged=False, message=f"the search stays at its start, because {why}; scale the features")


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
    """Find components over all pairs of rows; with "float32", search in float32 and end with a few steps in float64.

    A `warm` start is the result of another search, at which this search may stay.
    """
    weight = rows.weight
    settings: dict[str, Any] = {"ridge": ridge, "n": float(weight.sum()), "report": report}

    def search_in(dtype: str, L: Array, max_iter: int, tol: float, **more: Any) -> Solution:
        return maximize(dense(rows.astype(dtype), kind, weight), L, max_iter=max_iter, tol=tol, **settings, **more)

    def search(L: Array) -> Solution:
        if dtype == "float64":
            return search_in("float64", L, max_iter, tol, patience=patience)
        coarse = search_in("float32", L, max(1, max_iter - FINE), max(tol, 1e-5))
        fine = search_in("float64", coarse.x, max(1, min(FINE, max_iter - coarse.n_iter)), max(tol, 1e-5))
        return in_two_precisions(coarse, fine)

    if warm:
        return search(L0)
    terms = dense(rows, kind, weight)
    return search_off_start(
        search, lambda found, L: standstill(found, L, settings["n"], kind, ridge, terms), L0, rows.X
    )


def in_two_precisions(coarse: Solution, fine: Solution) -> Solution:
    """Return the result of a search in float32 and of the steps in float64 that end it as that of one search."""
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
    """Find components by steps of Adam on `batch_size` anchors among all rows; each gradient is unbiased."""
    rows = rows.astype(dtype)
    weight = rows.weight
    rng = generator(seed)
    n = float(weight.sum())
    # at least eight blocks per batch, so that the batches differ from epoch to epoch
    height = max(1, min(neighbor_softmax.height(len(rows.X)), batch_size // 8))
    blocks = list(neighbor_softmax.cut(rows.sizes, height))

    def epoch() -> Iterator[list[AnchorBlock]]:
        return neighbor_softmax.batches(blocks, batch_size, rng)

    def on_batch(L: Array, batch: list[AnchorBlock]) -> tuple[float, Array]:
        # the batch holds this share of the anchors, and gets the same share of the ridge
        share = sum(weight[block.start : block.stop].sum() for block in batch) / n
        part_of_ridge = ridge._replace(weight=ridge.weight * share)
        return negative(L, dense(rows, kind, weight, batch), part_of_ridge, n)

    terms = dense(rows, kind, weight)

    def search(L: Array) -> Solution:
        step = gradient_descent.step_length(L)
        found = gradient_descent.descend(on_batch, epoch, L, step=step, max_iter=max_iter, tol=tol, report=report)
        value = negative(found.x, terms, ridge, n)[0]
        return in_sums(found.with_x(found.x, objective=value), terms, ridge, n)

    if warm:
        return search(L0)
    return search_off_start(search, lambda found, L: standstill(found, L, n, kind, ridge, terms), L0, rows.X)
