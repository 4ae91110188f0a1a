"""The file of an index: what it holds after any changes, and what becomes of damaged, interrupted and hostile files."""

import errno
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nearfar.index
from nearfar.index import Index, blob_file, collection_file, create, records_of
from nearfar.index.collection_file import BUCKETS, LABELS, NAMES, VECTORS

D = 5
WORDS = [f"n{k}" for k in range(14)]
FLIPS = 60


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of three items, and buckets that are doubled soon."""
    monkeypatch.setattr(collection_file, "MOST_ITEMS", 3)
    monkeypatch.setattr(collection_file, "IN_BUCKET", 1)


def records(names, seed=0, *, labels="xy", **columns):
    rows = np.random.default_rng(seed).normal(size=(len(names), D))
    kinds = None if labels is None else [labels[k % len(labels)] for k in range(len(names))]
    return records_of(rows, names, labels=kinds, columns=columns)


def started(path, engine="exact", labels="xy"):
    return create(path, records(WORDS[:6], labels=labels, price=np.arange(6.0)), engine=engine, about={"made": "first"})


class Plain:
    """What a collection holds, in a list of items, which every change rewrites."""

    def __init__(self, labels):
        self.items = []
        self.columns = {}
        self.about = {"made": "first"}
        self.add(records(WORDS[:6], labels=labels, price=np.arange(6.0)))

    def add(self, new, *, about=None, gone=()):
        kinds = {name: values.dtype.kind for name, values in new.columns.items()}
        if any(self.columns.get(name, kind) != kind for name, kind in kinds.items()) and self.items:
            raise ValueError
        if not self.items and len(new):
            self.columns |= kinds
        self.columns = kinds | self.columns
        self.items = [item for item in self.items if item[0] not in {*gone, *new.names.tolist()}]
        for k, name in enumerate(new.names.tolist()):
            label = None if new.labels is None else new.labels[k].item()
            values = {c: values[k].item() for c, values in new.columns.items()}
            self.items.append((name, new.embeddings[k].tolist(), label, values))
        self.about |= about or {}

    def remove(self, names):
        if not {*names} <= {item[0] for item in self.items}:
            raise ValueError
        self.items = [item for item in self.items if item[0] not in names]

    def change(self, *, about):
        self.about |= about

    def seen(self):
        empty = {"f": float("nan"), "U": ""}
        columns = {c: [item[3].get(c, empty[kind]) for item in self.items] for c, kind in self.columns.items()}
        names, rows, labels, _ = zip(*self.items, strict=True) if self.items else ((), (), (), ())
        return names, rows, [label for label in labels if label is not None], columns, self.about


def seen(store):
    index = store.in_memory()
    columns = {name: store.column(name).tolist() for name in store.columns() if name not in ("name", "label")}
    labels = store.column("label").tolist() if "label" in store.columns() else []
    assert store.count() == len(index) == len(store.column("name"))
    some = store.get(WORDS)
    places = {name: k for k, name in enumerate(index.names.tolist())}
    assert some.names.tolist() == [name for name in WORDS if name in places]
    assert all(
        some.embeddings[k].tolist() == index.embeddings[places[name]].tolist() for k, name in enumerate(some.names)
    )
    assert str(some.columns) == str(index.records().pick([places[name] for name in some.names.tolist()]).columns)
    return index.names.tolist(), index.embeddings.tolist(), labels, columns, store.about


def as_text(content):
    names, rows, labels, columns, about = content
    return str(([*names], [*rows], [*labels], sorted((c, str(values)) for c, values in columns.items()), about))


def random_changes(seed, labels):
    """Changes that any store takes; some of them make an error, after which nothing is changed."""
    rng = np.random.default_rng(seed)
    no_items = records(WORDS[:1], labels=labels, date=["today"]).pick([])
    yield lambda store: store.add(no_items, gone=WORDS[5:6])
    for step in range(15):
        names = rng.permutation(WORDS)[: rng.integers(1, 4)].tolist()
        gone = rng.permutation(WORDS)[: rng.integers(0, 3)].tolist()
        way = rng.integers(6)
        if way <= 1:
            columns = {}
            if rng.random() < 0.5:
                columns["price"] = rng.normal(size=len(names)).tolist()
            if rng.random() < 0.5:
                columns[f"shop{rng.integers(2)}"] = [f"ä{step}"] * len(names)
            about = {"made": f"in step {step}"} if rng.random() < 0.3 else None
            new = records(names, seed=100 * seed + step, labels=labels, **columns)
            yield lambda store, new=new, about=about, gone=gone: store.add(new, about=about, gone=gone)
        elif way <= 3:
            yield lambda store, names=names: store.remove(names)
        elif way == 4:
            yield lambda store, step=step: store.change(about={"step": str(step)})
        else:
            wrong = records(names, labels=labels, price=["text"] * len(names))
            yield lambda store, wrong=wrong: store.add(wrong)


@pytest.mark.parametrize("labels", ["xy", [3, 5], None])
@pytest.mark.parametrize("seed", range(2))
def test_any_changes_give_what_a_plain_list_gives(tmp_path, small_blocks, seed, labels):
    path = tmp_path / "x.index"
    plain = Plain(labels)
    store = started(path, labels=labels)
    for step, change in enumerate(random_changes(seed, labels)):
        refused = []
        for held in (plain, store):
            try:
                change(held)
            except ValueError as error:
                refused.append(error)
        assert len(refused) in (0, 2)
        assert as_text(seen(store)) == as_text(plain.seen())
        with nearfar.index.open(path) as reader:
            assert as_text(seen(reader)) == as_text(plain.seen())
        if step % 4 == 3:
            store.close()
            store = nearfar.index.open(path, "w")
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["x.index"]


def test_items_that_come_and_go_leave_no_blocks_behind(tmp_path, small_blocks):
    path = tmp_path / "x.index"
    with started(path) as store:
        for k in range(12):
            store.add(records([f"new{k}", f"newer{k}"]))
            store.remove([f"new{k}", f"newer{k}"])
    with blob_file.reading(path) as blobs:
        blobs.root()
        assert blobs.count < 25


def filled(path):
    items = records_of(np.eye(4), ["a", "b", "c", "d"], labels=[3, 5, 3, 5], columns={"price": [1.0, 2.0, 3.0, 4.0]})
    with create(path, items) as store:
        store.remove("b")
        store.add(records_of([[1.0, 2.0, 3.0, 4.0]], ["e"], labels=[7], columns={"shop": ["x"]}))


def content(path):
    with nearfar.index.open(path) as store:
        index = store.in_memory()
        columns = {name: store.column(name).tolist() for name in store.columns()}
        return str((index.embeddings.tolist(), columns, store.about, store.engine(), store.distance))


def flips(whole, count):
    """Yield copies of some bytes in which one bit is another."""
    rng = np.random.default_rng(0)
    for place in rng.choice(8 * len(whole), size=count, replace=False).tolist():
        byte = whole[place // 8] ^ (1 << place % 8)
        yield whole[: place // 8] + bytes([byte]) + whole[place // 8 + 1 :]


def test_a_flipped_bit_is_an_error_and_no_other_item(tmp_path, monkeypatch):
    monkeypatch.setattr(blob_file, "PAGE", 512)  # few bytes that nothing uses
    monkeypatch.setattr(blob_file, "SECONDS_TO_WAIT", 0.0)
    path = tmp_path / "x.index"
    filled(path)
    before = content(path)
    errors = []
    for damaged in flips(path.read_bytes(), FLIPS):
        path.write_bytes(damaged)
        try:
            found = content(path)
        except (ValueError, OSError) as error:
            errors.append(str(error))
        else:
            assert found == before
    assert len(errors) > FLIPS / 5
    assert all(error.startswith(f"{path}") and "\n" not in error for error in errors)


def test_a_damaged_page_above_those_of_the_parts_hides_none(tmp_path, monkeypatch, small_blocks):
    """SQLite goes by its keys to a part; where a key is another one, it may say that there is no such part."""
    monkeypatch.setattr(blob_file, "PAGE", 512)
    monkeypatch.setattr(blob_file, "SECONDS_TO_WAIT", 0.0)
    path = tmp_path / "x.index"
    names = [f"n{k}" for k in range(30)]
    create(path, records(names, price=np.arange(30.0), shop=[f"s{k}" for k in range(30)])).close()

    def both():
        with nearfar.index.open(path, "w") as store:
            return content(path), str(store.get(names).columns)

    before = both()
    whole = path.read_bytes()
    assert whole[512] == 5  # the second page of the file is one above others
    errors = 0
    for bit in range(8 * (1024 - 80), 8 * 1024, 5):
        byte = whole[bit // 8] ^ (1 << bit % 8)
        path.write_bytes(whole[: bit // 8] + bytes([byte]) + whole[bit // 8 + 1 :])
        try:
            assert both() == before
        except (ValueError, OSError):
            errors += 1
    assert errors > 10


def test_a_file_that_was_cut_off_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(blob_file, "PAGE", 512)
    path = tmp_path / "x.index"
    filled(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 301):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"x\.index is (damaged|not a)"):
            nearfar.index.open(path)


def test_a_damaged_part_is_an_error_where_it_is_read_and_nowhere_else(tmp_path, small_blocks):
    path = tmp_path / "x.index"
    started(path).close()
    damage(path, VECTORS, 0, lambda data: data[:-1] + b"?")
    with nearfar.index.open(path, "w") as store:
        store.add(records(["new"], price=[3.0]))  # in another block
        for read in (store.in_memory, lambda: store.get(["n0"])):
            with pytest.raises(ValueError, match=r"x\.index is damaged: its part 5-0 is not the one that was written"):
                read()
        assert store.get(["new"]).names.tolist() == ["new"]


def damage(path, kind, number, change):
    """Change a blob without its digest."""
    with closing(sqlite3.connect(path)) as connection, connection:
        key = kind * blob_file.PER_KIND + number
        (data,) = connection.execute("SELECT data FROM blobs WHERE id = ?", (key,)).fetchone()
        connection.execute("UPDATE blobs SET data = ? WHERE id = ?", (change(data), key))


def test_blobs_that_are_missing_or_stand_elsewhere_are_noticed(tmp_path, small_blocks):
    path = tmp_path / "x.index"
    for change in (
        f"DELETE FROM blobs WHERE id = {LABELS * 2**32 + 1}",
        f"DELETE FROM blobs WHERE id = {BUCKETS * 2**32}",
        f"UPDATE blobs SET id = {VECTORS * 2**32 + 9} WHERE id = {VECTORS * 2**32 + 1}",
        "DELETE FROM blobs WHERE id = 0",
    ):
        started(path).close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(change)
        with pytest.raises(ValueError, match=r"x\.index is damaged: "):
            nearfar.index.open(path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW more AS SELECT * FROM blobs",
        "CREATE TRIGGER t AFTER INSERT ON blobs BEGIN DELETE FROM blobs; END",
        "CREATE TABLE more (a, b GENERATED ALWAYS AS (a + 1))",
        "CREATE INDEX i ON blobs (length(data))",
        "ALTER TABLE blobs ADD COLUMN more AS (zeroblob(1000000000))",
        "ALTER TABLE blobs RENAME TO others; CREATE VIEW blobs AS SELECT id, digest, data FROM others",
        "PRAGMA journal_mode=WAL",
        "PRAGMA application_id=7",
    ],
)
def test_a_schema_that_is_not_ours_is_refused(tmp_path, statement):
    path = tmp_path / "x.index"
    started(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statement)
    for mode in ("r", "w"):
        with pytest.raises((ValueError, OSError), match=r"x\.index(:| is not an index)") as error:
            nearfar.index.open(path, mode)
        assert "\n" not in str(error.value)


def test_a_blob_that_is_larger_than_the_file_is_not_read(tmp_path):
    path = tmp_path / "x.index"
    started(path).close()
    size = path.stat().st_size
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE blobs SET data = zeroblob(3000000) WHERE id = 0")
    with open(path, "r+b") as file:
        file.truncate(size)  # the length stays in the first page of the row
    for mode in ("r", "w"):
        with pytest.raises(ValueError, match=r"x\.index is damaged: "):
            nearfar.index.open(path, mode)


def interrupted(path, monkeypatch, end=b""):
    """Leave a file as a process does that is killed while it writes a change."""

    class Spilling(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql == "COMMIT" and path.exists():
                super().execute("PRAGMA cache_size=0")  # the pages go to the file now
                super().execute("PRAGMA shrink_memory")
                for file in path.parent.glob("x.index*"):
                    shutil.copy(file, path.parent / f"copy-{file.name}")
            if sql == "BEGIN IMMEDIATE":
                super().execute("PRAGMA cache_size=1")
                super().execute("PRAGMA cache_spill=1")
            return super().execute(sql, *values)

    with monkeypatch.context() as patch:
        patch.setattr(blob_file, "Connection", Spilling)
        with nearfar.index.open(path, "w") as store:
            store.add(records([f"new{k}" for k in range(30)]))
    for copied in path.parent.glob("copy-*"):
        shutil.move(copied, path.parent / copied.name.removeprefix("copy-"))
    journal = blob_file.journal_of(path)
    assert journal.stat().st_size > 512
    journal.write_bytes(journal.read_bytes() + end)


@pytest.mark.parametrize("way", ["read", "written", "replaced"])
def test_what_was_interrupted_is_undone_at_the_next_opening(tmp_path, monkeypatch, small_blocks, way):
    monkeypatch.setattr(blob_file, "PAGE", 512)
    path = tmp_path / "x.index"
    started(path).close()
    before = content(path)
    interrupted(path, monkeypatch)
    assert blob_file.journal_of(path).exists()
    if way == "written":
        nearfar.index.open(path, "w").close()
    elif way == "replaced":
        started(path).close()
    assert content(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.index"]


def test_a_journal_that_names_another_file_does_not_have_it_deleted(tmp_path, monkeypatch, small_blocks):
    """SQLite removes the file that a journal of a change of several files names."""
    monkeypatch.setattr(blob_file, "PAGE", 512)
    path, victim = tmp_path / "x.index", tmp_path / "victim"
    started(path).close()
    victim.write_bytes(b"")
    name = str(victim).encode()
    end = len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + blob_file.GROUP_MARK
    interrupted(path, monkeypatch, b"\xff" * 4 + name + end)
    for mode in ("r", "w"):
        with pytest.raises(
            ValueError, match=r"x\.index has a journal that is not ours; move x\.index-journal elsewhere"
        ):
            nearfar.index.open(path, mode)
    assert victim.exists()


def test_a_full_disk_leaves_the_old_content(tmp_path, monkeypatch):
    class Full(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql == "BEGIN IMMEDIATE":
                (pages,) = super().execute("PRAGMA page_count").fetchone()
                super().execute(f"PRAGMA max_page_count={pages}")
            return super().execute(sql, *values)

    path = tmp_path / "x.index"
    with started(path) as store:
        before = as_text(seen(store))
        many = records([f"new{k}" for k in range(5000)])
        with monkeypatch.context() as patch:
            patch.setattr(blob_file, "Connection", Full)
            with pytest.raises(OSError, match=r"x\.index: cannot be written \(No space left on device\)\Z") as error:
                store.add(many)
            assert error.value.errno == errno.ENOSPC
        assert as_text(seen(store)) == before
        store.add(many)
        assert store.count() == 5006
    assert [file.name for file in tmp_path.iterdir()] == ["x.index"]


def test_a_change_of_a_link_changes_the_file(tmp_path):
    path, link = tmp_path / "x.index", tmp_path / "link.index"
    started(path).close()
    link.symlink_to(path)
    with nearfar.index.open(link, "w") as store:
        store.remove("n1")
    assert link.is_symlink()
    assert len(Index.load(link)) == len(Index.load(path)) == 5


def test_a_file_that_was_replaced_meanwhile_is_changed_as_it_is_now(tmp_path):
    path = tmp_path / "x.index"
    with started(path) as store:
        store.remove("n0")
        Index(np.eye(D), names=WORDS[:5]).save(path)  # which does not wait for its own thread
        store.remove("n1")
        assert Index.load(path).names.tolist() == ["n0", *WORDS[2:5]]


def rewritten(path, **changes):
    """Change entries of the root, and give it a right digest."""
    with blob_file.changing(path) as blobs:
        root = json.loads(blobs.root()) | changes
        blobs.put_root(json.dumps({name: value for name, value in root.items() if value != "left out"}).encode())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "(" * 99}, "engine: expected exact, or a recipe of faiss"),
        ({"distance": "taxi"}, "distance: expected one of"),
        ({"distance": "left out"}, "missing 1 required"),
        ({"about": 3}, "about: expected an object of text"),
        ({"about": "ab"}, "about: expected an object of text"),
        ({"about": {"made": 3}}, "about: expected a dict of text"),
        ({"labels": "numbers"}, "labels: expected a kind"),
        ({"labels": None}, ""),
        ({"columns": {"and": [16, "number"]}}, "'and' is reserved"),
        ({"columns": {"price": [16, "text"]}}, "a column has 0 values in block 0"),
        ({"columns": {"price": [5, "number"]}}, "columns: expected a number and a kind of 'price'"),
        ({"columns": {"price": [16, "number"], "size": [16, "number"]}}, "two have the same number"),
        ({"columns": 3}, "has no"),
        ({"dimensions": 0}, "expected dimensions, blocks and buckets"),
        ({"dimensions": 7}, "reshape"),
        ({"per_block": 2**40}, "expected dimensions, blocks and buckets"),
        ({"per_block": 2}, ""),
        ({"buckets": 1.5}, "expected whole numbers"),
        ({"count": 5}, "it has 6 items, not 5"),
        ({"count": 7}, "expected fewer items than numbers"),
        ({"next": 3, "count": 3}, ""),
        ({"origin": 3}, ""),
        ({"format": "nearfar index 9"}, "it belongs to another version of nearfar"),
    ],
)
def test_a_root_that_does_not_fit_is_refused_in_one_line(tmp_path, changes, message):
    path = tmp_path / "x.index"
    started(path).close()
    if changes.get("labels", 0) is None:
        rewritten(path, **changes)
        assert "label" not in nearfar.index.open(path).columns()
        return
    rewritten(path, **changes)
    with pytest.raises(ValueError, match=r"x\.index is (damaged: |not of the format)") as error:
        Index.load(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (NAMES, b"", "values in block 0, not 6"),
        (NAMES, b"\xff" * 8, "values in block 0, not 6"),
        (NAMES, b"\x06\0\0\0" + bytes(24) + b"x", "texts that do not end"),
        (NAMES, b"\x06\0\0\0" + bytes(24), "'' occurs more than once"),
        (NAMES, b"\x01\0\0\0\x01\0\0\0\xff", "a column has 1 values in block 0, not 6"),
        (VECTORS, b"123", "buffer size"),
        (VECTORS, np.full((6, D), np.nan, dtype="<f4").tobytes(), "NaN"),
        (LABELS, b"", "values in block 0, not 6"),
        (16, b"12345678", "a column has 1 values in block 0, not 6"),
        (16, np.full(6, np.inf).tobytes(), "holds infinity"),
        (collection_file.GONE, b"\x09\0", "out of bounds"),
    ],
)
def test_content_that_does_not_fit_is_refused_in_one_line(tmp_path, kind, data, message):
    path = tmp_path / "x.index"
    started(path).close()
    with blob_file.changing(path) as blobs:
        root = blobs.root()
        blobs.put(kind, 0, data)
        blobs.put_root(root)
    with pytest.raises(ValueError, match=r"x\.index is damaged: ") as error:
        nearfar.index.open(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_something_else_is_no_index(tmp_path):
    for name, data in (("text", b"hello"), ("empty", b""), ("zeros", bytes(5000))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=rf"{name} is not a"):
            Index.load(tmp_path / name)
    with closing(sqlite3.connect(tmp_path / "other")) as connection, connection:
        connection.execute("CREATE TABLE blobs (id INTEGER PRIMARY KEY)")
    with pytest.raises(ValueError, match="other is not an index"):
        Index.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        Index.load(tmp_path / "nothing")
    assert Path(tmp_path / "empty").read_bytes() == b""


def test_a_forged_number_of_dimensions_takes_no_memory(tmp_path):
    path = tmp_path / "x.index"
    create(path, records_of(np.eye(3), ["a", "b", "c"])).close()
    with blob_file.changing(path) as blobs:
        root = collection_file.Root.read(blobs)
        blobs.put_root(replace(root, dimensions=2**40).packed())
    with pytest.raises(ValueError, match="is damaged: expected the vectors of 3 items, got a smaller file"):
        nearfar.index.open(path)
