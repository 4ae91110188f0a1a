"""Validation of what a learner is given: rows, labels and settings, and errors that name the learner."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper, wraps
from inspect import signature
from types import MethodType
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ..fit_warnings import LEARNER, warn
from ..io.training_marks import TrainingMarks
from ..numerics import checks
from ..numerics.types import AnyArray, Ints
from ..trust import TrustError

Method = TypeVar("Method", bound=Callable[..., Any])

WIDE_FEATURES = 3000  # number of features above which a d x d matrix may not fit into memory
# messages of SciPy and Python about overflows inside a computation, which name no argument of the user
OVERFLOWS = ("array must not contain infs or NaNs", "Numerical result out of range")


HAS_NAN = "Input X contains NaN"


@contextmanager
def error_context(estimator: object) -> Iterator[None]:
    """Prefix every ValueError, warning, overflow and MemoryError raised inside with the name of the estimator."""
    name = type(estimator).__name__
    before = LEARNER.set(name)
    try:
        yield
    except (NotFittedError, TrustError):
        raise
    except MemoryError as error:
        d = getattr(estimator, "n_features_in_", 0)
        if d < WIDE_FEATURES or str(error).startswith(name):
            raise
        needs = f"a matrix of {d} x {d} features takes {8e-9 * d * d:.2g} GB, and {name} may need several"
        hint = "use fewer features; PCA(len(X) - 1) loses nothing of the rows if they are fewer than the features"
        raise MemoryError(f"{name}: {str(error) or 'out of memory'}; {needs}; {hint}") from error
    except (ValueError, OverflowError) as error:
        text = str(error)
        if text.startswith(name):
            raise
        # what NumPy says of an intermediate result means nothing to a reader
        if any(words in text for words in OVERFLOWS):
            text = "values became infinite or zero during the computation; scale the features of X (or the weights)"
        elif isinstance(error, np.linalg.LinAlgError):
            text = f"a matrix of the computation became singular ({text}); scale the features, or regularize more"
        elif isinstance(error, OverflowError):
            raise
        elif text.startswith(HAS_NAN):  # scikit-learn adds a paragraph on its own estimators
            text = (
                f"{HAS_NAN}; fill the missing cells first: make_pipeline(nearfar.estimators.TableEncoder(), ...) does"
            )
        raise ValueError(f"{name}: {text}") from error
    finally:
        LEARNER.reset(before)


class _Available:
    """A method that exists only on fitted estimators that pass a check."""

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], None]) -> None:
        update_wrapper(cast(Any, self), method)
        self.method = method
        self.check = check

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self.method
        check_is_fitted(estimator)
        try:
            self.check(estimator)
        except AttributeError as error:
            raise AttributeError(f"{type(estimator).__name__}.{self.method.__name__}: {error}") from None
        return MethodType(self.method, estimator)


def available_with(check: Callable[[Any], None]) -> Callable[[Method], Method]:
    """Return a decorator of methods that a fitted estimator has only if `check` raises no AttributeError.

    Unlike with `available_if` of scikit-learn, users see the message of the check. An estimator that is not fitted
    raises a NotFittedError, which is an AttributeError, too.
    """

    def decorate(method: Method) -> Method:
        found: Any = _Available(method, check)
        return cast(Method, found)

    return decorate


def with_signature_hint(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `fit` so that its error for unexpected arguments names the learner and all arguments of its `fit`."""
    form = signature(fit)
    takes = list(form.parameters)[1:]

    @wraps(fit)
    def wrapper(self: Any, *args: Any, **named_ones: Any) -> Any:
        try:
            form.bind(self, *args, **named_ones)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.{fit.__name__} takes {', '.join(takes)}; {error}") from None
        try:
            return fit(self, *args, **named_ones)
        except ValueError as error:
            X = args[0] if args else named_ones.get("X")
            if self._matrices or "dim 3" not in str(error):  # three dimensions are not what is wrong
                raise
            hint = as_rows_and_numbers(X, takes)
            if hint:
                raise ValueError(f"{type(self).__name__}: {hint}") from error
            raise

    return wrapper


def as_rows_and_numbers(X: Any, takes: list[str]) -> str:
    """Return a hint on how to pass pairs or larger tuples of points to a `fit` that takes lists of row numbers."""
    shape = shape_of(X)
    if len(shape) == 3:
        word = {2: "pairs", 3: "triplets", 4: "quadruplets"}.get(shape[1])
    else:
        word = None
    if word not in takes:
        return ""
    m, size, d = shape
    also = " and their labels as pair_labels=" if word == "pairs" else ""
    numbers = f"{word}=np.arange({m * size}).reshape(-1, {size})"
    return f"X must be rows; got {word} of points, shape {shape}; pass X.reshape(-1, {d}), {numbers}{also}"


def shape_of(X: Any) -> tuple[int, ...]:
    """Return the shape of an array, or that of nested lists by their first entry; () if it is unknown.

    >>> shape_of([[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]])
    (1, 2, 3)
    """
    if hasattr(X, "shape"):
        shape: tuple[int, ...] = X.shape
        return shape
    if not isinstance(X, (list, tuple)) or len(X) == 0:
        return ()
    try:
        return (len(X), *np.shape(X[0]))
    except ValueError:  # lists of several lengths
        return ()


def holds_tuples(X: Any, size: int) -> bool:
    """Return whether X holds tuples of `size` points each, shape (m, size, d)."""
    shape = shape_of(X)
    return len(shape) == 3 and shape[1] == size


def rows_of_points(points: AnyArray) -> tuple[AnyArray, Ints]:
    """Return the distinct points as rows (n, d), and the row numbers of each tuple (m, size).

    A point that a pair or triplet holds twice has a second row: no pair joins a row with itself.

    Raises
    ------
    ValueError
        The points are not numbers, or differ in their number of features.

    >>> rows, numbers = rows_of_points(np.array([[[0.0, 1.0], [2.0, 3.0]], [[2.0, 3.0], [2.0, 3.0]]]))
    >>> rows.tolist(), numbers.tolist()
    ([[0.0, 1.0], [2.0, 3.0], [2.0, 3.0]], [[0, 1], [1, 2]])
    """
    needs = "X must hold tuples of points of as many numbers each"
    checks.require_plain(points)
    points = checks.table(points, needs, None)
    if points.dtype.kind not in "fiub":
        points = checks.table(points, needs)
    m, size, d = points.shape
    rows, numbers = np.unique(points.reshape(-1, d), axis=0, return_inverse=True)
    joined = numbers.reshape(m, -1, 2 if size == 4 else size)  # a quadruplet is two pairs, which may share a row
    for k in range(1, joined.shape[2]):
        last = joined[..., k]
        again = (joined[..., :k] == last[..., None]).any(axis=2)
        repeated, which = np.unique(last[again], return_inverse=True)
        last[again] = len(rows) + which
        rows = np.concatenate([rows, rows[repeated]])
    return rows, joined.reshape(m, size)


def dates_in(X: Any) -> list[str]:
    """Return the names of the columns of a table that hold dates or durations, which would count in nanoseconds."""
    if not hasattr(X, "columns"):
        return []
    kinds = zip(X.columns, getattr(X, "dtypes", ()), strict=False)
    # those of polars have no kind
    return [
        str(name) for name, kind in kinds if getattr(kind, "kind", "O") in "mM" or str(kind)[:4] in ("Date", "Dura")
    ]


def without_numbers(X: Any) -> list[str]:
    """Return the names of the columns of a table that hold anything but numbers."""
    if not hasattr(X, "columns"):
        return []
    dates = dates_in(X)
    found = []
    for name, kind in zip(X.columns, getattr(X, "dtypes", ()), strict=False):
        if str(name) in dates:
            found.append(str(name))
        elif getattr(kind, "kind", "O") not in "biuf":  # a column of numbers may miss values, but that is another error
            try:
                np.asarray(X[name], dtype=np.float64)
            except (TypeError, ValueError):
                found.append(str(name))
    return found


def warn_of_minus_one(y: AnyArray) -> None:
    """Warn if y holds the label -1 besides classes 0, 1, ..., because it often marks rows without a label."""
    if y.dtype.kind not in "if" or y.ndim != 1:
        return
    others = np.unique(y[y != -1])
    count = len(y) - int(np.count_nonzero(y != -1))
    if count and len(others) >= 2 and others[0] >= 0:
        warn(f"y: {count} of {len(y)} rows have the label -1, which counts as a class; pass unlabeled=-1 if it is none")


def warn_of_no_mark(codes: Ints, unlabeled: Any) -> None:
    """Warn if no row has the label that marks rows without one."""
    if (codes >= 0).all():
        warn(f"unlabeled={unlabeled!r} marks no row: no label in y equals it, so every row counts as labeled")


def is_plain(X: Any) -> bool:
    """Return whether X is a matrix of finite floats."""
    if type(X) is not np.ndarray or X.ndim != 2 or X.size == 0 or X.dtype not in (np.float64, np.float32):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


def is_plain_labels(y: Any, n: int) -> bool:
    """Return whether y is an array of n integers or booleans."""
    return type(y) is np.ndarray and y.shape == (n,) and y.dtype.kind in "biu"


def row_order(X: AnyArray) -> Ints:
    """Return an order of rows that depends only on their values (up to exact duplicates)."""
    weights = np.cos(np.arange(1.0, X.shape[1] + 1))
    return np.argsort(np.einsum("nd,d->n", X, weights), kind="stable")


def warn_if_degenerate(components: Any, X: AnyArray) -> None:
    """Warn if the metric is 0 although the training rows X differ."""
    if components is not None and not np.any(components) and (X[:1] != X).any():
        message = f"the metric and all distances are 0, although rows of size {np.abs(X).max():.3g} differ"
        warn(f"{message}; scale the features, or regularize less")


def check_n_components(n_components: int | None, d: int, features: int | None = None) -> None:
    """Raise a ValueError unless n_components is None or in 1..d, the number of directions in which the rows differ.

    `features` is the number of features, which the message states.
    """
    if n_components is None:
        return
    if not isinstance(n_components, numbers.Integral) or isinstance(n_components, bool) or not 1 <= n_components <= d:
        if features is None:
            reason = ""
        else:
            reason = f"; the rows of {features} features differ in only {d} directions"
        raise ValueError(f"n_components must be an integer in 1..{d} (or None); got {n_components!r}{reason}")


def mark_training_rows(learner: object, X: AnyArray, y: Any, after: TrainingMarks | None = None) -> TrainingMarks:
    """Return the marks of checked rows and of their classes, together with those of rows that came before."""
    names = getattr(learner, "feature_names_in_", ())
    marks = TrainingMarks.of_rows(X, y, columns=map(str, names))
    if after is None:
        return marks
    return after.joined(marks)
