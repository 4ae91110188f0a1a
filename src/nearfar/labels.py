"""Labels, groups and ids from any container as one array, and the number of the class of each row.

All of nearfar reads labels with `as_array`, so that the same labels are the same classes, whatever holds them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quoting import quoted

NUMBER = re.compile(r"-?(0|[1-9]\d{0,99})(\.\d{1,99})?")
"""A number as programs write it: one with a leading zero, such as 007, is an identifier, which is text."""

DIGITS = re.compile(r"-?[0-9]+(\.[0-9]*)?")
"""A number with zeros before and after it, as tables write identifiers and rounded numbers."""

CHARACTER = 4  # bytes of a character in an array of text
TEXTS_AND_NUMBERS = (bool, int, float, str)


def as_array(labels: Any, name: str = "labels") -> NDArray[Any]:
    """Return labels, groups or ids as an array: of numbers, of text, or of objects if they are neither.

    Parameters
    ----------
    labels : array_like
        An array, tensor, column of pandas, polars or Arrow, any object with `__array__`, or a list, also one of tensors
        without dimensions. Nested lists become a matrix.
    name : str
        Argument name for error messages.

    Returns
    -------
    ndarray of shape (n,)
        Labels of several types remain objects, as do tuples, and missing labels (None, NA). Matrices keep their shape.

    Raises
    ------
    ValueError
        If there is no sequence of labels, but one text or number; or a list of batches of labels.

    Examples
    --------
    >>> as_array(["cat", "owl"]), as_array([3, 1.0]), as_array(["cat", 1])
    (array(['cat', 'owl'], dtype='<U3'), array([3., 1.]), array(['cat', 1], dtype=object))
    """
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu()
        if str(labels.dtype) == "torch.bfloat16":  # which NumPy does not have
            labels = labels.float()
        return np.asarray(labels.numpy())
    if isinstance(labels, np.ma.MaskedArray):
        labels = labels.tolist()  # with None where a label is masked
    if hasattr(labels, "__array__"):
        array = np.asarray(labels)
        if array.ndim > 1 or (array.ndim == 1 and array.dtype != object):
            return array
        labels = array.tolist()
    if not hasattr(labels, "__len__") or isinstance(labels, (str, bytes, dict)):
        raise ValueError(f"{name}: expected one label per row, shape (n,), got {labels!r:.40}")
    values = [_plain(value) for value in labels]
    if any(isinstance(value, list) for value in values):
        try:
            return np.asarray(values)
        except ValueError:  # lists of several lengths
            return _objects(values)
    if any(getattr(value, "ndim", 0) for value in values):
        shapes = sorted({tuple(value.shape) for value in values if getattr(value, "ndim", 0)})
        hint = "join batches with torch.cat or np.concatenate"
        raise ValueError(f"{name}: expected one label per row, got a list of arrays of shape {shapes[0]}; {hint}")
    return _of_scalars(values)


NARROW = 2**26
"""Bytes that an array of text may take, however much longer its longest text is than the others."""
PADDED = 4
"""How many times as large as its texts a larger array may be."""


def text_array(texts: Iterable[Any]) -> NDArray[Any]:
    """Return texts as an array of text, or one of objects if a few long texts would make that much larger.

    In an array of text, each takes as many characters as the longest one.

    >>> text_array(["cat", "owl"]), text_array(["cat"] * 100_000 + ["x" * 1_000_000]).dtype
    (array(['cat', 'owl'], dtype='<U3'), dtype('O'))
    """
    given = list(map(str, texts))
    lengths = list(map(len, given))
    if CHARACTER * len(given) * max(lengths, default=0) <= max(NARROW, PADDED * CHARACTER * sum(lengths)):
        return np.array(given, dtype=np.str_)
    return _objects(given)


def narrow_texts(texts: Iterable[Any], name: str) -> NDArray[Any]:
    """Return texts as an array of text; raise a ValueError that begins with `name` if it would be far too large."""
    found = text_array(texts)
    if found.dtype == object:
        longest = max(found.tolist(), key=len)
        raise ValueError(
            f"{name}: one of {len(found):,} has {len(longest):,} characters, {quoted(longest)}; expected short ones"
        )
    return found


def holds_texts(array: NDArray[Any]) -> bool:
    """Return whether an array is one of text, or one of objects that `text_array` has made."""
    return array.dtype.kind == "U" or (array.dtype == object and all(isinstance(one, str) for one in array.tolist()))


def _of_scalars(values: list[Any]) -> NDArray[Any]:
    """Return an array of numbers or of text that holds exactly these values, or else one of objects."""
    kinds = {type(value) for value in values}
    if not kinds:
        return np.empty(0, dtype=np.int64)
    if kinds == {str} and not any(value.endswith("\0") for value in values):  # an array of text would drop a NUL there
        return text_array(values)
    if not kinds.issubset({bool, int, float}):
        return _objects(values)
    array = np.asarray(values)
    # large integers become objects, or floats if there are some above 2^63 or floats among them
    exact = array.dtype.kind in "bi" or all(
        stored == value or value != value for stored, value in zip(array.tolist(), values, strict=True)
    )
    return array if exact else _objects(values)


def _plain(value: Any) -> Any:
    """Return a tensor or array without dimensions, or a scalar of NumPy or Arrow, as a value of Python."""
    if type(value) in TEXTS_AND_NUMBERS or value is None:
        return value
    if hasattr(value, "as_py"):
        return value.as_py()
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    if isinstance(value, str):  # np.str_ and other kinds of text
        return str(value)
    return value


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # NumPy would take tuples for a matrix
        array[place] = value
    return array


def is_missing(label: Any) -> bool:
    """Return whether the label is None, NaN, or the NA of pandas, which cannot be compared."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def class_numbers(
    labels: Any, *others: Any, names: tuple[str, ...] = ("labels", "gallery_labels")
) -> tuple[NDArray[np.intp], ...]:
    """Number the classes of all given label sequences from 0 to C - 1.

    Parameters
    ----------
    labels, *others : sequence, array or tensor of shape (n,)
        Integers of any size, strings, tuples, anything hashable; equal labels are one class.
    names : tuple of str
        Argument names for error messages.

    Returns
    -------
    tuple of ndarray of int, one per argument
        Numbers and texts are numbered in sorted order, labels of several types as they appear.

    Raises
    ------
    ValueError
        If there is not one label per row, or a label is not hashable or missing (None, NaN).

    Examples
    --------
    >>> class_numbers(["cat", "owl", "cat"])[0].tolist()
    [0, 1, 0]
    """
    parts = [_checked(part, name) for part, name in zip((labels, *others), names, strict=False)]
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    kinds = {part.dtype.kind for part in parts}
    if kinds.issubset("biu") or kinds == {"f"}:
        joined = np.concatenate(parts)
        if joined.dtype.kind != "f" or kinds == {"f"}:  # int64 with uint64 would be rounded
            numbers = np.unique(joined, return_inverse=True)[1].ravel()
            return tuple(np.split(numbers.astype(np.intp, copy=False), cuts))
    return tuple(np.split(_numbered([label for part in parts for label in part.tolist()]), cuts))


def named_classes(labels: Any) -> tuple[list[Hashable], NDArray[np.intp]]:
    """Return the label of each class (c,), and the number of the class of each row (n,), as `class_numbers` does.

    >>> named_classes(["cat", "owl", "cat"])
    (['cat', 'owl'], array([0, 1, 0]))
    """
    labels = _checked(labels, "labels")
    (numbers,) = class_numbers(labels)
    first = np.unique(numbers, return_index=True)[1]
    return labels[first].tolist(), numbers


def _checked(labels: Any, name: str) -> NDArray[Any]:
    """Return one label per row, none of them missing, as an array."""
    array = as_array(labels, name)
    if array.dtype == object:
        bad = next((label for label in array if not isinstance(label, Hashable)), None)
        if bad is not None:
            raise ValueError(f"{name}: expected hashable labels, got {type(bad).__name__}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one label per row, shape (n,), got shape {array.shape}")
    if array.dtype.kind in "biuSU":
        return array
    if array.dtype.kind == "f":
        missing = int(np.isnan(array).sum())
    else:
        missing = sum(map(is_missing, array.tolist()))
    if missing:
        raise ValueError(f"{name}: {missing} of {len(array)} labels are missing (None or NaN)")
    return array


def _numbered(labels: list[Hashable]) -> NDArray[np.intp]:
    kinds = {type(label) for label in labels}
    classes: dict[Any, None] = dict.fromkeys(labels)
    if kinds == {str} or kinds.issubset({bool, int, float}):
        classes = dict.fromkeys(sorted(classes))
    number = {label: place for place, label in enumerate(classes)}
    return np.fromiter(map(number.__getitem__, labels), dtype=np.intp, count=len(labels))


def check_lengths(rows: int, labels: NDArray[np.intp], name: str = "labels") -> None:
    """Raise a ValueError unless there is one label per row."""
    if len(labels) != rows:
        raise ValueError(f"{name}: expected {rows} {name.split('_')[-1]}, one per row, got {len(labels)}")


def class_name(label: Any) -> str:
    """Return the name of a class: equal numbers have one name, texts stay as written.

    >>> class_name(7.0), class_name(7), class_name(7.5), class_name("7.0")
    ('7', '7', '7.5', '7.0')
    """
    if isinstance(label, (float, np.floating)) and label.is_integer():
        return str(int(label))
    return str(label)


def without_spellings_of_numbers(column: Iterable[Any]) -> list[Any]:
    """Return a column of a text file with equal numbers written alike, if all of its cells are numbers.

    A column with any other text, such as 007, stays as written.

    >>> without_spellings_of_numbers(["1", "1.0", "2.50"]), without_spellings_of_numbers(["1", "1.0", "cat"])
    (['1', '1', '2.5'], ['1', '1.0', 'cat'])
    """
    column = list(column)
    if not all(isinstance(cell, str) and NUMBER.fullmatch(cell) for cell in column):
        return column
    names = {cell: _shortest(cell) for cell in set(column)}
    return [names[cell] for cell in column]


def _shortest(number: str) -> str:
    """Return a number in decimal notation without zeros at its end."""
    shortest = number.rstrip("0").rstrip(".") if "." in number else number
    return "0" if shortest == "-0" else shortest


def folded(name: str) -> str:
    """Return the same text for names of classes that differ only by case, spaces, or zeros around a number.

    >>> [folded(name) for name in ("Cat", " cat", "007", "7.0", "7")]
    ['cat', 'cat', '7', '7', '7']

    Names of a single letter keep their case.

    >>> [folded(name) for name in ("A", "a")]
    ['A', 'a']
    """
    text = " ".join(unicodedata.normalize("NFKC", name).split())
    if len(text) > 1:  # a single letter is often a character to recognize
        text = text.casefold()
    if DIGITS.fullmatch(text):
        sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text)
        whole, _, fraction = digits.partition(".")
        return _shortest(f"{sign}{whole.lstrip('0') or '0'}.{fraction}")
    return text


def spelled_alike(names: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """Return a name and the other one for each name that is none of the others, but only spelled in another way.

    >>> spelled_alike(["Cat", "owl", "007"], ["cat", "owl", "7.0"])
    [('007', '7.0'), ('Cat', 'cat')]
    """
    others = set(others)
    spelled = {folded(other): other for other in sorted(others)}
    new = sorted(set(names) - others)
    return [(name, spelled[folded(name)]) for name in new if folded(name) in spelled]
