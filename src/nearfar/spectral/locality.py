"""Directions that keep dissimilar pairs apart and similar pairs together, and preserve a neighborhood graph."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from ..numerics import psd
from ..numerics.optimize import Solution
from ..numerics.types import Array

SOLVERS = ("ratio", "gevd")
SHARE_OF_CLASSES = 0.5  # least share of the scatter of dissimilar pairs that is kept by default if classes are known
RESIDUAL_BLOCK_VALUES = 1 << 22  # values in one block of residuals


def rebuilding_scatter(R: Array, S: csr_array) -> Array:
    """Return R' (I - S)'(I - S) R / n, the scatter of each row about the mean of its neighbors with weights S.

    Parameters
    ----------
    R : ndarray of shape (n, r)
        Rows.
    S : sparse array of shape (n, n)
        Weights, whose rows sum to 1, so that a shift of all rows of R changes nothing.
    """
    total = np.zeros((R.shape[1],) * 2)
    step = max(1, RESIDUAL_BLOCK_VALUES // max(R.shape[1], 1))
    for a in range(0, len(R), step):
        # (I - S) R, a few rows at a time
        residual = R[a : a + step] - S[a : a + step] @ R
        total += residual.T @ residual
    return total / len(R)


def ratio_directions(
    S_b: Array,
    S_w: Array,
    p: int | None,
    share: float = 0.95,
    solver: str = "ratio",
    tol: float = 1e-12,
    preferred: int | None = None,
    least: int = 1,
) -> Solution:
    """Return directions U with a large tr(U' S_b U) / tr(U' S_w U), in the range of S_b + S_w.

    Parameters
    ----------
    S_b, S_w : ndarray of shape (d, d)
        Positive semi-definite matrices.
    p : int or None
        Number of directions, below the dimension of the range. If None, the smallest number that keeps `share` of
        tr(S_b), or with "gevd" all but one.
    share : float
        Share of tr(S_b) to keep if p is None.
    preferred : int or None
        Desired number of directions if p is None, which is reduced to the largest possible number.
    least : int
        Least number of directions for `share`.
    solver : str
        "ratio" finds the maximum over U' U = I. "gevd" finds the generalized eigenvectors, with U' S_w U = I.
    tol : float
        Tolerance for the optimality of the ratio.

    Returns
    -------
    Solution
        `x` is U' (p, d), and `objective` is the ratio.
    """
    V = np.eye(len(S_b))
    if psd.is_singular(eigh(psd.symmetrize(S_b + S_w), eigvals_only=True)):
        w, V = psd.spectrum(S_b + S_w)
        # outside of this range, both scatters are 0, and the ratio is undefined
        V = V[:, : max(psd.rank(w), 1)]  # (d, r): both become V' S V, (r, r), and directions V U
        S_b = V.T @ S_b @ V
        S_w = V.T @ S_w @ V
    r = V.shape[1]
    if p is not None and p >= r > 1:
        raise ValueError(f"n_components must be below {r}, the dimension that the pairs and the graph span; got {p}")
    if p is None and preferred is not None:
        p = max(1, min(preferred, r - 1))
    if solver == "gevd":
        if p is None:
            p = max(1, r - 1)
        mu, U = psd.gevd(S_b, S_w, p, "shrink", "the scatter of similar pairs and neighborhoods")
        # tr(U' S_b U) / tr(U' S_w U)
        ratio = float(np.sum(U * (S_b @ U)) / np.sum(U * (S_w @ U)))
        return Solution((V @ U).T, objective=ratio, attributes={"eigenvalues": mu})
    if p is None:
        p = fewest(S_b, S_w, share, tol, least)
    found = psd.trace_ratio(S_b, S_w, p, tol)
    return found.with_x(psd.fix_signs(V @ found.x).T)


def fewest(S_b: Array, S_w: Array, share: float, tol: float, least: int = 1) -> int:
    """Return the smallest p whose best U keeps this share of tr(S_b), by bisection over p below the dimension.

    It is at least `least`, unless that is too large.
    """
    high = max(len(S_b) - 1, 1)
    low = max(1, min(least, high))
    while low < high:
        p = (low + high) // 2
        U = psd.trace_ratio(S_b, S_w, p, tol).x
        if np.sum(U * (S_b @ U)) >= share * np.trace(S_b):
            high = p
        else:
            low = p + 1
    return low
