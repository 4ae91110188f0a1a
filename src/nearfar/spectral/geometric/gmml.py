"""Geometric mean metric learning (Zadeh, Hosseini & Sra, 2016).

    min_M  tr(M S) + tr(M^-1 D) + reg (tr(M M0^-1) + tr(M^-1 M0))
    =>  M = (S + reg M0^-1)^-1 #_t (D + reg M0),  t = 1/2

S, D: mean scatters of the similar and of the dissimilar pairs; M0: prior; #_t: the point at t on the geodesic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import inv

from ...base import FromPairs, Mahalanobis
from ...core import checks, psd, scatter
from ...core.constraints import LabelPairs, Pairs
from ...core.types import AnyArray, Array


def gmml(
    X: Array, pairs: Pairs | LabelPairs, t: float = 0.5, reg: float | str = 0.1, prior: AnyArray | None = None
) -> Array:
    """L (d, d) with L' L = M; see `GMML` for the settings."""
    S, D = scatter.pair_scatters(X, pairs).mean()
    prior = np.eye(len(S)) if prior is None else psd.require_pd(prior, "prior")
    if prior.shape != S.shape:
        raise ValueError(f"prior must have shape {S.shape}; got {prior.shape}")
    lam = relative(reg, S)
    if lam:
        S, D = S + lam * inv(prior), D + lam * prior
    w = psd.spectrum(S)[0]
    if psd.is_singular(w):
        raise ValueError(f"reg={reg} leaves the similar scatter singular (rank {psd.rank(w)} of {len(w)}); use reg > 0")
    return psd.sharp_factor(S, D, t)


def relative(reg: float | str, S: Array) -> float:
    """lambda in units of tr(S) / d; "auto": 1e-6, and that only where S is nearly singular."""
    unit = float(np.trace(S)) / len(S) or 1.0
    if reg == "auto":
        w = psd.spectrum(S)[0]
        return 1e-6 * unit if w[-1] < 1e-9 * w[0] or w[0] <= 0 else 0.0
    checks.at_least(0, reg=float(reg))
    return float(reg) * unit


class GMML(FromPairs, Mahalanobis):
    """The metric halfway (or at t) between the inverse similar scatter and the dissimilar scatter, in closed form.

    Parameters
    ----------
    t : float
        0 gives the inverse of the similar scatter, 1 the dissimilar scatter. Paper: 0.5, tuned in [0.1, 0.9].
    reg : float or "auto"
        Weight of the prior, in units of the mean eigenvalue of the similar scatter. "auto": 1e-6, and only where that
        scatter is singular to 9 digits.
    prior : array-like of shape (d, d), optional
        Positive definite. Default: the identity.
    extrapolate : bool
        Let t leave [0, 1].
    n_components : int, optional
        Keep so many directions of largest eigenvalue.
    n_pairs : "all", int or None
        Pairs made of labels: all, so many of each kind, or 20 c^2 of each kind for c classes.
    weighting : "pairs" or "class"
        With ``n_pairs="all"``: every pair weighs the same, or every class does.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)

    Notes
    -----
    Zadeh, Hosseini & Sra, "Geometric mean metric learning", ICML 2016. The scatters are means, which only scales M and
    makes `reg` comparable between data sets; the paper draws 40 c (c - 1) pairs where the default here uses all.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0, 3], [1, 0], [1, 3]])
    >>> M = GMML(reg=0.01).fit(X, [0, 0, 1, 1]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 10 * M[1, 1])
    True
    """

    def __init__(
        self,
        t: float = 0.5,
        *,
        reg: float | str = 0.1,
        prior: AnyArray | None = None,
        extrapolate: bool = False,
        n_components: int | None = None,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.t = t
        self.reg = reg
        self.prior = prior
        self.extrapolate = extrapolate
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs) -> Array:
        if not self.extrapolate:
            checks.between(0, 1, t=self.t)
        return psd.compress(gmml(X, pairs, self.t, self.reg, self.prior), self.n_components)
