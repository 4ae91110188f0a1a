"""Progress bars on the terminal, for work that takes longer than a moment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import TYPE_CHECKING

from ..progress import Listener
from .options import is_first

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MOMENT = 1.0  # seconds that work lasts before there is a bar for it


@dataclass
class Work:
    """A piece of work: what it is, how much there is and is done of it, and its bar once it has one."""

    what: str
    total: int | None
    done: int = 0
    ended: bool = False
    bar: TaskID | None = None
    timer: Timer = field(init=False)


class Bars:
    """Bars on stderr, each from a moment after its work began until it ends; what is printed later finds no trace."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._lock = Lock()  # timers have threads of their own

    def begin(self, what: str, total: int | None) -> Work:
        work = Work(what, total)
        work.timer = Timer(MOMENT, self._show, [work])
        work.timer.daemon = True
        work.timer.start()
        return work

    def advance(self, work: Work, by: int) -> None:
        with self._lock:
            work.done += by
            if self._progress is not None and work.bar is not None:
                self._progress.update(work.bar, completed=work.done)

    def end(self, work: Work) -> None:
        work.timer.cancel()
        with self._lock:
            work.ended = True
            if self._progress is None or work.bar is None:
                return
            self._progress.remove_task(work.bar)
            if not self._progress.tasks:
                self._progress.stop()
                self._progress = None

    def _show(self, work: Work) -> None:
        with self._lock:
            if work.ended:
                return
            if self._progress is None:
                self._progress = transient_progress()
                self._progress.start()
            work.bar = self._progress.add_task(work.what, total=work.total, completed=work.done)


def transient_progress() -> Progress:
    """Return a display that leaves stdout alone, and nothing on the terminal when it stops."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)


def bars_for(words: Sequence[str]) -> Listener | None:
    """Bars where somebody sees them: on a terminal, by one process, not with --quiet among the words of the command."""
    terminal = sys.stderr is not None and sys.stderr.isatty()  # there is none where it was closed, as in a service
    if terminal and is_first() and "--quiet" not in words:
        return Bars()
    return None
