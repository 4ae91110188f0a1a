"""Discriminative component analysis in the feature space of a kernel (Hoi, Liu, Lyu & Ma, 2006).

    max_T |T' K_b T| / |T' K_w T|
    K_w = 1/N sum_l sum_{i in chunklet l} (k_i - m_l)(k_i - m_l)'
    K_b = 1/n_b sum_l sum_{h in D_l} (m_l - m_h)(m_l - m_h)'

k_i is column i of the kernel matrix, m_l the mean of the columns of chunklet l, and D_l the set of chunklets that a
negative link separates from chunklet l; n_b = sum_l |D_l|.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromChunklets, KernelMetric, Workspace
from ...numerics import checks, scatter
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import Array, Bools, Ints
from ..discriminant import SOLVERS, discriminative_components, shrunk_covariance


def kernel_dca(
    R: Array,
    chunklets: Ints,
    apart: Bools,
    n_components: int | None = None,
    shrinkage: float | str = 0.0,
    **settings: Any,
) -> Solution:
    """Return L (k, r) on rows R of the kernel map, as `x`; see `discriminative_components`."""
    C_w = shrunk_covariance(R, chunklets, shrinkage)
    C_b = scatter.chunklets_apart(R, chunklets, apart)
    return discriminative_components(C_b, C_w, n_components, **settings)


class KernelDCA(FromChunklets, KernelMetric):
    """Find directions of the feature space of a kernel that keep similar rows together and different groups apart.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space, at most the rank of the between-chunklet scatter (which is less than
        the number of chunklets). By default, the largest possible number.
    shrinkage : float or "auto"
        Share of the scaled identity that is mixed into the within-chunklet scatter C_w, in [0, 1]. A rich kernel can
        separate any training rows: with 0, it maps each chunklet of the training rows to a single point. "auto" adds
        0.3 tr(C_w) / (n - c) to its diagonal for n rows of c chunklets.
    solver : {"gevd", "hoi"}
        "gevd" finds the optimum as a generalized eigenproblem. "hoi" uses the two eigendecompositions of the paper.
    on_singular : {"shrink", "raise"}
        How to treat a within-chunklet scatter that is still singular: add a small value to its diagonal and warn, or
        raise a ValueError.
    tol : float
        Eigenvalues of the between-chunklet scatter below `tol` times the largest are treated as 0.
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
    n_chunklets : int, optional
        Number of chunklets to draw from labels. By default, every class is one chunklet.
    chunklet_size : int
        Number of rows in each drawn chunklet, at least 2.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the landmarks and the chunklets.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.
    eigenvalues_ : ndarray of shape (k,)
        Diagonal of T' K_b T, in decreasing order.

    Notes
    -----
    Hoi, Liu, Lyu & Ma, "Learning distance metrics with contextual constraints for image retrieval", CVPR 2006 (kernel
    DCA). The problem is solved on the rows of the kernel map, because K_w is not invertible in the coordinates of all
    rows. `shrinkage` and its default are not from the paper.
    """

    _links = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        shrinkage: float | str = "auto",
        solver: str = "gevd",
        on_singular: str = "shrink",
        tol: float = 1e-9,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = None,
        n_chunklets: int | None = None,
        chunklet_size: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.solver = solver
        self.on_singular = on_singular
        self.tol = tol
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_chunklets = n_chunklets
        self.chunklet_size = chunklet_size
        self.random_state = random_state

    def _solve(self, R: Array, chunklets: Ints, apart: Bools, work: Workspace) -> Solution:
        checks.one_of(SOLVERS, solver=self.solver)
        checks.one_of(("shrink", "raise"), on_singular=self.on_singular)
        checks.share(("auto",), shrinkage=self.shrinkage)
        settings = self._settings("n_components", "shrinkage", "solver", "on_singular", "tol")
        return kernel_dca(R, chunklets, apart, **settings)
