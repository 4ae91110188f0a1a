"""Online information-theoretic metric learning (Davis, Kulis, Jain, Sra & Dhillon, 2007).

    A_{t+1} = argmin_{A PD}  D(A, A_t) + eta / 2 (z' A z - y)^2

for a pair with difference z and squared-distance target y: u if it is similar and further apart, l if it is dissimilar
and nearer, else nothing changes. With yh = z' A_t z and yb = z' A_{t+1} z = (b + sqrt(b^2 + 4 eta yh^2)) / (2 eta yh),
b = eta y yh - 1, the step is A_{t+1} = A_t + (yb - yh) / yh^2 A_t z z' A_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky

from .... import settings
from ....estimators.base import FromPairs, Mahalanobis, Workspace, error_context, with_signature_hint
from ....numerics import checks, constraints, psd
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array
from .. import logdet, priors
from . import stream


def online_itml(
    A: Array, X: Array, pairs: Pairs, bounds: Array, eta: float = 0.5, *, mode: str = "implicit", gamma: float = 1.0
) -> tuple[Array, int]:
    """A (d, d) after the pairs, whose weights are two-sided targets; and how many changed it. See `OnlineITML`."""
    Z, u, l = X[pairs.i] - X[pairs.j], *bounds
    target = np.where(pairs.similar, u, l)
    if mode != "batch":
        if pairs.weight is None:
            sign, target = (pairs.sign, target)
        else:
            sign, target = (np.zeros(len(Z)), pairs.weight)
        return stream.follow(A, Z, sign, target, eta / l**2, mode)
    told = logdet.Bounded(Z, pairs.sign, target, np.full(len(Z), gamma))
    solver = "projections" if np.isinf(gamma) else "newton"
    found = logdet.nearest(told, cholesky(A), solver, max_iter=1000)
    return found.x, int((found.attributes["dual"] > 0).sum())


class OnlineITML(FromPairs, Mahalanobis):
    """Follow a stream of pairs: `partial_fit` updates the last metric, and `fit` starts anew.

    Parameters
    ----------
    eta : float
        How far each pair pulls, in units of 1 / l^2.
    mode : "implicit", "explicit" or "batch"
        The exact step above; a gradient step on A^-1, capped where a distance would more than double; or offline ITML
        on each call's pairs with the last metric as prior, `gamma` weighing their slacks.
    gamma : float
    prior, bounds, percentiles
        See `ITML`. Bounds are set once, by default to percentiles of the distances in the first call's rows: give
        `bounds` where the metric must not depend on which rows come first.
    n_components : int, optional
        Keep this many directions, those of largest eigenvalue. The stream continues with all of them.
    n_pairs : int or None
        Pairs of each kind drawn from labels, in random order. None: 20 c^2 for c classes.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    metric_ : ndarray of shape (d, d)
        A.
    bounds_ : ndarray of shape (2,)
    n_updates_ : int
        Pairs that have changed A.
    threshold_ : float
        After `partial_fit` with pairs: the root of the mean of the bounds.

    Notes
    -----
    Davis et al., ICML 2007; Jain, Kulis, Dhillon & Grauman, NIPS 2008. The exact step keeps A positive definite for
    every eta. The order of pairs matters, and each counts whenever it comes, also a second time or with the other
    label: wherever a stream is cut into calls, the metric is the same. There are two exceptions: default bounds, which
    come from the rows of the first call, and ``mode="batch"``, which solves one problem for each call. A call ends with
    a factorization of A: hand over pairs in chunks.
    """

    _both_kinds = False
    _weights = False

    def __init__(
        self,
        eta: float = 0.5,
        *,
        mode: str = "implicit",
        gamma: float = 1.0,
        prior: AnyArray | str = "identity",
        bounds: AnyArray | None = None,
        percentiles: AnyArray | tuple[float, float] = (5, 95),
        n_components: int | None = None,
        n_pairs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.eta = eta
        self.mode = mode
        self.gamma = gamma
        self.prior = prior
        self.bounds = bounds
        self.percentiles = percentiles
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.random_state = random_state

    @with_signature_hint
    def partial_fit(
        self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        targets: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> OnlineITML:
        """Go on with more pairs; arguments as for `fit`, or `targets` (m,): the pairs' squared distances themselves.

        Targets come with `pairs`, instead of `pair_labels`, and not with ``mode="batch"``, which knows bounds only.
        """
        with error_context(self):
            if targets is not None and (pairs is None or pair_labels is not None or self.mode == "batch"):
                raise ValueError('targets need pairs=, no pair_labels=, and mode="implicit" or "explicit"')
            first = not hasattr(self, "metric_")
            settings.check_settings(self)
            rows = self._rows(X, reset=first)
            order = None
            if pairs is None:
                known = self._labeled(X, y, unlabeled, "; pass labels, or pairs= and pair_labels=")
                rows = known.X
                order = known.order
                told = self._from_labels(known.labels)
            elif targets is None:
                told = self._from_pairs(pairs, pair_labels, None, len(rows))
            else:
                told = stream.with_targets(pairs, targets, len(rows))
            state = None if first else (self.metric_, self.bounds_, self.n_updates_)
            marks = self._marks_of(rows, y, after=None if first else self._training_marks)
            work = self._workspace(rows, order)
            self._check_search(work, features=rows.shape[1])
            self._store(self._solve(work.rows, told, state, work=work), work, dtype=rows.dtype)
            self._training_marks = marks
            if pairs is not None:
                self.threshold_ = float(np.sqrt(self.bounds_.mean()))
        return self

    def _from_pairs(self, pairs: AnyArray, pair_labels: Any, pair_weights: Any, n: int) -> Pairs:
        if self.mode == "batch":  # one problem of all pairs of a call
            return super()._from_pairs(pairs, pair_labels, pair_weights, n)
        return stream.in_order(pairs, pair_labels, n)

    def _from_labels(self, labels: Any) -> Pairs:
        told = constraints.written_out(super()._from_labels(labels))
        order = constraints.generator(self.random_state).permutation(len(told.i))
        return Pairs(told.i[order], told.j[order], told.similar[order])

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, state: Any = None, *, work: Workspace) -> Solution:
        checks.above(0, eta=self.eta)
        checks.one_of(("implicit", "explicit", "batch"), mode=self.mode)
        checks.above(0, gamma=1.0 if self.gamma == np.inf else self.gamma)
        A, bounds, before = state or self._begin(X)
        told = constraints.written_out(pairs)
        A, updates = online_itml(A, X, told, bounds, self.eta, mode=self.mode, gamma=self.gamma)
        if self.n_components is None:
            L = cholesky(A)
        else:
            L = psd.components(A, self.n_components)
        return Solution(L, attributes={"metric": A, "bounds": bounds, "n_updates": before + updates})

    def _begin(self, X: Array) -> tuple[Array, Array, int]:
        L0 = priors.factor(self.prior, X)
        return L0.T @ L0, priors.distance_bounds(X, L0, self.bounds, self.percentiles, self.random_state), 0
