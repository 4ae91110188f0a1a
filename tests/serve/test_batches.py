"""Questions that are answered together get the answers that each of them would get alone."""

import asyncio
import json
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient

from nearfar.index import create, open_store, records_of
from nearfar.serve import Collection, WrongLabels, make_app
from nearfar.serve.batches import MOST_TOGETHER, Batches
from tests.serve.test_api import answer_to, posted_raw, running, until

BASE = "http://127.0.0.1:8000"


def test_questions_that_come_meanwhile_are_answered_together_by_kind():
    asked = []

    async def answer(kind, questions):
        asked.append((kind, len(questions)))
        await asyncio.sleep(0.01)
        if kind == "broken":
            raise OSError("no disk")
        return [ValueError(one) if one == "bad" else f"{kind} {one}" for one in questions]

    async def ask():
        batches = Batches(answer)
        first = asyncio.create_task(batches.ask("a", "first"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        meanwhile = [batches.ask("a", one) for one in ["x", "bad", *map(str, range(MOST_TOGETHER))]]
        others = [batches.ask("b", "x"), batches.ask("broken", "x"), batches.ask("broken", "y")]
        left = asyncio.create_task(batches.ask("a", "left"))
        await asyncio.sleep(0)
        left.cancel()  # its client has gone
        found = await asyncio.gather(first, *meanwhile, *others, return_exceptions=True)
        again = await batches.ask("b", "y")
        return found, again, batches

    found, again, batches = asyncio.run(ask())
    assert found[:2] == ["a first", "a x"]
    assert isinstance(found[2], ValueError)
    assert found[3:-3] == [f"a {one}" for one in range(MOST_TOGETHER)]
    assert (found[-3], again) == ("b x", "b y")
    assert all(isinstance(one, OSError) for one in found[-2:])
    assert sorted(asked) == [("a", 1), ("a", 3), ("a", MOST_TOGETHER), ("b", 1), ("b", 1), ("broken", 2)]
    assert not batches._waiting


@pytest.mark.parametrize("graph", [False, True])
def test_searches_at_the_same_time_are_one_search_with_the_same_answers(tmp_path, monkeypatch, graph):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 8))
    path = tmp_path / "x.index"
    items = records_of(rows, [f"é{k}" for k in range(3000)], columns={"price": np.arange(3000.0)})
    with create(path, items) as store:
        if graph:
            pytest.importorskip("usearch")
            store.build()
    store = open_store(path)
    assert (store.engine() == "graph") == graph
    app = make_app(Collection(path, lambda: store), WrongLabels(tmp_path / "x.csv"))
    client = TestClient(app, base_url=BASE)
    queries = [*rng.normal(size=(12, 8)).tolist(), [0.0] * 8, [1.0] * 7]
    alone = [client.post("/api/search?k=5", json={"vector": query}) for query in queries]
    assert [one.status_code for one in alone] == [200] * 12 + [400, 400]

    sizes = []
    all_wait = threading.Event()
    search = store.search

    def slowly(found, *given, **how):
        sizes.append(len(found))
        if len(sizes) == 1:
            assert all_wait.wait(30)
        return search(found, *given, **how)

    monkeypatch.setattr(store, "search", slowly)
    together = {}

    def ask(place):
        body = json.dumps({"vector": queries[place]})
        together[place] = answer_to(port, posted_raw("/api/search?k=5", body), wait=30)

    waiting = app.state.searches._waiting
    with running(app) as port:
        threads = [threading.Thread(target=ask, args=[place]) for place in range(len(queries))]
        threads[0].start()
        assert until(lambda: sizes)
        for thread in threads[1:]:
            thread.start()
        assert until(lambda: sum(map(len, waiting.values())) == len(queries) - 1)
        all_wait.set()
        for thread in threads:
            thread.join()
    assert sizes == [1, 11]  # two of the others are refused
    for place, one in enumerate(alone):
        head, _, body = together[place].partition(b"\r\n\r\n")
        assert int(head.split()[1]) == one.status_code
        assert body == one.content


def test_a_name_that_is_no_text_is_escaped(tmp_path):
    path = tmp_path / "x.index"
    create(path, records_of(np.eye(2), ["a\udc80", "ü"])).close()
    client = TestClient(
        make_app(Collection(path, lambda: open_store(path)), WrongLabels(tmp_path / "x.csv")), base_url=BASE
    )
    found = client.post("/api/search?k=2", json={"vector": [1, 0.1]})
    assert [one["name"] for one in found.json()["neighbors"]] == ["a\udc80", "ü"]
    assert [one["name"] for one in client.get("/api/items").json()["items"]] == ["a\udc80", "ü"]
