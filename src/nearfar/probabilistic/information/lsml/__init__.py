"""Least squared-residual metric learning (Liu et al., 2012).

    min_{M PD}  D(M, M0) + gamma sum_t w_t (d_M(a, b) - d_M(c, d))_+^2,   sum_t w_t = 1
    D(A, B) = tr(A B^-1) - log det(A B^-1) - d

(a, b, c, d) are the rows of quadruplet t: a and b should be nearer to each other than c and d. w_t is its weight, M0
the prior, and d_M(a, b) = sqrt((a - b)' M (a - b)). The problem is convex in M, because the geometric mean of two
squared distances is concave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky

from ....estimators.base import FromTriplets, Mahalanobis, Supervised, Workspace, with_signature_hint
from ....estimators.validation import holds_tuples, rows_of_points
from ....numerics import checks, constraints, scatter
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array, Ints
from .. import priors
from . import comparisons


def lsml(X: Array, quadruplets: Ints, weight: Array, L0: Array, gamma: float = 1.0, **search: Any) -> Solution:
    """Return M (d, d) as `x` for the prior L0' L0; `search` is of `comparisons.nearest`."""
    a, b, c, d = quadruplets.T
    return comparisons.nearest(X[a] - X[b], X[c] - X[d], gamma * weight / weight.sum(), L0, **search)


def checked_weight(weight: AnyArray | None, quadruplets: Ints) -> Array | None:
    """Return the user's weights of quadruplets (m, 4), checked, or None for equal ones."""
    if weight is None:
        return None
    return constraints.check_weights(weight, len(quadruplets), "quadruplet_weights")


class LSML(FromTriplets, Mahalanobis):
    """Find the metric closest to a prior that agrees with comparisons of distances: a is nearer to b than c to d.

    Parameters
    ----------
    gamma : float
        Weight of the mean squared residual relative to the divergence from the prior, above 0. The paper uses 1.
    prior : {"identity", "covariance"} or array-like of shape (d, d)
        Metric to stay close to: the identity, the inverse covariance of X ("covariance"), or a positive definite
        matrix.
    n_components : int, optional
        Number of directions to keep, those along which the rows differ most under the metric. By default, all are kept.
    n_quadruplets : int or None
        Number of quadruplets to draw from labels, each made of a pair within a class and a pair of two classes. If
        None, 20 c^2 are drawn for c classes, at most 500,000.
    max_iter : int
        Maximum number of Newton steps.
    tol : float
        Stop when the squared distances are within a relative error of about `tol` of those at the optimum.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws quadruplets from labels.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    quadruplets_ : ndarray of shape (m, 4)
        The quadruplets used, as row numbers of X: those drawn from labels, or the given ones.
    objective_ : float
        Value of the objective at the solution.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum, which is unique.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Liu et al., "Metric learning from relative comparisons by minimizing squared residual", ICDM 2012, without
    its sparse form.

    The paper uses gradient descent and clips negative eigenvalues. Here Newton's method needs a few steps, and the dual
    problem, which is not in the paper, certifies the optimum. Points of a quadruplet may coincide: with c = d, the
    squared distance of a and b is penalized.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0, 3], [1, 0], [1, 3]])
    >>> M = LSML(gamma=10).fit(X, quadruplets=[[0, 1, 0, 2], [2, 3, 1, 3]]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 5 * M[1, 1])
    True
    """

    _span = property(priors.span_setting)

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        prior: AnyArray | str = "identity",
        n_components: int | None = None,
        n_quadruplets: int | None = None,
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.gamma = gamma
        self.prior = prior
        self.n_components = n_components
        self.n_quadruplets = n_quadruplets
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_signature_hint
    def fit(
        self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        quadruplets: AnyArray | None = None,
        quadruplet_weights: AnyArray | None = None,
        triplets: AnyArray | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> LSML:
        """Learn from labeled rows, from triplets (see `FromTriplets.fit`), or from comparisons of two distances.

        Parameters
        ----------
        X : array-like of shape (n, d), or (m, 4, d)
            Rows, or quadruplets of points.
        y : array-like of shape (n,), optional
            Class labels. Not used if `triplets` or `quadruplets` is given.
        quadruplets : array-like of shape (m, 4), optional
            Row numbers (a, b, c, d) of X: a and b are nearer to each other than c and d.
        quadruplet_weights : array-like of shape (m,), optional
            Weights of the quadruplets, at least 0; only their ratios matter. By default, all are equal.
        triplets : array-like of shape (m, 3), optional
            Row numbers (anchor, positive, negative) of X. The triplet (a, p, n) means the quadruplet (a, p, a, n).
            Not used if `quadruplets` is given.
        rows : array-like of shape (n,), optional
            Number by which triplets or quadruplets refer to each row of X. By default, 0..n-1. Those with other numbers
            are left out, so that one list for all data serves every fold of a search (pass ``rows=np.arange(n)``).
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self
        """
        return self._fit(
            X,
            y,
            quadruplets=quadruplets,
            quadruplet_weights=quadruplet_weights,
            triplets=triplets,
            rows=rows,
            unlabeled=unlabeled,
        )

    def _supervise(
        self,
        X: AnyArray,
        y: AnyArray | None,
        *,
        quadruplets: AnyArray | None = None,
        quadruplet_weights: AnyArray | None = None,
        triplets: AnyArray | None = None,
        rows: AnyArray | None = None,
        **given: Any,
    ) -> Supervised:
        if triplets is None:
            checks.only_with("quadruplets or triplets", quadruplets, rows=rows)
        if quadruplets is None and holds_tuples(X, 4):
            points, numbers = rows_of_points(X)  # different items can have equal points
            return Supervised(self._rows(points), (None, None, numbers, checked_weight(quadruplet_weights, numbers)))
        if quadruplets is None:
            if quadruplet_weights is not None:
                raise ValueError("quadruplet_weights must be given with quadruplets=")
            if y is None and triplets is None and not holds_tuples(X, 3):
                detail = "pass labels, triplets= or quadruplets="
                raise ValueError(f"requires y to be passed, but the target y is None; {detail}")
            return super()._supervise(X, y, triplets=triplets, rows=rows, **given)
        X = self._rows(X)
        weight = quadruplet_weights
        if rows is not None:
            # quadruplets of rows that a split left out are dropped with their weights
            quadruplets, weight = constraints.present(quadruplets, rows, len(X), "quadruplets", weight)
        listed = constraints.check_indices(quadruplets, 4, len(X), "quadruplets")
        return Supervised(X, (None, None, listed, checked_weight(weight, listed)))

    def _solve(
        self,
        X: Array,
        labels: Ints,
        triplets: Ints,
        quadruplets: Ints | None = None,
        weight: Array | None = None,
        *,
        work: Workspace,
    ) -> Solution:
        checks.above(0, gamma=self.gamma)
        if triplets is not None:
            quadruplets = triplets[:, [0, 1, 0, 2]]  # (a, p, n) -> (a, p, a, n)
        elif quadruplets is None:
            checks.counts(1, **checks.not_none(n_quadruplets=self.n_quadruplets))
            quadruplets = constraints.quadruplets_from_labels(labels, self.n_quadruplets, self.random_state)
        if weight is None:
            weight = np.ones(len(quadruplets))
        L0 = priors.factor(self.prior, X)
        found = lsml(X, quadruplets, weight, L0, self.gamma, last=work.start(), **self._search())
        if self.n_components is None:
            L = cholesky(found.x)
        else:
            L = scatter.widest(cholesky(found.x), X, self.n_components)
        return found.with_x(L, attributes={"quadruplets": work.given(quadruplets)})
