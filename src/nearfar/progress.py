"""Progress of long work: whoever listens is told what is being done and how far it is. By default nobody does.

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
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Listener(Protocol):
    """Is told of work as it goes on; what `begin` returns is how the rest names it."""

    def begin(self, what: str, total: int | None) -> Any:
        """Work has begun; `total` is how much there is of it, where that is known."""

    def advance(self, work: Any, by: int) -> None:
        """So much more of it is done."""

    def end(self, work: Any) -> None:
        """It is done, or has failed."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Tell this listener of all work within; None: tell nobody."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def stage(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Work that may take long: a context that gives the function to call with how much more of it is done.

    Parameters
    ----------
    what : str
        One or two words, such as "embedding".
    total : int, optional
        How much there is to do, in the units of the calls.
    """
    listener = _listener.get()
    if listener is None:
        yield _unheard
        return
    work = listener.begin(what, total)
    try:
        yield lambda by: listener.advance(work, by)
    finally:
        listener.end(work)


def counted(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, each told as done when the next is asked for."""
    with stage(what, total) as done:
        for item in items:
            yield item
            done(1)


def _unheard(by: int) -> None:
    """Nobody listens."""
