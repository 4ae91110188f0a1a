"""Positive semi-definite matrices: spectra, projections, powers, geodesics, and the factor L of a metric M = L' L.

The module also solves two eigenproblems of a pair of such matrices: the generalized one, with a policy for a singular
B, and the trace ratio.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular

from ..fit_warnings import warn
from .optimize import Solution
from .types import Array

EPS = float(np.finfo(np.float64).eps)
SHRINK = 1e-6  # share of the mean eigenvalue that is added to a singular matrix
# eigenvalues up to this multiple of EPS count as 0; with thousands of rows they reach 16 EPS even for few features
ZERO_EIGENVALUE_IN_EPS = 100


def symmetrize(A: Array) -> Array:
    """Return (A + A') / 2."""
    return (A + A.T) / 2


def fix_signs(V: Array) -> Array:
    """Make the entry of largest absolute value in each column positive, so that signs do not depend on the solver."""
    lead = np.abs(V).argmax(axis=0)
    signs = np.sign(V[lead, np.arange(V.shape[1])])
    return V * np.where(signs == 0, 1.0, signs)


def spectrum(A: Array) -> tuple[Array, Array]:
    """Return the eigenvalues of a symmetric matrix in decreasing order, and its eigenvectors with fixed signs.

    Ties stay in order.

    Returns
    -------
    w : ndarray of shape (d,)
        Eigenvalues.
    V : ndarray of shape (d, d)
        Eigenvectors: column k belongs to ``w[k]``.
    """
    # divide and conquer is as fast as LAPACK's default for symmetric matrices, faster with equal eigenvalues, and its
    # eigenvectors stay orthogonal to a few EPS, where those of the default lose three digits with 1,000 rows
    w, V = eigh(symmetrize(A), driver="evd")
    order = np.argsort(-w, kind="stable")
    return w[order], fix_signs(V[:, order])


def leading(A: Array, p: int) -> tuple[Array, Array]:
    """Return the p largest eigenvalues of `spectrum` and their eigenvectors.

    A few of many eigenvalues take a third of the time of all.
    """
    d = len(A)
    if 4 * p > d:
        w, V = spectrum(A)
        return w[:p], V[:, :p]
    w, V = eigh(symmetrize(A), subset_by_index=[d - p, d - 1])
    return w[::-1], fix_signs(V[:, ::-1])


def holding(w: Array, share: float) -> int:
    """Return how many of the values w, decreasing and at least 0, are needed to reach this share of their sum."""
    return int((np.cumsum(w) < share * w.sum()).sum()) + 1


def rounding(w: Array) -> float:
    """Return the largest value that a zero eigenvalue may have because of rounding, given the eigenvalues w."""
    return max(len(w), ZERO_EIGENVALUE_IN_EPS) * EPS * max(float(w.max(initial=0.0)), 0.0)


def is_singular(w: Array) -> bool:
    """Return whether a matrix with eigenvalues w is singular to working precision."""
    return bool(w.min() <= rounding(w))


def rank(w: Array) -> int:
    """Return the number of eigenvalues w that are above working precision."""
    return int((w > rounding(w)).sum())


def power(A: Array, p: float, floor: float = 0.0) -> Array:
    """Return A^p from the eigenvalues of A, which are raised to at least `floor`."""
    w, V = spectrum(A)
    return (V * np.maximum(w, floor) ** p) @ V.T


def project(A: Array, shrink: float = 0.0) -> tuple[Array, Array]:
    """Return the nearest PSD matrix (in the Frobenius norm) and a factor of it.

    Parameters
    ----------
    A : ndarray of shape (d, d)
        Symmetric matrix.
    shrink : float
        Value subtracted from every eigenvalue first, which gives the proximal map of ``shrink * trace``.

    Returns
    -------
    M : ndarray of shape (d, d)
        Projection.
    L : ndarray of shape (d, d)
        Factor with ``M = L.T @ L``, with rows in order of decreasing eigenvalue.
    """
    w, V = spectrum(A)
    L = np.sqrt(np.maximum(w - shrink, 0.0))[:, None] * V.T
    return L.T @ L, L


def components(M: Array, n_components: int | None = None) -> Array:
    """Return L with ``M = L' L``: the first `n_components` rows in order of decreasing eigenvalue, with fixed signs.

    >>> components(np.diag([1.0, 4.0]), 1)
    array([[0., 2.]])
    """
    w, V = spectrum(M)
    return (np.sqrt(np.maximum(w, 0.0))[:, None] * V.T)[:n_components]


def compress(L: Array, n_components: int | None = None) -> Array:
    """Return components of the metric L' L with orthogonal rows, in order of decreasing length, with fixed signs."""
    _, s, Vt = np.linalg.svd(L, full_matrices=False)
    return (s[:, None] * fix_signs(Vt.T).T)[:n_components]


def around(V: Array, w: Array, c: float) -> Array:
    """Return V' diag(w) V + c I, for V (r, d)."""
    A = (V.T * w) @ V
    # add c to the diagonal
    A.ravel()[:: len(A) + 1] += c
    return A


def beside_identity(L: Array, V: Array, c: float = 1.0) -> Array:
    """Return the symmetric root (d, d) of a metric that is L' L in coordinates V (r, d) and c^2 I outside of them.

    The rows of V are orthonormal.
    """
    # with L = P diag(s) Q, the root in coordinates V is Q' diag(s) Q; outside it is c I: c I + (Q V)' diag(s - c) Q V
    _, s, Q = np.linalg.svd(L, full_matrices=False)
    return around(Q @ V, s - c, c)


def sharp_spectrum(S: Array, D: Array) -> tuple[Array, Array, Array]:
    """Return the decomposition from which every point of the geodesic from S^-1 to D follows.

    Returns
    -------
    C : ndarray of shape (d, d)
        Lower Cholesky factor of S.
    w, Q : ndarray of shape (d,), (d, d)
        Eigendecomposition ``C' D C = Q diag(w) Q'``.

    Raises
    ------
    ValueError
        S and D are so small that their product is 0. `sharp_factor` scales them first.
    """
    C = cholesky(symmetrize(S), lower=True)
    product = C.T @ symmetrize(D) @ C
    if np.any(D) and not product.any():
        raise ValueError("values became zero during the computation; scale the features of X")
    w, Q = spectrum(product)
    return C, np.maximum(w, 0.0), Q


def sharp_from_spectrum(C: Array, w: Array, Q: Array, t: float) -> Array:
    """Return L with ``L' L = S^-1 #_t D`` from `sharp_spectrum(S, D)`, by a scaling and a triangular solve."""
    return w[:, None] ** (t / 2) * solve_triangular(C, Q, lower=True, trans="T").T


def sharp_factor(S: Array, D: Array, t: float = 0.5) -> Array:
    """Return L with ``L' L = S^-1 #_t D``, the point at t on the affine-invariant geodesic from S^-1 to D.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive definite matrix.
    D : ndarray of shape (d, d)
        Positive semi-definite matrix.
    t : float
        Point on the geodesic: 0 gives S^-1, and 1 gives D.

    Notes
    -----
    With S = C C' and C' D C = Q W Q', L = W^(t/2) Q' C^-1: one Cholesky factor and one eigendecomposition.
    """
    return sharp_factors(S, D, [t])[0]


def sharp_factors(S: Array, D: Array, ts: Sequence[float]) -> list[Array]:
    """Return `sharp_factor` for several points, from one eigendecomposition."""
    # (s S)^-1 #_t (r D) = s^(t - 1) r^t (S^-1 #_t D); without s and r, the product of S and D may underflow or overflow
    s = power_of_16(S)
    r = power_of_16(D)
    spectrum = sharp_spectrum(S / s, D / r)
    return [s ** ((t - 1) / 2) * (r ** (t / 2) * sharp_from_spectrum(*spectrum, t)) for t in ts]


def power_of_16(A: Array) -> float:
    """Return a power of 16 near the largest entry of A, or 1 if A is 0: division by it causes no rounding."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0:
        return 1.0
    return float(16.0 ** np.round(np.log2(largest) / 4))


def require_pd(A: Array, name: str, strict: bool = True) -> Array:
    """Return A as a symmetric float64 matrix; raise a ValueError if it is not positive definite.

    Parameters
    ----------
    A : array-like of shape (d, d)
        Matrix.
    name : str
        Name of the matrix for error messages.
    strict : bool
        Whether A must be positive definite. Otherwise it may be positive semi-definite up to rounding.
    """
    try:
        matrix = np.asarray(A)
    except ValueError as error:  # lists of several lengths
        raise ValueError(f"{name} must be a finite square matrix; got {A!r:.60}") from error
    if not np.issubdtype(matrix.dtype, np.number):
        raise ValueError(f"{name} must be a finite square matrix; got {A!r}")
    A = matrix.astype(np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not np.isfinite(A).all():
        raise ValueError(f"{name} must be a finite square matrix; got shape {A.shape}")
    # tolerances are relative to the largest entry, and so the same in any unit
    scale = max(float(np.abs(A).max(initial=0.0)), np.finfo(np.float64).tiny)
    low = float(eigh(symmetrize(A), eigvals_only=True, subset_by_index=[0, 0])[0])
    apart = float(np.abs(A - A.T).max(initial=0.0))
    if apart > 1e-8 * scale:
        which = f"it differs from its transpose by {apart:.3g}; smallest eigenvalue of their mean {low:.3g}"
        raise ValueError(f"{name} must be symmetric; {which}")
    if strict:
        kind = "definite"
        refused = low <= 0
    else:
        kind = "semi-definite"
        refused = low < -1e-8 * scale  # rounding makes zero eigenvalues negative
    if refused:
        raise ValueError(f"{name} must be positive {kind}; its smallest eigenvalue is {low:.3g}")
    return symmetrize(A)


def truncate_rank(L: Array, n_components: int | None) -> Array:
    """Return the same metric with rows in order of decreasing length.

    With `n_components`, there are exactly that many rows, of which the last may be 0.
    """
    L = compress(L, n_components)
    return np.pad(L, ((0, max(0, (n_components or 0) - len(L))), (0, 0)))


def regularize_singular(
    B: Array, on_singular: str = "shrink", name: str = "the scatter matrix", amount: float = SHRINK
) -> Array:
    """Return B itself if it is positive definite; otherwise apply the policy `on_singular`.

    Parameters
    ----------
    B : ndarray of shape (d, d)
        Positive semi-definite matrix.
    on_singular : str
        "shrink" adds `amount` tr(B)/d to the diagonal and warns. "raise" raises a ValueError that states the rank.
    name : str
        Name of B for messages.
    amount : float
        Share of the mean eigenvalue that "shrink" adds.
    """
    w = eigh(symmetrize(B), eigvals_only=True)
    if not is_singular(w):
        return B
    d = len(w)
    if on_singular == "raise":
        raise ValueError(
            f"{name} is singular (rank {rank(w)} of {d}); use shrinkage, or drop or combine features first"
        )
    if w.max() > 0:
        mean = w.sum() / d
    else:
        mean = 1.0
    eps = amount * mean
    warn(f"{name} is singular (rank {rank(w)} of {d}); {eps:.3g} was added to its diagonal")
    return B + eps * np.eye(d)


def gevd(
    A: Array,
    B: Array,
    p: int | None = None,
    on_singular: str = "shrink",
    name: str = "the scatter matrix",
    amount: float = SHRINK,
) -> tuple[Array, Array]:
    """Return the p largest w of A u = w B u in decreasing order, and their vectors with U' B U = I.

    Parameters
    ----------
    A, B : ndarray of shape (d, d)
        Symmetric matrices. B must be positive definite, or `on_singular` applies.
    p : int or None
        Number of eigenvalues. If None, all (with "pinv", the dimension of the range of B).
    on_singular : str
        How to treat a singular B: "shrink" (add a small value to the diagonal and warn), "pinv" (work in the range of
        B) or "raise".
    name : str
        Name of B for messages.
    amount : float
        "shrink" adds this value times tr(B)/d to the diagonal.

    Returns
    -------
    w : ndarray of shape (p,)
        Generalized eigenvalues.
    U : ndarray of shape (d, p)
        Generalized eigenvectors, in columns.

    Notes
    -----
    With p = d, U U' = B^-1 for any A, so a method that learns from A must keep fewer components.
    """
    if on_singular == "pinv":
        # P = V_r diag(b_r)^-1/2 gives P' B P = I: the problem becomes P' A P y = w y, u = P y
        b, V = spectrum(B)
        r = rank(b)
        whiten = V[:, :r] / np.sqrt(b[:r])  # (d, r)
        w, U = spectrum(whiten.T @ A @ whiten)
        return w[:p], fix_signs(whiten @ U[:, :p])
    B = symmetrize(regularize_singular(B, on_singular, name, amount))
    d = len(B)
    w, U = eigh(symmetrize(A), B, subset_by_index=[d - min(p or d, d), d - 1])
    return w[::-1], fix_signs(U[:, ::-1])


def trace_ratio(Sb: Array, Sw: Array, p: int, tol: float = 1e-12, max_iter: int = 100) -> Solution:
    """Maximize tr(U' Sb U) / tr(U' Sw U) over U' U = I, exactly (Newton's method on the ratio; Wang et al., 2007).

    Parameters
    ----------
    Sb, Sw : ndarray of shape (d, d)
        Positive semi-definite matrices.
    p : int
        Number of columns of U.
    tol : float
        Stop when the absolute sum of the p largest eigenvalues of Sb - ratio Sw is at most ``tol * tr(Sb)``.
    max_iter : int
        Maximum number of Newton steps.

    Returns
    -------
    Solution
        `x` is U (d, p), and `objective` the ratio, which is infinite if Sw has a null space of dimension p or more.
    """
    w = eigh(symmetrize(Sw), eigvals_only=True)
    nullity = len(w) - rank(w)
    if p <= nullity:
        # U in the null space of Sw makes the denominator 0; choose the widest directions of Sb in it
        null = spectrum(Sw)[1][:, len(w) - nullity :]
        _, Z = spectrum(null.T @ Sb @ null)
        return Solution(fix_signs(null @ Z[:, :p]), objective=np.inf)
    ratio = np.trace(Sb) / np.trace(Sw)
    k = 0
    for k in range(1, max_iter + 1):
        # U maximizes tr(U' (Sb - ratio Sw) U), which is 0 at the optimal ratio
        w, U = leading(Sb - ratio * Sw, p)
        if abs(w.sum()) <= tol * np.trace(Sb):
            return Solution(U, objective=float(ratio), n_iter=k)
        ratio = np.sum(U * (Sb @ U)) / np.sum(U * (Sw @ U))
    message = f"trace ratio: optimality {abs(w.sum()):.3g} above tol after {k} steps"
    return Solution(U, objective=float(ratio), n_iter=k, converged=False, message=message)
