"""Large margins as a semi-definite program, by an interior-point solver over a growing set of triplets.

    min_{M PSD, xi >= 0}  (1 - mu) <M, C> + mu sum_t xi_t (or xi_t^2)    s.t.  <M, A_t> >= 1 - xi_t

The first program holds the nearest impostor of each pull. Then the triplets that the solution violates are added, until
it violates none: this is the optimum over all triplets, certified by the multipliers up to the solver's accuracy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse

from ....numerics import psd
from ....numerics.optimize import Report, Solution, stopped
from ....numerics.types import Array, Ints
from .objective import Graph, Hinge, LargeMargin

MAX_TRIPLETS = 20_000  # triplets
MAX_SDP_FEATURES = 60  # features
VIOLATED = 1e-7  # triplets with a larger hinge are added to the program


def solve(
    problem: LargeMargin, L0: Array, *, max_iter: int = 50, tol: float = 1e-6, report: Report | None = None
) -> Solution:
    """Return L (d, d) of the smallest f; impostors are first searched at L0.

    Raises
    ------
    ValueError
        Too many features or triplets.
    ImportError
        The solver is not installed.
    """
    if problem.X.shape[1] > MAX_SDP_FEATURES:
        raise ValueError(
            f'solver="sdp" takes up to {MAX_SDP_FEATURES} features; got {problem.X.shape[1]}; use solver="lbfgs"'
        )
    L = L0
    known = np.zeros((0, 3), dtype=np.intp)
    spent = 0
    history = []
    bare = Hinge(problem.squared)
    bound = -np.inf
    while spent < max_iter:
        edges = problem.scan(L)
        # a cutting plane for each triplet whose hinge is positive at the last solution
        fresh = violated(problem, L, edges, first=spent == 0)
        before = len(known)
        known = np.unique(np.concatenate([known, fresh]), axis=0)
        if spent and len(known) == before:
            # the next program, and with it the gap, would be the same
            break
        history.append(problem.value(L, edges, bare))
        if len(known) > MAX_TRIPLETS:
            raise ValueError(
                f'solver="sdp" takes up to {MAX_TRIPLETS} triplets; these rows need {len(known)}; use solver="lbfgs"'
            )
        M, slopes = program(problem, known)
        L = psd.components(M)
        spent = spent + 1
        bound = max(bound, lower(problem, known, slopes, bare))
        value = problem.value(L, problem.scan(L), bare)
        gap = max(value - bound, 0.0)
        if report is not None:
            report(spent, value, gap)
        if gap <= tol * max(1.0, value):
            return Solution(
                x=L,
                objective=value,
                n_iter=spent,
                converged=True,
                message="",
                duality_gap=gap,
                history=np.array([*history, value]),
            )
    message = stopped("cutting planes", spent, "duality gap", gap, tol * max(1.0, value))
    return Solution(
        x=L,
        objective=value,
        n_iter=spent,
        converged=False,
        message=message,
        duality_gap=gap,
        history=np.array([*history, value]),
    )


def violated(problem: LargeMargin, L: Array, edges: Graph, first: bool) -> Ints:
    """Return triplets (i, j, l) with a positive hinge at L; in the first round, only the largest of each pull."""
    square = edges.squares(problem.X @ L.T)
    u = np.concatenate([np.zeros(0), *(u.T.ravel() for _, u in problem.margins(square, edges))])
    near = edges.near
    if near.target is None:
        pull = (near.i[:, None] * problem.k + np.arange(problem.k)).ravel()
        l = np.repeat(near.l, problem.k)
    else:
        pull = near.target
        l = near.l
    keep = u > VIOLATED
    u = u[keep]
    pull = pull[keep]
    l = l[keep]
    if first:
        # by pull, and of each pull the largest hinge first
        order = np.lexsort((-u, pull))
        order = order[np.unique(pull[order], return_index=True)[1]]
        pull = pull[order]
        l = l[order]
    return np.stack([problem.i[pull], problem.j[pull], l], axis=1)


def outer_products(X: Array, triplets: Ints) -> Array:
    """Return svec(A_t), shape (t, d (d + 1) / 2).

    It holds the upper triangle column by column, with off-diagonal entries times sqrt 2.
    """
    a, p, n = X[triplets].transpose(1, 0, 2)
    col, row = np.tril_indices(X.shape[1])
    scale = np.where(row == col, 1.0, np.sqrt(2.0))
    return scale * ((a - n)[:, row] * (a - n)[:, col] - (a - p)[:, row] * (a - p)[:, col])


def program(problem: LargeMargin, triplets: Ints) -> tuple[Array, Array]:
    """Return M of the program with the given triplets, and its slopes: the multipliers divided by mu.

    The unknowns are x = (svec(M), xi), k + m of them. The solver minimizes x' P x / 2 + q' x subject to b - A x in the
    cones: <M, A_t> - 1 + xi_t >= 0, xi_t >= 0, and M positive semidefinite.
    """
    clarabel: Any = import_module("clarabel")
    d = len(problem.C)
    m = len(triplets)
    col, row = np.tril_indices(d)
    scale = np.where(row == col, 1.0, np.sqrt(2.0))
    k = len(row)
    c = (1 - problem.mu) * scale * problem.C[row, col]  # svec((1 - mu) C)
    eye = -sparse.eye(m)
    # rows: <A_t, M> - 1 + xi_t >= 0, then xi_t >= 0, then svec(M) in the cone; columns: svec(M), xi
    margins = sparse.hstack([sparse.csc_matrix(-outer_products(problem.X, triplets)), eye])
    slacks = sparse.hstack([sparse.csc_matrix((m, k)), eye])
    A = sparse.vstack([margins, slacks, -sparse.eye(k, k + m)], format="csc")
    # b - A x: -1 + <A_t, M> + xi_t of the margins
    b = np.r_[np.full(m, -1.0), np.zeros(m + k)]
    # mu xi^2 = x' P x / 2 with P = 2 mu for the squared hinge; mu xi is linear, in q
    P = sparse.diags(np.r_[np.zeros(k), np.full(m, 2.0 * problem.mu * problem.squared)], format="csc")
    q = np.r_[c, np.full(m, 0.0 if problem.squared else problem.mu)]
    cones = [clarabel.NonnegativeConeT(2 * m)] * (m > 0) + [clarabel.PSDTriangleConeT(d)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    found = clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
    M = np.zeros((d, d))
    M[row, col] = M[col, row] = np.array(found.x[:k]) / scale
    return psd.project(M)[0], np.maximum(np.array(found.z[:m]), 0.0) / problem.mu


def lower(problem: LargeMargin, triplets: Ints, slopes: Array, hinge: Hinge) -> float:
    """Return the lower bound on min f that the slopes of some triplets give."""
    if not problem.squared:
        # the slope of the hinge is at most 1; multipliers may exceed it by the accuracy of the solver
        slopes = np.minimum(slopes, 1.0)
    d = len(problem.C)
    col, row = np.tril_indices(d)
    S = np.zeros((d, d))
    S[row, col] = S[col, row] = slopes @ outer_products(problem.X, triplets) / np.where(row == col, 1.0, np.sqrt(2.0))
    return problem.mu * hinge.bound(problem.feasible(S)[0], float(slopes.sum()), float(slopes @ slopes))
