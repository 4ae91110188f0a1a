"""Discriminative components of two scatters, for both the linear and the kernel learner."""

from __future__ import annotations

import numpy as np

from ..fit_warnings import warn
from ..numerics import mahalanobis, psd, scatter
from ..numerics.class_sums import ClassMoments
from ..numerics.optimize import Solution
from ..numerics.types import Array, Ints

SOLVERS = ("gevd", "hoi")
SINGLE = "chunklets must hold one of at least 2 rows; every chunklet has a single row"


def discriminative_components(
    C_b: Array, C_w: Array, p: int | None = None, solver: str = "gevd", on_singular: str = "shrink", tol: float = 1e-9
) -> Solution:
    """Return A with A' C_w A = I and A' C_b A diagonal and decreasing, which makes |A' C_b A| / |A' C_w A| large.

    Parameters
    ----------
    C_b, C_w : ndarray of shape (d, d)
        Between and within scatter.
    p : int or None
        Number of columns of A. If None, the rank of C_b, but below d.
    solver : str
        "gevd" solves C_b a = mu C_w a, which is the optimum. "hoi" whitens C_b in its range and then diagonalizes C_w
        there (Hoi et al., 2006), which gives a subspace of the range of C_b.
    on_singular : str
        How to treat a singular C_w; see `numerics.psd.regularize_singular`.
    tol : float
        Eigenvalues of C_b below ``tol * largest`` are treated as 0.

    Returns
    -------
    Solution
        `x` is A' (p, d), `objective` is log |A' C_b A|, and ``attributes["eigenvalues"]`` is its diagonal.
    """
    b, V = psd.spectrum(C_b)
    rank = int((b > tol * max(b[0], 0.0)).sum())
    d = len(b)
    if rank == 0:
        raise ValueError("the means of the chunklets must differ; all of them coincide")
    most = min(rank, max(d - 1, 1))
    if p is not None and p > most:
        raise ValueError(f"n_components must be at most {most} (the rank of the between scatter, below d); got {p}")
    if p is None:
        p = most
    if solver == "gevd":
        mu, A = psd.gevd(C_b, C_w, p, on_singular, "the within-chunklet covariance")
    else:
        # Z' C_b Z = I; then the directions of Z in which C_w is smallest, scaled to A' C_w A = I
        Z = V[:, :rank] / np.sqrt(b[:rank])
        inner = psd.regularize_singular(Z.T @ C_w @ Z, on_singular, "the within-chunklet covariance")
        w, U = psd.spectrum(inner)
        mu = 1 / w[::-1][:p]
        A = psd.fix_signs(Z @ U[:, ::-1][:, :p] / np.sqrt(w[::-1][:p]))
    return Solution(A.T, objective=float(np.log(mu).sum()), attributes={"eigenvalues": mu})


def shrunk_covariance(X: Array, chunklets: Ints, shrinkage: float | str) -> Array:
    """Return the covariance (d, d) of rows about the mean of their chunklet, with a share of the scaled identity.

    Chunklets of a single row are not counted.

    Raises
    ------
    ValueError
        No chunklet has two rows.
    """
    sizes = np.bincount(chunklets[chunklets >= 0])
    if sizes.max() < 2:
        raise ValueError(SINGLE)
    C = scatter.within(X, chunklets) / int(sizes[sizes > 1].sum())
    freedom = int(np.maximum(sizes - 1, 0).sum())
    return mahalanobis.regularized(C, shrinkage, freedom)


def without_singles(chunklets: Ints) -> Ints:
    """Return the chunklets of at least two rows as codes 0, 1, ...; -1 for all other rows.

    Raises
    ------
    ValueError
        No chunklet has two rows.
    """
    sizes = np.append(np.bincount(chunklets[chunklets >= 0]), 0)  # the index -1 reads the last entry
    codes = np.where(sizes > 1, np.cumsum(sizes > 1) - 1, -1)[chunklets]
    if codes.max(initial=-1) < 0:
        raise ValueError(SINGLE)
    warn_of_singles(int((sizes == 1).sum()))
    return codes


def warn_of_singles(alone: int) -> None:
    """Warn if there are chunklets of a single row; `alone` is their number."""
    if alone:
        warn(f"{alone} of the chunklets have a single row, and thus no within-chunklet scatter; they are ignored")


def within_chunklets(X: Array, chunks: Ints, lost: int, weighting: str) -> Array:
    """Return the covariance (d, d) of rows about the mean of their chunklet.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    chunks : ndarray of shape (n,)
        Chunklet codes, -1 for rows in no chunklet.
    lost : int
        Number of degrees of freedom that each chunklet loses.
    weighting : {"rows", "chunklets"}
        Whether every row or every chunklet has the same weight.
    """
    rows, codes = scatter.known(X, chunks)
    return scatter.deviations(rows, codes, scatter.class_means(rows, codes), row_weights(codes, lost, weighting))


def row_weights(codes: Ints, lost: int, weighting: str) -> Array:
    """Return the weight (c,) of a row of each chunklet in the covariance."""
    return size_weights(np.bincount(codes) - lost, weighting)


def size_weights(sizes: Array | Ints, weighting: str) -> Array:
    """Return the weight (c,) of a row of each chunklet in the covariance, from the numbers of rows."""
    if weighting == "rows":
        return np.full(len(sizes), 1 / sizes.sum())
    return 1 / (sizes * len(sizes))


def shrunk_within(
    X: Array, chunks: Ints, lost: int, weighting: str, shrinkage: float | str = 0.0, features: int | None = None
) -> tuple[Array, float]:
    """Return `within_chunklets` with a share of the scaled identity of so many features mixed in, and that share."""
    C = within_chunklets(X, chunks, lost, weighting)
    if shrinkage == "lw":
        rows, codes = scatter.known(X, chunks)
        weight = len(rows) * row_weights(codes, lost, weighting)
        rows = (rows - scatter.class_means(rows, codes)[codes]) * np.sqrt(weight)[codes, None]
        # the deviations of a chunklet sum to 0: n rows of c chunklets have n - c degrees of freedom
        shrinkage = mahalanobis.ledoit_wolf(rows, C, len(rows) - len(weight), features)
    elif shrinkage == "auto":
        known = chunks[chunks >= 0]
        freedom = len(known) - len(np.unique(known))
        return mahalanobis.regularized(C, shrinkage, freedom), mahalanobis.prior_share(len(C), freedom)
    return mahalanobis.shrink(C, float(shrinkage), features), float(shrinkage)


def shrunk_from_sums(
    sums: ClassMoments, lost: int, weighting: str, shrinkage: float | str = 0.0, features: int | None = None
) -> Array:
    """Return the covariance of `shrunk_within` from the sums over chunklets; chunklets of one row are not counted."""
    several = sums.count > 1
    warn_of_singles(int((~several).sum()))
    n = sums.count[several]
    weight = np.zeros(len(sums.count))
    weight[several] = size_weights(n - lost, weighting)
    if sums.per_class:
        C = sums.weighted(weight)
    else:
        C = sums.within * weight.max()
    if shrinkage == "lw":
        assert sums.fourth is not None
        fourth = n.sum() * float(weight**2 @ sums.fourth)  # the mean of |z|^4 over rows scaled to the covariance C
        shrinkage = mahalanobis.ledoit_wolf_share(C, fourth, n.sum() - len(n), features)
    return mahalanobis.regularized(C, shrinkage, float(n.sum()) - len(n), features)
