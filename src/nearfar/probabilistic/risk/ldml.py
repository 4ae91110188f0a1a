"""Logistic discriminant metric learning (Guillaumin, Verbeek & Schmid, 2009).

    min_{M PSD, b}  sum_p w_p log(1 + exp(s_p (d_p - b))) + reg tr(M),  d_p = (x_i - x_j)' M (x_i - x_j)

This is the negative log-likelihood of P(similar) = sigma(b - d_p), and convex in (M, b). s_p is 1 for similar and -1
for dissimilar pairs; the weights w_p sum to 1.
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
    """Return L (k, d), and b as ``attributes["b"]``; `search` holds max_iter, tol and report. See `LDML`."""
    R = solvers.risk(X, pairs, pair_weight)
    d = X.shape[1]
    k = n_components or d
    if not R.both:
        warn("all pairs are similar, or all are dissimilar, so that b is undetermined; it stays 1")
    L0 = None
    b = 1.0
    if start is not None:
        L0, b = start
    common: dict[str, Any] = {"learn_b": fit_bias and R.both, "reg": reg, **search}
    if batch_size is not None:
        if L0 is None:
            L0 = solvers.whitened_directions(X, k)
        return solvers.minimize_in_batches(R, L0, b, batch_size=batch_size, seed=seed, **common)
    if L0 is not None and k < d:
        return solvers.minimize(R, L0, b, **common)
    # convex in M and b: the optimum of full rank is also where the search for fewer directions begins
    found = solvers.minimize_convex(R, solvers.whitening(X), L0, b, **common)
    if k == d:
        return found
    # the k longest components of the convex optimum, then a local search over L (k, d)
    return solvers.minimize(R, found.x[:k], found.attributes["b"], **common)


class LDML(FromPairs, Mahalanobis):
    """Distinguish similar from dissimilar pairs by a logistic regression on their squared distance.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (rows of L). If it is below the number of features, L itself is
        optimized, which is not convex, starting from the leading directions of the convex optimum. By default, the
        number of features.
    reg : float
        Weight of the penalty tr(M) relative to the mean loss over pairs, at least 0.
    fit_bias : bool
        Whether to learn the threshold b. If False, b is 1.
    pair_weight : {"none", "balanced"}
        With "none", every pair has the same weight. With "balanced", similar and dissimilar pairs each have half of the
        total weight.
    n_pairs : "all", int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. "all" uses every pair without drawing;
        with None, 20 c^2 of each kind are drawn for c classes, at most 500,000.
    batch_size : int, optional
        Number of pairs per step of Adam; with ``n_pairs="all"``, number of rows, which are compared with all others. By
        default, the search uses all pairs at once.
    max_iter : int
        Maximum number of iterations, or of epochs if `batch_size` is given.
    tol : float
        Stop when the weighted sum of the violations of the optimality conditions, tr(M) ``kkt_[0]`` + ``kkt_[1]`` + |b|
        ``kkt_[2]``, is at most `tol`. The search over L with fewer rows than features stops when an iteration lowers
        the objective by at most ``0.01 * tol * max(1, |objective|)``. With `batch_size`, the means of three epochs are
        compared.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs from labels, and batches.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        The learned linear map L.
    b_ : float
        Squared distance at which a pair is similar with probability 1/2.
    threshold_ : float
        Distance below which `predict` calls a pair similar: the root of `b_`, or 0 if `b_` is negative. It is set if
        pairs were given.
    kkt_ : ndarray of shape (3,)
        Violation of the optimality conditions: the negative part of the smallest eigenvalue of the gradient G with
        respect to M, ``abs(<M, G>)``, and the absolute derivative by b. All are 0 at the optimum. Set only if the last
        search was the convex one, with all dimensions and without `batch_size`.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Guillaumin, Verbeek & Schmid, ICCV 2009.

    `reg` and `pair_weight` are not from the paper. Labels enter as 0 and 1: with a survey's +1 and -1, the likelihood
    has no maximum. If the pairs are separable, only `reg` bounds M. The kernel form is ``Kernelized(LDML())``.
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
        """Return the probability that each pair is similar.

        Parameters
        ----------
        pairs : array-like of shape (m, 2), or (m, 2, d)
            Pairs of row numbers of X, or pairs of points.
        X : array-like of shape (n, d), optional
            Rows to which the pairs refer.

        Returns
        -------
        ndarray of shape (m,)
            Probabilities.
        """
        # P(similar) = sigma(b - d)
        return expit(self.b_ - self.pair_distance(pairs, X) ** 2)

    @with_signature_hint
    def partial_fit(self, X: AnyArray, y: AnyArray, *, unlabeled: Any = None) -> LDML:
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
            checks.at_least(0, reg=self.reg)
            checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)
            R = solvers.of_labels(X, labels, self.pair_weight)
            if first:
                L = solvers.whitened_directions(R.X, self.n_components or X.shape[1])
                b = 1.0
            else:
                L = self.components_
                b = self.b_
            adam = gradient_descent.Adam(gradient_descent.step_length(L), getattr(self, "stream_", None))
            found = solvers.stream(adam, R, L, b, learn_b=self.fit_bias, beta=1.0, reg=self.reg)
            found = found.with_x(found.x, attributes={**found.attributes, "stream": adam.state})
            self._store_step(found, R.X, X, y, first)
        return self

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        # P(similar) = 1/2 at d = b, a squared distance
        self.set_threshold(max(self.b_, 0.0) ** 0.5)

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg)
        checks.counts(1, **checks.not_none(batch_size=self.batch_size))
        checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)
        last = work.start((self.n_components or X.shape[1], X.shape[1]))
        settings = self._settings("reg", "pair_weight", "n_components", "fit_bias", "batch_size") | self._search()
        start = None
        if last is not None:
            start = (last, getattr(self, "b_", 1.0))
        return ldml(X, pairs, start=start, seed=self.random_state, **settings)
