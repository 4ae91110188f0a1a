"""Metric that keeps the data's manifold (Baghshah & Shouraki, 2009).

    max_U  tr(U' S_D U) / tr(U' (S_S + lam X' E X / n) U)   s.t.  U' U = I,    E = (I - W)'(I - W),  M = U U'

S_S, S_D: mean scatters of similar and of dissimilar pairs; W: the weights that rebuild every row, labeled or not, from
its neighbors (LLE). The ratio is maximized exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, Mahalanobis, Workspace
from ...neighbors import graphs
from ...numerics import checks, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import Array
from .. import locality


def lle_regularized(
    X: Array,
    pairs: Pairs | LabelPairs,
    n_components: int | None = None,
    *,
    lam: float = 1.0,
    n_neighbors: int = 10,
    lle_reg: float = 1e-3,
    solver: str = "ratio",
    tol: float = 1e-10,
) -> Solution:
    """Return L = U' (p, d) as `x`; see `LLERegularizedMetric` for the settings."""
    V = scatter.data_span(X) if X.shape[1] >= len(X) else np.eye(X.shape[1])
    Y = X @ V.T
    S_w, S_b = scatter.pair_scatters(Y, pairs).mean()
    if lam > 0:
        S_w = S_w + lam * locality.rebuilding_scatter(Y, graphs.lle_weights(Y, n_neighbors, lle_reg))
    wish = int(pairs.labels.max()) if isinstance(pairs, LabelPairs) else None
    found = locality.ratio_directions(S_b, S_w, n_components, solver=solver, tol=tol, wish=wish)
    return found.with_x(psd.fix_signs((found.x @ V).T).T)


class LLERegularizedMetric(FromPairs, Mahalanobis):
    """Find orthonormal directions that keep dissimilar pairs apart, and similar pairs and neighborhoods together.

    Rows without a label count too: they shape the neighborhoods.

    Parameters
    ----------
    n_components : int, optional
        Below the rank of the data. Default: with labels one less than the classes; with pairs the fewest that keep 95 %
        of the dissimilar scatter, or all but one with the solver "gevd".
    lam : float
        Weight of the neighborhoods; with 0 this is `HighDimensionalDCA`.
    n_neighbors : int
        Below the number of rows.
    lle_reg : float
        Ridge of each row's rebuilding weights, in units of the mean eigenvalue of its neighbors' Gram matrix.
    solver : "ratio" or "gevd"
        The problem above, or generalized eigenvectors, whose constraint is U' (S_S + lam X' E X / n) U = I instead.
    tol : float
        On the ratio's optimality, relative to the trace of S_D.
    n_pairs : "all", int or None
        Pairs made from labels: all, this many of each kind, or 20 c^2 of each kind for c classes.
    weighting : "pairs" or "class"
        With ``n_pairs="all"``: every pair weighs the same, or every class does.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Orthonormal rows with ``solver="ratio"``.
    objective_ : float
        The ratio.

    Notes
    -----
    Soleymani Baghshah & Bagheri Shouraki, "Semi-supervised metric learning using pairwise constraints", IJCAI 2009.
    The neighborhoods' scatter is divided by n, so that `lam` does not depend on the number of rows; its default and
    those of `n_neighbors` and `lle_reg` are ours. A survey's account exchanges similar and dissimilar pairs, and solves
    the ratio by generalized eigenvectors, which are not orthonormal: that is ``solver="gevd"``.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        lam: float = 1.0,
        n_neighbors: int = 10,
        lle_reg: float = 1e-3,
        solver: str = "ratio",
        tol: float = 1e-10,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.n_neighbors = n_neighbors
        self.lle_reg = lle_reg
        self.solver = solver
        self.tol = tol
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, lam=self.lam, lle_reg=self.lle_reg)
        checks.one_of(locality.SOLVERS, solver=self.solver)
        settings = self._settings("n_components", "lam", "n_neighbors", "lle_reg", "solver", "tol")
        return lle_regularized(X, pairs, **settings)
