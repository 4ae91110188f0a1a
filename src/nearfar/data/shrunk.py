"""Shrunk copies of large photos, kept on disk: what a photo becomes at one size is decoded once.

One file for each set and size, `shrunk/KEY.pixels` in the cache, with a slot for every photo: 32 bytes that tell of
which file it is (size and date) and what the pixels are (their CRC-32), then the pixels as they are. So a copy is
exactly what decoding gives. Slots are read and written by their places, by any number of processes: two that write the
same slot write the same bytes, and one that is half-written has another CRC.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..io.cache import cache_folder
from ..quoting import quoted

VARIABLE = "NEARFAR_SHRUNK_GB"
"""The environment variable with the gigabytes that all copies together may take; 0 for none."""

GIGABYTES = 5.0
"""What they may take where it is not set, and at most half of what is free on the disk."""

HEAD = struct.Struct("<4sIqqq")
"""Of a slot: a mark, the CRC-32 of the pixels, size and date of the file in bytes and nanoseconds, and a reserve."""

MARK = b"nf-1"

SUFFIX = ".pixels"


def budget() -> int:
    """Return the bytes that all copies together may take.

    Raises
    ------
    ValueError
        If the variable is no number of at least 0.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        gigabytes = float(text) if text else GIGABYTES
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise ValueError(f"{VARIABLE}: expected a number of gigabytes, 0 for no copies, got {quoted(text)}")
    return int(gigabytes * 1e9)


class ShrunkCopies:
    """The copies of one set at one size.

    Parameters
    ----------
    path : Path
        Their file.
    shape : tuple of int
        (height, width, channels) of a copy.
    capacity : int
        Photos of the set that have a slot, the first ones.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], capacity: int) -> None:
        self.shape = shape
        self.capacity = capacity
        self.bytes = int(np.prod(shape))
        self.slot = HEAD.size + self.bytes
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self.file)

    def get(self, i: int, stamp: tuple[int, int]) -> NDArray[np.uint8] | None:
        """Return the copy of photo i, if there is one of the file as it is now."""
        if i >= self.capacity:
            return None
        try:
            found = os.pread(self.file, self.slot, i * self.slot)
        except OSError:
            return None
        if len(found) < self.slot:
            return None
        mark, check, *recorded_stamp, _ = HEAD.unpack_from(found)
        if mark != MARK or tuple(recorded_stamp) != stamp or check != zlib.crc32(memoryview(found)[HEAD.size :]):
            return None
        return np.frombuffer(found, np.uint8, self.bytes, HEAD.size).reshape(self.shape)

    def put(self, i: int, stamp: tuple[int, int], pixels: NDArray[np.uint8]) -> None:
        """Keep a copy of photo i; a disk that is full keeps none."""
        if i >= self.capacity or pixels.shape != self.shape:
            return
        content = np.ascontiguousarray(pixels).tobytes()
        head = HEAD.pack(MARK, zlib.crc32(content), *stamp, 0)
        try:
            os.pwrite(self.file, head + content, i * self.slot)
        except OSError:
            self.capacity = 0


def open_copies(root: str, paths: Sequence[str], shape: tuple[int, ...], how: Sequence[Any]) -> ShrunkCopies | None:
    """Open the copies of a set at one size; None where none are kept.

    Parameters
    ----------
    root : str
        The folder or the archive.
    paths : sequence of str
        Of its photos.
    shape : tuple of int
        (height, width, channels) of a copy.
    how : sequence
        Everything else on which the pixels depend.
    """
    allowed = budget()
    slot = HEAD.size + int(np.prod(shape))
    if allowed < slot or not hasattr(os, "pread"):
        return None
    digest = hashlib.sha256(repr((os.path.abspath(root), shape, tuple(how))).encode(errors="surrogateescape"))
    for path in paths:
        digest.update(path.encode(errors="surrogateescape") + b"\0")
    folder = cache_folder() / "shrunk"
    file = folder / f"{digest.hexdigest()[:32]}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        allowed = min(allowed, _taken(file) + shutil.disk_usage(folder).free // 2)
        make_room(folder, file, min(allowed, slot * len(paths)), allowed)
        return ShrunkCopies(file, shape, min(len(paths), allowed // slot))
    except OSError:  # a folder that cannot be written: no copies
        return None


def make_room(folder: Path, file: Path, needed: int, allowed: int) -> None:
    """Remove the copies of other sets, those that were written longest ago first, until there is room for one."""
    others = [path for path in folder.glob(f"*{SUFFIX}") if path != file]
    others.sort(key=lambda path: path.stat().st_mtime)
    taken = sum(map(_taken, others))
    for path in others:
        if taken + needed <= allowed:
            return
        taken -= _taken(path)
        path.unlink(missing_ok=True)


def _taken(path: Path) -> int:
    """Return the bytes that a file takes on the disk, without the holes in it."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return int(getattr(found, "st_blocks", -(-found.st_size // 512))) * 512
