"""Class numbers from labels of any hashable type."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ..numerics.checks import is_missing
from ..numerics.types import Ints


def class_numbers(labels: Any, *others: Any, names: tuple[str, ...] = ("labels", "gallery_labels")) -> tuple[Ints, ...]:
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

    Raises
    ------
    ValueError
        If there is not one label per row, or a label is not hashable or missing (None, NaN).

    Examples
    --------
    >>> class_numbers(["cat", "owl", "cat"])[0].tolist()
    [0, 1, 0]
    """
    parts = [_plain(part, name) for part, name in zip((labels, *others), names, strict=False)]
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    if all(isinstance(part, np.ndarray) for part in parts) and len({part.dtype.kind for part in parts}) == 1:
        numbers = np.unique(np.concatenate(parts), return_inverse=True)[1].ravel()
    else:
        numbers = _numbered([label for part in parts for label in _items(part)])
    return tuple(np.split(numbers.astype(np.intp, copy=False), cuts))


def named_classes(labels: Any) -> tuple[list[Hashable], Ints]:
    """Return the label of each class (c,), and the number of the class of each row (n,), as `class_numbers` does.

    >>> named_classes(["cat", "owl", "cat"])
    (['cat', 'owl'], array([0, 1, 0]))
    """
    (numbers,) = class_numbers(labels)
    first = np.unique(numbers, return_index=True)[1]
    items = _items(_plain(labels, "labels"))
    return [items[row] for row in first], numbers


def _plain(labels: Any, name: str) -> Any:
    """Return labels as a numeric or text array, or as a list of hashable values."""
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu().numpy()
    if not hasattr(labels, "__len__") or isinstance(labels, (str, bytes)):
        raise ValueError(f"{name}: expected one label per row, shape (n,), got {labels!r:.40}")
    if isinstance(labels, np.ndarray) or hasattr(labels, "dtype"):
        labels = np.asarray(labels)
        if labels.ndim != 1:
            raise ValueError(f"{name}: expected one label per row, shape (n,), got shape {labels.shape}")
    elif len({type(label) for label in labels}) == 1 and isinstance(labels[0], (int, float, str)):
        values = np.asarray(labels)
        rounded = values.dtype.kind == "f" and isinstance(labels[0], int)  # integers that no type of NumPy holds
        if not rounded:
            labels = values
    if getattr(labels, "dtype", None) is not None and labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name}: {int(np.isnan(labels).sum())} of {len(labels)} labels are NaN")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biufSU":
        return labels
    missing = sum(isinstance(label, Hashable) and is_missing(label) for label in labels)
    if missing:
        raise ValueError(f"{name}: {missing} of {len(labels)} labels are missing (None or NaN)")
    return list(labels)


def _items(part: Any) -> list[Hashable]:
    return part.tolist() if isinstance(part, np.ndarray) else part


def _numbered(labels: list[Hashable]) -> Ints:
    bad = next((label for label in labels if not isinstance(label, Hashable)), None)
    if bad is not None:
        raise ValueError(f"labels: expected hashable labels, got {type(bad).__name__}")
    first: dict[Hashable, int] = {}
    return np.fromiter((first.setdefault(label, len(first)) for label in labels), dtype=np.intp, count=len(labels))


def check_lengths(rows: int, labels: Ints, name: str = "labels") -> None:
    """Raise a ValueError unless there is one label per row."""
    if len(labels) != rows:
        raise ValueError(f"{name}: expected {rows} {name.split('_')[-1]}, one per row, got {len(labels)}")
