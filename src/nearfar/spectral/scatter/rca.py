"""Relevant component analysis (Shental, Hertz, Weinshall & Pavel, 2002).

    M = C^-1,  C = 1/N sum_l sum_{i in chunklet l} (x_i - m_l)(x_i - m_l)'

N counts the rows in chunklets of two or more. With fewer components, rows of L whiten C inside the span of the
directions u with the least u' C u / u' T u, T the total covariance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import FromChunklets, Mahalanobis
from ...core import checks, eig, psd, scatter
from ...core.optimize import Solution
from ...core.types import Array, Ints


def rca(
    X: Array,
    chunklets: Ints,
    n_components: int | None = None,
    *,
    objective: str = "whiten",
    kappa: float | None = None,
    ddof: int | str = 0,
    shrinkage: float = 0.0,
    on_singular: str = "shrink",
) -> Solution:
    """L (k, d) as `x`, with L C L' = I (scaled by kappa / k for the probabilistic form); see `RCA`."""
    sizes = np.bincount(chunklets[chunklets >= 0])
    chunks = np.where(sizes > 1, np.cumsum(sizes > 1) - 1, -1)[chunklets] if len(sizes) else chunklets
    chunks = np.where(chunklets >= 0, chunks, -1)
    if chunks.max() < 0:
        raise ValueError("every chunklet has a single row; chunklets of two or more are needed")
    n = int((chunks >= 0).sum()) - (chunks.max() + 1 if ddof == "chunklets" else 0)
    C = scatter.within(X, chunks) / n
    C = (1 - shrinkage) * C + shrinkage * np.trace(C) / len(C) * np.eye(len(C))
    C = eig.shrunk(C, on_singular, "the within-chunklet covariance")
    if n_components is None or n_components == len(C):
        L = psd.power(C, -0.5)
    else:
        L = reduced(C, scatter.total(X) / len(X), n_components)
    k = len(L)
    kappa = kappa if kappa is not None else float(k)
    scale = kappa / k if objective == "probabilistic" else 1.0
    return Solution(np.sqrt(scale) * L, objective=float(np.linalg.slogdet(L @ L.T)[1] + k * np.log(scale)))


def reduced(C: Array, T: Array, k: int) -> Array:
    """Rows that whiten C inside the k directions of largest u' T u / u' C u."""
    return eig.gevd(T, C, k)[1].T


class RCA(FromChunklets, Mahalanobis):
    """The inverse of the covariance within chunklets, in closed form.

    Parameters
    ----------
    n_components : int, optional
        Fewer than d: constrained Fisher discriminant first, then whitening inside.
    objective : "whiten" or "probabilistic"
        "probabilistic" is Bar-Hillel et al.'s maximum of log det M subject to a mean squared within-chunklet distance
        of `kappa`; for ``kappa=None`` (k) both are one metric.
    kappa : float, optional
        Only with "probabilistic". Default: the number of components.
    ddof : 0 or "chunklets"
        Divide by N (paper), or by N less the number of chunklets (unbiased).
    shrinkage : float
        In [0, 1]: share of the scaled identity mixed into C.
    on_singular : "shrink" or "raise"
        What to do with a singular C: add a little to its diagonal and warn, or a ValueError with the rank.
    n_chunklets : int, optional
        Draw so many chunklets from labels. Default: one per class.
    chunklet_size : int
        Rows of each drawn chunklet.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Symmetric for k = d.

    Notes
    -----
    Shental, Hertz, Weinshall & Pavel, ECCV 2002; Bar-Hillel, Hertz, Shental & Weinshall, JMLR 6, 2005. Chunklets of one
    row carry nothing and are left out of N.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        objective: str = "whiten",
        kappa: float | None = None,
        ddof: int | str = 0,
        shrinkage: float = 0.0,
        on_singular: str = "shrink",
        n_chunklets: int | None = None,
        chunklet_size: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.kappa = kappa
        self.ddof = ddof
        self.shrinkage = shrinkage
        self.on_singular = on_singular
        self.n_chunklets = n_chunklets
        self.chunklet_size = chunklet_size
        self.random_state = random_state

    def _solve(self, X: Array, chunklets: Ints) -> Solution:
        checks.one_of(("whiten", "probabilistic"), objective=self.objective)
        checks.one_of((0, "chunklets"), ddof=self.ddof)
        checks.one_of(("shrink", "raise"), on_singular=self.on_singular)
        checks.between(0, 1, shrinkage=self.shrinkage)
        if self.kappa is not None:
            checks.above(0, kappa=self.kappa)
        names = ("objective", "kappa", "ddof", "shrinkage", "on_singular")
        return rca(X, chunklets, self.n_components, **{name: getattr(self, name) for name in names})
