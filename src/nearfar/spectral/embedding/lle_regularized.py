"""Metric that preserves the manifold of the data (Soleymani Baghshah & Bagheri Shouraki, 2009).

    max_U  tr(U' S_D U) / tr(U' (S_S + lam X' E X / n) U)   s.t.  U' U = I,    E = (I - W)'(I - W),  M = U U'

S_S and S_D are the mean scatters of the similar and of the dissimilar pairs. W holds the weights that reconstruct every
row, labeled or not, from its neighbors (LLE). The ratio is maximized exactly.
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
    V = np.eye(X.shape[1])
    if X.shape[1] >= len(X):
        V = scatter.data_span(X)  # (r, d)
    # with fewer rows than features, the weights and scatters are those of the span
    Y = X @ V.T
    S_w, S_b = scatter.pair_scatters(Y, pairs).mean()
    if lam > 0:
        W = graphs.lle_weights(Y, n_neighbors, lle_reg)
        # + lam X' (I - W)'(I - W) X / n: how badly directions rebuild a row from its neighbors
        S_w = S_w + lam * locality.rebuilding_scatter(Y, W)
    default: dict[str, Any] = {}
    if isinstance(pairs, LabelPairs):
        most = int(pairs.labels.max())  # one less than the number of classes
        default = {"share": locality.SHARE_OF_CLASSES, "least": most}
        if solver == "gevd":
            default = {"preferred": most}
    found = locality.ratio_directions(S_b, S_w, n_components, solver=solver, tol=tol, **default)
    return found.with_x(psd.fix_signs((found.x @ V).T).T)


class LLERegularizedMetric(FromPairs, Mahalanobis):
    """Find orthonormal directions that keep dissimilar pairs apart, and similar pairs and neighborhoods together.

    Rows without a label are used as well: they shape the neighborhoods.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space, below the rank of the data. By default, the smallest number that
        keeps 95 % of the dissimilar scatter with pairs, and with labels 50 %, but at least one less than the number of
        classes. With ``solver="gevd"``, one less than the number of classes, and all but one with pairs.
    lam : float
        Weight of the neighborhoods, at least 0. With 0, this is `HighDimensionalDCA`.
    n_neighbors : int
        Number of neighbors of each row, below the number of rows.
    lle_reg : float
        Ridge penalty of the weights that reconstruct each row from its neighbors, at least 0, in units of the mean
        eigenvalue of the Gram matrix of the neighbors.
    solver : {"ratio", "gevd"}
        "ratio" maximizes the trace ratio. "gevd" uses generalized eigenvectors, whose constraint is U' (S_S + lam X' E
        X / n) U = I instead.
    tol : float
        Tolerance for the optimality of the trace ratio, relative to the trace of S_D.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|. Its rows are orthonormal with ``solver="ratio"``.
    objective_ : float
        Trace ratio.

    Notes
    -----
    Soleymani Baghshah & Bagheri Shouraki, "Semi-supervised metric learning using pairwise constraints", IJCAI 2009.

    The scatter of the neighborhoods is divided by n, so that `lam` does not depend on the number of rows. Its default
    and those of `n_neighbors` and `lle_reg` are not from the paper. The survey of Ghojogh et al. (2022) exchanges
    similar and dissimilar pairs, and solves the ratio by generalized eigenvectors, which are not orthonormal; this is
    ``solver="gevd"``.
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
