"""The commands of each page of the documentation, run in their order on small data."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from nearfar.serve import server

from .drawn_photos import THINGS, draw_photos, photo
from .test_cli import run

DOCS = Path(__file__).parent.parent / "docs"
SMALL_TRAINING = ["--set", "steps=2", "--image-size", "16"]
BESIDES = {  # what commands of a page are given besides, to be quick or to fit the small data
    "train": SMALL_TRAINING,
    "compare": ["--set", "steps=2", "--set", "image_size=16", "--seeds", "1"],
}
STAND_INS = {  # what stands in for the data of a page, and for weights that would be downloaded
    "glyphs": "photos/",
    "timm:mobilenetv1_100": "conv4(width=8)",
    "true": "false",  # --pretrained
}


def commands_of(text):
    """Return the words of each command of a page."""
    found = []
    for language, block in re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.S | re.M):
        for line in [] if language else block.splitlines():
            words = [first or second for first, second in re.findall(r'"([^"]*)"|([^\s"]+)', line.partition(" #")[0])]
            if words[:1] == ["nearfar"]:
                found.append(words[1:])
    return found


def besides(words, page):
    """Return the words that make a command small."""
    if page == "sounds" and "train" in words and "--final" not in words:
        return ["--trunk", "mel_cnn(width=2)", "--set", "steps=2"]
    if words[0] == "train" and "--final" in words:
        return []
    return next((more for name, more in BESIDES.items() if name in words), [])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    draw_photos(tmp_path / "photos", THINGS, each=6)
    draw_photos(tmp_path / "faces" / "train", THINGS[:6], each=4)
    draw_photos(tmp_path / "faces" / "gallery", THINGS[6:9], each=2, seed=1)
    draw_photos(tmp_path / "faces" / "query", THINGS[6:], each=2, seed=2)
    draw_photos(tmp_path / "more", THINGS[:2], each=1, seed=3)
    photo("green-fruit", np.random.default_rng(9)).save(tmp_path / "visitor.png")
    photo("red-carton", np.random.default_rng(9)).save(tmp_path / "query.jpg")
    monkeypatch.chdir(tmp_path)
    listen = server.listen
    monkeypatch.setattr(server, "listen", lambda host, port: listen(host, 0))  # other tests listen, too
    monkeypatch.setattr(server, "serve", lambda app, listener: listener.close())
    return tmp_path


def describe_new_photos():
    """Append the new photos to the table of the products, as the page says."""
    with Path("catalog.csv").open("a", newline="") as file:
        for path in sorted(Path("more").glob("*/*")):
            csv.writer(file).writerow([path.as_posix(), path.parent.name, 5])


def fill_in_labels(file):
    """Write the class of each photo, which is its folder, into the column of labels, as the page says."""
    with file.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows:
        row["label"] = Path(row["path"]).parent.name
    with file.open("w", newline="") as handle:
        csv.writer(handle).writerows([rows[0].keys(), *(row.values() for row in rows)])


@pytest.mark.parametrize("page", ["index", "tables", "embeddings", "faces", "products", "sounds", "items"])
def test_a_page_that_announces_ten_commands_shows_ten(page):
    text = (DOCS / f"{page}.md").read_text()
    after = text[re.search(r"\bten(?: |\n)+commands", text, re.I).end() :]
    block = re.search(r"^```\n(?:pip|nearfar) .*?^```", after, re.S | re.M)[0]
    assert len(commands_of(block)) == 10


@pytest.mark.slow  # trainings and reports
@pytest.mark.parametrize("page", ["tables", "embeddings", "unlabeled", "faces", "research", "products", "sounds"])
def test_the_commands_of_a_door_run(page, folder, capsys, monkeypatch):
    if page == "sounds":
        pytest.importorskip("soundfile")
    text = (DOCS / f"{page}.md").read_text()
    commands = commands_of(text)
    assert len(commands) >= 10
    before = text[: text.index("\n```\npip install")]
    for block in re.findall(r"^```python\n(.*?)^```", before, re.S | re.M):
        exec(compile(block, page, "exec"), {})  # what makes the data of the page
    for words in commands:
        if {"more/", "--columns"} <= set(words):
            describe_new_photos()
        if "--labeled" in words:
            fill_in_labels(Path("labels.csv"))
        told = [STAND_INS.get(word, word) for word in words]
        code, _, err = run(capsys, monkeypatch, *told, *besides(words, page))
        assert code == 0, f"{words}: {err}"
