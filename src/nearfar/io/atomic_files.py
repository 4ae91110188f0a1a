"""Files that appear whole or not at all, and changes to one file that come one after another."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows, where nobody can remove a file that another process has open
    fcntl = None  # type: ignore[assignment]  # tested before each use

PARTIAL = re.compile(r"(.+)\.[0-9a-f]{8}\.partial")  # the name of a file that is being written, around that of its own
OLD = 3600.0  # seconds after which a partial file is a dead writer's, where locks cannot tell
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # of file systems that have none


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb", **how: Any) -> Iterator[IO[Any]]:
    """Open a file that appears whole or not at all: it is written under a name of its own, then renamed.

    Several may write the same file at a time: the last one to end wins. A file that was there keeps its permissions.
    What a killed process left half-written of this file is removed.

    Parameters
    ----------
    path : path
        The file; what was there before stays until the new one is complete.
    mode, **how
        As of `open`.

    Raises
    ------
    OSError
        Writing failed, as on a full disk; the message names the file, and nothing of the new file is left.
    """
    path = Path(path)
    partial = held = None
    try:
        before = _status(path)
        remove_leftovers(path.parent, path.name)
        partial, descriptor = _new_partial(path, private=before is not None)
        held = None if fcntl is None else os.dup(descriptor)  # keeps the lock until the file has its name
        with open(descriptor, mode, **how) as file:
            yield file
            file.flush()
            if before is not None:
                _make_like(file.fileno(), before)
            os.fsync(file.fileno())  # the content must be on the disk before the name is
        os.replace(partial, path)
    except OSError as error:
        raise type(error)(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        if partial is not None:
            with suppress(OSError):  # it would hide the error that says why nothing was written
                partial.unlink()
        if held is not None:
            os.close(held)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-written in a folder, of one file or of all.

    What a process is still writing stays.
    """
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        found = PARTIAL.fullmatch(entry)
        if found is not None and name in (None, found[1]):
            with suppress(OSError):
                _remove_if_dead(folder / entry)


def _status(path: Path) -> os.stat_result | None:
    """Return what the file system says of the file that is to be replaced; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # renaming says what is wrong with a folder
        raise OSError("it is a device or a pipe; expected the name of a file")
    return found


def _new_partial(path: Path, private: bool) -> tuple[Path, int]:
    """Make the file that is written before it is renamed, and lock it: who can lock it knows that its writer is dead.

    What replaces a file is private until it has the permissions of that one; others get those of all new files.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        partial = Path(f"{path}.{secrets.token_hex(4)}.partial")
        descriptor = os.open(partial, flags, 0o600 if private else 0o666)
        if _lock(descriptor) and os.fstat(descriptor).st_nlink > 0:
            return partial, descriptor
        os.close(descriptor)  # another process held it for dead between these two lines, and removes it


def _lock(descriptor: int) -> bool:
    """Lock an open file, unless it is locked; also say yes where there are no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_if_dead(partial: Path) -> None:
    if fcntl is None:
        if time.time() - partial.stat().st_mtime > OLD:
            partial.unlink()
        return
    descriptor = os.open(partial, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where it is locked, or there are no locks
        partial.unlink()
    finally:
        os.close(descriptor)


def _make_like(descriptor: int, before: os.stat_result) -> None:
    """Give a file the group and the permissions of the one that it replaces, where the system lets us."""
    if fcntl is None:  # permissions of Windows are those of the folder
        return
    with suppress(OSError):
        os.fchown(descriptor, -1, before.st_gid)
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)


@contextmanager
def locked(file: Path, *, wait: float = 0.0, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock that one process has at a time, until the end of the block or of the process, however that ends.

    Parameters
    ----------
    file : Path
        The empty file that stands for the lock; it is removed at the end. In a file system without locks there is none.
    wait : float
        Seconds to wait for another process that holds it.
    waiting : callable, optional
        Is called once before the wait.

    Raises
    ------
    TimeoutError
        Another process still holds it.
    OSError
        The file cannot be made.
    """
    from filelock import FileLock, Timeout

    if not file.parent.is_dir():  # which the lock would make
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(file.parent))
    lock = FileLock(file, mode=0o666)  # for all who may write in the folder
    taken = True
    try:
        # where no file can be made, as in /proc, filelock would wait for one
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o666))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if waiting is not None and wait > 0:
                waiting()
            lock.acquire(timeout=wait)
    except Timeout as error:
        raise TimeoutError(f"{file}: another process holds the lock") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        taken = False
    try:
        yield
    finally:
        if taken:
            with suppress(OSError):  # of Windows, where it goes after the release
                file.unlink()
            lock.release()
            _remove_released(file)


def _remove_released(file: Path) -> None:
    """Remove the file of a lock where that could not be done before its release; who holds it since keeps it."""
    if fcntl is None:
        with suppress(OSError):
            file.unlink()
