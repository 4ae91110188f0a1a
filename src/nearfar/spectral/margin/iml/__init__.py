"""Imbalanced metric learning (Gautheron, Habrard, Morvant & Sebban, 2019).

    min_{M PSD}  sum_c a / (4 |Sim_c|) sum_{Sim_c} [d_ij - 1]_+ + (1 - a) / (4 |Dis_c|) sum_{Dis_c} [1 + m - d_ij]_+
                 + gamma |M - I|^2,    d_ij = (x_i - x_j)' M (x_i - x_j)

Sim_c and Dis_c hold the rows of class c, each with its k nearest rows of the same class (in the input space) and of
other classes (under M). All classes have the same weight, even if they are small.
"""

from __future__ import annotations

from typing import Any

from ....estimators.base import FromLabels, Mahalanobis, Workspace
from ....numerics import checks, scatter
from ....numerics.optimize import Solution
from ....numerics.types import Array, Ints
from ..impostors import rows_by_class
from . import neighbor_hinges as rivals


def iml(
    X: Array, labels: Ints, k: int = 3, a: float = 0.5, m: float = 1.0, gamma: float = 0.1, **limits: Any
) -> Solution:
    """Return L (d, d) as `x`, for rows sorted by class; see `IML` for the settings."""
    return rivals.hinges(X, labels, k, a=a, width=m, gamma=gamma, **limits)


class IML(FromLabels, Mahalanobis):
    """Pull neighbors of each class within a squared distance of 1 and push rivals beyond 1 + m, with balanced classes.

    Rivals are the nearest rows of other classes. Every class has the same weight. Scale the features first, because
    both bounds are absolute.

    Parameters
    ----------
    n_neighbors : int
        Number k of neighbors, and of rivals, of each row, at least 1. Rows of smaller classes have fewer neighbors,
        with a warning.
    a : float
        Weight of the similar pairs, in [0, 1]; that of the dissimilar pairs is 1 - a. The paper tries 0 to 1 in steps
        of 0.05.
    m : float
        Margin between the bounds, in squared distance, at least 0. The paper tries 1 to 10^4.
    gamma : float
        Weight of the term that pulls M toward the identity, at least 0. The paper tries 0 to 10. With 0, the problem
        is solved without a certificate.
    rivals : {"dynamic", "fixed"}
        "dynamic" searches for the rivals again under each learned metric, as in the paper. "fixed" searches for them
        once, in the input space. Both problems are convex.
    weighting : {"mean", "frequency"}
        "mean" gives the pairs of each class the same total weight. "frequency" weights each pair by the share of rows
        that are not of its class.
    n_components : int, optional
        Number of dimensions of the learned space: the directions along which the transformed rows vary most. By
        default, all directions are kept.
    max_iter : int
        Maximum number of iterations for each set of rivals. There are at most 20 sets.
    tol : float
        For each set of rivals, stop when the duality gap falls below `tol` times the objective (with ``gamma=0``, when
        the gradient does). With ``rivals="dynamic"``, end the search once the gap over all sets of rivals falls below
        ``1000 * tol * max(1, objective)``.
    warm_start : bool
        Start from the solution of the previous fit. Used only with ``gamma=0``.
    verbose : bool
        Print progress.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|. If there are more features than rows, M is the identity
        outside of the span of the differences between rows, about which the pairs carry no information.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum. Set only if gamma is above 0.
    n_looks_ : int
        Number of times that the rivals were searched for.
    rivals_settled_ : bool
        Whether the metric is optimal for its own rivals, up to the tolerance.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Gautheron, Habrard, Morvant & Sebban, "Metric learning from imbalanced data", ICTAI 2019, for two classes; with C
    classes, the factors 1/4 become 1 / (2 C). The survey of Ghojogh et al. (2022) draws the pairs at random.

    The paper searches for the rivals in every evaluation. Here, the convex problem of each set of rivals is solved
    exactly, until the set no longer changes, or until its optimum, which is a lower bound for any rivals, is close to
    the objective of the best metric so far.
    """

    _span = "full"  # the identity, to which gamma pulls M

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        a: float = 0.5,
        m: float = 1.0,
        gamma: float = 0.1,
        rivals: str = "dynamic",
        weighting: str = "mean",
        n_components: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.a = a
        self.m = m
        self.gamma = gamma
        self.rivals = rivals
        self.weighting = weighting
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        checks.counts(1, n_neighbors=self.n_neighbors)
        checks.at_least(0, m=self.m, gamma=self.gamma)
        checks.between(0, 1, a=self.a)
        checks.one_of(("dynamic", "fixed"), rivals=self.rivals)
        checks.one_of(("mean", "frequency"), weighting=self.weighting)
        checks.warn_of_small_classes(labels, self.n_neighbors, work.classes)
        X, labels = rows_by_class(X, labels)
        settings = self._settings("a", "m", "gamma", "weighting") | self._search()
        start = work.start((X.shape[1],) * 2)
        found = iml(X, labels, self.n_neighbors, dynamic=self.rivals == "dynamic", start=start, **settings)
        return found.with_x(scatter.widest(found.x, X, self.n_components))
