"""Distance metric learning versus Fisher discriminant analysis, with a kernel (Alipanahi, Biggs & Ghodsi, 2008).

    orthonormal:  min_T tr(T' (K_S - K_D) T)   s.t.  T' K T = I
    within:       min_T tr(T' (K_S - K_D) T)   s.t.  T' K_S T = I

K_S and K_D are the means of (k_i - k_j)(k_i - k_j)' over similar and over dissimilar pairs, where k_i is column i of
the kernel matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...numerics import checks, constraints, mahalanobis, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import Array

MAX_COMPONENTS = 50  # default number of directions if more lower the objective


def kernel_fisher(
    R: Array,
    pairs: Pairs | LabelPairs,
    n_components: int | None = None,
    constraint: str = "within",
    shrinkage: float | str = 0.0,
    on_singular: str = "shrink",
) -> Solution:
    """Return L (p, r) on rows R of the kernel map, as `x`; see `KernelFisherMetric`."""
    S, D = scatter.pair_scatters(R, pairs).mean()
    if constraint == "orthonormal":
        # the directions of largest u' (D - S) u; those above 0 lower the objective
        w, V = psd.spectrum(D - S)
        gain = w
        eigenvalues = -w
        useful = int((w > psd.rounding(np.diag(S + D))).sum())
    else:
        # D u = w S u, U' S U = I: each direction adds 1 - w to the objective
        freedom = constraints.degrees_of_freedom(pairs, len(R))
        S = mahalanobis.regularized(S, shrinkage, freedom)
        w, V = psd.gevd(D, S, None, on_singular, "the similar scatter")
        gain = w - 1
        eigenvalues = w
        useful = min(int((w > 1 + psd.rounding(w)).sum()), max(len(S) - 1, 1))
    p = n_components
    if p is None:
        p = min(useful, MAX_COMPONENTS)
    if p == 0:
        raise ValueError(
            "there is no direction in which dissimilar pairs are farther apart than similar ones; set n_components"
        )
    return Solution(V[:, :p].T, objective=-float(gain[:p].sum()), attributes={"eigenvalues": eigenvalues[:p]})


class KernelFisherMetric(FromPairs, KernelMetric):
    """Find directions of the feature space of a kernel in which dissimilar pairs are farther apart than similar pairs.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space. By default, every direction that lowers the objective is kept, up to
        50.
    constraint : {"within", "orthonormal"}
        "within" finds directions of unit similar scatter, which is kernel discriminant analysis of pairs. "orthonormal"
        finds orthonormal directions. All of them count the same, also those that fit the noise of few rows or of many
        columns: choose `n_components` and `gamma` by cross-validation.
    shrinkage : float or "auto"
        Share of the scaled identity that "within" mixes into the similar scatter S, in [0, 1]. "auto" adds 0.3 tr(S) /
        (n - c) to its diagonal for n rows of c classes, or of c groups that similar pairs connect.
    on_singular : {"shrink", "pinv", "raise"}
        How "within" treats a similar scatter that is still singular: add a small value to its diagonal and warn,
        work in its range, or raise a ValueError.
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
    eigenvalues_ : ndarray of shape (k,)
        With "orthonormal", the eigenvalues of the objective, in increasing order. With "within", the generalized
        eigenvalues mu of K_D t = mu K_S t, in decreasing order.

    Notes
    -----
    Alipanahi, Biggs & Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008, in its kernel
    form. "orthonormal" corresponds to the first approach of the paper with orthonormal directions, and "within" to the
    second. Centering the kernel would change nothing, because pairs only depend on differences. `shrinkage` is not
    from the paper; without it, a rich kernel maps all training rows of a class to one point.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        constraint: str = "within",
        shrinkage: float | str = "auto",
        on_singular: str = "shrink",
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
        self.constraint = constraint
        self.shrinkage = shrinkage
        self.on_singular = on_singular
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.one_of(("within", "orthonormal"), constraint=self.constraint)
        checks.one_of(("shrink", "pinv", "raise"), on_singular=self.on_singular)
        checks.share(("auto",), shrinkage=self.shrinkage)
        return kernel_fisher(
            R,
            pairs,
            n_components=self.n_components,
            constraint=self.constraint,
            shrinkage=self.shrinkage,
            on_singular=self.on_singular,
        )
