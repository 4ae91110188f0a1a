"""Files appear whole or not at all, keep their permissions, and are changed by one process at a time."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from nearfar.io import tensor_file
from nearfar.io.atomic_files import atomic_write, locked, remove_leftovers

posix = pytest.mark.skipif(os.name != "posix", reason="permissions, locks and signals of POSIX")
ARRAYS = {"a": np.arange(6.0).reshape(2, 3)}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    path = tmp_path / "x.safetensors"
    tensor_file.write(path, ARRAYS, {"name": "old"})
    with pytest.raises(OSError, match=r"x\.safetensors: cannot be written \(No space left on device\)"):  # noqa: PT012, SIM117
        with atomic_write(path) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]
    assert tensor_file.read(path)[1] == {"name": "old"}


def test_two_may_write_one_file_at_a_time(tmp_path):
    path = tmp_path / "x"
    with atomic_write(path) as one:
        one.write(b"on")
        with atomic_write(path) as other:
            other.write(b"other")
        assert path.read_bytes() == b"other"
        one.write(b"e")
    assert path.read_bytes() == b"one"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_file_below_a_file_is_one_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"x\.safetensors: cannot be written \(Not a directory\)\Z"):  # noqa: SIM117
        with atomic_write(tmp_path / "file" / "x.safetensors"):
            pass


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o664, 0o400])
def test_a_file_keeps_its_permissions(tmp_path, permissions):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(permissions)
    with atomic_write(path) as file:
        file.write(b"new")
        (partial,) = tmp_path.glob("x.*.partial")
        assert mode(partial) == 0o600, "what is private is so also while it is written"
    assert (path.read_bytes(), mode(path)) == (b"new", permissions)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_file_has_the_permissions_of_new_files(tmp_path, mask):
    before = os.umask(mask)
    try:
        with atomic_write(tmp_path / "x", "w") as file:
            file.write("new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "x") == 0o666 & ~mask


@posix
def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe: cannot be written \(it is a device or a pipe"):  # noqa: SIM117
        with atomic_write(tmp_path / "pipe") as file:
            file.write(b"")
    assert names(tmp_path) == ["pipe"]


KILLED = """
import os, signal, sys
from nearfar.io.atomic_files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_writing(path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL


@posix
def test_what_a_killed_process_left_of_a_file_is_removed_when_it_is_written_again(tmp_path):
    path = tmp_path / "x"
    killed_while_writing(path)
    killed_while_writing(tmp_path / "y")
    others = ["x.more.0123abcd.partial", "x.partial", "x.0123abcd.partial.txt"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    assert len(names(tmp_path)) == len(others) + 2
    with atomic_write(path) as file:
        file.write(b"new")
    left = [name for name in names(tmp_path) if name not in others]
    assert len(left) == 2
    assert left[0] == "x"
    assert left[1].startswith("y.")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted({"x", *others} - {"x.more.0123abcd.partial"})


@posix
def test_what_another_writes_stays(tmp_path):
    path = tmp_path / "x"
    script = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "print(flush=True); sys.stdin.readline()")
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with atomic_write(path) as file:
            file.write(b"this")
        remove_leftovers(tmp_path)
        assert path.read_bytes() == b"this"
        assert len(names(tmp_path)) == 2
        other.communicate(b"\n")
    assert other.returncode == 0
    assert path.read_bytes() == b"half"
    assert names(tmp_path) == ["x"]


@posix
def test_many_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path, errors = tmp_path / "x", []

    def write(k):
        try:
            for _ in range(40):
                with atomic_write(path) as file:
                    file.write(bytes([k]) * 1000)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    content = path.read_bytes()
    assert content == content[:1] * 1000
    assert names(tmp_path) == ["x"]


def test_a_lock_is_held_by_one_and_leaves_nothing(tmp_path):
    file, waited = tmp_path / "lock", []
    with locked(file):
        with pytest.raises(TimeoutError, match=rf"(process {os.getpid()}|another process) holds the lock"):  # noqa: SIM117
            with locked(file):
                pass
        with pytest.raises(TimeoutError):  # noqa: SIM117
            with locked(file, wait=0.01, waiting=lambda: waited.append(1)):
                pass
    assert waited == [1]
    with locked(file):
        assert file.exists()
    assert names(tmp_path) == []


def test_a_lock_goes_from_one_to_the_next(tmp_path):
    """Also when its file is removed at the end of each: no two hold it at a time, and no increment is lost."""
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count():
        for _ in range(10):
            with locked(tmp_path / "lock", wait=60.0):
                value = int(counter.read_text())
                counter.write_text(str(value + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "40"
    assert names(tmp_path) == ["counter"]


def test_a_file_system_without_locks_has_none(tmp_path, monkeypatch):
    def unable(self, **how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", unable)
    with locked(tmp_path / "lock"), locked(tmp_path / "lock"):
        pass


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(OSError, match="nowhere"):  # noqa: SIM117
        with locked(tmp_path / "nowhere" / "lock"):
            pass


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that takes no files")
def test_a_lock_in_a_folder_that_takes_no_files_is_an_error_at_once():
    waited = []
    with (
        pytest.raises(OSError, match=r"/proc/self/lock"),
        locked(Path("/proc/self/lock"), wait=60, waiting=lambda: waited.append(1)),
    ):
        pass
    assert not waited
