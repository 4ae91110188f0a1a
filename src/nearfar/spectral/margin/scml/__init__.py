"""Sparse compositional metric learning (Shi, Bellet & Sha, 2014).

    min_{w >= 0}  1/T sum_{(a, p, n)} [1 + d(x_a, x_p) - d(x_a, x_n)]_+ + beta s^2 sum_k w_k
    d(x, x') = (x - x')' M (x - x'),  M = sum_k w_k b_k b_k'

b_k are given directions, of which few are used. s is close to the standard deviation of the features, and 1 if they are
standardized.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....estimators.base import FromTriplets, Mahalanobis, Workspace
from ....numerics import checks, psd, scatter
from ....numerics.optimize import Solution, one_thread
from ....numerics.scatter import coordinates
from ....numerics.types import AnyArray, Array, Ints
from . import linear_program, local_directions
from .triplets import nearest_triplets

BASES = ("auto", "discriminants", "triplets")
NARROW_FEATURES = 50
REGIONS = (10, 20)  # rows of each class in a region, for up to NARROW_FEATURES features
WIDE_REGIONS = (20, 50)  # and for more


def scml(X: Array, triplets: Ints, B: Array, beta: float = 1e-5, **search: Any) -> Solution:
    """Return the weights w (K,) as `x` for directions B (K, d) and triplets (T, 3) of rows.

    `search` holds further arguments of `minimize`.
    """
    return linear_program.minimize(linear_program.TripletHinges(X, triplets, B, beta), **search)


class SCML(FromTriplets, Mahalanobis):
    """Combine a few of many directions into a metric in which positives are nearer than negatives by a margin.

    Scale the features first: neighbors are searched for in the space of the given rows.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space: the directions along which the transformed rows vary most. By
        default, all directions are kept.
    beta : float
        Weight of the sparsity penalty, above 0. Larger values use fewer directions.
    n_neighbors : int
        Number of positives of each row: its nearest rows of the same class. Used only with labels.
    n_impostors : int
        Number of negatives of each row: its nearest rows of other classes. Used only with labels.
    basis : str or array-like of shape (K, d)
        Directions to choose from. "discriminants" computes the discriminant directions of local regions, which hold
        the 10 and 20 nearest rows of each class (20 and 50 above 50 dimensions); it requires labels. "triplets"
        computes directions along which negatives are farther apart than positives, from groups of d triplets that are
        drawn at random. "auto" uses "discriminants" with labels and "triplets" otherwise. An array holds the
        directions themselves, of any length.
    n_basis : int, optional
        Maximum number of directions to compute. By default, 20 for each dimension of the span of the rows.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below `tol` times the objective.
    warm_start : bool
        Start from the weights of the previous fit if all its directions are among those of this fit. Different rows
        give different directions.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the groups of triplets of ``basis="triplets"``.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    weights_ : ndarray of shape (m,)
        Positive weights w, in decreasing order.
    basis_ : ndarray of shape (m, d)
        Directions of these weights: M = basis_' diag(weights_) basis_, before it is truncated to `n_components`.
    objective_ : float
        Value of the objective.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and its minimum over all weights of the same directions.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Shi, Bellet & Sha, "Sparse compositional metric learning", AAAI 2014.

    The convex problem is solved to its optimum, with a certificate, whereas the paper takes stochastic steps. Three
    parts are not from the paper: s^2, which makes the result independent of units; the ridge of the discriminants; and
    the centers of the regions, which are chosen without random numbers.

    With directions of unit length, the penalty is the trace of M, for any choice of directions. If there are more
    directions than the d (d + 1) / 2 entries of M, several weight vectors are equally good, and the one that is found
    need not be the sparsest.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0], [0.1, 3], [1, 0], [1.1, 3]])
    >>> SCML(basis=np.eye(2)).fit(X, [0, 0, 1, 1]).basis_
    array([[1., 0.]])
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        beta: float = 1e-5,
        n_neighbors: int = 3,
        n_impostors: int = 10,
        basis: str | AnyArray = "auto",
        n_basis: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-2,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.n_neighbors = n_neighbors
        self.n_impostors = n_impostors
        self.basis = basis
        self.n_basis = n_basis
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, labels: Ints | None, triplets: Ints | None, work: Workspace) -> Solution:
        checks.above(0, beta=self.beta, tol=self.tol)
        checks.counts(1, n_neighbors=self.n_neighbors, n_impostors=self.n_impostors)
        checks.counts(1, **checks.not_none(n_basis=self.n_basis))
        unit = scatter.unit(X)
        V = coordinates(X / unit)
        X = X / unit @ V.T
        if triplets is None:
            triplets = nearest_triplets(X, np.asarray(labels), k=self.n_neighbors, rivals=self.n_impostors)
        B = self._directions(X, labels, triplets, V)
        basis = self._found_before("basis_", work)
        start = None
        if basis is not None:
            # weights of an earlier fit, in the unit of this one
            start = linear_program.again(B @ V, basis, self.weights_ * unit**2)
        with one_thread():
            found = scml(X, triplets, B, self.beta, start=start, **self._search())
        used = np.argsort(-found.x, kind="stable")[: int((found.x > 0).sum())]
        # the directions that are used, by falling weight
        w = found.x[used]
        B = B[used]
        if len(w):
            L = psd.compress(np.sqrt(w)[:, None] * B)
        else:
            L = np.zeros((1, len(V)))
        L = scatter.widest(L, X, self.n_components) @ V / unit
        with np.errstate(over="ignore"):  # in the smallest units, the weights and the metric overflow
            return found.with_x(L, attributes={"weights": w / unit / unit, "basis": B @ V})

    def _directions(self, X: Array, labels: Ints | None, triplets: Ints, V: Array) -> Array:
        """Return the directions B (K, r) in the coordinates V (r, d)."""
        if not isinstance(self.basis, str):
            try:
                B = np.asarray(self.basis)
            except ValueError:  # lists of several lengths
                B = np.zeros(0)
            if B.dtype.kind not in "biuf" or B.shape[1:] != V.shape[1:] or len(B) == 0 or not np.isfinite(B).all():
                needs = f"one of {', '.join(map(repr, BASES))}, or finite numbers of shape (K, {V.shape[1]})"
                raise ValueError(f"basis must be {needs}; got shape {B.shape}, dtype {B.dtype}")
            return B @ V.T
        checks.one_of(BASES, basis=self.basis)
        count = self.n_basis or 20 * X.shape[1]
        if self.basis == "triplets" or (self.basis == "auto" and labels is None):
            return local_directions.of_triplets(X, triplets, count, self.random_state)
        if labels is None:
            raise ValueError('basis="discriminants" requires labels; got triplets, so set basis="triplets" or an array')
        sizes = REGIONS if X.shape[1] <= NARROW_FEATURES else WIDE_REGIONS
        return local_directions.of_regions(X[labels >= 0], labels[labels >= 0], count, sizes)
