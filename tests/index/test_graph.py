"""The graph beside a file: found items are those of the collection as it is now, whatever the graph is."""

import shutil

import numpy as np
import pytest

import nearfar.index
from nearfar.index import Index, create, graph_file, mapped_search, records_of
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
    assert "--check: only reads" in run(capsys, monkeypatch, "index", "rows.npz", "-o", "x.index", "--check")[2]
