"""Files from strangers: only regular files are read, up to a maximum size, and JSON up to a maximum depth."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = [
    "Unreadable",
    "check_expansion",
    "check_regular",
    "check_size",
    "open_regular",
    "parse_json",
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
        If the file does not exist, is not regular, or is larger than `most`; `strerror` says which.
    """
    with open_regular(path) as file:
        return file.read() if most is None else read_stream(file, most)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read its bytes.

    Raises
    ------
    OSError
        If the file does not exist, or is not regular; `strerror` says which.
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
