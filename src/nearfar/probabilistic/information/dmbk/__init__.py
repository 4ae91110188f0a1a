"""Distance metric learning by balancing KL divergences, for imbalanced classes (Feng, Wang, Jin, Li, Xue & Wang, 2019).

    max_U  mean_{a != b} log e_ab + alpha mean_{a != b} log K_ab + reg mean_D |U' (x_i - x_j)|   s.t.  tr(U' M_S U) = 1
    e_ab = n_a n_b K_ab / sum_{k != l} n_k n_l K_kl,  K_ab = KL(N(U'mu_a, U'Sigma_a U) | N(U'mu_b, U'Sigma_b U))

U = L', D holds the pairs of different classes, and M_S is the mean scatter of the pairs of one class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage

from ....estimators.base import FromLabels, Mahalanobis, Workspace
from ....numerics import checks, constraints, optimize, psd, scatter
from ....numerics.constraints import LabelPairs
from ....numerics.optimize import Solution
from ....numerics.types import Array, Ints, Seed
from . import divergences


def dmbk(
    X: Array,
    labels: Ints,
    p: int,
    *,
    reg: float = 0.1,
    alpha: float | None = None,
    shrinkage: float | str = 1e-3,
    whiten: bool = False,
    n_pairs: int = 10_000,
    n_init: int = 2,
    seed: Seed = None,
    last: Array | None = None,
    **search: Any,
) -> Solution:
    """Return L (p, d) as `x`: the best of several local maxima, or the one from `last` (p, d); `search` is of `lbfgs`.

    `whiten` also returns `unwhitened` (p, p): the columns of L' unwhitened are the directions of the maximum.
    """
    X, labels = scatter.known(X, labels)
    classes = divergences.gaussians(X, labels, shares(X, labels, shrinkage))
    if alpha is None:
        # with two classes, the first term says only how unequal both directions of K are
        alpha = 1.0 if len(classes.sizes) == 2 else 0.0
    apart = constraints.pairs_from_labels(labels, n_pairs, seed).part(similar=False)
    M_S = scatter.pair_scatters(X, LabelPairs(labels)).mean()[0]
    A = psd.power(psd.regularize_singular(M_S, amount=1e-3), -0.5)  # M_S^(-1/2)
    Y = X @ A
    # means and covariances of the classes in the coordinates M_S^(-1/2) x
    seen = classes.mapped(A)
    distance = divergences.MeanDistance(Y, apart.i, apart.j)

    def fun(V: Array) -> tuple[float, Array]:
        # in these coordinates M_S = I: the constraint is |U| = 1, and U = V / |V|
        norm = float(np.linalg.norm(V))
        value, gradient = divergences.balance(V, seen, alpha)  # it does not depend on the length of V
        far, slope = distance(V)
        return -value - reg * far / norm, -gradient - reg * (slope / norm - far * V / norm**3)

    first = divergences.first_directions(Y, labels, p, n_init, seed)
    if last is not None and np.linalg.matrix_rank(last) == len(last) == p:
        # x -> V' A x is the map of the last fit
        first = [np.asarray(np.linalg.solve(A, last.T), dtype=float)]
    tries = [optimize.lbfgs(fun, V, **search) for V in first]
    best = min(tries, key=lambda found: found.value)
    directions = best.x / np.linalg.norm(best.x)
    if not whiten:
        return best.times(-1).with_x(psd.compress((A @ directions).T))
    basis = np.linalg.qr(directions)[0] / np.sqrt(p)  # the same space with tr(U' M_S U) = 1, evenly in p directions
    L = psd.compress((A @ basis).T)
    unwhitened = np.linalg.lstsq(L.T, A @ directions, rcond=None)[0]
    return replace(best.times(-1).with_x(L), attributes={"unwhitened": unwhitened})


def shares(X: Array, labels: Ints, shrinkage: float | str) -> list[float]:
    """Return the share of the identity in the covariance of each class."""
    n = checks.class_sizes(labels)
    if n.min() < 2:
        raise ValueError(f"y must hold at least 2 rows of each class; {int((n < 2).sum())} classes have a single row")
    if not isinstance(shrinkage, str):
        return [float(shrinkage)] * len(n)
    return [float(ledoit_wolf_shrinkage(X[labels == c])) for c in range(len(n))]


class DMBK(FromLabels, Mahalanobis):
    """Learn a projection that spreads the classes evenly, small ones as well as large ones.

    It keeps one dimension less than there are classes, and every class counts the same. With two or three classes, of
    which one is small, much of what tells the large ones apart is lost: choose `n_components` by cross-validation.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions p of the learned space. It must be below the number of features: with all of them, no
        divergence depends on U. By default, the number of classes minus 1.
    reg : float
        Weight of the mean distance between rows of different classes, at least 0.
    alpha : float, optional
        Weight of the mean log divergence (the criterion of Tao et al.), at least 0. The first term only balances the
        divergences, and has little effect for two classes. By default, 1 for two classes, else 0 as in the paper.
    shrinkage : float or "lw"
        Share of the scaled identity in the covariance of each class. "lw" or "ledoit_wolf" estimates it for each class.
    whiten : bool
        If True, keep the space spanned by the columns of U but scale it so that the scatter of similar pairs is the
        same in p directions of it. The divergences do not depend on lengths within that space, and `reg` alone tends to
        put all length into one direction, which costs up to 26 points of 3-NN accuracy. If False, only the paper's
        objective is used.
    n_pairs : int
        Number of pairs of different classes in the mean distance; all are used if there are fewer.
    n_init : int
        Number of random starts besides the two from discriminant and from principal directions. The best maximum is
        kept.
    max_iter : int
        Maximum number of L-BFGS iterations of each start.
    tol : float
        Stop when the largest entry of the gradient is at most ``tol * max(1, |objective|)``.
    warm_start : bool
        Start from the solution of the previous fit, and from no other start.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs and random starts.

    Attributes
    ----------
    components_ : ndarray of shape (p, d)
        The learned linear map L.
    unwhitened_ : ndarray of shape (p, p)
        With `whiten`, ``components_.T @ unwhitened_`` are the directions of the maximum with their lengths, from which
        a warm start begins.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Feng et al., IEEE TSMC: Systems 49(12), 2019; Tao, Li, Wu & Maybank, TPAMI 31(2), 2009.

    Sums over pairs are means here, so that `reg` is comparable between data sets. The constraint is met with equality
    and is eliminated. The paper uses projected gradient steps and has no `whiten`; we do not know its `reg`. A survey
    omits the term -p of K, which changes e, and sums over a < b only although K is not symmetric, so that its first
    term is 0 for two classes.
    """

    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        alpha: float | None = None,
        shrinkage: float | str = 1e-3,
        whiten: bool = True,
        n_pairs: int = 10_000,
        n_init: int = 2,
        max_iter: int = 200,
        tol: float = 1e-5,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.alpha = alpha
        self.shrinkage = shrinkage
        self.whiten = whiten
        self.n_pairs = n_pairs
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg, alpha=self.alpha or 0.0)
        checks.counts(1, n_pairs=self.n_pairs)
        checks.counts(0, n_init=self.n_init)
        checks.share(("lw", "ledoit_wolf"), shrinkage=self.shrinkage)
        p = self.n_components or min(int(labels.max()), X.shape[1] - 1)
        d = X.shape[1]
        if not 1 <= p < d:
            if d == 1:
                detail = "X must have at least 2 independent features; got 1"
            else:
                detail = f"n_components must be below {d}, the rank of X; got {p}"
            raise ValueError(f"{detail} (n_features={self.n_features_in_})")
        settings = self._settings("reg", "alpha", "shrinkage", "whiten", "n_pairs", "n_init") | self._search()
        last = work.start()
        unwhitened = self._found_before("unwhitened_", work)
        if last is not None and unwhitened is not None and len(unwhitened) == len(last):
            last = unwhitened.T @ last
        return dmbk(X, labels, p, seed=self.random_state, last=last, **settings)
