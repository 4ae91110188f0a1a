"""Progress of long work. A listener, if there is one, is notified of its stages and steps.

Any module reports its work with `stage` and `counted`; `Bars` is the listener that shows it on a terminal.

with stage("embedding", len(items)) as done:
    for part in parts:
        ...
        done(len(part))

for i in counted(range(n), "reading", n): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

T = TypeVar("T")

MOMENT = 1.0  # seconds after which a bar is shown


class Listener(Protocol):
    """Receives the progress of work; the value that `begin` returns identifies the work in the other calls."""

    def begin(self, what: str, total: int | None) -> Any:
        """Work has begun; `total` is its amount, if known."""

    def advance(self, work: Any, by: int) -> None:
        """The amount `by` of the work was done."""

    def end(self, work: Any) -> None:
        """The work is done, or has failed."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Notify this listener of all work within the context; with None, nobody."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def stage(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Report work that may take long: a context with a function to call with the amount of work that was done.

    Parameters
    ----------
    what : str
        One or two words, such as "embedding".
    total : int, optional
        Total amount of work, in the units of the calls.
    """
    listener = _listener.get()
    if listener is None:
        yield _ignore
        return
    work = listener.begin(what, total)
    try:
        yield lambda by: listener.advance(work, by)
    finally:
        listener.end(work)


def counted(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yield the items, and report each as done when the next one is requested."""
    with stage(what, total) as done:
        for item in items:
            yield item
            done(1)


class Portion:
    """Listener that counts work as a portion of other work, whatever the units of its stages are.

    Parameters
    ----------
    done : callable
        Function to call with the amount of the other work that was done.
    size : int
        How much of the other work the portion is. All of it counts as done at the end of the context.
    """

    def __init__(self, done: Callable[[int], None], size: int) -> None:
        self._done = done
        self._size = size
        self._counted = 0

    def begin(self, what: str, total: int | None) -> Work:
        return Work(what, total)

    def advance(self, work: Work, by: int) -> None:
        work.done += by
        if work.total:
            self._count_to(self._size * min(work.done, work.total) // work.total)

    def end(self, work: Work) -> None:
        """Do nothing: the portion may have other stages."""

    def _count_to(self, amount: int) -> None:
        if amount > self._counted:
            self._done(amount - self._counted)
            self._counted = amount

    def __enter__(self) -> Portion:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._count_to(self._size)


def _ignore(by: int) -> None:
    """Do nothing, because there is no listener."""


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
                self._progress = terminal_display()
                self._progress.start()
            work.bar = self._progress.add_task(work.what, total=work.total, completed=work.done)


def terminal_display(*columns: ProgressColumn, transient: bool = True) -> Progress:
    """Return a display on stderr.

    Parameters
    ----------
    *columns : ProgressColumn
        What rich shows of each piece of work; its usual columns and the time so far where none are given.
    transient : bool
        Leave nothing on the terminal when it stops, and leave stdout alone, which is for results. What is printed
        while a display stays appears above it.
    """
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    shown = columns or (*Progress.get_default_columns(), TimeElapsedColumn())
    return Progress(*shown, console=Console(stderr=True), transient=transient, redirect_stdout=not transient)
