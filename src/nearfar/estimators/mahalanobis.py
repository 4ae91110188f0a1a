"""The steps that every fit takes, and the base class of learners of a Mahalanobis metric."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import settings
from ..fit_warnings import warn
from ..numerics import checks, constraints, psd, scatter
from ..numerics.optimize import Report, Solution
from ..numerics.types import AnyArray, Array, Ints
from .fitted import Fitted, LinearDistance, error_context

Self = TypeVar("Self", bound="MetricLearner")


def without_numbers(X: Any) -> list[str]:
    """Return the names of the columns of a table that hold anything but numbers."""
    found = []
    for name, kind in zip(getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False):
        if getattr(kind, "kind", "O") not in "biuf":  # missing values of numbers are another matter
            try:
                np.asarray(X[name], dtype=np.float64)
            except (TypeError, ValueError):
                found.append(str(name))
    return found


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Fitted):
    """Base class of learners of a distance: it validates before `_solve` and sets fitted attributes after it."""

    _y_required = True
    _solve: Callable[..., Array | Solution]
    max_iter: int
    tol: float

    def _rows(self, X: AnyArray, y: AnyArray | None = None, reset: bool = True) -> Any:
        """Check X (and y) as scikit-learn does, and return them in float32 or float64."""
        if reset:
            self.__dict__.pop("_sorted", None)
            settings.check_settings(self)
        if self._passes(X, y, reset):
            self.n_features_in_ = X.shape[1]
            return X if y is None else (X, y)
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": reset}
        if reset:
            options["ensure_min_samples"] = 2
        try:
            if y is None:
                return validate_data(self, X, **options)
            return validate_data(self, X, y, **options)
        except (TypeError, ValueError) as error:
            words = without_numbers(X)
            if not words:
                raise
            first = ", ".join(map(repr, words[:3]))
            hint = "encode them before, as by OneHotEncoder in make_column_transformer"
            raise ValueError(
                f"X: {len(words)} column(s) hold something other than numbers ({first}); {hint}"
            ) from error

    def _passes(self, X: AnyArray, y: AnyArray | None, reset: bool) -> bool:
        """Whether scikit-learn's checks, which take longer than a small fit, would return these arrays as they are."""
        if not is_plain(X) or not (y is None or is_plain_labels(y, len(X))) or hasattr(self, "feature_names_in_"):
            return False
        if reset:
            return len(X) >= 2
        return X.shape[1] == getattr(self, "n_features_in_", None)

    def _labeled(self, X: AnyArray, y: AnyArray | None, needs: str = "") -> tuple[AnyArray, Ints]:
        """Return rows in an order fixed by their values, and label codes: so row order and names cannot matter."""
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None{needs}")
        X, y = self._rows(X, constraints.numbered(y))
        if not is_plain_labels(y, len(y)) or 2 * len(np.unique(y)) >= len(y):  # others pass, without a warning
            check_classification_targets(y)
        self._sorted = order = self._order(X)
        return X[order], constraints.encode(np.asarray(y)[order])[1]

    def _streamed(self, X: AnyArray, y: AnyArray) -> tuple[AnyArray, Ints, bool]:
        """Return the next rows of a stream, their label codes and whether they are its first; checked as for `fit`."""
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
        """Return an order of the rows that does not depend on the order in which they were given."""
        return row_order(X)

    def _as_given(self, values: AnyArray) -> AnyArray:
        """Return values of the rows that `_solve` sees in the order of the user's rows."""
        values = np.asarray(values)
        out = np.empty_like(values)
        out[self._given(np.arange(len(values)))] = values
        return out

    def _rows_as_given(self, table: Ints) -> Ints:
        """Return a table of row numbers (-1: none) for the rows that `_solve` sees in the user's numbers and order."""
        return self._as_given(np.where(table >= 0, self._given(table), -1))

    def _given(self, places: Ints) -> Ints:
        """Return the numbers of the user's rows that stand at these places among the rows that `_solve` sees."""
        order: Ints | None = self.__dict__.get("_sorted")
        return places if order is None else order[places]

    def _learn(self: Self, X: AnyArray, *supervision: Any, own: bool = False) -> Self:
        """Solve in float64 and keep the result; with `own`, X may be overwritten."""
        for name in ("threshold_", "stream_"):  # of the metric before; a stream's steps start anew after a fit
            self.__dict__.pop(name, None)
        R = self._enter(X, own)
        spanned = X.shape[1] if "_basis" in self.__dict__ else None
        check_n_components(getattr(self, "n_components", None), R.shape[1], spanned)
        checks.counts(1, max_iter=getattr(self, "max_iter", 1))
        checks.at_least(0, tol=getattr(self, "tol", 0.0))
        found = self._solve(R, *supervision)
        solution = found if isinstance(found, Solution) else Solution(found)
        # if the objective is not a number, a search ends where it began
        if not np.isfinite(solution.x).all() or np.isnan(solution.value):
            raise ValueError("the solution is not finite; scale the features or regularize more")
        self._keep(solution.x, X.dtype)
        warn_if_degenerate(getattr(self, "components_", None), R)
        self.__dict__.pop("_sorted", None)
        self._record(solution)
        return self

    def _record(self, solution: Solution) -> None:
        """Set the fitted attributes, and warn if the stopping rule was not met."""
        # what only an earlier fit reported must not look like a result of this one
        for name in ("duality_gap", "history", *self.__dict__.pop("_reported", ())):
            self.__dict__.pop(f"{name}_", None)
        self.n_iter_ = solution.n_iter
        self.converged_ = solution.converged
        self.objective_ = solution.objective
        for name, value in (("duality_gap", solution.duality_gap), ("history", solution.history)):
            if value is not None:
                setattr(self, f"{name}_", value)
        for name, value in solution.attributes.items():
            setattr(self, f"{name}_", value)
        self._reported = tuple(solution.attributes)
        if not solution.converged and solution.message:  # a step of a stream has no stopping rule
            warn(f"{type(self).__name__}: {solution.message}", ConvergenceWarning)

    def _enter(self, X: AnyArray, own: bool = False) -> Array:
        """Return the rows that `_solve` works on; with `own`, X may be overwritten."""
        raise NotImplementedError

    def _keep(self, components: Array, dtype: Any) -> None:
        """Store what `transform` needs."""
        self.components_ = np.ascontiguousarray(components, dtype=dtype)

    def _start(self, shape: tuple[int, ...] | None = None) -> Array | None:
        """Return the last components under `warm_start` if they fit these rows and have this shape, else None."""
        last = self._last_components()
        return last if last is None or shape in (None, last.shape) else None

    def _found_before(self, name: str) -> Any:
        """Return another result of the last fit by its name, if `_start` has that fit's components; else None."""
        return None if self._start() is None else getattr(self, name, None)

    def _last_components(self) -> Array | None:
        """Return the last fit's components under `warm_start` if their number of columns still fits, else None."""
        if getattr(self, "warm_start", False):
            last = getattr(self, "components_", None)
        else:
            last = None
        fits = isinstance(last, np.ndarray) and last.shape[1] == self.n_features_in_
        return np.asarray(last, dtype=np.float64) if fits else None

    def _settings(self, *names: str) -> dict[str, Any]:
        """Return the settings of these names, to pass to the function of a method."""
        return {name: getattr(self, name) for name in names}

    def _search(self) -> dict[str, Any]:
        """Return the arguments of every search: `max_iter`, `tol` and the function to `report` to."""
        return {"max_iter": self.max_iter, "tol": self.tol, "report": self._report()}

    def _report(self) -> Report | None:
        """Return a function that prints progress under `verbose`, else None."""
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

    With ``_span = True`` a subclass works in the span of the rows' differences if d > n, so that nothing of size d x d
    is formed: `_solve` gets rows (n, r), r < n, and M is 0 on the directions in which no two rows differ. With
    ``_span = "identity"`` M is I there, unless at most r components are asked for.
    """

    _center = True
    _span: Any = False

    def _enter(self, X: AnyArray, own: bool = False) -> Array:
        self.__dict__.pop("_basis", None)
        if own:
            R = np.ascontiguousarray(X, dtype=np.float64)
        else:
            R = np.array(X, dtype=np.float64, order="C")
        if self._center:
            R -= R.mean(axis=0)
        if not self._span or R.shape[1] <= len(R):
            return R
        basis = scatter.data_span(R)
        if self._span == "identity" and (getattr(self, "n_components", None) or 0) > len(basis):
            return R  # directions outside of the span are asked for
        self._basis = basis if len(basis) else np.eye(1, R.shape[1])
        return R @ self._basis.T

    def _keep(self, components: Array, dtype: Any) -> None:
        basis = self.__dict__.pop("_basis", None)
        if basis is not None:
            whole = self._span == "identity" and getattr(self, "n_components", None) is None
            if whole:
                components = psd.beside_identity(components, basis)
            else:
                components = components @ basis
        super()._keep(components, dtype)

    def _last_components(self) -> Array | None:
        last = super()._last_components()
        basis = self.__dict__.get("_basis")
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
        with error_context(self):
            return self._rows(X, reset=False) @ self.components_.T

    def get_mahalanobis_matrix(self) -> AnyArray:
        """M = components_' components_, shape (d, d), with squared distance (a - b)' M (a - b)."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def get_metric(self) -> Callable[..., float]:
        """The learned distance as a function of two points, as ``KNeighborsClassifier(metric=...)`` takes it."""
        check_is_fitted(self)
        return LinearDistance(np.asarray(self.components_, dtype=np.float64))


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
    """Return an order of rows that depends only on their values (up to exact duplicates)."""
    weights = np.cos(np.arange(1.0, X.shape[1] + 1))
    return np.argsort(np.einsum("nd,d->n", X, weights), kind="stable")


def warn_if_degenerate(components: Any, X: AnyArray) -> None:
    """Warn if the metric is 0 although the rows X that it was learned from differ."""
    if components is not None and not np.any(components) and (X[:1] != X).any():
        message = f"the metric is 0, and with it all distances, though rows of size {np.abs(X).max():.3g} differ"
        warn(f"{message}; scale the features, or regularize less")


def check_n_components(n_components: int | None, d: int, features: int | None = None) -> None:
    """Raise unless n_components is None or in 1..d; of `features` features, the rows differ in d directions."""
    if n_components is None:
        return
    if not isinstance(n_components, numbers.Integral) or isinstance(n_components, bool) or not 1 <= n_components <= d:
        if features is None:
            why = ""
        else:
            why = f": the rows differ only in {d} directions, of {features} features"
        raise ValueError(f"n_components must be an integer in 1..{d} (or None); got {n_components!r}{why}")
