"""The folder of the cache, for files that can be made or downloaded again.

What is made from data, and changes results, lies in folders that belong to the user alone: in others, someone else
could put other content there, or links to files that would be overwritten.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

PRIVATE = 0o700
"""Permissions of a folder that only its owner can read and write."""


def cache_folder() -> Path:
    """Return the environment variable NEARFAR_CACHE, or by default ~/.cache/nearfar."""
    return Path(os.environ.get("NEARFAR_CACHE") or Path.home() / ".cache" / "nearfar")


def private_folder(name: str) -> Path:
    """Return a folder of the cache that belongs to this user alone; it is created if there is none.

    Raises
    ------
    OSError
        If it cannot be created, is a link, or belongs to another user; the message says what to do.
    """
    folder = cache_folder() / name
    try:
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise PermissionError("it is a link")
        _check_owner(found)
        if hasattr(os, "getuid") and stat.S_IMODE(found.st_mode) != PRIVATE:
            folder.chmod(PRIVATE)
    except OSError as error:
        why = error.strerror or error
        raise type(error)(
            f"{folder}: cannot be used as a cache ({why}); set NEARFAR_CACHE to a folder of your own"
        ) from error
    return folder


def open_entry(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of the cache, and return its descriptor.

    Parameters
    ----------
    path : Path
        File in a `private_folder`.
    flags : int
        As for `os.open`; a new file is private.

    Raises
    ------
    OSError
        If it does not exist, is a link or no regular file, or belongs to another user.
    """
    # opening a pipe without a writer would block
    never = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags | never | getattr(os, "O_BINARY", 0), 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError("it is no regular file")
        _check_owner(found)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_entry(path: Path) -> IO[bytes]:
    """Open a file of the cache to read its bytes, as `open_entry` does."""
    return os.fdopen(open_entry(path), "rb")


def _check_owner(found: os.stat_result) -> None:
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError("it belongs to another user")
