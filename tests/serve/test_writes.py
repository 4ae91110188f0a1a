"""Writes over HTTP, batches of queries, words, and embeddings as the API of OpenAI has them."""

import base64
import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.testclient import TestClient

import nearfar
from nearfar.index import build, create, open_store, records_of
from nearfar.index.index_lock import index_lock
from nearfar.serve import Collection, WrongLabels, bodies, collection, make_app, open_app
from tests.commands import run
from tests.serve.conftest import Image, embeds, mean_color
from tests.serve.test_api import running
from tests.towers import write_clip

BASE = "http://127.0.0.1:8000"
TOKEN = "sixteen-letters-long"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def lengths(items):
    return np.array([[float(len(text)), 1.0, 0.0] for text in items.texts])


@pytest.fixture
def client(build, monkeypatch):
    """A server of the pictures that may be changed, and whose model embeds pictures and the lengths of texts."""
    monkeypatch.setattr(collection, "LOOK_EVERY", 0.0)
    app = build(model=embeds(image=mean_color, text=lengths), token=TOKEN, writes=True)
    return TestClient(app, base_url=BASE, headers=BEARER)


def data_url(color):
    out = BytesIO()
    Image.new("RGB", (8, 8), color).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def posted(client, path, body, status=200):
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_items_are_added_replaced_and_removed_as_often_as_a_request_is_repeated(client):
    items = [
        {"name": "new", "vector": [1, 2, 3.5], "class": "red", "columns": {"price": 7, "product": None}},
        {"name": "red/0.png", "image": data_url((10, 20, 30)), "columns": {"product": "p1"}},
        {"name": "said", "text": "word", "class": "blue", "columns": {"size": "XL"}},
    ]
    first = posted(client, "/api/add", {"items": items})
    assert first == {"added": 2, "replaced": 1, "items": 26}
    assert posted(client, "/api/add", {"items": items}) == {"added": 0, "replaced": 3, "items": 26}
    new = client.get("/api/item?name=new").json()
    assert new == {
        "name": "new",
        "class": "red",
        "columns": {"price": 7, "product": None, "size": None},
        "marked": None,
    }
    replaced = client.get("/api/item?name=red/0.png").json()
    assert (replaced["class"], replaced["columns"]) == ("", {"price": None, "product": "p1", "size": None})
    for vector, name in (([1, 2, 3.5], "new"), ([-118, -108, -98], "red/0.png"), ([4, 1, 0], "said")):
        found = posted(client, "/api/search?k=1", {"vector": vector})["neighbors"]
        assert (found[0]["name"], found[0]["distance"]) == (name, 0)
    names = {"names": ["new", "said", "none"]}
    assert posted(client, "/api/remove", names) == {"removed": 2, "items": 24}
    assert posted(client, "/api/remove", names) == {"removed": 0, "items": 24}
    assert client.get("/api/item?name=new").status_code == 404


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": "b"}, {"name": "a", "vector": [1]}, {"name": "b", "row": [1]}]
)
def test_all_items_are_checked_before_the_first_is_embedded(client, monkeypatch, wrong):
    monkeypatch.setattr("nearfar.serve.app.embedded_texts", None)
    answer = client.post("/api/add", json={"items": [{"name": "a", "text": "word"}, wrong]})
    assert answer.status_code in (400, 501)


def test_a_change_that_does_not_fit_changes_nothing(client, folder):
    before = (folder / "colors.index").read_bytes()
    good = {"name": "new", "vector": [1, 2, 3]}
    for body, status, message in (
        ({"items": [good, {"name": "b", "vector": [1]}]}, 400, "vector: expected 3 numbers, as the embeddings"),
        ({"items": [good, {"name": "b"}]}, 400, "'b': expected one of vector, row, text and image, got 0"),
        ({"items": [{**good, "text": "x"}]}, 400, "'new': expected one of vector, row, text and image, got 2"),
        (
            {"items": [{**good, "columns": {"price": "dear"}}]},
            400,
            "columns: expected numbers in 'price' as in the",
        ),
        ({"items": [{**good, "columns": {"a b": 1}}]}, 400, "columns: expected names of letters, digits and _"),
        ({"items": [{**good, "columns": {"price": True}}]}, 400, "items[0].columns.price: expected a number or a text"),
        ({"items": [{**good, "size": 3}]}, 400, "items[0]: there is no 'size'; there are name, vector, row, text"),
        ({"items": [{"vector": [1, 2, 3]}]}, 400, "items[0].name: is missing"),
        ({"items": [{**good, "vector": [1, None, 2]}]}, 400, "items[0].vector[1]: expected a number, got None"),
        (
            {"items": [{**good, "vector": [1, 1e300, 2]}]},
            400,
            "vector[1]: expected a number from -1e+30 to 1e+30, got 1e+300",
        ),
        ({"items": [{**good, "vector": [1, -1e38, 2]}]}, 400, "expected a number from -1e+30 to 1e+30, got -1e+38"),
        ({"items": [good, {**good, "name": "b"}, good]}, 400, "items[2].name: 'new' is also the name of items[0]"),
        ({"items": [{"name": "b", "row": [1]}]}, 501, "'b': the model of this index does not embed rows"),
        ({"items": [{"name": "b", "image": "data:image/png;base64,???"}]}, 400, "expected data:image/...;base64,..."),
        ({"items": [{"name": "b", "image": "https://host/x.png"}]}, 415, "the body cannot be decoded"),
        ({"items": [{**good, "name": ""}]}, 400, "name: expected 1 to 4,096 characters, got 0"),
        ({"items": []}, 400, "items: expected at least one"),
        ({"items": [good] * 1001}, 400, "items: expected up to 1,000, got 1,001"),
        ({}, 400, "items: is missing"),
        (
            {"items": [{**good, "columns": {f"c{k}": 1 for k in range(1001)}}]},
            400,
            "columns: expected up to 1,000, got 1,001",
        ),
    ):
        answer = client.post("/api/add", json=body)
        assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text
    for path, body in (
        ("/api/add", {"items": [{**good, "\ud800": 1}]}),
        ("/v1/embeddings", {"input": "a", "model": "\ud800"}),
    ):
        answer = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
        assert (answer.status_code, "the body has half of a character" in answer.json()["error"]) == (400, True)
    assert posted(client, "/api/remove", {"names": "a"}, 400)["error"] == "names: expected a list, got 'a'"
    assert (folder / "colors.index").read_bytes() == before


def test_only_those_with_the_token_write_and_only_where_it_is_allowed(build, client, folder, capsys, monkeypatch):
    body = {"items": [{"name": "new", "vector": [1, 2, 3]}]}
    closed = TestClient(build(token=TOKEN), base_url=BASE, headers=BEARER)
    assert closed.post("/api/add", json=body).status_code == 404
    assert client.post("/api/add", json=body, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/api/add", json=body, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/api/add", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    with pytest.raises(ValueError, match=r"^allow_writes: also give a token, without which every program"):
        build(writes=True)
    code, _, err = run(capsys, monkeypatch, "serve", str(folder / "colors.index"), "--allow-writes")
    assert (code, err.startswith("nearfar: --allow-writes: also give a --token")) == (2, True)
    monkeypatch.setattr(collection, "WRITE_WAIT", 0.0)
    with index_lock(folder / "colors.index"):
        answer = client.post("/api/add", json=body)
    assert (answer.status_code, answer.json()["error"]) == (
        503,
        "another process is changing the index; try again later",
    )


def test_items_are_not_added_to_an_index_that_another_model_made_again(client, folder):
    file = folder / "colors.index"
    create(file, records_of(np.eye(3), ["a", "b", "c"]), about={"weights": "others"}).close()
    answer = client.post("/api/add", json={"items": [{"name": "new", "vector": [1, 2, 3]}]})
    assert (answer.status_code, "made again with another model" in answer.json()["error"]) == (503, True)
    with open_store(file) as store:
        assert store.count() == 3


def test_an_index_may_begin_empty_and_have_classes_that_are_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "LOOK_EVERY", 0.0)
    path = tmp_path / "x.index"
    create(path, records_of(np.empty((0, 2)), [])).close()
    app = make_app(
        Collection(path, lambda: open_store(path)), WrongLabels(tmp_path / "x.csv"), token=TOKEN, writes=True
    )
    client = TestClient(app, base_url=BASE, headers=BEARER)
    items = [{"name": "a", "vector": [1, 0], "class": 3}, {"name": "b", "vector": [0, 1], "class": 5}]
    assert posted(client, "/api/add", {"items": items})["items"] == 2
    lacking = posted(client, "/api/add", {"items": [{"name": "c", "vector": [1, 1]}]}, 400)
    assert lacking["error"] == "'c': expected a class, which is a number here"
    assert posted(client, "/api/search?where=label > 4", {"vector": [1, 0]})["neighbors"][0]["name"] == "b"


def test_many_vectors_and_words_are_searched(client):
    rows = [[72.0, -88.0, -88.0], [-88.0, 32.0, -68.0]]
    together = posted(client, "/api/search-batch?k=3&where=price > 1", {"vectors": rows})
    for row, result in zip(rows, together["results"], strict=True):
        assert result["neighbors"] == posted(client, "/api/search?k=3&where=price > 1", {"vector": row})["neighbors"]
    for vectors in ([], [[1, 2, 3]] * 101, [[1, 2]]):
        assert client.post("/api/search-batch", json={"vectors": vectors}).status_code == 400
    found = client.get("/api/search-words", params={"words": "red p1", "where": "price < 3"}).json()
    assert [(one["name"], one["distance"], one["match"]) for one in found["neighbors"]] == [("red/2.png", None, True)]
    fused = posted(client, "/api/search?k=2&words=blue p9", {"vector": rows[0]})["neighbors"]
    assert fused[0]["class"] in ("red", "blue")
    for path, status in (
        ("/api/search-words?words=*", 400),
        ("/api/search-words?words=red&within=3", 400),
        ("/api/neighbors?name=red/1.png&words=red", 400),
    ):
        assert client.get(path).status_code == status, path
    both = client.post("/api/search?words=red&group_by=product", json={"vector": rows[0]})
    assert both.json()["error"] == "words: does not work with group_by; give only one"


def test_embeddings_are_those_of_the_index_in_the_form_of_openai(client):
    answer = posted(client, "/v1/embeddings", {"input": ["red", "shoes"], "model": "any"})
    assert [one["embedding"] for one in answer["data"]] == [[3, 1, 0], [5, 1, 0]]
    assert (answer["object"], answer["model"], [one["index"] for one in answer["data"]]) == ("list", "any", [0, 1])
    packed = posted(client, "/v1/embeddings", {"input": "red", "encoding_format": "base64", "input_type": "query"})
    assert np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4").tolist() == [3, 1, 0]
    image = posted(client, "/v1/embeddings", {"input": data_url((128, 130, 127))})
    assert image["data"][0]["embedding"] == [0, 2, -1]
    for body, status, message in (
        ({"input": []}, 400, "input: expected a text, or a list of texts"),
        ({"input": ["a", " "]}, 400, "input: expected a text, or a list of texts"),
        ({"input": [1, 2]}, 400, "input: expected texts, got arrays of tokens; send the texts themselves"),
        ({"input": [[1, 2], [3]]}, 400, "input: expected texts, got arrays of tokens; send the texts themselves"),
        ({"input": ["a", 2]}, 400, "input[1]: expected a text, got 2"),
        ({"input": "a", "dimensions": 2}, 400, "dimensions: expected 3, got 2"),
        ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format: expected float or base64, got 'int8'"),
        ({"input": ["a", data_url((1, 2, 3))]}, 400, "input: expected texts or images, got both; send two requests"),
        ({"input": "data:image/png;base64,AAAA"}, 415, "the body cannot be decoded"),
    ):
        answer = client.post("/v1/embeddings", json=body)
        assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


def test_curl_node_and_the_package_of_openai_ask_the_server(build, folder):
    """The JavaScript is that of the page on the service; each client is asked where it is installed."""
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    (script,) = re.findall(r"```js\n(.*?)```", page, re.S)
    (folder / "query.mjs").write_text(script)
    asked = []
    with running(build(model=embeds(image=mean_color, text=lengths))) as port:
        server = f"http://127.0.0.1:{port}"
        if shutil.which("curl"):
            line = re.search(r"^curl --json '(.*?)' http://127.0.0.1:8000(/v1/embeddings)$", page, re.M)
            command = ["curl", "-sS", f"{server}{line[2]}", "--json", line[1]]
            told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
            assert [one["embedding"] for one in json.loads(told)["data"]] == [[9, 1, 0], [4, 1, 0]]
            asked.append("curl")
        if shutil.which("node"):
            command = ["node", "query.mjs", "red/0.png"]
            how = {"capture_output": True, "text": True, "cwd": folder, "timeout": 60}
            lines = subprocess.run(command, env=os.environ | {"SERVER": server}, check=True, **how).stdout.splitlines()
            assert lines[:2] == ["2 embeddings of 3 numbers", "red/0.png red 0.000"]
            assert len(lines) == 4
            asked.append("node")
        if find_spec("openai"):
            import openai

            client = openai.OpenAI(base_url=f"{server}/v1", api_key="any")
            answer = client.embeddings.create(input=["red", "shoes"], model="any")
            assert [one.embedding for one in answer.data] == [[3, 1, 0], [5, 1, 0]]
            asked.append("openai")
    if not asked:
        pytest.skip("neither curl, node nor the package openai is installed")


@pytest.mark.slow  # it loads transformers
def test_a_model_of_images_and_texts_answers_as_clients_of_openai_ask(tmp_path, monkeypatch):
    """Everything is real but the network: a CLIP of two towers, its index on disk, and the bytes that curl sends."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    words = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "red", "blue", "shoe")
    source = f"transformers:{write_clip(transformers, tmp_path / 'clip', words)}"
    for number, color in enumerate([(200, 30, 30), (30, 30, 200)]):
        Path("photos").mkdir(exist_ok=True)
        Image.new("RGB", (20, 20), color).save(f"photos/{number}.png")
    build(source, "photos", "x.index")
    model = nearfar.load(source)
    client = TestClient(open_app("x.index"), base_url=BASE)

    def asked(text, status=200):
        headers = {"content-type": "application/json", "authorization": "Bearer sk-any", "accept": "*/*"}
        answer = client.post("/v1/embeddings", content=text.encode(), headers={**headers, "user-agent": "curl/8.5.0"})
        assert answer.status_code == status, answer.text
        return answer.json()

    expected = model.embed(["red shoe", "blue"])
    one = asked('{"input": "red shoe", "model": "text-embedding-3-small"}')
    assert set(one) == {"object", "data", "model", "usage"}
    np.testing.assert_allclose(one["data"][0]["embedding"], expected[0], atol=1e-5)
    several = asked('{"model": "x", "input": ["red shoe", "blue"], "encoding_format": "float", "user": "me"}')["data"]
    np.testing.assert_allclose([row["embedding"] for row in several], expected, atol=1e-5)
    packed = asked('{"model": "x", "input": ["red shoe", "blue"], "encoding_format": "base64"}')["data"]
    rows = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in packed]
    np.testing.assert_array_equal(rows, np.float32([row["embedding"] for row in several]))
    with open_store("x.index") as store:
        photo = base64.b64encode(Path("photos/0.png").read_bytes()).decode()
        image = asked(json.dumps({"input": f"data:image/png;base64,{photo}"}))["data"][0]["embedding"]
        np.testing.assert_allclose(image, store.get(["photos/0.png"]).embeddings[0], atol=1e-5)
        assert len(image) == store.dimensions == len(rows[0]) == 6
    found = client.post("/api/search?k=1", json={"vector": image}).json()["neighbors"]
    assert found[0]["name"] == "photos/0.png"
    refused = asked('{"model": "x", "input": [[4, 6], [5]]}', 400)
    assert refused == {"error": "input: expected texts, got arrays of tokens; send the texts themselves"}


def test_an_index_without_a_model_embeds_nothing(folder):
    path = folder / "colors.index"
    app = make_app(Collection(path, lambda: open_store(path)), WrongLabels(folder / "x.csv"))
    client = TestClient(app, base_url=BASE)
    for given in ("a", data_url((1, 2, 3))):
        assert client.post("/v1/embeddings", json={"input": given}).status_code == 501


def test_every_body_is_described_as_it_is_read():
    for kind in bodies.BODIES:
        schema = bodies.schema_of(kind)
        assert schema["required"] == [name for name in schema["properties"] if name in schema["required"]]
        sample = SimpleNamespace(
            string="a", number=0.5, integer=3, null=None, array=[], object={}
        )  # one value of each type of JSON
        for name, expected in schema["properties"].items():
            rest = {other: minimal(schema["properties"][other]) for other in schema["required"] if other != name}
            allowed = types_of(expected)
            for type_name, value in vars(sample).items():
                body = {**rest, name: value}
                fits = type_name in allowed or (type_name == "integer" and "number" in allowed)
                if fits:
                    bodies.read_body(kind, body)
                else:
                    with pytest.raises(ValueError, match=f"^{name}: expected "):
                        bodies.read_body(kind, body)


def types_of(schema):
    return {schema["type"]} if "type" in schema else {one["type"] for one in schema["anyOf"]}


def minimal(schema):
    return [] if types_of(schema) == {"array"} else "a"
