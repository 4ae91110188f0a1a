"""Dimensionality reduction and metric learning in one, on Stiefel x SPD (Harandi, Salzmann & Hartley, 2017).

    min_{V, Lam}  mean_S softplus(d_ij) + mean_D softplus(-d_ij) + lam (tr(Lam P^-1) - log det(Lam P^-1) - p)
    d_ij = (x_i - x_j)' V Lam V' (x_i - x_j),  V' V = I,  Lam positive definite

P is the prior, by default the identity.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromPairs, Mahalanobis, Workspace
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from .. import stiefel


def stiefel_spd(
    X: Array, pairs: Pairs | LabelPairs, p: int | None = None, lam: float = 0.01, **settings: Any
) -> Solution:
    """Return L (p, d) as `x`, and V and Lam; see `StiefelSPDMetric` for the settings."""
    return stiefel.stiefel_spd(X, pairs, p, lam, **settings)


class StiefelSPDMetric(FromPairs, Mahalanobis):
    """Learn a projection and a metric on the projected rows jointly, from pairs.

    Parameters
    ----------
    n_components : int, optional
        Number p of dimensions of the learned space. By default, the rank of the data, at most 16 (not from the paper).
    lam : float
        Weight of the Burg divergence of Lam from the prior, above 0. The default is not from the paper.
    prior : array-like of shape (p, p), optional
        Prior P, in units in which the mean squared distance of the pairs is 1 (see `scale_`). By default, the
        identity.
    bias : float
        Threshold u on the squared distance d, in the same units: similar pairs should have d < u, and dissimilar pairs
        d > u. The paper uses 0.
    init : "discriminant", "pca", "random" or array-like of shape (p, d)
        Initial directions, or the initial components themselves.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the largest entry of the gradient falls below ``tol * max(1, |objective|)``.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs and the components of ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (p, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    stiefel_ : ndarray of shape (d, p)
        Projection V, with orthonormal columns.
    spd_ : ndarray of shape (p, p)
        Metric Lam, in the units of X: M = V Lam V'.
    scale_ : float
        Root mean square distance of the pairs.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Harandi, Salzmann & Hartley, "Joint dimensionality reduction and metric learning: A geometric take", ICML 2017.
    With P = I, the objective depends only on V Lam V' = L' L, so L is optimized directly, without manifolds; with
    another prior, L is optimized through a QR factorization. Means instead of sums, the scaling of X and `bias` are
    not from the paper. V is in the span of the data. The distance is squared; the survey of Ghojogh et al. (2022)
    prints it without the square.

    The objective is not convex, and the search ends in a local optimum. With a `prior`, a random start may reach a
    lower value.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        lam: float = 0.01,
        prior: AnyArray | None = None,
        bias: float = 0.0,
        init: str | AnyArray = "discriminant",
        n_pairs: int | str | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.prior = prior
        self.bias = bias
        self.init = init
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        settings = self._settings("lam", "prior", "bias", "init") | self._search()
        return stiefel_spd(X, pairs, self.n_components, last=work.start(), seed=self.random_state, **settings)
