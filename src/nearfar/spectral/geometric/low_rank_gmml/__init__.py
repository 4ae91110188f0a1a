"""Low-rank geometric mean metric learning (Bhutani, Jawanpuria, Kasai & Mishra, 2018).

    M = U B U',  B = (U' S U)^-1 #_t (U' D U),  U' U = I
    min_U  t (1 - t) / 4 sum_i log^2 lam_i     ("riemannian"), or
    min_U  2 sum_i sqrt(lam_i)                 ("trace"),  lam: eigenvalues of U' S U U' D U

S and D are the mean scatters of the similar and of the dissimilar pairs. "discriminant" uses the span of the p leading
generalized eigenvectors, D u = mu S u.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....estimators.base import Workspace
from ....estimators.sums import PairSums
from ....numerics import checks, class_sums, manifolds, psd, scatter
from ....numerics.class_sums import ClassMoments
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import Array
from ... import geodesic
from ...stiefel import INITS
from . import subspaces

SUBSPACES = ("discriminant", "riemannian", "trace")
HELD_SHARE = 0.98  # share of sum [mu - 1]_+ that the default rank keeps: best in folds of eleven tables


def low_rank_gmml(
    S: Array, D: Array, p: int | None, t: float = 0.5, subspace: str = "discriminant", **search: Any
) -> Solution:
    """Return L (p, d) as `x` from both scatters, S positive definite; see `LowRankGMML` for the settings."""
    # D u = mu S u: mu is the ratio of dissimilar to similar squared distances along u, the largest first
    mu, V = psd.gevd(D, S)
    if p is None:
        p = psd.holding(np.maximum(mu - 1, 0.0), HELD_SHARE)
    rank = psd.rank(psd.spectrum(D)[0])
    if p > max(rank, 1):
        raise ValueError(f"n_components must be at most {rank}, the rank of the dissimilar scatter; got {p}")
    # generalized eigenvectors are orthogonal under S, not orthonormal
    U = manifolds.orthonormal(V[:, :p])[0]
    found = Solution(U, float(mu[:p].sum()))
    if subspace != "discriminant":
        found = subspaces.search(S, D, U, subspace, **search)
        U = found.x
    if subspace == "riemannian":
        found = found.with_x(U, objective=t * (1 - t) * subspaces.cost(U, S, D, "riemannian")[0])
    L = psd.sharp_factor(U.T @ S @ U, U.T @ D @ U, t)  # (p, p), B = L' L
    return found.with_x(psd.compress(L @ U.T), attributes={"subspace": U, "inner": L.T @ L})


class LowRankGMML(PairSums):
    """Learn a geometric mean metric of a given rank, for wide tables.

    Parameters
    ----------
    n_components : int, optional
        Rank p of the metric. By default, the number of generalized eigenvalues of (D, S) that hold 98 % of what all of
        them have above 1 (a rule that is not from the paper).
    t : float
        Point on the geodesic, in [0, 1]: 0 gives the inverse of the similar scatter, and 1 gives the dissimilar
        scatter.
    reg : float or "auto"
        Weight of the identity that is added to both scatters, in units of the mean eigenvalue of the similar scatter.
        "auto" adds 1e-6, and only if the similar scatter is nearly singular.
    subspace : {"discriminant", "riemannian", "trace"}
        Subspace on which the metric is learned; see Notes.
    init : {"discriminant", "pca", "random"}
        First starting point of the searches for "riemannian" and "trace". The other starting points are random.
    restarts : int
        Number of starting points, at least 1. The best result is kept; among equally good results, the first.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    max_iter : int
        Maximum number of L-BFGS iterations of each search.
    tol : float
        Stop when the largest entry of the gradient falls below ``tol * max(1, |objective|)``.
    warm_start : bool
        Search only once, from the subspace of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs and the random starting points.

    Attributes
    ----------
    components_ : ndarray of shape (p, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    subspace_ : ndarray of shape (d, p)
        Orthonormal basis U of the subspace, in columns.
    inner_ : ndarray of shape (p, p)
        Metric B inside the subspace.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Bhutani, Jawanpuria, Kasai & Mishra, "Low-rank geometric mean metric learning", arXiv:1806.05454, 2018.

    Both objectives of the paper select poor subspaces. "trace" is smallest where the data vary least. "riemannian" is
    0 if all eigenvalues lam are 1, and the subspace then depends on the starting point and on the units of X.
    The default is therefore not from the paper. No choice of `subspace` depends on t. The survey of Ghojogh et al.
    (2022) searches U with B fixed, which is not a cost on subspaces.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        t: float = 0.5,
        reg: float | str = 0.1,
        subspace: str = "discriminant",
        init: str = "discriminant",
        restarts: int = 3,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.t = t
        self.reg = reg
        self.subspace = subspace
        self.init = init
        self.restarts = restarts
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        if X.shape[1] > len(X):
            V = scatter.data_span(X)  # (r, d)
        else:
            V = np.eye(X.shape[1])
        self._check_settings(scatter.total(X @ V.T))
        S, D = scatter.pair_scatters(X @ V.T, pairs).mean()
        return self._from_scatters(S, D, V, work)

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        d = len(rows.center)
        if d > rows.n:
            V = rows.span()
        else:
            V = np.eye(d)
        self._check_settings(rows.projected(V).total)
        S, D = class_sums.pair_scatters(sums.projected(V), self.weighting).mean()
        return self._from_scatters(S, D, V, work)

    def _check_settings(self, total: Array) -> None:
        checks.between(0, 1, t=self.t)
        checks.counts(1, restarts=self.restarts)
        checks.one_of(SUBSPACES, subspace=self.subspace)
        checks.one_of(INITS, init=self.init)
        rank = psd.rank(psd.spectrum(total)[0])
        if (self.n_components or 0) > max(rank, 1):
            raise ValueError(f"n_components must be at most {rank}, the rank of the data; got {self.n_components}")

    def _from_scatters(self, S: Array, D: Array, V: Array, work: Workspace) -> Solution:
        """Solve from the mean scatters (r, r) in the coordinates V (r, d)."""
        S, D = geodesic.regularized(S, D, self.reg)
        last = work.start()
        if last is not None:
            last = last @ V.T
        search = self._settings("init", "restarts") | self._search() | {"last": last, "seed": self.random_state}
        found = low_rank_gmml(S, D, p=self.n_components, t=self.t, subspace=self.subspace, **search)
        U = V.T @ found.attributes["subspace"]
        return found.with_x(found.x @ V, attributes=found.attributes | {"subspace": U})
