"""The geodesic from the inverse similar scatter to the dissimilar scatter, with a prior that keeps both definite.

M = (S + lam M0^-1)^-1 #_t (D + lam M0)
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigvalsh, inv

from ..fit_warnings import warn
from ..numerics import checks, psd, scatter
from ..numerics.checks import class_sizes, require_classes
from ..numerics.constraints import LabelPairs, Pairs
from ..numerics.types import AnyArray, Array, Ints

SCATTER_CANCELLATION = 1e-6  # share of sums of squares below which their differences have few digits left


def relative(reg: float | str, S: Array, features: int | None = None) -> float:
    """Return the weight lam of the prior, with reg in units of tr(S) / d for d features, by default those of S.

    "auto" is 1e-6, with a warning, if S is nearly singular, and 0 otherwise.
    """
    unit = float(np.trace(S)) / (features or len(S)) or 1.0
    if isinstance(reg, str) and reg == "auto":
        w = eigvalsh(psd.symmetrize(S))
        if w[0] >= 1e-9 * w[-1] > 0:
            return 0.0
        warn(f"the similar scatter is nearly singular; {1e-6 * unit:.3g} times the prior was added")
        return 1e-6 * unit
    if isinstance(reg, str):
        raise ValueError(f'reg must be a finite number >= 0 or "auto"; got {reg!r}')
    checks.at_least(0, reg=reg)
    return float(reg) * unit


def regularized(
    S: Array, D: Array, reg: float | str, prior: AnyArray | None = None, features: int | None = None
) -> tuple[Array, Array]:
    """Return S + lam M0^-1 and D + lam M0, where M0 is the identity unless a prior is given.

    S and D may be those of a subspace of so many `features`.

    Raises
    ------
    ValueError
        The prior is not a positive definite matrix of the shape of S, or S + lam M0^-1 is singular.
    """
    M0 = np.eye(len(S))
    if prior is not None:
        M0 = psd.require_pd(prior, "prior")
    if M0.shape != S.shape:
        raise ValueError(f"prior must have shape {S.shape}; got {M0.shape}")
    lam = relative(reg, S, features)
    if lam > 0:
        # S pairs with M and D with M^-1, so the prior enters one of them inverted
        M0_inverse = M0 if prior is None else inv(M0)
        S = S + lam * M0_inverse
        D = D + lam * M0
    w = eigvalsh(psd.symmetrize(S))
    if psd.is_singular(w):
        raise ValueError(
            f"the similar scatter is singular with reg={reg} (rank {psd.rank(w)} of {len(w)}); use reg > 0"
        )
    return S, D


def span_setting(reg: float | str) -> bool | str:
    """Return the `_span` of a learner: with a prior, M is a multiple of the identity where no rows differ."""
    return True if checks.is_zero(reg) else "full"


def stack_scatters(T: Array, pairs: Pairs | LabelPairs) -> tuple[Array, Array]:
    """Return the means of (T_i - T_j)(T_i - T_j)' over similar and over dissimilar pairs, for matrices T (n, d, q).

    Each column, taken from all matrices, is a table of rows, whose scatters come from class sums.

    Warns
    -----
    UserWarning
        All similar pairs coincide.
    """
    columns = (np.ascontiguousarray(T[:, :, k]) for k in range(T.shape[2]))
    return mean_of_columns([column_scatters(column, pairs) for column in columns])


def mean_of_columns(found: list[scatter.PairScatters]) -> tuple[Array, Array]:
    """Return the scatters of the columns added up, divided by the numbers of pairs.

    Warns
    -----
    UserWarning
        All similar pairs coincide.
    """
    S = np.sum([one.similar for one in found], axis=0)
    D = np.sum([one.dissimilar for one in found], axis=0)
    if np.trace(S) <= scatter.EQUAL_ROWS_ROUNDING * np.trace(D):
        S = np.zeros_like(S)
        warn("all similar pairs coincide; only dissimilar pairs and regularization count")
    return S / found[0].n_similar, D / found[0].n_dissimilar


def column_scatters(X: Array, pairs: Pairs | LabelPairs) -> scatter.PairScatters:
    """Return the scatters of one column, without the warning of `pair_scatters` if all similar pairs coincide."""
    if isinstance(pairs, LabelPairs):
        return scatter.label_scatters(X, pairs)
    return scatter.listed_scatters(X, pairs)


def projector_scatters(V: Array, pairs: Pairs | LabelPairs) -> tuple[Array, Array]:
    """Return `stack_scatters` of T_i = V_i V_i' for V (n, d, q); no T is formed if class sums are accurate enough."""
    narrow = V.shape[2] < V.shape[1]
    if narrow and isinstance(pairs, LabelPairs) and pairs.weighting in tuple(scatter.SCATTERS):
        require_classes(pairs.labels)
        S, D, size = class_scatters(*scatter.known(V, pairs.labels), pairs.weighting)
        if np.trace(S) > SCATTER_CANCELLATION * size:
            return S, D
    return stack_scatters(V @ V.transpose(0, 2, 1), pairs)


def class_scatters(V: Array, labels: Ints, weighting: str) -> tuple[Array, Array, float]:
    """Return the mean scatters of all pairs that labels imply, and the sum of squares in the trace of the first.

    The scatter of class c is Q_c - n_c P_c^2, where Q_c is the sum of T_i^2 over the class and P_c the mean of T_i.
    """
    n = class_sizes(labels).astype(float)
    d = V.shape[1]
    c = len(n)
    whole = n.sum()
    several = n > 1
    if weighting == "pairs":
        near = n
        far = whole - n
        share = n
        n_similar = float((n * (n - 1))[several].sum() / 2)
        n_dissimilar = whole * (whole - 1) / 2 - n_similar
    else:
        near = 2 * several / np.where(several, n - 1, 1.0)
        far = (c - 1) / n
        share = np.ones(c)
        n_similar = float(several.sum())
        n_dissimilar = c * (c - 1) / 2
    # S = sum_c near_c W_c, D = sum_c far_c W_c + scatter of the P_c with the weights share_c; W_c: scatter of class c
    S, D, between, mean = np.zeros((4, d, d))
    size = 0.0
    order = np.argsort(labels, kind="stable")
    for k, U in enumerate(np.split(V[order], np.cumsum(class_sizes(labels))[:-1])):  # U (n_k, d, q)
        rows = U.transpose(0, 2, 1).reshape(-1, d)
        # T_i^2 = U_i (U_i'U_i) U_i'
        Q = (U @ (U.transpose(0, 2, 1) @ U)).transpose(0, 2, 1).reshape(-1, d).T @ rows
        P = rows.T @ rows / n[k]
        within = Q - n[k] * P @ P
        S += near[k] * within
        D += far[k] * within
        between += share[k] * P @ P
        mean += share[k] * P
        size += near[k] * float(np.trace(Q))
    D += share.sum() * between - mean @ mean
    n_similar = max(n_similar, 1.0)  # it is 0 if every class has one row
    return psd.symmetrize(S) / n_similar, psd.symmetrize(D) / n_dissimilar, size / n_similar


def unit_mean(V: Array, pairs: Pairs | LabelPairs, t: float, reg: float | str) -> tuple[Array, float]:
    """Return L of the geometric mean of projectors V_i V_i', scaled to tr M = d, and the objective before scaling."""
    S, D = regularized(*projector_scatters(V, pairs), reg)
    L = psd.sharp_factor(S, D, t)
    # tr(M S) + tr(M^-1 D)
    value = np.sum(L * (L @ S)) + np.trace(np.linalg.solve(L.T @ L, D))
    return L * np.sqrt(len(L) / np.sum(L**2)), float(value)
