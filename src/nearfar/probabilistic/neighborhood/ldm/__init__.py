"""Local distance metric (Yang, Jin, Sukthankar & Liu, 2006).

    max_{gamma >= 0}  sum_i [ log sum_{j in S_i} e_ij - log sum_{j in S_i or D_i} e_ij ]
    e_ij = exp(-sum_k gamma_k (v_k' (x_i - x_j))^2)

v_k are the principal directions; S_i and D_i hold the rows similar and dissimilar to row i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....estimators.base import FromPairs, Mahalanobis, Workspace
from ....numerics import checks, constraints, initialization, scatter
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import Array, Seed
from . import diagonal


def ldm(
    X: Array,
    pairs: Pairs | LabelPairs,
    n_components: int | None = None,
    *,
    neighbors: int | None = None,
    solver: str = "direct",
    n_init: int = 1,
    seed: Seed = None,
    last: Array | None = None,
    **search: Any,
) -> Solution:
    """Return L = diag(gamma)^(1/2) V' (k, d): the best of `n_init` searches, or the result of one from `last` (k, d).

    `search` holds max_iter, tol and report.
    """
    V = scatter.axes(X, n_components or len(scatter.span_or_axes(X, 1)))[1]
    deviation = (X @ V).std(axis=0)
    # directions without scatter get the weight 0; the weights of the others are in units of their variance
    scale = np.where(deviation > 1e-9 * deviation.max(), deviation, np.inf)
    F = diagonal.likelihood(X @ V / scale, pairs, neighbors, near=X)
    if last is not None and len(last) == V.shape[1]:
        flat = np.sum((last @ V) ** 2, axis=0)
        n_init = 1
    else:
        flat = np.sum(initialization.median_scaled(X, V.T)[0] ** 2)
    first = flat * np.where(np.isfinite(scale), scale, 0.0) ** 2
    climb = diagonal.by_bounds if solver == "mm" else diagonal.directly
    rng = constraints.generator(seed)
    tries = [first, *(first * np.exp(rng.normal(size=(n_init - 1, len(first)))))]
    found = [climb(F, gamma, **search) for gamma in tries]
    best = max(found, key=lambda solution: solution.value)
    # back to the units of the rows: gamma_k (v_k'x)^2 = (gamma_k scale_k^2) (v_k'x / scale_k)^2
    gamma = best.x / scale**2
    return best.with_x(np.sqrt(gamma)[:, None] * V.T, attributes={"gamma": gamma, "basis": V})


class LDM(FromPairs, Mahalanobis):
    """Weight principal directions so that similar rows are likely neighbors.

    Parameters
    ----------
    n_components : int, optional
        Number of principal directions; the metric is diagonal in them. By default, all, or those in which the rows
        differ if these are fewer than the features.
    neighbors : int, optional
        Number of nearest similar rows, and of nearest dissimilar rows, that count for each row, by Euclidean distance
        in X. It needs labels and ``n_pairs="all"``. By default, all rows count.
    solver : {"direct", "mm"}
        "direct" runs L-BFGS with bounds. "mm" repeatedly maximizes a lower bound, as in the paper, and is slower.
    n_init : int
        Number of starts: the first with equal weights, the others with random ones. The best solution is kept, as the
        objective is not concave.
    n_pairs : "all", int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. "all" uses every pair without drawing;
        with None, 20 c^2 of each kind are drawn for c classes, at most 500,000.
    max_iter : int
        Maximum number of iterations of each start.
    tol : float
        Stop when an iteration adds at most ``tol * max(1, |f|)`` to f, the objective divided by the number of anchors.
    warm_start : bool
        Start from the solution of the previous fit, and from no other start.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs and starts.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map, whose rows are ``sqrt(gamma_k) v_k``.
    gamma_ : ndarray of shape (k,)
        Weights of the directions, at least 0.
    basis_ : ndarray of shape (d, k)
        Principal directions v_k, as columns.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Yang, Jin, Sukthankar & Liu, AAAI 2006.

    The objective is that of `NCA` with ``objective="log"``, restricted to metrics that are diagonal in the principal
    directions of the data. A survey's account lacks the minus sign between the two sums, and its lower bound lacks a
    sign and the entropy term without which it is no bound. Rows without a similar row are not used as anchors.
    """

    _weights = False

    def __init__(
        self,
        n_components: int | None = None,
        *,
        neighbors: int | None = None,
        solver: str = "direct",
        n_init: int = 1,
        n_pairs: int | str | None = "all",
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.neighbors = neighbors
        self.solver = solver
        self.n_init = n_init
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.one_of(("direct", "mm"), solver=self.solver)
        checks.counts(1, n_init=self.n_init)
        if self.neighbors is not None:
            checks.counts(1, neighbors=self.neighbors)
            if isinstance(pairs, Pairs):
                raise ValueError('neighbors must be None unless labels and n_pairs="all" are given; got pairs')
        settings = self._settings("n_components", "neighbors", "solver", "n_init") | self._search()
        return ldm(X, pairs, seed=self.random_state, last=work.start(), **settings)
