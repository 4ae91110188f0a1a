"""Learning a kernel matrix by its eigenvalues (Yeung & Chang, 2007).

    min_beta  beta' diag(f) beta   s.t.  1' beta = c        =>    beta_r = c f_r^-1 / sum_s f_s^-1
    f_r = sum over similar pairs (a_ri - a_rj)^2,   K = sum_r w_r a_r a_r',   learned:  sum_r beta_r^2 a_r a_r'

a_r, w_r: leading eigenvectors and eigenvalues of the kernel matrix; new rows by a_r(x) = k(x)' a_r / w_r.
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
    w, Q = psd.spectrum(scatter.total(R) if center else R.T @ R)
    p = psd.holding(w, share) if n_components is None else n_components
    p = min(p, max(psd.rank(w), 1))
    if n_components is not None and p < n_components:
        raise ValueError(f"n_components must be at most {p}, the rank of the kernel matrix; got {n_components}")
    back = Q[:, :p] / np.sqrt(w[:p])
    f = similar_spread(R @ back, pairs)
    f = np.maximum(f, floor * f.max()) if f.max() > 0 else np.ones(p)
    beta = scale / f / np.sum(1 / f)
    return Solution(
        (back * beta).T, objective=float(beta @ (f * beta)), attributes={"beta": beta, "f": f, "eigenvalues": w[:p]}
    )


def similar_spread(A: Array, pairs: Pairs | LabelPairs) -> Array:
    """Return the weighted sum of squared differences over similar pairs, for each column."""
    if isinstance(pairs, LabelPairs):
        return np.diag(scatter.pair_scatters(A, pairs).similar).copy()
    similar = with_similar(pairs).part(similar=True)
    return np.sum(A * scatter.laplacian_times(A, similar.i, similar.j, similar.weight), axis=0)


class KernelSpectrumMetric(FromPairs, KernelMetric):
    """Keep the eigenvectors of a kernel, and weight each by how little it changes along similar pairs.

    Parameters
    ----------
    n_components : int, optional
        Eigenvectors. Default: as many as reach `share` of the trace.
    share : float
        In (0, 1].
    scale : float
        c, the sum of the weights, above 0.
    floor : float
        Smaller f count as `floor` times the largest: else an eigenvector that no similar pair changes got all weight.
    center : bool
        Take the eigenvectors of the centered kernel matrix.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed" or a function of two sets of rows.
    gamma : float, optional
        Default: 1 / median squared distance, for "laplacian" 1 / median city-block distance; for others 1 / d.
    degree, coef0 : float
        Of the polynomial kernel.
    landmarks : int or None
        Rows drawn to span the feature space (Nystroem): O(n landmarks^2). None: all rows, O(n^3).
    n_pairs : "all", int or None
        Pairs made from labels: all, this many of each kind, or 20 c^2 of each kind for c classes.
    weighting : "pairs" or "class"
        With ``n_pairs="all"``: every pair weighs the same, or every class does.
    random_state : int, RandomState, Generator or None
        Draws landmarks and pairs.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
    beta_, f_, eigenvalues_ : ndarray of shape (k,)
        New weights, spreads over similar pairs, eigenvalues of the kernel matrix.

    Notes
    -----
    Yeung & Chang, IEEE Transactions on Neural Networks 18, 2007. Dissimilar pairs are not used, and the kernel's own
    eigenvalues are thrown away: `n_components` decides how much noise comes in. `share`, `floor` and `center` are not
    the paper's.
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
