"""Shrunk copies of large photos on disk, so that each photo is decoded and resized only once per size.

There is one file for each data set and size, `shrunk/KEY.pixels` in the cache, with a slot for every photo: a header of
32 bytes with the size and date of the photo's file and the CRC-32 of the pixels, followed by the raw pixels. So a copy
equals the decoded photo exactly. Any number of processes can read and write slots: two processes that write the same
slot write the same bytes, and a half-written slot has a wrong CRC.
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

from ..io.cache import open_entry, private_folder
from ..quoting import quoted

VARIABLE = "NEARFAR_SHRUNK_GB"
"""Environment variable: the maximum size of all copies in gigabytes; 0 disables them."""

GIGABYTES = 5.0
"""Default of this size in bytes, which is also limited to half of the free disk space."""

HEAD = struct.Struct("<4sIqqq")
"""Header of a slot: a mark, the CRC-32 of the pixels, size and date of the file in bytes and nanoseconds, reserved."""

MARK = b"nf-1"

SUFFIX = ".pixels"


def budget() -> int:
    """Return the maximum number of bytes of all copies.

    Raises
    ------
    ValueError
        If the variable is not a number of at least 0.
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
    """The copies of one data set at one size.

    Parameters
    ----------
    path : Path
        File of the copies.
    shape : tuple of int
        (height, width, channels) of a copy.
    capacity : int
        Number of slots; only the first photos of the data set have one.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], capacity: int) -> None:
        self.shape = shape
        self.capacity = capacity
        self.bytes = int(np.prod(shape))
        self.slot = HEAD.size + self.bytes
        self.file = open_entry(path, os.O_RDWR | os.O_CREAT)

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self.file)

    def get(self, i: int, stamp: tuple[int, int]) -> NDArray[np.uint8] | None:
        """Return the copy of photo i; None if there is none, or the file of the photo has changed."""
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
        """Write a copy of photo i; do nothing if the disk is full."""
        if i >= self.capacity or pixels.shape != self.shape:
            return
        content = np.ascontiguousarray(pixels).tobytes()
        head = HEAD.pack(MARK, zlib.crc32(content), *stamp, 0)
        try:
            os.pwrite(self.file, head + content, i * self.slot)
        except OSError:
            self.capacity = 0


def open_copies(root: str, paths: Sequence[str], shape: tuple[int, ...], how: Sequence[Any]) -> ShrunkCopies | None:
    """Open the copies of a data set at one size; None if copies are disabled.

    Parameters
    ----------
    root : str
        Path of the folder or archive.
    paths : sequence of str
        Paths of the photos.
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
    try:
        folder = private_folder("shrunk")
        file = folder / f"{digest.hexdigest()[:32]}{SUFFIX}"
        allowed = min(allowed, _taken(file) + shutil.disk_usage(folder).free // 2)
        make_room(folder, file, min(allowed, slot * len(paths)), allowed)
        return ShrunkCopies(file, shape, min(len(paths), allowed // slot))
    except OSError:  # the cache cannot be used, so there are no copies
        return None


def make_room(folder: Path, file: Path, needed: int, allowed: int) -> None:
    """Remove copies of other data sets, the oldest first, until there is enough space."""
    others = [path for path in folder.glob(f"*{SUFFIX}") if path != file]
    others.sort(key=lambda path: path.stat().st_mtime)
    taken = sum(map(_taken, others))
    for path in others:
        if taken + needed <= allowed:
            return
        taken -= _taken(path)
        path.unlink(missing_ok=True)


def _taken(path: Path) -> int:
    """Return the disk usage of a sparse file in bytes."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return int(getattr(found, "st_blocks", -(-found.st_size // 512))) * 512
