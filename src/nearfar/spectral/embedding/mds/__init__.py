"""Metric learning like multidimensional scaling (Zhang, Kwok & Yeung, 2003).

    sstress:  min_{M PSD}  sum_{i<j} w_ij (t_ij - (x_i - x_j)' M (x_i - x_j))^2
    stress:   min_L        sum_{i<j} w_ij (sqrt t_ij - |L (x_i - x_j)|)^2

t are squared target distances; from labels, t = a d^2 within and b d^2 between classes, with d the original distance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....estimators.base import FromLabels, Mahalanobis, Supervised, Workspace, with_signature_hint
from ....numerics import checks, initialization, psd, scatter
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array
from ... import target_pairs
from . import targets
from .target_fit import ClassTargets, ListedTargets, sstress, stress

TargetFunction = Callable[[AnyArray, AnyArray], AnyArray]


def mds(targets: ClassTargets | ListedTargets, L: Array, loss: str = "sstress", **limits: Any) -> Solution:
    """Return components as `x`, from a start L (k, d); see `MDSMetric` for the settings."""
    if loss == "sstress":
        return sstress(targets, L, **limits)
    if isinstance(targets, ClassTargets):
        raise ValueError('loss="stress" requires listed pairs; got targets by class')
    return stress(targets, L, **limits)


class MDSMetric(FromLabels, Mahalanobis):
    """Fit distances to targets: shorter ones within classes and longer ones between them, or given ones.

    Parameters
    ----------
    targets : "label", "euclidean", callable or array-like of shape (n, n)
        "label" multiplies the squared distances by `a` within and by `b` between classes. "euclidean" reproduces the
        original distances in fewer dimensions. A callable takes the squared distances (m,) and whether the classes
        are the same (m,), and returns squared target distances. An array holds the target distances.
    a, b : float
        Factors of the squared distances within and between classes, at least 0.
    loss : {"sstress", "stress"}
        "sstress" is a loss on squared distances, and convex if `n_components` is None. "stress" is a loss on
        distances, as in the paper.
    weighting : {"equal", "relative"}
        "equal" gives every pair the weight 1. "relative" gives it the weight 1 / t^2 (for "stress", 1 / t), because
        large distances dominate otherwise; t is raised to at least its 5 % quantile.
    n_components : int, optional
        Number of dimensions of the learned space. By default, the number of features.
    n_pairs : int or None
        Number of pairs of rows to draw. None uses all pairs, except that at most 2 million are drawn if pairs must be
        listed, which is the case unless weights are equal, the loss is "sstress" and ``targets="label"``.
    max_iter : int
        Maximum number of iterations.
    tol : float
        With "sstress", stop when the duality gap falls below `tol` times the objective. With "stress", stop when the
        relative decrease of the objective in an iteration falls below `tol`.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum. Set only with "sstress" and
        ``n_components=None``.
    kkt_ : ndarray of shape (2,)
        Violation of the optimality conditions: the negative part of the smallest eigenvalue of the gradient G with
        respect to M, and ``abs(<M, G>)``. Both are 0 at the optimum. Set only with "sstress" and
        ``n_components=None``.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Zhang, Kwok & Yeung, "Parametric distance metric learning with label information", IJCAI 2003. The targets from
    labels are not from the paper. Without labels and with all components, the identity is a trivial solution, so this
    combination raises a ValueError. M is 0 along the directions in which no two rows differ.
    """

    def __init__(
        self,
        targets: str | AnyArray | TargetFunction = "label",
        *,
        a: float = 0.25,
        b: float = 2.25,
        loss: str = "sstress",
        weighting: str = "equal",
        n_components: int | None = None,
        n_pairs: int | None = None,
        max_iter: int = 2000,
        tol: float = 1e-8,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.targets = targets
        self.a = a
        self.b = b
        self.loss = loss
        self.weighting = weighting
        self.n_components = n_components
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
        pairs: AnyArray | None = None,
        distances: AnyArray | None = None,
        rows: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> MDSMetric:
        """Learn from labeled rows, or from pairs of rows with target distances.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n,), optional
            Class labels. Used only if `pairs` is not given and `targets` depends on classes.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X.
        distances : array-like of shape (m,), optional
            Target distance of each pair, at least 0.
        rows : array-like of shape (n,), optional
            Number that `pairs` uses for each row of X, by default 0 to n - 1. Pairs of other rows are left out.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : MDSMetric
            The fitted learner.
        """
        return self._fit(X, y, pairs=pairs, distances=distances, rows=rows, unlabeled=unlabeled)

    def _supervise(
        self,
        X: AnyArray,
        y: AnyArray | None,
        *,
        pairs: AnyArray | None = None,
        distances: AnyArray | None = None,
        rows: AnyArray | None = None,
        **given: Any,
    ) -> Supervised:
        if pairs is None and distances is None:
            checks.only_with("pairs", pairs, rows=rows)
            if not self._y_required:
                y = None
            return super()._supervise(X, y, **given)
        X = self._rows(X)
        return Supervised(X, (target_pairs.check(pairs, distances, len(X), rows),))

    @property
    def _y_required(self) -> bool:  # type: ignore[override]  # a constant in the base class
        return callable(self.targets) or (isinstance(self.targets, str) and self.targets != "euclidean")

    def _solve(self, X: Array, labels: Any, work: Workspace) -> Solution:
        checks.at_least(0, a=self.a, b=self.b)
        checks.above(0, tol=self.tol)
        checks.one_of(("sstress", "stress"), loss=self.loss)
        checks.one_of(("equal", "relative"), weighting=self.weighting)
        if isinstance(self.targets, str):
            checks.one_of(("label", "euclidean"), targets=self.targets)
            whole = self.n_components in (None, X.shape[1]) and not isinstance(labels, tuple)
            if self.targets == "euclidean" and whole:
                d = X.shape[1]
                raise ValueError(f'n_components must be below {d} with targets="euclidean"; got {self.n_components}')
        settings = self._settings("targets", "a", "b", "loss", "weighting", "n_pairs", "random_state")
        # outside of the span of the differences, M has no effect on any distance, and stays 0
        V = scatter.data_span(X)  # (r, d)
        if len(V) in (0, X.shape[1]):
            V = np.eye(X.shape[1])
        problem = targets.pose(X @ V.T, labels, **settings)
        k = min(self.n_components or len(V), len(V))
        last = work.start((k, X.shape[1]))
        if last is not None:
            start = last @ V.T
        elif k < len(V):
            start = initialization.principal(X @ V.T, k)
        else:
            start = np.eye(k)
        found = mds(problem, start, self.loss, **self._search())
        return found.with_x(psd.truncate_rank(found.x @ V, self.n_components))
