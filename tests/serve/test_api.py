"""The JSON API: what it finds, whom it answers, what it refuses."""

import json
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from nearfar import RCA, models
from nearfar.index import QueryAdapter, build, create, open_store, records_of, undo_upgrade, upgrade
from nearfar.serve import Collection, Limits, WrongLabels, make_app, marks, open_app
from nearfar.serve import server as serve_server
from nearfar.serve.server import listen
from tests.commands import run
from tests.serve.conftest import COLORS, Image, embeds, mean_color

TAKES_NO_TEXT = "the model of this index does not embed texts; search by an image or an item"
BASE = "http://127.0.0.1:8000"
JSON = {"content-type": "application/json"}
TOKEN = "sixteen-letters-long"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def client(build):
    return TestClient(build(), base_url=BASE)


def picture(color, size=(60, 40), kind="PNG"):
    out = BytesIO()
    Image.new("RGB", size, color).save(out, kind)
    return out.getvalue()


def names(answer):
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["neighbors"]]


def test_a_photo_finds_its_color(client):
    answer = client.post("/api/search?k=10", content=picture((195, 45, 45), kind="JPEG"))
    found = answer.json()["neighbors"]
    assert len(found) == 10
    assert {one["class"] for one in found[:8]} == {"red"}
    assert all(one["match"] for one in found[:8])
    assert not any(one["match"] for one in found[8:])
    assert answer.json()["threshold"] == 60
    assert [one["distance"] for one in found] == sorted(one["distance"] for one in found)


def test_filters_groups_and_thresholds_of_a_search(client):
    photo = picture((200, 40, 40))
    found = client.post("/api/search", params={"k": 50, "where": "price >= 8 and price < 16"}, content=photo)
    assert {one["class"] for one in found.json()["neighbors"]} == {"green"}
    found = client.post("/api/search", params={"k": 50, "group_by": "product"}, content=photo).json()["neighbors"]
    assert len({one["columns"]["product"] for one in found}) == len(found) == 12
    found = client.post("/api/search", params={"k": 50, "within": 1e-6}, content=photo).json()["neighbors"]
    assert not any(one["match"] for one in found)


def test_items_are_browsed_shown_and_their_neighbors_found(client):
    about = client.get("/api/about").json()
    assert (about["items"], about["classes"], about["distance"], about["text"]) == (24, 3, "euclidean", False)
    assert about["columns"] == {"price": "number", "product": "text", "name": "text", "label": "text"}
    classes = client.get("/api/classes?begins=G").json()
    assert classes == {"total": 1, "offset": 0, "next": None, "classes": [{"name": "green", "items": 8}]}
    items = client.get("/api/items", params={"class": "blue", "offset": 6, "where": "price > 2"}).json()
    assert (items["total"], [one["name"] for one in items["items"]]) == (8, ["blue/6.png", "blue/7.png"])
    item = client.get("/api/item?name=red/3.png").json()
    assert item == {"name": "red/3.png", "class": "red", "columns": {"price": 3, "product": "p1"}, "marked": None}
    near = names(client.get("/api/neighbors?name=red/3.png&k=7"))
    assert sorted(near) == [f"red/{k}.png" for k in range(8) if k != 3]  # the item itself is left out
    grouped = client.get("/api/neighbors?name=red/3.png&k=11&group_by=product").json()["neighbors"]
    assert len({one["columns"]["product"] for one in grouped}) == 11
    assert "p1" not in {one["columns"]["product"] for one in grouped}  # and so is its group
    shown = client.get("/api/picture?name=red/3.png&side=32")
    assert shown.headers["content-type"] == "image/jpeg"
    assert Image.open(BytesIO(shown.content)).size == (32, 21)
    for wanted in ("/api/item", "/api/neighbors", "/api/picture"):
        assert client.get(f"{wanted}?name=../secret").status_code == 404


@pytest.mark.parametrize("labels", [list("abcab"), [3, 5, 3, 7, 5], ["a\\\n\"'", "", "", "ä", "0"]])
def test_pages_of_items_and_classes_add_up_to_the_whole_and_read_no_more(tmp_path, monkeypatch, labels):
    path = tmp_path / "x.index"
    create(path, records_of(np.eye(5), list("vwxyz"), labels=labels)).close()
    store = open_store(path)
    read = []
    column = store.column

    def counted(*given, **how):
        found = column(*given, **how)
        read.append(len(found))
        return found

    monkeypatch.setattr(store, "column", counted)
    client = TestClient(make_app(Collection(path, lambda: store), WrongLabels(tmp_path / "x.csv")), base_url=BASE)

    def pages(address, key, **asked):
        found = []
        offset = 0
        while offset is not None:
            page = client.get(address, params={**asked, "offset": offset, "limit": 2}).json()
            found += [one["name"] for one in page[key]]
            offset = page["next"]
        assert page["total"] == len(found)
        return found

    assert pages("/api/items", "items") == list("vwxyz")
    for label in {*map(str, labels), "none", "-0", "3.0"}:
        expected = [name for name, one in zip("vwxyz", labels, strict=True) if str(one) == label]
        assert pages("/api/items", "items", **{"class": label}) == expected, label
        assert pages("/api/items", "items", **{"class": label, "where": "name > 'w'"}) == [
            n for n in expected if n > "w"
        ]
    assert max(read) <= 2
    classes = sorted({*map(str, labels)} - {""})
    assert pages("/api/classes", "classes") == classes
    assert client.get("/api/classes?limit=201").status_code == 400


def test_a_file_that_is_no_item_is_not_shown(client, folder):
    Image.new("RGB", (9, 9)).save(folder / "secret.png")
    assert client.get("/api/picture?name=secret.png").status_code == 404


def test_pictures_outside_of_the_folder_of_the_index_are_not_shown(folder):
    """Names, data and folder of an index are those of a stranger."""
    from nearfar.data import images_from
    from nearfar.serve import open_app

    (folder / "given").mkdir()
    paths = ["red/0.png", "../red/0.png", str(folder / "red/0.png")]
    about = {"folder": str(folder), "beside": "..", "data": '["red"]'}
    create(folder / "given/x.index", records_of(np.eye(3), paths), distance="cosine", about=about).close()
    app = open_app(folder / "given/x.index", run=None, wrong=folder / "x.csv", hosts=["127.0.0.1"], token="")
    client = TestClient(app, base_url=BASE)

    def statuses():
        return [client.get("/api/picture", params={"name": name}).status_code for name in paths]

    assert statuses() == [404, 404, 404]
    with images_from(folder):
        assert statuses()[::2] == [200, 200]


def test_an_index_is_searched_by_numbers(build, client):
    red = {"vector": [72.0, -88.0, -88.0]}
    assert names(client.post("/api/search?k=1", json=red))[0].startswith("red/")
    for body, status, told in (
        ({"vector": [1.0]}, 400, "expected 3 numbers, as the embeddings of the index have, got 1"),
        ({"vector": "1"}, 400, 'expected {"vector": [0.1, ...]}'),
        ({"vector": [1, None, 2]}, 400, 'expected {"vector": [0.1, ...]}'),
        ({"vector": [1e300, 0, 0]}, 400, 'expected {"vector": [0.1, ...]}'),
        ({}, 400, 'expected {"vector": [0.1, ...]}'),
        ({"row": [1, 2]}, 501, 'the model of this index does not embed rows; send {"vector": [...]}'),
    ):
        answer = client.post("/api/search", json=body)
        assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
    taking = TestClient(build(model=embeds(row=lambda items: items.array @ np.ones((2, 3)))), base_url=BASE)
    assert taking.get("/api/about").json()["rows"]
    assert len(names(taking.post("/api/search?k=4", json={"row": [3, 4]}))) == 4


def test_a_query_of_zeros_is_refused_under_cosine_distance(folder):
    from nearfar.serve import open_app

    for distance, status in (("cosine", 400), ("euclidean", 200)):
        file = folder / f"{distance}.index"
        create(file, records_of(np.eye(3), ["a", "b", "c"]), distance=distance).close()
        app = open_app(file, run=None, wrong=folder / "x.csv", hosts=["127.0.0.1"], token="")
        for vector in ([0, 0, 0], [1e-60, 0, -0.0]):
            answer = TestClient(app, base_url=BASE).post("/api/search", json={"vector": vector})
            assert answer.status_code == status
    told = TestClient(app, base_url=BASE).post("/api/search?k=1", json={"vector": [0, 0, 0]})
    assert told.json()["neighbors"][0]["distance"] == 1


def test_a_text_is_searched_where_the_model_takes_texts(build, client):
    answer = client.post("/api/search-text", json={"text": "red"})
    assert (answer.status_code, answer.json()) == (501, {"error": TAKES_NO_TEXT})
    speaking = TestClient(build(model=embeds(text=lambda items: np.array([[-88.0, -58.0, 72.0]]))), base_url=BASE)
    assert names(speaking.post("/api/search-text?k=1", json={"text": "blue"}))[0].startswith("blue/")
    assert speaking.get("/api/about").json()["text"]
    for text in ("", "  ", 3, None):
        answer = speaking.post("/api/search-text", json={"text": text})
        assert (answer.status_code, answer.json()["error"]) == (
            400,
            'expected {"text": "red shoes"}, with at least one word',
        )
    answer = speaking.post("/api/search-text", json={"text": "word " * 3000})
    assert (answer.status_code, answer.json()["error"]) == (413, "expected at most 10,000 bytes")
    assert speaking.post("/api/search-text", content=b"red").status_code == 415


def test_wrong_labels_are_kept_in_a_table_that_runs_nothing(client, folder):
    answer = client.post("/api/wrong", json={"name": "red/3.png", "right": "=cmd|' /C calc'!A0"})
    assert (answer.status_code, answer.json()["marked"]) == (201, "=cmd|' /C calc'!A0")
    client.post("/api/wrong", json={"name": "red/4.png"})
    lines = (folder / "colors.wrong.csv").read_text().splitlines()
    assert lines[0] == "name,class,right,time"
    assert lines[1].startswith("red/3.png,red,'=cmd|")
    assert WrongLabels(folder / "colors.wrong.csv").right("red/3.png") == "=cmd|' /C calc'!A0"
    assert client.get("/api/item?name=red/4.png").json()["marked"] == ""
    assert client.post("/api/wrong", json={"name": "nothing"}).status_code == 404
    (folder / "colors.wrong.csv").write_text("something,else\n")
    with pytest.raises(ValueError, match="expected a table with the columns name, class, right, time"):
        WrongLabels(folder / "colors.wrong.csv")


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"", 400, "the body is empty; expected an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "the body cannot be decoded"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "the body cannot be decoded"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 40, 415, "the body cannot be decoded"),
        (b"\xff" * 300_001, 413, "expected at most 300,000 bytes"),
    ],
)
def test_hostile_uploads_are_refused(client, content, status, told):
    answer = client.post("/api/search", content=content)
    assert answer.status_code == status
    assert told in answer.json()["error"]


def test_a_picture_of_too_many_pixels_is_refused_undecoded(client, build):
    answer = client.post("/api/search", content=picture((1, 2, 3), (1001, 1000)))
    assert (answer.status_code, "1,001 x 1,000 pixels" in answer.json()["error"]) == (413, True)
    head = picture((1, 2, 3), (10, 10))
    huge = head[:16] + (100_000).to_bytes(4, "big") * 2 + head[24:]
    import zlib

    huge = huge[:29] + zlib.crc32(huge[12:29]).to_bytes(4, "big") + huge[33:]
    assert client.post("/api/search", content=huge).status_code == 413
    for size in ((1, 101), (101, 1)):  # resized to 224 pixels at the shorter side, the other has 22,624
        answer = client.post("/api/search", content=picture((1, 2, 3), size))
        assert (answer.status_code, "up to 100 times the other" in answer.json()["error"]) == (413, True)
    assert client.post("/api/search", content=picture((1, 2, 3), (100, 1))).status_code == 200
    cut = picture((1, 2, 3), (900, 900), "JPEG")[:1500]
    assert client.post("/api/search", content=cut).status_code == 415
    strict = TestClient(build(), base_url=BASE)
    assert strict.post("/api/search", content=picture((1, 2, 3))).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Host": "127.0.0.1.evil.example:8000"}, 400),
        ({"Host": ""}, 400),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": BASE}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_requests_of_other_sites_are_refused(client, headers, status):
    assert client.get("/api/about", headers=headers).status_code == status
    body = {"name": "red/3.png"}
    assert client.post("/api/wrong", json=body, headers=headers).status_code == {200: 201}.get(status, status)


def test_a_form_of_another_site_marks_nothing(client, folder):
    answer = client.post("/api/wrong", content='{"name": "red/3.png"}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415
    assert not (folder / "colors.wrong.csv").exists()


def test_without_the_token_nothing_is_told(build):
    token = "a-token-of-some-length"
    client = TestClient(build(token=token), base_url=BASE, follow_redirects=False)
    for path in ("/", "/api/about", "/static/page.js", "/openapi.json", "/docs", "/metrics", "/?token=wrong"):
        assert client.get(path).status_code == 401
    assert client.get("/health").status_code == 200
    assert client.get("/api/about", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    opened = client.get(f"/?token={token}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert "httponly" in opened.headers["set-cookie"].lower()
    assert "samesite=strict" in opened.headers["set-cookie"].lower()
    assert client.get("/api/about").status_code == 200  # by the cookie


@pytest.mark.parametrize(
    "words",
    ["k=0", "k=x", "k=99999", "within=-1", "within=nan", "where=prise<3", "where=price<", "group_by=x", "name=", ""],
)
def test_wrong_questions_cost_one_line(client, words):
    answer = client.get(
        f"/api/neighbors?{words}" if words.startswith("name") or not words else f"/api/neighbors?name=red/3.png&{words}"
    )
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]


def test_every_answer_has_a_strict_policy(client):
    for path in ("/", "/docs", "/api/about", "/nothing", "/api/item?name=x"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; img-src 'self' blob:; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_the_pages_need_nothing_from_elsewhere(client):
    for path in ("/", "/docs", "/static/page.css", "/static/page.js", "/static/api.js"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert not re.search(r"https?://", answer.text)
        assert not re.search(r"<script>|<style|\son\w+=|style=", answer.text)


def test_openapi_describes_every_route_of_the_api(client, build):
    for app, headers in ((build(), {}), (build(token=TOKEN, writes=True), BEARER)):
        answer = TestClient(app, base_url=BASE).get("/openapi.json", headers=headers)
        routes = {route.path: route.methods - {"HEAD"} for route in app.routes if route.path[:4] in ("/api", "/v1/")}
        paths = answer.json()["paths"]
        assert {path: {method.upper() for method in one} for path, one in paths.items()} == routes
        schemas = answer.json()["components"]["schemas"]
        assert all(name in schemas for name in re.findall(r"#/components/schemas/(\w+)", answer.text))


def test_metrics_count_requests_by_path(client):
    client.get("/api/about")
    client.get("/api/item?name=nothing")
    client.get("/" + "x" * 50)
    text = client.get("/metrics").text
    assert 'nearfar_requests_total{path="/api/about",status="200"} 1' in text
    assert 'nearfar_requests_total{path="/api/item",status="404"} 1' in text
    assert 'path="other",status="404"' in text
    assert "nearfar_items 24" in text


def test_wrong_paths_and_methods_point_to_the_documentation(client):
    missing = client.get("/api/search-by-image")
    assert (missing.status_code, missing.json()["error"]) == (404, "there is no such path; /docs describes the API")
    wrong = client.get("/api/search")
    assert (wrong.status_code, "POST or GET; /docs describes the API" in wrong.json()["error"]) == (405, True)
    assert client.get("/static/none.js").json()["error"] == "no such file"


def test_a_change_of_the_index_is_served_soon(client, folder, monkeypatch):
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    with open_store(folder / "colors.index", "w") as store:
        store.add(records_of([[0.0, 0.0, 0.0]], ["gray.png"], labels=["gray"]))
    assert client.get("/api/about").json()["items"] == 25
    assert client.get("/api/classes?begins=gray").json()["total"] == 1


@pytest.mark.parametrize("way", ["emptied", "made"])
def test_an_empty_index_is_served(client, folder, monkeypatch, way):
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    path = folder / "colors.index"
    if way == "made":
        create(path, records_of(np.empty((0, 3)), []), distance="euclidean").close()
    else:
        with open_store(path, "w") as store:
            store.remove(store.column("name"))
    for _ in range(2):
        assert client.get("/").status_code == 200
        assert client.get("/api/about").json()["items"] == 0
        assert client.get("/api/classes").json()["total"] == 0
        found = client.post("/api/search", content=picture(COLORS["red"]))
        assert (found.status_code, names(found)) == (200, [])
        assert client.get("/api/neighbors?name=red/3.png").status_code == 404
    with open_store(path, "w") as store:
        store.add(records_of([[0.0, 0.0, 0.0]], ["gray.png"], labels=["gray"]))
    assert client.get("/api/about").json()["items"] == 1
    assert client.get("/api/classes?begins=gray").json()["total"] == 1


def test_an_index_of_another_model_is_not_searched_with_the_old_one(client, folder, monkeypatch):
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    path = folder / "colors.index"
    with open_store(path) as store:
        records = store.in_memory().records()
    create(path, records, distance="euclidean", about={"weights": "those of another run"}).close()
    refused = client.post("/api/search", content=picture(COLORS["red"]))
    assert refused.status_code == 503
    assert "another model" in refused.json()["error"]
    assert client.get("/api/neighbors?name=red/3.png&k=2").status_code == 200


def test_a_new_model_is_served_when_it_is_loaded_and_the_old_one_meanwhile(tmp_path, monkeypatch):
    """An upgrade and its undoing are noticed without a restart; each request is answered by one model and its index."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    rows = rng.normal(size=(4, 6))[labels] + 0.3 * rng.normal(size=(40, 6))
    np.savez("rows.npz", X=rows, y=labels)
    RCA().fit(rows, labels).save("old.safetensors")
    RCA(n_components=3).fit(rows, labels).save("new.safetensors")
    build("old.safetensors", "rows.npz", "x.index")
    client = TestClient(open_app("x.index"), base_url=BASE)
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    asked = {"row": rows[7].tolist()}

    def nearest():
        answer = client.post("/api/search?k=2", json=asked)
        assert answer.status_code == 200, answer.text
        found = answer.json()["neighbors"]
        assert (found[0]["name"], found[0]["distance"] < 1e-4) == ("rows[7]", True)
        return client.get("/api/about").json()["dimensions"], round(found[1]["distance"], 3)

    old = nearest()
    loading = threading.Event()
    load = models.load

    def slowly(source):
        assert loading.wait(30)
        return load(source)

    monkeypatch.setattr("nearfar.index.searching.load", slowly)
    monkeypatch.setattr("nearfar.serve.collection.OPEN_WAIT", 0.0)
    upgrade("x.index", "new.safetensors")
    assert nearest() == nearest() == old
    loading.set()
    until = time.monotonic() + 30
    while nearest() == old:
        assert time.monotonic() < until
    assert nearest()[0] == 3
    undo_upgrade("x.index")
    while nearest() != old:
        assert time.monotonic() < until

    def failing(source):
        raise FileNotFoundError(f"{source}: no such model")

    monkeypatch.setattr("nearfar.index.searching.load", failing)
    upgrade("x.index", "new.safetensors")
    for _ in range(3):
        assert nearest() == old


@pytest.mark.parametrize("damaged", [True, False])
def test_an_index_that_cannot_be_opened_again_is_served_as_it_was(client, folder, monkeypatch, capsys, damaged):
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    if damaged:
        (folder / "colors.index").write_bytes(b"no index")
    else:
        (folder / "colors.index").unlink()
    for _ in range(3):
        assert len(names(client.post("/api/search?k=2", content=picture(COLORS["red"])))) == 2
    assert capsys.readouterr().err.count("the index that was opened before is still served") == 1


def test_items_without_classes_and_pictures_are_served(client, folder, monkeypatch):
    assert client.get("/api/about").json()["pictures"]
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    rows = records_of([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], ["a", "b", "c"], labels=["", "", "x"])
    create(folder / "colors.index", rows, distance="euclidean").close()
    about = client.get("/api/about").json()
    assert (about["classes"], about["pictures"]) == (1, False)
    assert client.get("/api/classes").json()["classes"] == [{"name": "x", "items": 1}]


def test_no_message_shows_where_the_index_is(folder, monkeypatch):
    """Clients of a server need not know the user and the machine of its database, nor its folders."""
    file = folder / "colors.index"
    address = "postgresql://me@db.example.com:5432/shop?user=you#photos"
    path = Path("postgresql://db.example.com/shop?user=me#photos")
    client = TestClient(
        make_app(Collection(path, lambda: open_store(file)), WrongLabels(folder / "x.csv")), base_url=BASE
    )
    for place in (address, str(path), f"{path}?id=sku", str(file), address.replace("postgresql", "postgres")):
        message = f"columns: {place}: PostgreSQL: invalid input"

        def failing(store, names, message=message):
            raise ValueError(message)

        monkeypatch.setattr("nearfar.index.file_store.FileStore.get", failing)
        answer = client.get("/api/item?name=a")
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("columns: photos")
        for secret in ("me", "db.example", "you", str(folder)):
            assert secret not in answer.json()["error"]


def test_requests_are_counted_while_the_index_cannot_be_read(build, monkeypatch):
    def failing(store, where=""):
        raise OSError("no answer")

    monkeypatch.setattr("nearfar.index.file_store.FileStore.count", failing)
    client = TestClient(build(), base_url=BASE)
    assert client.get("/api/item?name=red/0.png").status_code == 200
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert "nearfar_items NaN" in answer.text
    assert 'path="/api/item",status="200"' in answer.text


def test_a_misspelled_parameter_is_refused(client):
    refused = client.get("/api/items?were=price<3")
    assert refused.status_code == 400
    assert refused.json()["error"] == "there is no parameter 'were'; there are where, class, offset, limit"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("items?limit=3&limit=4", "limit"),
        ("neighbors?name=red/3.png&k=3&k=4", "k"),
        ("neighbors?name=red/3.png&name=red/4.png", "name"),
        ("item?name=red/3.png&name=red/3.png", "name"),
        ("classes?begins=r&begins=b", "begins"),
        ("picture?name=red/3.png&side=20&side=30", "side"),
    ],
)
def test_a_parameter_that_is_given_twice_is_refused(client, path, name):
    answer = client.get(f"/api/{path}")
    assert (answer.status_code, answer.json()["error"]) == (400, f"{name}: expected one value, got several")


def test_a_form_with_an_image_is_told_what_is_expected(client):
    refused = client.post("/api/search", files={"file": picture(COLORS["red"])})
    assert refused.status_code == 415
    assert "--data-binary" in refused.json()["error"]


def test_small_distances_keep_their_digits(client, folder, monkeypatch):
    monkeypatch.setattr("nearfar.serve.collection.LOOK_EVERY", 0.0)
    with open_store(folder / "colors.index", "w") as store:
        row = store.get(["red/3.png"]).embeddings
        store.add(records_of(row + np.float32(1e-5), ["near.png"], labels=["red"]))
    near = client.get("/api/neighbors?name=red/3.png&k=1").json()["neighbors"][0]
    assert near["name"] == "near.png"
    assert 1e-6 < near["distance"] < 1e-4
    assert near["distance"] != round(near["distance"], 6)


def test_the_table_of_marks_is_limited_in_its_lines_after_a_restart_too(folder, monkeypatch):
    monkeypatch.setattr(marks, "MAX_MARKS", 3)
    path = folder / "colors.wrong.csv"
    for right in ("blue", "green", "blue"):
        WrongLabels(path).add("red/1.png", "red", right)  # one item, three lines
    with pytest.raises(ValueError, match="is full with 3 marks"):
        WrongLabels(path).add("red/2.png", "red", "blue")
    assert WrongLabels(path).right("red/1.png") == "blue"
    assert len(WrongLabels(path)) == 1


def test_a_mark_after_a_line_that_was_cut_off_is_kept(folder):
    path = folder / "colors.wrong.csv"
    WrongLabels(path).add("red/1.png", "red", "blue")
    path.write_bytes(path.read_bytes() + b"red/2.png,re")
    WrongLabels(path).add("red/3.png", "red", "green")
    read = WrongLabels(path)
    assert [read.right(f"red/{k}.png") for k in (1, 2, 3)] == ["blue", None, "green"]


def test_a_mark_that_cannot_be_written_leaves_a_table_that_opens_again(client, folder):
    answer = client.post("/api/wrong", content=b'{"name": "red/1.png", "right": "\\ud800"}', headers=JSON)
    assert (answer.status_code, "half of a character" in answer.json()["error"]) == (400, True)
    with pytest.raises(ValueError, match="surrogate"):
        WrongLabels(folder / "colors.wrong.csv").add("red/1.png", "red", "\ud800")
    assert len(WrongLabels(folder / "colors.wrong.csv")) == 0
    (folder / "colors.wrong.csv").touch()  # as a full disk would leave it
    WrongLabels(folder / "colors.wrong.csv").add("red/1.png", "red", "blue")
    assert WrongLabels(folder / "colors.wrong.csv").right("red/1.png") == "blue"


@pytest.fixture
def decoding(build, monkeypatch):
    """A server whose decodings wait for an event, and the images that they have begun with."""
    go = threading.Event()
    begun = []

    def embed(dataset):
        begun.append(dataset)
        assert go.wait(10)
        return mean_color(dataset)

    limits = Limits(upload_pixels=1_000_000, waiting_bytes=60_000)
    with running(build(model=embeds(image=embed), limits=limits)) as port:
        yield port, go, begun
        go.set()


def sent(port, size=(60, 40), wait=10.0):
    """A connection that has sent an image to search for."""
    data = picture((200, 40, 40), size)
    head = (
        f"POST /api/search?k=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port), timeout=wait)
    connection.sendall(head.encode() + data)
    return connection


def until(condition, wait=10.0):
    end = time.monotonic() + wait
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_two_images_are_decoded_at_a_time_and_none_that_nobody_waits_for(decoding, monkeypatch):
    port, go, _ = decoding
    calls = {"check_image": 0, "embedded_image": 0}

    def counted(name, call):
        def method(self, *arguments):
            calls[name] += 1
            return call(self, *arguments)

        return method

    for name in calls:
        monkeypatch.setattr(Collection, name, counted(name, getattr(Collection, name)))
    first = [sent(port), sent(port)]
    assert until(lambda: calls["embedded_image"] == 2)
    others = [sent(port) for _ in range(4)]
    assert until(lambda: calls["check_image"] == 6)
    for connection in others[:3]:
        connection.close()
    time.sleep(0.5)
    assert calls["embedded_image"] == 2
    go.set()
    assert others[3].recv(65536).startswith(b"HTTP/1.1 200")
    assert calls["embedded_image"] == 3  # not for the three whose clients have left
    for connection in (*first, others[3]):
        connection.close()


def test_a_server_that_stops_decodes_nothing_that_waits(decoding):
    port, go, begun = decoding
    connections = [sent(port) for _ in range(6)]
    assert until(lambda: len(begun) == 1)  # the other of the two waits for the network
    time.sleep(0.3)
    SERVERS[port].should_exit = True
    answered = []
    for connection in connections:
        connection.settimeout(1.0)
        try:
            answered.append(connection.recv(65536))
        except TimeoutError:
            continue
    assert len(answered) == 4
    assert all(answer.startswith(b"HTTP/1.1 503") and b"the server is stopping" in answer for answer in answered)
    go.set()
    for connection in connections:
        connection.close()


def test_bodies_that_wait_are_limited_together(decoding, monkeypatch):
    port, _, begun = decoding
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3)).astype(np.uint8)  # 25 kB
    out = BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    monkeypatch.setattr("tests.serve.test_api.picture", lambda color, size: out.getvalue())
    first = [sent(port), sent(port)]
    assert until(lambda: len(begun) == 1)
    time.sleep(0.2)
    third = sent(port)
    assert third.recv(65536).startswith(b"HTTP/1.1 503")
    for connection in (*first, third):
        connection.close()


def test_clients_that_send_half_a_head_make_room_for_others(build, monkeypatch):
    monkeypatch.setattr(serve_server, "CONNECTIONS", 40)
    monkeypatch.setattr(serve_server, "MAX_IDLE", 20)
    with running(build()) as port:
        half = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(60)]
        for connection in half:
            with suppress(OSError):  # it has made room already
                connection.sendall(b"GET /health HT")
        quick = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert answer_to(port, quick).startswith(b"HTTP/1.1 200")
        for connection in half:
            connection.close()


SERVERS = {}
"""The servers that are running, by their ports."""


@contextmanager
def running(app):
    """A real server on loopback, in a thread."""
    import uvicorn

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=serve_server.ImpatientProtocol,
        log_level="warning",
        limit_concurrency=serve_server.CONNECTIONS,
    )
    server = serve_server.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        SERVERS[port] = server
        yield port
    finally:
        server.should_exit = True
        thread.join(10)


def answer_to(port, data, wait=5.0):
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def posted_raw(path, body):
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def test_requests_that_wait_for_the_model_hold_up_no_others_and_are_not_too_many(build):
    """More of them than threads: searches that embed nothing are answered meanwhile."""
    embedding = threading.Event()

    def slowly(items):
        assert embedding.wait(30)
        return np.array([[1.0, 2.0, 3.0]])

    text = posted_raw("/api/search-text", '{"text": "red"}')
    limits = Limits(embeddings=50)
    with running(build(model=embeds(text=slowly), limits=limits)) as port:
        waiting = []
        for _ in range(51):
            waiting.append(socket.create_connection(("127.0.0.1", port), timeout=30))
            waiting[-1].sendall(text)
        found = answer_to(port, posted_raw("/api/search?k=1", '{"vector": [1, 2, 3]}'), wait=30)
        # whichever comes last is refused, while the others wait
        (last,), _, _ = select.select(waiting, [], [], 30)
        waiting.remove(last)
        refused = b"".join(iter(partial(last.recv, 65536), b""))
        last.close()
        embedding.set()
        assert found.startswith(b"HTTP/1.1 200")
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 1" in refused.lower()
        assert b"too many requests wait for the model" in refused
        for connection in waiting:
            assert connection.recv(12) == b"HTTP/1.1 200"
            connection.close()


def test_a_server_that_is_stopped_answers_what_it_has_begun(build):
    begun = threading.Event()
    embedding = threading.Event()

    def slowly(items):
        begun.set()
        assert embedding.wait(30)
        return np.array([[1.0, 2.0, 3.0]])

    with (
        running(build(model=embeds(text=slowly))) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
    ):
        connection.sendall(posted_raw("/api/search-text", '{"text": "red"}'))
        assert begun.wait(30)
        SERVERS[port].should_exit = True
        until = time.monotonic() + 30
        with suppress(OSError):
            while time.monotonic() < until:  # until it accepts no connection any more
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                time.sleep(0.01)
        embedding.set()
        assert connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.slow  # three processes import the library
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
def test_workers_see_what_others_write_and_are_replaced_while_requests_are_answered(folder):
    command = [sys.executable, "-m", "nearfar", "serve", "colors.index", "--workers", "2", "--port", "0"]
    command += ["--token", TOKEN, "--allow-writes"]
    vector = {"vector": [1.0, 2.0, 3.0]}
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        try:
            port = re.search(r":(\d+)/", server.stderr.readline())[1]

            def ask(path, body=None):
                data = None if body is None else json.dumps(body).encode()
                headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
                request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)

            def all_workers(holds):
                """Wait until it holds for longer than a worker may take to look again, whoever answers."""
                until = time.monotonic() + 60
                since = time.monotonic()
                while time.monotonic() < since + 1.5:
                    seen = False
                    with suppress(urllib.error.HTTPError):  # of a worker that has not looked yet
                        seen = holds()
                    if not seen:
                        since = time.monotonic()
                    assert since < until
                    time.sleep(0.02)

            ask("/api/add", {"items": [{"name": "new", **vector}]})
            all_workers(lambda: ask("/api/search?k=1", vector)["neighbors"][0]["name"] == "new")
            ask("/api/wrong", {"name": "new", "right": "blue"})
            all_workers(lambda: ask("/api/item?name=new")["marked"] == "blue")
            before = children_of(server.pid)
            server.send_signal(signal.SIGHUP)
            # one more child is that which tidies up after all
            all_workers(lambda: ask("/health")["status"] == "ok" and len(before & children_of(server.pid)) <= 1)
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
            assert server.stderr.read() == ""
        finally:
            server.kill()


def children_of(process):
    """Return the processes that a process has spawned, as Linux tells."""
    found = Path(f"/proc/{process}/task/{process}/children")
    return {*found.read_text().split()} if found.exists() else {time.monotonic()}


def test_a_mark_of_another_worker_is_seen(folder, monkeypatch):
    monkeypatch.setattr(marks, "READ_EVERY", 0.0)
    first, second = (WrongLabels(folder / "x.csv") for _ in range(2))
    first.add("a", "red", "blue")
    assert second.right("a") == "blue"
    second.add("b", "red", "")
    assert (first.right("b"), first.right("c"), len(first)) == ("", None, 2)
    assert (folder / "x.csv").read_text().count("name,class") == 1


def test_slow_clients_are_left(build, monkeypatch):
    monkeypatch.setattr(serve_server, "HEAD_SECONDS", 0.3)
    with running(build(limits=Limits(upload_seconds=0.3))) as port:
        assert answer_to(port, b"GET /health HT") == b""
        assert answer_to(port, b"") == b""
        body = b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 1000\r\n\r\nabc"
        assert answer_to(port, body).startswith(b"HTTP/1.1 408")
        quick = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert answer_to(port, quick).startswith(b"HTTP/1.1 200")


def test_clients_that_go_on_sending_after_the_answer_are_left(build, monkeypatch):
    """The answer to an unknown address does not wait for the body, which may never end."""
    monkeypatch.setattr(serve_server, "HEAD_SECONDS", 0.3)
    head = b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
    with running(build()) as port, socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(head)
        answer = b""
        while not answer.endswith(b'describes the API"}'):
            part = connection.recv(65536)
            assert part, f"the connection was closed after {answer}"
            answer += part
        connection.sendall(b"a")
        assert connection.recv(65536) == b""


def test_the_command_is_closed_to_others_without_a_token(folder, capsys, monkeypatch):
    for words, told in (
        (["--host", "0.0.0.0"], "other machines can reach 0.0.0.0; give a --token"),
        (["--token", "short"], "--token: expected at least 16"),
        (["--port", "99999"], "--port: expected 0 to 65535"),
    ):
        code, _, err = run(capsys, monkeypatch, "serve", folder / "colors.index", *words)
        assert (code, err.count("\n")) == (2, 1)
        assert told in err
    code, _, err = run(capsys, monkeypatch, "serve", folder / "nothing.index")
    assert (code, "no such index" in err) == (2, True)


def test_a_port_in_use_costs_one_line(folder, capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run(capsys, monkeypatch, "serve", folder / "colors.index", "--port", str(port))
    assert code == 2
    assert err == f"nearfar: --port: cannot listen on 127.0.0.1, port {port} (address already in use); choose another\n"


def test_the_command_serves_an_index_of_embeddings(folder, monkeypatch):
    from nearfar.serve import open_app

    app = open_app(folder / "colors.index", run=None, wrong=folder / "x.csv", hosts=["127.0.0.1"], token="")
    client = TestClient(app, base_url=BASE)
    assert client.get("/api/about").json()["images"] is False
    assert client.post("/api/search", content=picture((1, 2, 3))).status_code == 415
    assert len(names(client.get("/api/neighbors?name=red/3.png&k=1"))) == 1


def test_the_command_serves_an_old_index_with_a_new_model(folder, monkeypatch):
    from nearfar.serve import open_app

    with open_store(folder / "colors.index") as store:
        old = store.in_memory()
    create(folder / "old.index", old.records(), distance="cosine", about={"source": "gone", "weights": "old"}).close()
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    new = old.embeddings @ turn  # as the new model embeds the items
    QueryAdapter().fit(new, old.embeddings).save(folder / "adapter.safetensors")
    model = embeds(image=lambda items: mean_color(items) @ turn)
    monkeypatch.setattr("nearfar.models.load", lambda source: model)
    options = {"adapter": folder / "adapter.safetensors", "wrong": folder / "x.csv", "hosts": ["127.0.0.1"]}
    app = open_app(folder / "old.index", run=folder / "new.safetensors", token="", **options)
    for color, value in COLORS.items():
        answer = TestClient(app, base_url=BASE).post("/api/search?k=6", content=picture(value))
        assert {one["class"] for one in answer.json()["neighbors"]} == {color}
    with pytest.raises(ValueError, match=r"^adapter: also give run="):
        open_app(folder / "old.index", run=None, token="", **options)


def test_an_index_of_sounds_is_searched_by_sound(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile")
    from nearfar.index import build
    from nearfar.serve import open_app
    from tests.deep.test_sound_trunks import package_file

    monkeypatch.chdir(tmp_path)
    seconds = np.arange(3200) / 16_000
    for pitch in (300, 600):
        (tmp_path / "tones" / str(pitch)).mkdir(parents=True)
        for i in range(2):
            wave = np.sin(2 * np.pi * (pitch + i) * seconds)
            soundfile.write(tmp_path / "tones" / str(pitch) / f"{i}.wav", wave, 16_000)
    build(f"ge2e:{package_file(tmp_path / 'pretrained.pt')}", "tones", tmp_path / "tones.index")
    app = open_app(tmp_path / "tones.index", run=None, wrong=tmp_path / "x.csv", hosts=["127.0.0.1"], token="")
    client = TestClient(app, base_url=BASE)
    about = client.get("/api/about").json()
    assert (about["sounds"], about["images"], about["pictures"]) == (True, False, True)
    content = (tmp_path / "tones" / "600" / "1.wav").read_bytes()
    assert names(client.post("/api/search?k=1", content=content)) == ["tones/600/1.wav"]
    for bad in (b"no sound", picture((1, 2, 3))):
        answer = client.post("/api/search", content=bad)
        assert (answer.status_code, "not a sound" in answer.text) == (415, True)
    assert client.get("/api/picture?name=tones/600/1.wav&side=64").headers["content-type"] == "image/jpeg"


def test_answers_do_not_wait_for_the_client_to_confirm_their_headers():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
