"""Metric learning with privileged information by empirical risk minimization (Yang, Wang, Zhang & Tao, 2016).

    min_{M, P PSD}  mean_p log(1 + exp(s_p (|x_p|_M^2 - |z_p|_P^2))) + reg_x tr(M) + reg_z tr(P)

x_p and z_p are the differences of the rows of pair p in the main view and in a privileged view, which only the training
rows have. s_p is +1 for similar and -1 for dissimilar pairs. The privileged distance of a pair is the threshold of its
distance in the main view. The problem is jointly convex.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ....estimators.base import FromPairs, Mahalanobis, Supervised, Workspace, with_signature_hint
from ....numerics import certified_psd, checks, constraints, psd, scatter
from ....numerics.constraints import Pairs
from ....numerics.optimize import Solution
from ....numerics.pair_differences import PairList
from ....numerics.types import AnyArray, Array
from .. import solvers
from . import two_views


def privileged(
    X: Array,
    Z: Array,
    pairs: Pairs,
    reg_x: float = 1e-3,
    reg_z: float = 1e-3,
    *,
    penalty: str = "trace",
    pair_weight: str = "none",
    start: Array | None = None,
    **search: Any,
) -> Solution:
    """Return L (d + e, d) as `x`, ``attributes["privileged"]`` (d + e, e); see `PrivilegedMetric`."""
    scale = two_views.unit_scale(X)
    scale_z = two_views.unit_scale(Z)
    share = pairs.weights / pairs.weights.sum()
    similar = float(share[pairs.similar].sum())
    similar_weight, dissimilar_weight = solvers.kind_weights(similar, 1 - similar, pair_weight)
    # weights of sum 1, or 1/2 of each kind
    w = share * np.where(pairs.similar, similar_weight, dissimilar_weight)
    listed = PairList(pairs.i, pairs.j, len(X))
    s = pairs.sign[listed.order]
    w = w[listed.order]
    V = scatter.span_or_axes(Z, 1)  # (r, e)
    d = X.shape[1]
    problem = two_views.TwoViews(
        X=X / scale,
        Z=Z @ V.T / scale_z,
        pairs=listed,
        s=s,
        w=w,
        reg=(reg_x, reg_z),
        penalty=penalty,
    )
    if start is None:
        first = None
    else:
        first = np.hstack([start[:, :d] * scale, start[:, d:] @ V.T * scale_z])
    # one L (r, d + e), whose diagonal blocks are the two metrics
    found = certified_psd.minimize(problem.__call__, problem.gap, problem.scaling(), start=first, **search)
    L = found.x[:, :d] / scale
    Q = found.x[:, d:] @ V / scale_z
    return found.with_x(L, attributes={**found.attributes, "privileged": Q})


class PrivilegedMetric(FromPairs, Mahalanobis):
    """Learn a metric with the help of a second view that only the training rows have.

    Parameters
    ----------
    n_components : int, optional
        Number of directions to keep in each view, those with the largest eigenvalues. By default, all are kept.
    reg_x : float
        Weight of the penalty on the metric M of the main view, at least 0, relative to the mean loss over pairs and in
        units in which two rows have a mean squared distance of 1. Without penalties, separable pairs push the scale to
        infinity.
    reg_z : float
        Weight of the penalty on the metric P of the privileged view, in the same units.
    penalty : {"trace", "frobenius"}
        Penalty on each metric: its trace, or half its squared Frobenius norm.
    pair_weight : {"none", "balanced"}
        With "none", every pair has the same weight. With "balanced", similar and dissimilar pairs each have half of the
        total weight.
    n_pairs : int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. If None, 20 c^2 of each kind are drawn
        for c classes, at most 500,000.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, |objective|)``.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs from labels.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map of the main view.
    privileged_components_ : ndarray of shape (k', e)
        The learned linear map of the privileged view.
    objective_ : float
        Value of the objective at the solution.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum. Without penalties, it is only the size of
        the violation of the optimality conditions.
    kkt_ : ndarray of shape (2,)
        Violation of the optimality conditions: the negative part of the smallest eigenvalue of the gradient, and
        ``abs(<gradient, (M, P)>)``.
    threshold_ : float
        Distance in the main view below which `predict` calls a pair similar. It is set if pairs were given, to the
        value with the smallest balanced error on them, because new pairs have no privileged distance to compare with.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Yang, Wang, Zhang & Tao, IJCAI 2016. We do not know its penalty.

    A search over factors comes first, and then the proximal gradient steps of the paper. A survey sums over i only.

    Without a privileged view, P is 0 and the method is the logistic loss of `LDML` with a threshold of 0. No similar
    pair then costs less than log 2 and few directions are kept, so that `LDML` is the better choice.
    """

    _strategy = "balanced"
    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg_x: float = 1e-3,
        reg_z: float = 1e-3,
        penalty: str = "trace",
        pair_weight: str = "none",
        n_pairs: int | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.reg_x = reg_x
        self.reg_z = reg_z
        self.penalty = penalty
        self.pair_weight = pair_weight
        self.n_pairs = n_pairs
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
        privileged: AnyArray | None = None,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        pair_weights: AnyArray | None = None,
        conflicts: str | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> PrivilegedMetric:
        """Learn from labeled rows or from pairs, with a second view of the rows.

        Parameters
        ----------
        X : array-like of shape (n, d), or (m, 2, d)
            Rows, or pairs of points.
        y : array-like of shape (n,), or (m,), optional
            Class labels of the rows, or +1 for similar and -1 for dissimilar pairs of points. Not used if `pairs` is
            given.
        privileged : array-like of shape (n, e), optional
            The second view of the rows of X. By default, there is none.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X.
        pair_labels : array-like of shape (m,), optional
            +1 for similar and -1 for dissimilar pairs. By default, all pairs are similar.
        pair_weights : array-like of shape (m,), optional
            Weights of the pairs, at least 0. By default, all are 1.
        conflicts : {"raise", "keep", "drop"}, optional
            What to do if annotators disagree, so that a pair has both labels: raise an error, use it with both labels,
            or leave it out. By default, "raise" for pairs of row numbers, and "keep" for pairs of points, because
            different items can have equal points.
        rows : array-like of shape (n,), optional
            Number by which pairs refer to each row of X. By default, 0..n-1. Pairs with other numbers are left out.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self
        """
        return self._fit(
            X,
            y,
            privileged=privileged,
            pairs=pairs,
            pair_labels=pair_labels,
            pair_weights=pair_weights,
            conflicts=conflicts,
            rows=rows,
            unlabeled=unlabeled,
        )

    def _supervise(
        self, X: AnyArray, y: AnyArray | None, *, privileged: AnyArray | None = None, **given: Any
    ) -> Supervised:
        supervised = super()._supervise(X, y, **given)
        Z = two_views.second(privileged, len(supervised.X))
        if supervised.order is not None:
            Z = Z[supervised.order]
        return replace(supervised, known=(*supervised.known, Z))

    def _solve(self, X: Array, pairs: Any, Z: Array, work: Workspace) -> Solution:
        checks.at_least(0, reg_x=self.reg_x, reg_z=self.reg_z)
        checks.one_of(two_views.PENALTIES, penalty=self.penalty)
        checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)
        settings = self._settings("reg_x", "reg_z", "penalty", "pair_weight") | self._search()
        last = work.start()
        second = getattr(self, "privileged_components_", Z[:0])
        if last is None or second.shape[1] != Z.shape[1]:
            start = None
        else:
            start = block_diag(last, second)
        found = privileged(X, Z, constraints.written_out(pairs), start=start, **settings)
        Q = found.attributes.pop("privileged")
        if Q.size:
            found.attributes["privileged_components"] = psd.compress(Q, self.n_components)
        else:
            found.attributes["privileged_components"] = Q[:0]
        return found.with_x(psd.compress(found.x, self.n_components))
