"""Information geometry in the feature space of a kernel (Wang & Jin, 2009).

    min_S  tr(K_L^-1 K S K) - log det S  =>  S = (K K_L^-1 K)^-1,  K_L = Y Y' + lam I
    |x_i - x_j|^2 = (k_i - k_j)' S (k_i - k_j)

On rows R of the kernel map, R R' = K, this is M = (R' K_L^-1 R)^-1.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromLabels, KernelMetric, Workspace
from ...numerics import checks, mahalanobis, scatter
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import Array, Ints
from . import label_precision


def kernel_information_geometry(
    R: Array, labels: Ints, lam: float = 0.5, shrinkage: float | str = 0.0, n_components: int | None = None
) -> Solution:
    """Return L (k, r) on rows R of the kernel map, as `x`; see `KernelInformationGeometryMetric`."""
    B = label_precision.label_precision(R, labels, lam)
    B = mahalanobis.regularized(B, shrinkage, label_precision.degrees_of_freedom(labels))
    L, value = label_precision.inverse_metric(B, lam)
    return Solution(scatter.widest(L, R, n_components), value)


class KernelInformationGeometryMetric(FromLabels, KernelMetric):
    """Find the kernel metric closest to the kernel of the labels, in closed form.

    Parameters
    ----------
    n_components : int, optional
        Number of directions to keep, those along which the rows differ most under the metric. By default, all are kept.
    lam : float
        Regularization of the label kernel, above 0.
    shrinkage : float or "auto"
        Share of the scaled identity that is mixed into B = R' K_L^-1 R, in [0, 1]. With 0, and with all rows as
        landmarks, the learned kernel of the training rows equals K_L for any data: squared distances are 2 lam within
        classes and 2 + 2 lam between them, which is pure overfitting. "auto" adds 0.3 tr(B) / (n - c) to the diagonal
        for n rows of c classes.
    kernel : {"rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed"} or callable
        Kernel to use: its name, or a function that takes two sets of rows and returns their kernel matrix. With
        "precomputed", X is the kernel matrix itself.
    gamma : float, optional
        Coefficient of the "rbf", "laplacian" and "polynomial" kernels. By default, 1 / median squared distance between
        rows for "rbf", 1 / median city-block distance for "laplacian", and 1 / d otherwise.
    degree : float
        Degree of the "polynomial" kernel.
    coef0 : float
        Constant term of the "polynomial" kernel.
    landmarks : int or None
        Number of rows drawn to span the feature space; the cost grows with its square. If None, all rows are used.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the landmarks.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        The coefficients T of the learned map, one row per landmark; S = T T' without shrinkage.
    objective_ : float
        Value of the objective at the solution.

    Notes
    -----
    Wang & Jin, AISTATS 2009.

    The paper uses no shrinkage and all rows; the defaults of `shrinkage` and `landmarks` are not from the paper. This
    is the linear method without centering on the rows of the empirical kernel map, with one eigendecomposition instead
    of an n x n inverse.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        lam: float = 0.5,
        shrinkage: float | str = 0.01,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = 300,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.shrinkage = shrinkage
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.random_state = random_state

    def _solve(self, R: Array, labels: Ints, work: Workspace) -> Solution:
        checks.above(0, lam=self.lam)
        checks.share(("auto",), shrinkage=self.shrinkage)
        return kernel_information_geometry(
            R, labels, lam=self.lam, shrinkage=self.shrinkage, n_components=self.n_components
        )
