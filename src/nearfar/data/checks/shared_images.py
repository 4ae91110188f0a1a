"""Images that are in training and in the test: identical files, or identical pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from ...quoting import count_of
from ..dataset import Dataset, Task, some, unwrapped
from ..decode import ImageReader
from ..readers.files import FolderFiles, ZipFiles
from ..readers.tar_files import TarFiles

ENDS = 4096  # bytes at the end of a file that are compared before whole files are


def remark_shared(task: Task) -> str:
    """Return a sentence on the test images that also occur in training; empty if there are none.

    Images in memory are compared by their pixels, others by their files and crop boxes. A file is read completely only
    if its size and last bytes, or in an archive its size and checksum, agree with those of another one. Rows are not
    compared, nor are files of a folder with those of a zip.
    """
    if task.test is task.train:  # a final model has no test
        return ""
    learned = [part for part in (task.train, task.validation) if part is not None]
    tested = [part for part in (task.test, task.gallery) if part is not None]
    for marks in (_pixels, _files):
        known = {mark for part in learned for mark, _ in marks(part)}
        found = list(dict.fromkeys(name for part in tested for mark, name in marks(part) if mark in known))
        if found and marks is _files:
            found = _equal(learned, tested, known)
        if found:
            verb = "is also a training image" if len(found) == 1 else "are also training images"
            return f"NOT disjoint: {count_of(len(found), 'test image')} {verb} ({some(found, 3)})."
    return ""


def _pixels(part: Dataset) -> Iterator[tuple[Hashable, str]]:
    if part.kind == "image" and part.array is not None:
        for image, name in zip(part.array, part.names, strict=True):
            yield (image.shape, hashlib.sha256(image.tobytes()).digest()), name


def _files(part: Dataset) -> Iterator[tuple[Hashable, str]]:
    for files, path, box, name in _places(part):
        yield (box, *_mark(files, path)), name


def _mark(files: FolderFiles | ZipFiles | TarFiles, path: str) -> tuple[int, int | bytes]:
    """Return properties of a file that distinguish most files, at little cost."""
    if isinstance(files, ZipFiles | TarFiles):
        return files.mark(path)
    with Path(files.path(path)).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - ENDS))
        return size, file.read()


def _equal(learned: list[Dataset], tested: list[Dataset], known: set[Hashable]) -> list[str]:
    """Return the names of the test images whose files equal one of training; only candidates are read."""
    contents = {content for content, _ in _contents(learned, known)}
    found = [name for content, name in _contents(tested, known) if content in contents]
    return list(dict.fromkeys(found))


def _contents(parts: list[Dataset], known: set[Hashable]) -> Iterator[tuple[Hashable, str]]:
    for part in parts:
        for files, path, box, name in _places(part):
            if (box, *_mark(files, path)) in known:
                yield (box, hashlib.sha256(files.read(path)).digest()), name


def _places(part: Dataset) -> Iterator[tuple[FolderFiles | ZipFiles | TarFiles, str, tuple[int, ...] | None, str]]:
    """Yield the file, box and name of every image of a set that is not in memory."""
    if part.array is not None:
        return
    for i, name in enumerate(part.names):
        read: Any
        read, place = unwrapped(part.read, i)
        if not isinstance(read, ImageReader) or not isinstance(read.files, FolderFiles | ZipFiles | TarFiles):
            return
        box = None if read.boxes is None else read.boxes[place]
        yield read.files, read.paths[place], None if box is None else tuple(box), name
