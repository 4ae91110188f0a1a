"""Files of strangers: only regular files are read, no more of them than is sensible, and JSON that is not too deep."""

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
"""Lists and objects inside each other in JSON; ours have 20 at most, and Python's recursion ends near 1,000."""

LARGEST_IMAGE = 2**29
"""Bytes of one image file, or of one member of an archive once unpacked: 512 MB, as much as the largest picture that
Pillow opens takes without packing."""

FREE_BYTES = 2**28
RATIO = 200
"""Packed data may unpack to 256 MB whatever their own size, and to more only at up to 200 times their own size."""

PIECE = 2**20

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(OSError):
    """No regular file, or more than is read; the message says which, and leaves the name to who knows it."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EINVAL, why)

    def __str__(self) -> str:
        return str(self.strerror)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise an OSError unless there is a regular file: a pipe may wait, and a device may send, for ever."""
    _check_mode(os.stat(path).st_mode)


def read_file(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path : path
    most : int, optional
        Bytes that are read at most.

    Raises
    ------
    OSError
        It is not there, no regular file, or larger than `most`; `strerror` says which.
    """
    with open_regular(path) as file:
        return file.read() if most is None else read_stream(file, most)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read its bytes.

    Raises
    ------
    OSError
        It is not there, or no regular file; `strerror` says which.
    """
    # a pipe without a writer would keep even the opening waiting
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
    """Raise an `Unreadable` for more bytes than one file may have."""
    if size > most:
        raise Unreadable(f"it is larger than the {in_megabytes(most)} that one file may have")


def read_stream(file: Any, most: int, piece: int = PIECE) -> bytes:
    """Read a stream to its end, piece by piece; raise an `Unreadable` where it is longer than `most` bytes."""
    content = io.BytesIO()
    while read := file.read(piece):
        content.write(read)
        check_size(content.tell(), most)
    return content.getvalue()


def check_expansion(unpacked: int, packed: int) -> None:
    """Raise an `Unreadable` for packed data that would fill the memory.

    Parameters
    ----------
    unpacked, packed : int
        Bytes.
    """
    if unpacked > max(FREE_BYTES, RATIO * packed):
        limit = f"{in_megabytes(FREE_BYTES)}, or {RATIO} times the size of its file"
        raise Unreadable(f"it unpacks to {in_megabytes(unpacked)} or more; expected at most {limit}")


def in_megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"


class Unpacking(io.RawIOBase):
    """A stream of unpacked bytes that ends with an `Unreadable` where it would fill the memory.

    Parameters
    ----------
    stream : binary file
        Of the unpacked bytes.
    packed : int
        Bytes of the packed file.
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
    """Return what a JSON text holds.

    Raises
    ------
    ValueError
        It is no JSON, or has more than 100 lists and objects inside each other: what works on such values by recursion
        would break off.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} lists or objects lie inside each other") from None
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
    raise ValueError(f"more than {DEEPEST} lists or objects lie inside each other")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return iter(value.values())
    return iter(value) if isinstance(value, list) else iter(())


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file holds; raise an OSError or a ValueError where it cannot be read or is no JSON."""
    return parse_json(read_file(Path(path)))
