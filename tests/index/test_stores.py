"""One law over the stores: whatever the URI, the same items are found, filtered, grouped, added and removed."""

import errno
import gc
import importlib
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

import nearfar.index
from nearfar.index import (
    Index,
    blob_file,
    create,
    database_state,
    from_frame,
    lance_store,
    milvus_store,
    records_of,
    to_frame,
)
from nearfar.index.building import build, copy_index
from nearfar.labels import text_array

from ..commands import run

SERVERS = [pytest.param(uri, marks=pytest.mark.slow) for uri in ("postgresql://", "http://localhost:19530/items")]
KINDS = ["items.index", "items.lance", *SERVERS]
rng = np.random.default_rng(0)


def records(names, columns=None, labels=None):
    rows = np.stack([np.random.default_rng(crc32(name.encode())).normal(size=5) for name in names])
    return records_of(rows, names, labels=labels, columns=columns)


class Impatient:
    """The module `time` with shorter pauses: pymilvus waits half a second before it asks whether an index is made."""

    time = staticmethod(time.time)
    sleep = staticmethod(lambda seconds: time.sleep(seconds / 50))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A file of Milvus Lite, which understands what a server does, under the address of one."""
    pytest.importorskip("milvus_lite")
    pymilvus = pytest.importorskip("pymilvus")
    monkeypatch.setattr("pymilvus.client.grpc_handler.time", Impatient)
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(milvus_store, "connected", lambda address: pymilvus.MilvusClient(str(tmp_path / "server.db")))
    return "http://localhost:19530/items"


@pytest.fixture(params=KINDS)
def uri(request, tmp_path):
    if request.param.startswith("http"):
        return request.getfixturevalue("server")
    if request.param.startswith("postgresql"):
        return request.getfixturevalue("postgres")
    if request.param.endswith(".lance"):
        pytest.importorskip("lancedb")
    return str(tmp_path / request.param)


@pytest.fixture(params=[False, pytest.param(True, id="objects")])
def long_texts(request, monkeypatch):
    """Whether texts are arrays of objects, as they are where a few are much longer than the others."""
    if request.param:
        monkeypatch.setattr("nearfar.labels.NARROW", 0)
        monkeypatch.setattr("nearfar.index.stored_column.NARROW", 0)
        monkeypatch.setattr("nearfar.labels.PADDED", 0)
        monkeypatch.setattr("nearfar.index.records.narrow_texts", lambda texts, name: text_array(texts))


NAMES = [f"photos/ä'{k}.png" for k in range(60)]
COLUMNS = {
    "price": [None if k % 7 == 0 else float(k) for k in range(60)],
    "shop": ["" if k % 11 == 0 else "abc"[k % 3] for k in range(60)],
    "product": [f"p{k // 4}" for k in range(60)],
}
LABELS = ["x", "y'"] * 30


def filled(uri, distance="cosine"):
    return create(uri, records(NAMES, COLUMNS, LABELS), distance=distance, about={"made": "by a test"})


def named(hits):
    return [[str(hits.records.names[at]) for at in row if at >= 0] for row in hits.positions]


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
def test_a_store_finds_what_an_index_finds(uri, distance):
    plain = records(NAMES, COLUMNS, LABELS)
    index = Index(plain.embeddings, names=plain.names, labels=plain.labels, distance=distance, columns=plain.columns)
    queries = rng.normal(size=(70, 5)).astype(np.float32)
    with filled(uri, distance) as store:
        assert (store.distance, store.about, store.dimensions) == (distance, {"made": "by a test"}, 5)
        assert store.engine() == "exact"
        for asked in (
            {},
            {"where": "price < 30"},
            {"where": 'not price < 30 and label == "y\'"'},
            {"where": "price != 3 or shop in ['a', '']"},
            {"where": "shop not in ['a'] and name >= 'photos/'", "group_by": "product"},
            {"group_by": "product"},
            {"group_by": "shop"},
            {"group_by": "label"},
            {"where": "price > 1e6"},
        ):
            expected = index.search(queries, 7, **asked)
            found = store.search(queries, 7, **asked)
            assert named(found) == [[str(index.names[at]) for at in row if at >= 0] for row in expected.positions]
            far = found.distances[found.positions >= 0]
            np.testing.assert_allclose(far, expected.distances[expected.positions >= 0], atol=1e-6)


def test_a_filter_holds_for_the_rows_of_a_plain_loop(uri, long_texts):
    with filled(uri) as store:
        prices, shops = COLUMNS["price"], COLUMNS["shop"]
        for where, holds in (
            ("price < 30", lambda k: prices[k] is not None and prices[k] < 30),
            ("not price < 30", lambda k: not (prices[k] is not None and prices[k] < 30)),
            ("price != 3", lambda k: prices[k] is not None and prices[k] != 3),
            ("price in [1, 2.0, 900]", lambda k: prices[k] in (1, 2)),
            ("price not in [1]", lambda k: prices[k] != 1),
            (
                "shop == '' or (price > 50 and shop != 'a')",
                lambda k: shops[k] == "" or ((prices[k] or 0) > 50 and shops[k] != "a"),
            ),
            ("price == -1", lambda k: False),
            ("price is missing", lambda k: prices[k] is None),
            ("price is not missing and shop is missing", lambda k: prices[k] is not None and shops[k] == ""),
            ("name contains '7.p'", lambda k: "7.p" in NAMES[k]),
            ('name not contains "ä\'1"', lambda k: "ä'1" not in NAMES[k]),
            ("name contains '%' or name contains '_' or label contains 'Y'", lambda k: False),
            ("label is missing", lambda k: False),
        ):
            expected = [NAMES[k] for k in range(60) if holds(k)]
            assert sorted(store.column("name", where).tolist()) == sorted(expected), where
            assert store.count(where) == len(expected)


def test_a_part_of_a_column_is_that_of_the_whole(uri):
    with filled(uri) as store:
        for name, where in (("name", ""), ("shop", "price > 20"), ("name", "price < 0")):
            whole = store.column(name, where).tolist()
            for start, count in ((0, 3), (5, 7), (1, 0), (30, None), (len(whole), 2), (10**6, 5), (0, 10**6)):
                part = store.column(name, where, start=start, count=count).tolist()
                assert part == whole[start:][:count], (name, where, start, count)


def test_items_are_added_replaced_and_removed(uri, long_texts):
    with filled(uri) as store:
        more = records(["new", NAMES[3]], {"price": [5.0, 6.0], "date": ["2026-01-31", ""]}, ["x", "x"])
        store.add(more, about={"made": "by two"}, gone=[NAMES[0]])
        assert store.count() == 60
        assert store.about == {"made": "by two"}
        assert store.columns()["date"] == "text"
        found = store.get(["new", NAMES[3], NAMES[0], NAMES[5]])
        assert found.names.tolist() == ["new", NAMES[3], NAMES[5]]
        assert found.columns["date"].tolist() == ["2026-01-31", "", ""]
        assert found.columns["price"].tolist() == [5, 6, 5]
        assert found.columns["shop"].tolist() == ["", "", COLUMNS["shop"][5]]
        assert found.labels.tolist() == ["x", "x", "y'"]
        np.testing.assert_allclose(found.embeddings[0], more.embeddings[0])
        assert named(store.search(more.embeddings[:1], 1)) == [["new"]]
        store.remove(["new", NAMES[4]])
        assert store.count() == 58
        assert "new" not in store.column("name").tolist()
    with nearfar.index.open(uri) as store:
        assert store.count() == 58
        assert len(store.in_memory()) == 58
        assert store.in_memory().about == {"made": "by two"}


def writes_of(uri, monkeypatch):
    """The functions with which a kind of storage writes: whatever the store does, it does by them."""
    found = [(os, "fsync"), (os, "replace"), (FailingConnection, "writing")]
    if uri.endswith(".lance"):
        import lancedb

        found += [(lancedb.table.LanceTable, name) for name in ("add", "delete", "add_columns", "create_index")]
        found += [(lancedb.table.LanceTable, name) for name in ("restore", "optimize")]
        found += [(lancedb.merge.LanceMergeInsertBuilder, "execute"), (lancedb.db.LanceDBConnection, "create_table")]
    elif uri.startswith("postgresql"):
        connection = pytest.importorskip("psycopg").Connection
        execute = connection.execute

        def executing(self, statement, *values, **options):
            text = statement if isinstance(statement, str) else statement.as_string()
            reads = text.split()[0] in ("SELECT", "BEGIN", "SET")
            return (execute if reads else connection.writing)(self, statement, *values, **options)

        monkeypatch.setattr(connection, "writing", execute, raising=False)
        monkeypatch.setattr(connection, "execute", executing)
        found += [(connection, "writing"), (importlib.import_module("nearfar.index.postgres_store"), "copy_in")]
    elif uri.startswith("http"):
        client = pytest.importorskip("pymilvus").MilvusClient
        found += [(client, name) for name in ("upsert", "delete", "create_collection", "drop_collection")]
    return found


class FailingConnection(sqlite3.Connection):
    """A connection whose changes go through one method, which can fail."""

    def execute(self, sql, *values):
        if sql.split()[0] in ("INSERT", "DELETE", "REPLACE", "COMMIT"):
            return self.writing(sql, *values)
        if sql == "PRAGMA synchronous=EXTRA":  # nothing needs to be on the disk
            sql = "PRAGMA synchronous=OFF"
        return super().execute(sql, *values)

    def writing(self, sql, *values):
        return super().execute(sql, *values)


class Failing:
    """Writes that fail: the one with number `at`, or all from there on, before or after they are done."""

    def __init__(self, monkeypatch, uri):
        self.at, self.after, self.all = None, False, False
        self.count = 0
        monkeypatch.setattr(blob_file, "Connection", FailingConnection)
        for owner, name in writes_of(uri, monkeypatch):
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, write):
        def writing(*args, **options):
            fails = self.at is not None and (self.count == self.at or (self.all and self.count > self.at))
            self.count += 1
            if fails and not self.after:
                raise OSError(errno.ENOSPC, "No space left on device")
            result = write(*args, **options)
            if fails:
                raise OSError(errno.ENOSPC, "No space left on device")
            return result

        return writing


def everything(store):
    """All that is in a collection, in the order of the names."""
    index = store.in_memory()
    order = np.argsort(index.names)
    parts = {"rows": index.embeddings, "labels": index.labels, "names": index.names, **index.columns}
    found = {name: str(values[order].tolist()) for name, values in parts.items() if values is not None}
    return found | {"about": store.about, "engine": store.engine(), "kinds": store.columns()}


def few(uri, items=3):
    some = records(NAMES[:3], {"price": [1.0, 2.0, 3.0]}, labels=["x", "y", "x"])
    return create(uri, some.pick(np.arange(items)), about={"made": "first"})


ONE_CHANGE = {
    "replace": lambda store: store.add(
        records([NAMES[0], "new"], {"shop": ["a", "b"]}, labels=["y", "z"]), gone=[NAMES[1]], about={"made": "anew"}
    ),
    "append": lambda store: store.add(records(["new"], {"price": [5.0]}, labels=["y"]), about={"made": "anew"}),
    "remove": lambda store: store.remove(NAMES[:2]),
    "empty": lambda store: store.remove(NAMES[:3]),
    "about": lambda store: store.change(about={"made": "anew"}),
    "first": lambda store: store.add(records(["new"], {"size": [5.0]}, labels=["y"]), about={"made": "anew"}),
}
FAILURES = [  # each change in each storage, half of them after their write was done; in a file, both
    pytest.param(*getattr(kind, "values", [kind]), change, after, marks=getattr(kind, "marks", []))
    for place, kind in enumerate(KINDS)
    for number, change in enumerate(ONE_CHANGE)
    for after in (False, True)
    if place == 0 or after == bool((place + number) % 2)
]


@pytest.mark.parametrize(("uri", "change", "after"), FAILURES, indirect=["uri"])
def test_a_change_is_made_wholly_or_not_at_all_whatever_write_fails(uri, monkeypatch, change, after):
    """The write that fails is each of them, and then also all that follow, as on a full disk."""
    make = ONE_CHANGE[change]
    items = 0 if change == "first" else 3
    with few(uri, items) as store:
        before = everything(store)
        make(store)
        made = everything(store)
    failing = Failing(monkeypatch, uri)
    tried = 0
    last = set()  # writes after which the store tries no other, so that it does not matter whether these would fail
    for every in (False, True):
        failing.all, failing.at = every, None
        for number in range(99):
            if number in last and every:
                continue
            with few(uri, items) as store:
                failing.at, failing.after, failing.count = number, after, 0
                failed = False
                try:
                    make(store)
                except OSError:
                    failed = True
                written = failing.count
                if failed and written == number + 1:
                    last.add(number)
                with nearfar.index.open(uri) as reader:
                    found = everything(reader)
                    assert found in (before, made)
                    assert everything(store) == found
                    assert failed or found == made
                failing.at = None
                if found == before and number % 2:
                    make(store)
                    found = everything(store)
            with nearfar.index.open(uri, "w") as store:
                assert everything(store) == found
                if found == before:
                    make(store)
                    assert everything(store) == made
            if written <= number:
                break
            tried += 1
    assert tried >= 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_copy_that_fails_leaves_what_was_there(uri, tmp_path, monkeypatch, after):
    """A collection that replaces another one, as a copy with `--overwrite` does; each of its writes fails once."""
    other = create(tmp_path / "other.index", records(["new", "newer"], {"size": [1.0, 2.0]}), about={"made": "anew"})
    with few(uri) as store:
        before = everything(store)
    copy_index(tmp_path / "other.index", uri, {}, engine="")
    with nearfar.index.open(uri) as reader:
        made = everything(reader)
    assert made == everything(other)
    failing = Failing(monkeypatch, uri)
    for number in range(99):
        few(uri).close()
        failing.at, failing.after, failing.count = number, after, 0
        failed = False
        try:
            copy_index(tmp_path / "other.index", uri, {}, engine="")
        except OSError:
            failed = True
        failing.at = None
        with nearfar.index.open(uri) as reader:
            found = everything(reader)
        assert found in (before, made)
        assert failed or found == made
        if failing.count <= number:
            break
    assert number >= 2


def test_a_server_that_dies_while_it_is_copied_leaves_what_was_there(uri, tmp_path, monkeypatch):
    few(uri).close()
    target = tmp_path / "copy.index"
    create(target, records(["kept"])).close()
    content = target.read_bytes()
    monkeypatch.setattr(type(nearfar.index.open(uri)), "in_memory", gone)
    with pytest.raises(OSError, match="the server is gone"):
        copy_index(uri, target, {}, engine="")
    assert target.read_bytes() == content


def gone(*_):
    raise OSError("the server is gone")


@pytest.fixture
def read_only():
    """A function that makes a folder read-only for this process, whose user may be root, who could write anywhere."""
    folder = Path(tempfile.mkdtemp())  # below a folder that everybody may enter
    is_root = os.geteuid() == 0

    def seal():
        folder.chmod(0o555)
        if is_root:
            os.seteuid(NOBODY)

    yield folder, seal
    if is_root:
        os.seteuid(0)
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755)
    shutil.rmtree(folder)


NOBODY = 65534


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs users as POSIX has them")
@pytest.mark.parametrize("ending", ["index", "lance"])
def test_a_collection_in_a_read_only_folder_is_read_and_its_change_costs_one_line(read_only, ending):
    if ending == "lance":
        pytest.importorskip("lancedb")
    folder, seal = read_only
    path, new = folder / f"x.{ending}", folder / f"y.{ending}"
    few(path).close()
    for place in (path, *path.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    seal()
    with nearfar.index.open(path) as store:
        before = everything(store)
    for call, named in (
        (lambda: nearfar.index.open(path, "w"), path),
        (lambda: few(new), new),
        (lambda: copy_index(path, new, {}, engine=""), new),
        (lambda: nearfar.index.upgrade(path, path), path),
    ):
        with pytest.raises(OSError, match=f"^{named}: .*Permission denied") as error:
            call()
        assert str(error.value).count(str(named)) <= 2
        assert "\n" not in str(error.value)
    with nearfar.index.open(path) as store:
        assert everything(store) == before
    assert [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")] == [path.name]


MANY = 100_000


@pytest.mark.slow
def test_many_items_are_counted_found_added_and_removed(uri):
    """Against NumPy; compared exactly, because the build of an approximate index would take most of the time."""
    if uri.startswith("http"):
        pytest.skip("Milvus Lite takes minutes to list as many names")
    rows = np.random.default_rng(0).normal(size=(MANY, 4)).astype(np.float32)
    names = np.array([f"n{k}" for k in range(MANY)])
    more = records_of(rows[:1000] + 1, [f"m{k}" for k in range(1000)])
    with create(uri, records_of(rows, names, columns={"price": np.arange(MANY)}), engine="exact") as store:
        assert (store.count(), store.count("price >= 1000")) == (MANY, MANY - 1000)
        store.add(more, gone=names[:500])
        store.remove(names[500:1000])
    with nearfar.index.open(uri) as store:
        assert sorted(store.column("name").tolist()) == sorted([*names[1000:], *more.names])
        index = Index(np.concatenate([rows[1000:], more.embeddings]), names=np.concatenate([names[1000:], more.names]))
        assert store.search(rows[:3], 5).names.tolist() == index.search(rows[:3], 5).names.tolist()
        expected = Index(rows[-100:], names=names[-100:]).search(rows[:3], 5)
        found = store.search(rows[:3], 5, where=f"price >= {MANY - 100}")
        assert found.names.tolist() == expected.names.tolist()


HOSTILE = [
    "it's",
    'say "hi"',
    "back\\slash",
    "line\nbreak",
    "tab\t",
    "%d {x} _ ? *",
    "'; DROP TABLE blobs; --",
    "../../x",
]
HOSTILE += ["ä", "a\u0308", "\u202egnp.exe", "\U0001f600", "true", "0", " ", "x" * 3000, "name", "a`b"]


def test_names_are_kept_and_found_whatever_they_are(uri):
    rows = np.random.default_rng(0).normal(size=(len(HOSTILE), 5))
    with create(uri, records_of(rows, HOSTILE, columns={"shop": HOSTILE})) as store:
        found = store.get(HOSTILE)
        assert found.names.tolist() == found.columns["shop"].tolist() == HOSTILE
        np.testing.assert_allclose(found.embeddings, rows, rtol=1e-6)
        assert sorted(store.column("name").tolist()) == sorted(HOSTILE)
        assert [row[0] for row in named(store.search(rows, 1))] == HOSTILE
        store.add(records_of(rows[:3], HOSTILE[3:6]), gone=HOSTILE[:3])
        store.remove(HOSTILE[6:9])
        assert sorted(store.column("name").tolist()) == sorted(HOSTILE[3:6] + HOSTILE[9:])
    with nearfar.index.open(uri) as store:
        np.testing.assert_allclose(store.get(HOSTILE[3:6]).embeddings, rows[:3], rtol=1e-6)


WORDED = {
    "shoes/red_7.jpg": ("Nike", "a running shoe for the longest of all the ways"),
    "shoes/blue-8.jpg": ("Adidas", "a shoe, a shoe and a red lace"),
    "hats/red 9.jpg": ("Nike", "a hat"),
    "Äpfel": ("", "%d of '10' \" reduced\\"),
}


def worded(uri):
    shops, texts = zip(*WORDED.values(), strict=True)
    columns = {"shop": shops, "note": texts, "price": [1.0, 2.0, 3.0, None]}
    return create(uri, records_of(np.eye(4), [*WORDED], labels=["new", "new", "old", "old"], columns=columns))


def test_words_find_items_that_have_all_of_them(uri):
    with worded(uri) as store:
        assert store.searches_words == (not uri.endswith((".lance", "19530/items")))
        if not store.searches_words:
            with pytest.raises(ValueError, match=r"^words: .* cannot be searched by words; a file and PostgreSQL can$"):
                store.search_words("red")
            return
        shoe, other, hat, apple = WORDED
        for words, expected in (
            ("red shoe", {shoe, other}),
            ("RED NIKE", {shoe, hat}),
            ("red new nike", {shoe}),
            ("red*", {shoe, other, hat, apple}),
            ("7 jpg", {shoe}),
            ("äPFEL", {apple}),
            ("apfel", set()),
            ("10", {apple}),
            ('shoe -red OR " NOT * ) & | !', set()),  # words, and no signs of a language
        ):
            found = store.search_words(words)
            assert set(found.names.tolist()) == expected, words
        assert store.search_words("shoe").names.tolist() == [other, shoe]  # it has the word twice
        assert store.search_words("shoe", 1).columns["price"].tolist() == [2]
        assert store.search_words("shoe", where="price < 2").names.tolist() == [shoe]
        fused = nearfar.index.search_fused(store, np.eye(4)[[2, 0]], "shoe", 4)
        # 1/61 + 1/63, 1/62 + 1/62 and so on: both have two ranks, and the nearest one rank only
        assert fused.names[1].tolist()[:2] == [shoe, other]
        assert set(fused.names[0].tolist()[:2]) == {shoe, other}
        np.testing.assert_allclose(fused.distances[1][:2], [0, 1], atol=1e-6)
        assert nearfar.index.search_fused(store, np.eye(4)[:1], "none", 2).names[0].tolist()[0] == shoe
        for wrong in ("", " * ! ", "a " * 101):
            with pytest.raises(ValueError, match=r"^words: expected 1 to 100 words such as red shoe\*, got "):
                store.search_words(wrong)
        for k in (0, -1, 2.5):
            for search in (store.search_words, partial(nearfar.index.search_fused, store, np.eye(4)[:1])):
                with pytest.raises(ValueError, match=r"^k: expected 1 or more, got "):
                    search("shoe", k)
        store.add(records_of(np.eye(1, 4), ["red"], labels=["x"], columns={"origin": ["a far shoe"]}), gone=[shoe])
        assert set(store.search_words("red shoe").names.tolist()) == {other, "red"}
    with nearfar.index.open(uri) as store:
        assert set(store.search_words("red shoe").names.tolist()) == {other, "red"}


def test_equal_items_are_all_found_and_distances_never_fall(uri):
    rows = np.repeat(np.random.default_rng(0).normal(size=(6, 5)), 4, axis=0)
    names = [f"n{k:02}" for k in range(24)]
    with create(uri, records_of(rows, names, columns={"kind": [f"k{k % 4}" for k in range(24)]})) as store:
        for asked, each in (({}, 4), ({"where": "kind != 'k0'"}, 3), ({"group_by": "kind"}, 1)):
            hits = store.search(rows[::4], 4, **asked)
            assert (np.diff(hits.distances, axis=1) >= 0).all()
            for k, row in enumerate(hits.names.tolist()):
                assert len(set(row)) == 4
                same = {name for name in names[4 * k : 4 * k + 4] if each != 3 or name != names[4 * k]}
                if asked.get("group_by"):
                    assert set(row) == same  # an item of each kind is as near
                else:
                    assert set(row[:each]) == same


def test_readers_see_whole_changes_while_another_writes(uri):
    """Every change adds two items and removes two; a reader sees both or none."""
    if uri.startswith("http"):
        pytest.skip("a file of Milvus Lite has one user")
    create(uri, records(["a0", "b0"])).close()
    changes = 6

    def write():
        with nearfar.index.open(uri, "w") as store:
            for k in range(changes):
                store.add(records([f"a{k + 1}", f"b{k + 1}"]), gone=[f"a{k}", f"b{k}"])

    writer = threading.Thread(target=write)
    writer.start()
    last = 0
    while True:
        ended = not writer.is_alive()
        with nearfar.index.open(uri) as reader:
            names = sorted(reader.column("name").tolist())
        now = int(names[0][1:])
        assert names == [f"a{now}", f"b{now}"]
        assert now >= last
        last = now
        if ended:
            break
    writer.join()
    assert last == changes


def test_a_collection_may_start_empty_and_lose_its_last_item(uri):
    none = records_of(np.empty((0, 5)), [])
    queries = records(["x", "y"]).embeddings
    with create(uri, none) as store:
        for _ in range(2):
            assert (store.count(), store.dimensions, len(store.in_memory())) == (0, 5, 0)
            assert store.column("name").tolist() == []
            assert len(store.get(["a"])) == 0
            for hits in (store.search(queries, 3), store.search(queries, 3, where="name == 'a'", group_by="name")):
                assert hits.names.shape == hits.distances.shape == (2, 0)
                assert hits.counts.tolist() == [0, 0]
            with pytest.raises(ValueError, match="embeddings: expected 5 columns as in the index, got 4"):
                store.add(records_of(np.ones((1, 4)), ["a"]))
            with pytest.raises(ValueError, match="the index has no 'a'"):
                store.remove("a")
            store.change(about={"made": "anew"})
            store.add(records(["a", "b"], {"price": [3.0, 4.0]}, labels=["x", "y"]))
            assert store.count("price > 3 and label == 'y'") == 1
            with pytest.raises(ValueError, match="labels: the index has labels, the new items have none"):
                store.add(records(["c"]))
            store.remove(["a", "b"])
        assert set(store.columns()) >= {"name", "price"}
        store.add(records(["c"], {"price": ["cheap"], "size": [1.0]}, labels=[7]))  # of other kinds
        assert store.column("label").tolist() == [7]
        assert store.get("c").columns["price"].tolist() == ["cheap"]
        store.add(none_with_labels(store), gone=["c"])
        assert store.count() == 0
        store.add(records(["d"]))
    with nearfar.index.open(uri) as store:
        assert (named(store.search(queries, 3)), store.about) == ([["d"], ["d"]], {"made": "anew"})
        assert "label" not in store.columns()
        found = store.in_memory()
        assert (found.names.tolist(), found.labels) == (["d"], None)


def none_with_labels(store):
    return store.get(["c"]).pick([])


@pytest.mark.parametrize(("distance", "engine"), [("cosine", ""), ("cosine", "approximate"), ("euclidean", "")])
def test_items_and_queries_of_any_length_are_found(uri, distance, engine):
    """The cosine of a row of zeros is 0, and its distance is 1, where others have no distance at all."""
    rows = np.random.default_rng(0).normal(size=(24, 4))
    rows[12:16] = 0.0
    if distance == "cosine" and not uri.startswith("http"):  # float32 does not hold their squares
        rows[16:18] *= 1e-22
        rows[18:20] *= 1e-30
        rows[20:] *= 1e20
    items = records_of(rows, [f"n{k:02}" for k in range(24)], columns={"place": np.arange(24)})
    queries = np.random.default_rng(1).normal(size=(5, 4))
    queries[1] = 0.0
    queries[2] *= 1e-25
    queries[3] *= 1e25 if distance == "cosine" else 1.0
    index = Index(items.embeddings, names=items.names, distance=distance, columns=items.columns)
    engines = {"lance": "ivf", "index": "exact", "items": "auto"}  # by the end of an address
    chosen = engines.get(re.split(r"[./]", uri)[-1], "hnsw") if engine else ""
    with create(uri, items.pick(np.arange(14)), distance=distance) as store:
        store.add(items.pick(np.arange(14, 24)))
        store.change(engine=chosen)
        for where in ("", "place >= 10"):
            expected = index.search(queries, 24, where=where)
            found = store.search(queries, 24, where=where)
            if engine:  # the others need not be found
                assert all({f"n{k}" for k in range(12, 24)} <= {*names} for names in found.names.tolist())
                continue
            assert [sorted(names) for names in found.names.tolist()] == [sorted(n) for n in expected.names.tolist()]
            np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-6, atol=1e-9)
            near = store.search(queries, 9, where=where)
            np.testing.assert_allclose(near.distances, expected.distances[:, :9], rtol=1e-6, atol=1e-9)


def test_labels_may_be_numbers(uri):
    with create(uri, records(["a", "b"], labels=[3, 5])) as store:
        store.add(records(["c"], labels=[7]))
        assert sorted(store.column("label").tolist()) == [3, 5, 7]
        assert store.count("label >= 5") == 2
        with pytest.raises(ValueError, match=r"^labels: expected numbers"):
            store.add(records(["d"], labels=["x"]))


def test_what_does_not_fit_is_refused_in_one_line(uri):
    with filled(uri) as store:
        for wrong, told in (
            (lambda: store.search(np.ones((1, 4))), "queries: expected 5 columns as in the index, got 4"),
            (lambda: store.search(np.ones((1, 5)), 0), "k: expected 1 or more, got 0"),
            (
                lambda: store.search(np.ones((1, 5)), where="prise < 3"),
                "filter: there is no column 'prise'; there are ",
            ),
            (
                lambda: store.search(np.ones((1, 5)), where="price < 'a'"),
                "filter: column 'price' holds numbers, got 'a'",
            ),
            (lambda: store.search(np.ones((1, 5)), group_by="x"), "there is no column 'x'; there are "),
            (lambda: store.count(" or ".join(["price < 1"] * 9_999)), "a filter may have up to 100 comparisons"),
            (lambda: store.count(" or ".join(["price < 1"] * 100_000)), "filter: the text has 1,299,996 characters"),
            (lambda: store.remove(["a", NAMES[0]]), r"names: the index has no 'a' \(1 of 2 are unknown\)"),
            (lambda: store.add(records_of(np.ones((1, 4)), ["a"], labels=["x"])), "embeddings: expected 5 columns"),
            (lambda: store.add(records(["a"])), "labels: the index has labels, the new items have none"),
            (lambda: store.add(records(["a"], {"price": ["x"]}, ["x"])), "columns: expected numbers in 'price' as in"),
        ):
            with pytest.raises(ValueError, match=told) as error:
                wrong()
            assert "\n" not in str(error.value)
        assert store.count() == 60
    with nearfar.index.open(uri) as store, pytest.raises(ValueError, match="opened to be read"):
        store.add(records(["a"], labels=["x"]))


def test_one_writes_and_many_read(uri):
    with filled(uri) as store:
        with pytest.raises(TimeoutError, match="another process is changing it; try again when that has ended"):
            nearfar.index.open(uri, "w")
        with nearfar.index.open(uri) as first, nearfar.index.open(uri) as second:
            store.remove(NAMES[:10])
            assert named(first.search(records(NAMES[20:21]).embeddings, 1)) == [[NAMES[20]]]
            assert named(second.search(records(NAMES[21:22]).embeddings, 1)) == [[NAMES[21]]]
    with nearfar.index.open(uri, "w") as store:
        assert store.count() == 50


def test_what_is_no_collection_is_told(uri, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such index; `nearfar index RUN DATA -o "):
        nearfar.index.open(uri)
    if uri.endswith(".index"):
        np.save(tmp_path / "x.npy", np.ones(3))
        (tmp_path / "x.npy").rename(uri)
    elif uri.startswith("http"):
        client = milvus_store.connected(None)
        client.create_collection("items", dimension=5)
        client.close()
        with pytest.raises(ValueError, match="is not a collection of nearfar; choose another name"):
            filled(uri)
    elif uri.startswith("postgresql"):
        connected = pytest.importorskip("psycopg").connect(uri.partition("#")[0], autocommit=True)
        with connected as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(f"CREATE TABLE {uri.partition('#')[2]} (name text PRIMARY KEY, price numeric)")
        with pytest.raises(ValueError, match="is a table that nearfar did not make; add to it with --add, or choose"):
            filled(uri)
    else:
        (tmp_path / "items.lance").mkdir()
        (tmp_path / "items.lance" / "data.bin").write_bytes(b"x")
        with pytest.raises(ValueError, match="holds something else than a collection of nearfar"):
            filled(uri)
    with pytest.raises(ValueError, match=r"is not a (readable|collection of nearfar)"):
        nearfar.index.open(uri)
    with pytest.raises(ValueError, match=r"expected a file such as photos\.index"):
        nearfar.index.open("ftp://somewhere/else")
    with pytest.raises(ValueError, match=r"expected http://HOST:PORT/COLLECTION"):
        nearfar.index.open("http://somewhere:19530")


@pytest.mark.parametrize("wrong", [[], "a b"])
def test_a_state_with_a_field_of_another_kind_is_refused(uri, wrong, monkeypatch):
    if uri.endswith(".index"):
        pytest.skip("its state is a part of the file")
    filled(uri).close()
    states = []
    parse = database_state.parse_json
    monkeypatch.setattr(database_state, "parse_json", lambda text: states.append(parse(text)) or states[-1])
    with nearfar.index.open(uri) as store:
        assert store.count() == len(NAMES)
    for name in states[0]:
        state = {**states[0], name: wrong}
        monkeypatch.setattr(database_state, "parse_json", lambda text, state=state: state)
        with pytest.raises(
            ValueError, match=r"(is damaged|: damaged|not a collection of this version).*make the index again$"
        ):
            nearfar.index.open(uri)


def test_a_new_collection_takes_the_place_of_the_old(uri):
    filled(uri).close()
    create(uri, records(["a", "b"])).close()
    with nearfar.index.open(uri, "w") as store:
        assert sorted(store.column("name").tolist()) == ["a", "b"]
        assert "price" not in store.columns()


def test_what_could_not_be_read_again_is_refused_before_it_is_written(uri):
    with filled(uri) as store:
        with pytest.raises(ValueError, match=r"^about: expected a dict of text, got"):
            store.change(about={"made": 3})
        with pytest.raises(ValueError, match=r"^about: expected a dict of text, got"):
            store.add(records(["new"], labels=["x"]), about={"made": 3})
        many = {f"c{k}": [1.0] for k in range(98)}
        with pytest.raises(ValueError, match=r"^columns: expected up to 100, got 101 with those of the index"):
            store.add(records(["new"], many, labels=["x"]))
    with pytest.raises(ValueError, match=r"^about: expected a dict of text, got"):
        create(uri, records(["a"]), about={"made": 3})
    with nearfar.index.open(uri) as store:
        assert (store.count(), store.about["made"], set(store.columns())) == (
            60,
            "by a test",
            {"name", "label", "price", "shop", "product"},
        )


def test_a_reader_goes_on_while_the_items_are_replaced(uri):
    filled(uri).close()
    with nearfar.index.open(uri) as reader:
        assert repr(reader).endswith(f"Store {uri}: 60 x 5, cosine, engine exact")
        with nearfar.index.open(uri, "w") as store:
            store.add(records(["new"], {"size": [3.0]}, labels=["x"]))  # a new column
        create(uri, records(["other", "another"], labels=["x", "y"])).close()
        found = named(reader.search(records(["other"]).embeddings, 1))
        assert found[0][0] in ("other", *NAMES)  # the reader of a file has what it opened
        assert reader.count() == (60 if uri.endswith(".index") else 2)
        assert len(reader.column("name")) == reader.count()


def test_a_folder_that_is_gone_is_a_problem_of_the_storage(tmp_path):
    pytest.importorskip("lancedb")
    filled(tmp_path / "x.lance").close()
    with nearfar.index.open(tmp_path / "x.lance") as reader:
        shutil.rmtree(tmp_path / "x.lance")
        with pytest.raises(FileNotFoundError, match=r"x\.lance: the collection that was opened is gone") as error:
            reader.count()
        assert "\n" not in str(error.value)


def test_hits_have_names_and_are_printed_on_few_lines(uri):
    with filled(uri) as store:
        hits = store.search(records(["x", "y"]).embeddings, 9, where="price < 4")
        assert [[name for name in row if name] for row in hits.names.tolist()] == named(hits)
        assert repr(store.get(NAMES[:2])) == "Records of 2 x 5 with label, " + ", ".join(COLUMNS)
        assert len(repr(hits).splitlines()) < 10
        assert store.search(records(["x"]).embeddings, 9, where="price < 0").names.shape == (1, 0)


def test_a_text_is_one_name(uri):
    with filled(uri) as store:
        assert store.get(NAMES[3]).names.tolist() == [NAMES[3]]
        store.remove(NAMES[3])
        assert store.count() == 59
        with pytest.raises(ValueError, match="the index has no 'nothing'"):
            store.remove("nothing")


def test_building_an_approximate_index_prints_nothing(tmp_path, capfd):
    pytest.importorskip("lancedb")
    rows = np.random.default_rng(0).normal(size=(300, 8))
    with create(tmp_path / "x.lance", records_of(rows, [str(k) for k in range(300)]), engine="ivf") as store:
        store.add(records_of(rows[:2], ["new", "newer"]))
        store.search(rows[:3], 2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_an_approximate_index_finds_and_grows(tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    monkeypatch.setattr(lance_store, "APPROXIMATE_FROM", 3000)
    rows = np.repeat(rng.normal(size=(30, 16)), 100, axis=0) + 0.3 * rng.normal(size=(3000, 16))
    names = [str(k) for k in range(3000)]
    with create(tmp_path / "x.lance", records_of(rows, names)) as store:
        assert store.engine().startswith("approximate (ivf, ")
        index = Index(rows, names=names)
        queries = rows[::50] + 0.05
        expected = [{str(at) for at in row} for row in index.search(queries, 10).positions]
        found = [set(row) for row in named(store.search(queries, 10))]
        assert np.mean([len(a & b) / 10 for a, b in zip(expected, found, strict=True)]) >= 0.95
        store.add(records_of([[100.0] + [0.0] * 15], ["newcomer"]))
        assert named(store.search([[90.0] + [0.0] * 15], 1)) == [["newcomer"]]
        store.remove(["newcomer"])
        assert named(store.search([[90.0] + [0.0] * 15], 1)) != [["newcomer"]]
        store.change(engine="exact")
        assert store.engine() == "exact"


def test_a_server_that_nobody_runs_is_told(tmp_path, monkeypatch):
    pytest.importorskip("pymilvus")
    monkeypatch.setattr(milvus_store, "SECONDS_TO_CONNECT", 0.5)
    with pytest.raises(OSError, match=r"^http://127\.0\.0\.1:9/items: Milvus: ") as error:
        nearfar.index.open("http://127.0.0.1:9/items")
    assert "\n" not in str(error.value)


def test_a_path_made_of_an_address_is_one():
    from pathlib import Path

    from nearfar.io.uris import address_of

    assert str(address_of(Path("https://host:19530/photos"))) == "https://host:19530/photos"
    for wrong in ("http://host", "http://host/a/b", "http://user@host/a", "http://host/1a", "http://host/a?b"):
        with pytest.raises(ValueError, match="expected http://HOST:PORT/COLLECTION, with a collection of letters"):
            address_of(wrong)


@pytest.mark.slow
def test_a_server_takes_any_text_and_another_engine(server):
    names = ['say "hi"', "back\\slash", "line\nbreak", "it's", "ä", "%d {x}"]
    with create(server, records(names, {"shop": names})) as store:
        for name in names:
            quote = "'" if '"' in name else '"'
            literal = name.replace("\\", "\\\\").replace("\n", "\\n")
            assert store.column("shop", f"shop == {quote}{literal}{quote}").tolist() == [name]
            assert store.get([name]).names.tolist() == [name]
        store.change(engine="auto", about={"made": "anew"})
        assert store.engine().startswith("approximate")
        assert sorted(store.column("name").tolist()) == sorted(names)
        with pytest.raises(ValueError, match="name: Milvus keeps texts of up to 65,535 bytes"):
            store.add(records(["x" * 70_000]))
        with pytest.raises(ValueError, match="engine: expected exact or auto for a server of Milvus, got 'ivf'"):
            store.change(engine="ivf")
    with nearfar.index.open(server) as store:
        assert (store.about, store.count()) == ({"made": "anew"}, 6)


@pytest.mark.slow
def test_commands_on_a_server(server, tmp_path, capsys, monkeypatch):
    np.savez(tmp_path / "rows.npz", X=np.eye(3), y=["a", "b", "c"])
    np.savez(tmp_path / "more.npz", X=[[1.0, 1.0, 0.0]], y=["d"])
    np.save(tmp_path / "query.npy", [[0.9, 0.1, 0.0]])
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, monkeypatch, "index", "rows.npz", "-o", server)
    assert (code, out.splitlines()[0].startswith(f"{server}: Index of 3 x 3, ")) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "index", "more.npz", "-o", server, "--add", "--threshold", "0.3")
    assert (code, "Index of 4 x 3" in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "search", server, "query.npy", "-k", "3")
    assert (code, len(out.splitlines())) == (0, 4)  # the query, what is nearer than the threshold, and a line on that
    assert out.splitlines()[-1].startswith("only neighbors within ")
    code, out, _ = run(capsys, monkeypatch, "duplicates", server)
    assert code == 0
    code, _, err = run(capsys, monkeypatch, "search", server.replace("items", "missing"), "query.npy")
    assert (code, "http://localhost:19530/missing: no such index" in err) == (2, True)


def test_a_collection_that_could_not_be_made_leaves_no_folder(tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    items = records_of(np.eye(3, 4), ["a", "b", "c"])
    create(tmp_path / "kept.lance", items).close()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(lance_store, "_write_about", full)
    for name in ("new.lance", "kept.lance"):
        with pytest.raises(OSError, match="No space left"):
            create(tmp_path / name, items)
    monkeypatch.undo()
    assert not (tmp_path / "new.lance").exists()
    with nearfar.index.open(tmp_path / "kept.lance") as store:
        assert store.count() == 3
    create(tmp_path / "new.lance", items).close()
    gc.collect()  # nothing that is left of a collection removes its folder
    assert (tmp_path / "new.lance").is_dir()


@pytest.mark.parametrize("name", ["x.index", "x"])
def test_a_folder_of_lancedb_may_be_renamed(tmp_path, capsys, monkeypatch, name):
    pytest.importorskip("lancedb")
    monkeypatch.chdir(tmp_path)
    create("x.lance", records(["a", "b", "c", "d"], labels=["x", "y"] * 2)).close()
    shutil.move("x.lance", name)
    with nearfar.index.open(name, "w") as store:
        store.remove("d")
        assert store.count() == 3
    np.save("query.npy", records(["b"]).embeddings)
    code, out, _ = run(capsys, monkeypatch, "search", name, "query.npy", "-k", "1")
    assert (code, out.split()[-1]) == (0, "b")
    code, out, _ = run(capsys, monkeypatch, "suspects", name)
    assert (code, " of 3 items " in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "index", name, "-o", "copy.index")
    assert (code, out) == (0, f"copy.index: Index of 3 x 5, cosine, engine exact; copied from {name}\n")
    code, _, err = run(capsys, monkeypatch, "index", "copy.index", "-o", name)
    assert (code, f"--out: {name} exists" in err) == (2, True)
    served = pytest.importorskip("nearfar.serve").Collection(Path(name), lambda: nearfar.index.open(name))
    assert served._stamp() != [(0, 0, 0)]
    with pytest.raises(ValueError, match=f"^{name} is a folder of LanceDB; nearfar.index.open opens it$"):
        Index.load(name)
    with pytest.raises(ValueError, match=f"^{name}: is an index; expected .*; open it with nearfar.index.open$"):
        nearfar.load(name)


def test_a_folder_of_something_else_is_no_index(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.index").mkdir()
    np.save("query.npy", [[1.0]])
    code, _, err = run(capsys, monkeypatch, "search", "x.index", "query.npy")
    assert (code, err) == (2, "nearfar: x.index is a folder, but no collection of nearfar; `nearfar index` makes one\n")


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_collection_becomes_a_frame_and_the_frame_the_same_collection(uri, library):
    pytest.importorskip({"arrow": "pyarrow"}.get(library, library))
    items = records(["b", "a", "c"], columns={"price": [3, np.nan, 5], "shop": ["x", "", "z"]}, labels=["u", "", "v"])
    store = create(uri, items)
    frame = to_frame(store, where="price > 2", library=library)
    columns = frame.reset_index() if library == "pandas" else frame
    assert set(columns.columns if library != "arrow" else columns.column_names) == {"name", "label", "price", "shop"}
    found = to_frame(store, embeddings=True, library=library)
    again = from_frame(found)
    order = [again.names.tolist().index(name) for name in items.names]
    np.testing.assert_allclose(again.embeddings[order], items.embeddings, atol=1e-6)
    assert again.labels[order].tolist() == items.labels.tolist()
    assert again.columns["shop"][order].tolist() == ["x", "", "z"]
    np.testing.assert_array_equal(again.columns["price"][order], items.columns["price"])
    memory = Index(items.embeddings, names=items.names, labels=items.labels, columns=items.columns)
    assert len(to_frame(memory, where="price > 2", library=library)) == len(frame) == 2


def test_a_collection_keeps_the_numbers_and_texts_of_a_frame_as_the_page_says():
    """docs/interchange.md: names and dates become texts, whole numbers and truth values floats."""
    pd = pytest.importorskip("pandas")
    levels = pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])
    assert from_frame(pd.DataFrame({"price": [1.0, 2.0]}, index=levels), np.eye(2)).names.tolist()[0] == "('a', 1)"
    dates = pd.to_datetime(["2020-01-01", "2021-01-01"])
    frame = pd.DataFrame({"number": [1, 2], "new": [True, False], "date": dates}, index=[10, 20])
    items = from_frame(frame, np.eye(2))
    found = to_frame(Index(items.embeddings, names=items.names, columns=items.columns))
    assert found.index.tolist() == ["10", "20"]
    assert found["number"].tolist() == [1.0, 2.0]
    assert found["new"].tolist() == [1.0, 0.0]
    assert found["date"].tolist() == ["2020-01-01 00:00:00", "2021-01-01 00:00:00"]


def test_a_collection_is_copied_to_parquet_and_back(uri, tmp_path):
    pytest.importorskip("pyarrow")
    filled(uri).close()
    table, again = tmp_path / "x.parquet", tmp_path / "again.index"
    line = build(uri, None, table)
    assert line.startswith(f"{table}: 60 items with ")
    assert build(table, None, again, columns=table, distance="cosine")
    with nearfar.index.open(uri) as before, nearfar.index.open(again) as after:
        found, expected = everything(after), everything(before)
        assert {name: found[name] for name in found if name != "about"} == {
            name: expected[name] for name in expected if name != "about"
        }
    content = table.read_bytes()
    for refused, told in (
        (lambda: build(uri, None, table), f"^out: {table} exists; replace it with overwrite=True$"),
        (
            lambda: build(uri, None, table, threshold=0.3, overwrite=True),
            "^threshold: .*: an index is copied as it is; only overwrite= works with it$",
        ),
        (lambda: build(table, None, tmp_path / "other.parquet"), "is the name of a table or an array"),
    ):
        with pytest.raises(ValueError, match=told):
            refused()
    assert table.read_bytes() == content


def test_a_collection_without_columns_is_copied_back_without_a_table_of_columns(tmp_path):
    pytest.importorskip("pyarrow")
    index = Index(np.eye(3), names=["a", "b", "c"], labels=["x", "x", "y"])
    index.save(tmp_path / "first.index")
    build(tmp_path / "first.index", None, tmp_path / "x.parquet")
    build(tmp_path / "x.parquet", None, tmp_path / "again.index")
    again = Index.load(tmp_path / "again.index")
    assert again.names.tolist() == index.names.tolist()
    assert again.labels.tolist() == index.labels.tolist()
    with pytest.raises(ValueError, match=r"x.parquet: expected further columns, got only name, label, embedding$"):
        build(tmp_path / "x.parquet", None, tmp_path / "other.index", columns=tmp_path / "x.parquet")


def test_frames_without_names_or_embeddings_are_one_line():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"frame: has no column 'name' and no index with names; it has price"):
        from_frame(pd.DataFrame({"price": [1.0]}), [[0.0]])
    with pytest.raises(ValueError, match=r"embeddings: the frame has no column 'embedding'; it has name"):
        from_frame(pd.DataFrame({"name": ["a"]}))
    with pytest.raises(ValueError, match=r"library: expected pandas, polars or arrow, got 'dask'"):
        to_frame(Index([[0.0]], names=["a"]), library="dask")


@pytest.mark.parametrize(
    ("argument", "use"),
    [
        ("store", lambda path: nearfar.index.search(path, "x.npy")),
        ("store", lambda path: nearfar.index.search_fused(path, [[0.0]], "shoe")),
        ("collection", to_frame),
    ],
)
def test_a_path_where_an_opened_collection_is_expected_is_one_line(argument, use, tmp_path):
    told = rf"^{argument}: expected an opened collection, got '.*x\.index'; open it with nearfar\.index\.open$"
    with pytest.raises(TypeError, match=told):
        use(tmp_path / "x.index")
