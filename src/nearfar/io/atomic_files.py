"""Files that are written completely or not at all, and locks, so that processes change a file one after another."""

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
except ImportError:  # Windows, where a file that another process has open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]  # tested before each use

PARTIAL = re.compile(r"(.+)\.[0-9a-f]{8}\.partial")  # temporary name of a file that is being written
OLD = 3600.0  # seconds after which a partial file is taken for that of a dead process, if there are no locks
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # errors of file systems without locks


def check_folder_of(path: str | os.PathLike[str], argument: str = "out") -> None:
    """Raise a FileNotFoundError if the folder of a file does not exist, before what the file will hold is made."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{argument}: {os.fspath(path)}: there is no folder {folder}")


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb", **how: Any) -> Iterator[IO[Any]]:
    """Open a file that is written completely or not at all: it is written under a temporary name, then renamed.

    If several processes write the same file at the same time, the last one to finish wins. An existing file keeps its
    permissions. Half-written files of killed processes are removed.

    Parameters
    ----------
    path : path
        File to write. An existing file remains until the new one is complete.
    mode, **how
        As for `open`.

    Raises
    ------
    OSError
        If writing fails, for example because the disk is full. The message names the file, and no part of the new file
        is left.
    """
    with _replacing(Path(path)) as (_, descriptor), open(os.dup(descriptor), mode, **how) as file:
        yield file


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the name of an empty file that takes the place of another when it is complete, as for `atomic_write`.

    This is for a library that opens the file itself.
    """
    with _replacing(Path(path)) as (partial, _):
        yield partial


@contextmanager
def _replacing(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the temporary name and the descriptor of a file that replaces another at the end of the block."""
    partial = descriptor = None
    try:
        before = _status(path)
        remove_leftovers(path.parent, path.name)
        partial, descriptor = _new_partial(path, private=before is not None)
        yield partial, descriptor  # the descriptor keeps the lock until the file has its name
        if before is not None:
            make_like(descriptor, before)
        os.fsync(descriptor)  # the content must be on disk before the file is renamed
        if fcntl is None:  # Windows does not rename an open file
            os.close(descriptor)
            descriptor = None
        os.replace(partial, path)
    except OSError as error:
        raise type(error)(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        if partial is not None:
            with suppress(OSError):  # an error here would hide the one that explains why nothing was written
                partial.unlink()
        if descriptor is not None:
            os.close(descriptor)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove half-written files of killed processes in a folder, those of one file or all.

    Files that a process is still writing are kept.
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
    """Return the status of the file that will be replaced; None if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # for a folder, renaming raises the error
        raise OSError("it is a device or a pipe; expected the name of a file")
    return found


def _new_partial(path: Path, private: bool) -> tuple[Path, int]:
    """Create and lock the temporary file. Another process that can lock it knows that its writer is dead.

    If it replaces a file, it is private until it gets the permissions of that file; otherwise it has the default ones.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        partial = Path(f"{path}.{secrets.token_hex(4)}.partial")
        descriptor = os.open(partial, flags, 0o600 if private else 0o666)
        if _lock(descriptor) and os.fstat(descriptor).st_nlink > 0:
            return partial, descriptor
        os.close(descriptor)  # between these two lines, another process took the writer for dead, and removes the file


def _lock(descriptor: int) -> bool:
    """Lock an open file, and return whether it was not locked; also True if the file system has no locks."""
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
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is locked, or there are no locks
        partial.unlink()
    finally:
        os.close(descriptor)


def make_like(descriptor: int, before: os.stat_result) -> None:
    """Give a file the group and the permissions of the file that it replaces, if the system allows it."""
    if fcntl is None:  # on Windows, files have the permissions of the folder
        return
    with suppress(OSError):
        os.fchown(descriptor, -1, before.st_gid)
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)


def holder(file: Path) -> str:
    """Return "process 123" for the one that holds the lock on a file; "another process" if the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        inode = file.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK  ADVISORY  WRITE 123 fe:00:5573134 0 EOF
            words = line.split()
            if words[1] in ("FLOCK", "POSIX") and int(words[5].rpartition(":")[2]) == inode and int(words[4]) > 0:
                return f"process {words[4]}"
    return "another process"


@contextmanager
def locked(file: Path, *, wait: float = 0.0, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock that only one process can have, until the end of the block or of the process.

    Parameters
    ----------
    file : Path
        Empty file on which the lock is taken; it is removed at the end. File systems without locks get no file.
    wait : float
        Seconds to wait for another process that holds the lock.
    waiting : callable, optional
        Function that is called once before the wait.

    Raises
    ------
    TimeoutError
        If another process still holds the lock.
    OSError
        If the file cannot be created.
    """
    from filelock import FileLock, Timeout

    if not file.parent.is_dir():  # filelock would create it
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(file.parent))
    lock = FileLock(file, mode=0o666)  # for all users who may write in the folder
    taken = True
    try:
        # if no file can be created, as in /proc, filelock would wait for one; a link could name a file to overwrite
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if waiting is not None and wait > 0:
                waiting()
            lock.acquire(timeout=wait)
    except Timeout as error:
        raise TimeoutError(f"{file}: {holder(file)} holds the lock") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        taken = False
    try:
        yield
    finally:
        if taken:
            with suppress(OSError):  # on Windows, it can only be removed after the release
                file.unlink()
            lock.release()
            _remove_released(file)


def _remove_released(file: Path) -> None:
    """Remove the file of a lock if that was not possible before its release, unless another process has locked it."""
    if fcntl is None:
        with suppress(OSError):
            file.unlink()
