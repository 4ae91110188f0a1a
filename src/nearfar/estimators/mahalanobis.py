"""The template of every fit (`MetricLearner._fit`), and the base class of learners of a Mahalanobis metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from .. import settings
from ..fit_warnings import nameless, warn
from ..labels import as_array
from ..numerics import checks, device_arrays, mahalanobis, psd, scatter
from ..numerics.class_sums import ClassMoments
from ..numerics.constraints import Pairs, groups
from ..numerics.optimize import Report, Solution
from ..numerics.standard_columns import constant
from ..numerics.types import AnyArray, Array, Ints
from ..quoting import count_of
from . import thresholds
from .fitted import Fitted, LinearDistance, PointDistance
from .validation import (
    check_n_components,
    dates_in,
    error_context,
    is_plain,
    is_plain_labels,
    mark_training_rows,
    row_order,
    warn_if_degenerate,
    warn_of_minus_one,
    warn_of_no_mark,
    without_numbers,
)

Self = TypeVar("Self", bound="MetricLearner")


SPARSE_LEARNERS = "CovarianceMetric, DCA, DiscriminantWhitening, FisherMetric, GMML and RCA"  # examples for a message


class Labeled(NamedTuple):
    """Validated rows and their labels.

    Attributes
    ----------
    X : ndarray of shape (n, d), float32 or float64
        Rows.
    labels : ndarray of shape (n,)
        Class codes 0, 1, ... in order of first appearance; -1 for rows without a label.
    order : ndarray of shape (n,)
        Number of each row in the user's data.
    classes : ndarray of shape (c,)
        Label of each code in the user's data.
    """

    X: AnyArray
    labels: Ints
    order: Ints
    classes: AnyArray


@dataclass(frozen=True)
class Supervised:
    """Validated rows together with the supervision of a fit.

    Attributes
    ----------
    X : ndarray of shape (n, d), float32 or float64
        Rows.
    known : tuple
        Supervision that `_solve` gets besides the rows: labels, pairs, triplets, chunklets or candidates.
    order : ndarray of shape (n,) or None
        Number of each row in the user's data. If None, the rows are in the order of the user, in the user's own
        memory.
    pairs : Pairs or None
        Pairs given by the user, on which the threshold of `predict` is calibrated after the fit.
    points : array-like of shape (n, d) or None
        Rows to which `pairs` refers if the user gave pairs of points. If None, it refers to the user's X.
    classes : ndarray of shape (c,) or None
        Label of each code in the user's data if `known` holds labels.
    """

    X: AnyArray
    known: tuple[Any, ...]
    order: Ints | None = None
    pairs: Pairs | None = None
    points: AnyArray | None = None
    classes: AnyArray | None = None


@dataclass(frozen=True)
class Workspace:
    """Rows that `_solve` works on, and how to map results back to the user's rows and features.

    Attributes
    ----------
    rows : ndarray of shape (n, r), float64
        Rows in the coordinates of the problem.
    order : ndarray of shape (n,) or None
        Number of each row in the user's data. If None, 0 to n - 1.
    basis : ndarray or None
        For linear methods, of shape (r, d), with rows = X basis' up to a shift; None if the coordinates are the
        features themselves. For kernel methods, of shape (m, r), with rows = k(X) basis for m landmarks.
    repeats : int
        Number of directions of X that the last of `rows`' coordinates represents besides its own.
    units : ndarray of shape (d,) or None
        By which the columns were divided before; None if they were not.
    last : ndarray of shape (k, r) or None
        Components of the previous fit in the coordinates of `rows`, if `warm_start` is set.
    attributes : dict
        Fitted attributes that result from computing the rows, by their full names.
    classes : ndarray of shape (c,) or None
        Label of each code in the user's data.
    extra : object
        Anything else that a method computes from the user's X, such as a graph of neighbors.
    """

    rows: Array
    order: Ints | None = None
    basis: Array | None = None
    repeats: int = 0
    units: Array | None = None
    last: Array | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    classes: AnyArray | None = None
    extra: Any = None

    @property
    def features(self) -> int:
        """Number d of features, also if `rows` are in the coordinates of their span."""
        return self.rows.shape[1] if self.basis is None else self.basis.shape[1]

    def start(self, shape: tuple[int, ...] | None = None) -> Array | None:
        """Return the components of the previous fit if `warm_start` is set and they match this problem, else None."""
        if self.last is None or shape not in (None, self.last.shape):
            return None
        return self.last

    def given(self, places: Ints) -> Ints:
        """Return the numbers in the user's data of the rows at these places in `rows`."""
        if self.order is None:
            return places
        return self.order[places]

    def as_given(self, values: AnyArray) -> AnyArray:
        """Return values of `rows` in the order of the user's rows."""
        values = np.asarray(values)
        out = np.empty_like(values)
        out[self.given(np.arange(len(values)))] = values
        return out

    def rows_as_given(self, table: Ints) -> Ints:
        """Return a table of row numbers (-1: none) for each of `rows`, in the numbers and order of the user's rows."""
        return self.as_given(np.where(table >= 0, self.given(table), -1))

    def pairs_as_given(self, pairs: Pairs) -> dict[str, Any]:
        """Return `pairs_` in the user's row numbers, and `pair_labels_`, for methods with a result for each pair."""
        ij = np.sort(self.given(np.stack([pairs.i, pairs.j], axis=1)), axis=1)
        return {"pairs": ij, "pair_labels": np.where(pairs.similar, 1, -1)}


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Fitted):
    """Base class of learners of a distance: validates input before `_solve`, sets fitted attributes after it."""

    _y_required = True
    _takes_sparse = False  # whether `fit` and `transform` take sparse rows
    _fits_on_device = False  # whether `fit` computes where a tensor or an array of the array API standard is
    _has_units = True  # whether columns are what users measured; `Kernelized` turns it off for coordinates of a kernel
    _solve: Callable[..., Array | Solution]
    _strategy = "accuracy"  # of the threshold that is calibrated on the user's pairs
    max_iter: int
    tol: float
    n_features_in_: int

    def __new__(cls: type[Self], *args: Any, **given: Any) -> Self:
        settings.refuse_unknown(cls, given)
        return super().__new__(cls)

    def _fit(self: Self, X: AnyArray, y: AnyArray | None = None, **given: Any) -> Self:
        """Validate the input, collect the supervision, solve, and store the result. Every public `fit` calls this.

        The attributes of an earlier fit stay unchanged until there is a solution.
        """
        with error_context(self):
            settings.check_settings(self)
            supervised = self._supervise(X, y, **given)
            checks.squares_are_numbers(supervised.X)
            marks = mark_training_rows(self, supervised.X, y)  # before the workspace overwrites the rows
            work = replace(self._prepared(supervised), classes=supervised.classes)
            self._check_search(work, features=supervised.X.shape[1])
            solution = self._solve(work.rows, *supervised.known, work=work)
            self._store(solution, work, dtype=supervised.X.dtype)
            self._training_marks = marks
            if supervised.pairs is not None:
                # the user's X, and not the checked rows, because it has the names of its columns
                rows = X if supervised.points is None else supervised.points
                self._calibrate(rows, supervised.pairs)
        return self

    def _supervise(self, X: AnyArray, y: AnyArray | None, **given: Any) -> Supervised:
        """Check the user's rows and supervision, and return both."""
        raise NotImplementedError

    @property
    def _in_deviations(self) -> bool:
        """Whether columns are divided by units of their own, so that a prior does not depend on those of the user."""
        return False

    def _prepared(self, supervised: Supervised) -> Workspace:
        """Return what `_solve` works on."""
        return self._workspace(supervised.X, supervised.order)

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        """Return the rows that `_solve` works on; if they were sorted (`order` is given), X may be overwritten."""
        raise NotImplementedError

    def _check_search(self, work: Workspace, features: int) -> None:
        """Check `n_components`, `max_iter` and `tol`, which most learners have, for a problem of this dimension."""
        spanned = None if work.basis is None else features
        check_n_components(getattr(self, "n_components", None), work.rows.shape[1], spanned)
        checks.counts(1, max_iter=getattr(self, "max_iter", 1))
        checks.at_least(0, tol=getattr(self, "tol", 0.0))

    def _store(self, found: Array | Solution, work: Workspace, dtype: Any) -> None:
        """Set the fitted attributes instead of those of an earlier fit, and warn if the stopping rule was not met."""
        solution = found if isinstance(found, Solution) else Solution(found)
        # a search whose objective is NaN ends at its start
        if not np.isfinite(solution.x).all() or np.isnan(solution.value):
            raise ValueError("the solution is not finite; scale the features or regularize more")
        fitted = {**work.attributes, **self._learned_map(solution.x, work, dtype)}
        fitted |= {"n_iter_": solution.n_iter, "converged_": solution.converged, "objective_": solution.objective}
        fitted |= {f"{name}_": value for name, value in solution.attributes.items()}
        for name, value in (("duality_gap_", solution.duality_gap), ("history_", solution.history)):
            if value is not None:
                fitted[name] = value
        # delete the results of an earlier fit that this fit does not set again
        for name in [name for name in vars(self) if is_fitted_name(name)]:
            delattr(self, name)
        for name, value in fitted.items():
            setattr(self, name, value)
        warn_if_degenerate(fitted.get("components_"), work.rows)
        if not solution.converged and solution.message:  # a step of a stream has no stopping rule
            warn(f"{type(self).__name__}: {solution.message}", ConvergenceWarning)

    def _learned_map(self, components: Array, work: Workspace, dtype: Any) -> dict[str, Any]:
        """Return the fitted attributes that `transform` needs."""
        return {"components_": np.ascontiguousarray(components, dtype=dtype)}

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        """Set the threshold of `predict` to the best one on the given pairs, by the `_strategy` of the class."""
        if pairs.similar.any() and not pairs.similar.all():
            distance = self._distances(device_arrays.to_host(self.transform(X)), pairs.i, pairs.j)
            self.threshold_ = thresholds.calibrate(distance, pairs.similar, self._strategy, weight=pairs.weight)

    def _rows(self, X: AnyArray, y: AnyArray | None = None, reset: bool = True, least: int | None = None) -> Any:
        """Check X (and y) as scikit-learn does, and return them in float32 or float64.

        X must have at least `least` rows: by default 2 for a fit, which resets `n_features_in_`, and otherwise 1.
        """
        if least is None:
            least = 2 if reset else 1
        checks.require_plain(X)
        if not reset and "table" in self.takes:
            return self._encoded_rows(X, least)
        if issparse(X) and not self._takes_sparse:
            raise TypeError(self._sparse_refusal(X.shape))
        if self._passes(X, y, reset, least):
            self.n_features_in_ = X.shape[1]
            if y is None:
                return X
            return X, y
        if self._fits_on_device and device_arrays.is_device_array(X):
            return self._rows_on_device(X, y, reset, least)
        return self._checked_rows(device_arrays.require_host(X), y, reset, least)

    def _rows_on_device(self, X: Any, y: AnyArray | None, reset: bool, least: int) -> Any:
        """Return checked rows that stay on their device, and checked labels."""
        rows = device_arrays.checked_rows(X, least, None if reset else int(self.n_features_in_))
        if reset:
            self.n_features_in_ = rows.shape[1]
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        if y is None:
            return rows
        y = column_or_1d(y, warn=True)
        check_consistent_length(rows, y)
        return rows, y

    def _checked_rows(self, X: AnyArray, y: AnyArray | None, reset: bool, least: int) -> Any:
        """Return rows (and y) as scikit-learn's checks do, with an error that names the columns without numbers."""
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": reset, "ensure_min_samples": least}
        if self._takes_sparse:
            options["accept_sparse"] = "csr"
        try:
            if dates_in(X):
                raise TypeError("dates are no numbers")
            return validate_data(self, X, **options) if y is None else validate_data(self, X, y, **options)
        except (TypeError, ValueError) as error:
            # the error of scikit-learn names a cell; what helps is the column
            columns = without_numbers(X)
            if not columns:
                raise
            first = ", ".join(map(repr, columns[:3]))
            hint = "encode them first: make_pipeline(nearfar.estimators.TableEncoder(), ...) does"
            raise ValueError(
                f"X: {count_of(len(columns), 'column')} with values that are not numbers ({first}); {hint}"
            ) from error

    def _encoded_rows(self, X: AnyArray, least: int) -> Any:
        """Return the rows of a data frame encoded, or checked rows that are encoded already."""
        if hasattr(X, "columns"):
            assert self.encoder is not None
            X = self.encoder.transform(X)
        with nameless():
            return validate_data(self, X, dtype=[np.float64, np.float32], reset=False, ensure_min_samples=least)

    def _sparse_refusal(self, shape: tuple[int, ...]) -> str:
        """Return the message for sparse rows of this shape, which the learner does not take."""
        hint = f"pass X.toarray(), or use a learner that takes sparse rows, such as {SPARSE_LEARNERS}"
        return f"{type(self).__name__}: X must be dense; got a sparse matrix of shape {shape}; {hint}"

    def _passes(self, X: AnyArray, y: AnyArray | None, reset: bool, least: int) -> bool:
        """Return whether scikit-learn's checks, which take longer than a small fit, would return X and y unchanged."""
        if not is_plain(X) or hasattr(self, "feature_names_in_"):
            return False
        if y is not None and not is_plain_labels(y, len(X)):
            return False
        if reset:
            return len(X) >= least
        return X.shape[1] == getattr(self, "n_features_in_", None)

    def _labeled(self, X: AnyArray, y: AnyArray | None, unlabeled: Any = None, needs: str = "") -> Labeled:
        """Return checked rows, sorted by their values, with their label codes.

        The result of a fit therefore depends neither on the order of the rows nor on the names of the classes.
        """
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None{needs}")
        given = as_array(y, "y")
        X, y, codes = self._coded(X, y, unlabeled)
        if unlabeled is not None:
            warn_of_no_mark(codes, unlabeled)
        checks.require_discrete(y)
        order = self._order(X)
        # renumber the classes by their first appearance in this order
        numbers, labels = checks.encode(codes[order], unlabeled=-1)
        # one row of each class 0, 1, ...; np.unique puts the code -1 first, and the slice leaves it out
        first = np.unique(codes, return_index=True)[1][-len(numbers) :]
        return Labeled(X[order], labels, order, given[first][numbers])

    def _coded(
        self, X: AnyArray, y: AnyArray, unlabeled: Any, reset: bool = True, least: int | None = None
    ) -> tuple[AnyArray, AnyArray, Ints]:
        """Return checked rows and labels, and the labels' codes 0, 1, ..., with -1 for rows without a label."""
        checks.require_same_type(y, unlabeled)
        y = as_array(y, "y")
        names = checks.numbered(y, unlabeled)
        if names is not y and unlabeled is not None:
            unlabeled = -1  # `numbered` has written -1 for it
        X, y = self._rows(X, names, reset=reset, least=least)
        y = np.asarray(y)
        if unlabeled is None:
            warn_of_minus_one(y)
        return X, y, checks.encode(y, unlabeled)[1]

    def _streamed(self, X: AnyArray, y: AnyArray, unlabeled: Any = None) -> tuple[AnyArray, Ints, bool]:
        """Return the next rows of a stream, their label codes and whether they are its first; checked as for `fit`."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        first = not hasattr(self, "components_")
        settings.check_settings(self)
        X, _, labels = self._coded(X, y, unlabeled, reset=first)
        checks.require_classes(labels)
        check_n_components(getattr(self, "n_components", None), X.shape[1])
        return X, labels, first

    def _store_step(self, found: Solution, rows: Array, X: AnyArray, y: AnyArray, first: bool) -> None:
        """Store the components after a step of a stream on these rows, and add the marks of X and y to earlier ones."""
        earlier_marks = None if first else self._training_marks
        self._store(found, Workspace(rows), dtype=X.dtype)
        self._training_marks = mark_training_rows(self, X, y, after=earlier_marks)

    def _order(self, X: AnyArray) -> Ints:
        """Return an order of the rows that does not depend on the order in which they were given."""
        return row_order(X)

    def _found_before(self, name: str, work: Workspace) -> Any:
        """Return another result of the last fit by its name, if the workspace has that fit's components; else None."""
        if work.last is None:
            return None
        return getattr(self, name, None)

    def _last_components(self) -> Array | None:
        """Return the last fit's components under `warm_start` if their number of columns still fits, else None."""
        if not getattr(self, "warm_start", False):
            return None
        last = getattr(self, "components_", None)
        if not isinstance(last, np.ndarray) or last.shape[1] != self.n_features_in_:
            return None
        return np.asarray(last, dtype=np.float64)

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
        tags.input_tags.sparse = self._takes_sparse
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def nonzero(deviations: Array, means: Array, dtype: Any = np.float64) -> Array:
    """Return standard deviations (d,), and 1 for columns of this type that are constant but for rounding."""
    return np.where(constant(deviations, means, dtype), 1.0, deviations)


def codes_of(known: Any, n: int) -> Ints:
    """Return the group (n,) of each row: its class or chunklet, or the rows that similar pairs connect; -1 for none."""
    if isinstance(known, Pairs):
        return groups(known, n)
    codes = np.asarray(getattr(known, "labels", known))
    return codes.argmax(axis=1) if codes.ndim == 2 else codes  # of memberships, the largest


def shares_of_sums(sums: ClassMoments, deviations: Array) -> Array:
    """Return `mahalanobis.shares_of_rows` from the sums over the groups of rows, which are not standardized."""
    within = np.diag(sums.within) / deviations**2
    means = (sums.mean - sums.center) / deviations
    return mahalanobis.class_shares(sums.count, within, sums.count @ means**2)


class Mahalanobis(MetricLearner):
    """Base class of learners of a linear metric: d(a, b) = |L (a - b)| with L = `components_` of shape (k, d).

    With ``_span = True``, a subclass works in the span of the differences between rows if d > n, so that no d x d
    matrix is formed: `_solve` gets rows of shape (n, r) with r < n, and M is 0 along the directions in which no two
    rows differ. With ``_span = "full"``, M is a multiple of the identity there, unless at most r components are
    requested: `_solve` gets one column of zeros more, which represents each of these directions.
    """

    _center = True
    _span: Any = False

    def _weighs_columns(self, n: int, d: int) -> bool:
        """Whether n rows of d columns, divided by their deviations, are weighted by what the class means explain."""
        return True

    def _units_of_sums(self, sums: ClassMoments) -> Array:
        """Return what columns are divided by (d,), as for rows, from the sums over their groups."""
        units = nonzero(np.sqrt(np.maximum(np.diag(sums.total), 0.0) / sums.n), sums.center)
        if self._weighs_columns(int(sums.n), len(units)):
            units = units / np.sqrt(shares_of_sums(sums, units))
        return units

    def _prepared(self, supervised: Supervised) -> Workspace:
        if not (self._has_units and self._in_deviations):
            return super()._prepared(supervised)
        codes = codes_of(supervised.known[0], len(supervised.X))
        X = np.asarray(supervised.X, dtype=np.float64)
        counted, codes = scatter.known(X, codes)  # rows without a label do not count
        units = nonzero(counted.std(axis=0), counted.mean(axis=0), supervised.X.dtype)
        if self._weighs_columns(*counted.shape):
            units = units / np.sqrt(mahalanobis.shares_of_rows(counted / units, codes))
        work = self._workspace(X / units, supervised.order)
        last = self._last_components()
        if last is not None:
            last = in_coordinates(last * units, work.basis)
        return replace(work, units=units, last=last)

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        if order is None:
            R = np.array(X, dtype=np.float64, order="C")  # a copy: X is the user's
        else:
            R = np.ascontiguousarray(X, dtype=np.float64)
        if self._center:
            R -= R.mean(axis=0)
        last = self._last_components()
        if not self._span or R.shape[1] <= len(R):
            return Workspace(R, order, last=last)
        basis = self._coordinates(scatter.data_span(R))
        if basis is None:
            return Workspace(R, order, last=last)
        return Workspace(
            R @ basis.T, order, basis=basis, repeats=self._repeats(basis), last=in_coordinates(last, basis)
        )

    def _repeats(self, basis: Array | None) -> int:
        """Return the `Workspace.repeats` of coordinates."""
        if basis is None or not self._keeps_all:
            return 0
        return int(basis.shape[1] - len(basis))

    @property
    def _keeps_all(self) -> bool:
        """Whether M is a multiple of the identity outside of the span of the rows, instead of 0."""
        return self._span == "full" and getattr(self, "n_components", None) is None

    def _coordinates(self, span: Array) -> Array | None:
        """Return orthonormal coordinates for the `span` (r, d) of the rows, or None if they are all features."""
        if self._span == "full" and (getattr(self, "n_components", None) or 0) > len(span):
            return None
        if self._keeps_all:
            return scatter.with_direction_outside(span)
        if len(span) == 0:
            return np.eye(1, span.shape[1])
        return span

    def _learned_map(self, components: Array, work: Workspace, dtype: Any) -> dict[str, Any]:
        if work.basis is not None:
            if self._keeps_all:
                # the last coordinate represents all directions outside of the span
                outside = float(np.linalg.norm(components[:, -1]))
                components = psd.beside_identity(components[:, :-1], work.basis[:-1], outside)
            else:
                components = components @ work.basis
        if work.units is not None:
            components = components / work.units
        return super()._learned_map(components, work, dtype)

    def transform(self, X: AnyArray) -> AnyArray:
        """Return ``X @ components_.T``: Euclidean distances between the transformed rows are the learned distances.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows to transform.

        Returns
        -------
        ndarray of shape (n, k)
            Transformed rows. For a tensor of PyTorch or an array of the array API standard, a tensor or an array on the
            same device.
        """
        check_is_fitted(self)
        with error_context(self):
            if device_arrays.is_device_array(X):
                rows = device_arrays.checked_rows(X, 1, self.n_features_in_)
                return rows @ device_arrays.on_device_of(rows, self.components_, rows.dtype).T
            return self._rows(X, reset=False) @ self.components_.T

    def get_mahalanobis_matrix(self) -> AnyArray:
        """Return M = components_' components_ of shape (d, d); the squared distance is (a - b)' M (a - b)."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def get_metric(self) -> Callable[..., float]:
        """Return the learned distance as a function of two points, as ``KNeighborsClassifier(metric=...)`` takes it."""
        check_is_fitted(self)
        if self.distance_ != "euclidean":
            return PointDistance(self)
        return LinearDistance(np.asarray(self.components_, dtype=np.float64))


def in_coordinates(L: Array | None, basis: Array | None) -> Array | None:
    """Return components in the coordinates `basis` (r, d), with at most r rows; L itself without a basis."""
    if L is None or basis is None:
        return L
    inside = L @ basis.T
    if len(inside) > len(basis):
        return np.asarray(np.linalg.qr(inside, mode="r"))  # the same metric
    return inside


def is_fitted_name(name: str) -> bool:
    """Return whether this is the name of a result of a fit, and not of the number or the names of the features."""
    of_rows = ("n_features_in_", "feature_names_in_")
    return name.endswith("_") and not name.startswith("_") and name not in of_rows
