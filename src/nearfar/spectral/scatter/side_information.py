"""Embedding by side information (Ghodsi, Wilkinson & Southey, 2007).

    min_M  tr(M (Sig_S / |S| - Sig_D / |D|))   s.t.  M PSD, tr M = 1    =>   M = v v'

v: eigenvector of the smallest eigenvalue. A linear function on the spectrahedron is least at a rank-one matrix, so no
semidefinite program needs to be solved.
"""

from __future__ import annotations

import warnings
from typing import Any

from ...base import FromPairs, Mahalanobis
from ...core import psd, scatter
from ...core.constraints import LabelPairs, Pairs
from ...core.optimize import Solution
from ...core.types import Array


def side_information(X: Array, pairs: Pairs | LabelPairs) -> Solution:
    """L (1, d) as `x`, a unit vector; `objective` is the smallest eigenvalue."""
    S, D = scatter.pair_scatters(X, pairs).mean()
    w, V = psd.spectrum(S - D)
    if w[-1] >= 0:
        warnings.warn("no direction keeps dissimilar pairs further apart than similar ones", stacklevel=2)
    return Solution(V[:, -1:].T, objective=float(w[-1]))


class SideInformationMetric(FromPairs, Mahalanobis):
    """The one direction in which similar pairs are nearest and dissimilar pairs furthest, in the mean.

    Parameters
    ----------
    n_components : int, optional
        Only 1 is possible: the optimum of the problem has rank one. `FisherMetric` gives more directions.
    n_pairs : "all", int or None
        Pairs made of labels: all, so many of each kind, or 20 c^2 of each kind for c classes.
    weighting : "pairs" or "class"
        With ``n_pairs="all"``: every pair weighs the same, or every class does.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (1, d)
    objective_ : float
        The smallest eigenvalue; at least 0 where nothing separates.

    Notes
    -----
    Ghodsi, Wilkinson & Southey, "Improving embeddings by flexible exploitation of side information", IJCAI 2007,
    class-equivalence form.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs) -> Solution:
        if self.n_components not in (None, 1):
            raise ValueError(f"n_components must be 1, the optimum has rank one; got {self.n_components}")
        return side_information(X, pairs)
