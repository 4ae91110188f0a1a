"""Fingerprints ("marks") of the training items of a model, stored in its file to recognize the items later."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..labels import as_array, class_name, folded
from . import tensor_file
from .untrusted import parse_json

MOST = 2_000_000
"""Maximum number of items whose marks of 8 bytes are stored, which takes 16 MB."""

BYTES = 8
"""Number of bytes of a mark. Among ten million different items, two marks are equal in one of 400,000 models."""

ITEMS = "training/items"
CLASSES = "training/classes"
SPELLINGS = "training/spellings"
ABOUT = "training"

NUMBERS_AT_ONCE = 2**17
"""Number of values that are processed at a time, which fit into the cache of the CPU."""

ODD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, whose multiples are evenly distributed over 64 bits (from SplitMix64)."""

Marked = TypeVar("Marked", bound="TrainingMarks")


@dataclass(frozen=True, eq=False)
class TrainingMarks:
    """Marks of the items and classes that a model was trained on, or that chose its checkpoint.

    Parameters
    ----------
    items : ndarray of int64, shape (m,)
        Sorted distinct marks; empty if there were more than `MOST` items.
    classes : ndarray of int64, shape (c,)
        Sorted marks of the names of the classes.
    spellings : ndarray of int64, shape (s,)
        Sorted marks of these names without case, spaces and zeros around numbers (`nearfar.labels.folded`).
    count : int
        Number of items, including repeated ones.
    columns : tuple of str
        Names of the columns of rows, in the order in which they were marked.
    final : bool
        Whether the model was trained on all items of its data, so that none was left to score it.
    """

    items: NDArray[np.int64]
    classes: NDArray[np.int64]
    spellings: NDArray[np.int64]
    count: int
    columns: tuple[str, ...] = ()
    final: bool = False

    @classmethod
    def of_rows(cls: type[Marked], rows: NDArray[Any], labels: Any = None, columns: Iterable[str] = ()) -> Marked:
        """Mark rows (n, d) and the names of their classes. The label -1 and targets of a regression are not classes."""
        count = rows.shape[0]
        if are_kept(count):
            items = np.unique(mark_rows(rows))
        else:
            items = np.empty(0, np.int64)
        return cls(items, *mark_classes(_class_names(labels)), count, tuple(columns))

    @property
    def complete(self) -> bool:
        """Whether all items have marks, which is not so if there were too many."""
        return are_kept(self.count)

    def joined(self: Marked, other: TrainingMarks) -> Marked:
        """Return the marks of both, for a model that was trained on one after the other."""
        count = self.count + other.count
        if are_kept(count):
            items = np.union1d(self.items, other.items)
        else:
            items = np.empty(0, np.int64)
        classes = np.union1d(self.classes, other.classes)
        spellings = np.union1d(self.spellings, other.spellings)
        return replace(self, items=items, classes=classes, spellings=spellings, count=count)

    def packed(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the arrays and the texts to store in a file of tensors."""
        about = {"count": self.count, "columns": list(self.columns), "final": self.final}
        arrays = {ITEMS: self.items, CLASSES: self.classes, SPELLINGS: self.spellings}
        return arrays, {ABOUT: json.dumps(about)}

    @classmethod
    def unpacked(cls: type[Marked], arrays: dict[str, Any], text: dict[str, str]) -> Marked | None:
        """Restore the marks from the result of `packed`; None if a file has none.

        Raises
        ------
        ValueError
            If the marks are damaged.
        """
        if ABOUT not in text or not {ITEMS, CLASSES, SPELLINGS} <= arrays.keys():
            return None
        try:
            about = parse_json(text[ABOUT])
        except ValueError:
            about = None
        sound = isinstance(about, dict) and isinstance(about.get("count"), int)
        if not sound or not isinstance(about.get("columns"), list):
            raise ValueError("the list of its training items is damaged")
        columns = tuple(map(str, about["columns"]))
        marks = (arrays[ITEMS], arrays[CLASSES], arrays[SPELLINGS])
        return cls(*marks, about["count"], columns, about.get("final") is True)

    def write(self, path: Path) -> None:
        """Write a file with these marks, completely or not at all."""
        tensor_file.write(path, *self.packed())

    def add_to(self, path: str | os.PathLike[str]) -> None:
        """Add them to a file of tensors, such as a saved learner."""
        arrays, text = tensor_file.read(path)
        own, about = self.packed()
        tensor_file.write(path, arrays | own, text | about)

    @classmethod
    def read(cls: type[Marked], path: Path) -> Marked | None:
        """Read marks from a file of tensors; None if the file does not exist or has none."""
        if not path.is_file():
            return None
        try:
            return cls.unpacked(*tensor_file.read(path))
        except ValueError as error:
            raise ValueError(f"{path}: {str(error).removeprefix(f'{path} ')}") from error


def are_kept(count: int) -> bool:
    """Return whether the marks of this number of items are stored."""
    return count <= MOST


def mark_rows(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return a mark of the float32 values of every row, shape (n,); equal rows have equal marks.

    With w_j the 64 bits of the numbers 2j and 2j + 1, and odd a_j, the mark is sum_j a_j s(a_j (w_j + j)) modulo 2^64,
    mixed once more; s(x) = x XOR (x >> 32). Rows may be sparse.
    """
    flat = rows if hasattr(rows, "toarray") else rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
    words = (flat.shape[1] + 1) // 2
    with np.errstate(over="ignore"):
        place = np.arange(words, dtype=np.uint64)
        factors = _mixed(place * np.uint64(ODD)) | np.uint64(1)
    marks = np.empty(flat.shape[0], dtype=np.uint64)
    step = max(1, NUMBERS_AT_ONCE // max(1, flat.shape[1]))
    for start in range(0, flat.shape[0], step):
        part = flat[start : start + step]
        if hasattr(part, "toarray"):
            part = part.toarray()
        numbers = np.zeros((len(part), 2 * words), dtype="<f4")
        with np.errstate(over="ignore"):
            numbers[:, : flat.shape[1]] = part
            numbers += 0.0  # turns -0.0 into 0.0
            mixed = numbers.view("<u8").astype(np.uint64, copy=False)
            mixed += place
            mixed *= factors
            mixed ^= mixed >> np.uint64(32)
            marks[start : start + step] = mixed @ factors
    return _mixed(marks + np.uint64(flat.shape[1])).view(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit numbers so that every bit depends on all bits of the input (the last steps of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def mark_names(names: Iterable[str]) -> NDArray[np.int64]:
    """Return a mark of every name."""
    return np.array([mark(name.encode(errors="surrogateescape")) for name in names], dtype=np.int64)


def mark_classes(names: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted marks of the names of classes, and of their spellings."""
    names = list(names)
    return np.unique(mark_names(names)), np.unique(mark_names(map(folded, names)))


def mark(*parts: bytes) -> int:
    """Return the mark of some bytes."""
    digest = blake2b(digest_size=BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "little", signed=True)


def _class_names(labels: Any) -> list[str]:
    """Return the names of classes as in a table of rows and labels."""
    if labels is None:
        return []
    values = as_array(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        return []
    if values.dtype.kind == "f" and not (np.isfinite(values) & (values == np.floor(values))).all():
        return []
    names = sorted({class_name(value) for value in set(values.tolist())})
    return [name for name in names if values.dtype.kind not in "ifO" or name != "-1"]
