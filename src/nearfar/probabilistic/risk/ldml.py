"""Logistic discriminant metric learning (Guillaumin, Verbeek & Schmid, 2009).

    min_{M PSD, b}  sum_p w_p log(1 + exp(s_p (d_p - b))) + reg tr(M),  d_p = (x_i - x_j)' M (x_i - x_j)

Minus the log-likelihood of P(similar) = sigma(b - d_p), convex in (M, b). s_p: 1 if similar, else -1; sum w_p = 1.
"""

from __future__ import annotations

from typing import Any

from scipy.special import expit

from ...estimators.base import FromPairs, Mahalanobis, Workspace, error_context, with_signature_hint
from ...fit_warnings import warn
from ...numerics import checks, gradient_descent
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from . import solvers


def ldml(
    X: Array,
    pairs: Pairs | LabelPairs,
    reg: float = 0.0,
    pair_weight: str = "none",
    *,
    n_components: int | None = None,
    fit_bias: bool = True,
    start: tuple[Array, float] | None = None,
    batch_size: int | None = None,
    seed: Any = None,
    **search: Any,
) -> Solution:
    """L (k, d); ``attributes["b"]`` is b. `search` is max_iter, tol and report; see `LDML`."""
    R = solvers.risk(X, pairs, pair_weight)
    d = X.shape[1]
    k = n_components or X.shape[1]
    if not R.both:
        warn("pairs are all similar or all dissimilar, which leaves b undetermined: it stays 1")
    L0, b = (None, 1.0) if start is None else start
    common: dict[str, Any] = {"learn_b": fit_bias and R.both, "reg": reg, **search}
    if batch_size is not None:
        L0 = solvers.whitened_directions(X, k) if L0 is None else L0
        return solvers.minimize_in_batches(R, L0, b, batch_size=batch_size, seed=seed, **common)
    if L0 is not None and k < d:
        return solvers.minimize(R, L0, b, **common)
    found = solvers.minimize_convex(R, solvers.whitening(X), L0, b, **common)
    if k == d:
        return found
    return solvers.minimize(R, found.x[:k], found.attributes["b"], **common)


class LDML(FromPairs, Mahalanobis):
    """Tell similar from dissimilar pairs by a logistic regression on their squared distance.

    Parameters
    ----------
    n_components : int, optional
        Rows of L. Fewer than features: a search over such L, not convex, from the convex optimum's leading directions.
    reg : float
        Weight of tr(M) beside a mean over pairs.
    fit_bias : bool
        Learn b; otherwise it is 1.
    pair_weight : "none" or "balanced"
        Every pair weighs the same, or similar and dissimilar pairs weigh a half each.
    n_pairs : "all", int or None
        Pairs made from labels: all, this many of each kind, or 20 c^2 of each kind for c classes.
    batch_size : int, optional
        Steps on so many pairs (with ``n_pairs="all"``: on so many rows with all others), `max_iter` epochs of Adam.
    max_iter : int
    tol : float
        On the optimality conditions (see `kkt_`), weighted and added.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    b_ : float
        The squared distance at which a pair is as likely similar as dissimilar.
    threshold_ : float
        Its square root, which `predict` uses (0 where b_ is negative); set where pairs were given.
    kkt_ : ndarray of shape (3,)
        Negative part of the smallest eigenvalue of G = df/dM, |<M, G>| and |df/db|: 0 at the optimum.

    Notes
    -----
    Guillaumin, Verbeek & Schmid, ICCV 2009; `reg` and `pair_weight` are ours. Labels enter as 0 and 1: a survey's +1
    and -1 leave no maximum. Where pairs are separable only `reg` bounds M. The kernel form is ``Kernelized(LDML())``.
    """

    _both_kinds = False
    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.0,
        fit_bias: bool = True,
        pair_weight: str = "none",
        n_pairs: int | str | None = "all",
        batch_size: int | None = None,
        max_iter: int = 200,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.fit_bias = fit_bias
        self.pair_weight = pair_weight
        self.n_pairs = n_pairs
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def pair_probability(self, pairs: AnyArray, X: AnyArray | None = None) -> AnyArray:
        """Probability that each pair is similar, shape (m,); pairs as for `pair_distance`."""
        return expit(self.b_ - self.pair_distance(pairs, X) ** 2)

    @with_signature_hint
    def partial_fit(self, X: AnyArray, y: AnyArray, *, unlabeled: Any = None) -> LDML:
        """One step of Adam (state: `stream_`) on all pairs of these rows; the first call starts. Not `converged_`."""
        with error_context(self):
            X, labels, first = self._streamed(X, y, unlabeled)
            checks.at_least(0, reg=self.reg)
            checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)
            R = solvers.of_labels(X, labels, self.pair_weight)
            if first:
                L = solvers.whitened_directions(R.X, self.n_components or X.shape[1])
            else:
                L = self.components_
            adam = gradient_descent.Adam(gradient_descent.step_length(L), getattr(self, "stream_", None))
            found = solvers.stream(adam, R, L, 1.0 if first else self.b_, learn_b=self.fit_bias, beta=1.0, reg=self.reg)
            found = found.with_x(found.x, attributes={**found.attributes, "stream": adam.state})
            self._store(found, Workspace(R.X), dtype=X.dtype)
            self._training_marks = self._marks_of(X, y, after=None if first else self._training_marks)
        return self

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        self.set_threshold(max(self.b_, 0.0) ** 0.5)

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg)
        checks.counts(1, **checks.not_none(batch_size=self.batch_size))
        checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)
        last = work.start((self.n_components or X.shape[1], X.shape[1]))
        settings = self._settings("reg", "pair_weight", "n_components", "fit_bias", "batch_size") | self._search()
        start = None if last is None else (last, getattr(self, "b_", 1.0))
        return ldml(X, pairs, start=start, seed=self.random_state, **settings)
