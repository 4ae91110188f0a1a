"""Images that are in training and in the test: the very same file, or the very same pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from .dataset import Dataset, PickedReader, Task, some
from .decode import ImageReader
from .files import FolderFiles

ENDS = 4096  # bytes at the end of a file that are compared before whole files are


def remark_shared(task: Task) -> str:
    """Return a sentence on the test images that are training images too, empty where there are none.

    Images in memory are compared by their pixels, others by their files; of these only such are read whole as agree in
    size and end with another. Rows, files in archives and cropped images are not compared.
    """
    learnt = [part for part in (task.train, task.validation) if part is not None]
    tested = [part for part in (task.test, task.gallery) if part is not None]
    for marks in (_pixels, _files):
        known = {mark for part in learnt for mark, _ in marks(part)}
        found = list(dict.fromkeys(name for part in tested for mark, name in marks(part) if mark in known))
        if found and marks is _files:
            found = _equal(learnt, tested, known)
        if found:
            return f"NOT disjoint: {len(found)} test image(s) are training images too ({some(found, 3)})."
    return ""


def _pixels(part: Dataset) -> Iterator[tuple[Hashable, str]]:
    if part.kind == "image" and part.array is not None:
        for image, name in zip(part.array, part.names, strict=True):
            yield (image.shape, hashlib.sha256(image.tobytes()).digest()), name


def _files(part: Dataset) -> Iterator[tuple[Hashable, str]]:
    for path, name in _paths(part):
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - ENDS))
            yield (size, file.read()), name


def _equal(learnt: list[Dataset], tested: list[Dataset], known: set[Hashable]) -> list[str]:
    """Names of the test images whose whole files equal one of training, looked for among those that may."""
    ours, theirs = [
        [(hashlib.sha256(path.read_bytes()).digest(), name) for path, name, mark in _marked(parts) if mark in known]
        for parts in (learnt, tested)
    ]
    contents = {content for content, _ in ours}
    return list(dict.fromkeys(name for content, name in theirs if content in contents))


def _marked(parts: list[Dataset]) -> Iterator[tuple[Path, str, Hashable]]:
    for part in parts:
        for (path, name), (mark, _) in zip(_paths(part), _files(part), strict=True):
            yield path, name, mark


def _paths(part: Dataset) -> Iterator[tuple[Path, str]]:
    """Files of a set of whole images in a folder that is not in memory."""
    if part.array is not None:
        return
    for i, name in enumerate(part.names):
        read: Any = part.read
        while isinstance(read, PickedReader):
            read, i = read.read, int(read.index[i])
        if not isinstance(read, ImageReader) or read.boxes is not None or not isinstance(read.files, FolderFiles):
            return
        yield Path(read.files.root, read.paths[i]), name
