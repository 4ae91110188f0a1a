"""Learning a kernel matrix by its eigenvalues (Yeung & Chang, 2007).

    min_beta  beta' diag(f) beta   s.t.  1' beta = c        =>    beta_r = c f_r^-1 / sum_s f_s^-1
    f_r = sum over similar pairs (a_ri - a_rj)^2,   K = sum_r w_r a_r a_r',   learned:  sum_r beta_r^2 a_r a_r'

a_r and w_r are leading eigenvectors and eigenvalues of the kernel matrix. For new rows, a_r(x) = k(x)' a_r / w_r.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...numerics import checks, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs, with_similar
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import Array


def spectrum(
    R: Array,
    pairs: Pairs | LabelPairs,
    n_components: int | None = None,
    *,
    share: float = 0.95,
    scale: float = 1.0,
    floor: float = 1e-6,
    center: bool = False,
) -> Solution:
    """Return L (p, r) on rows R of the kernel map, as `x`; see `KernelSpectrumMetric`."""
    # R'R has the nonzero eigenvalues of K = R R'; the eigenvectors of K are R Q diag(w)^(-1/2)
    if center:
        w, Q = psd.spectrum(scatter.total(R))
    else:
        w, Q = psd.spectrum(R.T @ R)
    p = psd.holding(w, share) if n_components is None else n_components
    p = min(p, max(psd.rank(w), 1))
    if n_components is not None and p < n_components:
        raise ValueError(f"n_components must be at most {p}, the rank of the kernel matrix; got {n_components}")
    back = Q[:, :p] / np.sqrt(w[:p])  # (r, p): R back holds the a_r in its columns
    f = similar_spread(R @ back, pairs)
    if f.max() > 0:
        f = np.maximum(f, floor * f.max())
    else:
        f = np.ones(p)
    # beta_r = c f_r^-1 / sum_s f_s^-1
    beta = scale / f / np.sum(1 / f)
    attributes = {"beta": beta, "f": f, "eigenvalues": w[:p]}
    return Solution((back * beta).T, objective=float(beta @ (f * beta)), attributes=attributes)


def similar_spread(A: Array, pairs: Pairs | LabelPairs) -> Array:
    """Return the weighted sum of squared differences over similar pairs, for each column."""
    if isinstance(pairs, LabelPairs):
        return np.diag(scatter.pair_scatters(A, pairs).similar).copy()
    similar = with_similar(pairs).part(similar=True)
    # diagonal of A' Lap A
    return np.sum(A * scatter.laplacian_times(A, similar.i, similar.j, similar.weight), axis=0)


class KernelSpectrumMetric(FromPairs, KernelMetric):
    """Keep the eigenvectors of a kernel, and weight each of them by how little it changes along similar pairs.

    It chooses among directions that the kernel finds without labels: where these do not tell the classes apart, nearest
    neighbors become worse than with the Euclidean distance.

    Parameters
    ----------
    n_components : int, optional
        Number of eigenvectors. By default, the smallest number whose eigenvalues reach `share` of the trace.
    share : float
        Share of the trace of the kernel matrix that the eigenvectors keep, in (0, 1]. Used only if `n_components` is
        None.
    scale : float
        Sum c of the weights, above 0.
    floor : float
        Lower bound on the values f, in [0, 1], relative to the largest of them. Without it, an eigenvector that does
        not change along any similar pair would get all the weight.
    center : bool
        Use the eigenvectors of the centered kernel matrix.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed", or a function that takes two sets of rows
        and returns the matrix of their kernel values.
    gamma : float, optional
        Coefficient of the kernel. By default, 1 / (median squared distance), for "laplacian" 1 / (median city-block
        distance), and for the other kernels 1 / d.
    degree, coef0 : float
        Degree and constant term of the polynomial kernel.
    landmarks : int or None
        Number of rows drawn to span the feature space (Nystroem approximation), which costs O(n landmarks^2). None
        uses all rows, which costs O(n^3).
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the landmarks and the pairs.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.
    beta_ : ndarray of shape (k,)
        New weights of the eigenvectors.
    f_ : ndarray of shape (k,)
        Spread of each eigenvector over the similar pairs.
    eigenvalues_ : ndarray of shape (k,)
        Eigenvalues of the kernel matrix.

    Notes
    -----
    Yeung & Chang, "A kernel approach for semisupervised metric learning", IEEE Transactions on Neural Networks 18,
    2007. Dissimilar pairs are not used. The eigenvalues of the kernel are discarded, so `n_components` determines how
    much noise is included. `share`, `floor` and `center` are not from the paper.
    """

    _both_kinds = False

    def __init__(
        self,
        n_components: int | None = None,
        *,
        share: float = 0.95,
        scale: float = 1.0,
        floor: float = 1e-6,
        center: bool = False,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = None,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.share = share
        self.scale = scale
        self.floor = floor
        self.center = center
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.above(0, share=self.share, scale=self.scale)
        checks.between(0, 1, share=self.share, floor=self.floor)
        return spectrum(R, pairs, **self._settings("n_components", "share", "scale", "floor", "center"))
