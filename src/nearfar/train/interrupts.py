"""Ctrl-C that loses nothing: the loop finishes its batch and writes a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

asked_by_others = threading.Event()
"""Set where what started this process wants its training to stop; that may come beside a signal, and is no second."""


class Interrupts:
    """While entered, the first SIGINT or SIGTERM sets `asked`; the second raises KeyboardInterrupt at once."""

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
    """Let Ctrl-C wait until the end; in processes that are started meanwhile, until they call `let_through`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """End the wait that `held_back` began in the process that started this one; a Ctrl-C since then comes now."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
