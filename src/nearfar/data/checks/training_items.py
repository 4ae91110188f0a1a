"""The training items of a model: a fingerprint of each is stored with the model, to recognize the item later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...io.training_marks import TrainingMarks, are_kept, mark, mark_classes, mark_names, mark_rows
from ...labels import folded
from ...progress import counted
from ..dataset import Dataset, unwrapped
from ..decode import ImageReader

FILE = "training-items.safetensors"
"""Name of their file in the folder of a run."""


@dataclass(frozen=True, eq=False)
class TrainingItems(TrainingMarks):
    """Fingerprints of the items that a model was trained on, which are made from data sets and compared with them."""

    @classmethod
    def of(cls, *parts: Dataset | None, final: bool = False) -> TrainingItems:
        """Make the fingerprints of the items to train on, and of those that choose the checkpoint."""
        given = [part for part in parts if part is not None]
        count = sum(map(len, given))
        if are_kept(count):
            items = np.unique(np.concatenate([mark_items(part) for part in given]))
        else:
            items = np.empty(0, np.int64)
        marks = mark_classes(name for part in given for name in part.classes)
        return cls(items, *marks, count, given[0].columns, final)

    def among(self, dataset: Dataset) -> NDArray[np.bool_]:
        """Return whether the model was trained on each item of a set, shape (n,)."""
        return np.isin(mark_items(dataset.in_columns(self.columns, "the training")), self.items)

    def known_classes(self, dataset: Dataset) -> int:
        """Count the non-empty classes of a set that have the name of a training class."""
        return int(np.isin(mark_names(occurring(dataset)), self.classes).sum())

    def spelled_alike(self, dataset: Dataset) -> list[str]:
        """Return the non-empty classes of a set whose name is that of a training class in another spelling."""
        names = occurring(dataset)
        alike = np.isin(mark_names(map(folded, names)), self.spellings) & ~np.isin(mark_names(names), self.classes)
        return [name for name, is_alike in zip(names, alike, strict=True) if is_alike]


def occurring(dataset: Dataset) -> list[str]:
    """Return the names of the classes that have items."""
    return [name for name, count in zip(dataset.classes, dataset.class_counts, strict=True) if count]


def mark_items(dataset: Dataset) -> NDArray[np.int64]:
    """Return a fingerprint of every item, shape (n,). Identical items have equal fingerprints, whatever their names.

    The fingerprint of an image file depends on its bytes and its crop box, but not on the size to which the image is
    resized. That of an image in memory depends on its pixels, that of a row on its float32 values, and that of a text
    on its characters.
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
        except (ValueError, OSError):  # training or scoring will raise the error
            return mark(b"name", dataset.names[i].encode(errors="surrogateescape"))
    image = dataset.read(i)
    return mark(b"image", repr(image.shape).encode(), image.tobytes())
