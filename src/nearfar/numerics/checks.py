"""Validation of user input: each check raises a ValueError that names the argument, its value and what was expected.

Labels become integer codes 0, 1, ... with -1 for unknown. Pairs, triplets and chunklets are checked in `constraints`.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..fit_warnings import warn
from ..labels import as_array, is_missing
from ..quoting import count_of, quoted
from ..settings import no_option
from .types import AnyArray, Array, Bools, Ints

# sizes of rows between which sums of their squares are normal numbers of float64
SMALLEST_ROWS = 1e-151
LARGEST_ROWS = 1e151


def side_by_side(X: Any, widths: AnyArray | None = None) -> tuple[Any, list[int] | None]:
    """Join a list of views (of these widths, if given) into one matrix; return it and their widths, or X and None."""
    if isinstance(X, (list, tuple)):
        views = [table(view, "views must be matrices", None) for view in X]
    else:
        views = []
    if all(view.ndim != 2 for view in views):
        return X, None
    if any(view.ndim != 2 for view in views):
        raise ValueError(f"views must be matrices; got arrays of {[view.ndim for view in views]} dimensions")
    if len({len(view) for view in views}) > 1:
        raise ValueError(f"views must have the same rows; got {[len(view) for view in views]} rows")
    found = [view.shape[1] for view in views]
    if widths is not None and found != list(widths):
        raise ValueError(f"views must have {list(map(int, widths))} columns, as in fit; got {found}")
    return np.hstack(views), found


def require_plain(X: Any, name: str = "X") -> None:
    """Raise a ValueError for a table whose values NumPy would misread, or not read: masked, lazy, structured, dates.

    >>> require_plain(np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]))
    Traceback (most recent call last):
    ValueError: X is a masked array, 1 value of which is masked; fill it (X.filled(value)), or leave out its row
    """
    kind = getattr(X, "dtype", None)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        count = _masked(X)
        one = count == 1
        advice = (
            f"fill {'it' if one else 'them'} ({name}.filled(value)), or leave out {'its row' if one else 'their rows'}"
        )
        are = "is" if one else "are"
        raise ValueError(f"{name} is a masked array, {count_of(count, 'value')} of which {are} masked; {advice}")
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        raise ValueError(f"{name} must be in memory; got a LazyFrame; pass {name}.collect()")
    if fields := getattr(kind, "names", None):
        advice = f"pass numpy.lib.recfunctions.structured_to_unstructured({name})"
        raise ValueError(f"{name} is a structured array with the fields {', '.join(fields)}; {advice}")
    if isinstance(kind, np.dtype) and kind.kind in "mM":
        raise ValueError(f"{name} must hold numbers; got dates or durations ({kind}); TableEncoder encodes them")
    unread = isinstance(X, (str, bytes, os.PathLike, Iterator)) or (isinstance(X, Mapping) and not hasattr(X, "shape"))
    if unread:
        raise ValueError(f"{name} must be a table of numbers, shape (n, d); got {type(X).__name__}, {quoted(X)}")


def _masked(X: Any) -> int:
    """Return the number of masked values of an array."""
    return int(np.ma.getmaskarray(X).sum())


def table(value: Any, needs: str, dtype: Any = np.float64) -> Array:
    """Return `value` as an array (of any type if dtype is None), or raise a ValueError with the text of `needs`."""
    if np.ma.is_masked(value):
        raise ValueError(f"{needs}; got a masked array, {count_of(_masked(value), 'value')} of it masked")
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:  # text, lists of several lengths
        raise ValueError(f"{needs}; got {quoted(value)}") from error


def is_finite(value: object) -> bool:
    """Return whether the value is a finite real number (booleans are not)."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:  # an integer above 1.8e308
        return False


def squares_are_numbers(X: AnyArray) -> None:
    """Raise a ValueError if squares of the rows X would be 0 or infinite.

    >>> squares_are_numbers(np.array([[0.0, -3e-165]]))
    Traceback (most recent call last):
    ValueError: X must hold values of 1e-151 to 1e+151 in size; the largest is 3e-165; scale the features
    """
    if X.size == 0:
        return
    size = max(float(X.max()), -float(X.min()))
    if size and not SMALLEST_ROWS <= size <= LARGEST_ROWS:
        needs = f"X must hold values of {SMALLEST_ROWS:g} to {LARGEST_ROWS:g} in size"
        raise ValueError(f"{needs}; the largest is {size:.3g}; scale the features")


def targets(y: AnyArray | None, n: int) -> Array:
    """Validate the real targets of n rows and return them centered, shape (n, m), m >= 1.

    Raises
    ------
    ValueError
        None was passed, or the targets are not finite real numbers, not one per row, or all equal.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    needs = f"y must hold finite real numbers, shape ({n},) or ({n}, m)"
    values = table(y, needs, None)
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(f"{needs}; got shape {values.shape}")
    if len(values) != n:
        raise ValueError(f"{needs}; got {len(values)}: X and y have inconsistent numbers of samples")
    if values.dtype.kind not in "biufO":
        raise ValueError(f"{needs}; got {values.ravel()[0]!r}, ...")
    try:
        Y = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{needs}; got {values.ravel()[0]!r}, ...") from error
    # negated, so that NaN counts, too; squares of larger targets are not numbers
    bad = int((~(np.abs(Y) <= 1e150)).sum())
    if bad:
        raise ValueError(f"{needs}; {bad} of {Y.size} are NaN, infinite or above 1e150")
    Y = Y.reshape(n, -1)
    if (Y[0] == Y).all():
        raise ValueError(f"y must hold targets that differ; all {n} are {Y[0].tolist()}")
    return Y - Y.mean(axis=0)


def is_zero(value: Any) -> bool:
    """Return whether a setting, which may still be unchecked, is the number 0."""
    return isinstance(value, (int, float, np.number)) and value == 0


def at_least(low: float, **values: float | str) -> None:
    """Raise a ValueError unless the value of each keyword is a finite number of at least `low`.

    >>> at_least(0, reg=-1.0)
    Traceback (most recent call last):
    ValueError: reg must be a finite number >= 0; got -1.0
    """
    for name, value in values.items():
        if isinstance(value, str) or not is_finite(value) or value < low:
            raise ValueError(f"{name} must be a finite number >= {low}; got {quoted(value)}")


def counts(low: int, **values: int) -> None:
    """Raise a ValueError unless the value of each keyword is an integer of at least `low`."""
    for name, value in values.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name} must be an integer >= {low}; got {quoted(value)}")


def not_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not None.

    ``counts(1, **not_none(batch_size=...))`` checks a setting that may be None.
    """
    return {name: value for name, value in values.items() if value is not None}


def above(low: float, **values: float) -> None:
    """Raise a ValueError unless the value of each keyword is a finite number above `low`."""
    for name, value in values.items():
        if not is_finite(value) or value <= low:
            raise ValueError(f"{name} must be a finite number > {low}; got {quoted(value)}")


def between(low: float, high: float, **values: float) -> None:
    """Raise a ValueError unless the value of each keyword is in [low, high]."""
    for name, value in values.items():
        if not is_finite(value) or not low <= value <= high:
            raise ValueError(f"{name} must be in [{low}, {high}]; got {quoted(value)}")


def share(stand_ins: tuple[str, ...], **values: float | str) -> None:
    """Raise a ValueError unless the value of each keyword is in [0, 1] or one of the names `stand_ins`."""
    for name, value in values.items():
        if isinstance(value, str):
            known = value in stand_ins
        else:
            known = is_finite(value) and 0 <= value <= 1
        if not known:
            raise ValueError(f"{name} must be in [0, 1] or {' or '.join(map(repr, stand_ins))}; got {quoted(value)}")


def one_of(options: tuple[object, ...], **values: Any) -> None:
    """Raise a ValueError unless the value of each keyword is one of `options`."""
    for name, value in values.items():
        if np.ndim(value) or not any(value is option or value == option for option in options):
            raise ValueError(no_option(options, name, value))


def only_with(other: str, there: AnyArray | None, **given: Any) -> None:
    """Raise a ValueError for an argument that was given without the `other` one, on which it depends."""
    for name, value in given.items():
        if there is None and value is not None:
            raise ValueError(f"{name} must be given with {other}")


def require_discrete(y: AnyArray) -> None:
    """Raise a ValueError if the labels y are real numbers such as 0.5, which are targets of a regression.

    >>> require_discrete(np.array([0.0, 1.0, 0.5]))
    Traceback (most recent call last):
    ValueError: y must hold classes; got real numbers such as 0.5; bin them (np.digitize), or learn from them with MLKR
    """
    if y.dtype.kind != "f":
        return
    real = y[y != np.floor(y)]
    if len(real):
        hint = "bin them (np.digitize), or learn from them with MLKR"
        raise ValueError(f"y must hold classes; got real numbers such as {real[0]:.6g}; {hint}")


def is_label(y: AnyArray, label: Any) -> Bools:
    """Return which entries of y equal this label; text and numbers are never equal."""
    if label is None or ((y.dtype.kind in "US") != isinstance(label, (str, bytes)) and y.dtype != object):
        return np.zeros(len(y), dtype=bool)
    return np.asarray(y == label, dtype=bool)


def numbered(y: AnyArray, unlabeled: Any = None) -> AnyArray:
    """Return labels as numbers if they are objects, or a list of text and numbers; return other labels as an array.

    Labels that equal `unlabeled` become -1, and all other labels become 0, 1, ...

    Raises
    ------
    ValueError
        Labels are missing (None, NaN), or of several types; or `unlabeled` is not one value.

    Examples
    --------
    >>> numbered(["owl", -1, "cat", "owl"], unlabeled=-1).tolist()
    [0, -1, 1, 0]
    """
    if np.ndim(unlabeled) != 0:
        raise ValueError(f"unlabeled must be one value; got {quoted(unlabeled)}")
    names = as_array(y, "y")
    if names.dtype.kind == "f" and np.isnan(names).any():
        # NaN is a missing label, which the check of objects below finds
        names = names.astype(object)
    if names.dtype != object or names.ndim != 1:
        return names
    missing = sum(is_missing(label) for label in names)
    if missing:
        detail = f"y: {missing} of {len(names)} labels are missing"
        raise ValueError(f"{detail}; replace them by another value, such as -1, and pass it as unlabeled=")
    known = ~is_label(names, unlabeled)
    kinds = sorted({type(label).__name__ for label in names[known].tolist()})
    if len(kinds) > 1:
        hint = "pass the value that marks rows without a label as unlabeled="
        raise ValueError(f"y must hold labels of one type; got {', '.join(kinds)}; {hint}")
    codes = np.full(len(names), -1, dtype=np.intp)
    codes[known] = encode(names[known])[1]
    return codes


def require_same_type(y: Any, unlabeled: Any) -> None:
    """Raise a ValueError if `unlabeled` is text although the labels in the array y are numbers, or the reverse.

    It would mark no row. A list may have lost its marked rows in a split, so that only arrays are checked.

    >>> require_same_type(np.array([0, 1, 1]), "?")
    Traceback (most recent call last):
    ValueError: unlabeled must be a number, like the labels in y; got '?', which marks no row
    """
    kind = getattr(getattr(y, "dtype", None), "kind", "O")
    if unlabeled is None or kind not in "biufUS":
        return
    text = kind in "US"
    if text != isinstance(unlabeled, (str, bytes)):
        needed = "text" if text else "a number"
        raise ValueError(
            f"unlabeled must be {needed}, like the labels in y; got {quoted(unlabeled)}, which marks no row"
        )


def encode(y: AnyArray, unlabeled: Any = None) -> tuple[AnyArray, Ints]:
    """Return the class names and the code of each row: 0, 1, ... by first appearance, or -1 where y equals `unlabeled`.

    Because the codes do not depend on the names, every learner is invariant to the names.
    """
    known = ~is_label(y, unlabeled)
    names, first, inverse = np.unique(y[known], return_index=True, return_inverse=True)
    order = np.argsort(first)
    codes = np.full(len(y), -1, dtype=np.intp)
    # `inverse` counts names in sorted order; the argsort of an order is the place of each name in it
    codes[known] = np.argsort(order)[inverse.ravel()]
    return names[order], codes


def class_sizes(labels: Ints) -> Ints:
    """Return the number of rows of each class 0..c-1; rows of unknown class are not counted."""
    return np.bincount(labels[labels >= 0])


def warn_of_small_classes(labels: Ints, k: int, names: AnyArray | None = None, setting: str = "n_neighbors") -> None:
    """Warn, once, of classes whose rows have fewer than k other rows of their class.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class codes; rows with -1 are in no class.
    k : int
        Number of neighbors that were requested.
    names : ndarray of shape (c,), optional
        Labels of the classes in the user's data.
    setting : str
        Name of the user's setting for k.
    """
    n = class_sizes(labels)
    small = np.flatnonzero((n > 0) & (n <= k))
    if len(small) == 0:
        return
    smallest = small[n[small].argmin()]
    name = smallest if names is None else names[smallest]
    detail = f"class {name!s} has {count_of(int(n[smallest]), 'row')}"
    if len(small) > 1:
        detail = f"{len(small)} classes have at most {k} rows; the smallest, {name!s}, has {n[smallest]}"
    warn(f"{setting}={k}: {detail}; each row gets at most the other rows of its class as neighbors")


def require_classes(labels: Ints, similar: bool = True) -> None:
    """Raise a ValueError unless there are two classes or more and, with `similar`, a class with two members or more.

    Raises
    ------
    ValueError
        There are too few classes or members.
    """
    n = class_sizes(labels)
    if len(n) < 2:
        raise ValueError(f"y must hold at least 2 classes; got {len(n)}")
    if similar and n.max() < 2:
        raise ValueError("y must hold a class of at least 2 rows; got one row per class, so there is no similar pair")


def require_weighted_classes(count: AnyArray) -> None:
    """Raise a ValueError unless there are at least two classes, and one with a weight above 1.

    Raises
    ------
    ValueError
        There are too few classes, or their weights are too small.
    """
    if len(count) < 2:
        raise ValueError(f"y must hold at least 2 classes; got {len(count)}")
    if not (count > 1).any():
        needs = "y must hold a class whose weights sum to more than 1"
        raise ValueError(f"{needs}; got {float(np.max(count)):.6g} at most, so there is no similar pair")
