"""Commands that change one index at a time lose nothing; one that is killed leaves the old index or the new one."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import nearfar.index
from nearfar import cli
from nearfar.cli import indexing
from nearfar.index import Index, building, index_lock


@pytest.fixture
def tables(tmp_path):
    """Files of embeddings of two items each: a0 and a1, b0 and b1, c0 and c1."""
    for name in "abc":
        rows = np.random.default_rng(ord(name)).normal(size=(2, 3))
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, labels=[name] * 2, names=[f"{name}0", f"{name}1"])
    return tmp_path


@pytest.mark.parametrize(
    ("second", "left"),
    [
        ({"source": Path("c.npz"), "add": True}, ["a0", "a1", "b0", "b1", "c0", "c1"]),
        ({"remove": ("a0",)}, ["a1", "b0", "b1"]),
        ({"source": Path("c.npz"), "overwrite": True}, ["c0", "c1"]),
    ],
)
def test_a_change_waits_for_the_one_under_way(tables, monkeypatch, capsys, second, left):
    """The second begins when the first has read the index, and has not written it yet."""
    file, plain = tables / "x.index", building.embedded_beside
    monkeypatch.chdir(tables)
    indexing.index(tables / "a.npz", out=file)
    other = threading.Thread(target=indexing.index, kwargs={"source": None, **second, "out": Path("x.index")})

    def embed(*given):
        building.embedded_beside = plain
        other.start()
        other.join(timeout=0.5)
        return plain(*given)

    monkeypatch.setattr(building, "embedded_beside", embed)
    indexing.index(tables / "b.npz", out=file, add=True)
    other.join()
    assert Index.load(file).names.tolist() == left
    assert capsys.readouterr().err == "nearfar: x.index: waiting for another process that is changing it\n"
    assert sorted(path.name for path in tables.iterdir()) == ["a.npz", "b.npz", "c.npz", "x.index"]


def test_the_wait_for_another_change_has_an_end(tables, monkeypatch, capsys):
    file = tables / "x.index"
    indexing.index(tables / "a.npz", out=file)
    capsys.readouterr()
    monkeypatch.setattr(index_lock, "WAIT", 0.01)
    monkeypatch.setattr(sys, "argv", ["nearfar", "index", str(tables / "b.npz"), "--add", "-o", str(file)])
    with index_lock.index_lock(file), pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("waiting for another process that is changing it")
    assert last == f"nearfar: {file}: another process is still changing it after 0.01 s; try again when that has ended"
    assert len(Index.load(file)) == 2


def test_a_change_in_python_waits_and_is_waited_for(tables):
    file = tables / "x.index"
    indexing.index(tables / "a.npz", out=file)
    other = threading.Thread(target=indexing.index, args=(tables / "b.npz",), kwargs={"out": file, "add": True})
    with Index.updating(file) as index:
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive()
        index.remove("a0")
    other.join()
    assert Index.load(file).names.tolist() == ["a1", "b0", "b1"]
    before = file.read_bytes()
    still = r"x.index: another process is still changing it after 0.01 s; try again when that has ended"
    with (
        index_lock.index_lock(file),
        pytest.raises(TimeoutError, match=still),
        Index.updating(file, wait=0.01),
    ):
        pass

    def half_done():
        with Index.updating(file) as index:
            index.remove("a1")
            index.remove("nothing")

    with pytest.raises(ValueError, match="the index has no 'nothing'"):
        half_done()
    assert file.read_bytes() == before
    with pytest.raises(FileNotFoundError), Index.updating(tables / "none.index"):
        pass
    assert sorted(path.name for path in tables.iterdir()) == ["a.npz", "b.npz", "c.npz", "x.index"]


def test_saving_waits_for_a_change_under_way(tables):
    file = tables / "x.index"
    indexing.index(tables / "a.npz", out=file)
    index = Index.load(file)
    other = threading.Thread(target=index.save, args=(file,))
    with nearfar.index.open(file, "w") as store:
        store.remove("a0")
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive()
        store.change(about={"step": "1"})
        assert Index.load(file).names.tolist() == ["a1"]
    other.join()
    assert Index.load(file).names.tolist() == ["a0", "a1"]
    assert sorted(path.name for path in tables.iterdir()) == ["a.npz", "b.npz", "c.npz", "x.index"]


def test_the_wait_of_saving_has_an_end_and_no_thread_waits_for_itself(tables):
    file = tables / "x.index"
    indexing.index(tables / "a.npz", out=file)
    before = file.read_bytes()
    refused = []

    def save():
        try:
            Index([[1.0, 0.0]]).save(file, wait=0.01)
        except TimeoutError as error:
            refused.append(str(error))

    with Index.updating(file) as index:
        other = threading.Thread(target=save)
        other.start()
        other.join()
        assert refused == [f"{file}: another process is still changing it after 0.01 s; try again when that has ended"]
        assert file.read_bytes() == before
        index.remove("a0")
        index.save(file, wait=0.01)
    assert Index.load(file).names.tolist() == ["a1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a copy of the process that has the lock")
def test_saving_in_a_forked_process_waits_for_its_parent(tables):
    file = tables / "x.index"
    indexing.index(tables / "a.npz", out=file)
    with Index.updating(file) as index:
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                index.save(file, wait=0.01)
            except TimeoutError:
                code = 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed as POSIX does it")
def test_a_folder_of_lancedb_keeps_what_was_reported_before_a_kill():
    """One kill, since every process imports LanceDB anew; `python bench/kill_writers.py items.lance` does fifty."""
    pytest.importorskip("lancedb")
    script = Path(__file__).parents[2] / "bench" / "kill_writers.py"
    done = subprocess.run([sys.executable, script, "items.lance", "--kills", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kills, changes, lost = map(int, re.findall(r"\d+", done.stdout))
    assert (kills, lost) == (1, 0)
    assert changes >= 1


KILLED = """
import os, random, signal, sys
from pathlib import Path

import numpy as np

from nearfar.cli.indexing import index
from nearfar.io import atomic_files
from nearfar.index import Index, blob_file

WRITING = (atomic_files.__file__, blob_file.__file__)
FILE, NEW = Path("x.index"), Path("new.npz")


def add(deadly=None):
    # Add to the index in a process that is killed at an event; returns where its events were, "w" while it writes.
    events, sent = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = []

        def watch(frame, event, argument):
            seen.append("w" if frame.f_code.co_filename in WRITING else ".")
            if len(seen) - 1 == deadly:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.stdout = open(os.devnull, "w")
        sys.setprofile(watch)
        index(NEW, out=FILE, add=True)
        sys.setprofile(None)
        with os.fdopen(sent, "w") as file:
            file.write("".join(seen))
        os._exit(0)
    os.close(sent)
    with os.fdopen(events) as file:
        places = file.read()
    assert os.waitpid(pid, 0)[1] == (0 if deadly is None else signal.SIGKILL)
    return places


def items(k):
    rows = np.random.default_rng(k).normal(size=(3, 4))
    names = [f"{k}-{i}" for i in range(3)]
    np.savez(NEW, embeddings=rows, labels=["x"] * 3, names=names)
    return names


def tried():
    # Add as `add` does, and restore the folder, with what killed processes have left there to be tidied up.
    before = {file: file.read_bytes() for file in Path().iterdir() if file.is_file()}
    places = add()
    for file in Path().iterdir():
        if file.is_file():
            file.unlink()
    for file, content in before.items():
        file.write_bytes(content)
    return places


names = items(0)
index(NEW, out=FILE)
rng = random.Random(0)
old = new = 0
for k in range(40):
    more = items(k + 1)
    places = tried()
    writing = [at for at, place in enumerate(places) if place == "w"]
    add(rng.choice(writing) if k % 2 else rng.randrange(len(places)))
    found = Index.load(FILE).names.tolist()
    if found == names:
        old += 1
    else:
        assert found == names + more, (k, found)
        names, new = found, new + 1
add()
left = sorted(os.listdir())
assert left == [NEW.name, FILE.name], left
print(old, new, len(writing))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed as POSIX does it")
def test_an_index_whose_change_is_killed_is_the_old_or_the_new_one(tmp_path):
    """At 20 random moments of the whole change, and at 20 of those at which files are written."""
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    old, new, moments = map(int, done.stdout.split()[-3:])
    assert old + new == 40
    assert min(old, new) > 0, "moments of one kind only would prove little"
    assert moments > 20
