"""The log-probability of similar neighbors under diag(gamma), gamma >= 0, and two methods that maximize it.

    F(gamma) = sum_i [ log sum_{j in S_i} e_ij - log sum_{j in S_i or D_i} e_ij ],  e_ij = exp(-gamma' w_ij)

with w_ij the squared differences of rows i and j per direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....numerics import gradient_descent
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Report, Solution, lbfgs, stopped
from ....numerics.types import Array
from ... import neighbor_softmax
from .. import listed_softmax

INNER = 50  # most iterations on one lower bound


class Likelihood(NamedTuple):
    """F over n anchors; `sums(gamma, kind)` returns the sum of this kind of `neighbor_softmax` and its gradient."""

    sums: Callable[[Array, str], tuple[float, Array]]
    n: float

    def negative(self, gamma: Array) -> tuple[float, Array]:
        """Return -F / n and its gradient."""
        F, gradient = self.sums(gamma, "log")
        return -F / self.n, -gradient / self.n


def likelihood(
    Y: Array, pairs: Pairs | LabelPairs, neighbors: int | None = None, near: Array | None = None
) -> Likelihood:
    """Return F for rows Y (n, k) over listed pairs, all pairs that labels imply, or the nearest of both kinds.

    The nearest rows are found by the Euclidean distances of `near` (n, q), by default Y.
    """
    if isinstance(pairs, LabelPairs):
        rows = neighbor_softmax.sorted_rows(Y, pairs.labels)
        if neighbors is None:
            return all_pairs(rows)
        labels = np.repeat(np.arange(len(rows.sizes)), rows.sizes)
        searched = rows.X if near is None else near[rows.order]
        found = listed_softmax.nearest_lists(searched, labels, neighbors, "neighbors")
        return of_lists(rows.X, found)
    i = np.concatenate([pairs.i, pairs.j])
    j = np.concatenate([pairs.j, pairs.i])
    return of_lists(Y, listed_softmax.lists(i, j, np.tile(pairs.similar, 2), len(Y)))


def all_pairs(rows: neighbor_softmax.SortedRows) -> Likelihood:
    """Return F over all other rows, in blocks."""

    def sums(gamma: Array, kind: str) -> tuple[float, Array]:
        Z = rows.X * np.sqrt(gamma)  # dF/dgamma is the diagonal of dF/dM
        F, G = neighbor_softmax.neighbor_metric(Z, rows.X, rows.sizes, kind, rows.weight)
        return F, np.diagonal(G)

    return Likelihood(sums, float(rows.weight.sum()))


def of_lists(Y: Array, lists: listed_softmax.Lists) -> Likelihood:
    """Return F over listed rows."""

    def sums(gamma: Array, kind: str) -> tuple[float, Array]:
        F, U = listed_softmax.neighbor_sums(Y * np.sqrt(gamma), lists, kind, moments=Y)
        return F, np.einsum("nk,nk->k", Y, U)

    return Likelihood(sums, float(lists.weight.sum()))


def directly(F: Likelihood, gamma: Array, *, max_iter: int, tol: float, report: Report | None = None) -> Solution:
    """Run L-BFGS on gamma >= 0, and not on its square roots, which could not leave 0 again."""
    stop = gradient_descent.hardly_changes(tol)
    tol = 1e-3 * tol
    found = lbfgs(F.negative, gamma, bounds=(0.0, None), stop=stop, max_iter=max_iter, tol=tol, report=report)
    return found.times(-F.n)


def by_bounds(F: Likelihood, gamma: Array, *, max_iter: int, tol: float, report: Report | None = None) -> Solution:
    """Repeatedly maximize a concave lower bound that touches F at the current gamma.

    With phi_i the softmax over S_i at the current gamma, F >= sum_i [-sum_j phi_ij gamma' w_ij + H(phi_i)
    - log sum e_ij], the sum of a linear and a concave function of gamma.
    """
    history = [F.sums(gamma, "log")[0]]
    for k in range(1, max_iter + 1):
        pull = F.sums(gamma, "normalizer")[1] - F.sums(gamma, "log")[1]  # sum_ij phi_ij w_ij, (k,)
        gamma = lbfgs(bound(F, pull), gamma, max_iter=INNER, tol=1e-3 * tol, bounds=(0.0, None)).x
        history.append(F.sums(gamma, "log")[0])
        rise = (history[-1] - history[-2]) / F.n
        if report is not None:
            report(k, history[-1], rise)
        if rise <= tol:
            return Solution(gamma, history[-1], k, history=np.array(history))
    message = stopped("bound maximization", max_iter, "rise per row", rise, tol)
    return Solution(
        x=gamma, objective=history[-1], n_iter=max_iter, converged=False, message=message, history=np.array(history)
    )


def bound(F: Likelihood, pull: Array) -> Callable[[Array], tuple[float, Array]]:
    """Return the negative lower bound, up to a constant, as a function of gamma; `pull` is sum_ij phi_ij w_ij."""

    def negative(gamma: Array) -> tuple[float, Array]:
        value, gradient = F.sums(gamma, "normalizer")
        return (float(pull @ gamma) - value) / F.n, (pull - gradient) / F.n

    return negative
