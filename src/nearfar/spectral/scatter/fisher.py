"""Distance metric learning versus Fisher discriminant analysis (Alipanahi, Biggs & Ghodsi, 2008).

    trace:    min_U tr(U' (S - D) U)   s.t.  tr(U U') = 1
    scatter:  min_U tr(U' (S - D) U)   s.t.  U' S U = I,      S = Sig_S / |S|,  D = Sig_D / |D|

The second is the generalized eigenproblem D u = mu S u; each direction adds 1 - mu to the objective.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import Workspace
from ...estimators.sums import PairSums
from ...fit_warnings import warn
from ...numerics import checks, class_sums, constraints, mahalanobis, psd, scatter
from ...numerics.class_sums import ClassMoments
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import Array


def fisher(
    S: Array, D: Array, n_components: int | None = None, on_singular: str = "shrink", d: int | None = None
) -> Solution:
    """Return L (p, r) of the "scatter" approach as `x`, with L S L' = I, for scatters (r, r) in the span of rows.

    If S is singular, a share of tr(S) / d is added to its diagonal.
    """
    if d is None:
        d = len(S)
    if n_components == d > 1:
        raise ValueError(f"n_components must be below {d}; with all directions, M is S^-1 and does not depend on D")
    # the ridge is a share of tr(S) / d over all d features, also in the span of r of them
    mu, U = psd.gevd(D, S, None, on_singular, "the similar scatter", psd.SHRINK * len(S) / d)
    if n_components is None:
        p = min(int((mu > 1).sum()), max(d - 1, 1))  # directions that lower the objective by mu - 1
    else:
        p = min(n_components, len(mu))
    if p == 0:
        raise ValueError(
            "there is no direction in which dissimilar pairs are farther apart than similar ones; set n_components"
        )
    return Solution(U[:, :p].T, objective=float(np.sum(1 - mu[:p])), attributes={"eigenvalues": mu[:p]})


def fisher_trace(S: Array, D: Array, n_components: int | None = None, scale: str = "trace") -> Solution:
    """Return L (p, d) of the "trace" approach as `x`: orthogonal rows, the eigenvectors of the smallest eigenvalues."""
    # the smallest eigenvalues of S - D are minus the largest of D - S
    w, V = psd.spectrum(D - S)
    p = n_components or 1
    if w[0] <= 0:
        warn("there is no direction in which dissimilar pairs are farther apart than similar ones")
    # tr(U U') = 1 divides each of the p unit directions by sqrt p
    trace = p if scale == "trace" else 1
    L = V[:, :p].T / np.sqrt(trace)
    return Solution(L, -float(w[:p].sum()) / trace, attributes={"eigenvalues": -w[:p]})


class FisherMetric(PairSums):
    """Find directions in which dissimilar pairs are farther apart than similar pairs, in closed form.

    Parameters
    ----------
    approach : {"scatter", "trace"}
        "scatter" is the second, Fisher-like approach of the paper; "trace" is the first.
    n_components : int, optional
        Number of dimensions of the learned space. By default, "scatter" keeps every direction that lowers the
        objective, at most d - 1, and "trace" keeps 1, which is the optimum. With "trace", larger values add further
        orthogonal directions, which are not part of the optimum of the paper.
    scale : {"trace", "unit"}
        With ``approach="trace"``, scale M to a trace of 1, or the rows of `components_` to unit length.
    shrinkage : float or "auto"
        Share of the scaled identity that "scatter" mixes into the similar scatter S, in [0, 1], because few rows or
        many features make its inverse uncertain. "auto" adds 0.3 tr(S) / (n - c) to its diagonal for n rows of c
        classes, or of c groups that similar pairs connect, as if the identity had been seen in 0.3 rows for each
        feature. Columns are first divided by their standard deviation, and multiplied by the root of the share of their
        variance that the classes explain: their units do not matter, and columns of noise do not become loud, unless
        most groups are pairs. The paper uses none: 0.
    on_singular : {"shrink", "pinv", "raise"}
        How "scatter" treats a similar scatter that is still singular: add a small value to its diagonal and warn,
        work in its range, or raise a ValueError.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    eigenvalues_ : ndarray of shape (k,)
        With "scatter", the generalized eigenvalues mu of D u = mu S u, in decreasing order. With "trace", the
        eigenvalues of S - D, in increasing order.

    Notes
    -----
    Alipanahi, Biggs & Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008.
    """

    _span = True

    def __init__(
        self,
        approach: str = "scatter",
        *,
        n_components: int | None = None,
        scale: str = "trace",
        shrinkage: float | str = "auto",
        on_singular: str = "shrink",
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.approach = approach
        self.n_components = n_components
        self.scale = scale
        self.shrinkage = shrinkage
        self.on_singular = on_singular
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    @property
    def _in_deviations(self) -> bool:
        return self.shrinkage == "auto" and self.approach == "scatter"

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        freedom = constraints.degrees_of_freedom(pairs, len(X))
        return self._from_scatters(*scatter.pair_scatters(X, pairs).mean(), freedom)

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        freedom = sums.n - len(sums.count)
        return self._from_scatters(*class_sums.pair_scatters(sums, self.weighting).mean(), freedom)

    def _from_scatters(self, S: Array, D: Array, freedom: float) -> Solution:
        checks.one_of(("scatter", "trace"), approach=self.approach)
        checks.one_of(("trace", "unit"), scale=self.scale)
        checks.one_of(("shrink", "pinv", "raise"), on_singular=self.on_singular)
        checks.share(("auto",), shrinkage=self.shrinkage)
        if self.approach == "trace":
            return fisher_trace(S, D, n_components=self.n_components, scale=self.scale)
        S = mahalanobis.regularized(S, self.shrinkage, freedom)
        return fisher(S, D, n_components=self.n_components, on_singular=self.on_singular, d=self.n_features_in_)
