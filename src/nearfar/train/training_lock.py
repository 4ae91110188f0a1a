"""One training at a time in a folder: two would overwrite and remove each other's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..io.atomic_files import locked
from .config import TrainError
from .run import LOCK


@contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Keep others from training in a folder meanwhile; the claim ends with the process, however that ends.

    Raises
    ------
    TrainError
        If another process trains there, or the folder cannot be written in.
    """
    with ExitStack() as held:
        if os.environ.get("RANK", "0") == "0":  # the first of several processes claims it for all
            try:
                held.enter_context(locked(folder / LOCK))
            except TimeoutError as error:
                busy = "another process is training there; choose another folder, or wait"
                raise TrainError(f"{folder}: {busy}") from error
            except OSError as error:
                raise TrainError(f"{folder}: cannot be written in ({error.strerror or error})") from error
        yield
