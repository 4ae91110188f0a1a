"""Ctrl-C and SIGTERM at any moment of a command, also while it imports."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While entered, SIGINT and SIGTERM raise KeyboardInterrupt, and an error that comes after one is one, too.

    What is stopped may say so in its own way: compiled modules that are stopped while they are imported do. A signal
    that is ignored, as a shell has it for work in the background, stays so.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._asked and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        raise KeyboardInterrupt
