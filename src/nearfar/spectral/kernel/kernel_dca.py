"""Discriminative component analysis in the feature space of a kernel (Hoi, Liu, Lyu & Ma, 2006).

    max_T |T' K_b T| / |T' K_w T|
    K_w = 1/N sum_l sum_{i in chunklet l} (k_i - m_l)(k_i - m_l)'
    K_b = 1/n_b sum_l sum_{h in D_l} (m_l - m_h)(m_l - m_h)'

k_i: column i of the kernel matrix; m_l: mean of the columns of chunklet l; D_l: chunklets that a negative link keeps
apart from chunklet l; n_b = sum_l |D_l|.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromChunklets, KernelMetric, Workspace
from ...numerics import checks, scatter
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import Array, Bools, Ints
from ..discriminant import SOLVERS, chunklet_covariance, discriminative_components


def kernel_dca(
    R: Array, chunklets: Ints, apart: Bools, n_components: int | None = None, reg: float = 1e-3, **settings: Any
) -> Solution:
    """Return L (k, r) on rows R of the kernel map, as `x`; see `discriminative_components`."""
    C_w = chunklet_covariance(R, chunklets)
    C_w += reg * np.trace(C_w) / len(C_w) * np.eye(len(C_w))
    C_b = scatter.chunklets_apart(R, chunklets, apart)
    return discriminative_components(C_b, C_w, n_components, **settings)


class KernelDCA(FromChunklets, KernelMetric):
    """Find directions of a kernel's feature space that keep groups of similar rows together and different groups apart.

    Parameters
    ----------
    n_components : int, optional
        Default and most: the rank of the between scatter (less than the number of chunklets).
    reg : float
        Added to the diagonal of the within scatter, in units of its mean eigenvalue. A rich kernel separates any
        training rows: with 0 it collapses their chunklets to points.
    solver : "gevd" or "hoi"
        The optimum by a generalized eigenproblem, or the paper's two eigendecompositions.
    on_singular : "shrink" or "raise"
        What to do with a within scatter that `reg` leaves singular.
    tol : float
        Eigenvalues of the between scatter below `tol` times the largest count as 0.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed" or a function of two sets of rows.
    gamma : float, optional
        Default: 1 / median squared distance, for "laplacian" 1 / median city-block distance; for others 1 / d.
    degree, coef0 : float
        Of the polynomial kernel.
    landmarks : int or None
        Rows drawn to span the feature space (Nystroem): O(n landmarks^2). None: all rows, O(n^3).
    n_chunklets : int, optional
        Draw this many chunklets from labels. Default: one per class.
    chunklet_size : int
        Rows of each drawn chunklet.
    random_state : int, RandomState, Generator or None
        Draws landmarks and chunklets.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        T.
    eigenvalues_ : ndarray of shape (k,)
        Diagonal of T' K_b T, falling.

    Notes
    -----
    Hoi, Liu, Lyu & Ma, CVPR 2006, kernel DCA. Solved on the rows of the kernel map: in the coordinates of all rows K_w
    has no inverse. `reg` and its default are not the paper's.
    """

    _links = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 1e-3,
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
        self.reg = reg
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
        checks.at_least(0, reg=self.reg)
        settings = self._settings("n_components", "reg", "solver", "on_singular", "tol")
        return kernel_dca(R, chunklets, apart, **settings)
