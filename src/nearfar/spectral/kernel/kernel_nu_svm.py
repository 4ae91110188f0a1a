"""Distance metric learning like a nu-SVM, with a kernel (Tsang & Kwok, 2003).

    min  1/2 |M|^2 + l1/|S| sum_S d_ij^2 + l2 (-nu gam + 1/|D| sum_D xi_ij)
    s.t. d_ij^2 - d0_ij^2 >= gam - xi_ij for dissimilar pairs,   M PSD,   gam, xi >= 0
    d0_ij^2 = k_ii + k_jj - 2 k_ij

d_ij: distances under M in the kernel's feature space; d0_ij: those before. Solved through its dual.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...numerics import checks, psd
from ...numerics.constraints import LabelPairs, Pairs, written_out
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.scatter import pair_scatters
from ...numerics.types import Array
from ..nu_svm_dual import NuMargin, nu_margin, warn_without_margin


def kernel_nu_svm(
    R: Array, pairs: Pairs, l1: float = 1.0, l2: float = 300.0, nu: float = 0.2, definite: bool = True, **search: Any
) -> Solution:
    """Return M (r, r) on rows R of the kernel map, as `x`; see `KernelNuSVMMetric`."""
    S, D = pair_scatters(R, pairs).mean()
    unit = float(np.trace(D))
    if unit <= 1e-20 * np.einsum("nr,nr->n", R, R).max():  # rounding, of either sign
        raise ValueError("all dissimilar pairs coincide in the feature space")
    dissimilar = pairs.part(similar=False)
    Z = (R[dissimilar.i] - R[dissimilar.j]) / np.sqrt(unit)
    weight = dissimilar.weights / dissimilar.weights.sum()
    found = nu_margin(NuMargin(S / unit, Z, weight, l1, l2, nu, definite), **search)
    warn_without_margin(found)
    return found.with_x(found.x / unit)


class KernelNuSVMMetric(FromPairs, KernelMetric):
    """Stretch dissimilar pairs by a margin in a feature space, with similar pairs and the metric itself kept small.

    Parameters
    ----------
    n_components : int, optional
        Keep this many leading eigenvectors of M, scaled by the roots of their eigenvalues.
    l1, l2 : float
        Weights of the similar pairs, at least 0, and of the margin, above 0.
    nu : float
        In (0, 1]: where the margin is above 0, at most this share of the dissimilar pairs lies inside it, and at least
        this share on it or inside.
    definite : bool
        Ask for a positive semi-definite M in the problem. If False, the problem is the simpler quadratic program, and
        the negative eigenvalues of its M are dropped afterwards.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed" or a function of two sets of rows.
    gamma : float, optional
        Default: 1 / median squared distance, for "laplacian" 1 / median city-block distance; for others 1 / d.
    degree, coef0 : float
        Of the polynomial kernel.
    landmarks : int or None
        Rows drawn to span the feature space; a step costs their cube. None: all rows.
    n_pairs : int, "all" or None
        Pairs made from labels: this many of each kind, all (written out), or 20 c^2 of each kind for c classes.
    max_iter : int
    tol : float
        On the duality gap, relative to max(1, |objective|).
    warm_start : bool
        Begin with the multipliers of the last fit, where there are as many dissimilar pairs.
    verbose : bool
    random_state : int, RandomState, Generator or None
        Draws landmarks and pairs.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
    objective_, duality_gap_, margin_ : float
        In units in which the mean d0^2 of the dissimilar pairs is 1.
    dual_ : ndarray of shape (number of dissimilar pairs,)
        Multipliers of ``pairs_[pair_labels_ == -1]``.
    pairs_, pair_labels_ : ndarray of shape (p, 2), (p,)
        Rows of X, and +1 or -1: the pairs that were made of labels, or the given ones, each once.

    Notes
    -----
    Tsang & Kwok, "Distance metric learning with kernels", ICANN 2003. Distances are first scaled to a mean d0^2 of 1
    over the dissimilar pairs, so that the unit of the kernel does not matter; that and the defaults are ours. Where
    `l2` is too small the margin is 0, which is warned of: every dissimilar pair then counts alike. Positive
    definiteness is part of the problem here. Newton steps end the search: where they get to the end, M is the optimum
    to rounding, whatever `tol`.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        l1: float = 1.0,
        l2: float = 300.0,
        nu: float = 0.2,
        definite: bool = True,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = None,
        n_pairs: int | str | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.l1 = l1
        self.l2 = l2
        self.nu = nu
        self.definite = definite
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, l1=self.l1)
        checks.above(0, l2=self.l2, nu=self.nu, tol=self.tol)
        checks.between(0, 1, nu=self.nu)
        start = self._found_before("dual_", work)
        pairs = written_out(pairs)
        found = kernel_nu_svm(R, pairs, self.l1, self.l2, self.nu, self.definite, start=start, **self._search())
        L = psd.components(found.x, self.n_components)
        L = L[np.any(L, axis=1)] if self.n_components is None else L
        return found.with_x(L, attributes=found.attributes | work.pairs_as_given(pairs))
