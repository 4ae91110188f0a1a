"""The search of the neighborhood methods: maximize F - ridge, where F is a sum over neighbor probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...fit_warnings import warn
from ...numerics import checks, gradient_descent
from ...numerics.constraints import generator
from ...numerics.optimize import Report, Solution, lbfgs, one_thread
from ...numerics.types import Array, Ints, Seed
from .. import neighbor_softmax
from ..neighbor_softmax import AnchorBlock, SortedRows

FINE = 5  # iterations in float64 after a search in float32
STILL = 1e-2  # relative change of the components, up to scale, below which a search has not moved
WHOLE_NUMBER_TOL = 1e-3  # distance of a sum of probabilities from a whole number below which each is 0 or 1
VANISHED = 1e-8  # relative distance from the objective at L = 0 below which the components count as 0
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


def warned_if_stuck(found: Solution, L0: Array, n: float, kind: str, ridge: Ridge, terms: Terms) -> Solution:
    """Return the solution; warn if the search stays at its start because the kernel is too narrow or too wide there.

    If it is too narrow for a search for accuracy, all probabilities are 0 or 1, so that their sum is an integer and the
    gradient is 0 (unlike the gradient of the log-probabilities). If the neighbor of every row is of its class, there is
    nothing left to learn, and no warning. If it is too wide, F is what it is at L = 0.
    """
    # compare directions only, because a ridge alone shortens L
    if L0.any():
        kept = float(np.vdot(found.x, L0)) / float(np.vdot(L0, L0))
    else:
        kept = 0.0
    stays = float(np.linalg.norm(found.x - kept * L0)) <= STILL * float(np.linalg.norm(found.x))
    if not stays:
        return found
    right = found.value + ridge(found.x)[0]
    if not ridge.weight and abs(right - terms(np.zeros_like(L0))[0]) <= VANISHED * n:
        cause = "rows are too close together for a kernel of unit width, so that all are equally likely neighbors"
    elif kind == "accuracy" and right < n - 0.5 and abs(right - round(right)) < WHOLE_NUMBER_TOL:
        cause = "rows are too far apart for a kernel of unit width, so that each has only one neighbor"
    else:
        return found
    hint = 'scale the features, or set init_scale="median" if the learner has it'
    warn(f"the search stays at its start, because {cause}; {hint}")
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
    """Find components over all pairs of rows; with "float32", search in float32 and end with a few steps in float64.

    A `warm` start is the result of another search, so no warning is given if this search stays there.
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
        return warned_if_stuck(found, L0, settings["n"], kind, ridge, dense(rows, kind, weight))
    coarse = search(L0, dtype, max(1, max_iter - FINE), max(tol, 1e-5))
    fine = search(coarse.x, "float64", max(1, min(FINE, max_iter - coarse.n_iter)), max(tol, 1e-5))
    if not warm:
        fine = warned_if_stuck(fine, L0, settings["n"], kind, ridge, dense(rows, kind, weight))
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

    step = gradient_descent.step_length(L0)
    found = gradient_descent.descend(on_batch, epoch, L0, step=step, max_iter=max_iter, tol=tol, report=report)
    terms = dense(rows, kind, weight)
    value = negative(found.x, terms, ridge, n)[0]
    found = in_sums(found.with_x(found.x, objective=value), terms, ridge, n)
    if warm:
        return found
    return warned_if_stuck(found, L0, n, kind, ridge, terms)
