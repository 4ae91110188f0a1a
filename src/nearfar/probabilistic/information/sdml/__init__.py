"""Sparse metric learning by a penalized log-determinant (Qi, Tang, Zha, Chua & Zhang, 2009).

    min_{M PD}  tr(S M) - log det M + sparsity sum_{i != j} |M_ij|,   S = M0^-1 + balance (P+ - P-)

P+ and P- are the sums of (x_i - x_j)(x_i - x_j)' over the similar and over the dissimilar pairs, and M0 is the prior. S
need not be definite: a minimum exists if and only if there is a positive definite W with W_ii = S_ii and
|W_ij - S_ij| <= sparsity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigh

from ....estimators.base import FromPairs, Mahalanobis, Workspace
from ....fit_warnings import warn
from ....numerics import checks, scatter
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array
from .. import priors
from .graphical_lasso import UnboundedError, sparse_inverse

BALANCE_SHARE = 0.9  # the default balance, as a share of that at which the metric becomes infinite


def sdml(P: Array, A: Array, balance: float | None = None, sparsity: float = 0.01, **search: Any) -> Solution:
    """Return M (d, d) as `x` for P = P+ - P- and A = M0^-1; `search` is of `sparse_inverse`."""
    if balance is None:
        # A + balance P is positive definite for a balance below 1 / radius
        radius = float(np.abs(eigh(P, A, eigvals_only=True)).max())
        balance = BALANCE_SHARE
        if radius > np.finfo(np.float64).tiny:
            balance = BALANCE_SHARE / radius
    try:
        found = sparse_inverse(A + balance * P, sparsity, **search)
    except UnboundedError as error:
        most = largest(P, A, sparsity, limit(error.direction, P, A, sparsity))
        detail = f"the objective has no minimum for balance={balance:.4g}, which must be below about {most:.4g}"
        balance = BALANCE_SHARE * most
        warn(f"{detail}; {balance:.4g} is used instead")
        found = sparse_inverse(A + balance * P, sparsity, **search)
    return found.with_x(found.x, attributes={"balance": float(balance), "metric": found.x})


def limit(D: Array, P: Array, A: Array, sparsity: float) -> float:
    """Return the balance above which the objective decreases without bound along D."""
    # tr((A + balance P) D) + sparsity sum_{i != j} |D_ij| = 0
    penalty = float(np.abs(D).sum() - np.trace(D))
    return (float(np.vdot(A, D)) + sparsity * penalty) / -float(np.vdot(P, D))


def largest(P: Array, A: Array, sparsity: float, high: float) -> float:
    """Return the largest balance for which there is a minimum, or up to 1 % less; there is none for `high`."""
    # A + low P is singular, and there is a minimum up to it; bisection of the logarithm
    low = -1 / float(eigh(P, A, eigvals_only=True, subset_by_index=[0, 0])[0])
    while high > 1.01 * low:
        middle = low * float(np.sqrt(high / low))
        try:
            gap = sparse_inverse(A + middle * P, sparsity, max_iter=100, tol=0.0, feasible=True).duality_gap
            if gap is not None and np.isfinite(gap):
                low = middle
            else:
                high = middle
        except UnboundedError as error:
            high = min(middle, limit(error.direction, P, A, sparsity))
    return low


class SDML(FromPairs, Mahalanobis):
    """Find a sparse metric close to a prior that separates dissimilar from similar pairs.

    Parameters
    ----------
    balance : float, optional
        Weight of a pair's squared distance relative to the divergence from the prior, above 0. By default, 0.9 divided
        by the spectral radius of P+ - P- (in coordinates in which the prior is the identity), with which S is positive
        definite. If the objective has no minimum because the balance is too large, 0.9 times the largest balance that
        has one is used, with a warning.
    sparsity : float
        Weight of the penalty on the absolute values of the off-diagonal entries, at least 0.
    prior : {"identity", "covariance"} or array-like of shape (d, d)
        Metric to stay close to: the identity, the inverse covariance of X ("covariance"), or a positive definite
        matrix.
    n_components : int, optional
        Number of directions to keep, those along which the rows differ most under the metric. By default, all are kept.
    n_pairs : int, "all" or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. "all" uses every pair without drawing;
        with None, 20 c^2 of each kind are drawn for c classes, at most 500,000. If the labels give different numbers of
        the two kinds, dissimilar pairs are weighted so that both kinds have the same total weight.
    max_iter : int
        Maximum number of Newton steps.
    tol : float
        Stop when the squared distances are within a relative error of about `tol` of those at the optimum.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs from labels.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    metric_ : ndarray of shape (d, d)
        The metric M with its exact zeros, before directions are dropped.
    balance_ : float
        The balance that was used.
    objective_ : float
        Value of the objective at the solution.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Qi, Tang, Zha, Chua & Zhang, "An efficient sparse metric learning in high-dimensional space via l1-penalized
    log-determinant regularization", ICML 2009.

    The paper solves the dual by blocks, starting from a definite S. Here Newton steps on the nonzero entries of M do
    not need a definite S. The penalty depends on the units of the features: scale them alike. A step takes O(d^3) time.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0, 3], [1, 0], [1, 3]])
    >>> M = SDML().fit(X, [0, 0, 1, 1]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 2 * M[1, 1])
    True
    """

    def __init__(
        self,
        balance: float | None = None,
        *,
        sparsity: float = 0.01,
        prior: AnyArray | str = "identity",
        n_components: int | None = None,
        n_pairs: int | str | None = None,
        max_iter: int = 100,
        tol: float = 1e-5,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.balance = balance
        self.sparsity = sparsity
        self.prior = prior
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, sparsity=self.sparsity)
        if self.balance is not None:
            checks.above(0, balance=self.balance)
        scatters = scatter.pair_scatters(X, pairs)
        R = np.linalg.inv(priors.factor(self.prior, X))
        start = self._found_before("metric_", work)
        # labels may give fewer pairs of one kind than requested, so both kinds get the same total weight
        given = isinstance(pairs, Pairs) and not pairs.from_labels
        weight = 1.0 if given else scatters.n_similar / scatters.n_dissimilar
        P = scatters.similar - weight * scatters.dissimilar
        found = sdml(P, R @ R.T, balance=self.balance, sparsity=self.sparsity, start=start, **self._search())
        L = cholesky(found.x)
        if self.n_components is not None:
            L = scatter.widest(L, X, self.n_components)
        return found.with_x(L)
