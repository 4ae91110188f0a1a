"""Discriminative component analysis (Hoi, Liu, Lyu & Ma, 2006).

    max_A |A' C_b A| / |A' C_w A|
    C_w = 1/N sum_l sum_{i in chunklet l} (x_i - m_l)(x_i - m_l)'
    C_b = 1/n_b sum_l sum_{k in D_l} (m_l - m_k)(m_l - m_k)'

D_l: chunklets that a negative link keeps apart from chunklet l; n_b = sum_l |D_l|.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import Workspace
from ...estimators.sums import ChunkletSums
from ...numerics import checks, scatter
from ...numerics.class_sums import ClassMoments
from ...numerics.optimize import Solution
from ...numerics.types import Array, Bools, Ints
from ..discriminant import SOLVERS, chunklet_covariance, discriminative_components


def dca(X: Array, chunklets: Ints, apart: Bools, p: int | None = None, **settings: Any) -> Solution:
    """Return L = A' (k, d) as `x`; see `discriminative_components` for the settings."""
    C_w = chunklet_covariance(X, chunklets)
    C_b = scatter.chunklets_apart(X, chunklets, apart)
    return discriminative_components(C_b, C_w, p, **settings)


class DCA(ChunkletSums):
    """Find directions that keep groups of similar rows together and different groups apart.

    Parameters
    ----------
    n_components : int, optional
        Default and most: the rank of the between scatter (less than the number of chunklets), below d.
    solver : "gevd" or "hoi"
        The optimum by a generalized eigenproblem, or the paper's two eigendecompositions, which stay in the range of
        the between scatter.
    on_singular : "shrink" or "raise"
        What to do with a singular within-chunklet covariance.
    tol : float
        Eigenvalues of the between scatter below `tol` times the largest count as 0.
    n_chunklets : int, optional
        Draw this many chunklets from labels. Default: one per class.
    chunklet_size : int
        Rows of each drawn chunklet.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    eigenvalues_ : ndarray of shape (k,)
        Diagonal of A' C_b A, falling.

    Notes
    -----
    Hoi, Liu, Lyu & Ma, "Learning distance metrics with contextual constraints for image retrieval", CVPR 2006. Their
    procedure is ``solver="hoi"``; "gevd" reaches the larger ratio of determinants. A survey sums over all pairs of
    chunklets, divides by n, and writes the ratio with traces, which generalized eigenvectors do not maximize.
    With more features than rows both work in the span of the rows' differences.
    """

    _links = True
    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: str = "gevd",
        on_singular: str = "shrink",
        tol: float = 1e-9,
        n_chunklets: int | None = None,
        chunklet_size: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.on_singular = on_singular
        self.tol = tol
        self.n_chunklets = n_chunklets
        self.chunklet_size = chunklet_size
        self.random_state = random_state

    def _solve(self, X: Array, chunklets: Ints, apart: Bools, work: Workspace) -> Solution:
        return dca(X, chunklets, apart, **self._checked())

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        settings = self._checked()
        C_w = sums.within / sums.count[sums.count > 1].sum()
        M = sums.mean - sums.mean.mean(axis=0)
        C_b = 2 * M.T @ M / (len(M) - 1)  # the mean of (m_l - m_k)(m_l - m_k)' over l != k
        return discriminative_components(C_b, C_w, **settings)

    def _checked(self) -> dict[str, Any]:
        checks.one_of(SOLVERS, solver=self.solver)
        checks.one_of(("shrink", "raise"), on_singular=self.on_singular)
        found = self._settings("solver", "on_singular", "tol")
        return {"p": self.n_components, **found}
