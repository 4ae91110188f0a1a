"""The graph beside a file: found items are those of the collection as it is now, whatever the graph is."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import nearfar.index
from nearfar.index import Index, blob_file, collection_file, create, graph_file, mapped_search, records_of
from nearfar.index.collection_file import graph_of

from ..commands import run

pytest.importorskip("usearch")
N, D = 400, 6
rng = np.random.default_rng(0)
ROWS = rng.normal(size=(N + 40, D)).astype(np.float32)
ROWS[3] = ROWS[7]  # equal items
ROWS[11] = 0.0


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mapped_search, "COMPARED_BYTES", 4 * D * 50)


def records(numbers):
    numbers = np.asarray(numbers)
    columns = {
        "price": numbers % 100,
        "shop": [f"s{k % 7}" for k in numbers],
        "product": [f"p{k // 3}" for k in numbers],
    }
    labels = ["even" if k % 2 == 0 else "odd" for k in numbers]
    return records_of(ROWS[numbers], [f"n{k}" for k in numbers], labels=labels, columns=columns)


def built(path, distance="cosine"):
    with create(path, records(range(N)), distance=distance) as store:
        assert store.build() == N
    return path


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
def test_a_graph_finds_what_the_collection_holds_now(tmp_path, distance):
    path = built(tmp_path / "x.index", distance)
    with nearfar.index.open(path, "w") as store:
        store.remove([f"n{k}" for k in range(0, N, 5)])
        store.add(records([*range(N, N + 40), 1, 2]))
    index = Index.load(path)
    queries = np.concatenate([ROWS[[3, 7, 410, 1]], rng.normal(size=(20, D))])
    with nearfar.index.open(path) as store:
        assert (store.engine(), store.count(), store.dimensions) == ("graph", len(index), D)
        for asked in (
            {},
            {"where": "price < 2"},
            {"where": "price < 60 and label == 'even'"},
            {"where": "shop == 's3' or name == 'n7'"},
            {"where": "price > 1000"},
            {"group_by": "product"},
            {"where": "price < 50", "group_by": "shop"},
        ):
            expected = index.search(queries, 9, **asked)
            found = store.search(queries, 9, **asked)
            assert found.names.tolist() == expected.names.tolist(), asked
            np.testing.assert_array_equal(found.distances, expected.distances)
            assert store.count(asked.get("where", "")) == int(
                index.search(queries[:1], N, **{**asked, "group_by": ""}).counts[0]
            )
        zero = np.zeros((1, D))  # under the cosine, as far from all items
        np.testing.assert_array_equal(store.search(zero, 9).distances, index.search(zero, 9).distances)
        for name in store.columns():
            assert store.column(name).tolist() == index.all_columns()[name].tolist()
        wanted = ["n410", "n1", "nothing", "n0", "n3"]
        some = store.get(wanted)
        assert some.names.tolist() == ["n410", "n1", "n3"]
        np.testing.assert_array_equal(some.embeddings, ROWS[[410, 1, 3]])
        assert some.labels.tolist() == ["even", "odd", "odd"]
        again = store.in_memory()
        np.testing.assert_array_equal(again.embeddings, index.embeddings)


def test_most_neighbors_and_all_items_are_found(tmp_path):
    path = built(tmp_path / "x.index")
    index = Index.load(path)
    with nearfar.index.open(path) as store:
        for k in (1, 60, 150, N, 2 * N):
            found, expected = store.search(ROWS[:3], k), index.search(ROWS[:3], k)
            np.testing.assert_array_equal(found.distances, expected.distances)


def test_a_graph_may_be_deleted_and_is_no_part_of_the_file(tmp_path):
    path = built(tmp_path / "x.index")
    with nearfar.index.open(path) as store:
        before = store.search(ROWS[:5], 4).names.tolist()
        graph_of(path).unlink()
        assert store.search(ROWS[:5], 4).names.tolist() == before
    with nearfar.index.open(path) as store:
        assert store.engine() == "exact"
        assert store.search(ROWS[:5], 4).names.tolist() == before


@pytest.mark.parametrize("way", ["copied", "written", "other user", "cut", "of another collection", "emptied"])
def test_a_graph_that_was_not_built_here_for_this_collection_is_not_opened(tmp_path, monkeypatch, way):
    path = built(tmp_path / "x.index")
    graph = graph_of(path)
    if way == "copied":
        shutil.copy(graph, tmp_path / "other")
        shutil.move(tmp_path / "other", graph)
    elif way == "written":
        graph.write_bytes(graph.read_bytes()[:-1] + b"?")
    elif way == "cut":
        graph.write_bytes(graph.read_bytes()[:5000])
    elif way == "other user":
        monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "another"))
    elif way == "of another collection":
        create(path, records(range(N)).pick(np.arange(N)[::-1])).close()
    else:
        with nearfar.index.open(path, "w") as store:
            store.remove([f"n{k}" for k in range(N)])
            store.add(records(range(5)))
    index = Index.load(path)
    with nearfar.index.open(path) as store:
        assert store.engine() == "exact"
        assert store.search(ROWS[:5], 4).names.tolist() == index.search(ROWS[:5], 4).names.tolist()


def test_a_vector_that_is_damaged_in_a_graph_is_an_error(tmp_path):
    path = built(tmp_path / "x.index")
    graph = graph_of(path)
    data = bytearray(graph.read_bytes())
    data[graph_file.HEADER + 4 * D * 9] ^= 1
    graph.write_bytes(data)
    (graph_file._note(graph)).write_text(graph_file._status(graph))  # as if the disk had done it
    with nearfar.index.open(path) as store:
        assert store.search(ROWS[9:10], 1, where="name == 'n8'").names.tolist() == [["n8"]]
        with pytest.raises(ValueError, match="the graph beside the index is damaged; delete it, or build it again"):
            store.search(ROWS[9:10], 1)


def test_readers_keep_the_graph_that_a_new_one_replaces(tmp_path):
    path = built(tmp_path / "x.index")
    with nearfar.index.open(path) as reader, nearfar.index.open(path, "w") as store:
        before = reader.search(ROWS[:5], 4).names.tolist()
        store.remove([f"n{k}" for k in range(9)])
        assert store.build() == N - 9
        assert reader.search(ROWS[:5], 4).names.tolist() == before
    with nearfar.index.open(path) as reader:
        assert len(reader.search(ROWS[:5], 4).names) == 5
        assert len(reader._mapped.graph.numbers) == N - 9


def test_commands_build_and_check(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", embeddings=ROWS[:50], names=[f"n{k}" for k in range(50)])
    np.save("query.npy", ROWS[3:4])
    code, out, _ = run(capsys, monkeypatch, "index", "rows.npz", "-o", "x.index", "--build")
    assert (code, out.endswith("; graph of 50 items built\n")) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "search", "x.index", "query.npy", "-k", "1")
    assert (code, out.split()[-1] in ("n3", "n7")) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "index", "-o", "x.index", "--remove", "n3", "--build")
    assert (code, out) == (
        0,
        "x.index: Index of 49 x 6, cosine, engine graph; 1 item removed; graph of 49 items built\n",
    )
    code, out, _ = run(capsys, monkeypatch, "index", "-o", "x.index", "--check")
    assert (
        code,
        out.startswith("x.index: Index of 49 x 6, ") and out.endswith("parts are as they were written\n"),
    ) == (0, True)
    data = bytearray((tmp_path / "x.index").read_bytes())
    at = data.index(ROWS[9].tobytes())
    data[at] ^= 1
    (tmp_path / "x.index").write_bytes(data)
    code, out, err = run(capsys, monkeypatch, "index", "-o", "x.index", "--check")
    assert (code, err) == (2, "nearfar: x.index is damaged: its part 5-0 is not the one that was written\n")
    run(capsys, monkeypatch, "index", "rows.npz", "-o", "y.index")
    run(capsys, monkeypatch, "index", "-o", "y.index", *(word for k in range(50) for word in ("--remove", f"n{k}")))
    code, _, err = run(capsys, monkeypatch, "index", "-o", "y.index", "--build")
    assert (code, "--build: y.index has no items" in err) == (2, True)
    for words in (["rows.npz", "-o", "x.index"], ["y.index", "rows.npz"], []):
        assert "--check: expected one index, as in" in run(capsys, monkeypatch, "index", *words, "--check")[2]
    assert run(capsys, monkeypatch, "index", "y.index", "--check")[0] == 0


def test_a_file_is_built_again_without_what_was_removed(tmp_path):
    path = built(tmp_path / "x.index")
    before = path.stat().st_size
    with nearfar.index.open(path, "w") as store:
        store.add(records(range(N, N + 40)))
        store.remove([f"n{k}" for k in range(0, N, 2)])
        kept = store.in_memory()
        kinds = store.columns()
        assert store.build() == 240
        assert store.columns() == kinds
    assert path.stat().st_size < before
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["x.index", "x.index.graph"]
    with nearfar.index.open(path) as store:
        assert (store.engine(), store.about) == ("graph", kept.about)
        assert store.check() > 0
        found = store.get(kept.names)
        np.testing.assert_array_equal(found.embeddings, kept.embeddings)
        assert found.columns["shop"].tolist() == kept.columns["shop"].tolist()
        assert store.search(ROWS[:9], 5).names.tolist() == kept.search(ROWS[:9], 5).names.tolist()


KILLED = """
import os, signal, sys

import numpy as np

import nearfar.index
from nearfar.index import Index, blob_file, create, graph_file, records_of
from nearfar.io import atomic_files

WRITING = (atomic_files.__file__, blob_file.__file__, graph_file.__file__)
rng = np.random.default_rng(0)
rows = rng.normal(size=(60, 4))
names = [f"n{k}" for k in range(60)]


def build(deadly=None):
    # Build the graph in a process that is killed at an event of writing; returns how many there were.
    reading, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = 0

        def watch(frame, event, argument):
            nonlocal seen
            if frame.f_code.co_filename in WRITING:
                seen += 1
                if seen == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)

        with nearfar.index.open("x.index", "w") as store:
            sys.setprofile(watch)
            store.build()
            sys.setprofile(None)
        os.write(report, str(seen).encode())
        os._exit(0)
    os.close(report)
    with os.fdopen(reading) as file:
        count = file.read()
    assert os.waitpid(pid, 0)[1] == (0 if deadly is None else signal.SIGKILL)
    return int(count or 0)


engines = set()
events = 0
kills = 0
while kills < 20:
    with create("x.index", records_of(rows, names)) as store:
        if kills % 2:  # with a graph of the items before
            store.build()
        store.remove(names[:30])
    expected = Index.load("x.index").search(rows, 5)
    if not events:
        events = build()
        continue
    build(1 + (kills * events) // 20)
    kills += 1
    with nearfar.index.open("x.index") as store:
        assert store.column("name").tolist() == names[30:]
        store.check()
        found = store.search(rows, 5)
        assert found.names.tolist() == expected.names.tolist()
        np.testing.assert_allclose(found.distances, expected.distances, atol=1e-12)
        engines.add(store.engine())
build()
with nearfar.index.open("x.index") as store:
    assert (store.engine(), store.count()) == ("graph", 30)
left = sorted(name for name in os.listdir() if not os.path.isdir(name))
assert left == ["x.index", "x.index.graph"], left
print(events, *sorted(engines))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed as POSIX does it")
def test_a_collection_whose_build_is_killed_is_searched_rightly(tmp_path):
    """At 20 of the moments at which the file is written again without removed items, and its graph is written."""
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events, *engines = done.stdout.split()
    assert int(events) > 40
    assert set(engines) == {"exact", "graph"}


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_one_query_finds_what_it_finds_among_others(tmp_path, distance, monkeypatch):
    """A single query, as a server searches by, takes a shorter way if the graph alone answers it."""
    path = built(tmp_path / "x.index", distance)
    with nearfar.index.open(path, "w") as store:
        store.remove([f"n{k}" for k in range(0, N, 9)])
    with nearfar.index.open(path) as store:
        together = store.search(ROWS[:30], 5)
        monkeypatch.setattr(mapped_search.MappedSearch, "_nearest", None)  # the longer way
        for row in range(30):
            alone = store.search(ROWS[[row]], 5)
            assert alone.names[0].tolist() == together.names[row].tolist()
            np.testing.assert_array_equal(alone.distances[0], together.distances[row])
            np.testing.assert_array_equal(
                alone.records.embeddings, together.records.embeddings[together.positions[row]]
            )


def test_a_reader_finds_items_by_their_names_whatever_becomes_of_the_file(tmp_path):
    path = built(tmp_path / "x.index")
    wanted = ["n7", "nothing", "n1", "n399"]
    with nearfar.index.open(path) as plain, nearfar.index.open(path) as changed, nearfar.index.open(path) as gone:
        assert plain.get(wanted).names.tolist() == ["n7", "n1", "n399"]
        assert not plain._places  # the names of all items were not read
        with nearfar.index.open(path, "w") as store:
            store.add(records([1, 2, 410]), gone=["n7"])
        path.unlink()
        built(tmp_path / "other.index").rename(path)
        expected = records([7, 1, 399])
        for reader in (plain, changed, gone):
            found = reader.get(wanted)
            assert found.names.tolist() == expected.names.tolist()
            np.testing.assert_array_equal(found.embeddings, expected.embeddings)
            path.unlink(missing_ok=True)


def test_a_damaged_column_is_an_error_where_its_values_are_read(tmp_path):
    """Nothing reads the columns when the file is opened: each block is checked when a value of it is asked for."""
    path = built(tmp_path / "x.index")
    with closing(sqlite3.connect(path)) as connection, connection:
        key = 17 * blob_file.PER_KIND  # the column of shops
        connection.execute("UPDATE blobs SET data = replace(data, 's3', 's4') WHERE id = ?", (key,))
        connection.execute("UPDATE blobs SET data = CAST(data AS BLOB) WHERE id = ?", (key,))
    with nearfar.index.open(path) as store:
        assert (store.engine(), store.count("price < 50")) == ("graph", N // 2)
        for read in (
            lambda: store.search(ROWS[:1], 3),
            lambda: store.search(ROWS[:2], 3, group_by="shop"),
            lambda: store.count("shop == 's4'"),
            lambda: store.column("shop"),
            lambda: store.get(["n3"]),
            store.in_memory,
        ):
            with pytest.raises(
                ValueError, match=r"x\.index is damaged: its part 17-0 is not the one that was written$"
            ):
                read()


def test_values_of_some_items_are_those_of_the_whole_column(tmp_path, monkeypatch):
    """Also of blocks without the column, and of blocks of which items were removed."""
    monkeypatch.setattr(collection_file, "MOST_ITEMS", 7)
    path = built(tmp_path / "x.index")
    with nearfar.index.open(path, "w") as store:
        store.remove([f"n{k}" for k in (*range(0, N, 5), *range(14, 21), 399)])
        more = records(range(N, N + 40))
        store.add(replace(more, columns={**more.columns, "size": np.arange(40.0), "note": more.names}))
    index = Index.load(path)
    with nearfar.index.open(path) as store:
        assert store.engine() == "graph"
        rows = np.random.default_rng(1).permutation(len(index))[:50]
        found = store.get(index.names[rows].tolist())
        expected = index.records().pick(rows)
        assert found.names.tolist() == expected.names.tolist()
        assert found.labels.tolist() == expected.labels.tolist()
        for name, values in expected.columns.items():
            np.testing.assert_array_equal(found.columns[name], values)
            np.testing.assert_array_equal(store.column(name), index.columns[name])
