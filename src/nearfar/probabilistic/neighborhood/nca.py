"""Neighborhood components analysis (Goldberger, Roweis, Hinton & Salakhutdinov, 2004).

    max_L  sum_i p_i - reg |L|^2   or   sum_i log p_i - reg |L|^2
    p_i = sum_{j of i's class} p_ij,  p_ij = exp(-|L (x_i - x_j)|^2) / sum_{k != i} exp(-|L (x_i - x_k)|^2)

The ridge is Yang & Laaksonen's (2007) regularized form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromLabels, Mahalanobis, Workspace, error_context, with_signature_hint
from ...numerics import checks, gradient_descent, initialization, scatter
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .. import neighbor_softmax
from . import search as neighborhood
from .search import Ridge

PATIENCE = 8  # iterations whose joint gain the tolerance bounds


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
    """Return L (k, d), searched from L0; `search` holds max_iter, tol, dtype, report and warm. See `NCA`."""
    # K = unit L on rows X / unit: the steps of a search then do not depend on the unit of the rows
    unit = scatter.deviation(X)
    K0 = unit * L0
    rows = neighbor_softmax.sorted_rows(X / unit, labels)
    search["ridge"] = Ridge(reg / unit / unit)
    if batch_size is None or batch_size >= len(rows.X):
        found = neighborhood.maximize_dense(rows, objective, K0, patience=PATIENCE, **search)
    else:
        found = neighborhood.maximize_in_batches(rows, objective, K0, batch_size=batch_size, seed=seed, **search)
    return found.with_x(found.x / unit)


class NCA(FromLabels, Mahalanobis):
    """Maximize how often a row shares the class of a neighbor that it picks at random, near rows being more likely.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (rows of L). By default, the number of features; directions in
        which no rows differ then stay as they are at the start.
    objective : {"accuracy", "log"}
        What to maximize: "accuracy", the expected number of rows that pick a neighbor of their own class (the paper's
        objective), or "log", the log-probability that all rows do, which is sensitive to outliers.
    reg : float
        Weight of the penalty on the squared Frobenius norm of L, at least 0. The penalty is relative to the sum over
        rows, not to their mean.
    init : {"auto", "lda", "pca", "identity", "random"} or array-like of shape (k, d)
        Start of the search: discriminant directions ("lda"), principal directions ("pca"), the first k axes
        ("identity"), independent normal entries ("random"), or the components themselves. "auto" chooses "lda" if
        `n_components` is below the number of classes, else "pca" if it is below the number of features and of rows,
        else "identity".
    init_scale : {None, "median"}
        With "median", scale the start so that the median squared distance between rows is 1. The softmax has unit
        bandwidth: if the rows lie far apart, each has only one likely neighbor and the gradient vanishes. A search that
        cannot leave its start for this reason begins again as with "median".
    batch_size : int, optional
        Number of anchors per step of Adam; every step compares them with all rows. By default, L-BFGS is run on all
        anchors at once.
    dtype : {"float64", "float32"}
        Precision of the search. "float32" takes half the time and memory, and ends with at most five iterations in
        float64. It compares single iterations, with a `tol` of at least 1e-5.
    max_iter : int
        Maximum number of L-BFGS iterations, or of epochs if `batch_size` is given.
    tol : float
        Stop when eight iterations together add at most ``tol * max(1, |f|)`` to f, the objective divided by the number
        of anchors. Eight are taken together because the search may slow down before it improves again. With
        `batch_size`, the means of three epochs are compared instead. The default was chosen by 3-NN accuracy in
        cross-validation within the training rows of eleven data sets, where 1e-5 took a sixth more time and gained
        nothing; it was not chosen for `batch_size`.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the start if ``init="random"``, and the batches.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    objective_ : float
        Value of the objective at the solution: the sum over rows minus the penalty.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Goldberger, Roweis, Hinton & Salakhutdinov, NIPS 2004; the penalty is from Yang & Laaksonen, SCIA 2007.

    Rows that are alone in their class serve as neighbors but never as anchors; rows of unknown class are left out.

    An evaluation of the objective takes O(n^2 k) time, in blocks of 2 MB.

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
        """Take one step of Adam on the objective of these rows; the first call initializes the components.

        The state of Adam is kept in `stream_`. A stream has no stopping rule, so `converged_` stays False.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows of the batch.
        y : array-like of shape (n,)
            Class labels of the rows.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self
        """
        with error_context(self):
            X, labels, first = self._streamed(X, y, unlabeled)
            self._check()
            # not reduced to their span: the rows of later calls may differ in other directions
            R = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0)
            if first:
                L = self._first(R, labels)
            else:
                L = np.asarray(self.components_, dtype=np.float64)
            adam = gradient_descent.Adam(gradient_descent.step_length(L), getattr(self, "stream_", None))
            value, gradient = neighborhood.of_rows(L, R, labels, self.objective, Ridge(self.reg))
            L = adam(L, -gradient)
            found = Solution(L, value, adam.k, converged=False, attributes={"stream": adam.state})
            self._store_step(found, R, X, y, first)
        return self

    def _check(self) -> None:
        checks.one_of((None, "median"), init_scale=self.init_scale)
        checks.one_of(("accuracy", "log"), objective=self.objective)
        checks.at_least(0, reg=self.reg)

    def _first(self, X: Array, labels: Ints) -> Array:
        """Return the components before the first step."""
        L = initialization.start(X, labels, init=self.init, n_components=self.n_components, seed=self.random_state)
        if self.init_scale is None:
            return L
        return initialization.median_scaled(X, L)

    @property
    def _span(self) -> bool | str:
        # Adam scales each entry by itself, so its steps depend on the axes of the coordinates
        return self.batch_size is None and initialization.span_setting(self.init, self.n_components, self.reg)

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        self._check()
        checks.one_of(("float64", "float32"), dtype=self.dtype)
        checks.counts(1, **checks.not_none(batch_size=self.batch_size))
        first = self._first(X, labels)
        last = work.start(first.shape)
        search = self._settings("objective", "reg", "batch_size", "dtype") | self._search()
        start = first if last is None else last
        return nca(X, labels, start, seed=self.random_state, warm=last is not None, **search)
