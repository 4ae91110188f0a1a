"""The journal beside an index: it holds what the file would hold if it were rewritten at every change."""

import os
import shutil
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import nearfar.index
from nearfar.index import Index, create, file_store, journal, records_of
from nearfar.index import index as index_module
from nearfar.index.index_lock import index_lock
from nearfar.io import tensor_file
from tests.commands import run

D = 5
WORDS = [f"n{k}" for k in range(14)]


@pytest.fixture
def journaled(monkeypatch):
    """Indexes of any size get a journal, which may be as large as it likes."""
    monkeypatch.setattr(index_module, "JOURNALED_FROM", 0)
    monkeypatch.setattr(file_store, "LARGEST_PART", 1e9)


def records(names, seed=0, *, labels="xy", **columns):
    rows = np.random.default_rng(seed).normal(size=(len(names), D))
    kinds = None if labels is None else [labels[k % len(labels)] for k in range(len(names))]
    return records_of(rows, names, labels=kinds, columns=columns)


def started(path, engine="exact", labels="xy"):
    return create(path, records(WORDS[:6], labels=labels, price=np.arange(6.0)), engine=engine, about={"made": "first"})


def random_changes(seed, labels):
    """Changes that any store takes; some of them make an error, which is part of what must be the same."""
    rng = np.random.default_rng(seed)
    no_items = records(WORDS[:1], labels=labels, date=["today"]).pick([])
    yield lambda store: store.add(no_items, gone=WORDS[5:6])
    for step in range(12):
        names = rng.permutation(WORDS)[: rng.integers(1, 4)].tolist()
        gone = rng.permutation(WORDS)[: rng.integers(0, 3)].tolist()
        way = rng.integers(5)
        if way <= 1:
            columns = {}
            if rng.random() < 0.5:
                columns["price"] = rng.normal(size=len(names)).tolist()
            if rng.random() < 0.5:
                columns[f"shop{rng.integers(2)}"] = [f"ä{step}"] * len(names)
            about = {"made": f"in step {step}"} if rng.random() < 0.3 else None
            new = records(names, seed=100 * seed + step, labels=labels, **columns)
            yield lambda store, new=new, about=about, gone=gone: store.add(new, about=about, gone=gone)
        elif way == 2:
            yield lambda store, names=names: store.remove(names)
        elif way == 3:
            yield lambda store, step=step: store.change(about={"step": str(step)})
        else:
            wrong = records(names, labels=labels, price=["text"] * len(names))
            yield lambda store, wrong=wrong: store.add(wrong)


def outcome(store, change):
    """Make a change, and return what a user sees of the store then."""
    try:
        change(store)
        error = ""
    except ValueError as problem:
        error = str(problem)
    return error, seen(store)


def seen(store):
    queries = np.random.default_rng(7).normal(size=(3, D))
    hits = [
        store.search(queries, 4),
        store.search(queries, 4, where="price > 1"),
        store.search(queries, 4, group_by="price"),
    ]
    some = store.get(WORDS)
    return {
        "count": (store.count(), store.count("price > 1"), store.dimensions, store.engine(), store.about),
        "columns": {name: store.column(name).tolist() for name in [*store.columns()]},
        "hits": [(found.names.tolist(), found.distances.tolist()) for found in hits],
        "records": (some.names.tolist(), some.embeddings.tolist(), [*some.columns]),
        "filtered": store.column("name", "name < 'n3'").tolist(),
    }


def contents(index):
    """Everything in an index, to be compared; NaN equals itself in text."""
    labels = None if index.labels is None else index.labels.tolist()
    columns = str([(name, column.dtype.kind, column.tolist()) for name, column in index.columns.items()])
    return index.names.tolist(), index.embeddings.tolist(), labels, columns, index.about, index.engine, index.distance


@pytest.mark.parametrize("labels", ["xy", [3, 5], None])
@pytest.mark.parametrize("engine", ["exact", "Flat"])
@pytest.mark.parametrize("seed", range(4))
def test_any_changes_give_what_writing_the_file_anew_gives(tmp_path, monkeypatch, journaled, seed, engine, labels):
    if engine != "exact":
        pytest.importorskip("faiss")
    plain, own = tmp_path / "plain.index", tmp_path / "own.index"
    started(own, engine, labels).close()
    base = own.read_bytes()
    reopened = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "JOURNALED_FROM", float("inf"))
        started(plain, engine, labels).close()
        with nearfar.index.open(plain, "w") as store:
            expected = [outcome(store, change) for change in random_changes(seed, labels)]
    store = nearfar.index.open(own, "w")
    for change, wanted in zip(random_changes(seed, labels), expected, strict=True):
        assert str(outcome(store, change)) == str(wanted)
        with nearfar.index.open(own) as reader:
            assert str(seen(reader)) == str(wanted[1])
        if reopened.random() < 0.3:
            store.close()
            store = nearfar.index.open(own, "w")
    whole = contents(Index.load(plain))
    assert contents(Index.load(own)) == contents(Index.load(own, mapped=True)) == contents(store.in_memory()) == whole
    assert str(Index.load(own).duplicates(1.0)) == str(Index.load(plain).duplicates(1.0))
    assert own.read_bytes() == base
    assert journal.journal_of(own).exists()
    assert not journal.journal_of(plain).exists()
    monkeypatch.setattr(file_store, "LARGEST_PART", 0.0)
    store.change()  # too large now: one file again
    store.close()
    assert not journal.journal_of(own).exists()
    assert contents(Index.load(own)) == whole


def test_a_small_index_stays_one_file(tmp_path):
    with started(tmp_path / "x.index") as store:
        store.add(records(["new"]))
        store.remove("n0")
    assert [file.name for file in tmp_path.iterdir()] == ["x.index"]


def test_a_file_that_has_become_large_gets_a_journal(tmp_path, monkeypatch):
    path = tmp_path / "x.index"
    started(path).close()
    monkeypatch.setattr(file_store, "LARGEST_PART", 1e9)
    with nearfar.index.open(path, "w") as store:
        store.remove("n0")
        assert not journal.journal_of(path).exists()
        monkeypatch.setattr(index_module, "JOURNALED_FROM", 0)
        store._open()
        store.remove("n1")
        assert journal.journal_of(path).exists()
    assert Index.load(path).names.tolist() == WORDS[2:6]


def test_a_format_of_another_version_is_refused_as_such(tmp_path):
    path = tmp_path / "x.index"
    started(path).close()
    arrays, text = tensor_file.read(path)
    tensor_file.write(path, arrays, {**text, "format": "nearfar index 4"})
    for read in (Index.load, nearfar.index.open, lambda path: nearfar.index.open(path, "w")):
        with pytest.raises(
            ValueError, match=r"x.index has the format 'nearfar index 4', .* belongs to another version"
        ):
            read(path)


def test_the_file_is_written_anew_when_its_journal_has_a_tenth_of_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "JOURNALED_FROM", 10_000)
    path = tmp_path / "x.index"
    rows = np.random.default_rng(0).normal(size=(1500, D))
    sizes = []
    with create(path, records_of(rows, [str(k) for k in range(1500)])) as store:
        before = path.stat()
        for k in range(40):
            store.add(records_of(rows[:1], [f"new{k}"]))
            own = journal.journal_of(path)
            sizes.append(own.stat().st_size if own.exists() else 0)
            assert sizes[-1] <= 0.1 * path.stat().st_size
        assert store.count() == 1540
    assert 0 in sizes
    assert sizes[0] > 0
    assert path.stat().st_size > before.st_size
    assert len(Index.load(path)) == 1540
    with nearfar.index.open(path, "w") as store:  # a change that is larger than a tenth
        store.add(records_of(rows[:1000], [f"more{k}" for k in range(1000)]))
    assert [file.name for file in tmp_path.iterdir()] == ["x.index"]


@pytest.mark.parametrize("way", ["created", "saved", "updated", "restored"])
def test_a_journal_of_another_index_is_ignored_and_removed(tmp_path, journaled, way):
    path = tmp_path / "x.index"
    own = journal.journal_of(path)
    with started(path) as store:
        store.remove("n0")
    stale = own.read_bytes()
    assert len(Index.load(path)) == 5
    if way == "created":
        started(path).close()
        assert not own.exists()
    elif way == "saved":
        Index(np.eye(D), names=WORDS[:5]).save(path)
        assert not own.exists()
    elif way == "updated":
        with Index.updating(path) as index:
            assert len(index) == 5
            index.add(np.ones((1, D)), names=["new"], labels=["x"])
        assert not own.exists()
    own.write_bytes(stale)  # a process was killed before it removed the journal
    if way == "restored":
        started(tmp_path / "other.index").close()
        os.replace(tmp_path / "other.index", path)
    before = Index.load(path)
    assert len(before) == {"created": 6, "saved": 5, "updated": 6, "restored": 6}[way]
    assert_array_equal(Index.load(path, mapped=True).embeddings, before.embeddings)
    with nearfar.index.open(path, "w") as store:
        store.change(about={"changed": "yes"})
    assert own.read_bytes()[: len(stale)] != stale
    after = Index.load(path)
    assert_array_equal(after.names, before.names)
    assert after.about["changed"] == "yes"


def test_a_journal_that_ends_anywhere_holds_the_changes_before(tmp_path, journaled):
    path, own = tmp_path / "x.index", tmp_path / "x.index.journal"
    ends, states = [journal.BEGINNING], [contents_of_start(path)]
    with nearfar.index.open(path, "w") as store:
        for k in range(3):
            store.add(records([f"new{k}"], seed=k))
            ends.append(own.stat().st_size)
            states.append(contents(Index.load(path)))
    whole = own.read_bytes()
    for length in [*range(journal.BEGINNING, len(whole), 7), *(end - 1 for end in ends[1:])]:
        own.write_bytes(whole[:length])
        # a change is whole without the mark behind it
        at = max(k for k, end in enumerate(ends) if k == 0 or end - len(journal.DONE) <= length)
        assert contents(Index.load(path)) == states[at]
        own.write_bytes(whole[:length] + bytes(len(whole) - length))  # zeros that a lost write left
        assert contents(Index.load(path)) == states[at]
        if at > 0:
            own.write_bytes(whole[: ends[at - 1]] + bytes(100) + whole[ends[at - 1] + 100 : length])  # or before
            assert contents(Index.load(path)) in (states[at - 1], states[at])
    for length in ends[1:3]:
        torn = whole[: length + 20]
        own.write_bytes(torn)
        with nearfar.index.open(path, "w") as store:
            store.remove("n0")
        assert own.read_bytes()[:length] == whole[:length]
        assert "n0" not in Index.load(path).names.tolist()
        assert len(Index.load(path)) == len(states[ends.index(length)][0]) - 1


def contents_of_start(path):
    started(path).close()
    return contents(Index.load(path))


def with_two_changes(folder):
    """Write an index and two changes to its journal; return both paths, and the bytes up to the second change."""
    path, own = folder / "x.index", folder / "x.index.journal"
    with started(path) as store:
        store.remove("n0")
        first = own.stat().st_size
        store.remove("n1")
    return path, own, first


def flipped(whole):
    """Yield all copies of some bytes in which one bit is another."""
    for place in range(len(whole)):
        for bit in range(8):
            yield whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :]


@pytest.fixture
def quickly(monkeypatch):
    """Nothing needs to be on the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 61])
def test_a_flipped_bit_in_an_index_is_an_error_and_no_other_item(tmp_path, quickly, step):
    path = tmp_path / "x.index"
    create(path, records_of(np.eye(2), ["a", "b"], labels=[3, 5], columns={"price": [1.0, 2.0]})).close()
    before = contents(Index.load(path))
    refused = 0
    for damaged in [*flipped(path.read_bytes())][::step]:
        path.write_bytes(damaged)
        try:
            found = contents(Index.load(path))
        except ValueError:
            refused += 1
        else:
            assert found == before  # it was in the name of the checksum
    assert refused > 3000 / step


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 37])
def test_a_flipped_bit_in_a_journal_loses_no_change(tmp_path, journaled, quickly, step):
    path, own = tmp_path / "x.index", tmp_path / "x.index.journal"
    with create(path, records_of(np.eye(2), ["a", "b"])) as store:
        store.remove("a")
        store.add(records_of([[3.0, 4.0]], ["c"]))
    whole = own.read_bytes()
    before = contents(Index.load(path))
    refused = 0
    for damaged in [*flipped(whole)][::step]:
        own.write_bytes(damaged)
        try:
            found = contents(Index.load(path))
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match=r"x\.index\.journal is (damaged: the change at|not a journal)"):
                nearfar.index.open(path, "w")
            assert own.read_bytes() == damaged
        else:  # it was in a mark behind a change, which is whole without it
            assert found == before
            with nearfar.index.open(path, "w") as store:
                store.change(about={"step": "1"})
            assert contents(Index.load(path))[0] == before[0]
    assert len(whole) * 8 / step - 2 * len(journal.DONE) * 8 <= refused + 1
    own.write_bytes(whole[: journal.BEGINNING] + bytes(1000) + whole[journal.BEGINNING :])
    with pytest.raises(
        ValueError, match=rf"is damaged: the change at byte {journal.BEGINNING} is not the one that was"
    ):
        Index.load(path)


def test_a_change_that_cannot_be_written_leaves_the_old_content(tmp_path, journaled, monkeypatch):
    path, own = tmp_path / "x.index", tmp_path / "x.index.journal"
    real = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with started(path) as store:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"x\.index\.journal: cannot be written \(No space left on device\)\Z"):
            store.remove("n0")
        assert [file.name for file in tmp_path.glob("x*")] == ["x.index"]
        monkeypatch.setattr(os, "fsync", real)
        store.remove("n0")
        before = own.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"x\.index\.journal: cannot be written \(No space left on device\)\Z"):
            store.add(records(["new"]))
        assert own.read_bytes() == before
        assert store.count() == 5
        monkeypatch.setattr(os, "fsync", real)
        store.add(records(["newer"]))
    assert Index.load(path).names.tolist() == [*WORDS[1:6], "newer"]


def test_the_journal_is_as_private_as_the_index(tmp_path, journaled):
    path = tmp_path / "x.index"
    with started(path) as store:
        path.chmod(0o600)
        store._open()
        store.remove("n0")
    assert stat.S_IMODE(journal.journal_of(path).stat().st_mode) == 0o600


def test_a_link_to_an_index_shows_its_changes_and_is_written_as_a_file(tmp_path, journaled):
    path, link = tmp_path / "x.index", tmp_path / "link.index"
    with started(path) as store:
        store.remove("n0")
    link.symlink_to(path)
    assert len(Index.load(link)) == 5
    with nearfar.index.open(link, "w") as store:
        store.remove("n1")
    assert (len(Index.load(link)), len(Index.load(path))) == (4, 5)
    assert not link.is_symlink()


@pytest.mark.parametrize("way", ["about", "none", "stale"])
def test_embeddings_of_a_loaded_index_are_in_memory(tmp_path, journaled, way):
    path, own = tmp_path / "x.index", tmp_path / "x.index.journal"
    with started(path) as store:
        store.change(about={"step": "1"})
    if way == "none":
        own.write_bytes(own.read_bytes()[: journal.BEGINNING])
    elif way == "stale":
        own.write_bytes(journal._beginning("0" * 32))
    index = Index.load(path)
    index.embeddings[0] = 1.0
    assert not isinstance(index.embeddings, np.memmap)
    assert not isinstance(index.embeddings.base, np.memmap)
    assert_array_equal(index.embeddings[1:], Index.load(path, mapped=True).embeddings[1:])
    with nearfar.index.open(path) as store:
        assert store.in_memory() is store.in_memory()


def test_a_large_change_is_not_packed_for_a_journal_that_cannot_take_it(tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "JOURNALED_FROM", 0)
    monkeypatch.setattr(file_store, "packed_change", None)
    with started(tmp_path / "x.index") as store:
        store.add(records([f"new{k}" for k in range(50)]))
        assert store.count() == 56


def test_a_file_that_was_replaced_meanwhile_gets_no_change_in_the_journal_of_the_old_one(tmp_path, journaled):
    path = tmp_path / "x.index"
    with started(path) as store:
        store.remove("n0")
        Index(np.eye(D), names=WORDS[:5]).save(path)  # which does not wait for its own thread
        store.remove("n1")
        assert Index.load(path).names.tolist() == WORDS[2:6]
        store.remove("n2")
        journal.journal_of(path).unlink()
        store.remove("n3")
    assert Index.load(path).names.tolist() == WORDS[4:6]


def test_saving_an_index_keeps_the_journal_of_a_change_that_follows(tmp_path, journaled, monkeypatch):
    """Another writer waits between the new file and the removal of the journal of the old one."""
    path = tmp_path / "x.index"
    plain = index_module.write_index

    def change():
        with index_lock(path), nearfar.index.open(path, "w", lock=False) as store:
            monkeypatch.setattr(file_store, "LARGEST_PART", 0.0)
            store.remove("n1")  # the file is written anew
            monkeypatch.setattr(file_store, "LARGEST_PART", 1e9)
            store.remove("n2")

    other = threading.Thread(target=change)

    def write_then_pause(*arguments):
        monkeypatch.setattr(index_module, "write_index", plain)
        identity = plain(*arguments)
        other.start()
        other.join(timeout=0.5)
        return identity

    with started(path) as store:
        store.remove("n0")
    index = Index.load(path)
    monkeypatch.setattr(index_module, "write_index", write_then_pause)
    index.save(path)
    other.join()
    assert Index.load(path).names.tolist() == WORDS[3:6]


def rewritten(own, data):
    """Give a journal one change with a right checksum."""
    own.write_bytes(own.read_bytes()[: journal.BEGINNING] + journal.record_of(data))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"embeddings": np.full((1, D), np.nan)}, "NaN"),
        ({"embeddings": np.ones((1, 3))}, "embeddings: expected 5 columns as in the index, got 3"),
        ({"embeddings": np.ones(5)}, "embeddings: expected two dimensions"),
        ({"names": ["a", "b"]}, "names: expected 1, one per embedding"),
        ({"names": "[" * 200 + "]" * 200}, "nested in each other"),
        ({"names": "x"}, "Expecting"),
        ({"labels": [3]}, "labels: expected text as in the index, got numbers"),
        ({"labels": None}, "labels: the index has labels, the new items have none"),
        ({"column/price": ["a"]}, "columns: expected numbers in 'price' as in the index, got text"),
        ({"column/and": [1.0]}, "'and' is reserved"),
        ({"gone": None}, "'gone'"),
        ({"gone": [["a"]]}, "gone: expected a list of names"),
        ({"about": "3"}, "about: expected an object of text"),
        ({"engine": "(" * 99}, "engine: expected exact, or a recipe of faiss"),
    ],
)
def test_changes_that_do_not_fit_are_refused_in_one_line(tmp_path, journaled, change, told):
    import json

    path, own = tmp_path / "x.index", tmp_path / "x.index.journal"
    with started(path) as store:
        store.remove("n0")
    valid = {"embeddings": np.ones((1, D)), "names": ["a"], "labels": ["x"], "gone": [], "about": "{}", "engine": ""}
    whole = {name: value for name, value in (valid | change).items() if value is not None}
    text = {name: str(whole.pop(name)) for name in ("about", "engine")}
    arrays = {}
    for name, value in whole.items():
        if isinstance(value, np.ndarray) or (value and isinstance(value[0], (int, float))):
            arrays[name] = np.asarray(value)
        else:
            encoded = value if isinstance(value, str) else json.dumps(value)
            arrays[name] = np.frombuffer(encoded.encode(), dtype=np.uint8)
    rewritten(own, tensor_file.packed(arrays, text))
    for read in (Index.load, nearfar.index.open, lambda path: nearfar.index.open(path, "w")):
        with pytest.raises(ValueError, match=r"x\.index\.journal is damaged: ") as error:
            read(path)
        assert told in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("way", ["text", "empty", "folder", "id"])
def test_another_file_in_the_place_of_the_journal_is_kept(tmp_path, way):
    path, own = tmp_path / "x.index", tmp_path / "x.index.journal"
    started(path).close()
    if way == "folder":
        own.mkdir()
    else:
        own.write_bytes({"text": b"my notes\n" * 20, "empty": b"", "id": journal.JOURNAL_MARK + b"\xff" * 32}[way])
    for action in (Index.load, nearfar.index.open, lambda path: nearfar.index.open(path, "w"), started):
        with pytest.raises(ValueError, match=r"x\.index\.journal is not a journal of an index") as error:
            action(path)
        assert "\n" not in str(error.value)
    assert own.exists()


def test_commands_read_the_journal(tmp_path, capsys, monkeypatch, journaled):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", embeddings=np.eye(4), labels=list("abab"), names=[f"n{k}" for k in range(4)])
    np.savez("more.npz", embeddings=[[1.0, 1.0, 0.0, 0.0]], labels=["c"], names=["more"])
    run(capsys, monkeypatch, "index", "rows.npz", "-o", "x.index")
    code, out, _ = run(capsys, monkeypatch, "index", "more.npz", "-o", "x.index", "--add")
    assert (code, out) == (0, "x.index: Index of 5 x 4, cosine, engine exact; 1 item embedded\n")
    assert Path("x.index.journal").exists()
    code, out, _ = run(capsys, monkeypatch, "search", "x.index", "more.npz", "-k", "1")
    assert (code, "more" in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "index", "x.index", "-o", "copy.index")
    assert (code, out) == (0, "copy.index: Index of 5 x 4, cosine, engine exact; copied from x.index\n")
    assert not Path("copy.index.journal").exists()
    assert Index.load("copy.index").names.tolist() == ["n0", "n1", "n2", "n3", "more"]
    for file in ("x.index", "x.index.journal"):
        shutil.copy(file, f"other{file[1:]}")
    assert len(Index.load("other.index")) == 5
