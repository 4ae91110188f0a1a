"""Metric learning with privileged information by empirical risk minimization (Yang, Wang, Zhang & Tao, 2016).

    min_{M, P PSD}  mean_p log(1 + exp(s_p (|x_p|_M^2 - |z_p|_P^2))) + reg_x tr(M) + reg_z tr(P)

x_p, z_p: difference of pair p's rows in the main view and in one that is there for training only; s_p = +1 for similar,
-1 for dissimilar pairs. The privileged distance is each pair's own threshold. Jointly convex.
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
    w = share * np.where(pairs.similar, *solvers.kind_weights(similar, 1 - similar, pair_weight))
    listed = PairList(pairs.i, pairs.j, len(X))
    s = pairs.sign[listed.order]
    w = w[listed.order]
    V = scatter.span_or_axes(Z, 1)
    d = X.shape[1]
    problem = two_views.TwoViews(X / scale, Z @ V.T / scale_z, listed, s, w, (reg_x, reg_z), penalty)
    if start is None:
        first = None
    else:
        first = np.hstack([start[:, :d] * scale, start[:, d:] @ V.T * scale_z])
    found = certified_psd.minimize(problem.__call__, problem.gap, problem.scaling(), start=first, **search)
    L = found.x[:, :d] / scale
    Q = found.x[:, d:] @ V / scale_z
    return found.with_x(L, attributes={**found.attributes, "privileged": Q})


class PrivilegedMetric(FromPairs, Mahalanobis):
    """Learn a metric with the help of a second view that only the training rows have.

    Parameters
    ----------
    n_components : int, optional
        Keep this many directions, those of largest eigenvalue, in both views.
    reg_x, reg_z : float
        Weights of the penalties on M and P, beside a mean over pairs and in units where two rows have a mean squared
        distance of 1. Without them separable pairs push the scale to infinity.
    penalty : "trace" or "frobenius"
        The trace, or half the squared Frobenius norm.
    pair_weight : "none" or "balanced"
        Both kinds of pairs weigh a half.
    n_pairs : int or None
        Pairs of each kind drawn from labels. None: 20 c^2 for c classes.
    max_iter : int
    tol : float
        Stop where the duality gap is below ``tol * max(1, objective)``.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_, privileged_components_ : ndarray of shape (k, d), (k', e)
    objective_, duality_gap_ : float
        Without penalties the gap is none, only the size of what violates the optimality conditions.
    kkt_ : ndarray of shape (2,)
        Negative part of the smallest eigenvalue of the gradient, and abs(<gradient, (M, P)>).
    threshold_ : float
        Of distances in the main view, where pairs were given, least in balanced error on them: there is no privileged
        distance to compare with afterwards.

    Notes
    -----
    Yang et al., IJCAI 2016; its penalty is not known to us. The paper's proximal gradient comes second here, after a
    search over factors. A survey sums over i only. Without a privileged view P is 0: the logistic loss of LDML with its
    threshold at 0. No similar pair then costs less than log 2, few directions are kept, and LDML is the better choice.
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
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> PrivilegedMetric:
        """Learn from labeled rows or from pairs (see `FromPairs.fit`), with a second view `privileged` (n, e)."""
        return self._fit(
            X,
            y,
            privileged=privileged,
            pairs=pairs,
            pair_labels=pair_labels,
            pair_weights=pair_weights,
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
