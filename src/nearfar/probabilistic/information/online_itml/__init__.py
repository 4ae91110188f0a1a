"""Online information-theoretic metric learning (Davis, Kulis, Jain, Sra & Dhillon, 2007).

    A_{t+1} = argmin_{A PD}  D(A, A_t) + eta / 2 (z' A z - y)^2

for a pair with the difference z and the target y of its squared distance: u if it is similar and farther apart, l if it
is dissimilar and nearer. Other pairs change nothing. With yh = z' A_t z, b = eta y yh - 1 and yb = z' A_{t+1} z =
(b + sqrt(b^2 + 4 eta yh^2)) / (2 eta yh), the step is A_{t+1} = A_t + (yb - yh) / yh^2 A_t z z' A_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky

from .... import settings
from ....estimators.base import FromPairs, Mahalanobis, Workspace, error_context, with_signature_hint
from ....estimators.validation import mark_training_rows
from ....numerics import checks, constraints, psd
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array
from .. import logdet, priors
from . import stream


def online_itml(
    A: Array, X: Array, pairs: Pairs, bounds: Array, eta: float = 0.5, *, mode: str = "implicit", gamma: float = 1.0
) -> tuple[Array, int]:
    """Return A (d, d) after the pairs, whose weights are targets, and the number of pairs that changed it."""
    Z = X[pairs.i] - X[pairs.j]
    u, l = bounds
    sign = pairs.sign
    target = np.where(pairs.similar, u, l)
    if mode != "batch":
        if pairs.weight is not None:
            # a target to approach from either side
            sign = np.zeros(len(Z))
            target = pairs.weight
        # squared distances in units of l, whose square need not be a number
        return stream.follow(A, Z / np.sqrt(l), sign, target / l, eta, mode)
    bounded = logdet.Bounded(V=Z, sign=sign, bound=target, gamma=np.full(len(Z), gamma))
    solver = "projections" if np.isinf(gamma) else "newton"
    found = logdet.nearest(bounded, cholesky(A), solver, max_iter=1000)
    return found.x, int((found.attributes["dual"] > 0).sum())


class OnlineITML(FromPairs, Mahalanobis):
    """Learn a metric from a stream of pairs: `partial_fit` updates the metric, and `fit` starts over.

    Parameters
    ----------
    eta : float
        Step size, above 0: the weight of each pair, in units of 1 / l^2, where l is the lower bound.
    mode : {"implicit", "explicit", "batch"}
        "implicit" takes the exact step of the formula above. "explicit" takes a gradient step on A^-1, capped so that
        the squared distance of the pair at most doubles. "batch" runs offline `ITML` on the pairs of each call, with
        the last metric as prior.
    gamma : float
        Weight of the slacks with ``mode="batch"``, above 0; infinity makes the bounds hard. It is not used otherwise.
    prior : {"identity", "covariance"} or array-like of shape (d, d)
        Metric to stay close to: the identity, the inverse covariance of X ("covariance"), or a positive definite
        matrix.
    bounds : (u, l), optional
        Upper bound u on the squared distances of similar pairs and lower bound l on those of dissimilar pairs, u < l.
        By default, the `percentiles` of the squared distances between the rows of the first call: give `bounds` if the
        metric must not depend on which rows come first.
    percentiles : (float, float)
        Percentiles, above 0 and at most 100, that give the bounds if `bounds` is None.
    n_components : int, optional
        Number of directions to keep for `transform`, those with the largest eigenvalues; the stream continues with all
        of them. By default, all are kept.
    n_pairs : int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels, in random order. If None, 20 c^2 of each
        kind are drawn for c classes, at most 500,000.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs from labels and their order, and the distances from which the bounds are
        computed if there are many rows.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    metric_ : ndarray of shape (d, d)
        The metric A.
    bounds_ : ndarray of shape (2,)
        The bounds u and l.
    n_updates_ : int
        Number of pairs that have changed A.
    threshold_ : float
        Distance below which `predict` calls a pair similar. `partial_fit` with pairs sets it to the root of the mean of
        the bounds.

    Notes
    -----
    Davis, Kulis, Jain, Sra & Dhillon, ICML 2007; Jain, Kulis, Dhillon & Grauman, NIPS 2008.

    The exact step keeps A positive definite for every eta.

    The order of the pairs matters, and a pair counts each time it comes, also with the other label. The metric does not
    depend on where a stream is divided into calls, with two exceptions: default bounds, which come from the rows of the
    first call, and ``mode="batch"``, which solves one problem per call. Each call ends with a factorization of A, so
    pass many pairs in a call.
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
        """Update the metric with more pairs; the first call starts from the prior.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,), optional
            Class labels of the rows. Not used if `pairs` is given.
        pairs : array-like of shape (m, 2), optional
            Row numbers of X.
        pair_labels : array-like of shape (m,), optional
            +1 for similar and -1 for dissimilar pairs. By default, all pairs are similar.
        targets : array-like of shape (m,), optional
            Squared distances, above 0, that the pairs should approach. They replace `pair_labels` and cannot be used
            with ``mode="batch"``, which supports bounds only.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self
        """
        with error_context(self):
            if targets is not None and (pairs is None or pair_labels is not None or self.mode == "batch"):
                raise ValueError('targets must be given with pairs=, without pair_labels=, and not with mode="batch"')
            first = not hasattr(self, "metric_")
            settings.check_settings(self)
            rows = self._rows(X, reset=first)
            order = None
            if pairs is None:
                known = self._labeled(X, y, unlabeled, "; pass labels, or pairs= and pair_labels=")
                rows = known.X
                order = known.order
                checked = self._from_labels(known.labels)
            elif targets is None:
                checked = self._from_pairs(pairs, pair_labels, None, len(rows))
            else:
                checked = stream.with_targets(pairs, targets, len(rows))
            state = None
            earlier_marks = None
            if not first:
                # bounds are those of the first call: percentiles of later parts would move the target
                state = (self.metric_, self.bounds_, self.n_updates_)
                earlier_marks = self._training_marks
            marks = mark_training_rows(self, rows, y, after=earlier_marks)
            work = self._workspace(rows, order)
            self._check_search(work, features=rows.shape[1])
            found = self._solve(work.rows, checked, state, work=work)
            self._store(found, work, dtype=rows.dtype)
            self._training_marks = marks
            if pairs is not None:
                self.threshold_ = float(np.sqrt(self.bounds_.mean()))
        return self

    def _from_pairs(
        self, pairs: AnyArray, pair_labels: Any, pair_weights: Any, n: int, conflicts: str | None = None
    ) -> Pairs:
        if self.mode == "batch":  # the pairs of a call form one problem
            return super()._from_pairs(pairs, pair_labels, pair_weights, n, conflicts)
        return stream.in_order(pairs, pair_labels, n, conflicts)

    def _from_labels(self, labels: Any) -> Pairs:
        drawn = constraints.written_out(super()._from_labels(labels))
        order = constraints.generator(self.random_state).permutation(len(drawn.i))
        return Pairs(drawn.i[order], drawn.j[order], drawn.similar[order])

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, state: Any = None, *, work: Workspace) -> Solution:
        checks.above(0, eta=self.eta)
        checks.one_of(("implicit", "explicit", "batch"), mode=self.mode)
        if self.gamma != np.inf:
            checks.above(0, gamma=self.gamma)
        A, bounds, before = state or self._begin(X)
        pairs = constraints.written_out(pairs)
        A, updates = online_itml(A, X, pairs, bounds, self.eta, mode=self.mode, gamma=self.gamma)
        if self.n_components is None:
            L = cholesky(A)
        else:
            L = psd.components(A, self.n_components)
        return Solution(L, attributes={"metric": A, "bounds": bounds, "n_updates": before + updates})

    def _begin(self, X: Array) -> tuple[Array, Array, int]:
        """Return the state before the first pair: the prior, the bounds and 0 updates."""
        L0 = priors.factor(self.prior, X)
        bounds = priors.distance_bounds(X, L0, bounds=self.bounds, percentiles=self.percentiles, seed=self.random_state)
        return L0.T @ L0, bounds, 0
