"""Geometric mean metric learning on symmetric positive definite matrices (Zhu, Cheng, Hu, Wang & Zhang, 2018).

    d_M(X_i, X_j)^2 = tr(M (T_i - T_j)^2),  T_i = log X_i
    M = (S + lam I)^-1 #_t (D + lam I)

S and D are the means of (T_i - T_j)^2 over the similar and over the dissimilar pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from ...estimators.base import MetricLearner, Workspace, error_context
from ...estimators.sums import PairSums
from ...numerics import checks, class_sums, device_arrays, manifolds, psd
from ...numerics.class_sums import ClassMoments
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .. import geodesic

EMBEDDINGS = ("matrix", "vec")


def spd_gmml(T: Array, pairs: Pairs | LabelPairs, t: float = 0.5, reg: float | str = 0.1) -> Array:
    """Return L (d, d) with L' L = M from logarithms T (n, d, q); see `SPDGMML` for the settings."""
    S, D = geodesic.stack_scatters(T, pairs)
    S, D = geodesic.regularized(S, D, reg)
    return psd.sharp_factor(S, D, t)


class SPDGMML(PairSums):
    """Learn a metric on positive definite matrices, such as covariances of images or signals, in closed form.

    `fit` and `transform` take X of shape (n, d, d). Rows of shape (n, d) are taken as logarithms that are already
    vectors.

    Parameters
    ----------
    t : float
        Point on the geodesic, in [0, 1]: 0 gives the inverse of the similar scatter, and 1 gives the dissimilar
        scatter.
    reg : float or "auto"
        Weight of the identity that is added to both scatters, in units of the mean eigenvalue of the similar scatter.
        "auto" adds 1e-6, and only if the similar scatter is nearly singular.
    embedding : {"matrix", "vec"}
        "matrix" learns a d x d metric on the logarithms. "vec" learns a metric of d (d + 1) / 2 x d (d + 1) / 2 on
        their entries, for small d.
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
        Linear map L: `transform` returns the entries of L T_i, shape (n, k d).
    columns_ : int
        Number of columns of each T_i: d for matrices, 1 for rows.

    Notes
    -----
    Zhu, Cheng, Hu, Wang & Zhang, "Towards generalized and efficient metric learning on Riemannian manifold", IJCAI
    2018. The metric is log-Euclidean: distances do not change under X -> Q X Q' with orthogonal Q (M rotates
    accordingly) or under inversion, but do change under other congruences. The scatters are means and `reg` is
    relative, where the paper has sums.

    `partial_fit` keeps the scatter of each column in each class: c d^3 numbers for matrices and c classes.
    ``embedding="vec"`` is `GMML` on the entries of the logarithms (each off-diagonal entry once, times the square root
    of 2).

    Examples
    --------
    >>> X = np.array([np.diag(v) for v in ([1.0, 1], [1, 9], [5, 1], [5, 9])])
    >>> M = SPDGMML(reg=0.01).fit(X, [0, 0, 1, 1]).get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 5 * M[1, 1])
    True
    """

    _matrices = True

    def __init__(
        self,
        t: float = 0.5,
        *,
        reg: float | str = 0.1,
        embedding: str = "matrix",
        n_components: int | None = None,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.t = t
        self.reg = reg
        self.embedding = embedding
        self.n_components = n_components
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _rows(self, X: AnyArray, y: AnyArray | None = None, reset: bool = True, least: int | None = None) -> Any:
        found = manifolds.through_rows(super()._rows, X, y, reset, least)
        points = found[0] if isinstance(found, tuple) else found
        if points.ndim == 3:
            manifolds.require_spd(points)
        return found

    def _order(self, X: AnyArray) -> Ints:
        return super()._order(X.reshape(len(X), -1))

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        T = self._logarithms(X)
        return Workspace(T, order, attributes={"columns_": T.shape[2]})

    def _points(self, X: Any) -> Any:
        if X.ndim == 2:
            return X
        return self._logarithms(X)

    def _logarithms(self, X: Any) -> Array:
        """Return T (n, d, d), or with "vec" its entries (n, d (d + 1) / 2, 1); for rows, (n, d, 1)."""
        checks.one_of(EMBEDDINGS, embedding=self.embedding)
        if issparse(X):
            X = X.toarray()
        if X.ndim == 2:
            return np.asarray(X[:, :, None], dtype=np.float64)
        T = manifolds.spd_log(X.astype(np.float64))
        # squared distances tr(M (T_i - T_j)^2) of matrices; of rows of entries, they are ordinary ones
        if self.embedding == "matrix":
            return T
        return manifolds.vectors(T)[:, :, None]

    def _solve(self, T: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Array:
        checks.between(0, 1, t=self.t)
        return psd.compress(spd_gmml(T, pairs, t=self.t, reg=self.reg), self.n_components)

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        checks.between(0, 1, t=self.t)
        q = work.extra
        columns = []
        for k in range(q):
            of_column = sums.chosen(np.arange(k, len(sums.count), q))  # column k of class c is stored at c q + k
            columns.append(class_sums.label_scatters(of_column, self.weighting))
        # (T_i - T_j)^2 = sum_k t_k t_k' over the columns t_k of T_i - T_j: the scatters of the columns add up
        S, D = geodesic.mean_of_columns(columns)
        S, D = geodesic.regularized(S, D, self.reg)
        L = psd.sharp_factor(S, D, self.t)
        return Solution(psd.compress(L, self.n_components), attributes={"columns": q})

    def transform(self, X: AnyArray) -> AnyArray:
        """Return the entries of L T_i: Euclidean distances between the transformed rows are the learned distances.

        Parameters
        ----------
        X : array-like of shape (n, d, d) or (n, d)
            Positive definite matrices, or rows.

        Returns
        -------
        ndarray of shape (n, k d)
            Transformed matrices.
        """
        check_is_fitted(self)
        if device_arrays.is_device_array(X) and X.ndim == 2 and self.components_.shape[1] == self.n_features_in_:
            return super().transform(X)
        with error_context(self):
            X = self._rows(device_arrays.require_host(X), reset=False)
            T = self._logarithms(X)
            if T.shape[1:] != (self.components_.shape[1], self.columns_):
                raise ValueError(f"X must hold matrices or rows of the same size as in fit; got shape {X.shape}")
            # |L (T_i - T_j)|_F^2 = tr(M (T_i - T_j)^2)
            return (self.components_ @ T).reshape(len(T), -1).astype(X.dtype)

    def get_metric(self) -> Callable[..., float]:
        """Return the learned distance as a function of two points."""
        return MetricLearner.get_metric(self)

    @property
    def _n_features_out(self) -> int:
        return int(len(self.components_) * self.columns_)
