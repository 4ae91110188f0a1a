"""Distance metric learning like a nu-SVM, with a kernel (Tsang & Kwok, 2003).

    min  1/2 |M|^2 + l1/|S| sum_S d_ij^2 + l2 (-nu gam + 1/|D| sum_D xi_ij)
    s.t. d_ij^2 - d0_ij^2 >= gam - xi_ij for dissimilar pairs,   M PSD,   gam, xi >= 0
    d0_ij^2 = k_ii + k_jj - 2 k_ij

d_ij are the distances under M in the feature space of the kernel, and d0_ij the original ones. The dual is solved.
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
    if unit <= 1e-20 * np.einsum("nr,nr->n", R, R).max():  # only rounding, of either sign
        raise ValueError("pairs must hold dissimilar rows that differ; all of them coincide in the feature space")
    dissimilar = pairs.part(similar=False)
    Z = (R[dissimilar.i] - R[dissimilar.j]) / np.sqrt(unit)
    weight = dissimilar.weights / dissimilar.weights.sum()
    problem = NuMargin(S=S / unit, Z=Z, weight=weight, l1=l1, l2=l2, nu=nu, definite=definite)
    found = nu_margin(problem, **search)
    warn_without_margin(found)
    return found.with_x(found.x / unit)


class KernelNuSVMMetric(FromPairs, KernelMetric):
    """Stretch dissimilar pairs by a margin in the feature space of a kernel, and keep similar pairs near.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space: the eigenvectors of M with the largest eigenvalues, scaled by the
        square roots of their eigenvalues. By default, all are kept.
    l1 : float
        Weight of the mean squared distance of the similar pairs, at least 0.
    l2 : float
        Weight of the margin, above 0.
    nu : float
        Upper bound on the share of dissimilar pairs inside the margin, and lower bound on the share on the margin or
        inside it, if the margin is above 0; in (0, 1].
    definite : bool
        Constrain M to be positive semi-definite. If False, a simpler quadratic program is solved, and the negative
        eigenvalues of M are discarded afterwards.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed", or a function that takes two sets of rows
        and returns the matrix of their kernel values.
    gamma : float, optional
        Coefficient of the kernel. By default, 1 / (median squared distance), for "laplacian" 1 / (median city-block
        distance), and for the other kernels 1 / d.
    degree, coef0 : float
        Degree and constant term of the polynomial kernel.
    landmarks : int or None
        Number of rows drawn to span the feature space (Nystroem approximation). An iteration costs the cube of this
        number. None uses all rows.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 5,000. If fewer exist, all of them
        are used. Each iteration compares all dissimilar pairs.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, |objective|)``.
    warm_start : bool
        Start from the multipliers of the previous fit if the number of dissimilar pairs is the same.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the landmarks and the pairs.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.
    objective_, duality_gap_, margin_ : float
        Objective, upper bound on its difference to the optimum, and margin, in units in which the mean d0^2 of the
        dissimilar pairs is 1.
    dual_ : ndarray of shape (number of dissimilar pairs,)
        Multipliers of ``pairs_[pair_labels_ == -1]``.
    pairs_ : ndarray of shape (p, 2)
        Row numbers of the pairs that were made from labels, or of the given pairs, each once.
    pair_labels_ : ndarray of shape (p,)
        +1 for similar pairs and -1 for dissimilar pairs.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Tsang & Kwok, "Distance metric learning with kernels", ICANN 2003. Distances are first scaled to a mean d0^2 of 1
    over the dissimilar pairs, so that the unit of the kernel does not matter. This scaling and the defaults are not
    from the paper. On 833 rows of digits, 500 landmarks gave the accuracy of all rows in a fifth of the time. If `l2`
    is too small, the margin is 0 and every dissimilar pair counts the same; there is a warning then.

    Positive semi-definiteness is part of the problem here. The search ends with Newton steps: if they converge, M is
    the optimum up to rounding for any `tol`.
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
        landmarks: int | None = 500,
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

    _most_pairs = 5_000  # 10 s with 500 landmarks, where 20,000 pairs took 30 s

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, l1=self.l1)
        checks.above(0, l2=self.l2, nu=self.nu, tol=self.tol)
        checks.between(0, 1, nu=self.nu)
        start = self._found_before("dual_", work)
        pairs = written_out(pairs)
        found = kernel_nu_svm(
            R, pairs, l1=self.l1, l2=self.l2, nu=self.nu, definite=self.definite, start=start, **self._search()
        )
        L = psd.components(found.x, self.n_components)
        if self.n_components is None:
            L = L[np.any(L, axis=1)]  # without rows of 0
        return found.with_x(L, attributes=found.attributes | work.pairs_as_given(pairs))
