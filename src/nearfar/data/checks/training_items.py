"""Which items a model has learned from: a small mark of each is kept with the model, by which it is known again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...io import tensor_file
from ...io.untrusted import parse_json
from ...progress import counted
from ..dataset import Dataset, unwrapped
from ..decode import ImageReader

MOST = 2_000_000
"""Items whose marks are kept, of 8 bytes each: 16 MB."""

BYTES = 8
"""Of a mark: two of ten million different items are equal in one of 400,000 models."""

FILE = "training-items.safetensors"
"""Where they are in the folder of a run."""

ITEMS = "training/items"
CLASSES = "training/classes"
ABOUT = "training"


@dataclass(frozen=True, eq=False)
class TrainingItems:
    """The marks of the items and of the classes that a model has learned from, or was chosen by.

    Parameters
    ----------
    items : ndarray of int64, shape (m,)
        Sorted marks, each once; empty where there were more than `MOST`.
    classes : ndarray of int64, shape (c,)
        Sorted marks of the names of the classes.
    count : int
        Number of items, equal ones counted as often as they occur.
    columns : tuple of str
        Names of the numbers of a row, in the order in which they were marked.
    final : bool
        Whether they are all that there were, so that none was left to score the model on.
    """

    items: NDArray[np.int64]
    classes: NDArray[np.int64]
    count: int
    columns: tuple[str, ...] = ()
    final: bool = False

    @classmethod
    def of(cls, *parts: Dataset | None, final: bool = False) -> TrainingItems:
        """Mark the items of the parts of a training: what is learned from, and what chooses the checkpoint."""
        given = [part for part in parts if part is not None]
        count = sum(map(len, given))
        if count > MOST:
            items = np.empty(0, np.int64)
        else:
            items = np.unique(np.concatenate([mark_items(part) for part in given]))
        classes = np.unique(np.concatenate([_mark_names(part.classes) for part in given]))
        return cls(items, classes, count, given[0].columns, final)

    @property
    def complete(self) -> bool:
        """Whether the items are marked: of very many they are not."""
        return self.count <= MOST

    def among(self, dataset: Dataset) -> NDArray[np.bool_]:
        """Return for every item of a set whether it was learned from, shape (n,)."""
        return np.isin(mark_items(dataset.in_columns(self.columns, "the training")), self.items)

    def known_classes(self, dataset: Dataset) -> int:
        """Count the classes of a set that have items, and a name that a class of the training had."""
        names = [name for name, count in zip(dataset.classes, dataset.class_counts, strict=True) if count]
        return int(np.isin(_mark_names(names), self.classes).sum())

    def packed(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the arrays and the text that a file of tensors holds of this."""
        about = {"count": self.count, "columns": list(self.columns), "final": self.final}
        return {ITEMS: self.items, CLASSES: self.classes}, {ABOUT: json.dumps(about)}

    @classmethod
    def unpacked(cls, arrays: dict[str, Any], text: dict[str, str]) -> TrainingItems | None:
        """Return what `packed` has made; None where a file holds nothing of it.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        if ABOUT not in text or ITEMS not in arrays or CLASSES not in arrays:
            return None
        try:
            about = parse_json(text[ABOUT])
        except ValueError:
            about = None
        sound = isinstance(about, dict) and isinstance(about.get("count"), int)
        if not sound or not isinstance(about.get("columns"), list):
            raise ValueError("the list of its training items is damaged")
        return cls(
            arrays[ITEMS],
            arrays[CLASSES],
            about["count"],
            tuple(map(str, about["columns"])),
            about.get("final") is True,
        )

    def write(self, path: Path) -> None:
        """Write a file of their own, which appears whole or not at all."""
        tensor_file.write(path, *self.packed())

    def add_to(self, path: Path) -> None:
        """Add them to a file of tensors, such as a saved learner."""
        arrays, text = tensor_file.read(path)
        own, about = self.packed()
        tensor_file.write(path, arrays | own, text | about)

    @classmethod
    def read(cls, path: Path) -> TrainingItems | None:
        """Read them from a file of tensors; None where there is no file, or it holds nothing of them."""
        if not path.is_file():
            return None
        return cls.unpacked(*tensor_file.read(path))


def mark_items(dataset: Dataset) -> NDArray[np.int64]:
    """Return a mark of every item, shape (n,): equal where two items are equal, whatever they are called.

    Of image files it is that of the bytes and of the box that is cut out, so that it does not depend on a size to which
    they are brought; of images in memory that of the pixels; of rows that of their numbers in float32.
    """
    if dataset.kind == "row":
        rows = dataset.array if dataset.array is not None else [dataset.read(i) for i in range(len(dataset))]
        marks = [_mark(b"row", (np.asarray(row, np.float32) + 0.0).tobytes()) for row in rows]  # -0.0 is 0.0
        return np.array(marks, dtype=np.int64)
    with ThreadPoolExecutor() as pool:
        found = pool.map(partial(_mark_image, dataset), range(len(dataset)))
        return np.array(list(counted(found, "marking", len(dataset))), dtype=np.int64)


def _mark_image(dataset: Dataset, i: int) -> int:
    read, place = unwrapped(dataset.stored or dataset.read, i)
    if isinstance(read, ImageReader):
        box = None if read.boxes is None else read.boxes[place]
        try:
            return _mark(b"file", repr(box).encode(), read.files.read(read.paths[place]))
        except (ValueError, OSError):  # who trains on it or scores it says what is wrong
            return _mark(b"name", dataset.names[i].encode(errors="surrogateescape"))
    image = dataset.read(i)
    return _mark(b"image", repr(image.shape).encode(), image.tobytes())


def _mark_names(names: Iterable[str]) -> NDArray[np.int64]:
    return np.array([_mark(name.encode(errors="surrogateescape")) for name in names], dtype=np.int64)


def _mark(*parts: bytes) -> int:
    digest = blake2b(digest_size=BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "little", signed=True)
