"""Handling of Ctrl-C without loss: the loop finishes its batch and writes a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

asked_by_others = threading.Event()
"""Set if the parent process wants this training to stop; it does not count as a second signal."""


class Interrupts:
    """Context in which the first SIGINT or SIGTERM sets `asked`, and the second raises a KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self._signaled = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def asked(self) -> bool:
        return self._signaled or asked_by_others.is_set()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._signaled:
            raise KeyboardInterrupt
        self._signaled = True


@contextmanager
def held_back() -> Iterator[None]:
    """Block Ctrl-C until the end of the context; in processes started within it, until they call `let_through`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Unblock Ctrl-C, which `held_back` blocked in the parent process; a pending one is delivered now."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
