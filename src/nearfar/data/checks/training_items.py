"""The training items of a model: a fingerprint of each is stored with the model, to recognize the item later."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...io.training_marks import MOST, TrainingMarks, are_kept, mark, mark_classes, mark_names, mark_rows
from ...labels import folded
from ...progress import stage
from ..dataset import Dataset, some, unwrapped
from ..decode import ImageReader
from ..sounds import SoundReader

ITEMS_OF_A_TASK = 64
"""Number of images that a thread marks at a time: a task for each one would take longer than to mark a small one."""
FILE = "training-items.safetensors"
"""Name of their file in the folder of a run."""


IN_TRAINING = "in the training of"
TRAINING_SCORE = "these are training scores, which do not show how well it handles new items"
NO_LIST = "has no list of its training items"
FINAL = "is a final model, which was trained on all classes of its data"


def marks_of(*parts: Dataset | None, final: bool = False) -> TrainingMarks:
    """Return the fingerprints of the items to train on, and of those that choose the checkpoint."""
    given = [part for part in parts if part is not None]
    count = sum(map(len, given))
    if are_kept(count):
        items = np.unique(np.concatenate([mark_items(part) for part in given]))
    else:
        items = np.empty(0, np.int64)
    marks = mark_classes(name for part in given for name in part.classes)
    return TrainingMarks(items, *marks, count, given[0].columns, final)


def among(marked: TrainingMarks, dataset: Dataset) -> NDArray[np.bool_]:
    """Return whether a model was trained on each item of a set, shape (n,)."""
    return np.isin(mark_items(dataset.in_columns(marked.columns, "the training")), marked.items)


def known_classes(marked: TrainingMarks, dataset: Dataset) -> int:
    """Count the non-empty classes of a set that have the name of a training class."""
    return int(np.isin(mark_names(occurring(dataset)), marked.classes).sum())


def respelled_classes(marked: TrainingMarks, dataset: Dataset) -> list[str]:
    """Return the non-empty classes of a set whose name is that of a training class in another spelling."""
    names = occurring(dataset)
    alike = np.isin(mark_names(map(folded, names)), marked.spellings) & ~np.isin(mark_names(names), marked.classes)
    return [name for name, is_alike in zip(names, alike, strict=True) if is_alike]


def unseen(dataset: Dataset, models: Mapping[str, TrainingMarks | None], *, keep: bool) -> Dataset:
    """Leave out the items that models were trained on, or `keep` them, and note how many there are.

    Parameters
    ----------
    dataset : Dataset
        The items.
    models : mapping
        What each model was trained on (`trained_on`), by its name in the notes.
    keep : bool
        Whether items stay that models were trained on.

    Returns
    -------
    Dataset
        The other items, or all, with further notes.
    """
    seen = {model: among(marked, dataset) for model, marked in models.items() if marked and marked.complete}
    every = np.logical_or.reduce([np.zeros(len(dataset), dtype=bool), *seen.values()])
    notes = []
    for model, marked in models.items():
        if marked is None:
            notes.append(f"{model} {NO_LIST}; some of these items may be among them")
        elif not marked.complete:
            why = f"{NO_LIST}, because they were more than {MOST:,}"
            notes.append(f"{model} {why}; some of these items may be among them")
        elif seen[model].any():
            count = int(seen[model].sum())
            notes.append(_note_on_seen(dataset, model, count, kept=keep, all_seen=bool(every.all())))
    notes.extend(f"{model} {FINAL}" for model, marked in models.items() if marked and marked.final)
    kept = dataset if keep or every.all() else dataset.subset(~every)
    if not every.all():
        notes.extend(_note_on_classes(kept, model, marked) for model, marked in models.items() if marked)
    return replace(kept, notes=(*dataset.notes, *filter(None, notes)))


def _note_on_seen(dataset: Dataset, model: str, count: int, *, kept: bool, all_seen: bool) -> str:
    were = f"{dataset.kind}s were {IN_TRAINING} {model}"
    if count == len(dataset):
        return f"all {count} {were}: {TRAINING_SCORE}"
    some_were = f"{count} of {len(dataset)} {were}"
    if kept or all_seen:
        return f"{some_were}, and are scored, too: in part, {TRAINING_SCORE}"
    return f"{some_were}, and are left out; --all scores them, too"


def _note_on_classes(dataset: Dataset, model: str, marked: TrainingMarks) -> str:
    known = known_classes(marked, dataset)
    total = np.count_nonzero(dataset.class_counts)
    there = f"{IN_TRAINING} {model}"
    if known:
        return f"{known} of {total} classes have the names of classes {there}: not zero-shot"
    alike = respelled_classes(marked, dataset)
    if alike:
        spelled = f"{len(alike)} of {total} classes are spelled almost like classes {there}"
        return f"{spelled} ({some(alike, 3)}): perhaps not zero-shot"
    return ""


def warnings_on_scores(dataset: Dataset) -> list[str]:
    """Return the notes that say that a score is a training score, or that of a final model, as sentences."""
    warned = [note for note in dataset.notes if TRAINING_SCORE in note or FINAL in note]
    return [f"{note[0].upper()}{note[1:]}." for note in warned]


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
    n = len(dataset)
    found: list[int] = []
    tasks = [range(first, min(first + ITEMS_OF_A_TASK, n)) for first in range(0, n, ITEMS_OF_A_TASK)]
    with ThreadPoolExecutor() as pool, stage("marking", n) as done:
        for marks in pool.map(partial(_mark_images, dataset), tasks):
            found += marks
            done(len(marks))
    return np.array(found, dtype=np.int64)


def _mark_images(dataset: Dataset, items: range) -> list[int]:
    return [_mark_image(dataset, i) for i in items]


def _mark_image(dataset: Dataset, i: int) -> int:
    read, place = unwrapped(dataset.stored or dataset.read, i)
    if isinstance(read, ImageReader | SoundReader):
        box = read.boxes[place] if isinstance(read, ImageReader) and read.boxes is not None else None
        try:
            return mark(b"file", repr(box).encode(), read.files.read(read.paths[place]))
        except (ValueError, OSError):  # training or scoring will raise the error
            return mark(b"name", dataset.names[i].encode(errors="surrogateescape"))
    image = dataset.read(i)
    return mark(b"image", repr(image.shape).encode(), image.tobytes())
