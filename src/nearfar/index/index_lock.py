"""Changes of one index that come one after another."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from ..io.atomic_files import locked
from ..io.cache import private_folder
from ..io.uris import is_address, is_folder, shown

WAIT = 600.0
"""Seconds to wait for another process that changes the same index."""

_holders: dict[Path, tuple[int, int]] = {}
"""The process and the thread that hold the lock of an index. A forked process copies the entries of its parent."""


class Opened:
    """A collection that is open to be read, or to be changed, and then locked."""

    uri: str
    writes: bool
    _held: ExitStack
    """The lock of a writer, and what else ends when the collection is closed."""

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_writes(self) -> None:
        if not self.writes:
            raise ValueError(f'{self.uri}: opened to be read; open it with mode="w" to change it')


@contextmanager
def index_lock(file: Path, *, wait: float = WAIT, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock an index from before it is read until it is written, so that no change by another process is lost.

    Parameters
    ----------
    file : Path
        File or folder of the index. For a collection of a server, only other processes of this machine and this user
        are locked out.
    wait : float
        Number of seconds to wait for another process that changes it.
    waiting : callable, optional
        Called once before the wait.

    Raises
    ------
    TimeoutError
        If another process still changes it.
    ValueError
        If the path is neither a file nor a folder of LanceDB.
    OSError
        If its folder is not writable.
    """
    name = shown(file)
    if is_address(file):
        target = private_folder("locks") / hashlib.sha256(name.encode()).hexdigest()[:32]
    else:
        target = _real(file)
    if target.exists() and not (target.is_dir() if is_folder(file) else target.is_file()):
        raise ValueError(f"{name}: cannot be written (it is no regular file)")
    with ExitStack() as held:
        if target.parent.is_dir():  # else there is no index either, and the caller finds out soon
            try:
                held.enter_context(locked(target.with_name(f".{target.name}.lock"), wait=wait, waiting=waiting))
            except TimeoutError as error:
                changing = "another process is changing it"
                if wait > 0:
                    changing = f"another process is still changing it after {wait:g} s"
                raise TimeoutError(f"{name}: {changing}; try again when that has ended") from error
            except OSError as error:
                raise OSError(f"{name}: cannot be written ({error.strerror or error})") from error
        _holders[target] = _this_thread()
        try:
            yield
        finally:
            _holders.pop(target, None)


def holds_lock(file: Path) -> bool:
    """Return whether this thread holds the lock of a file or folder, so that it would wait for itself."""
    return _holders.get(_real(file)) == _this_thread()


def _real(file: Path) -> Path:
    """Return the path that all names of a file have in common, so that there is one lock."""
    return Path(os.path.realpath(file))


def _this_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()
