"""Metric learning like multidimensional scaling (Zhang, Kwok & Yeung, 2003).

    sstress:  min_{M PSD}  sum_{i<j} w_ij (t_ij - (x_i - x_j)' M (x_i - x_j))^2
    stress:   min_L        sum_{i<j} w_ij (sqrt t_ij - |L (x_i - x_j)|)^2

t: squared target distances; by labels, t = a d^2 within a class and b d^2 between classes, d the distance before.
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
        raise ValueError('loss="stress" needs listed pairs')
    return stress(targets, L, **limits)


class MDSMetric(FromLabels, Mahalanobis):
    """Fit distances to targets: shorter within classes and longer between them, or as given.

    Parameters
    ----------
    targets : "label", "euclidean", callable or array-like of shape (n, n)
        "label": see `a`, `b`. "euclidean": the distances as they are, in fewer dimensions. A function of squared
        distances (m,) and of whether the classes are the same (m,) that returns squared targets. Or target distances.
    a, b : float
        At least 0: factors of squared distances within and between classes.
    loss : "sstress" or "stress"
        On squared distances: convex where `n_components` is None; or on distances, as in the paper.
    weighting : "equal" or "relative"
        Each pair weighs 1; or 1 / t^2 (stress: 1 / t), t at least its 5 % quantile, as large distances rule otherwise.
    n_components : int, optional
    n_pairs : int or None
        Draw this many pairs of rows. None: all, except that only 2 million are drawn where pairs must be listed, which
        they must for everything but equal weights, sstress and `targets="label"`.
    max_iter : int
    tol : float
        sstress: on the duality gap relative to the objective; stress: on its relative fall in a step.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    duality_gap_, kkt_ : float, ndarray of shape (2,)
        sstress with ``n_components=None``; `kkt_` as of `MCML`.

    Notes
    -----
    Zhang, Kwok & Yeung, "Parametric distance metric learning with label information", IJCAI 2003. The targets by labels
    are ours. Without them all components have the identity as trivial answer, refused. M is 0 where no two rows differ.
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
        y : array-like of shape (n,), optional
            Class labels. Read only where no `pairs` are given and `targets` depend on classes.
        pairs, distances : array-like of shape (m, 2), (m,), optional
            Row numbers of X, and target distances of at least 0.
        rows : array-like of shape (n,), optional
            The numbers by which pairs call the rows of X; pairs of other rows are left out. Default: 0..n-1.
        unlabeled : object, optional
            The value in y that marks rows without a label, such as -1. Default: every value is a class.
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
            return super()._supervise(X, y if self._y_required else None, **given)
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
                raise ValueError(f'targets="euclidean" needs n_components below {X.shape[1]}; got {self.n_components}')
        settings = self._settings("targets", "a", "b", "loss", "weighting", "n_pairs", "random_state")
        V = scatter.data_span(X)
        V = V if 0 < len(V) < X.shape[1] else np.eye(X.shape[1])
        problem = targets.pose(X @ V.T, labels, **settings)
        k = min(self.n_components or len(V), len(V))
        first = initialization.principal(X @ V.T, k) if k < len(V) else np.eye(k)
        last = work.start((k, X.shape[1]))
        found = mds(problem, first if last is None else last @ V.T, self.loss, **self._search())
        return found.with_x(psd.truncate_rank(found.x @ V, self.n_components))
