"""Imbalanced metric learning (Gautheron, Habrard, Morvant & Sebban, 2019).

    min_{M PSD}  sum_c a / (4 |Sim_c|) sum_{Sim_c} [d_ij - 1]_+ + (1 - a) / (4 |Dis_c|) sum_{Dis_c} [1 + m - d_ij]_+
                 + gamma |M - I|^2,    d_ij = (x_i - x_j)' M (x_i - x_j)

Sim_c, Dis_c: rows of class c, each with its k nearest rows of its own class (in the input space) and of other classes
(under M). Each class weighs the same, however small it is.
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
    """Neighbors of a class within a squared distance of 1, its rivals beyond 1 + m, each class with the same weight.

    Scale features first: both bounds are absolute.

    Parameters
    ----------
    n_neighbors : int
        Neighbors of each kind per row. Classes of fewer rows have fewer, which is warned of.
    a : float
        In [0, 1]: share of the similar pairs. The paper tries 0 to 1 in steps of 0.05.
    m : float
        The margin, in squared distance. The paper tries 1 to 10^4.
    gamma : float
        Pull towards the identity; the paper tries 0 to 10. With 0 the problem is solved without a certificate.
    rivals : "dynamic" or "fixed"
        Look rows of other classes up again under each metric found (the paper), or once in the input space. Both
        problems are convex.
    weighting : "mean" or "frequency"
        Each class's pairs sum to the same, or each pair weighs the share of rows that are not of its class.
    n_components : int, optional
        Keep this many directions: those along which rows differ most in the metric.
    max_iter : int
        Steps for each set of rivals; there are at most 20 sets.
    tol : float
        On the duality gap relative to the objective (with gamma = 0: on the gradient), for each set of rivals; a
        thousand times that where they follow the metric.
    warm_start : bool
        With ``gamma=0``: start from the last fit.
    verbose : bool

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        With more features than rows 0 outside the span of the rows' differences, where no pair says anything.
    duality_gap_ : float
        Only with gamma > 0.
    n_looks_ : int
        How often rivals were looked up.
    rivals_settled_ : bool
        Whether the metric is the best for its own rivals, as far as `tol` asks.

    Notes
    -----
    Gautheron, Habrard, Morvant & Sebban, ICTAI 2019, for two classes; with C classes the factors 1/4 are 1 / (2 C).
    A survey draws the pairs at random. The paper looks rivals up in every evaluation; here the convex problem of each
    set is solved exactly, until the set stays or its optimum, which no rivals can undercut, is next to the objective of
    the best metric so far.
    """

    _span = True

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
