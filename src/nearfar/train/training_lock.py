"""One training at a time in a folder: two would overwrite and remove each other's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..io.atomic_files import holder, locked
from .config import TrainError
from .run import LOCK


@contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Lock a folder against other trainings, until the end of the context or of the process.

    Raises
    ------
    TrainError
        If another process trains there, or the folder is not writable.
    """
    with ExitStack() as held:
        if os.environ.get("RANK", "0") == "0":  # the first of several processes locks it for all
            try:
                held.enter_context(locked(folder / LOCK))
            except TimeoutError as error:
                busy = f"{holder(folder / LOCK)} is training in this folder; choose another one, or wait"
                raise TrainError(f"{folder}: {busy}") from error
            except OSError as error:
                raise TrainError(f"{folder}: is not writable ({error.strerror or error})") from error
        yield
