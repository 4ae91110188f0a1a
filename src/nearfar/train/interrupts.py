"""Handling of Ctrl-C without loss: the loop finishes its batch and writes a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

stop_requested = threading.Event()
"""Set if the parent process wants this training to stop; it does not count as a second signal."""


class Interrupts:
    """Context in which the first SIGINT or SIGTERM sets `requested`; the second raises a KeyboardInterrupt at once.

    The argument of a KeyboardInterrupt that leaves the context is the number of the signal, from which follows the exit
    code. A signal that is ignored, as that of a background job of a shell, remains ignored.
    """

    def __init__(self) -> None:
        self._number: int | None = None  # of the first signal
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._request_stop) for number in heeded}
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if isinstance(error, KeyboardInterrupt) and self._number is not None:
            error.args = (self._number,)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        return self._number is not None or stop_requested.is_set()

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        if self._number is not None:
            raise KeyboardInterrupt(number)
        self._number = number


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Block Ctrl-C within the context; processes started within it block it until they call `unblock_interrupts`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_interrupts() -> None:
    """Unblock Ctrl-C, which `block_interrupts` blocked in the parent process; a pending one is delivered now."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
