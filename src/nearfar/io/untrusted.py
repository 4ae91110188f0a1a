"""Files from strangers: only regular files below a given folder are read, up to a maximum size.

JSON is read up to a maximum depth.
"""

from __future__ import annotations

import errno
import io
import json
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..quoting import PATH, quoted

__all__ = [
    "CORRUPT",
    "Outside",
    "Unreadable",
    "check_expansion",
    "check_regular",
    "check_size",
    "further_folders",
    "images_from",
    "open_regular",
    "parse_json",
    "path_below",
    "read_file",
    "read_json",
    "read_stream",
]

DEEPEST = 100
"""Maximum depth of nested lists and objects in JSON; ours have at most 20, and Python's recursion ends near 1,000."""

LARGEST_IMAGE = 2**29
"""Maximum number of bytes of an image file, or of an unpacked member of an archive: 512 MB, the uncompressed size of
the largest picture that Pillow opens."""

FREE_BYTES = 2**28
RATIO = 200
"""Compressed data may unpack to 256 MB, or to 200 times their compressed size if that is more."""

PIECE = 2**20

CORRUPT = (EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""Exceptions of damaged compressed data; RuntimeError if they are encrypted, or compressed in an unknown way."""

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(OSError):
    """A file is not regular, or too large. The message says which; the caller adds the name of the file."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EINVAL, why)

    def __str__(self) -> str:
        return str(self.strerror)


class Outside(Unreadable):
    """A path leads out of the folder below which files are read."""


IMAGES = "NEARFAR_IMAGES"
"""Environment variable: further folders from which images are read, separated as those of PATH are."""


@contextmanager
def images_from(*folders: str | os.PathLike[str]) -> Iterator[None]:
    """Also read images from these folders: data that are opened inside may name files below them, or link to them.

    Child processes inherit the folders, which are in the environment variable NEARFAR_IMAGES.

    Parameters
    ----------
    *folders : path
        The folders.

    Raises
    ------
    ValueError
        If one is not a folder.

    Examples
    --------
    >>> with images_from("/"):
    ...     further_folders()
    ('/',)
    """
    for folder in folders:
        if not os.path.isdir(folder):
            raise ValueError(f"images: expected a folder, got {quoted(os.fspath(folder), PATH)}, which is none")
    before = os.environ.get(IMAGES)
    if folders:
        more = [os.path.realpath(folder) for folder in folders]
        os.environ[IMAGES] = os.pathsep.join([*further_folders(), *more])
    try:
        yield
    finally:
        if before is not None:
            os.environ[IMAGES] = before
        elif folders:
            os.environ.pop(IMAGES, None)


def further_folders() -> tuple[str, ...]:
    """Return the folders of `images_from` and of the environment variable NEARFAR_IMAGES, without links."""
    given = os.environ.get(IMAGES, "").split(os.pathsep)
    return tuple(os.path.realpath(folder) for folder in given if folder)


def path_below(
    folder: str | os.PathLike[str], name: str | os.PathLike[str], also: Sequence[str | os.PathLike[str]] = ()
) -> str:
    """Return the absolute path of a file, after all links, if it is below a folder.

    Parameters
    ----------
    folder : path
        The folder.
    name : path
        Path of the file, relative to the folder, or absolute. The file need not exist.
    also : sequence of path
        Further folders below which the file may be.

    Raises
    ------
    Outside
        If the path leads out of all of these folders, by "..", as an absolute path or through links.
    ValueError
        If the name has a zero byte.

    Examples
    --------
    >>> path_below("/", "a/../b.png")
    '/b.png'
    """
    found = os.path.realpath(os.path.join(folder, name))
    for top in (folder, *also):
        if _is_below(found, os.path.realpath(top)):
            return found
    parent = found if os.path.isdir(found) else os.path.dirname(found)
    raise Outside(
        f"it leads to {quoted(found, PATH)}, outside of the folder {quoted(os.fspath(folder), PATH)}; if you trust the "
        f"data, allow that folder with images={parent!r} (images_from({parent!r}) in Python)"
    )


def _is_below(path: str, top: str) -> bool:
    """Return whether an absolute path is that of a folder or leads below it; neither has links."""
    return path == top or path.startswith(top if top.endswith(os.sep) else top + os.sep)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise an OSError unless it is a regular file: a pipe may block, and a device may send, forever."""
    _check_mode(os.stat(path).st_mode)


def read_file(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path : path
    most : int, optional
        Maximum number of bytes.

    Raises
    ------
    OSError
        If the file does not exist, is not regular, or is larger than `most`; `strerror` is why.
    """
    with open_regular(path) as file:
        return file.read() if most is None else read_stream(file, most)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read its bytes.

    Raises
    ------
    OSError
        If the file does not exist, or is not regular; `strerror` is why.
    """
    # opening a pipe without a writer would block
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_mode(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "something else")
    raise Unreadable(f"it is {kind}; expected a regular file")


def check_size(size: int, most: int = LARGEST_IMAGE) -> None:
    """Raise an `Unreadable` if a file has more than the maximum number of bytes."""
    if size > most:
        raise Unreadable(f"it is larger than {in_megabytes(most)}, the maximum size of a file")


def read_stream(file: Any, most: int, piece: int = PIECE) -> bytes:
    """Read a stream to its end, in pieces; raise an `Unreadable` if it is longer than `most` bytes."""
    content = io.BytesIO()
    while read := file.read(piece):
        content.write(read)
        check_size(content.tell(), most)
    return content.getvalue()


def check_expansion(unpacked: int, packed: int) -> None:
    """Raise an `Unreadable` for compressed data that would fill the memory.

    Parameters
    ----------
    unpacked, packed : int
        Numbers of bytes.
    """
    if unpacked > max(FREE_BYTES, RATIO * packed):
        limit = f"{in_megabytes(FREE_BYTES)}, or {RATIO} times the size of its file"
        raise Unreadable(f"it unpacks to {in_megabytes(unpacked)} or more; expected at most {limit}")


def in_megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"


class Unpacking(io.RawIOBase):
    """A stream of unpacked bytes that raises an `Unreadable` before it fills the memory.

    Parameters
    ----------
    stream : binary file
        Stream of the unpacked bytes.
    packed : int
        Number of bytes of the compressed file.
    """

    def __init__(self, stream: Any, packed: int) -> None:
        self._stream = stream
        self._packed = packed
        self._seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._stream.read(len(buffer))
        self._seen += len(read)
        check_expansion(self._seen, self._packed)
        buffer[: len(read)] = read
        return len(read)

    def close(self) -> None:
        self._stream.close()
        super().close()


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text.

    Raises
    ------
    ValueError
        If it is not JSON, or has more than 100 nested lists and objects, with which recursive functions would fail.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} lists or objects are nested in each other") from None
    if isinstance(text, bytes):
        opened = text.count(b"[") + text.count(b"{")
    else:
        opened = text.count("[") + text.count("{")
    if opened > DEEPEST:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [part for whole in level for part in _parts(whole) if isinstance(part, (list, dict))]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} lists or objects are nested in each other")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return iter(value.values())
    return iter(value) if isinstance(value, list) else iter(())


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a JSON file; raise an OSError if it cannot be read, or a ValueError if it is not JSON."""
    return parse_json(read_file(Path(path)))
