"""`nearfar index`, `search` and `duplicates` on one URI: a file or a folder of LanceDB."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nearfar
import nearfar.index
from tests.commands import run


@pytest.fixture(params=["x.index", "x.lance"])
def uri(request, tmp_path, monkeypatch):
    if request.param.endswith(".lance"):
        pytest.importorskip("lancedb")
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(12, 4))
    names = [f"n{k}" for k in range(12)]
    np.savez("all.npz", embeddings=rows, labels=list("abcabcabcabc"), names=names)
    np.savez("some.npz", embeddings=rows[:2], labels=["", "a"], names=["n0", "more"])
    np.savez("query.npz", embeddings=rows[:1], names=["q"])
    np.savez("far.npz", embeddings=rows, labels=list("abcabcabcabc"), names=names, distance="euclidean")
    (tmp_path / "shop.csv").write_text(
        "name,price,product,label\n" + "".join(f"n{k},{k},p{k // 3},z\n" for k in range(11))
    )
    return request.param


def test_items_are_indexed_filtered_grouped_and_removed(uri, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--columns", "shop.csv")
    assert (code, out) == (0, f"{uri}: Index of 12 x 4, cosine, engine exact; 12 items embedded\n")
    code, out, _ = run(
        capsys, monkeypatch, "search", uri, "query.npz", "-k", "12", "--where", "price >= 3 and price < 5"
    )
    assert code == 0
    lines = sorted(line.split(maxsplit=3)[3] for line in out.splitlines()[1:])
    assert lines == ["n3  (price 3, product p1)", "n4  (price 4, product p1)"]
    run(capsys, monkeypatch, "search", uri, "query.npz", "-k", "12", "--where", "price > 9", "-o", "hits.csv")
    heading, first, *_ = Path("hits.csv").read_text().splitlines()
    assert heading == "query,rank,distance,class,name,price,product"
    assert first.endswith(",n10,10,p3")
    code, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "-k", "12", "--group-by", "product")
    assert len(out.splitlines()) == 1 + 5  # of the products 0 to 3, and n11, which is of none
    code, out, _ = run(capsys, monkeypatch, "index", "some.npz", "-o", uri, "--add")
    told = "2 items embedded, 1 of them replaced; 1 new item lacks price, product (--columns adds them)"
    assert out.endswith(f"Index of 13 x 4, cosine, engine exact; {told}\n")
    with nearfar.index.open(uri) as store:
        item = store.get(["n0"])
        assert item.labels.tolist() == ["a"]  # it came without a class
        assert item.columns["price"].tolist() == [0]  # and without a price
    code, out, _ = run(capsys, monkeypatch, "index", "-o", uri, "--remove", "b", "--remove", "more")
    assert (code, out) == (0, f"{uri}: Index of 8 x 4, cosine, engine exact; 5 items removed\n")
    code, out, _ = run(capsys, monkeypatch, "duplicates", uri, "-k", "3")
    assert code == 0
    assert len(out.splitlines()) == 4


def test_an_index_loses_its_last_item_and_is_searched_and_filled_again(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "some.npz", "-o", uri)
    code, out, _ = run(capsys, monkeypatch, "index", "-o", uri, "--remove", "n0", "--remove", "more")
    assert (code, out) == (0, f"{uri}: Index of 0 x 4, cosine, engine exact; 2 items removed\n")
    for words, told in (
        (["search", uri, "query.npz"], "q: none"),
        (["search", uri, "query.npz", "--rerank", "csls"], "q: none"),
        (["search", uri, "query.npz", "-o", "found.csv"], "found.csv: 0 neighbors of 1 query"),
        (["search", uri, "query.npz", "-o", "found.html"], "found.html: 0 neighbors of 1 query"),
        (["duplicates", uri, "--within", "0.1"], "0 groups of 0 items within 0.1"),
        (["groups", uri], "0 groups of 0 items, at a mean distance of at most 0; 0 items in no group"),
    ):
        code, out, err = run(capsys, monkeypatch, *words)
        assert (code, out.strip(), err) == (0, told, "")
    code, _, err = run(capsys, monkeypatch, "index", "-o", uri, "--remove", "n0")
    assert (code, err.endswith("is called 'n0'; the index is empty\n")) == (2, True)
    code, out, _ = run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--add")
    assert (code, out) == (0, f"{uri}: Index of 12 x 4, cosine, engine exact; 12 items embedded\n")


def test_an_index_starts_empty(uri, capsys, monkeypatch):
    np.save("none.npy", np.empty((0, 4)))
    code, out, err = run(capsys, monkeypatch, "index", "none.npy", "-o", uri)
    assert (code, out) == (0, f"{uri}: Index of 0 x 4, cosine, engine exact; 0 items embedded\n"), err
    code, out, _ = run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--add")
    assert (code, out) == (0, f"{uri}: Index of 12 x 4, cosine, engine exact; 12 items embedded\n")


def test_a_table_of_neighbors_has_its_number_told_where_some_have_fewer(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    np.savez("two.npz", embeddings=np.eye(4)[:2], names=["n0", "other"])
    _, out, _ = run(capsys, monkeypatch, "search", uri, "two.npz", "-k", "12", "--exclude-self", "-o", "found.csv")
    assert out == "found.csv: 12 neighbors of 2 queries; 1 has fewer, at least 11\n"


def test_a_query_that_is_an_item_can_be_left_out(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--columns", "shop.csv")
    np.savez("two.npz", embeddings=np.load("all.npz")["embeddings"][:2], names=["n0", "other"])

    def found(*words):
        code, _, err = run(capsys, monkeypatch, "search", uri, "two.npz", "-o", "hits.csv", "--overwrite", *words)
        assert code == 0, err
        rows = [line.split(",") for line in Path("hits.csv").read_text().splitlines()[1:]]
        return [[row[4] for row in rows if row[0] == name] for name in ("n0", "other")]

    all_items = found("-k", "4")
    others = found("-k", "3", "--exclude-self")
    assert (all_items[0][0], all_items[1][0]) == ("n0", "n1")
    assert others == [all_items[0][1:], all_items[1][:3]]
    assert found("-k", "12", "--exclude-self", "--where", "price == 0") == [[], ["n0"]]
    if not uri.startswith("http"):
        again = found("-k", "3", "--exclude-self", "--rerank", "csls")
        assert [len(names) for names in again] == [3, 3]
        assert "n0" not in again[0]
    grouped = found("-k", "12", "--exclude-self", "--group-by", "product")
    assert [len(names) for names in grouped] == [4, 5]  # of the products 0 to 3, and n11, which is of none
    assert not {"n0", "n1", "n2"} & set(grouped[0])  # the product of the query
    assert grouped[1][0] == "n1"


def test_a_threshold_stays_with_the_index(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    code, out, _ = run(capsys, monkeypatch, "index", "-o", uri, "--threshold", "0.001")
    assert (code, out) == (0, f"{uri}: Index of 12 x 4, cosine, engine exact; threshold 0.001\n")
    _, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "-k", "12")
    assert len(out.splitlines()) == 3
    assert out.splitlines()[-1].startswith("only neighbors within 0.001, the threshold of the index; --within inf ")
    _, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "-k", "1")
    assert "threshold" not in out  # which took none away
    _, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "-k", "12", "--within", "inf")
    assert len(out.splitlines()) == 13
    code, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "-o", "found.html", "--where", "name == 'n5'")
    assert (code, out) == (0, "found.html: up to 1 neighbor of 1 query within 0.001; 1 has none\n")


def test_an_index_is_copied_to_another_kind_of_storage(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--columns", "shop.csv", "--threshold", "0.5")
    code, out, _ = run(capsys, monkeypatch, "index", uri, "-o", "copy.index")
    assert (code, out) == (0, f"copy.index: Index of 12 x 4, cosine, engine exact; copied from {uri}\n")
    with nearfar.index.open(uri) as store, nearfar.index.open("copy.index") as copy:
        items, same = store.in_memory(), copy.in_memory()
        order = [items.names.tolist().index(name) for name in same.names.tolist()]
        np.testing.assert_array_equal(items.embeddings[order], same.embeddings)
        np.testing.assert_array_equal(items.labels[order], same.labels)
        np.testing.assert_array_equal(items.columns["price"][order], same.columns["price"])
        assert copy.about["threshold"] == "0.5"
    code, _, err = run(capsys, monkeypatch, "index", uri, "-o", "copy.index")
    assert (code, "copy.index exists" in err) == (2, True)
    code, _, err = run(capsys, monkeypatch, "index", uri, "all.npz", "-o", "more.index")
    assert (code, err.startswith(f"nearfar: DATA: {uri}: an index is copied as it is")) == (2, True)


def test_the_engine_of_an_index_is_changed_without_embedding(uri, capsys, monkeypatch):
    if uri.endswith(".index"):
        pytest.importorskip("faiss")
    engine = {".index": "Flat", ".lance": "ivf"}.get(Path(uri).suffix, "auto")
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    code, out, err = run(capsys, monkeypatch, "index", "-o", uri, "--engine", engine)
    assert (code, engine.lower() in out.lower()) == (0, True), err
    code, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "-k", "12")
    assert (code, len(out.splitlines())) == (0, 13)
    code, _, err = run(capsys, monkeypatch, "index", "-o", uri, "--engine", "no-such-engine")
    assert (code, err.startswith("nearfar: --engine:")) == (2, True)


def test_columns_are_updated_without_embedding(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--columns", "shop.csv")
    Path("new.csv").write_text("name,price,stock\nn3,30,7\nn4,,8\nunknown,1,2\n")
    code, out, err = run(capsys, monkeypatch, "index", "-o", uri, "--columns", "new.csv", "--remove", "n0")
    assert code == 0, err
    assert out == f"{uri}: Index of 11 x 4, cosine, engine exact; 1 item removed, columns of 2 items updated\n"
    with nearfar.index.open(uri) as store:
        items = store.get(["n2", "n3", "n4"])
        assert items.labels.tolist() == ["c", "a", "b"]
        np.testing.assert_array_equal(items.embeddings, np.load("all.npz")["embeddings"][2:5].astype(np.float32))
        np.testing.assert_array_equal(items.columns["price"], [2, 30, np.nan])
        np.testing.assert_array_equal(items.columns["stock"], [np.nan, 7, 8])
        assert items.columns["product"].tolist() == ["p0", "p1", "p1"]
    Path("other.csv").write_text("name,price\nunknown,1\n")
    code, _, err = run(capsys, monkeypatch, "index", "-o", uri, "--columns", "other.csv")
    assert (code, "none of its 1 rows is for an item of the index" in err) == (2, True)
    Path("text.csv").write_text("name,price\nn3,cheap\n")
    code, _, err = run(capsys, monkeypatch, "index", "-o", uri, "--columns", "text.csv")
    assert (code, err.startswith("nearfar: --columns: expected numbers in 'price'")) == (2, True)


def test_suspects_are_found_in_an_index(uri, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    rows = 3 * np.eye(4)[labels] + 0.1 * rng.normal(size=(60, 4))
    labels[0] = 1
    np.savez("wrong.npz", embeddings=rows, labels=labels, names=[f"n{k}" for k in range(60)])
    run(capsys, monkeypatch, "index", "wrong.npz", "-o", uri)
    code, out, err = run(capsys, monkeypatch, "suspects", uri)
    assert code == 0, err
    assert out.splitlines()[0].split()[1:] == ["n0", "1", "->", "0"]
    code, _, err = run(capsys, monkeypatch, "suspects", uri, "wrong.npz")
    assert (code, err.startswith("nearfar: DATA:")) == (2, True)


def test_suspects_of_an_index_use_the_groups_and_the_distance_that_it_records(uri, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    objects = np.repeat(np.arange(36), 4)  # four photos of each
    labels = objects % 3
    lengths = rng.choice([1.0, 100.0], 36)[objects, None]  # without effect on cosines
    rows = lengths * (4 * np.eye(8)[labels] + rng.normal(size=(36, 8))[objects] + 0.01 * rng.normal(size=(144, 8)))
    labels[objects < 4] = (labels[objects < 4] + 1) % 3
    groups = [f"object {number:02}" for number in objects]
    names = [f"n{k}" for k in range(144)]
    np.savez("grouped.npz", embeddings=rows, labels=labels, names=names, groups=groups)
    run(capsys, monkeypatch, "index", "grouped.npz", "-o", uri)
    with nearfar.index.open(uri) as store:
        assert store.get(["n0"]).columns["group"].tolist() == ["object 00"]
        assert store.count('group == "object 03"') == 4
    tables = [f"of_{part}.csv" for part in ("file", "index", "index_by_euclidean", "file_by_euclidean")]
    euclidean = ["--distance", "euclidean"]
    for kind in (["--negatives", "3"], ["-k", "3"], ["--across", "9"]):
        ways = (["grouped.npz"], [uri], [uri, *euclidean], ["grouped.npz", *euclidean])
        for table, way in zip(tables, ways, strict=True):
            assert run(capsys, monkeypatch, "suspects", *way, *kind, "-o", table, "--overwrite")[0] == 0
        of_file, of_index, index_euclidean, file_euclidean = (Path(table).read_text() for table in tables)
        assert of_file == of_index != index_euclidean == file_euclidean
    run(capsys, monkeypatch, "suspects", uri, "-o", "found.csv")
    found = {line.split(",")[0] for line in Path("found.csv").read_text().splitlines()}
    assert {f"n{k}" for k in range(16)} <= found
    _, out, _ = run(capsys, monkeypatch, "suspects", uri, "--distance", "euclidean")
    assert out.endswith("by euclidean distance\n")


def test_the_distance_of_an_index_is_chosen_once(uri, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--distance", "euclidean")
    assert (code, out) == (0, f"{uri}: Index of 12 x 4, euclidean, engine exact; 12 items embedded\n")
    for words, told in (
        (["far.npz", "-o", uri, "--add", "--distance", "cosine"], "--distance: {} uses the euclidean distance, not"),
        (["-o", uri, "--distance", "cosine"], "SOURCE: expected a run, a learner or embeddings with --distance; only"),
        ([uri, "-o", f"copy-{uri}", "--distance", "cosine"], "--distance: {}: an index is copied as it is"),
    ):
        code, _, err = run(capsys, monkeypatch, "index", *words)
        assert code == 2
        assert told.format(uri) in err
    for more in (["some.npz"], ["far.npz"], ["far.npz", "--distance", "euclidean"]):
        assert run(capsys, monkeypatch, "index", *more, "-o", uri, "--add")[0] == 0
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--overwrite")
    code, _, err = run(capsys, monkeypatch, "index", "far.npz", "-o", uri, "--add")
    assert (code, err.endswith("or pass --distance cosine\n")) == (2, True)
    assert run(capsys, monkeypatch, "index", "far.npz", "-o", uri, "--add", "--distance", "cosine")[0] == 0


@pytest.mark.parametrize(
    ("query", "told"),
    [("", "got an empty text"), (" ", "got an empty text"), ("mug.jpg", "no such file"), ("x.npy", "no such file")],
)
def test_a_query_that_is_nothing_is_refused(uri, query, told, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    code, out, err = run(capsys, monkeypatch, "search", uri, query)
    assert (code, out) == (2, "")
    assert err.startswith("nearfar: QUERY: ")
    assert told in err


def test_the_threshold_is_not_blamed_for_the_size_of_the_index(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--columns", "shop.csv")
    run(capsys, monkeypatch, "index", "-o", uri, "--threshold", "2")  # no cosine distance is larger
    np.savez("self.npz", embeddings=np.load("all.npz")["embeddings"][:1], names=["n0"])
    for words, count in ((("--group-by", "product"), 5), (("--exclude-self",), 11)):
        _, out, _ = run(capsys, monkeypatch, "search", uri, "self.npz", "-k", "12", *words)
        assert "threshold" not in out
        assert len(out.splitlines()) == 1 + count
        to_file = ("-o", "found.csv", "--overwrite")
        _, out, _ = run(capsys, monkeypatch, "search", uri, "self.npz", "-k", "12", *to_file, *words)
        assert out == f"found.csv: up to {count} neighbors of 1 query within 2; 0 have none\n"


def test_new_items_without_columns_and_conditions_that_nothing_meets_are_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"n{k}" for k in range(4)]
    for name, chosen in (("some", names[:2]), ("more", names[1:])):
        np.savez(f"{name}.npz", embeddings=np.eye(4)[: len(chosen)], names=chosen, labels=["a"] * len(chosen))
    Path("prices.csv").write_text("name,price,shop\nn0,3,x\nn1,4,y\nn2,5,\n")
    run(capsys, monkeypatch, "index", "some.npz", "-o", "x.index", "--columns", "prices.csv")
    code, out, _ = run(capsys, monkeypatch, "index", "more.npz", "-o", "x.index", "--add")
    told = "3 items embedded, 1 of them replaced; 2 new items lack price, shop (--columns adds them)"
    assert (code, out) == (0, f"x.index: Index of 4 x 4, cosine, engine exact; {told}\n")
    run(capsys, monkeypatch, "index", "-o", "x.index", "--remove", "n2", "--remove", "n3")
    code, out, _ = run(capsys, monkeypatch, "index", "more.npz", "-o", "x.index", "--add", "--columns", "prices.csv")
    assert out.endswith("1 of them replaced; 2 new items lack shop (--columns adds them)\n")
    code, out, _ = run(capsys, monkeypatch, "index", "more.npz", "-o", "x.index", "--add")
    assert out.endswith("3 of them replaced\n")
    np.save("query.npy", np.eye(4)[:1])
    code, out, _ = run(capsys, monkeypatch, "search", "x.index", "query.npy", "--where", "price > 99")
    assert (code, out.splitlines()[1:]) == (0, ["no item of the index meets the condition of --where"])


@pytest.mark.parametrize("words", [["--where", "cost < 3"], ["--group-by", "cost"], ["-k", "0"], ["--within", "nan"]])
def test_bad_options_are_refused_before_anything_is_embedded(uri, words, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    code, _, err = run(capsys, monkeypatch, "search", uri, "no-such-query.npz", *words)
    assert code == 2
    assert words[0].lstrip("-") in err or "filter: there is no column 'cost'" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["all.npz", "--engine", "none"], "--engine: expected exact"),
        (["all.npz", "--columns", "shop.csv", "--name", "product"], "none of its 11 rows is for an item"),
        (["learner.safetensors"], "DATA: expected the items to embed"),
        (["all.npz", "--build"], "builds its own structures; it works only for a file"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_embedded(uri, words, told, capsys, monkeypatch):
    if "--build" in words and uri.endswith(".index"):
        pytest.skip("a file can have a graph")
    nearfar.RCA().fit(np.eye(6), [0, 0, 1, 1, 2, 2]).save("learner.safetensors")
    monkeypatch.setattr("nearfar.index.building.embedded_beside", None)
    monkeypatch.setattr("nearfar.index.building.load", None)
    code, _, err = run(capsys, monkeypatch, "index", *words, "-o", uri)
    assert (code, told in err) == (2, True), err
    with pytest.raises(FileNotFoundError, match=r"^out: nowhere/x\.\w+: there is no folder nowhere$"):
        nearfar.index.build("all.npz", None, f"nowhere/{uri}")


def test_bad_input_costs_one_line(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri, "--columns", "shop.csv")
    for words, told in (
        (["search", uri, "query.npz", "--where", "cost < 3"], "there is no column 'cost'; there are "),
        (["search", uri, "query.npz", "--where", "price <"], "at its end, expected a number or a text"),
        (["search", uri, "query.npz", "--group-by", "cost"], "there is no column 'cost'"),
        (["index", "far.npz", "-o", uri, "--add"], "uses the cosine distance, far.npz uses the euclidean distance"),
        (["index", "all.npz", "-o", uri, "--add", "--columns", "all.npz"], "all.npz: expected a table"),
        (["index", "all.npz", "-o", uri, "--overwrite", "--engine", "none"], "engine: expected exact"),
        (["index", "all.npz", "-o", uri], f"{uri} exists; add to it with --add, or replace it with --overwrite"),
        (["index", "all.npz", "-o", uri, "--add", "--overwrite"], "--overwrite: not with --add"),
        (["index", "-o", uri, "--threshold", "-1"], "--threshold: expected a distance of at least 0"),
        (["search", "missing/x.index", "query.npz"], "no such index"),
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert (code, err.count("\n")) == (2, 1), err
        assert told in err
    with nearfar.index.open(uri) as store:
        assert store.count() == 12


WRITER = """
import sys
import numpy as np
import nearfar.index
from nearfar.index import records_of

uri, start = sys.argv[1], int(sys.argv[2])
with nearfar.index.open(uri, "w") as store:
    for k in range(start, start + 999):
        rows = np.random.default_rng(k).normal(size=(3, 4))
        store.add(records_of(rows, [f"w{k}.{j}" for j in range(3)], labels=["a"] * 3))
        print(f"+w{k}", flush=True)
        if k % 3 == 2:
            store.remove([f"w{k - 1}.{j}" for j in range(3)])
            print(f"-w{k - 1}", flush=True)
"""


@pytest.mark.slow
def test_what_was_reported_survives_a_kill_at_any_moment(uri, capsys, monkeypatch, tmp_path):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    chance = random.Random(0)
    kept = {f"n{k}" for k in range(12)}
    for round_number in range(3):
        start = 999 * round_number
        command = [sys.executable, "-c", WRITER, uri, str(start)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as writer:
            told = writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.3))
            writer.send_signal(signal.SIGKILL)
            told += writer.stdout.read()
        unsure = set()
        lines = told.split("\n")[:-1]
        for line in lines:
            group = {f"{line[1:]}.{j}" for j in range(3)}
            kept = kept | group if line[0] == "+" else kept - group
        last = int(lines[-1].lstrip("+-w"))
        unsure = {f"w{k}.{j}" for k in (last - 1, last, last + 1, last + 2) for j in range(3)}
        with nearfar.index.open(uri, "w") as store:
            there = set(store.column("name").tolist())
            assert there - unsure == kept - unsure
            added = {name for name in kept & unsure if f"+{name.partition('.')[0]}" in lines}
            removed_soon = {f"w{last - 1}.{j}" for j in range(3)} | {f"w{last}.{j}" for j in range(3)}
            assert added - there <= removed_soon  # by a removal that was under way
            kept = there
            assert len(store.search(np.ones((1, 4)), 5).records)


def parts(folder, ending, n=5):
    """Write the files of two days under one name, with `id` 0 to 4 and 5 to 9; return their rows."""
    rows = np.random.default_rng(0).normal(size=(2 * n, 4))
    for k, day in enumerate(("mon", "tue")):
        (folder / day).mkdir()
        part = rows[n * k : n * k + n]
        cells = {f"c{j}": part[:, j] for j in range(4)} | {"item_id": np.arange(n * k, n * k + n), "label": ["a"] * n}
        if ending == "npz":
            np.savez(folder / day / "new.npz", embeddings=part, labels=["a"] * n, ids=cells["item_id"])
        elif ending == "csv":
            lines = [",".join(cells), *(",".join(map(str, row)) for row in zip(*cells.values(), strict=True))]
            (folder / day / "new.csv").write_text("\n".join(lines))
        else:
            pyarrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(cells), folder / day / "new.parquet")
    return rows


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_the_file_of_the_next_day_is_added_by_its_ids(ending, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = parts(tmp_path, ending)
    run(capsys, monkeypatch, "index", f"mon/new.{ending}", "-o", "x.index")
    code, out, _ = run(capsys, monkeypatch, "index", f"tue/new.{ending}", "-o", "x.index", "--add", "--new")
    assert code == 0
    assert "5 items embedded" in out
    found = nearfar.index.Index.load("x.index")
    assert found.names.tolist() == [str(i) for i in range(10)]
    np.testing.assert_allclose(found.embeddings, rows, rtol=1e-6)


@pytest.mark.parametrize("more", [[], ["--new"]])
def test_items_that_are_named_by_position_never_replace_others(uri, more, capsys, monkeypatch, tmp_path):
    rows = np.random.default_rng(0).normal(size=(10, 4))
    for k, day in enumerate(("mon", "tue", "wed")):
        (tmp_path / day).mkdir()
        np.save(tmp_path / day / "new.npy", rows[:5] if day == "wed" else rows[5 * k : 5 * k + 5])
    run(capsys, monkeypatch, "index", "mon/new.npy", "-o", uri)
    code, _, err = run(capsys, monkeypatch, "index", "tue/new.npy", "-o", uri, "--add", *more)
    assert code == 2
    told = "--add: 5 new items would replace items with other content, because the names are only the position in the "
    assert err.startswith(f"nearfar: {told}file, such as 'new[0]'; name the items with --name COLUMN")
    with nearfar.index.open(uri) as store:
        np.testing.assert_allclose(store.get(["new[0]"]).embeddings, rows[:1], rtol=1e-6)
    code, _, _ = run(capsys, monkeypatch, "index", "wed/new.npy", "-o", uri, "--add", *more)
    assert code == 0  # the same items again


def test_positions_remain_positions_in_embedded_files(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "train.csv").write_text(
        "".join(["a,b,label\n", *(f"{i},{i * i},{'abcd'[i % 4]}\n" for i in range(16))])
    )
    run(capsys, monkeypatch, "fit", "train.csv", "RCA", "--out", "rca.safetensors", "--quiet")
    for day in ("mon", "tue"):
        np.save("new.npy", rng.normal(size=(3, 2)))
        run(capsys, monkeypatch, "embed", "rca.safetensors", "new.npy", "-o", "new.npz", "--overwrite")
        code, _, err = run(
            capsys, monkeypatch, "index", "new.npz", "-o", "x.index", *(["--add"] if day == "tue" else [])
        )
    assert code == 2
    assert "would replace items with other content" in err


def test_a_query_at_the_same_position_of_another_file_is_not_left_out(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(4, 3))
    np.save("rows.npy", rows)
    run(capsys, monkeypatch, "index", "rows.npy", "-o", "x.index")
    for queries, left_out in ((rows, True), (rows[[1, 0]], False)):
        np.save("rows.npy", queries)
        words = ("-k", "4", "--exclude-self", "-o", "hits.csv", "--overwrite")
        run(capsys, monkeypatch, "search", "x.index", "rows.npy", *words)
        nearest = Path("hits.csv").read_text().splitlines()[1].split(",")
        assert (float(nearest[2]) > 1e-6) == left_out


def test_names_are_in_any_column_that_is_named(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("shelf,width,height,label\nA,1,2,x\nB,3,1,y\n")
    code, _, err = run(capsys, monkeypatch, "index", "rows.csv", "-o", "x.index")
    assert code == 2
    assert "column 'shelf' has 'A' in row 1" in err
    assert "--name" in err
    run(capsys, monkeypatch, "index", "rows.csv", "-o", "x.index", "--name", "shelf")
    assert nearfar.index.Index.load("x.index").names.tolist() == ["A", "B"]
    (tmp_path / "prices.csv").write_text("shelf,price\nB,2\nA,1\n")
    code, out, _ = run(capsys, monkeypatch, "index", "-o", "x.index", "--columns", "prices.csv", "--name", "shelf")
    assert "columns of 2 items updated" in out
    with nearfar.index.open("x.index") as store:
        assert store.get(["A"]).columns["price"].tolist() == [1]
    code, _, err = run(capsys, monkeypatch, "search", "x.index", "rows.csv", "--name", "label2")
    assert "has no column 'label2'; it has shelf,width,height,label" in err


@pytest.mark.parametrize("add", [False, True])
def test_a_table_of_columns_names_its_items_beside_data_without_columns(uri, add, capsys, monkeypatch):
    Path("prices.csv").write_text("name,shelf,price\nmug,n1,5\ncup,n0,4\n")
    if add:
        run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    words = ["index", "all.npz", "-o", uri, "--columns", "prices.csv", *["--add"] * add]
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert "none of its 2 rows is for an item of the index: its column 'name' begins with 'mug'" in err
    assert "the first item is 'n0'" in err
    assert "--name COLUMN" in err
    code, _, err = run(capsys, monkeypatch, *words, "--name", "shelf")
    assert (code, err) == (0, "")
    with nearfar.index.open(uri) as store:
        assert store.get(["n0", "n1"]).columns["price"].tolist() == [4, 5]


@pytest.mark.parametrize("column", ["name", "path", "shelf"])
def test_two_different_rows_for_an_item_are_refused_and_change_nothing(column, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", embeddings=np.eye(3), names=["a", "b", "c"])
    run(capsys, monkeypatch, "index", "all.npz", "-o", "x.index")
    words = ["index", "-o", "x.index", "--columns", "prices.csv", *(["--name", column] if column == "shelf" else [])]
    Path("prices.csv").write_text(f"{column},price\na,1\nb,2\nother,7\nother,8\nb,3\n")
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert "prices.csv: 'b' has two different rows, 2 and 5; expected one for each item" in err
    with nearfar.index.open("x.index") as store:
        assert "price" not in store.columns()
    Path("prices.csv").write_text(f"{column},price\na,1\nb,2\nother,7\nother,8\nb,2\n")  # only a repeated row
    assert run(capsys, monkeypatch, *words)[0] == 0
    with nearfar.index.open("x.index") as store:
        assert store.get(["a", "b"]).columns["price"].tolist() == [1, 2]


@pytest.mark.parametrize("column", ["name", "text"])
def test_names_that_recur_in_a_table_name_no_rows(column, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(f"{column},height,age,code,label\nAnn,1,2,7,x\nBob,3,1,8,y\nAnn,3,4,9,z\n")
    code, out, err = run(capsys, monkeypatch, "index", "people.csv", "-o", "x.index")
    assert (code, f"column '{column}' cannot name the rows: 'Ann' is in rows 1 and 3" in out) == (0, True), err
    with nearfar.index.open("x.index") as store:
        assert store.get(["people[0]", "people[2]"]).labels.tolist() == ["x", "z"]
    assert run(capsys, monkeypatch, "index", "people.csv", "-o", "y.index", "--name", "code")[0] == 0
    with nearfar.index.open("y.index") as store:
        assert store.get(["9"]).labels.tolist() == ["z"]


def test_the_names_in_a_table_of_columns_are_kept_beside_another_key(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", embeddings=np.eye(3), names=["1", "2", "3"])
    Path("products.csv").write_text("id,name,price\n1,milk,2\n2,bread,3\n")
    words = ["index", "all.npz", "-o", "x.index", "--columns", "products.csv", "--name", "id"]
    assert run(capsys, monkeypatch, *words)[0] == 0
    with nearfar.index.open("x.index") as store:
        assert store.column("display_name").tolist() == ["milk", "bread", ""]
    code, out, _ = run(capsys, monkeypatch, "search", "x.index", "all.npz", "--where", 'display_name == "milk"')
    assert (code, "milk" in out) == (0, True)


def test_a_table_of_columns_may_lack_vectors_and_categories(capsys, monkeypatch, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", embeddings=np.eye(3), names=["a", "b", "c"])
    columns = {"name": ["a", "b"], "embedding": [[1.0, 2.0], None], "shop": ["x", None], "price": [None, 2.0]}
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), "shop.parquet")
    code, _, _ = run(capsys, monkeypatch, "index", "all.npz", "-o", "x.index", "--columns", "shop.parquet")
    assert code == 0
    with nearfar.index.open("x.index") as store:
        assert store.column("shop").tolist() == ["x", "", ""]


def test_words_are_searched_alone_and_together_with_a_query(uri, capsys, monkeypatch):
    run(capsys, monkeypatch, "index", "all.npz", "-o", uri)
    code, out, err = run(capsys, monkeypatch, "search", uri, "--words", "n3")
    if uri.endswith(".lance"):
        assert (code, err) == (2, "nearfar: --words: x.lance cannot be searched by words; a file and PostgreSQL can\n")
        return
    assert (code, out) == (0, "n3\n    1           -  a  n3\n")
    code, out, _ = run(capsys, monkeypatch, "search", uri, "query.npz", "--words", "b n1*", "-k", "3")
    assert (code, sorted(line.split()[3] for line in out.splitlines()[1:3])) == (0, ["n1", "n10"])
    run(capsys, monkeypatch, "search", uri, "--words", "n3", "-o", "found.csv")
    assert Path("found.csv").read_text().splitlines()[1] == "n3,1,,a,n3"
    for options, told in (
        (["--words", "n3", "--within", "1"], "--within: words alone have no distances; leave it out, or give a query"),
        (
            ["query.npz", "--words", "n3", "--group-by", "label"],
            "--words: does not work with --group-by; give",
        ),
        ([], "QUERY: expected an image, a folder, rows or a text, got an empty text; or give --words TEXT"),
    ):
        code, _, err = run(capsys, monkeypatch, "search", uri, *options)
        assert (code, told in err) == (2, True), err
