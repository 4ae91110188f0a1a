"""Searches whose first hits are compared with an image part by part: answers, refusals, limits."""

import asyncio
import json
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from nearfar.index import create, open_store
from nearfar.serve.comparing import PICTURES_OF_A_TURN
from nearfar.serve.parameters import MAX_COMPARED
from tests.serve.conftest import SIDE, Patches, as_bytes, drawn, embeds, mean_color
from tests.serve.test_api import SERVERS, answer_to, running, until

BASE = "http://127.0.0.1:8000"


@pytest.fixture
def client(app_of):
    return TestClient(app_of(), base_url=BASE)


def test_the_answers_are_those_of_the_command(photos, client, monkeypatch):
    from nearfar.index import search

    monkeypatch.setattr("nearfar.index.searching.model_of", lambda store, run: Patches())
    drawn(99).save("query.png")
    assert client.get("/api/about").json()["places"] is True
    for rerank, more in (("places", {}), ("places(first=5, weight=0.8)", {"where": "price > 2"})):
        with open_store("photos.index") as store:
            by_image = search(store, "query.png", k=4, rerank=rerank, **more)
            by_item = search(store, "photos/03.png", k=4, rerank=rerank, exclude_self=True, **more)
            in_groups = search(store, "photos/03.png", k=4, rerank=rerank, exclude_self=True, group_by="shop", **more)
        asked = {"k": 4, "rerank": rerank, **more}
        content = (photos / "query.png").read_bytes()
        of_item = {**asked, "name": "photos/03.png"}
        for found, answer in (
            (by_image, client.post("/api/search", params=asked, content=content)),
            (by_item, client.get("/api/neighbors", params=of_item)),
            (in_groups, client.get("/api/neighbors", params={**of_item, "group_by": "shop"})),
        ):
            assert answer.status_code == 200, answer.text
            assert answer.json()["threshold"] is None
            neighbors = answer.json()["neighbors"]
            assert [one["name"] for one in neighbors] == found.hits.names[0].tolist()
            distances = [one["distance"] for one in neighbors]
            np.testing.assert_allclose(distances, found.hits.distances[0], atol=1e-6)
            for one, position in zip(neighbors, found.hits.positions[0].tolist(), strict=True):
                matches = found.matched.of_hits[0, position]
                assert (one["places"]["matching"], one["places"]["of"]) == (len(matches.query), SIDE * SIDE)
                for side, places in (("query", matches.query), ("item", matches.item)):
                    # the central 32 x 32 pixels of 48 x 32 are seen, in cells of 8
                    rows, columns = places.T
                    boxes = np.reshape(one["places"][side], (-1, 4)) * (48, 32, 48, 32)
                    expected = np.stack([8 + 8 * columns, 8 * rows, 16 + 8 * columns, 8 + 8 * rows], axis=1)
                    np.testing.assert_allclose(boxes, expected, atol=0.01)


def test_an_image_matches_itself_wherever_it_is_seen(client):
    answer = client.post("/api/search?k=1&rerank=places", content=as_bytes(drawn(7, (96, 64))))
    first = answer.json()["neighbors"][0]
    assert (first["name"], first["places"]["matching"]) == ("photos/07.png", SIDE * SIDE)
    assert first["distance"] == pytest.approx(0, abs=1e-6)
    assert first["places"]["query"] == first["places"]["item"]  # in shares, whatever the sizes
    plain = client.post("/api/search?k=1", content=as_bytes(drawn(7)))
    assert "places" not in plain.json()["neighbors"][0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("rerank=csls", "rerank: expected places, or with settings places(first=20), got 'csls'"),
        ("rerank=placesx", "expected places"),
        ("rerank=places(", "rerank: "),
        ("rerank=places(hits=3)", "hits"),
        ("rerank=places(first=0)", "first must be a whole number of at least 1, got 0"),
        ("rerank=places(weight=2)", "weight: expected a number in 0..1, got 2"),
        (f"rerank=places(first={MAX_COMPARED + 1})", f"first: expected up to {MAX_COMPARED} hits"),
        (f"rerank=places&k={MAX_COMPARED + 1}", f"k: expected up to {MAX_COMPARED} hits"),
        ("rerank=places&within=0", "within: does not work with rerank"),
        ("rerank=places&words=red", "words: does not work with rerank"),
        ("rerank=places&rerank=places", "rerank: expected one value, got several"),
    ],
)
def test_options_that_do_not_work_cost_one_line(client, words, told):
    for answer in (client.post(f"/api/search?{words}", content=b"x"), client.get(f"/api/neighbors?name=x&{words}")):
        assert answer.status_code == 400
        assert told in answer.json()["error"]
        assert "\n" not in answer.json()["error"]


def test_where_no_places_can_be_compared_is_said_in_one_line(photos, app_of, monkeypatch):
    class Flat(Patches):
        def embed(self, items, *, layer="embedding", prompt=None):
            if layer == "places":
                raise NotImplementedError("Flat has no map of images, and no patches")
            return super().embed(items)

    with open_store("photos.index") as store:
        records = store.in_memory().records()
    create("far.index", records, distance="euclidean").close()
    data = as_bytes(drawn(3))
    for how, told in (
        ({"index": "far.index"}, "rerank: places needs distance='cosine', got 'euclidean'"),
        ({"model": embeds(image=mean_color)}, "rerank: places needs a network that embeds images"),
        ({"model": embeds(text=mean_color)}, "rerank: places needs a network that embeds images"),
        ({"model": Flat()}, "rerank: places: Flat has no map of images, and no patches"),
        ({"read": False}, "rerank: places needs the pictures of the items"),
    ):
        client = TestClient(app_of(**how), base_url=BASE)
        assert client.get("/api/about").json()["places"] is False
        for answer in (
            client.post("/api/search?rerank=places", content=data),
            client.get("/api/neighbors?rerank=places&name=photos/03.png"),
        ):
            assert (answer.status_code, told in answer.json()["error"]) == (400, True), answer.text
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    client = TestClient(app_of(index="far.index"), base_url=BASE)
    create("far.index", records, distance="cosine", about={"weights": "those of another run"}).close()
    assert client.get("/api/about").json()["places"] is False
    answer = client.get("/api/neighbors?rerank=places&name=photos/03.png")
    assert (answer.status_code, "another model" in answer.text) == (503, True)
    client = TestClient(app_of(), base_url=BASE)
    numbers = client.post("/api/search?rerank=places", json={"vector": [1, 2, 3]})
    assert (numbers.status_code, "needs an image as the query, got numbers" in numbers.text) == (400, True)
    for path in ("search-text", "search-batch"):
        answer = client.post(f"/api/{path}?rerank=places", json={})
        assert (answer.status_code, "there is no parameter 'rerank'" in answer.text) == (400, True)
    assert client.get("/api/neighbors?rerank=places&name=nothing").status_code == 404
    assert client.post("/api/search?rerank=places", content=b"no image").status_code == 415


@pytest.mark.parametrize("harm", ["gone", "damaged", "outside"])
def test_a_picture_that_cannot_be_read_is_named_without_its_folder(photos, app_of, tmp_path_factory, harm):
    client = TestClient(app_of(), base_url=BASE)
    file = photos / "photos" / "05.png"
    if harm == "damaged":
        file.write_bytes(b"no image")
    else:
        file.unlink()
    if harm == "outside":
        other = tmp_path_factory.mktemp("other") / "05.png"
        drawn(5).save(other)
        file.symlink_to(other)
    answer = client.post("/api/search?rerank=places", content=as_bytes(drawn(5)))
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "rerank: the picture of 'photos/05.png' cannot be read; leave out rerank",
    )
    assert (
        client.post("/api/search?rerank=places&where=name<'photos/05'", content=as_bytes(drawn(5))).status_code == 200
    )
    assert client.post("/api/search", content=as_bytes(drawn(5))).status_code == 200


@pytest.mark.parametrize("which", ["query", "last"])
def test_images_of_different_sizes_need_a_network_that_resizes(app_of, which):
    class AsTheyAre(Patches):
        def embed(self, items, *, layer="embedding", prompt=None):
            found = super().embed(items, layer=layer)
            other = items.names[0] == "upload" if which == "query" else "photos/11.png" in items.names
            return found[:, :, :3] if layer == "places" and other else found

    client = TestClient(app_of(model=AsTheyAre()), base_url=BASE)
    answer = client.post("/api/search?rerank=places", content=as_bytes(drawn(5)))
    assert (answer.status_code, "images of one size" in answer.text, "4 x 3 and 4 x 4" in answer.text) == (
        400,
        True,
        True,
    )


def test_an_empty_answer_compares_nothing(app_of):
    network = Patches()
    client = TestClient(app_of(model=network), base_url=BASE)
    answer = client.post("/api/search?rerank=places&where=price<0", content=as_bytes(drawn(5)))
    assert (answer.status_code, answer.json()["neighbors"]) == (200, [])
    assert network.read == []


def test_few_pictures_are_read_in_a_turn_and_others_come_in_between(app_of):
    class Slow(Patches):
        def embed(self, items, *, layer="embedding", prompt=None):
            if layer == "places" and len(items) > 1:
                compared.set()
                assert go.wait(30)
            return super().embed(items, layer=layer)

    go, compared = threading.Event(), threading.Event()
    network = Slow()
    app = app_of(model=network)
    with running(app) as port:
        data = as_bytes(drawn(5))
        answers = []

        def ask(path):
            head = (
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
            )
            answers.append((path, answer_to(port, head.encode() + data, wait=30)))

        first, second = (
            threading.Thread(target=ask, args=(f"/api/search?k={k}&rerank=places(first=9)",)) for k in (1, 2)
        )
        first.start()
        assert compared.wait(30)
        picture = b"GET /api/picture?name=photos/05.png HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert answer_to(port, picture, wait=30).startswith(b"HTTP/1.1 200")  # in the other turn
        assert not answers
        second.start()
        go.set()
        for thread in (first, second):
            thread.join(30)
    assert [answer[:12] for _, answer in answers] == [b"HTTP/1.1 200"] * 2
    sizes = [len(names) for names in network.read]
    assert max(sizes) == PICTURES_OF_A_TURN
    assert sizes == [1, 4, 4, 1] * 2  # one comparison after the other


def test_a_comparison_that_takes_too_long_or_that_nobody_waits_for_ends(app_of):
    data = as_bytes(drawn(5))
    network = Patches()
    client = TestClient(app_of(model=network, rerank_seconds=-1.0), base_url=BASE)
    answer = client.post("/api/search?rerank=places", content=data)
    assert (answer.status_code, "took longer than -1 s; compare fewer hits" in answer.text) == (503, True)
    assert network.read == []
    assert answer.headers["retry-after"] == "1"

    app = app_of(model=network)
    comparisons = app.state.comparisons
    collection = comparisons._collection
    served = collection.served()
    hits = served.store.search(np.ones((1, 3)), 9)
    times = []

    async def left():
        times.append(len(network.read))
        return len(times) > 2

    async def compare():
        asked = collection.uploaded(data)
        how = SimpleNamespace(first=9, weight=0.5, tolerance=1)
        await comparisons.ranked(served, hits, 4, how, asked, pixels=1, left=left)

    with pytest.raises(HTTPException, match="the connection was closed"):
        asyncio.run(compare())
    assert times == [0, 1, 2]


def test_a_server_that_stops_compares_no_more(app_of):
    class Slow(Patches):
        def embed(self, items, *, layer="embedding", prompt=None):
            if layer == "places":
                compared.set()
                assert go.wait(30)
            return super().embed(items, layer=layer)

    go, compared = threading.Event(), threading.Event()
    app = app_of(model=Slow())
    with running(app) as port:
        data = as_bytes(drawn(5))
        head = f"POST /api/search?rerank=places HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
        answers = []
        thread = threading.Thread(target=lambda: answers.append(answer_to(port, head.encode() + data, wait=30)))
        thread.start()
        assert compared.wait(30)
        SERVERS[port].should_exit = True
        assert until(lambda: app.state.comparisons._decodings._stopping)
        go.set()
        thread.join(30)
    assert answers[0].startswith(b"HTTP/1.1 503")
    assert b"the server is stopping" in answers[0]


def test_options_of_the_api_are_described_accepted_and_on_the_page(client):
    """Every described parameter is one that its route knows; the page has a control for every option of a search."""
    paths = client.get("/openapi.json").json()["paths"]
    described = {
        (path, method): {one["name"] for one in operation.get("parameters", [])}
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    for (path, method), names in described.items():
        if names:
            answer = client.request(method, path, params={"no_such_option": 1}, json={} if method == "post" else None)
            assert answer.status_code == 400
            known = answer.json()["error"].partition("there are ")[2].split(", ")
            assert names <= {*known}, path
    page = client.get("/static/page.js").text
    sent = {*re.findall(r'query\.set\("(\w+)"', page), *re.findall(r"URLSearchParams\(\{ (\w+)", page)}
    options = described["/api/search", "post"]
    assert options - {"within"} <= sent  # the slider hides what is beyond
    assert 'id="within"' in client.get("/").text
    assert sent <= set.union(*described.values())


def test_the_description_says_what_an_answer_has(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    answer = client.post("/api/search?k=2&rerank=places", content=as_bytes(drawn(5))).json()
    for neighbor in answer["neighbors"]:
        assert {*neighbor["places"]} == {*schemas["Places"]["required"]} == {*schemas["Places"]["properties"]}
        assert len(neighbor["places"]["query"]) == len(neighbor["places"]["item"]) == neighbor["places"]["matching"]
        assert all(0 <= side <= 1 for box in neighbor["places"]["item"] for side in box)
    assert json.dumps(answer).count("query") == 2
