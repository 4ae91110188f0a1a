"""Neighborhood components analysis (Goldberger, Roweis, Hinton & Salakhutdinov, 2005).

    max_L  sum_i p_i - reg |L|^2   or   sum_i log p_i - reg |L|^2
    p_i = sum_{j of i's class} p_ij,  p_ij = exp(-|L (x_i - x_j)|^2) / sum_{k != i} exp(-|L (x_i - x_k)|^2)

The ridge is Yang & Laaksonen's (2007) regularized form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromLabels, Mahalanobis, Workspace, error_context, with_signature_hint
from ...numerics import checks, gradient_descent, initialization
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .. import neighbor_softmax
from . import search as neighborhood
from .search import Ridge

PATIENCE = 8  # iterations that must add little together


def nca(
    X: Array,
    labels: Ints,
    L0: Array,
    objective: str = "accuracy",
    reg: float = 0.0,
    *,
    batch_size: int | None = None,
    seed: Any = None,
    **search: Any,
) -> Solution:
    """L (k, d) from the start L0; `search` is max_iter, tol, dtype, report, warm. See `NCA`."""
    rows = neighbor_softmax.sorted_rows(X, labels)
    search["ridge"] = Ridge(reg)
    if batch_size is None or batch_size >= len(rows.X):
        return neighborhood.maximize_dense(rows, objective, L0, patience=PATIENCE, **search)
    return neighborhood.maximize_in_batches(rows, objective, L0, batch_size=batch_size, seed=seed, **search)


class NCA(FromLabels, Mahalanobis):
    """Maximize how often a row that picks a neighbor at random, near ones more often, picks its own class.

    Parameters
    ----------
    n_components : int, optional
        Rows of L; default: as many as features, or as directions in which rows differ where these are fewer.
    objective : "accuracy" or "log"
        The expected number of right picks (paper), or the log-probability that all are right, hard on outliers.
    reg : float
        Weight of the squared Frobenius norm of L beside a sum over rows (not their mean).
    init : str or array-like of shape (k, d)
        "auto", "lda", "pca", "identity", "random" (see `numerics.initialization.start`), or the components themselves.
    init_scale : None or "median"
        "median": scale the start so that the median squared distance is 1. The softmax has unit bandwidth: where
        rows lie far apart each has one neighbor, and gradients vanish.
    batch_size : int, optional
        Steps on so many anchors among all rows (Adam, `max_iter` epochs) instead of L-BFGS on all anchors.
    dtype : "float64" or "float32"
        "float32" searches in half the time and memory, and ends with at most five iterations in float64.
    max_iter : int
    tol : float
        Stop where eight iterations together add less per row, relatively above 1: a search slows before it wins a row,
        and one iteration says little. With `batch_size` it is the mean of three epochs.
        The default was chosen by 3-NN accuracy in folds inside the training rows of eleven tables, where 1e-5 gained
        nothing for a sixth more time; it was not chosen for steps on batches.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    objective_ : float
        The sum over rows less the ridge.

    Notes
    -----
    Goldberger et al., NIPS 17, 2005; Yang & Laaksonen, SCIA 2007. O(n^2 k) per evaluation in blocks of 2 MB. Rows
    alone in their class are neighbors but never anchors; rows of unknown class are neither.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0.1, 3], [1, 0], [1.1, 3]])
    >>> L = NCA().fit(X, [0, 0, 1, 1]).components_
    >>> bool(np.abs(L[:, 0]).max() > 2 * np.abs(L[:, 1]).max())
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        objective: str = "accuracy",
        reg: float = 0.0,
        init: str | AnyArray = "auto",
        init_scale: str | None = None,
        batch_size: int | None = None,
        dtype: str = "float64",
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.reg = reg
        self.init = init
        self.init_scale = init_scale
        self.batch_size = batch_size
        self.dtype = dtype
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_signature_hint
    def partial_fit(self, X: AnyArray, y: AnyArray, *, unlabeled: Any = None) -> NCA:
        """One step of Adam (state: `stream_`) on the objective of the rows; the first call starts. Not `converged_`."""
        with error_context(self):
            X, labels, first = self._streamed(X, y, unlabeled)
            self._check()
            R = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0)  # later rows may differ in other features
            if first:
                L = self._first(R, labels)
            else:
                L = np.asarray(self.components_, dtype=np.float64)
            adam = gradient_descent.Adam(gradient_descent.step_length(L), getattr(self, "stream_", None))
            value, gradient = neighborhood.of_rows(L, R, labels, self.objective, Ridge(self.reg))
            L = adam(L, -gradient)
            found = Solution(L, value, adam.k, converged=False, attributes={"stream": adam.state})
            self._store(found, Workspace(R), dtype=X.dtype)
            self._training_marks = self._marks_of(X, y, after=None if first else self._training_marks)
        return self

    def _check(self) -> None:
        checks.one_of((None, "median"), init_scale=self.init_scale)
        checks.one_of(("accuracy", "log"), objective=self.objective)
        checks.at_least(0, reg=self.reg)

    def _first(self, X: Array, labels: Ints) -> Array:
        """Components before the first step."""
        L = initialization.start(X, labels, self.init, self.n_components, self.random_state)
        if self.init_scale is None:
            return L
        return initialization.median_scaled(X, L)

    @property
    def _span(self) -> bool:
        return self.batch_size is None and initialization.in_span(
            self.init, self.n_components
        )  # Adam's steps turn with axes

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        self._check()
        checks.one_of(("float64", "float32"), dtype=self.dtype)
        checks.counts(1, **checks.not_none(batch_size=self.batch_size))
        first = self._first(X, labels)
        last = work.start(first.shape)
        search = self._settings("objective", "reg", "batch_size", "dtype") | self._search() | {"warm": last is not None}
        return nca(X, labels, first if last is None else last, seed=self.random_state, **search)
