"""Ctrl-C and SIGTERM at any moment of a command, also during its imports."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Context in which SIGINT and SIGTERM raise a KeyboardInterrupt, and errors after a signal become one.

    The argument of the KeyboardInterrupt is the number of the signal.

    Interrupted code may raise another error: compiled modules do so if their import is interrupted. A signal that is
    ignored, as that of a background job of a shell, remains ignored.
    """

    def __init__(self) -> None:
        self._number: int | None = None  # of the signal that came
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._request_stop)
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._number is not None and isinstance(error, Exception):
            raise KeyboardInterrupt(self._number) from error

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        raise KeyboardInterrupt(number)


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Return the exit code of a process that a signal has stopped: 128 and its number, as shells write it."""
    return 128 + int(stopped.args[0] if stopped.args else signal.SIGINT)
