"""Whether a command shows progress bars."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..progress import Bars, Listener
from ..train.launching import is_first_process


def progress_bars(words: Sequence[str]) -> Listener | None:
    """Return progress bars if the first process runs on a terminal without --quiet, otherwise None."""
    terminal = sys.stderr is not None and sys.stderr.isatty()  # a service may have closed stderr
    if terminal and is_first_process() and "--quiet" not in words:
        return Bars()
    return None


def writes_lines() -> bool:
    """Return whether progress is written as lines, because stderr is a file or a pipe."""
    return sys.stderr is not None and not sys.stderr.isatty()
