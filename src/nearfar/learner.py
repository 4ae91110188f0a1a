"""What is learned: a Mahalanobis metric, or one in the feature space of a kernel, and the steps of every fit."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .core import checks, constraints, kernels, psd, scatter, settings
from .core.optimize import Report, Solution
from .core.types import AnyArray, Array, Ints
from .fitted import Fitted, LinearDistance, named

Self = TypeVar("Self", bound="MetricLearner")


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Fitted):
    """A learner of a distance: validation before `_solve`, fitted attributes after it."""

    _y_required = True
    _solve: Callable[..., Array | Solution]

    def _rows(self, X: AnyArray, y: AnyArray | None = None, reset: bool = True) -> Any:
        """X (and y) checked by scikit-learn, in float32 or float64."""
        if reset:
            self.__dict__.pop("_sorted", None)
            settings.check_settings(self)
        if self._passes(X, y, reset):
            self.n_features_in_ = X.shape[1]
            return X if y is None else (X, y)
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": reset}
        options |= {"ensure_min_samples": 2} if reset else {}
        return validate_data(self, X, **options) if y is None else validate_data(self, X, y, **options)

    def _passes(self, X: AnyArray, y: AnyArray | None, reset: bool) -> bool:
        """Whether scikit-learn's checks, which take longer than a small fit, would return these arrays as they are."""
        if not is_plain(X) or not (y is None or is_plain_labels(y, len(X))) or hasattr(self, "feature_names_in_"):
            return False
        return len(X) >= 2 if reset else X.shape[1] == getattr(self, "n_features_in_", None)

    def _labelled(self, X: AnyArray, y: AnyArray | None, needs: str = "") -> tuple[AnyArray, Ints]:
        """Rows in an order of their own and label codes: neither row order nor class names can matter after this."""
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None{needs}")
        X, y = self._rows(X, constraints.numbered(y))
        if not is_plain_labels(y, len(y)) or 2 * len(np.unique(y)) >= len(y):  # others pass, without a warning
            check_classification_targets(y)
        self._sorted = order = self._order(X)
        return X[order], constraints.encode(np.asarray(y)[order])[1]

    def _streamed(self, X: AnyArray, y: AnyArray) -> tuple[AnyArray, Ints, bool]:
        """The next rows of a stream and their label codes, and whether they are its first; checked as for `fit`."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        first = not hasattr(self, "components_")
        X, y = self._rows(X, constraints.numbered(y), reset=first)
        labels = constraints.encode(np.asarray(y))[1]
        constraints.require_classes(labels)
        check_n_components(getattr(self, "n_components", None), X.shape[1])
        self.__dict__.pop("threshold_", None)
        return X, labels, first

    def _order(self, X: AnyArray) -> Ints:
        """An order of rows that does not depend on how they came."""
        return row_order(X)

    def _as_given(self, values: AnyArray) -> AnyArray:
        """Values of the rows that `_solve` sees, in the order in which the user's rows came."""
        values = np.asarray(values)
        out = np.empty_like(values)
        out[self._given(np.arange(len(values)))] = values
        return out

    def _rows_as_given(self, table: Ints) -> Ints:
        """Numbers of rows (-1: none) for each of the rows that `_solve` sees, in the user's numbers and order."""
        return self._as_given(np.where(table >= 0, self._given(table), -1))

    def _given(self, places: Ints) -> Ints:
        """Numbers of the user's rows that stand at these places of what `_solve` sees."""
        order: Ints | None = self.__dict__.get("_sorted")
        return places if order is None else order[places]

    def _learn(self: Self, X: AnyArray, *supervision: Any, own: bool = False) -> Self:
        """Solve in float64 and keep what came out; with `own`, X may be overwritten."""
        for name in ("threshold_", "_adam"):  # of the metric before; a stream's steps start anew after a fit
            self.__dict__.pop(name, None)
        R = self._enter(X, own)
        check_n_components(getattr(self, "n_components", None), R.shape[1])
        checks.counts(1, max_iter=getattr(self, "max_iter", 1))
        checks.at_least(0, tol=getattr(self, "tol", 0.0))
        found = self._solve(R, *supervision)
        solution = found if isinstance(found, Solution) else Solution(found)
        if not np.isfinite(solution.x).all() or np.isnan(solution.objective or 0.0):  # such a search ends at its start
            raise ValueError("the solution is not finite; scale the features or regularise more")
        self._keep(solution.x, X.dtype)
        checks.tells_apart(getattr(self, "components_", None), R)
        self.__dict__.pop("_sorted", None)
        self._record(solution)
        return self

    def _record(self, solution: Solution) -> None:
        """Fitted attributes, and a warning where the stopping rule was not met."""
        # what only an earlier fit reported must not look like a result of this one
        for name in ("duality_gap", "history", *self.__dict__.pop("_reported", ())):
            self.__dict__.pop(f"{name}_", None)
        self.n_iter_, self.converged_, self.objective_ = solution.n_iter, solution.converged, solution.objective
        for name, value in (("duality_gap", solution.duality_gap), ("history", solution.history)):
            if value is not None:
                setattr(self, f"{name}_", value)
        for name, value in solution.attributes.items():
            setattr(self, f"{name}_", value)
        self._reported = tuple(solution.attributes)
        if not solution.converged and solution.message:  # a step of a stream has no stopping rule
            warnings.warn(f"{type(self).__name__}: {solution.message}", ConvergenceWarning, stacklevel=5)

    def _enter(self, X: AnyArray, own: bool = False) -> Array:
        """The rows that `_solve` works on; with `own`, X may be overwritten."""
        raise NotImplementedError

    def _keep(self, components: Array, dtype: Any) -> None:
        """Store what `transform` needs."""
        self.components_ = np.ascontiguousarray(components, dtype=dtype)

    def _start(self) -> Array | None:
        """The last fit's components under `warm_start` where their number of columns still fits."""
        last = getattr(self, "components_", None) if getattr(self, "warm_start", False) else None
        fits = isinstance(last, np.ndarray) and last.shape[1] == self.n_features_in_
        return np.asarray(last, dtype=np.float64) if fits else None

    def _report(self) -> Report | None:
        """A printer of progress under `verbose`."""
        if not getattr(self, "verbose", False):
            return None
        name = type(self).__name__
        return lambda k, value, rest: print(f"{name}: iteration {k}, objective {value:.6g}, residual {rest:.3g}")

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._y_required
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Mahalanobis(MetricLearner):
    """d(a, b) = |L (a - b)| with L = `components_` of shape (k, d).

    With ``_span = True`` `_solve` gets rows (n, r) in the span of their differences where d > n: nothing is d x d,
    and M is 0 where no two rows differ. With ``_span = "identity"`` M is I there, unless `n_components` are given.
    """

    _center = True
    _span: Any = False

    def _enter(self, X: AnyArray, own: bool = False) -> Array:
        self.__dict__.pop("_basis", None)
        R = np.ascontiguousarray(X, dtype=np.float64) if own else np.array(X, dtype=np.float64, order="C")
        if self._center:
            R -= R.mean(axis=0)
        if not self._span or R.shape[1] <= len(R):
            return R
        basis = scatter.data_span(R)
        self._basis = basis if len(basis) else np.eye(1, R.shape[1])
        return R @ self._basis.T

    def _keep(self, components: Array, dtype: Any) -> None:
        if (basis := self.__dict__.pop("_basis", None)) is not None:
            whole = self._span == "identity" and getattr(self, "n_components", None) is None
            components = psd.beside_identity(components, basis) if whole else components @ basis
        super()._keep(components, dtype)

    def _start(self) -> Array | None:
        last, basis = super()._start(), self.__dict__.get("_basis")
        return last if last is None or basis is None else last @ basis.T

    def transform(self, X: AnyArray) -> AnyArray:
        """``X @ components_.T``: Euclidean distances between the rows of the result are the learned ones.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, k)
        """
        check_is_fitted(self)
        with named(self):
            return self._rows(X, reset=False) @ self.components_.T

    def get_mahalanobis_matrix(self) -> AnyArray:
        """M = components_' components_, shape (d, d), with squared distance (a - b)' M (a - b)."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def get_metric(self) -> Callable[..., float]:
        """The learned distance as a function of two points, as ``KNeighborsClassifier(metric=...)`` takes it."""
        check_is_fitted(self)
        return LinearDistance(np.asarray(self.components_, dtype=np.float64))


class KernelMetric(MetricLearner):
    """The linear method on an empirical kernel map: d(a, b) = |T' (k(a) - k(b))| with T = `dual_coef_`.

    `_solve` gets the map's rows R (n, r) as its X, with R R' = K. A subclass stores the settings `kernel` ("rbf",
    "linear", "polynomial", "laplacian", "cosine", "precomputed" or a callable), `gamma` (None: `median_gamma`),
    `degree`, `coef0`, `landmarks` (None: every row) and `random_state`.
    """

    _holds = ("n_features_in_", "dual_coef_", "X_fit_", "landmarks_", "gamma_")
    kernel: kernels.Kernel
    gamma: float | None
    degree: float
    coef0: float
    landmarks: int | None

    def _enter(self, X: AnyArray, own: bool = False) -> Array:
        X = np.asarray(X, dtype=np.float64)
        checks.above(0, gamma=1.0 if self.gamma is None else self.gamma)
        checks.counts(1, landmarks=1 if self.landmarks is None else self.landmarks)
        gamma = kernels.median_gamma(X, self.kernel) if self.gamma is None else float(self.gamma)
        settings: dict[str, Any] = {name: getattr(self, name) for name in ("degree", "coef0", "landmarks")}
        found = kernels.kernel_map(X, self.kernel, gamma=gamma, seed=getattr(self, "random_state", None), **settings)
        known = getattr(self, "warm_start", False) and hasattr(self, "dual_coef_")
        if known and self.X_fit_.shape == (0 if self.kernel == "precomputed" else len(self.dual_coef_), X.shape[1]):
            self._last = self._image(X[found.landmarks]).T @ found.basis  # what the last map makes of these landmarks
        self.gamma_, self.landmarks_, self._basis = gamma, self._given(found.landmarks), found.basis
        self.X_fit_: AnyArray = np.zeros((0, X.shape[1])) if self.kernel == "precomputed" else X[found.landmarks]
        return found.rows

    def _start(self) -> Array | None:
        return self.__dict__.pop("_last", None)

    def _order(self, X: AnyArray) -> Ints:
        # the columns of a kernel matrix belong to its rows: neither may move alone
        return np.arange(len(X)) if self.kernel == "precomputed" else row_order(X)

    def _keep(self, components: Array, dtype: Any) -> None:
        super()._keep(components, dtype)
        self.dual_coef_ = np.ascontiguousarray(self.__dict__.pop("_basis") @ components.T, dtype=dtype)

    def transform(self, X: AnyArray) -> AnyArray:
        """Map rows to ``k(X) @ dual_coef_``: Euclidean distances between the results are the learned ones.

        Parameters
        ----------
        X : array-like of shape (q, d), or (q, n) kernel values with the training rows for "precomputed"

        Returns
        -------
        ndarray of shape (q, k)
        """
        check_is_fitted(self)
        with named(self):
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


def is_plain(X: Any) -> bool:
    """Whether X is a matrix of finite floats."""
    if type(X) is not np.ndarray or X.ndim != 2 or X.size == 0 or X.dtype not in (np.float64, np.float32):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


def is_plain_labels(y: Any, n: int) -> bool:
    """Whether y is an array of n integers or booleans."""
    return type(y) is np.ndarray and y.shape == (n,) and y.dtype.kind in "biu"


def row_order(X: AnyArray) -> Ints:
    """An order of rows that depends on their values only (up to exact duplicates)."""
    weights = np.cos(np.arange(1.0, X.shape[1] + 1))
    return np.argsort(np.einsum("nd,d->n", X, weights), kind="stable")


def check_n_components(n_components: int | None, d: int) -> None:
    """None, or an integer in 1..d."""
    whole = isinstance(n_components, numbers.Integral) and not isinstance(n_components, bool)
    if n_components is not None and not (whole and 1 <= n_components <= d):
        raise ValueError(f"n_components must be an integer in 1..{d} (or None); got {n_components!r}")
