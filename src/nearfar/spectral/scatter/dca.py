"""Discriminative component analysis (Hoi, Liu, Lyu & Ma, 2006).

    max_A |A' C_b A| / |A' C_w A|
    C_w = 1/N sum_l sum_{i in chunklet l} (x_i - m_l)(x_i - m_l)'
    C_b = 1/n_b sum_l sum_{k in D_l} (m_l - m_k)(m_l - m_k)'

D_l holds the chunklets that a negative link separates from chunklet l; n_b = sum_l |D_l|.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import Workspace
from ...estimators.sums import ChunkletSums
from ...numerics import checks, mahalanobis, scatter
from ...numerics.class_sums import ClassMoments
from ...numerics.optimize import Solution
from ...numerics.types import Array, Bools, Ints
from ..discriminant import SOLVERS, discriminative_components, shrunk_covariance


def dca(
    X: Array, chunklets: Ints, apart: Bools, p: int | None = None, shrinkage: float | str = 0.0, **settings: Any
) -> Solution:
    """Return L = A' (k, d) as `x`; see `discriminative_components` for the settings."""
    C_w = shrunk_covariance(X, chunklets, shrinkage)
    C_b = scatter.chunklets_apart(X, chunklets, apart)
    return discriminative_components(C_b, C_w, p, **settings)


class DCA(ChunkletSums):
    """Find directions that keep groups of similar rows together and different groups apart.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space, at most the rank of the between-chunklet scatter (which is less than
        the number of chunklets) and below d. By default, the largest possible number.
    solver : {"gevd", "hoi"}
        "gevd" finds the optimum as a generalized eigenproblem. "hoi" uses the two eigendecompositions of the paper,
        which stay in the range of the between-chunklet scatter.
    shrinkage : float or "auto"
        Share of the scaled identity that is mixed into C_w, in [0, 1], because few rows or many features make its
        inverse uncertain. "auto" adds 0.3 tr(C_w) / (n - c) to its diagonal for n rows of c chunklets, as if the
        identity had been seen in 0.3 rows for each feature. Columns are first divided by their standard deviation, and
        multiplied by the root of the share of their variance that the chunklets explain: their units do not matter, and
        columns of noise do not become loud, unless most chunklets are pairs. The paper uses none: 0.
    on_singular : {"shrink", "raise"}
        How to treat a within-chunklet covariance that is still singular: add a small value to its diagonal and
        warn, or raise a ValueError.
    tol : float
        Eigenvalues of the between-chunklet scatter below `tol` times the largest are treated as 0.
    n_chunklets : int, optional
        Number of chunklets to draw from labels. By default, every class is one chunklet.
    chunklet_size : int
        Number of rows in each drawn chunklet, at least 2.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the chunklets.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    eigenvalues_ : ndarray of shape (k,)
        Diagonal of A' C_b A, in decreasing order.

    Notes
    -----
    Hoi, Liu, Lyu & Ma, "Learning distance metrics with contextual constraints for image retrieval", CVPR 2006.

    The procedure of the paper is ``solver="hoi"``; "gevd" reaches a larger ratio of determinants. The survey of
    Ghojogh et al. (2022) sums over all pairs of chunklets, divides by n, and writes the ratio with traces, which
    generalized eigenvectors do not maximize.

    If there are more features than rows, both solvers work in the span of the differences between rows.
    """

    _links = True
    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: str = "gevd",
        shrinkage: float | str = "auto",
        on_singular: str = "shrink",
        tol: float = 1e-9,
        n_chunklets: int | None = None,
        chunklet_size: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.shrinkage = shrinkage
        self.on_singular = on_singular
        self.tol = tol
        self.n_chunklets = n_chunklets
        self.chunklet_size = chunklet_size
        self.random_state = random_state

    @property
    def _in_deviations(self) -> bool:
        return self.shrinkage == "auto"

    def _solve(self, X: Array, chunklets: Ints, apart: Bools, work: Workspace) -> Solution:
        return dca(X, chunklets, apart, **self._checked())

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        settings = self._checked()
        C_w = sums.within / sums.count[sums.count > 1].sum()
        freedom = float(np.maximum(sums.count - 1, 0).sum())
        C_w = mahalanobis.regularized(C_w, settings.pop("shrinkage"), freedom)
        M = sums.mean - sums.mean.mean(axis=0)  # (c, d)
        # the mean of (m_l - m_k)(m_l - m_k)' over all l != k
        C_b = 2 * M.T @ M / (len(M) - 1)
        return discriminative_components(C_b, C_w, **settings)

    def _checked(self) -> dict[str, Any]:
        checks.one_of(SOLVERS, solver=self.solver)
        checks.one_of(("shrink", "raise"), on_singular=self.on_singular)
        checks.share(("auto",), shrinkage=self.shrinkage)
        found = self._settings("solver", "shrinkage", "on_singular", "tol")
        return {"p": self.n_components, **found}
