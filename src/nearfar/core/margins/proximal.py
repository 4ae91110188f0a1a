"""Hinges whose regulariser is weak beside the squared distances, as on features that were not scaled.

    M_{t+1} = argmin_{M PSD} hinges(M) + gamma |M - I|^2 + rho_t |M - M_t|^2

The dual of the problem itself is too steep for a search; that of a step is not, and its solution is found by the same
search. Steps with falling rho end at the same optimum (Rockafellar, 1976), which the multipliers of the last certify.
"""

from __future__ import annotations

import numpy as np

from ..optimize import Report, Solution, stopped
from ..types import Array
from . import margin
from .margin import Hinges

WEAK = 1e-3  # gamma, for distances of size 1, from which on steps are taken
FIRST, FALL, LEAST = 0.1, 0.5, 1e-3  # weights of the steps, for distances of size 1
LOOSE, SHARPER = 1e-4, 0.5  # tolerance of the first step, and what it falls by
STEPS = 60
PATIENCE = 10  # times `max_iter` for all steps together


def is_weak(hinges: Hinges) -> bool:
    """Whether the regulariser is so weak that the dual is too steep for a search."""
    return hinges.gamma < WEAK * size(hinges) ** 2


def size(hinges: Hinges) -> float:
    """A typical squared length of the pairs."""
    return float(np.mean(np.einsum("pd,pd->p", hinges.Z, hinges.Z))) / 4


def minimise(
    hinges: Hinges,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """As `margin.minimise`, by steps in units in which pairs have length 1.

    `max_iter` is for each step, ten times that for all.
    """
    unit = size(hinges)
    weak = hinges.gamma / unit**2
    N, dual, spent, rho, inner = min(1.0, unit) * hinges.A0, start, 0, FIRST, LOOSE
    best, bound = (np.inf, N), -np.inf
    for _ in range(STEPS):
        A = (weak * unit * hinges.A0 + rho * N) / (weak + rho)
        step = hinges._replace(Z=hinges.Z / np.sqrt(unit), A0=A, gamma=weak + rho)
        left = min(max_iter, PATIENCE * max_iter - spent)
        found = margin.minimise(step, tol=max(inner, 1e-10), max_iter=left, start=dual, report=report)
        N, dual, spent = found.x, found.attributes["dual"], spent + found.n_iter
        primal, bound = hinges(N / unit), max(bound, hinges.dual(dual, hinges.metric(dual)))
        best = min(best, (primal, N), key=lambda pair: pair[0])
        gap = best[0] - bound
        if gap <= tol * max(1.0, abs(best[0])) or spent >= PATIENCE * max_iter:
            break
        rho, inner = max(FALL * rho, LEAST), SHARPER * inner
    converged = bool(gap <= tol * max(1.0, abs(best[0])))
    message = "" if converged else stopped("the dual", spent, "duality gap", gap, tol) + margin.uneven(hinges.Z)
    return Solution(best[1] / unit, best[0], spent, converged, message, max(gap, 0.0), attributes={"dual": dual})
