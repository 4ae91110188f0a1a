"""Geometric mean metric learning (Zadeh, Hosseini & Sra, 2016).

    min_M  tr(M S) + tr(M^-1 D) + reg (tr(M M0^-1) + tr(M^-1 M0))
    =>  M = (S + reg M0^-1)^-1 #_t (D + reg M0),  t = 1/2

S and D are the mean scatters of the similar and of the dissimilar pairs, M0 is the prior, and A #_t B is the point at t
on the geodesic from A to B.
"""

from __future__ import annotations

from typing import Any

from ....estimators.base import Workspace
from ....estimators.sums import PairSums
from ....numerics import checks, class_sums, psd, scatter
from ....numerics.class_sums import ClassMoments
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array
from ... import geodesic
from . import cross_validation


def gmml(
    X: Array,
    pairs: Pairs | LabelPairs,
    t: float | str = 0.5,
    reg: float | str = 0.1,
    prior: AnyArray | None = None,
    features: int | None = None,
) -> Solution:
    """Return L (d, d) with L' L = M as `x`; see `GMML` for the settings, and `geodesic.regularized` for `features`."""

    def regularized(X: Array, pairs: Pairs | LabelPairs) -> tuple[Array, Array]:
        S, D = scatter.pair_scatters(X, pairs).mean()
        return geodesic.regularized(S, D, reg, prior, features)

    if isinstance(t, str):
        if not isinstance(pairs, LabelPairs):
            raise ValueError('t="auto" needs labels and n_pairs="all"; got pairs')
        weighting = pairs.weighting
        t = cross_validation.best_on_geodesic(
            X, pairs.labels, lambda X, labels: regularized(X, LabelPairs(labels, weighting))
        )
    S, D = regularized(X, pairs)
    # L' L = S^-1 #_t D
    return Solution(psd.sharp_factor(S, D, t), attributes={"t": float(t)})


class GMML(PairSums):
    """Learn from pairs by the geometric mean of the inverse similar and the dissimilar scatter, in closed form.

    Parameters
    ----------
    t : float or "auto"
        Point on the geodesic: 0 gives the inverse of the similar scatter, and 1 gives the dissimilar scatter. "auto"
        selects the best of 0.1, 0.3, ..., 0.9, and then of a grid with steps of 0.02, by the accuracy of 3-NN over
        five folds, as the paper does. It requires labels.
    reg : float or "auto"
        Weight of the prior, in units of the mean eigenvalue of the similar scatter. "auto" uses 1e-6, and only if that
        scatter is singular to 9 digits.
    prior : array-like of shape (d, d), optional
        Prior metric M0, a positive definite matrix. By default, the identity.
    extrapolate : bool
        Allow t outside [0, 1].
    n_components : int, optional
        Number of dimensions of the learned space: the directions with the largest eigenvalues of M are kept. By
        default, all directions are kept.
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
    t_ : float
        Point on the geodesic that was used.

    Notes
    -----
    Zadeh, Hosseini & Sra, "Geometric mean metric learning", ICML 2016.

    The scatters are means instead of sums, which only scales M and makes `reg` comparable between data sets. The paper
    draws 40 c (c - 1) pairs, whereas the default here uses all pairs. The survey of Ghojogh et al. (2022) prints +
    M^-1 M0 M^-1 in the gradient, where the sign should be minus. It also presents the problem with distances on the
    manifold as a restatement, although that objective differs and only shares its minimum at t = 1/2.

    If there are more features than rows (and no prior), the metric is learned in the span of the differences between
    rows. Outside of it, both scatters are lam I, with lam the weight of the prior, so that M is lam^(2 t - 1) I; it is
    0 there with ``reg=0``, or if at most as many components are requested as the span has directions.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0, 3], [1, 0], [1, 3]])
    >>> M = GMML(reg=0.01).fit(X, [0, 0, 1, 1]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 5 * M[1, 1])
    True
    """

    def __init__(
        self,
        t: float | str = 0.5,
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

    @property
    def _span(self) -> bool | str:
        if self.prior is not None:
            return False
        return geodesic.span_setting(self.reg)

    @property
    def _needs_rows(self) -> str:
        if isinstance(self.t, str):
            return 't="auto"'
        return super()._needs_rows

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        self._check_t()
        found = gmml(X, pairs, t=self.t, reg=self.reg, prior=self.prior, features=work.features)
        return found.with_x(psd.compress(found.x, self.n_components))

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        self._check_t()
        t = float(self.t)
        S, D = class_sums.pair_scatters(sums, self.weighting).mean()
        S, D = geodesic.regularized(S, D, reg=self.reg, prior=self.prior, features=work.features)
        L = psd.compress(psd.sharp_factor(S, D, t), self.n_components)
        return Solution(L, attributes={"t": t})

    def _check_t(self) -> None:
        if isinstance(self.t, str):
            if self.t != "auto":
                raise ValueError(f't must be a number or "auto"; got {self.t!r}')
        elif not self.extrapolate:
            checks.between(0, 1, t=self.t)
