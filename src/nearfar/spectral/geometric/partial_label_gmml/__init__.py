"""Geometric mean metric learning for partial labels (Zhou & Gu, 2018).

    M = (S + reg I)^-1 #_t (D + reg I)
    S = 1/n sum_i [ sum_{t in N_i^+} v_it z_it z_it' / sum_t v_it + lam r_i r_i' ],  z_it = x_i - x_t
    D = mean over i and t in N_i^- of z_it z_it'
    v_i = argmin_{v >= 0} |y_i - sum_t v_t y_t|^2 / q + l1 / k |v|^2,  r_i = x_i - sum_t u_it x_t
    u_i = argmin_{u >= 0} |x_i - sum_t u_t x_t|^2

y_i holds 0 or 1 for each of q classes, 1 for the candidates of row i. N_i^+ holds the k nearest rows of i that share a
candidate with it, and N_i^- the rows that share none and are nearer than the furthest row of N_i^+.
"""

from __future__ import annotations

import numpy as np

from ....estimators.base import FromSets, Mahalanobis, Workspace
from ....fit_warnings import warn
from ....numerics import checks, psd, scatter
from ....numerics.types import Array, Bools
from ... import geodesic
from . import candidates


def partial_label_gmml(
    X: Array,
    Y: Bools,
    n_neighbors: int = 10,
    l1: float = 0.1,
    lam: float = 1.0,
    t: float = 0.5,
    reg: float | str = 0.1,
    features: int | None = None,
) -> Array:
    """Return L (d, d) with L' L = M; see `PartialLabelGMML`, and `geodesic.regularized` for `features`."""
    S, D = scatters(X, Y, n_neighbors, l1, lam)
    if not D.any():
        cause = "no row that shares no candidate is nearer than the neighbors that share one, so that D is 0"
        if reg in (0, "auto"):
            raise ValueError(f"reg must be above 0 here; got {reg!r}: {cause}")
        warn(f"{cause}; only similar rows and reg count")
    S, D = geodesic.regularized(S, D, reg, features=features)
    return psd.sharp_factor(S, D, t)


def scatters(X: Array, Y: Bools, k: int, l1: float, lam: float) -> tuple[Array, Array]:
    """Return S and D (d, d)."""
    near, there, apart, count = candidates.candidate_neighbors(X, Y, k)
    v = candidates.label_weights(Y, near, there, l1)
    R = candidates.residual(X, near, there)
    i = np.repeat(np.arange(len(X)), near.shape[1])
    # sum_i [sum_t v_it z_it z_it' + lam r_i r_i'], with v_it of sum 1 for each i
    S = scatter.weighted_outer(X, i, near.ravel(), v.ravel()) + lam * R.T @ R
    return S / len(R), apart / max(count, 1)


class PartialLabelGMML(FromSets, Mahalanobis):
    """Learn a geometric mean metric from rows that have several candidate classes each.

    Parameters
    ----------
    n_neighbors : int
        Number k of neighbors of each row, at least 1.
    l1 : float
        Ridge penalty of the neighbor weights, above 0. Large values give all neighbors the same weight.
    lam : float
        Weight of the term that keeps each row a combination of its neighbors, at least 0.
    t : float
        Point on the geodesic, in [0, 1]: 0 gives the inverse of S, and 1 gives D.
    reg : float or "auto"
        Weight of the identity that is added to S and D, in units of the mean eigenvalue of S. "auto" uses 1e-6, and
        only if S is nearly singular.
    n_components : int, optional
        Number of dimensions of the learned space: the directions with the largest eigenvalues of M are kept. By
        default, all directions are kept.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.

    Notes
    -----
    Zhou & Gu, "Geometric mean metric learning for partial label data", Neurocomputing 275, 2018. The defaults are not
    from the paper. S and D are means where the paper has sums, which makes `reg` comparable between data sets and
    otherwise only scales M.

    Rows whose candidates are shared by no other row are left out of S. If the classes are so far apart that every
    N_i^- is empty, D is 0; the metric then depends on S and `reg` alone, with a warning.

    Examples
    --------
    >>> X = np.array([[0.0, 0], [0, 2], [1, 0], [1, 2]])
    >>> M = PartialLabelGMML(reg=0.01).fit(X, [[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > M[1, 1])
    True
    """

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        l1: float = 0.1,
        lam: float = 1.0,
        t: float = 0.5,
        reg: float | str = 0.1,
        n_components: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.l1 = l1
        self.lam = lam
        self.t = t
        self.reg = reg
        self.n_components = n_components

    @property
    def _span(self) -> bool | str:
        return geodesic.span_setting(self.reg)

    def _solve(self, X: Array, Y: Bools, work: Workspace) -> Array:
        checks.counts(1, n_neighbors=self.n_neighbors)
        checks.above(0, l1=self.l1)
        checks.at_least(0, lam=self.lam)
        checks.between(0, 1, t=self.t)
        L = partial_label_gmml(
            X, Y, n_neighbors=self.n_neighbors, l1=self.l1, lam=self.lam, t=self.t, reg=self.reg, features=work.features
        )
        return psd.compress(L, self.n_components)
