"""More classes from symmetries: a rotated or mirrored character is another character (Santoro et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...quoting import quoted
from ..dataset import ArrayReader, DataError, Dataset, Task
from ..decode import load

TURNS = {"rotations": 4, "all": 8}


@dataclass(frozen=True)
class TurnedReader:
    """Reader of n x turns items: item i is item i % n of another reader, turned i // n times by 90 degrees.

    From the fourth turn on, it is also mirrored.
    """

    read: Callable[[int], NDArray[Any]]
    n: int

    def __call__(self, i: int) -> NDArray[Any]:
        turn, base = divmod(i, self.n)
        image = np.rot90(self.read(base), turn % 4)
        return np.ascontiguousarray(image[:, ::-1] if turn >= 4 else image)


def with_symmetries(dataset: Dataset, kind: str = "rotations") -> Dataset:
    """Add the rotations of every class by multiples of 90 degrees, and its mirror images, as further classes.

    Parameters
    ----------
    dataset : Dataset
        Images. Only for training: apply it after the validation classes are split off.
    kind : {"rotations", "all"}
        "rotations" gives four times as many classes, "all" eight times, with the mirror images.

    Returns
    -------
    Dataset
        Classes are named "Sanskrit/character01", "Sanskrit/character01 turned 90", "... mirrored".

    Raises
    ------
    DataError
        If the items are rows, or the kind is unknown.

    Notes
    -----
    A class that looks the same when rotated is split into several that cannot be distinguished. If there are few such
    classes, this harms less than the other classes help.
    """
    if kind not in TURNS or dataset.kind != "image":
        raise DataError(
            f"symmetries: expected one of {', '.join(TURNS)} of images, got {quoted(kind)} of {dataset.kind}s"
        )
    n = len(dataset)
    turns = range(TURNS[kind])
    read = TurnedReader(dataset.read, n)
    marks = [_mark(turn) for turn in turns]
    turned = replace(
        dataset,
        labels=np.concatenate([dataset.labels + turn * len(dataset.classes) for turn in turns]),
        classes=tuple(name + mark for mark in marks for name in dataset.classes),
        names=tuple(name + mark for mark in marks for name in dataset.names),
        class_labels=None if dataset.class_labels is None else dataset.class_labels.marked(marks),
        read=read,
        array=None,
        groups=None if dataset.groups is None else np.tile(dataset.groups, len(turns)),
        texts=None if dataset.texts is None else np.tile(dataset.texts, len(turns)),
        stored=None,
    )
    array = None if dataset.array is None else load(read, len(turned))
    if array is None:
        return turned
    return replace(turned, array=array, read=ArrayReader(array))


def with_more_classes(task: Task, kind: str) -> Task:
    """Return the task with the symmetries of its training classes as further classes; validation and test are kept."""
    train = with_symmetries(task.train, kind)
    turned = "rotated or mirrored" if kind == "all" else "rotated"
    more = f"trained on {len(train.classes):,} classes, including {turned} ones"
    test = train if task.test is task.train else task.test  # the test of a final model is its training set
    return replace(task, train=train, test=test, protocol=f"{task.protocol.removesuffix('.')}; {more}.")


def _mark(turn: int) -> str:
    angle = f" turned {90 * (turn % 4)}" if turn % 4 else ""
    return angle + (" mirrored" if turn >= 4 else "")
