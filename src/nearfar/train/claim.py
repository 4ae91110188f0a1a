"""One training at a time in a folder: two would overwrite and remove each other's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .config import TrainError


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep others from training in a folder meanwhile; the claim ends with the process, however that ends.

    Raises
    ------
    TrainError
        If another process trains there.
    """
    descriptor = _lock(folder) if os.environ.get("RANK", "0") == "0" else None
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Return what holds the lock until it is closed; None where the system or its file system has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise TrainError(f"{folder}: another process is training there; choose another folder, or wait") from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
