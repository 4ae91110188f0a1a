"""Metric learning for kernel regression (Weinberger & Tesauro, 2007).

    min_L  sum_i |h_i - y_i|^2 + reg tr(L C L') sum_i |y_i - y|^2
    h_i = sum_{j != i} k_ij y_j / sum_{j != i} k_ij,   k_ij = exp(-|L (x_i - x_j)|^2)

h_i is the prediction for row i from all other rows, and y_i is its target, one or several numbers. y is the mean of the
targets, and C the covariance of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ....estimators.base import Mahalanobis, Supervised, Workspace, error_context, with_signature_hint
from ....numerics import checks, gradient_descent, initialization, scatter
from ....numerics.optimize import Report, Solution, lbfgs
from ....numerics.types import AnyArray, Array
from .. import search as neighborhood
from .regression import leave_one_out_error

START_TOL = 1e-3  # tol of the search that finds the directions of a start
# largest gradient at which a search may end; it is small, because all gradients are small if rows are close together
MAX_FINAL_GRADIENT = 1e-12
SMALL_ERROR = 1e-2  # share of the squares of the targets below which an error, or a difference of two, is small


def mlkr(
    X: Array,
    Y: Array,
    L0: Array,
    *,
    reg: float = 0.0,
    tol: float = 1e-9,
    report: Report | None = None,
    warm: bool = False,
    **search: Any,
) -> Solution:
    """Return L (k, d), searched from L0 for targets Y (n, m); `search` holds max_iter. See `MLKR`.

    A `warm` start is the result of another search, at which this search may stay.
    """
    size = float(np.abs(X).max()) or 1.0
    # root mean square of the entries, computed so that no square overflows
    unit = size * (float(np.sqrt(np.mean((X / size) ** 2))) or 1.0)
    largest = float(np.abs(Y).max())
    spread = largest * float(np.linalg.norm(Y / largest))
    R = X / unit
    T = Y / spread
    C = R - R.mean(axis=0)
    K0 = unit * L0

    def in_units_of_targets(k: int, value: float, rest: float) -> None:
        assert report is not None
        report(k, value * spread**2, rest)

    def penalized(K: Array) -> tuple[float, Array]:
        value, gradient = leave_one_out_error(K, R, T)
        if reg == 0:
            return value, gradient
        Z = C @ K.T
        return value + reg * float(np.vdot(Z, Z)) / len(C), gradient + 2 * reg / len(C) * (Z.T @ C)

    def find(K: Array) -> Solution:
        # the objective is a share of the squares of the targets, so that `tol` does not depend on their units
        return lbfgs(
            penalized,
            K,
            stop=gradient_descent.hardly_changes(tol),
            tol=min(MAX_FINAL_GRADIENT, 1e-3 * tol),
            report=None if report is None else in_units_of_targets,
            **search,
        )

    if warm or len(X) <= 2 or not X.any():  # nothing is to be learned from two rows, or from equal ones
        found = find(K0)
    else:
        found = neighborhood.search_off_start(find, lambda found, K: standstill(found, K, R, T), K0, R)
    return found.times(spread**2).with_x(found.x / unit)


def standstill(found: Solution, K0: Array, R: Array, T: Array) -> str:
    """Return why a search stays at its start K0, where the kernel is too narrow or too wide; "" if it does not stay.

    R are the rows and T the targets, whose squares sum to 1.
    """
    error = leave_one_out_error(found.x, R, T)[0]
    if error <= SMALL_ERROR or neighborhood.moves(found.x, K0):
        return ""
    if abs(error - leave_one_out_error(np.zeros_like(K0), R, T)[0]) <= neighborhood.VANISHED:
        return neighborhood.TOO_WIDE
    # a kernel of half the width predicts the same: each row has one neighbor
    if abs(error - leave_one_out_error(2 * found.x, R, T)[0]) <= SMALL_ERROR:
        return neighborhood.TOO_NARROW
    return ""


class MLKR(Mahalanobis):
    """Learn a metric for regression, under which the neighbors of a row predict its target best.

    Targets are numbers rather than classes: a target of -1 is a number like any other. Scale the features first.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (rows of L). By default, the number of features; directions in
        which no rows differ then stay as they are at the start.
    init : {"auto", "whole", "pca", "identity", "random"} or array-like of shape (k, d)
        Start of the search. "whole" first runs a rough search with k = d and takes the k leading directions of the rows
        under its metric; without it, a search for few components often ends far from the best ones. "pca", "identity"
        and "random" are as for `NCA`; an array holds the components themselves. "auto" chooses "whole" if
        `n_components` is below d, else "identity".
    init_scale : {None, "median"}
        With "median", scale the start so that the median squared distance between rows is 1. The kernel has unit width:
        if the rows lie far apart, each has only one neighbor with weight and the gradient vanishes. A search that
        cannot leave its start for this reason begins again as with "median".
    reg : float
        Weight of the regularization, at least 0: the mean squared distance of a row from the mean of all rows, in units
        of the sum of squares of the targets around their mean. Without it, the paper's method makes the kernel so
        narrow that it fits the noise of the targets. Noisier targets or fewer rows need more of it, 0.03, and many
        rows with little noise less, 0.001.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when an iteration lowers the error by at most `tol` times the sum of squares of the targets around their
        mean. With 1e-4, predictions are about as good and take a tenth of the time.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the start if ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    objective_ : float
        Sum over rows of the squared leave-one-out errors, plus the regularization.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Weinberger & Tesauro, AISTATS 2007.

    The width of the kernel is part of L. The weights are computed relative to the nearest neighbor of each row, so that
    the prediction for a row far from all others is the target of its nearest neighbor. An evaluation takes O(n^2 k)
    time, in blocks.

    The regression of the paper, and regression by a few neighbors:

        make_pipeline(MLKR(), KNeighborsRegressor(len(X), weights=lambda d: np.exp(d.min(1, keepdims=True)**2 - d**2)))
        make_pipeline(StandardScaler(), MLKR(n_components=2), KNeighborsRegressor(10))

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0.1, 3], [1, 0], [1.1, 3], [2, 0], [2.1, 3]])
    >>> L = MLKR().fit(X, 7 * X[:, 0]).components_
    >>> bool(np.abs(L[:, 0]).max() > 2 * np.abs(L[:, 1]).max())
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: str | AnyArray = "auto",
        init_scale: str | None = None,
        reg: float = 0.01,
        max_iter: int = 1000,
        tol: float = 1e-9,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.init_scale = init_scale
        self.reg = reg
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_signature_hint
    def fit(self, X: AnyArray, y: AnyArray | None = None) -> MLKR:
        """Learn from rows and their targets.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,) or (n, m)
            Targets: finite numbers, not all equal. The squared errors of several columns are added.

        Returns
        -------
        self
        """
        return self._fit(X, y)

    def _supervise(self, X: AnyArray, y: AnyArray | None, **given: Any) -> Supervised:
        X = self._rows(X)
        Y = checks.targets(y, len(X))
        order = self._order(X)
        return Supervised(X[order], (Y[order],), order)

    @property
    def _span(self) -> bool | str:  # other starts have the shape of L, and no d x d matrix is formed for them
        if not isinstance(self.init, str):
            return False
        if self.n_components is not None:
            return self.init in ("auto", "whole")
        # a search from the identity does not leave it where no rows differ; a penalty does not see these directions
        return "full" if self.init in ("auto", "identity") else True

    def _solve(self, X: Array, Y: Array, work: Workspace) -> Solution:
        checks.one_of((None, "median"), init_scale=self.init_scale)
        checks.at_least(0, reg=self.reg)
        k = self.n_components or X.shape[1]
        init = self.init
        if isinstance(init, str):
            checks.one_of(("auto", "whole", "pca", "identity", "random"), init=init)
            if init == "auto":
                init = "identity" if k == X.shape[1] else "whole"
        whole = isinstance(init, str) and init == "whole"
        L0 = work.start((k, X.shape[1]))
        warm = L0 is not None
        if L0 is None:
            if whole:
                L0 = scatter.span_or_axes(X, k)
            else:
                L0 = initialization.start(X, None, init, k, self.random_state)
            if self.init_scale is not None:
                L0 = initialization.median_scaled(X, L0)
            if whole:
                L = mlkr(X, Y, L0, reg=self.reg, tol=START_TOL, max_iter=self.max_iter).x
                # the k directions along which the metric of all directions spreads the rows most
                L0 = initialization.principal(X @ L.T, k) @ L
                warm = True
        return mlkr(X, Y, L0, reg=self.reg, warm=warm, **self._search())

    def score(self, X: AnyArray, y: AnyArray | None = None) -> float:
        """Return the coefficient of determination R^2 of kernel regression, each row predicted from the others.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,) or (n, m)
            Targets of the rows.

        Returns
        -------
        float
            At most 1, the score of perfect predictions.
        """
        check_is_fitted(self)
        with error_context(self):
            rows = np.asarray(self._rows(X, reset=False), dtype=np.float64)
            Y = checks.targets(y, len(rows))
            error = leave_one_out_error(np.asarray(self.components_, dtype=np.float64), rows, Y)[0]
            return 1 - error / float(np.vdot(Y, Y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
