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
from ...numerics import checks, class_sums, eig, psd, scatter
from ...numerics.class_sums import ClassMoments
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import Array


def fisher(
    S: Array, D: Array, n_components: int | None = None, on_singular: str = "shrink", d: int | None = None
) -> Solution:
    """The "scatter" approach: L (p, r) as `x`, with L S L' = I, for scatters (r, r) in the span of rows of d features.

    Where S is singular, its diagonal grows by a share of tr(S) / d.
    """
    d = d or len(S)
    if n_components == d > 1:
        raise ValueError(f"n_components must be below {d}: with all directions M would be S^-1 whatever D is")
    mu, U = eig.gevd(D, S, None, on_singular, "the similar scatter", eig.SHRINK * len(S) / d)
    if n_components is None:
        p = min(int((mu > 1).sum()), max(d - 1, 1))
    else:
        p = min(n_components, len(mu))
    if p == 0:
        raise ValueError("no direction keeps dissimilar pairs further apart than similar ones; set n_components")
    return Solution(U[:, :p].T, objective=float(np.sum(1 - mu[:p])), attributes={"eigenvalues": mu[:p]})


def fisher_trace(S: Array, D: Array, n_components: int | None = None, scale: str = "trace") -> Solution:
    """The "trace" approach: L (p, d) as `x`, orthogonal rows of the smallest eigenvalues."""
    w, V = psd.spectrum(D - S)
    p = n_components or 1
    if w[0] <= 0:
        warn("no direction keeps dissimilar pairs further apart than similar ones")
    trace = p if scale == "trace" else 1
    return Solution(V[:, :p].T / np.sqrt(trace), -float(w[:p].sum()) / trace, attributes={"eigenvalues": -w[:p]})


class FisherMetric(PairSums):
    """Find directions in which dissimilar pairs are farther apart than similar pairs, in closed form.

    Parameters
    ----------
    approach : "scatter" or "trace"
        The paper's second, Fisher-like approach, or its first.
    n_components : int, optional
        Default: with "scatter" every direction that lowers the objective, at most d - 1; with "trace" 1, the optimum
        (more add further orthogonal directions, which the paper's problem would not).
    scale : "trace" or "unit"
        With "trace": M of trace 1, or orthonormal rows.
    on_singular : "shrink", "pinv" or "raise"
        With "scatter", for a singular similar scatter: add a little to its diagonal and warn, work in its range, or a
        ValueError.
    n_pairs : "all", int or None
        Pairs made from labels: all, this many of each kind, or 20 c^2 of each kind for c classes.
    weighting : "pairs" or "class"
        With ``n_pairs="all"``: every pair weighs the same, or every class does.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    eigenvalues_ : ndarray of shape (k,)
        Of D u = mu S u, falling; with "trace" of S - D, rising.

    Notes
    -----
    Alipanahi, Biggs & Ghodsi, AAAI 2008.
    """

    _span = True

    def __init__(
        self,
        approach: str = "scatter",
        *,
        n_components: int | None = None,
        scale: str = "trace",
        on_singular: str = "shrink",
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.approach = approach
        self.n_components = n_components
        self.scale = scale
        self.on_singular = on_singular
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        return self._from_scatters(*scatter.pair_scatters(X, pairs).mean())

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        return self._from_scatters(*class_sums.pair_scatters(sums, self.weighting).mean())

    def _from_scatters(self, S: Array, D: Array) -> Solution:
        checks.one_of(("scatter", "trace"), approach=self.approach)
        checks.one_of(("trace", "unit"), scale=self.scale)
        checks.one_of(("shrink", "pinv", "raise"), on_singular=self.on_singular)
        if self.approach == "trace":
            return fisher_trace(S, D, self.n_components, self.scale)
        return fisher(S, D, self.n_components, self.on_singular, self.n_features_in_)
