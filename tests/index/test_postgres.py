"""Collections in PostgreSQL, beside what the law over the stores asks: existing tables, indexes, lost connections."""

import importlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import nearfar.data
import nearfar.index
from nearfar.index import Index, create, records_of
from nearfar.io.uris import collection_name, database_of, shown

from ..commands import run

pytestmark = pytest.mark.slow
psycopg = pytest.importorskip("psycopg")
ROWS = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)

SHOPS = ["NULL", "'b'", "'a'", "'b'", "'a'", "'b'", "'a'"]
PRICES = [9.99, 10.99, 11.99, "NULL", 13.99, 14.99, 15.99]


def items(names, **more):
    return records_of(np.random.default_rng(len(names)).normal(size=(len(names), 4)), names, **more)


def sql(postgres, *statements):
    """Run statements beside nearfar, and return the rows of the last one."""
    with psycopg.connect(postgres.partition("#")[0], autocommit=True) as connection:
        for statement in statements:
            done = connection.execute(statement.replace("TABLE_NAME", postgres.partition("#")[2]))
        return done.fetchall() if done.description else []


@pytest.fixture
def products(postgres):
    """A table of a team: eight products, of which the last has no embedding yet."""
    sql(
        postgres,
        "CREATE EXTENSION IF NOT EXISTS vector",
        "CREATE TABLE TABLE_NAME (sku varchar(20) PRIMARY KEY, title text NOT NULL, shop text, price numeric(9, 2), "
        "made date, note jsonb, embedding vector(4))",
        *[
            f"INSERT INTO TABLE_NAME VALUES ('sku{k}', 'Product {k}', {SHOPS[k]}, {PRICES[k]}, "
            f"'2026-01-{k + 1:02}', '{{}}', '{ROWS[k].tolist()}')"
            for k in range(7)
        ],
        "INSERT INTO TABLE_NAME (sku, title) VALUES ('sku7', 'Product 7')",
    )
    return postgres


def test_a_table_that_a_team_has_is_searched_with_its_columns(products):
    with nearfar.index.open(products) as store:
        assert (store.count(), store.dimensions, store.distance, store.engine()) == (7, 4, "cosine", "exact")
        kinds = {"name": "text", "title": "text", "shop": "text", "price": "number", "made": "text"}
        assert store.columns() == kinds
        index = Index(ROWS[:7], names=[f"sku{k}" for k in range(7)])
        assert store.search(ROWS, 7).names.tolist() == index.search(ROWS, 7).names.tolist()
        for where, expected in (
            ("price < 11", [0, 1]),
            ("not price < 11", [2, 3, 4, 5, 6]),
            ("price is missing", [3]),
            ("shop != 'a'", [0, 1, 3, 5]),
            ("shop is missing or shop == 'b'", [0, 1, 3, 5]),
            ("made >= '2026-01-06'", [5, 6]),
            ("title contains '4' or name in ['sku1', 'x']", [1, 4]),
            ("title contains 'Product 7'", []),
        ):
            assert store.column("name", where).tolist() == [f"sku{k}" for k in expected], where
        assert store.get(["sku7", "sku2", "none"]).columns["made"].tolist() == ["2026-01-03"]
        assert store.search(ROWS[:1], 3, group_by="shop").names[0][0] == "sku0"


def test_items_of_a_table_of_a_team_change_and_no_row_is_lost(products):
    with nearfar.index.open(products, "w") as store:
        store.add(records_of(ROWS[[7, 0]], ["sku7", "sku1"], columns={"shop": ["c", ""]}), gone=["sku2"])
        store.change(about={"threshold": "0.3"})
        store.remove(["sku4"])
        assert store.count() == 6
        for wrong, told in (
            (
                lambda: store.add(items(["sku0"], columns={"size": [1.0]})),
                "has no column 'size'; add it in the database",
            ),
            (lambda: store.add(items(["new"])), 'null value in column "title"'),
            (lambda: store.add(items(["sku0"], columns={"made": ["soon"]})), "invalid input syntax for type date"),
            (lambda: store.remove(["none"]), "the index has no 'none'"),
            (lambda: store.change(engine="hnsw"), "has no HNSW index of its distance; make it in the database"),
        ):
            with pytest.raises(ValueError, match=told) as error:
                wrong()
            assert "\n" not in str(error.value)
    with nearfar.index.open(products) as store:
        assert store.about == {"threshold": "0.3"}
        found = store.get(["sku1", "sku7"])
        np.testing.assert_array_equal(found.embeddings, ROWS[[0, 7]])
        assert found.columns["shop"].tolist() == ["", "c"]
    assert sql(products, "SELECT count(*), count(embedding), count(made) FROM TABLE_NAME") == [(8, 6, 7)]
    with pytest.raises(ValueError, match="is a table that nearfar did not make; add to it with --add"):
        create(products, items(["a"]))
    assert sql(products, "SELECT count(*) FROM TABLE_NAME") == [(8,)]


def test_the_columns_of_a_table_may_be_named_in_the_address(postgres):
    sql(
        postgres,
        "CREATE EXTENSION IF NOT EXISTS vector",
        'CREATE TABLE TABLE_NAME (number int UNIQUE, "the kind" text, near vector(4), far halfvec(4))',
        *[
            f"INSERT INTO TABLE_NAME VALUES ({k}, 'k{k % 2}', '{ROWS[k].tolist()}', '{ROWS[7 - k].tolist()}')"
            for k in range(8)
        ],
        "CREATE INDEX ON TABLE_NAME USING hnsw (far halfvec_l2_ops)",
    )
    with pytest.raises(ValueError, match=r"name the column of the embeddings, as in #\w+\?vector=; its .* near, far"):
        nearfar.index.open(postgres)
    with pytest.raises(ValueError, match=r"name a column of different texts or whole numbers, as in #\w+\?id="):
        nearfar.index.open(f"{postgres}?vector=near")
    address = f"{postgres}?id=number&vector=far&label=the+kind"
    with nearfar.index.open(Path(address), "w") as store:
        assert (store.distance, store.engine()) == ("euclidean", "approximate (hnsw)")
        assert store.search(ROWS[:1], 1, where="label == 'k1'").names.tolist() == [["7"]]
        assert store.get(["3", "x", "03", "9" * 30]).labels.tolist() == ["k1"]
        store.change(about={"threshold": "2"})
    with nearfar.index.open(postgres) as store:  # it remembers them
        assert store.search(ROWS[:1], 1).names.tolist() == [["7"]]


def test_texts_never_become_a_part_of_a_statement(postgres, products):
    with nearfar.index.open(products, "w") as store:
        for text in ("'; DROP TABLE x; --", "%s %(a)s %%", "\\", "a' OR '1'='1"):
            literal = text.replace("\\", "\\\\")
            assert store.count(f'name == "{literal}" or title contains "{literal}"') == 0
            assert len(store.get([text, "a\0b"])) == 0
    for column in ('sku"; DROP TABLE x; --', "%s"):
        with pytest.raises(ValueError, match="name a column of different texts"):
            nearfar.index.open(f"{products}?id={column.replace('%', '%25').replace(';', '%3B')}")
    for wrong in ("x; DROP TABLE y", "", "a.b.c", "x" * 64, 'a"b'):
        with pytest.raises(ValueError, match="expected a collection of up to 63 letters, digits and underscores"):
            nearfar.index.open(f"postgresql:///shop#{wrong}")
    with create(f"{products}_own", items(["a"], columns={"shop": ["%s"]})) as store:
        with pytest.raises(ValueError, match=r"PostgreSQL: invalid byte sequence"):
            store.add(items(["b"], columns={"shop": ["a\0b"]}))
        for name in ("x" * 64, "ctid"):
            with pytest.raises(ValueError, match=r"^columns: .* rename it"):
                store.add(items(["b"], columns={name: [1.0]}))
        assert store.count("shop == '%s'") == 1


def test_names_of_types_and_columns_of_strangers_never_become_a_part_of_a_statement_or_a_message(postgres):
    collection = pytest.importorskip("nearfar.serve.collection")
    name = postgres.partition("#")[2]
    kind = f'"{f"text, id = (SELECT 7) FROM (SELECT 1) x; DROP TABLE {name}; --"[:63]}"'
    sql(
        postgres,
        "CREATE EXTENSION IF NOT EXISTS vector",
        f"CREATE TYPE {kind} AS ENUM ('a', 'b')",
        f'CREATE TABLE TABLE_NAME (id int PRIMARY KEY, class {kind}, price float8, near vector(4), "a\nb" vector(4))',
        f"INSERT INTO TABLE_NAME VALUES (1, 'a', 'Infinity', '{ROWS[0].tolist()}')",
    )
    for address in (postgres, f"{postgres}?vector=near&label=none"):
        with pytest.raises(ValueError, match=r"near") as error:
            nearfar.index.open(address)
        assert "\n" not in str(error.value)
    with nearfar.index.open(f"{postgres}?vector=near&label=class", "w") as store:
        store.add(records_of(ROWS[1:3], ["1", "2"], labels=["b", "a"]))
        found = store.search(ROWS[1:2], 2)
        assert found.names.tolist() == [["1", "2"]]
        assert found.records.labels.tolist() == ["b", "a"]
        assert collection.plain_items(found.records, [0], str)[0]["columns"] == {"price": None}  # JSON has no infinity
    assert sql(postgres, "SELECT id FROM TABLE_NAME ORDER BY id") == [(1,), (2,)]
    sql(postgres, "DROP TABLE TABLE_NAME", f"DROP TYPE {kind}")


def test_a_state_that_others_have_changed_is_refused(postgres):
    create(postgres, items(["a"], columns={"price": [1.0]})).close()
    name = postgres.partition("#")[2]
    change = "UPDATE nearfar_collections SET state = {} WHERE name = '" + name + "'"
    for wrong in (
        "'{'",
        "'[]'",
        "replace(state, 'collection', 'other')",
        'replace(state, \'"dimensions": 4\', \'"dimensions": "4)); DROP TABLE x"\')',
        "replace(state, '\"price\"', '\"a b\"')",
        "replace(state, '\"cosine\"', '\"near\"')",
        "replace(state, '\"count\": 1', '\"count\": -1')",
        "replace(state, '\"about\": {}', '\"about\": 3')",
        "replace(state, '\"cosine\"', '[]')",
        'replace(state, \'"about": {}\', \'"about": {}, "chosen": {"id": []}\')',
    ):
        (state,) = sql(postgres, f"SELECT state FROM nearfar_collections WHERE name = '{name}'")[0]
        sql(postgres, change.format(wrong))
        with pytest.raises(ValueError, match=r"make the index again$"):
            nearfar.index.open(postgres)
        sql(postgres, change.format(f"'{state}'"))
    assert nearfar.index.open(postgres).count() == 1
    sql(postgres, "DROP TABLE TABLE_NAME")
    with pytest.raises(FileNotFoundError, match="no such index"):
        nearfar.index.open(postgres)
    create(postgres, items(["b"])).close()
    assert nearfar.index.open(postgres).column("name").tolist() == ["b"]


def test_a_password_is_never_shown(postgres):
    server, _, name = postgres.partition("#")
    for given in (
        server.replace("postgres@", "guarded:se%63ret@"),
        server.replace("postgres@", "guarded@") + "&password=secret",
        "postgresql://me:secret@nowhere.invalid:99/shop",
        "postgresql://me:secret@/shop?unknown=1",
    ):
        with pytest.raises(OSError, match=r"PostgreSQL: ") as error:
            nearfar.index.open(f"{given}#{name}")
        assert "ret" not in str(error.value)
        assert "\n" not in str(error.value)
    for place in ("host/db", "host#x", "host/db#a b"):
        with pytest.raises(ValueError, match=r"^address of PostgreSQL: ") as error:
            nearfar.index.open(f"postgresql://me:secret@{place}")
        assert "secret" not in str(error.value)
    for password, coded in (("a/b#secret", "%23 for #"), ("secret/b?c", "%3F for ?")):
        with pytest.raises(ValueError, match=r"^address of PostgreSQL: .*write " + re.escape(coded)) as error:
            nearfar.index.open(f"postgresql://me:{password}@host/db#x")
        assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match=r"^postgresql://me@host/shop#x is an index; expected ") as error:
        nearfar.data.open_items("postgresql://me:secret@host/shop#x")
    for option in ("password", "sslpassword", "oauth_client_secret"):
        assert shown(f"postgresql:///shop?{option}=secret#x") == "postgresql:///shop#x"
    address = Path("postgresql://me:secret@[::1]:5433/shop?sslmode=require#toys.photos")
    assert shown(address) == "postgresql://me@::1:5433/shop?sslmode=require#toys.photos"
    assert database_of(address).parameters["password"] == "secret"
    assert collection_name(address) == "toys.photos"


def test_a_database_is_served_and_changed_over_http(postgres, tmp_path, monkeypatch):
    pytest.importorskip("starlette")
    client_of = pytest.importorskip("starlette.testclient").TestClient
    from nearfar.serve import open_app

    monkeypatch.chdir(tmp_path)
    create(postgres, items(["a", "b"])).close()
    server, _, name = postgres.partition("#")
    app = open_app(f"{server}&password=secret#{name}", token="sixteen-letters-long", allow_writes=True)
    headers = {"authorization": "Bearer sixteen-letters-long"}
    client = client_of(app, base_url="http://127.0.0.1:8000", headers=headers)
    about = client.get("/api/about")
    assert (about.json()["name"], about.json()["items"], "secret" in about.text) == (name, 2, False)
    body = {"items": [{"name": "c", "vector": [9, 0, 0, 0], "columns": {"note": "far away"}}]}
    assert client.post("/api/add", json=body).json() == {"added": 1, "replaced": 0, "items": 3}
    found = client.post("/api/search?k=1", json={"vector": [1, 0, 0, 0]}).json()["neighbors"]
    assert [one["name"] for one in found] == ["c"]
    assert client.get("/api/search-words?words=away").json()["neighbors"][0]["name"] == "c"
    assert client.post("/api/wrong", json={"name": "c"}).status_code == 201
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".csv"] == [f"{name}.wrong.csv"]


def test_a_connection_that_is_lost_leaves_the_collection_as_it_was(postgres, monkeypatch):
    module = importlib.import_module("nearfar.index.postgres_store")
    copy_in = module.copy_in

    def ending(connection, *arguments):
        sql(postgres, f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        copy_in(connection, *arguments)

    with create(postgres, items(["a", "b"])) as store, nearfar.index.open(postgres) as reader:
        monkeypatch.setattr(module, "copy_in", ending)
        with pytest.raises(OSError, match="PostgreSQL: ") as error:
            store.add(items(["c"]), gone=["a"])
        assert "\n" not in str(error.value)
        monkeypatch.undo()
        assert reader.column("name").tolist() == store.column("name").tolist() == ["a", "b"]
        store.add(items(["c"]), gone=["a"])  # a new connection is made
        sql(postgres, f"SELECT pg_terminate_backend({reader._connection.info.backend_pid})")
        assert reader.column("name").tolist() == ["b", "c"]


def test_writers_on_several_machines_come_one_after_another(postgres):
    create(postgres, items(["first"])).close()

    def write(number):
        with nearfar.index.open(postgres, "w", lock=False) as store:  # the lock of one machine
            for k in range(5):
                store.add(items([f"{number}.{k}"], columns={f"c{number}": [1.0]}))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with nearfar.index.open(postgres) as store:
        assert store.count() == 16 == len(store.column("name"))
        assert {"c0", "c1", "c2"} < set(store.columns())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed as POSIX does it")
def test_a_database_keeps_what_was_reported_before_a_kill(postgres):
    script = Path(__file__).parents[2] / "bench" / "kill_writers.py"
    done = subprocess.run([sys.executable, script, postgres, "--kills", "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    changes, lost = map(int, re.findall(r"3 kills, (\d+) changes reported, (\d+) items", done.stdout)[0])
    assert lost == 0
    assert changes >= 3


def test_threads_that_read_get_whole_answers_while_columns_come_and_go(postgres):
    create(postgres, items(["a", "b"], columns={"c0": [1.0, 2.0]})).close()
    failed = []
    with nearfar.index.open(postgres) as reader:

        def read():
            for _ in range(15):
                try:
                    found = reader.search(np.ones((2, 4)), 2, where="name != 'x'")
                    assert sorted(found.names[0].tolist()) == ["a", "b"]
                except Exception as error:
                    failed.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for k in range(5):
            create(postgres, items(["a", "b"], columns={f"c{j}": [1.0, 2.0] for j in range(k % 3)})).close()
        for thread in threads:
            thread.join()
    assert not failed


def test_an_index_finds_nearly_all_and_under_a_selective_filter_all(postgres, monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(30, 16)), 60, axis=0) + 0.3 * rng.normal(size=(1800, 16))
    names = [f"{k:04}" for k in range(1800)]
    part = np.arange(1800) % 50
    monkeypatch.setattr("nearfar.index.postgres_store.APPROXIMATE_FROM", 1800)
    records = records_of(rows, names, columns={"part": part})
    queries = rows[::60] + 0.05
    index = Index(rows, names=names, columns={"part": part})
    with create(postgres, records) as store:
        assert store.engine() == "approximate (hnsw)"
        for where, least in (("", 0.95), ("part < 25", 0.95), ("part == 7", 1.0)):
            found = store.search(queries, 10, where=where)
            true = index.search(queries, 10, where=where)
            shares = [len({*a} & {*b}) / 10 for a, b in zip(found.names.tolist(), true.names.tolist(), strict=True)]
            assert np.mean(shares) >= least, where
        plan = "\n".join(row for (row,) in explained(store, queries[:1]))
        assert "_hnsw" in plan
        store.add(records_of(100 * np.eye(1, 16), ["far"], columns={"part": [7]}))
        assert store.search(np.eye(1, 16), 1).names.tolist() == [["far"]]
        store.remove(["far"])
        assert store.search(np.eye(1, 16), 1).names.tolist() != [["far"]]
        store.change(engine="exact")
        assert store.engine() == "exact"
        assert store.search(queries, 10).names.tolist() == index.search(queries, 10).names.tolist()


def explained(store, query):
    """How the server answers a query."""
    from psycopg.sql import SQL

    order = store._table.indexed(store.distance)
    statement = SQL("EXPLAIN SELECT name FROM {} ORDER BY {} LIMIT 10").format(store._table.name, order)
    return store._connection.execute(statement, [query[0].astype(np.float32)]).fetchall()


def test_commands_take_the_address_of_a_database(postgres, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", embeddings=np.eye(3), labels=["a", "b", "c"], names=["x", "y", "z"])
    np.savez("more.npz", embeddings=[[1.0, 1.0, 0.0]], labels=["d"], names=["w"])
    np.save("query.npy", [[0.9, 0.1, 0.0]])
    Path("shop.csv").write_text("name,price\nx,3\ny,\nz,5\n")
    code, out, _ = run(capsys, monkeypatch, "index", "rows.npz", "-o", postgres, "--columns", "shop.csv")
    assert (code, out) == (0, f"{postgres}: Index of 3 x 3, cosine, engine exact; 3 items embedded\n")
    code, _, err = run(capsys, monkeypatch, "index", "rows.npz", "-o", postgres)
    assert (code, " exists; add to it with --add" in err) == (2, True)
    code, out, _ = run(capsys, monkeypatch, "index", "more.npz", "-o", postgres, "--add", "--threshold", "0.9")
    assert (code, "Index of 4 x 3" in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "search", postgres, "query.npy", "-k", "3", "--where", "price < 9")
    assert (code, out.splitlines()[1].split(maxsplit=3)[3]) == (0, "x  (price 3)")
    code, out, _ = run(capsys, monkeypatch, "duplicates", postgres)
    assert code == 0
    code, out, _ = run(capsys, monkeypatch, "index", postgres, "-o", "copy.index")
    assert (code, out) == (0, f"copy.index: Index of 4 x 3, cosine, engine exact; copied from {postgres}\n")
    code, out, _ = run(capsys, monkeypatch, "index", "copy.index", "-o", f"{postgres}_back", "--engine", "hnsw")
    assert (code, "engine approximate (hnsw); copied from copy.index" in out) == (0, True)
    with nearfar.index.open("copy.index") as copy, nearfar.index.open(f"{postgres}_back") as back:
        names = sorted(copy.column("name").tolist())
        assert names == back.column("name").tolist()
        one = copy.get(names)
        other = back.get(names)
        np.testing.assert_array_equal(one.embeddings, other.embeddings)
        np.testing.assert_array_equal(one.columns["price"], other.columns["price"])
        assert one.labels.tolist() == other.labels.tolist()
        assert {**copy.about, "beside": ""} == {**back.about, "beside": ""}
    for words, told in (
        (["index", "-o", postgres, "--build"], "builds its own structures; it works only for a file"),
        (["index", "-o", postgres, "--check"], "is no file, and has no checksums of ours"),
        (["search", f"{postgres}_none", "query.npy"], "_none: no such index; `nearfar index RUN DATA -o postgresql://"),
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert (code, told in err, err.count("\n")) == (2, True, 1)
