"""Processes that this one starts, and where they look for modules."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OWN_MODULES", "end_with", "isolate_children"]

SAFE_PATH = "PYTHONSAFEPATH"

OWN_MODULES = "NEARFAR_OWN_MODULES"
"""In the environment, a folder in which ``python -m nearfar`` looks for modules last."""


@contextmanager
def isolate_children() -> Iterator[None]:
    """Let Python processes that are started meanwhile import nothing from the working directory.

    Data lie there, and files among them could be called torch.py. ``python -m`` and ``python -c``, by which torchrun
    and multiprocessing start processes, look there first; multiprocessing then passes on the path of this process.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def end_with(parent: int, patience: float = 60.0) -> None:
    """Let this process end when its parent has ended: by SIGTERM, or at once if it has not ended after some seconds.

    Parameters
    ----------
    parent : int
        Number of the parent process, which the parent itself tells, because it may end before this process looks.
    patience : float
        Seconds to finish a batch and write a checkpoint.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
