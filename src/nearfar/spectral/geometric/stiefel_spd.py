"""Dimensionality reduction and metric learning in one, on Stiefel x SPD (Harandi, Salzmann & Hartley, 2017).

    min_{V, Lam}  mean_S softplus(d_ij) + mean_D softplus(-d_ij) + lam (tr(Lam P^-1) - log det(Lam P^-1) - p)
    d_ij = (x_i - x_j)' V Lam V' (x_i - x_j),  V' V = I,  Lam positive definite

P: prior, the identity unless another is given.
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
    """Learn a projection and a metric behind it together, from pairs.

    Parameters
    ----------
    n_components : int, optional
        p. Default (ours): the rank of the data, at most 16.
    lam : float
        Weight of Burg's divergence of Lam from the prior, above 0. Default: ours.
    prior : array-like of shape (p, p), optional
        In units in which the mean squared distance of the pairs is 1 (`scale_`). Default: the identity.
    bias : float
        u, in those units: pairs are told apart at d = u instead of 0.
    init : "discriminant", "pca", "random" or array-like of shape (p, d)
        Where the directions of the start come from, or components to start from.
    n_pairs : int, "all" or None
        Pairs made from labels: this many of each kind, all, or 20 c^2 of each kind for c classes.
    max_iter : int
    tol : float
        On the gradient.
    warm_start : bool
        Start from the last fit.
    verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (p, d)
    stiefel_ : ndarray of shape (d, p)
        V.
    spd_ : ndarray of shape (p, p)
        Lam, in the units of X: M = V Lam V'.
    scale_ : float
        Root mean square distance of the pairs.

    Notes
    -----
    Harandi, Salzmann & Hartley, "Joint dimensionality reduction and metric learning: a geometric take", ICML 2017.
    With P = I the value depends on V Lam V' = L' L alone, so the search is over any L, without manifolds; with another
    prior it goes through a QR factorization. Means instead of sums, the scale of X and `bias` are ours. V lies in the
    span of the data. The distance is squared; a survey prints it without the square.
    The objective is not convex, and a search ends in a local optimum: with a `prior` a random start may end lower.
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
