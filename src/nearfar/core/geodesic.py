"""The geodesic from the inverse similar scatter to the dissimilar scatter, with a prior that keeps both definite.

M = (S + lam I)^-1 #_t (D + lam I)
"""

from __future__ import annotations

import numpy as np

from . import checks, psd, scatter
from .constraints import LabelPairs, Pairs
from .types import Array


def relative(reg: float | str, S: Array) -> float:
    """lam in units of tr(S) / d; "auto": 1e-6, and that only where S is nearly singular."""
    unit = float(np.trace(S)) / len(S) or 1.0
    if reg == "auto":
        w = psd.spectrum(S)[0]
        return 1e-6 * unit if w[-1] < 1e-9 * w[0] or w[0] <= 0 else 0.0
    checks.at_least(0, reg=float(reg))
    return float(reg) * unit


def regularized(S: Array, D: Array, reg: float | str) -> tuple[Array, Array]:
    """S + lam I and D + lam I.

    Raises
    ------
    ValueError
        The first of them is singular.
    """
    lam = relative(reg, S) * np.eye(len(S))
    S, D = S + lam, D + lam
    w = psd.spectrum(S)[0]
    if psd.is_singular(w):
        raise ValueError(f"reg={reg} leaves the similar scatter singular (rank {psd.rank(w)} of {len(w)}); use reg > 0")
    return S, D


def stack_scatters(T: Array, pairs: Pairs | LabelPairs) -> tuple[Array, Array]:
    """Means over similar and over dissimilar pairs of (T_i - T_j)(T_i - T_j)' for matrices T (n, d, q).

    A column of all matrices at a time is a table of rows, whose scatters class sums give.
    """
    found = [scatter.pair_scatters(np.ascontiguousarray(T[:, :, k]), pairs).mean() for k in range(T.shape[2])]
    return sum((S for S, _ in found), np.zeros(())), sum((D for _, D in found), np.zeros(()))
