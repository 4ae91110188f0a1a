"""The commands of the first page of the documentation, in their order, on drawn photos: a folder becomes a search."""

import json
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from nearfar.serve import server

from .drawn_photos import THINGS, draw_photos, photo
from .serve.test_api import running
from .test_cli import run

PAGE = Path(__file__).parent.parent / "docs" / "index.md"
SMALLER = ["--epochs", "2", "--image-size", "16"]  # what the training of the page is given besides
STEPS = (
    "inspect",
    "train",
    "evaluate",
    "report",
    "train --final",
    "index",
    "search",
    "serve",
    "index --add",
    "suspects",
)


def commands_of_the_page():
    """Return the words of each command of the walk, without its comment."""
    block = re.search(r"## From a folder to a search.*?```\n(.*?)```", PAGE.read_text(), re.S)[1]
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["nearfar"]]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of photos with a folder for each thing, some that come later, and one to search with."""
    draw_photos(tmp_path / "photos", THINGS, each=8)
    draw_photos(tmp_path / "more", ["red-carton", "blue-fruit"], each=3, seed=1)
    photo("green-fruit", np.random.default_rng(9)).save(tmp_path / "query.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked_over_http(port):
    """Search the served index with a photo, as the page does."""
    photo_of_query = Path("query.jpg").read_bytes()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/search?k=3", data=photo_of_query)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_the_walk_has_its_ten_steps():
    steps = []
    for words in commands_of_the_page():
        option = next((word for word in words if word in ("--final", "--add")), None)
        steps.append(words[0] if option is None else f"{words[0]} {option}")
    assert tuple(steps) == STEPS


@pytest.mark.slow  # a training, a report and a server
def test_the_walk_of_the_first_page(folder, capsys, monkeypatch):
    served = []

    listen = server.listen
    monkeypatch.setattr(server, "listen", lambda host, port: listen(host, 0))  # other tests listen, too

    def serve_in_a_thread(app, listener):
        listener.close()
        with running(app) as chosen:
            served.append(asked_over_http(chosen))

    monkeypatch.setattr(server, "serve", serve_in_a_thread)
    said = {}
    for step, words in zip(STEPS, commands_of_the_page(), strict=True):
        smaller = SMALLER if step == "train" else []
        code, out, err = run(capsys, monkeypatch, *words, *smaller)
        assert code == 0, f"{words}: {err}"
        assert "Traceback" not in err
        said[step] = out

    assert "96 images" in said["inspect"] or "48 images of 6 classes" in said["inspect"]
    assert "MAP@R" in said["train"]
    assert said["evaluate"].count("Recall@1") >= 1
    assert "<html" in Path("runs/photos/report.html").read_text()
    assert "a final model, " in said["train --final"]
    assert "96 items embedded" in said["index"]
    page = Path("hits.html").read_text()
    assert page.count("<img") >= 6  # the photo and its five neighbors
    assert len(served[0]["neighbors"]) == 3
    assert "6 items embedded" in said["index --add"]
    suspects = Path("suspects.html").read_text()
    assert "<img" in suspects
