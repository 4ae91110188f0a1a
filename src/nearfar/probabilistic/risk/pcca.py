"""Pairwise constrained component analysis (Mignon & Jurie, 2012).

    min_L  sum_p w_p log(1 + exp(beta s_p (|L (x_i - x_j)|^2 - 1))) / beta + reg |L|^2

s_p: +1 for similar, -1 for dissimilar pairs, which should lie within and beyond distance 1; the weights w_p sum to 1.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromPairs, Mahalanobis, Workspace, error_context, with_signature_hint
from ...numerics import checks, gradient_descent, initialization
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
    """L (k, d) from the start L0; `search` is max_iter, tol and report. See `PCCA`."""
    R = solvers.risk(X, pairs, pair_weight)
    common: dict[str, Any] = {"learn_b": False, "beta": beta, "reg": reg, **search}
    if batch_size is None:
        return solvers.minimize(R, L0, 1.0, **common)
    return solvers.minimize_in_batches(R, L0, 1.0, batch_size=batch_size, seed=seed, **common)


class PCCA(FromPairs, Mahalanobis):
    """Learn a projection that brings similar pairs within distance 1 and dissimilar pairs beyond it.

    Parameters
    ----------
    n_components : int, optional
        Rows of L; default: as many as features. The method is meant for far fewer.
    beta : float
        Sharpness of the loss; for large beta it is a hinge. Authors' code: 3.
    reg : float
        Weight of the squared Frobenius norm of L beside a mean over pairs.
    pair_weight : "none" or "balanced"
        Every pair weighs the same, or similar and dissimilar pairs weigh a half each.
    init : str or array-like of shape (k, d)
        "pca": whitened principal directions with mean squared distance 1; "identity", "random", or the components.
        Never 0: it is a saddle.
    n_pairs : "all", int or None
        Pairs made from labels: all, this many of each kind, or 20 c^2 of each kind for c classes.
    batch_size : int, optional
        Steps on so many pairs (with ``n_pairs="all"``: on so many rows with all others), `max_iter` epochs of Adam.
    max_iter : int
    tol : float
        Stop where an iteration lowers the mean loss by less than a hundredth of `tol`, relatively where it is above 1.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    threshold_ : float
        1, which `predict` uses; set where pairs were given.

    Notes
    -----
    Mignon & Jurie, CVPR 2012, by L-BFGS instead of gradient descent. A similar pair beyond distance 1 gets the
    positive weight s sigma(beta s (d - 1)): the sign printed in the paper, and in a survey's account, is the
    opposite, and the survey's loss lacks the 1 / beta. `reg` and `pair_weight` are not the paper's.
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
        """One step of Adam (state: `stream_`) on all pairs of these rows; the first call starts. Not `converged_`."""
        with error_context(self):
            X, labels, first = self._streamed(X, y, unlabeled)
            self._check()
            R = solvers.of_labels(X, labels, self.pair_weight)
            L = self._first(R.X) if first else self.components_
            adam = gradient_descent.Adam(gradient_descent.step_length(L), getattr(self, "stream_", None))
            found = solvers.stream(adam, R, L, 1.0, learn_b=False, beta=self.beta, reg=self.reg)
            found = found.with_x(found.x, attributes={"stream": adam.state})
            self._store(found, Workspace(R.X), dtype=X.dtype)
            self._training_marks = self._marks_of(X, y, after=None if first else self._training_marks)
        return self

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        self.set_threshold(1.0)

    def _check(self) -> None:
        checks.at_least(0, reg=self.reg)
        checks.above(0, beta=self.beta)
        checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)

    def _first(self, X: Array) -> Array:
        """Components before the first step."""
        if isinstance(self.init, str) and self.init == "pca":
            return solvers.whitened_directions(X, self.n_components or X.shape[1])
        L = initialization.start(X, None, self.init, self.n_components, self.random_state)
        if not isinstance(self.init, str):
            return L
        return initialization.median_scaled(X, L)

    @property
    def _span(self) -> bool:
        return isinstance(self.init, str) and self.init == "pca"

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        self._check()
        checks.counts(1, **checks.not_none(batch_size=self.batch_size))
        first = self._first(X)
        last = work.start(first.shape)
        settings = self._settings("beta", "reg", "pair_weight", "batch_size")
        found = pcca(X, pairs, first if last is None else last, seed=self.random_state, **settings, **self._search())
        return found.with_x(found.x, attributes={})
