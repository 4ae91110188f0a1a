"""The base class of learners of a metric in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..numerics import checks, kernels
from ..numerics.types import AnyArray, Array, Ints
from .mahalanobis import MetricLearner, Workspace
from .validation import error_context, row_order


class KernelMetric(MetricLearner):
    """Base class of learners in the feature space of a kernel, by the linear method on an empirical kernel map.

    The distance is d(a, b) = |T' (k(a) - k(b))| with T = `dual_coef_`. `_solve` gets the rows R (n, r) of the map as
    its X, with R R' = K. A subclass stores the settings `kernel` ("rbf", "linear", "polynomial", "laplacian",
    "cosine", "precomputed" or a callable), `gamma` (None: `median_gamma`), `degree`, `coef0`, `landmarks` (None: every
    row) and `random_state`.
    """

    _holds = ("n_features_in_", "dual_coef_", "X_fit_", "landmarks_", "gamma_")
    kernel: kernels.Kernel
    gamma: float | None
    degree: float
    coef0: float
    landmarks: int | None
    gamma_: float
    landmarks_: Ints
    X_fit_: AnyArray
    dual_coef_: AnyArray

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        X = np.asarray(X, dtype=np.float64)
        checks.above(0, **checks.not_none(gamma=self.gamma))
        checks.counts(1, **checks.not_none(landmarks=self.landmarks))
        if self.gamma is None:
            gamma = kernels.median_gamma(X, self.kernel)
        else:
            gamma = float(self.gamma)
        settings = self._settings("degree", "coef0", "landmarks")
        found = kernels.kernel_map(X, self.kernel, gamma=gamma, seed=getattr(self, "random_state", None), **settings)
        landmarks = found.landmarks
        if order is not None:
            landmarks = order[landmarks]  # as numbers of the user's rows
        if self.kernel == "precomputed":
            X_fit = np.zeros((0, X.shape[1]))
        else:
            X_fit = X[found.landmarks]
        attributes = {"gamma_": gamma, "landmarks_": landmarks, "X_fit_": X_fit}
        last = self._in_map(X, found)
        return Workspace(found.rows, order, basis=found.basis, last=last, attributes=attributes)

    def _in_map(self, X: Array, found: kernels.KernelMap) -> Array | None:
        """Return components in the new map with the images of its landmarks under the last fit, if `warm_start` is set.

        The `warm_start` of a wrapper is that of its `learner`.
        """
        warm = getattr(getattr(self, "learner", self), "warm_start", False)
        if not warm or not hasattr(self, "dual_coef_"):
            return None
        rows = 0 if self.kernel == "precomputed" else len(self.dual_coef_)
        if self.X_fit_.shape != (rows, X.shape[1]):
            return None
        return np.asarray(self._image(X[found.landmarks]).T @ found.basis)

    def _order(self, X: AnyArray) -> Ints:
        if self.kernel == "precomputed":
            return np.arange(len(X))  # the columns of a kernel matrix correspond to its rows, which are not sorted
        return row_order(X)

    def _check_search(self, work: Workspace, features: int) -> None:
        super()._check_search(work, features=work.rows.shape[1])

    def _learned_map(self, components: Array, work: Workspace, dtype: Any) -> dict[str, Any]:
        assert work.basis is not None
        # L basis' k(x) = dual' k(x): (m, r) (r, k) -> (m, k), with r coordinates in the span of m landmarks
        dual = np.ascontiguousarray(work.basis @ components.T, dtype=dtype)
        return {**super()._learned_map(components, work, dtype), "dual_coef_": dual}

    def transform(self, X: AnyArray) -> AnyArray:
        """Return ``k(X) @ dual_coef_``: Euclidean distances between the transformed rows are the learned distances.

        Parameters
        ----------
        X : array-like of shape (q, d), or of shape (q, n) for "precomputed"
            Rows to transform, or their kernel values with the n training rows.

        Returns
        -------
        ndarray of shape (q, k)
            Transformed rows.
        """
        check_is_fitted(self)
        with error_context(self):
            return self._image(self._rows(X, reset=False)).astype(self.dual_coef_.dtype, copy=False)

    def _image(self, X: AnyArray) -> AnyArray:
        if self.kernel == "precomputed":
            return X[:, self.landmarks_] @ self.dual_coef_
        X = np.asarray(X, np.float64)
        return kernels.gram(X, self.X_fit_, self.kernel, self.gamma_, self.degree, self.coef0) @ self.dual_coef_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags
