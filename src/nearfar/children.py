"""Processes that this one starts, and where they look for modules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OWN_MODULES", "isolate_children"]

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
