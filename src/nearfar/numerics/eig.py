"""Eigenproblems of two matrices: the generalized one (with a policy for singular B), and the exact trace ratio."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from ..fit_warnings import warn
from . import psd
from .optimize import Solution
from .types import Array

SHRINK = 1e-6


def regularize_singular(
    B: Array, on_singular: str = "shrink", name: str = "the scatter matrix", amount: float = SHRINK
) -> Array:
    """Return B itself if it is positive definite; else do what `on_singular` says.

    Parameters
    ----------
    on_singular : str
        "shrink": add `amount` tr(B)/d to the diagonal, and warn. "raise": ValueError with the rank.
    name : str
        How messages call B.
    amount : float
    """
    w = eigh(psd.symmetrize(B), eigvals_only=True)
    if not psd.is_singular(w):
        return B
    d = len(w)
    if on_singular == "raise":
        raise ValueError(
            f"{name} is singular (rank {psd.rank(w)} of {d}); shrink it, or drop or combine features first"
        )
    eps = amount * (w.sum() / d if w.max() > 0 else 1.0)
    warn(f"{name} is singular (rank {psd.rank(w)} of {d}); {eps:.3g} was added to its diagonal")
    return B + eps * np.eye(d)


def gevd(
    A: Array,
    B: Array,
    p: int | None = None,
    on_singular: str = "shrink",
    name: str = "the scatter matrix",
    amount: float = SHRINK,
) -> tuple[Array, Array]:
    """Return the p largest w of A u = w B u, falling, and their vectors with U' B U = I.

    Parameters
    ----------
    A, B : ndarray of shape (d, d)
        Symmetric; B positive definite, or see `on_singular`.
    p : int or None
        None: all (with "pinv", as many as the dimension of the range of B).
    on_singular : str
        "shrink" (add a little to the diagonal and warn), "pinv" (work in the range of B) or "raise".
    name : str
        How messages call B.
    amount : float
        "shrink" adds this times tr(B)/d to the diagonal.

    Returns
    -------
    w : ndarray of shape (p,)
    U : ndarray of shape (d, p)

    Notes
    -----
    With p = d, U U' = B^-1 whatever A is: a method that learns from A must keep fewer.
    """
    if on_singular == "pinv":
        b, V = psd.spectrum(B)
        r = psd.rank(b)
        whiten = V[:, :r] / np.sqrt(b[:r])
        w, U = psd.spectrum(whiten.T @ A @ whiten)
        return w[:p], psd.fix_signs(whiten @ U[:, :p])
    B = psd.symmetrize(regularize_singular(B, on_singular, name, amount))
    d = len(B)
    w, U = eigh(psd.symmetrize(A), B, subset_by_index=[d - min(p or d, d), d - 1])
    return w[::-1], psd.fix_signs(U[:, ::-1])


def trace_ratio(Sb: Array, Sw: Array, p: int, tol: float = 1e-12, max_iter: int = 100) -> Solution:
    """Maximize tr(U' Sb U) / tr(U' Sw U) over U' U = I, exactly (Newton on the ratio; Wang et al., 2007).

    Parameters
    ----------
    Sb, Sw : ndarray of shape (d, d)
        Positive semi-definite.
    p : int
        Columns of U.
    tol : float
        Stop when the sum of the p largest eigenvalues of Sb - ratio Sw is below ``tol * tr(Sb)``.

    Returns
    -------
    Solution
        `x` is U (d, p), `objective` the ratio: infinite when Sw has a null space of dimension p or more.
    """
    w = eigh(psd.symmetrize(Sw), eigvals_only=True)
    nullity = len(w) - psd.rank(w)
    if p <= nullity:
        null = psd.spectrum(Sw)[1][:, len(w) - nullity :]
        _, Z = psd.spectrum(null.T @ Sb @ null)
        return Solution(psd.fix_signs(null @ Z[:, :p]), objective=np.inf)
    ratio = np.trace(Sb) / np.trace(Sw)
    k = 0
    for k in range(1, max_iter + 1):
        w, U = psd.leading(Sb - ratio * Sw, p)
        if abs(w.sum()) <= tol * np.trace(Sb):
            return Solution(U, objective=float(ratio), n_iter=k)
        ratio = np.sum(U * (Sb @ U)) / np.sum(U * (Sw @ U))
    message = f"trace ratio: optimality {abs(w.sum()):.3g} above tol after {k} steps"
    return Solution(U, objective=float(ratio), n_iter=k, converged=False, message=message)
