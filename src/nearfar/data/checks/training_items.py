"""Which items a model has learned from: a small mark of each is kept with the model, by which it is known again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...io.training_marks import TrainingMarks, are_kept, mark, mark_names, mark_rows
from ...progress import counted
from ..dataset import Dataset, unwrapped
from ..decode import ImageReader

FILE = "training-items.safetensors"
"""Where they are in the folder of a run."""


@dataclass(frozen=True, eq=False)
class TrainingItems(TrainingMarks):
    """Marks of the items that a model was trained on, created from data sets and compared with them."""

    @classmethod
    def of(cls, *parts: Dataset | None, final: bool = False) -> TrainingItems:
        """Mark the items of the parts of a training: those to train on, and those that choose the checkpoint."""
        given = [part for part in parts if part is not None]
        count = sum(map(len, given))
        if are_kept(count):
            items = np.unique(np.concatenate([mark_items(part) for part in given]))
        else:
            items = np.empty(0, np.int64)
        classes = np.unique(np.concatenate([mark_names(part.classes) for part in given]))
        return cls(items, classes, count, given[0].columns, final)

    def among(self, dataset: Dataset) -> NDArray[np.bool_]:
        """Return for every item of a set whether it was learned from, shape (n,)."""
        return np.isin(mark_items(dataset.in_columns(self.columns, "the training")), self.items)

    def known_classes(self, dataset: Dataset) -> int:
        """Count the classes of a set that have items, and a name that a class of the training had."""
        names = [name for name, count in zip(dataset.classes, dataset.class_counts, strict=True) if count]
        return int(np.isin(mark_names(names), self.classes).sum())


def mark_items(dataset: Dataset) -> NDArray[np.int64]:
    """Return a mark of every item, shape (n,): the marks of identical items are equal, whatever their names.

    The mark of an image file is that of its bytes and its crop box, so that it does not depend on the size to which the
    image is resized. The mark of an image in memory is that of its pixels, of a row that of its float32 values, and of
    a text that of its characters.
    """
    if dataset.texts is not None and not dataset.are_pairs:
        marks = [mark(b"text", str(text).encode(errors="surrogateescape")) for text in dataset.texts]
        return np.array(marks, dtype=np.int64)
    if dataset.kind == "row":
        if dataset.array is not None:
            return mark_rows(dataset.array)
        return mark_rows(np.stack([dataset.read(i) for i in range(len(dataset))]))
    with ThreadPoolExecutor() as pool:
        found = pool.map(partial(_mark_image, dataset), range(len(dataset)))
        return np.array(list(counted(found, "marking", len(dataset))), dtype=np.int64)


def _mark_image(dataset: Dataset, i: int) -> int:
    read, place = unwrapped(dataset.stored or dataset.read, i)
    if isinstance(read, ImageReader):
        box = None if read.boxes is None else read.boxes[place]
        try:
            return mark(b"file", repr(box).encode(), read.files.read(read.paths[place]))
        except (ValueError, OSError):  # who trains on it or scores it says what is wrong
            return mark(b"name", dataset.names[i].encode(errors="surrogateescape"))
    image = dataset.read(i)
    return mark(b"image", repr(image.shape).encode(), image.tobytes())
