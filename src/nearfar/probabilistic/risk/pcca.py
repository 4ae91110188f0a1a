"""Pairwise constrained component analysis (Mignon & Jurie, 2012).

    min_L  sum_p w_p log(1 + exp(beta s_p (|L (x_i - x_j)|^2 - 1))) / beta + reg |L|^2

s_p is +1 for similar pairs, which should be within distance 1, and -1 for dissimilar pairs, which should be beyond it;
the weights w_p sum to 1.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromPairs, Mahalanobis, Workspace, error_context, with_signature_hint
from ...numerics import checks, gradient_descent, initialization, scatter
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from . import solvers


def pcca(
    X: Array,
    pairs: Pairs | LabelPairs,
    L0: Array,
    beta: float = 3.0,
    reg: float = 0.0,
    pair_weight: str = "none",
    *,
    batch_size: int | None = None,
    seed: Any = None,
    **search: Any,
) -> Solution:
    """Return L (k, d), searched from L0; `search` holds max_iter, tol and report. See `PCCA`."""
    R = solvers.risk(X, pairs, pair_weight)
    common: dict[str, Any] = {"learn_b": False, "beta": beta, "reg": reg, **search}
    if batch_size is None:
        # the logistic loss of LDML with b = 1 held, and slope beta
        return solvers.minimize(R, L0, 1.0, **common)
    return solvers.minimize_in_batches(R, L0, 1.0, batch_size=batch_size, seed=seed, **common)


class PCCA(FromPairs, Mahalanobis):
    """Learn a projection that brings similar pairs within distance 1 and dissimilar pairs beyond it.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (rows of L). By default, the number of features; the method is meant
        for far fewer.
    beta : float
        Sharpness of the loss, above 0: as it grows, the loss becomes a hinge. The authors' code uses 3.
    reg : float
        Weight of the penalty on the squared Frobenius norm of L relative to the mean loss over pairs, at least 0.
    pair_weight : {"none", "balanced"}
        With "none", every pair has the same weight. With "balanced", similar and dissimilar pairs each have half of the
        total weight.
    init : {"pca", "identity", "random"} or array-like of shape (k, d)
        Start of the search: whitened principal directions with a mean squared distance of 1 ("pca"), the first k axes,
        or random entries, both scaled so that the median squared distance is 1; or the components themselves. They must
        not be 0, which is a saddle point.
    n_pairs : "all", int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. "all" uses every pair without drawing;
        with None, 20 c^2 of each kind are drawn for c classes, at most 500,000.
    batch_size : int, optional
        Number of pairs per step of Adam; with ``n_pairs="all"``, number of rows, which are compared with all others. By
        default, L-BFGS is run on all pairs at once.
    max_iter : int
        Maximum number of L-BFGS iterations, or of epochs if `batch_size` is given.
    tol : float
        Stop when an iteration lowers the objective by at most ``0.01 * tol * max(1, |objective|)``. With
        `batch_size`, the means of three epochs are compared.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs from labels, batches, and the start if ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    threshold_ : float
        Distance below which `predict` calls a pair similar, 1. It is set if pairs were given.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Mignon & Jurie, CVPR 2012, with L-BFGS instead of gradient descent.

    A similar pair beyond distance 1 gets the positive weight s sigma(beta s (d - 1)). The sign printed in the paper and
    in a survey's account is the opposite, and the survey's loss lacks the factor 1 / beta. `reg` and `pair_weight` are
    not from the paper.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        beta: float = 3.0,
        reg: float = 0.0,
        pair_weight: str = "none",
        init: str | AnyArray = "pca",
        n_pairs: int | str | None = "all",
        batch_size: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.reg = reg
        self.pair_weight = pair_weight
        self.init = init
        self.n_pairs = n_pairs
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_signature_hint
    def partial_fit(self, X: AnyArray, y: AnyArray, *, unlabeled: Any = None) -> PCCA:
        """Take one step of Adam on all pairs of these rows; the first call initializes the components.

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
            R = solvers.of_labels(X, labels, self.pair_weight)
            if first:
                L = self._first(R.X)
            else:
                L = self.components_
            adam = gradient_descent.Adam(gradient_descent.step_length(L), getattr(self, "stream_", None))
            found = solvers.stream(adam, R, L, 1.0, learn_b=False, beta=self.beta, reg=self.reg)
            found = found.with_x(found.x, attributes={"stream": adam.state})
            self._store_step(found, R.X, X, y, first)
        return self

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        # pairs within distance 1 are similar
        self.set_threshold(1.0)

    def _check(self) -> None:
        checks.at_least(0, reg=self.reg)
        checks.above(0, beta=self.beta)
        checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)

    def _first(self, X: Array) -> Array:
        """Return the components before the first step."""
        if isinstance(self.init, str) and self.init == "pca":
            return solvers.whitened_directions(X, self.n_components or X.shape[1])
        L = initialization.start(X, None, init=self.init, n_components=self.n_components, seed=self.random_state)
        if not isinstance(self.init, str):
            return L
        return initialization.median_scaled(X, L)

    @property
    def _span(self) -> bool:
        return isinstance(self.init, str) and self.init == "pca"

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        self._check()
        checks.counts(1, **checks.not_none(batch_size=self.batch_size))
        L0 = self._first(X)
        last = work.start(L0.shape)
        if last is not None:
            L0 = last
        settings = self._settings("beta", "pair_weight", "batch_size") | self._search()
        # L (x_i - x_j) = (unit L) (x_i - x_j) / unit: the search takes the same steps in any unit of X
        unit = scatter.unit(X)
        settings["reg"] = self.reg / unit**2
        found = pcca(X / unit, pairs, L0 * unit, seed=self.random_state, **settings)
        return found.with_x(found.x / unit, attributes={})
