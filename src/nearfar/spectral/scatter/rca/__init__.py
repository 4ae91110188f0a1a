"""Relevant component analysis (Shental, Hertz, Weinshall & Pavel, 2002).

    M = C^-1,  C = 1/N sum_l sum_{i in chunklet l} (x_i - m_l)(x_i - m_l)'

N is the number of rows in chunklets of at least two rows. With fewer components, L whitens C in the span of the
directions u with the smallest u' C u / u' T u, where T is the total covariance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....estimators.base import Workspace
from ....estimators.sums import ChunkletSums
from ....numerics import checks, psd, scatter
from ....numerics.class_sums import ClassMoments
from ....numerics.optimize import Solution
from ....numerics.types import Array, Ints
from ... import discriminant
from .chunklet_subspace import widest_chunklets


def rca(
    X: Array,
    chunklets: Ints,
    n_components: int | None = None,
    *,
    objective: str = "whiten",
    criterion: str = "total",
    kappa: float | None = None,
    ddof: int | str = 0,
    weighting: str = "rows",
    shrinkage: float | str = 0.0,
    on_singular: str = "shrink",
    features: int | None = None,
    repeats: int = 0,
    **limits: Any,
) -> Solution:
    """Return L (k, d) as `x`, with L C L' = I (scaled by kappa / k for the probabilistic form); see `RCA`.

    X may hold coordinates of rows with so many `features`, the last of which represents `repeats` more.
    """
    chunks = discriminant.without_singles(chunklets)
    lost = 1 if ddof == "chunklets" else 0  # degrees of freedom that each chunklet loses
    C, share = discriminant.shrunk_within(X, chunks, lost, weighting, shrinkage, features)
    C = psd.regularize_singular(C, on_singular, "the within-chunklet covariance")
    if n_components is None or n_components == len(C):
        found = Solution(psd.power(C, -0.5))  # L = C^(-1/2)
    else:
        # T u = mu C u for the largest mu, L C L' = I: the constrained Fisher discriminant, then whitening
        found = Solution(psd.gevd(scatter.total(X), C, n_components)[1].T)
        if criterion == "chunklet":
            found = widest_chunklets(X, chunks, C, found.x, share, **limits)
    return in_units(found, objective, kappa, repeats)


def rca_from_sums(
    sums: ClassMoments,
    rows: ClassMoments,
    n_components: int | None = None,
    *,
    objective: str = "whiten",
    kappa: float | None = None,
    ddof: int | str = 0,
    weighting: str = "rows",
    shrinkage: float | str = 0.0,
    on_singular: str = "shrink",
    features: int | None = None,
    repeats: int = 0,
) -> Solution:
    """Return `rca` with criterion "total" from the sums over chunklets and over all rows."""
    lost = 1 if ddof == "chunklets" else 0
    C = discriminant.shrunk_from_sums(sums, lost, weighting, shrinkage, features)
    C = psd.regularize_singular(C, on_singular, "the within-chunklet covariance")
    if n_components is None or n_components == len(C):
        return in_units(Solution(psd.power(C, -0.5)), objective, kappa, repeats)
    return in_units(Solution(psd.gevd(rows.total, C, n_components)[1].T), objective, kappa)


def in_units(found: Solution, objective: str, kappa: float | None, repeats: int = 0) -> Solution:
    """Return L with M scaled by kappa / k for the probabilistic form, and its objective log det(L L')."""
    k = len(found.x) + repeats
    if kappa is None or objective == "whiten":
        scale = 1.0
    else:
        scale = kappa / k
    value = np.linalg.slogdet(found.x @ found.x.T)[1] + k * np.log(scale)
    if repeats:
        value += repeats * np.log(np.sum(found.x[:, -1] ** 2))
    return found.with_x(np.sqrt(scale) * found.x, objective=float(value))


class RCA(ChunkletSums):
    """Undo the variation within groups of similar rows by the inverse of their covariance, in closed form.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space. If below d, rows are projected by a constrained Fisher discriminant
        and then whitened. By default, all d dimensions are kept.
    objective : {"whiten", "probabilistic"}
        "whiten" inverts the within-chunklet covariance. "probabilistic" maximizes log det M subject to a mean squared
        within-chunklet distance of `kappa` (Bar-Hillel et al.); with ``kappa=None`` both give the same metric.
    criterion : {"total", "chunklet"}
        What a projection to `n_components` dimensions preserves: "total" preserves the total scatter; "chunklet"
        maximizes the sum of the log determinants of the covariances of the single chunklets, by L-BFGS to a local
        maximum, as the survey of Ghojogh et al. (2022) states the problem. With all components both give the same
        metric.
    pca : int, optional
        Number of principal components to which X is reduced first, which helps if there are too few chunklets to
        estimate a covariance of all features. By default, X is not reduced.
    kappa : float, optional
        Mean squared within-chunklet distance with ``objective="probabilistic"``, above 0. By default, the number of
        components.
    ddof : 0 or "chunklets"
        Divide the scatter by the number N of rows (as in the paper), or by N minus the number of chunklets (unbiased).
    weighting : {"rows", "chunklets"}
        Give every row the same weight (as in the paper), or every chunklet, which helps if class sizes differ a lot.
    shrinkage : float, "auto" or "lw"
        Share of the scaled identity that is mixed into C, in [0, 1], because few rows or many features make its inverse
        uncertain. "auto" adds 0.3 tr(C) / (n - c) to its diagonal for n rows of c chunklets, as if the identity had
        been seen in 0.3 rows for each feature. Columns are first divided by their standard deviation, and multiplied by
        the root of the share of their variance that the chunklets explain: their units do not matter, and columns of
        noise do not become loud, unless `pca` is given or most chunklets are pairs. "lw" uses the share that Ledoit and
        Wolf estimate. The paper uses none: 0.
    on_singular : {"shrink", "raise"}
        How to treat a C that is still singular: add a small value to its diagonal and warn, or raise a
        ValueError that states the rank.
    n_chunklets : int, optional
        Number of chunklets to draw from labels. By default, every class is one chunklet.
    chunklet_size : int
        Number of rows in each drawn chunklet, at least 2.
    max_iter : int
        Maximum number of L-BFGS iterations. Used only with ``criterion="chunklet"``.
    tol : float
        Stop when the largest entry of the gradient falls below ``tol * max(1, |objective|)``. Used only with
        ``criterion="chunklet"``.
    warm_start : bool
        Start from the subspace of the previous fit. Used only with ``criterion="chunklet"``.
    verbose : bool
        Print progress. Used only with ``criterion="chunklet"``.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the chunklets.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|. Symmetric if k = d.

    Notes
    -----
    Shental, Hertz, Weinshall & Pavel, "Adjustment learning and relevant component analysis", ECCV 2002; Bar-Hillel,
    Hertz, Shental & Weinshall, JMLR 6, 2005.

    Chunklets of a single row carry no information and are not counted in N. If there are more features than rows, the
    metric is learned in the span of the rows. Outside of it, where C is the share of the identity, M is a multiple of
    the identity; it is 0 there with ``shrinkage=0``, with `pca`, or if at most as many components are requested as the
    span has directions.

    With ``weighting="chunklets"`` on labels, the accuracy of 3-NN rose by 3.9 points on one table, fell by 0.6, 0.6
    and 0.4 points on three, and changed by at most 0.1 points on seven, measured in folds of their training parts.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        objective: str = "whiten",
        criterion: str = "total",
        pca: int | None = None,
        kappa: float | None = None,
        ddof: int | str = 0,
        weighting: str = "rows",
        shrinkage: float | str = "auto",
        on_singular: str = "shrink",
        n_chunklets: int | None = None,
        chunklet_size: int = 2,
        max_iter: int = 200,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.criterion = criterion
        self.pca = pca
        self.kappa = kappa
        self.ddof = ddof
        self.weighting = weighting
        self.shrinkage = shrinkage
        self.on_singular = on_singular
        self.n_chunklets = n_chunklets
        self.chunklet_size = chunklet_size
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @property
    def _span(self) -> bool | str:
        return True if checks.is_zero(self.shrinkage) or self.pca is not None else "full"

    @property
    def _needs_rows(self) -> str:
        if self.criterion == "chunklet":
            return 'criterion="chunklet"'
        if self.pca is not None and self.shrinkage == "lw":
            # the fourth moments of projected rows do not follow from those of the rows
            return 'pca= and shrinkage="lw"'
        return super()._needs_rows

    @property
    def _per_class(self) -> bool:
        return self.weighting == "chunklets" or self.shrinkage == "lw"

    @property
    def _in_deviations(self) -> bool:
        return self.shrinkage == "auto" and self.pca is None

    def _solve(self, X: Array, chunklets: Ints, work: Workspace) -> Solution:
        settings = self._checked(work) | self._settings("criterion") | self._search()
        V = scatter.pca(X, self.pca, self.n_components)  # (pca, d), or None
        last = work.start()
        if V is None:
            return rca(X, chunklets, self.n_components, last=last, **settings)
        if last is not None:
            last = last @ V.T
        found = rca(X @ V.T, chunklets, self.n_components, last=last, **settings)
        return found.with_x(found.x @ V)

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        settings = self._checked(work)
        if self.pca is None:
            return rca_from_sums(sums, rows, self.n_components, **settings)
        V = scatter.principal(rows.span(), self.pca, self.n_components)
        found = rca_from_sums(sums.projected(V), rows.projected(V), self.n_components, **settings)
        return found.with_x(found.x @ V)

    def _checked(self, work: Workspace) -> dict[str, Any]:
        """Check the settings, and return those of `rca` and `rca_from_sums`."""
        checks.one_of(("whiten", "probabilistic"), objective=self.objective)
        checks.one_of(("total", "chunklet"), criterion=self.criterion)
        checks.one_of((0, "chunklets"), ddof=self.ddof)
        checks.one_of(("rows", "chunklets"), weighting=self.weighting)
        checks.one_of(("shrink", "raise"), on_singular=self.on_singular)
        checks.share(("auto", "lw"), shrinkage=self.shrinkage)
        checks.above(0, **checks.not_none(kappa=self.kappa))
        settings = self._settings("objective", "kappa", "ddof", "weighting", "shrinkage", "on_singular")
        if self.pca is None:
            return settings | {"features": work.features, "repeats": work.repeats}
        return settings
