"""Metric learning like a nu support vector machine (Tsang & Kwok, 2003).

    min_{M PSD, g >= 0, xi >= 0}  1/2 |M|^2 + l1 / |S| sum_S d_ij + l2 (-nu g + 1/|D| sum_D xi_ij)
    s.t.  d_ij - d0_ij >= g - xi_ij  for (i, j) in D,    d_ij = (x_i - x_j)' M (x_i - x_j)

d0 is the original squared distance. The squared distances of dissimilar pairs increase by at least the margin g, except
for a share of at most nu of them if g > 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, Mahalanobis, Workspace
from ...numerics import checks, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs, written_out
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from ..nu_svm_dual import NuMargin, nu_margin, warn_without_margin


def nu_svm(
    X: Array,
    pairs: Pairs | LabelPairs,
    l1: float = 1.0,
    l2: float = 300.0,
    nu: float = 0.2,
    definite: bool = True,
    prior: AnyArray | None = None,
    **search: Any,
) -> Solution:
    """Return M (d, d) as `x`; see `NuSVMMetric` for the settings."""
    pairs = written_out(pairs)
    d = X.shape[1]
    near = pairs.part(similar=True)
    far = pairs.part(similar=False)
    S = scatter.pair_scatters(X, pairs).similar / near.weights.sum()
    if prior is None:
        P = np.eye(d)
    else:
        P = psd.require_pd(prior, "prior", strict=False)
    if P.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)}; got {P.shape}")
    Z = X[far.i] - X[far.j]
    weight = far.weights / far.weights.sum()
    d0 = np.einsum("pd,pd->p", Z @ P, Z)
    # in units in which the mean of d0 is 1: S / unit, z / sqrt(unit), and M times unit
    unit = float(weight @ d0) or 1.0
    problem = NuMargin(
        S=S / unit,
        Z=Z / np.sqrt(unit),
        weight=weight,
        l1=l1,
        l2=l2,
        nu=nu,
        definite=definite,
        prior=d0 / unit,
    )
    found = nu_margin(problem, **search)
    warn_without_margin(found)
    return found.with_x(found.x / unit)


class NuSVMMetric(FromPairs, Mahalanobis):
    """Move dissimilar pairs apart by a learned margin and keep similar pairs near, to a certified optimum.

    Parameters
    ----------
    l1 : float
        Weight of the mean squared distance of the similar pairs, at least 0.
    l2 : float
        Weight of the margin, above 0.
    nu : float
        Upper bound on the share of dissimilar pairs that miss the margin if `margin_` is above 0, in (0, 1].
    prior : array-like of shape (d, d), optional
        Positive semi-definite matrix of the original distance. By default, the identity.
    definite : bool
        Constrain M to be positive semi-definite. If False, the problem is solved without this constraint, and the
        negative part of M is discarded afterwards.
    n_components : int, optional
        Number of dimensions of the learned space: the directions with the largest eigenvalues of M are kept. By
        default, all directions are kept.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 20,000. If fewer exist, all of them
        are used. Each iteration compares all dissimilar pairs.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, objective)``.
    warm_start : bool
        Start from the multipliers of the previous fit if the number of dissimilar pairs is the same.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum.
    margin_ : float
        Margin g, in units of the mean original squared distance of the dissimilar pairs.
    dual_ : ndarray of shape (number of dissimilar pairs,)
        Multipliers of ``pairs_[pair_labels_ == -1]``, between 0 and l2 / |D|.
    pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that were made from labels, or of the given pairs, each once.
    pair_labels_ : ndarray of shape (m,)
        +1 for similar pairs and -1 for dissimilar pairs.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Tsang & Kwok, "Distance metric learning with kernels", ICANN 2003. Rows are scaled so that the mean original
    squared distance of the dissimilar pairs is 1, which makes the settings independent of units. The defaults are not
    from the paper; they were chosen in folds of eleven small tables. With a much smaller `l2`, the margin is 0 and
    every dissimilar pair counts the same, with a warning; this is no longer a support vector machine.

    The survey of Ghojogh et al. (2022) prints + nu g, which makes g 0, uses M instead of d0, and constrains similar
    pairs to be farther apart than dissimilar pairs. The search ends with Newton steps: if they converge, M is the
    optimum up to rounding for any `tol`.
    """

    def __init__(
        self,
        l1: float = 1.0,
        *,
        l2: float = 300.0,
        nu: float = 0.2,
        prior: AnyArray | None = None,
        definite: bool = True,
        n_components: int | None = None,
        n_pairs: int | str | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.l1 = l1
        self.l2 = l2
        self.nu = nu
        self.prior = prior
        self.definite = definite
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    _most_pairs = 20_000  # 2 to 7 s with 20 to 300 features, where 500,000 pairs took minutes

    @property
    def _span(self) -> bool:
        return self.prior is None

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, l1=self.l1)
        checks.above(0, l2=self.l2, nu=self.nu, tol=self.tol)
        checks.between(0, 1, nu=self.nu)
        start = self._found_before("dual_", work)
        pairs = written_out(pairs)
        found = nu_svm(
            X,
            pairs,
            l1=self.l1,
            l2=self.l2,
            nu=self.nu,
            definite=self.definite,
            prior=self.prior,
            start=start,
            **self._search(),
        )
        L = psd.components(found.x, self.n_components)
        return found.with_x(L, attributes=found.attributes | work.pairs_as_given(pairs))
