"""Learners whose solution follows from sums over rows: weights of rows, parts, sparse rows, Dask, other devices.

A closed form that needs only the count, the mean and the scatter of each class (`numerics.class_sums`)
inherits `LabelSums`, `PairSums` or `ChunkletSums` instead of `FromLabels`, `FromPairs` or `FromChunklets`, and solves
from these sums as well as from rows::

    def _solve_sums(self, sums, rows, work):       # classes 0..c-1; all rows, also those without a label, as one class
        return self._from_scatters(class_sums.pair_scatters(sums, self.weighting))

If points are matrices, `sums` are of each column of each class, and ``work.extra`` is the number of columns.

Plain dense arrays without weights take the path of every learner, through `_solve`. `_needs_rows` names the setting for
which sums are not enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

from .. import settings
from ..fit_warnings import warn
from ..io.training_marks import TrainingMarks
from ..labels import as_array
from ..numerics import checks, class_sums, device_arrays
from ..numerics.class_sums import ClassMoments
from ..numerics.optimize import Solution
from ..numerics.types import AnyArray, Array, Ints
from . import dask_collections
from .base import FromChunklets, FromLabels, FromPairs
from .mahalanobis import Mahalanobis, MetricLearner, Self, Workspace, in_coordinates
from .validation import error_context, mark_training_rows, with_signature_hint

WRITTEN_OUT_VALUES = 1 << 16
"""Most values of a table that is written out as dense rows, which are repeated by their weights. The result then equals
that of the dense table bit for bit, even if eigenvalues coincide and only rounding decides between directions."""

ALL_ROWS = "all rows"  # the one class of a learner that takes no labels


@dataclass(frozen=True)
class RowSums:
    """Sums over the rows that a learner has seen.

    Attributes
    ----------
    classes : tuple
        Labels of the classes of `sums`, as the user gave them.
    sums : ClassMoments
        Sums over the labeled rows, by class. If points are matrices, sums over each column in each class: column k of
        class c is stored at c q + k.
    others : ClassMoments
        Sums over the rows without a label, as one class.
    marks : TrainingMarks or None
        Marks of the training rows; None if rows are on a device, where they stay.
    dtype : dtype
        Data type of the rows.
    columns : int
        Number q of columns of each matrix; 1 if points are rows.
    """

    classes: tuple[Any, ...]
    sums: ClassMoments
    others: ClassMoments
    marks: TrainingMarks | None
    dtype: Any
    columns: int = 1

    @property
    def rows(self) -> ClassMoments:
        """Sums over all rows as one class, including those without a label."""
        if self.others.n == 0:
            return self.sums.together()
        if self.sums.n == 0:
            return self.others
        return class_sums.added(self.sums.together(), self.others)

    def joined(self, other: RowSums) -> RowSums:
        """Return the sums over the rows of both."""
        if self.columns != other.columns:
            raise ValueError(f"X must hold points of {self.columns} columns, like the first part; got {other.columns}")
        if self.sums.per_class != other.sums.per_class:
            raise ValueError("settings must not change between parts; call partial_fit on a new learner instead")
        # classes of the other part that are known here keep their place; new ones follow
        places = {name: k for k, name in enumerate(self.classes)}
        new = [name for name in other.classes if name not in places]
        classes = (*self.classes, *new)
        places |= {name: len(self.classes) + k for k, name in enumerate(new)}
        here = self._placed(np.arange(len(self.classes)), len(classes))
        marks = None
        if self.marks is not None and other.marks is not None:
            marks = self.marks.joined(other.marks)
        there = other._placed(np.array([places[name] for name in other.classes], int), len(classes))
        return RowSums(
            classes=classes,
            sums=class_sums.added(here, there),
            others=class_sums.added(self.others, other.others),
            marks=marks,
            dtype=np.result_type(self.dtype, other.dtype),
            columns=self.columns,
        )

    def _placed(self, places: Ints, classes: int) -> ClassMoments:
        """Return the sums with class k at places[k] of so many classes."""
        q = self.columns
        return class_sums.placed(self.sums, (places[:, None] * q + np.arange(q)).ravel(), classes * q)

    @property
    def count(self) -> Array:
        """The number of rows of each class, or the sum of their weights (c,)."""
        return self.sums.count[:: self.columns]


class FromSums(MetricLearner):
    """Base class of learners that need only sums over the rows; use one of its subclasses."""

    _labels_read = True
    _fits_on_device = True
    _sums: RowSums | None = None  # over the rows of all calls of `partial_fit`
    _solve_sums: Callable[..., Solution]

    @property
    def _needs_rows(self) -> str:
        """The setting, in words, for which sums over rows are not enough; "" if they are."""
        return ""

    @property
    def _per_class(self) -> bool:
        """Whether the scatter of each class is needed, and not only their sum."""
        return False

    @property
    def _takes_sparse(self) -> bool:  # type: ignore[override]  # it depends on the settings
        return not self._needs_rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")  # the first parts may hold too few rows for a solution

    def _sparse_refusal(self, shape: tuple[int, ...]) -> str:
        fix = f"pass X.toarray(), or change {self._needs_rows}, which needs dense rows"
        return f"{type(self).__name__}: X must be dense; got a sparse matrix of shape {shape}; {fix}"

    def _fit(self: Self, X: Any, y: Any = None, *, sample_weight: Any = None, **given: Any) -> Self:
        if sample_weight is not None:
            what = "sample_weight"
        elif is_sparse(X) and not self._needs_rows:
            what = "sparse X"
        elif dask_collections.is_collection(X):
            what = "a Dask collection"
        elif self._are_summed_on_device(X, given):
            what = "a tensor or array on a device"
        else:
            with error_context(self):
                X = device_arrays.require_host(X)
            super()._fit(X, y, **given)
            self._sums = None
            return self
        with error_context(self):
            settings.check_settings(self)
            self._require_sums(what, given)
            # a small table is fitted as dense rows, to the same bits as without weights
            table = written_out(X, y, sample_weight)
            if table is not None:
                super()._fit(*table, **given)
                self._sums = None
                return self
            found = self._summed(X, y, sample_weight, given.get("unlabeled"), reset=True)
            # unlike `partial_fit`, `fit` cannot wait for more rows
            lacking = self._lacking(found)
            if lacking:
                raise ValueError(lacking)
            self._learn(found)
            self._sums = None
        return self

    @with_signature_hint
    def partial_fit(self: Self, X: Any, y: Any = None, *, sample_weight: Any = None, unlabeled: Any = None) -> Self:
        """Learn from one more part of a table: the parts, in any order, give the result of `fit` on the whole table.

        Between calls, only sums are kept: the count, the mean and the scatter of each class. The learner stays
        unfitted until the parts hold enough data (for example, two classes). The sums are not kept by `fit` nor saved
        to files, so the first call after either starts over, with a warning.

        Parameters
        ----------
        X : array-like, or CSR, of shape (n, d)
            Rows of this part, at least one.
        y : array-like of shape (n,)
            Class labels of any kind.
        sample_weight : array-like of shape (n,), optional
            Number of times that each row counts, at least 0: a weight of 2 has the same effect as passing the row
            twice. By default, every row counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The learner, fitted to all parts so far if they are sufficient.
        """
        with error_context(self):
            settings.check_settings(self)
            self._require_sums("partial_fit", {})
            if self._sums is None and hasattr(self, "components_"):
                # sums that `fit` did not keep cannot be continued
                held = "this learner was fitted by fit or loaded from a file, and holds no sums to continue from"
                warn(f"{held}; partial_fit starts over with this part")
            found = self._summed(X, y, sample_weight, unlabeled, reset=self._sums is None)
            if self._sums is not None:
                found = self._sums.joined(found)
            # the first parts may hold one class only: their sums wait for more
            if not self._lacking(found):
                self._learn(found)
            self._sums = found
        return self

    def _are_summed_on_device(self, X: Any, given: dict[str, Any]) -> bool:
        """Return whether X are rows on a device, and sums over classes are enough for the settings and arguments."""
        on_device = device_arrays.is_device_array(X) and X.ndim == 2
        return on_device and not self._needs_rows and not others_than_labels(given)

    def _require_sums(self, what: str, given: dict[str, Any]) -> None:
        """Raise a ValueError if a setting or an argument needs the rows themselves."""
        if self._needs_rows:
            raise ValueError(f"{what} cannot be used with {self._needs_rows}, which needs the rows themselves")
        refused = others_than_labels(given)
        if refused:
            raise ValueError(f"{what} requires labels y; got {refused[0]}= as well")

    def _summed(self, X: Any, y: Any, sample_weight: Any, unlabeled: Any, reset: bool) -> RowSums:
        """Check rows, labels and weights, and return their sums."""
        if not self._labels_read:
            y = None
        elif y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        on_device = device_arrays.is_device_array(X)
        if device_arrays.is_device_array(y):
            y = device_arrays.to_host(y)  # labels are few bytes
        if dask_collections.is_collection(X):
            self._rows(dask_collections.sample(X), reset=reset)
            return dask_collections.summed(self, X, y, sample_weight, unlabeled)
        if y is None:
            X = self._rows(X, reset=reset, least=1)
            codes = np.zeros(X.shape[0], dtype=np.intp)
            names: tuple[Any, ...] = (ALL_ROWS,)
        else:
            given = as_array(y, "y")
            X, y, codes = self._coded(X, y, unlabeled, reset=reset, least=1)
            checks.require_discrete(y)
            y = np.ravel(given)
            first = np.unique(codes[codes >= 0], return_index=True)[1]
            names = tuple(y[codes >= 0][first].tolist())
        weight = None
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, X.shape[0])
            # a weight of 0 is no row: it must not add a class, nor a training row that scores leave out
            keep = np.flatnonzero(weight > 0)
            X = device_arrays.rows_at(X, keep) if on_device else X[keep]
            if y is not None:
                y = y[keep]
            codes = codes[keep]
            weight = weight[keep]
        # rows without a label, as one class of their own
        others = np.where(codes < 0, 0, -1)
        points = self._points(X)
        marks = None if on_device else mark_training_rows(self, X, y)
        dtype = device_arrays.host_type(X)
        if points.ndim == 3:
            sums = class_sums.column_sums(points, codes, weight, classes=len(names))
            unknown = class_sums.column_sums(points, others, weight, classes=1)
            return RowSums(classes=names, sums=sums, others=unknown, marks=marks, dtype=dtype, columns=points.shape[2])
        return RowSums(
            classes=names,
            sums=class_sums.class_sums(points, codes, weight, classes=len(names), per_class=self._per_class),
            others=class_sums.class_sums(points, others, weight, classes=1, per_class=False),
            marks=marks,
            dtype=dtype,
        )

    def _points(self, X: Any) -> Any:
        """Return the points to sum: the rows, or a vector or a matrix (d, q) computed from each row."""
        return X

    def _lacking(self, found: RowSums) -> str:
        """Return a message that states what the rows lack for a solution, or "" if they lack nothing."""
        if found.sums.n + found.others.n == 0:
            return "sample_weight is zero for every row; at least one weight must be above 0"
        if not self._labels_read:
            if found.rows.n > 1:
                return ""
            return "X holds one row (a row counts as its weight), which has no spread; pass at least two"
        try:
            checks.require_weighted_classes(found.count[found.count > 0])
        except ValueError as error:
            return str(error)
        return ""

    def _learn(self, found: RowSums) -> None:
        """Solve from the sums and set the fitted attributes."""
        sums = found.sums.known
        rows = found.rows
        d = len(rows.center)
        basis = None
        last = self._last_components()
        units = None
        if self._has_units and self._in_deviations:
            units = self._units_of_sums(sums)
            sums = sums.divided(units)
            rows = rows.divided(units)
            last = None if last is None else last * units
        if getattr(self, "_span", False) and d > rows.n:
            # fewer rows than features: solve in their span, as `fit` does with dense rows
            basis = self._coordinates(rows.span())
        if basis is not None:
            sums = sums.projected(basis)
            rows = rows.projected(basis)
            last = in_coordinates(last, basis)
        spread = np.sqrt(np.maximum(np.diag(rows.total), 0.0) / rows.n)
        two = np.stack([-spread, spread])  # two rows with the spread of all rows, for the checks of `_store`
        work = Workspace(two, basis=basis, repeats=self._repeats(basis), units=units, last=last, extra=found.columns)
        self._check_search(work, features=d)
        self._store(self._solve_sums(sums, rows, work), work, dtype=found.dtype)
        self._training_marks = found.marks


class LabelSums(FromSums, FromLabels, Mahalanobis):
    """Learners from labels whose solution needs only sums: `fit(X, y, sample_weight=...)` and `partial_fit`."""

    @with_signature_hint
    def fit(
        self: Self, X: Any, y: AnyArray | None = None, *, sample_weight: AnyArray | None = None, unlabeled: Any = None
    ) -> Self:
        """Learn from labeled rows.

        Parameters
        ----------
        X : array-like, CSR, Dask collection, tensor or array of the array API standard, shape (n, d)
            Training rows. Those on another device are summed there.
        y : array-like of shape (n,)
            Class labels of any kind.
        sample_weight : array-like of shape (n,), optional
            Number of times that each row counts, at least 0: a weight of 2 has the same effect as passing the row
            twice. By default, every row counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(X, y, sample_weight=sample_weight, unlabeled=unlabeled)


class PairSums(FromSums, FromPairs, Mahalanobis):
    """Learners that use all pairs implied by labels: `fit(X, y, sample_weight=...)` and `partial_fit`."""

    n_pairs: int | str | None
    weighting: str

    @property
    def _needs_rows(self) -> str:
        return "" if self.n_pairs == "all" else f"n_pairs={self.n_pairs!r}"

    @property
    def _per_class(self) -> bool:
        return True

    @with_signature_hint
    def fit(
        self: Self,
        X: Any,
        y: AnyArray | None = None,
        *,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        pair_weights: AnyArray | None = None,
        conflicts: str | None = None,
        rows: AnyArray | None = None,
        sample_weight: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> Self:
        """Learn from labeled rows, from pairs of rows, or from pairs of points.

        Parameters
        ----------
        X : array-like, CSR, Dask collection, tensor or array of the array API standard, shape (n, d); or (m, 2, d)
            Training rows, or pairs of points. Sparse rows, Dask collections and rows on another device require labels.
        y : array-like of shape (n,), or (m,), optional
            Class labels of the rows, which are ignored if `pairs` is given. For pairs of points, +1 for similar pairs
            and -1 for dissimilar pairs.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X.
        pair_labels : array-like of shape (m,), optional
            +1 for similar pairs and -1 for dissimilar pairs. By default, all pairs are similar.
        pair_weights : array-like of shape (m,), optional
            Weights of the pairs, at least 0. By default, all weights are 1.
        conflicts : {"raise", "keep", "drop"}, optional
            What to do if annotators disagree, so that a pair has both labels: raise an error, use it with both labels,
            or leave it out. By default, "raise" for pairs of row numbers, and "keep" for pairs of points, because
            different items can have equal points.
        rows : array-like of shape (n,), optional
            Number that `pairs` uses for each row of X, by default 0 to n - 1. Pairs with other numbers are left out,
            so that the same list can be passed to every fold of a grid search (route ``rows=np.arange(n)`` along with
            it).
        sample_weight : array-like of shape (n,), optional
            Number of times that each labeled row counts, at least 0: a weight of 2 has the same effect as passing the
            row twice. By default, every row counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(
            X,
            y,
            pairs=pairs,
            pair_labels=pair_labels,
            pair_weights=pair_weights,
            conflicts=conflicts,
            rows=rows,
            sample_weight=sample_weight,
            unlabeled=unlabeled,
        )


class ChunkletSums(FromSums, FromChunklets, Mahalanobis):
    """Learners for which each class is one chunklet: `fit(X, y, sample_weight=...)` and `partial_fit`."""

    n_chunklets: int | None

    @property
    def _needs_rows(self) -> str:
        return "" if self.n_chunklets is None else f"n_chunklets={self.n_chunklets!r}"

    @with_signature_hint
    def fit(
        self: Self,
        X: Any,
        y: AnyArray | None = None,
        *,
        chunklets: AnyArray | None = None,
        negative_links: AnyArray | None = None,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        rows: AnyArray | None = None,
        sample_weight: AnyArray | None = None,
        unlabeled: Any = None,
    ) -> Self:
        """Learn from labeled rows, or from chunklets: small sets of rows that are known to be of the same class.

        Parameters
        ----------
        X : array-like, CSR, Dask collection, tensor or array of the array API standard, shape (n, d)
            Training rows. Sparse rows, Dask collections and rows on another device require labels.
        y : array-like of shape (n,), optional
            Class labels. Ignored if chunklets or pairs are given.
        chunklets : array-like of shape (n,), optional
            Number of the chunklet of each row, or -1 for rows that are in none.
        negative_links : array-like of shape (m, 2), optional
            Pairs of numbers of chunklets that are of different classes. By default, any two chunklets are of different
            classes.
        pairs : array-like of shape (m, 2), optional
            Pairs of row numbers of X, instead of chunklets. Rows that are connected by similar pairs form one
            chunklet.
        pair_labels : array-like of shape (m,), optional
            +1 for similar pairs and -1 for dissimilar pairs. By default, all pairs are similar.
        rows : array-like of shape (n,), optional
            Number that `pairs` uses for each row of X, by default 0 to n - 1. Pairs of other rows, and links to
            chunklets of other rows, are left out, so that the same list can be passed to every fold of a grid search
            (route ``rows=np.arange(n)`` along with it).
        sample_weight : array-like of shape (n,), optional
            Number of times that each labeled row counts, at least 0: a weight of 2 has the same effect as passing the
            row twice. By default, every row counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        return self._fit(
            X,
            y,
            chunklets=chunklets,
            negative_links=negative_links,
            pairs=pairs,
            pair_labels=pair_labels,
            rows=rows,
            sample_weight=sample_weight,
            unlabeled=unlabeled,
        )


def others_than_labels(given: dict[str, Any]) -> list[str]:
    """Return the names of the arguments of a fit that hold other supervision than labels."""
    return [name for name, value in given.items() if name != "unlabeled" and value is not None]


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse matrix or array, or a data frame whose columns are all sparse."""
    return issparse(X) or hasattr(X, "sparse")


def written_out(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any] | None:
    """Return a small dense table with rows repeated by integer weights; None for large tables or other weights.

    Invalid arguments are left to the checks of `fit`.
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2 or dask_collections.is_collection(X) or device_arrays.is_device_array(X):
        return None
    if shape[0] * shape[1] > WRITTEN_OUT_VALUES:
        return None
    if issparse(X):
        X = X.toarray()
    elif is_sparse(X):
        X = X.sparse.to_dense()
    if sample_weight is None:
        return X, y
    weight = check_sample_weight(sample_weight, shape[0])
    if (weight != np.floor(weight)).any() or weight.sum() * shape[1] > WRITTEN_OUT_VALUES or weight.sum() == 0:
        return None
    rows = np.repeat(np.arange(shape[0]), weight.astype(np.intp))
    if y is not None:
        y = _safe_indexing(np.asarray(y), rows)
    return _safe_indexing(X, rows), y


def check_sample_weight(sample_weight: Any, n: int) -> Array:
    """Return the weights (n,) of rows in float64; raise unless they are finite and at least 0."""
    needs = f"sample_weight must hold one number per row of X, shape ({n},)"
    if device_arrays.is_device_array(sample_weight):
        sample_weight = device_arrays.to_host(sample_weight)
    weight = checks.table(sample_weight, needs)
    if weight.shape != (n,):
        raise ValueError(f"{needs}; got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight must hold finite numbers >= 0; some are negative, NaN or infinite")
    return weight
