"""A new model for an index: what is found meanwhile, and what is left after kills, failures and changes by others."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nearfar.index
from nearfar import RCA
from nearfar.index import (
    blob_file,
    build,
    create,
    finish_upgrade,
    records_of,
    undo_upgrade,
    upgrade,
    upgrade_status,
    upgrading,
)
from nearfar.index.vector_map import fit_map
from nearfar.io import atomic_files

from ..commands import run

N = 60
NAMES = [f"n{i}" for i in range(N)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Rows, a table of columns, two learners of other dimensions, and embeddings of the rows compared by cosine."""
    folder = tmp_path_factory.mktemp("upgrade")
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 5
    rows = rng.normal(size=(5, 6))[labels] * 2 + rng.normal(size=(N, 6))
    np.savez(folder / "rows.npz", X=rows, y=[f"c{k}" for k in labels], names=NAMES)
    RCA().fit(rows, labels).save(folder / "old.safetensors")
    RCA(n_components=4).fit(rows, labels).save(folder / "new.safetensors")
    turned = rows @ rng.normal(size=(6, 9)) + 0.1 * rng.normal(size=(N, 9))
    np.savez(folder / "new.npz", embeddings=turned, names=NAMES)
    (folder / "prices.csv").write_text("name,price\n" + "".join(f"n{i},{i}\n" for i in range(N)))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        build("old.safetensors", "rows.npz", "old.index", columns="prices.csv")
    return folder


@pytest.fixture
def place(home, tmp_path, monkeypatch):
    """A folder with the index and all that made it; few items are embedded at a time."""
    for file in home.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / "old.index").rename(tmp_path / "x.index")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(upgrading, "SAMPLE", 25)
    monkeypatch.setattr(upgrading, "ITEMS_OF_A_BLOCK", 10)
    return tmp_path


def everything(path="x.index"):
    with nearfar.index.open(path) as store:
        records = store.in_memory().records()
        order = np.argsort(records.names)
        columns = {name: str(values[order].tolist()) for name, values in records.columns.items()}
        about = {key: text for key, text in store.about.items() if key not in ("data", "folder", "beside")}
        return records.names[order].tolist(), records.embeddings[order], records.labels[order].tolist(), columns, about


def same(left, right):
    return left[0] == right[0] and np.allclose(left[1], right[1], atol=1e-5) and left[2:4] == right[2:4]


class Stopped(BaseException):
    """What ends an upgrade in the middle."""


def stop_after(monkeypatch, blocks):
    """Let an upgrade end after the sample and some blocks."""
    embed = upgrading.embedded_by
    done = []

    def stopping(*given):
        if len(done) > blocks:
            raise Stopped
        done.append(1)
        return embed(*given)

    monkeypatch.setattr(upgrading, "embedded_by", stopping)


def begun(monkeypatch, source="new.safetensors", blocks=2):
    with monkeypatch.context() as patched:
        stop_after(patched, blocks)
        with pytest.raises(Stopped):
            upgrade("x.index", source)


def test_all_items_are_embedded_by_the_new_model_in_their_order(place, home):
    before = everything()
    with nearfar.index.open("x.index", "w") as store:
        store.change(about={"threshold": "0.5"})
    line = upgrade("x.index", "new.safetensors")
    assert "its threshold was for the old model, set another one" in line
    assert "all 60 items embedded; --finish removes x.index.before, --undo goes back" in line
    assert upgrade("x.index", "new.safetensors") == upgrade("x.index", "new.safetensors")
    assert sorted(path.name for path in place.glob("*x.index*")) == ["x.index", "x.index.before"]
    finish_upgrade("x.index")
    build("new.safetensors", "rows.npz", "expected.index", columns=Path("prices.csv"))
    expected = everything("expected.index")
    found = everything()
    assert same(found, expected)
    assert found[4]["weights"] == expected[4]["weights"] != before[4]["weights"]
    assert {"threshold", "upgraded"}.isdisjoint(found[4])
    assert nearfar.index.open("x.index").in_memory().names.tolist() == NAMES
    assert sorted(path.name for path in place.glob("*x.index*")) == ["x.index"]
    assert upgrade_status("x.index").startswith("x.index: no upgrade was begun; made by ")


def cosine_distance(a, b):
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def euclidean_distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5


@pytest.mark.parametrize("source", ["new.safetensors", "new.npz"])
def test_a_half_upgraded_index_ranks_as_a_plain_loop_over_both_kinds_of_items(place, monkeypatch, source):
    """Queries of the new model meet its vectors directly, and old ones where the map of the old model puts them."""
    with nearfar.index.open("x.index") as store:
        old = dict(zip(NAMES, store.get(NAMES).embeddings, strict=True))
    if source.endswith(".npz"):
        new = np.load(source)["embeddings"].astype(np.float32)
        distance = cosine_distance
    else:
        new = np.asarray(nearfar.load(source).embed(np.load("rows.npz")["X"]), dtype=np.float32)
        distance = euclidean_distance
    new = dict(zip(NAMES, new, strict=True))
    begun(monkeypatch, source)
    with nearfar.index.open("x.index") as store:
        is_mapped = dict(zip(store.column("name").tolist(), store.column("mapped").tolist(), strict=True))
        assert store.count("mapped == 0") == 25 + 20
        sample = np.sort(np.random.default_rng(0).choice(N, 25, replace=False)).tolist()
        assert all(is_mapped[NAMES[k]] == 0 for k in sample)
        found = fit_map(
            np.stack([old[NAMES[k]] for k in sample]),
            np.stack([new[NAMES[k]] for k in sample]),
            old_distance="euclidean",
            new_distance=store.distance,
        )

        def vector(name):
            if is_mapped[name] == 0:
                return new[name].tolist()
            moved = [x - m for x, m in zip(old[name].tolist(), found.mean.tolist(), strict=True)]
            return [
                sum(x * w for x, w in zip(moved, column, strict=True)) + t
                for column, t in zip(found.weight.T.tolist(), found.target.tolist(), strict=True)
            ]

        for query in ("n3", "n17", "n58"):
            distances = {name: distance(new[query].tolist(), vector(name)) for name in NAMES}
            expected = sorted(distances, key=distances.get)
            hits = store.search([new[query]], N)
            assert hits.names[0].tolist() == expected
            assert np.allclose(hits.distances[0], sorted(distances.values()), atol=1e-4)
            assert store.search([new[query]], 1, where="price >= 30 and mapped is not missing").names[0, 0] == min(
                NAMES[30:], key=distances.get
            )


def test_the_map_is_right_where_one_exists():
    rng = np.random.default_rng(0)
    old = rng.normal(size=(200, 5))
    turned = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    for distance in ("cosine", "euclidean"):
        found = fit_map(old, old @ turned, old_distance=distance, new_distance=distance)
        assert found.similarity > 0.999
        scale = np.linalg.norm(old, axis=1, keepdims=True) if distance == "cosine" else 1.0
        assert np.allclose(found.mapped(old), old @ turned / scale, atol=1e-3)
    nothing = fit_map(np.zeros((20, 3)), np.zeros((20, 7)), old_distance="cosine", new_distance="cosine")
    assert np.isfinite(nothing.mapped(old[:, :3])).all()


def test_an_upgrade_can_be_undone_at_any_time_and_changes_by_others_stay(home, place, monkeypatch):
    before = Path("x.index").read_bytes()
    for blocks in (0, 2, None):
        if blocks is None:
            upgrade("x.index", "new.safetensors")
        else:
            begun(monkeypatch, blocks=blocks)
        line = undo_upgrade("x.index")
        assert line.endswith(f"back to {home / 'old.safetensors'}")
        assert Path("x.index").read_bytes() == before
        assert sorted(path.name for path in place.glob("*x.index*")) == ["x.index"]
    begun(monkeypatch)
    arrays = dict(np.load("rows.npz"))
    np.savez("more.npz", X=arrays["X"][[1, 2]] + 1, y=["c1", "c2"], names=["n7", "later"])
    build("new.safetensors", "more.npz", "x.index", add=True)
    Path("prices.csv").write_text("name,price\nn9,900\n")
    build(None, None, "x.index", remove=["n3"], columns="prices.csv")
    upgrade("x.index", "new.safetensors")
    assert undo_upgrade("x.index").endswith("; 2 items embedded that came since")
    shutil.move("x.index", "undone.index")
    Path("x.index").write_bytes(before)
    build("old.safetensors", "more.npz", "x.index", add=True)
    build(None, None, "x.index", remove=["n3"], columns="prices.csv")
    assert same(everything("undone.index"), everything())


def test_items_that_others_add_replace_or_remove_meanwhile_are_theirs(place, monkeypatch):
    """What others write while a block is embedded is not replaced by what was read before."""
    embed = upgrading.embedded_by
    np.savez("more.npz", X=np.full((2, 6), 3.0), y=["c1", "c2"], names=["n50", "later"])
    blocks = []

    def embedding(*given):
        rows = embed(*given)
        if len(blocks) == 1:
            names = nearfar.index.open("x.index").column("name", "mapped == 1").tolist()
            blocks.append(names[0])
            build(None, None, "x.index", remove=[names[0]])
            build("new.safetensors", "more.npz", "x.index", add=True)
            line = upgrade_status("x.index")
            assert f"({names[1]}, " in line
        blocks.append(None)
        return rows

    monkeypatch.setattr(upgrading, "embedded_by", embedding)
    upgrade("x.index", "new.safetensors")
    with nearfar.index.open("x.index") as store:
        assert store.count() == N
        assert len(store.get([blocks[1]])) == 0
        found = store.get(["n50", "later"])
        assert np.isnan(found.columns["mapped"]).all()
        assert np.allclose(found.embeddings, nearfar.load("new.safetensors").embed(np.full((2, 6), 3.0)), atol=1e-5)


def test_items_whose_data_are_gone_keep_mapped_vectors(place):
    arrays = dict(np.load("rows.npz"))
    np.savez("rows.npz", **{name: values[2:] for name, values in arrays.items()})
    line = upgrade("x.index", "new.safetensors")
    assert "58 of 60 items embedded, 2 with mapped vectors (n0, n1); repeat the command with their data" in line
    with pytest.raises(ValueError, match=r"^finish: x.index has 2 items with mapped vectors \(n0, n1\); first let"):
        finish_upgrade("x.index")
    np.savez("lost.npz", **arrays)
    assert "all 60 items embedded" in upgrade("x.index", "new.safetensors", "lost.npz")
    finish_upgrade("x.index")
    build("new.safetensors", "lost.npz", "expected.index", columns=Path("prices.csv"))
    assert same(everything(), everything("expected.index"))


def test_tables_are_read_by_the_columns_that_were_named(place):
    rows = np.load("rows.npz")["X"]
    lines = [f"{k},k{k % 5},{','.join(map(str, row))}" for k, row in enumerate(rows.tolist())]
    Path("rows.csv").write_text("\n".join(["code,kind,a,b,c,d,e,f", *lines]))
    build("old.safetensors", "rows.csv", "t.index", label="kind", name="code")
    before = everything("t.index")
    assert "all 60 items embedded" in upgrade("t.index", "new.safetensors")
    undo_upgrade("t.index")
    assert same(everything("t.index"), before)
    shutil.copyfile("rows.csv", "moved.csv")
    with nearfar.index.open("t.index", "w") as store:
        store.change(about={"data": "[]"})
    with pytest.raises(ValueError, match="only 0 of 60 items are in the data"):
        upgrade("t.index", "new.safetensors")
    assert "all 60 items embedded" in upgrade("t.index", "new.safetensors", "moved.csv", label="kind", name="code")
    assert "all 60 items embedded" in upgrade("t.index", "new.safetensors")
    finish_upgrade("t.index")
    build("new.safetensors", "rows.csv", "expected.index", label="kind", name="code")
    assert same(everything("t.index"), everything("expected.index"))


def test_photos_are_embedded_from_their_files(tmp_path, monkeypatch):
    Image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for k in range(24):
        Path(f"photos/c{k % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (3, 3), dtype=np.uint8)).save(f"photos/c{k % 2}/{k:02}.png")
    pixels = rng.normal(size=(24, 9))
    for name in ("old", "new"):
        RCA(n_components=3 if name == "old" else 5).fit(pixels, np.arange(24) % 2).save(f"{name}.safetensors")
    build("old.safetensors", "photos", "x.index")
    Path("photos/c1/01.png").unlink()
    assert "23 of 24 items embedded, 1 with mapped vectors (photos/c1/01.png)" in upgrade("x.index", "new.safetensors")
    undo_upgrade("x.index")
    Path("photos/c1/03.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"03\.png"):
        upgrade("x.index", "new.safetensors")
    line = upgrade("x.index", "new.safetensors", skip_bad=True)
    assert "22 of 24 items embedded, 2 with mapped vectors" in line
    Path("other").mkdir()
    shutil.copyfile("x.index.before", "other/x.index")
    with pytest.raises(
        ValueError, match=r"^DATA: .*photos.* is not read, because .*; name the data, as in `nearfar index"
    ):
        upgrade("other/x.index", "new.safetensors")


def refusals(place):
    create("empty.index", records_of(np.empty((0, 2)), []), about={"source": "old.safetensors"}).close()
    create("taken.index", records_of(np.eye(2), ["a", "b"], columns={"mapped": [1, 2]})).close()
    np.savez("few.npz", embeddings=np.eye(3), names=["n0", "n1", "n2"])
    np.savez("others.npz", X=np.ones((2, 6)), names=["a", "b"])
    shutil.copyfile("x.index", "done.index")
    upgrade("done.index", "new.safetensors")
    yield (
        ("done.index", "new.npz"),
        r"^upgrade: done.index was upgraded to .*new.safetensors, with other weights than new",
    )
    yield ("x.index", "old.safetensors"), "^upgrade: x.index was made by the model in old.safetensors; there is nothing"
    yield ("empty.index", "new.safetensors"), "^upgrade: empty.index has no items; make it again by the new model$"
    yield ("taken.index", "new.safetensors"), "^upgrade: taken.index has a column 'mapped', which an upgrade needs"
    yield (
        ("x.index", "few.npz"),
        "^upgrade: only 3 of 60 items are in the data, and at least 20 are needed; name the data that has them",
    )
    yield ("x.index", "new.safetensors", "others.npz"), "^upgrade: only 0 of 60 items are in the data"
    yield ("x.index", "new.npz", "rows.npz"), "^DATA: new.npz contains embeddings, which cannot embed 'rows.npz'"
    yield ("none.index", "new.safetensors"), "^none.index: no such index"
    yield ("x.index", "none.safetensors"), "none.safetensors"
    yield ("postgresql://db/shop#x", "new.npz"), "^upgrade: postgresql://db/shop#x is in a server; copy it to a file"
    yield ("http://localhost:1/x", "new.npz"), "^upgrade: http://localhost:1/x is in a server; copy it to a file"


def test_what_cannot_be_upgraded_is_refused_in_one_line_and_nothing_is_changed(place):
    for arguments, message in refusals(place):
        before = {path.name: path.read_bytes() for path in place.iterdir()}
        with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
            upgrade(*arguments)
        assert "\n" not in str(error.value)
        assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    for function in (undo_upgrade, finish_upgrade):
        with pytest.raises(ValueError, match=r"x\.index was not upgraded"):
            function("x.index")
    Path("done.index.before").unlink()
    with pytest.raises(ValueError, match=r"done\.index\.before is missing, which has the vectors of the old model"):
        undo_upgrade("done.index")
    with upgrading._alone(Path("x.index")), pytest.raises(TimeoutError, match="another process is upgrading it"):
        upgrade("x.index", "new.safetensors")


def test_a_folder_that_is_read_only_costs_one_line(place, monkeypatch):
    def refusing(*given, **how):
        raise OSError(errno.EACCES, "Permission denied", "x")

    monkeypatch.setattr(upgrading, "locked", refusing)
    with pytest.raises(OSError, match=r"^x\.index: cannot be written \(Permission denied\)$"):
        upgrade("x.index", "new.safetensors")


def test_items_that_came_since_and_are_gone_are_named_where_undoing_needs_them(place):
    upgrade("x.index", "new.safetensors")
    np.savez("more.npz", X=np.ones((2, 6)), y=["c1", "c2"], names=["later", "latest"])
    build("new.safetensors", "more.npz", "x.index", add=True)
    before = Path("x.index").read_bytes()
    np.savez("more.npz", X=np.ones((1, 6)), y=["c1"], names=["later"])
    with pytest.raises(
        ValueError, match=r"^undo: 2 items came since the upgrade, and latest cannot be embedded; remove"
    ):
        undo_upgrade("x.index")
    assert Path("x.index").read_bytes() == before
    build(None, None, "x.index", remove=["latest"])
    assert "1 item embedded that came since" in undo_upgrade("x.index")


def test_an_index_that_is_made_again_meanwhile_is_not_changed(place, monkeypatch):
    embed = upgrading.embedded_by

    def embedding(*given):
        if nearfar.index.open("x.index").dimensions == 4:
            build("old.safetensors", "rows.npz", "x.index", overwrite=True)
        return embed(*given)

    monkeypatch.setattr(upgrading, "embedded_by", embedding)
    with pytest.raises(ValueError, match="was made again by another process meanwhile"):
        upgrade("x.index", "new.safetensors")
    assert nearfar.index.open("x.index").count() == N


@pytest.mark.slow  # it imports LanceDB
def test_a_folder_of_lancedb_is_upgraded(place):
    pytest.importorskip("lancedb")
    build("x.index", None, "x.lance")
    before = everything("x.lance")
    upgrade("x.lance", "new.safetensors")
    assert nearfar.index.open("x.lance").dimensions == 4
    undo_upgrade("x.lance")
    assert same(everything("x.lance"), before)
    upgrade("x.lance", "new.safetensors")
    finish_upgrade("x.lance")
    build("new.safetensors", "rows.npz", "expected.index", columns=Path("prices.csv"))
    assert same(everything("x.lance"), everything("expected.index"))


class FailingConnection(sqlite3.Connection):
    """A connection whose writes are counted by `Full`."""

    full = None

    def execute(self, sql, *values):
        if self.full is not None and sql.split()[0] in ("INSERT", "DELETE", "REPLACE", "COMMIT", "CREATE"):
            self.full()
        if sql == "PRAGMA synchronous=EXTRA":  # nothing needs to be on the disk
            sql = "PRAGMA synchronous=OFF"
        return super().execute(sql, *values)


@pytest.mark.parametrize("step", [pytest.param(7, marks=pytest.mark.slow), 40])
def test_a_full_disk_leaves_an_index_that_is_searched_and_the_same_command_continues(place, monkeypatch, step):
    upgrade("x.index", "new.safetensors")
    whole = everything()
    undo_upgrade("x.index")
    before = Path("x.index").read_bytes()
    left = [-1]

    def writing():
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def counted(function):
        def wrapped(*given, **how):
            writing()
            return function(*given, **how)

        return wrapped

    monkeypatch.setattr(blob_file, "Connection", FailingConnection)
    monkeypatch.setattr(FailingConnection, "full", staticmethod(writing))
    for owner, name in ((atomic_files.os, "replace"), (atomic_files.os, "fsync"), (upgrading.shutil, "copyfile")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    states = set()
    lines = []
    for number in range(1, 10_000, step):
        left[0] = number
        try:
            upgrade("x.index", "new.safetensors")
        except OSError as error:
            lines.append(str(error))
        failed = left[0] <= 0
        left[0] = -1
        status = upgrade_status("x.index")
        states.add(status)
        assert nearfar.index.open("x.index").count() == N
        upgrade("x.index", "new.safetensors")
        assert same(everything(), whole)
        assert {path.name for path in place.iterdir() if "x.index" in path.name} == {"x.index", "x.index.before"}
        if not failed:
            break
        Path("x.index").write_bytes(before)
    assert len(states) >= 4
    assert not any("\n" in line for line in lines)


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
import numpy as np
import nearfar.index
from nearfar.index import blob_file, upgrading
from nearfar.io import atomic_files

class Quick(sqlite3.Connection):
    # A killed process, unlike a machine, loses nothing that it has handed to the system.

    def execute(self, sql, *values):
        return super().execute(sql.replace("synchronous=EXTRA", "synchronous=OFF"), *values)


blob_file.Connection = Quick
os.fsync = lambda file: None
WRITING = (atomic_files.__file__, blob_file.__file__, upgrading.__file__)
upgrading.SAMPLE = 25
upgrading.ITEMS_OF_A_BLOCK = 10


def act(what, given, deadly=None):
    # Act in a process that is killed at an event of writing; returns how many there were.
    events, sent = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = 0

        def watch(frame, event, argument):
            nonlocal seen
            if frame.f_code.co_filename in WRITING:
                if seen == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1

        sys.setprofile(watch)
        getattr(upgrading, what)("x.index", *given)
        sys.setprofile(None)
        os.write(sent, str(seen).encode())
        os._exit(0)
    os.close(sent)
    with os.fdopen(events) as file:
        seen = file.read()
    os.waitpid(pid, 0)
    return int(seen or 0)


def content():
    index = nearfar.index.open("x.index").in_memory()
    order = np.argsort(index.names)
    columns = {name: str(values[order]) for name, values in index.columns.items()}
    return index.names[order].tolist(), index.embeddings[order].round(4).tolist(), columns


def files():
    return sorted(path.name for path in Path().glob("*x.index*"))


def put_back(before):
    for name in files():
        Path(name).unlink()
    for path, data in before.items():
        path.write_bytes(data)


def killed(what, given, kills):
    # Each time, the same command continues; returns the different states that kills have left.
    before = {path: path.read_bytes() for path in map(Path, files())}
    events = act(what, given)
    whole = content()
    left = files()
    states = set()
    for kill in range(kills):
        put_back(before)
        assert act(what, given, deadly=(2 * kill + 1) * events // (2 * kills)) == 0
        states.add(upgrading.upgrade_status("x.index"))
        store = nearfar.index.open("x.index")
        assert len(store.search([[0.0] * store.dimensions]).names[0]) == 10
        try:
            getattr(upgrading, what)("x.index", *given)
        except ValueError as error:
            assert "was not upgraded" in str(error), error
        assert content() == whole, kill
        assert files() == left or files() == left + ["x.index.before"], files()
    return before, len(states)


states = [killed("upgrade", ["new.safetensors"], 8)[1]]
before, found = killed("undo_upgrade", [], 3)
put_back(before)
states += [found, killed("finish_upgrade", [], 3)[1]]
print(*states)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed as POSIX does it")
def test_a_killed_upgrade_is_continued_by_the_same_command(place):
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    states = [*map(int, done.stdout.split()[-3:])]
    assert states[0] >= 4, "moments of one kind only would prove little"
    assert min(states[1:]) >= 1


def test_the_command_upgrades_tells_how_far_it_is_and_goes_back(place, capsys, monkeypatch):
    for words, said in (
        (["x.index", "--upgrade", "new.safetensors"], "all 60 items embedded; --finish removes"),
        (["x.index", "--status"], "all 60 items embedded"),
        (["-o", "x.index", "--undo"], "back to "),
        (["x.index", "--status"], "no upgrade was begun"),
        (["-o", "x.index", "rows.npz", "--upgrade", "new.safetensors"], ""),
    ):
        code, out, err = run(capsys, monkeypatch, "index", *words)
        if said:
            assert (code, said in out) == (0, True), (out, err)
    for words, told in (
        (["x.index", "--upgrade", "new.safetensors", "--undo"], "--undo: does not work with --upgrade; give one"),
        (["x.index", "--undo", "--engine", "exact"], "--engine: does not work with --upgrade, --status, --undo and"),
        (["--undo"], "--undo: expected one index, as in `nearfar index photos.index --undo`"),
        (["x.index", "rows.npz", "--finish"], "DATA: --finish takes only the index, got also 'rows.npz'"),
        (["old.safetensors", "rows.npz"], "--out: expected the index to write, such as -o photos.index"),
    ):
        code, out, err = run(capsys, monkeypatch, "index", *words)
        assert (code, told in err) == (2, True), (out, err)
