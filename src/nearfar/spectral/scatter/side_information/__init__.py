"""Embedding by side information (Ghodsi, Wilkinson & Southey, 2007).

    min_M  tr(M (Sig_S / |S| - Sig_D / |D|))   s.t.  M PSD, tr M = 1    =>   M = v v'
    min_M  sum_P (|x_i - x_j|_M^2 - t_ij^2)^2 + beta tr(M (Sig_S / |S| - Sig_D / |D|))   s.t.  M PSD

v is the eigenvector of the smallest eigenvalue. A linear function on the spectrahedron is smallest at a matrix of rank
one, so no semidefinite program needs to be solved. The second form, which is convex, takes target distances t for the
pairs P.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....estimators.base import Supervised, Workspace, with_signature_hint
from ....estimators.sums import PairSums
from ....fit_warnings import warn
from ....numerics import checks, class_sums, psd, scatter
from ....numerics.class_sums import ClassMoments
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array
from ... import target_pairs as targets
from .target_distances import match_distances


def side_information(X: Array, pairs: Pairs | LabelPairs) -> Solution:
    """Return L (1, d) as `x`, a unit vector; `objective` is the smallest eigenvalue."""
    return nearest_direction(*scatter.pair_scatters(X, pairs).mean())


def nearest_direction(S: Array, D: Array) -> Solution:
    """Return `side_information` from both mean scatters (d, d)."""
    # min_v v'(S - D)v over unit vectors: the eigenvector of the smallest eigenvalue, the last one
    w, V = psd.spectrum(S - D)
    if w[-1] >= -psd.rounding(np.diag(S + D)):
        warn("there is no direction in which dissimilar pairs are farther apart than similar ones")
    return Solution(V[:, -1:].T, objective=float(w[-1]))


class SideInformationMetric(PairSums):
    """Find the direction in which similar pairs are nearest and dissimilar pairs farthest, or fit given distances.

    A single direction cannot tell many classes apart: with more than two, nearest neighbors are mostly worse than those
    of the Euclidean distance, unless distances are given.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space. Without target distances, only 1 is possible, because the optimum
        has rank one (`FisherMetric` gives more directions). With target distances, the directions with the largest
        eigenvalues of M are kept; by default, all of them.
    beta : float
        Weight of the similar and dissimilar pairs relative to the target distances, at least 0.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    max_iter : int
        Maximum number of iterations. Used only with target distances.
    tol : float
        Stop when the duality gap falls below `tol` times the objective. Used only with target distances.
    warm_start : bool
        Start from the solution of the previous fit. Used only with target distances.
    verbose : bool
        Print progress. Used only with target distances.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    objective_ : float
        Without target distances, the smallest eigenvalue, which is 0 or more if no direction separates the pairs. With
        target distances, the value of the second objective.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum. Set only with target distances.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Ghodsi, Wilkinson & Southey, "Improving embeddings by flexible exploitation of side information", IJCAI 2007: both
    the class-equivalence form and the least-squares fit to partial distances. `beta`, which combines the two, and its
    default are not from the paper.

    Without target distances, the optimum is a single direction for all settings. One direction separates
    two classes, but rarely more. On eleven tables, the accuracy of 3-NN fell by 21 points on average compared with
    Euclidean distances. For nearest neighbors, use `FisherMetric` or `DCA`, which have several directions, or give
    target distances.
    """

    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        beta: float = 1.0,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.n_pairs = n_pairs
        self.weighting = weighting
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
        pair_labels: AnyArray | None = None,
        pair_weights: AnyArray | None = None,
        conflicts: str | None = None,
        rows: AnyArray | None = None,
        target_pairs: AnyArray | None = None,
        target_distances: AnyArray | None = None,
        sample_weight: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> SideInformationMetric:
        """Learn from labeled rows, from pairs of rows, from target distances of pairs, or from a combination of them.

        Parameters
        ----------
        X : array-like of shape (n, d), or (m, 2, d)
            Training rows, or pairs of points.
        y : array-like of shape (n,), or (m,), optional
            Class labels of the rows, which are ignored if `pairs` is given. For pairs of points, +1 for similar pairs
            and -1 for dissimilar pairs. May be omitted with target distances.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X.
        pair_labels : array-like of shape (m,), optional
            +1 for similar pairs and -1 for dissimilar pairs. By default, all pairs are similar.
        pair_weights : array-like of shape (m,), optional
            Weights of the pairs, at least 0. By default, all weights are 1.
        conflicts : {"raise", "keep", "drop"}, optional
            What to do if annotators disagree, so that a pair has both labels: raise an error, use it with both labels,
            or leave it out. By default, "raise" for pairs of row numbers, and "keep" for pairs of points, because
            different items can have equal points.
        rows : array-like of shape (n,), optional
            Number that `pairs` and `target_pairs` use for each row of X, by default 0 to n - 1. Pairs with other
            numbers are left out.
        target_pairs : array-like of shape (p, 2), optional
            Pairs of row numbers of X for which target distances are given.
        target_distances : array-like of shape (p,), optional
            Target distance of each of these pairs, at least 0.
        sample_weight : array-like of shape (n,), optional
            Number of times that each labeled row counts, at least 0. Not supported with target distances. By default,
            every row counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : SideInformationMetric
            The fitted learner.
        """
        return self._fit(
            X,
            y,
            pairs=pairs,
            pair_labels=pair_labels,
            pair_weights=pair_weights,
            conflicts=conflicts,
            rows=rows,
            target_pairs=target_pairs,
            target_distances=target_distances,
            sample_weight=sample_weight,
            unlabeled=unlabeled,
        )

    def _supervise(
        self,
        X: AnyArray,
        y: AnyArray | None,
        *,
        pairs: AnyArray | None = None,
        rows: AnyArray | None = None,
        target_pairs: AnyArray | None = None,
        target_distances: AnyArray | None = None,
        **given: Any,
    ) -> Supervised:
        no_targets = target_pairs is None and target_distances is None
        if no_targets or y is not None or pairs is not None:
            if pairs is None and not no_targets:
                numbers = None  # only target_pairs use them
            else:
                numbers = rows
            supervised = super()._supervise(X, y, pairs=pairs, rows=numbers, **given)
        else:
            supervised = Supervised(self._rows(X), (None,))
        if no_targets:
            return replace(supervised, known=(*supervised.known, None))
        target = targets.check(target_pairs, target_distances, len(supervised.X), rows, prefix="target_")
        return replace(supervised, known=(*supervised.known, target))

    def _solve(
        self, X: Array, pairs: Pairs | LabelPairs | None, target: targets.TargetPairs | None, work: Workspace
    ) -> Solution:
        checks.at_least(0, beta=self.beta)
        if target is not None:
            return self._matched(X, pairs, target, work)
        self._check_rank()
        assert pairs is not None  # `_supervise` returns pairs, targets or both
        return side_information(X, pairs)

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        checks.at_least(0, beta=self.beta)
        self._check_rank()
        return nearest_direction(*class_sums.pair_scatters(sums, self.weighting).mean())

    def _check_rank(self) -> None:
        if self.n_components not in (None, 1):
            raise ValueError(f"n_components must be 1, because the optimum has rank one; got {self.n_components}")

    def _matched(
        self, X: Array, pairs: Pairs | LabelPairs | None, target: targets.TargetPairs, work: Workspace
    ) -> Solution:
        """Return the solution of the second form."""
        # rows were sorted for the solver, and targets name the rows that the user gave
        places = np.argsort(work.given(np.arange(len(X))))  # (n,), position in X of each of the user's rows
        Z = X[places[target.i]] - X[places[target.j]]  # (p, d)
        A = np.zeros((X.shape[1],) * 2)
        if pairs is not None:
            S, D = scatter.pair_scatters(X, pairs).mean()
            # the linear term beta tr(M (Sig_S / |S| - Sig_D / |D|)); (d, d)
            A = self.beta * (S - D)
        start = work.start()
        if start is not None:
            start = start.T @ start
        found = match_distances(Z, target.squares, A, start, **self._search())
        return found.with_x(psd.components(found.x, self.n_components))
