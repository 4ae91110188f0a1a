"""The same ten commands on each kind of items: one tiny training for each, and the other nine commands on it."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from nearfar.report import model_card
from nearfar.serve import server

from .commands import run
from .drawn_photos import THINGS, draw_photos
from .towers import write_bert

DOCS = Path(__file__).parent.parent / "docs"
WORDS = ["[PAD]", "[UNK]", "[EOS]", "[BOS]", *(f"w{number}" for number in range(40))]


def sentence(rng, topic):
    """Return a few words, most of them of a topic."""
    return " ".join([*(f"w{4 * topic + word}" for word in rng.permutation(4)[:3]), f"w{rng.integers(32, 40)}"])


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def photos(home):
    draw_photos(home / "photos", THINGS[:6], each=4)
    return home / "photos"


def texts(home):
    rng = np.random.default_rng(0)
    lines = [f"{sentence(rng, topic)},topic{topic}" for topic in [*range(8)] * 4]
    return write(home / "texts.csv", "text,label", *lines)


def rows(home):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},kind{c}" for c in [*range(8)] * 4 for a, b in [rng.normal(size=2) + c]]
    return write(home / "rows.csv", "a,b,label", *lines)


def pairs(home):
    rng = np.random.default_rng(0)
    lines = []
    for topic in [*range(8)] * 4:
        lines.append(f"{sentence(rng, topic)} w{rng.integers(40)},{sentence(rng, topic)} w{rng.integers(40)},1")
        lines.append(
            f"{sentence(rng, topic)} w{rng.integers(40)},{sentence(rng, (topic + 1) % 8)} w{rng.integers(40)},0"
        )
    return write(home / "pairs.csv", "left,right,same", *lines)


def triplets(home):
    rng = np.random.default_rng(0)
    lines = [
        ",".join(f"{sentence(rng, one)} w{rng.integers(40)}" for one in (topic, topic, (topic + 1) % 8))
        for topic in [*range(8)] * 4
    ]
    return write(home / "triplets.csv", "anchor,positive,negative", *lines)


def queries(home):
    rng = np.random.default_rng(0)
    lines = [
        ",".join(f"{sentence(rng, one)} w{rng.integers(40)}" for one in (topic, topic, (topic + 1) % 8))
        for topic in [*range(8)] * 4
    ]
    return write(home / "queries.csv", "query,document,negative", *lines)


def label_sets(home):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},k{c};k{c + 1}" for c in [*range(8)] * 4 for a, b in [rng.normal(size=2) + c]]
    return write(home / "sets.csv", "a,b,labels", *lines)


def levels(home):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},kind{c},genus{c // 2}" for c in [*range(8)] * 4 for a, b in [rng.normal(size=2) + c]]
    return write(home / "levels.csv", "a,b,species,genus", *lines)


def sounds(home):
    soundfile = pytest.importorskip("soundfile")
    rng = np.random.default_rng(0)
    time = np.arange(1600) / 16_000
    for kind in range(8):
        folder = home / f"sounds/pitch{kind}"
        folder.mkdir(parents=True)
        for number in range(4):
            wave = 0.3 * np.sin(2 * np.pi * 200 * 1.2**kind * time) + 0.03 * rng.normal(size=len(time))
            soundfile.write(folder / f"{number}.wav", wave, 16_000)
    return home / "sounds"


def described_photos(home):
    draw_photos(home / "photos", THINGS[:6], each=4)
    rng = np.random.default_rng(0)
    files = sorted((home / "photos").glob("*/*"))
    lines = [f"{file.relative_to(home)},{sentence(rng, place % 8)} w{place}" for place, file in enumerate(files)]
    return write(home / "described.csv", "path,text", *lines)


def unlabeled(home):
    draw_photos(home / "drawn", THINGS[:6], each=4)
    folder = home / "loose"
    folder.mkdir()
    for number, file in enumerate(sorted((home / "drawn").glob("*/*"))):
        file.rename(folder / f"{number}{file.suffix}")
    return folder


SMALL = ["--set", "steps=2", "--batch-size", "8", "--embedding-dim", "4", "--quiet"]
IMAGES = ["--trunk", "conv4(width=4)", "--image-size", "16"]
TEXTS = ["--trunk", "transformers:BERT"]
KINDS = {  # what makes the data, the settings of the training, and a query
    "photos": (photos, IMAGES, "photos/blue-carton/0.jpg"),
    "texts": (texts, TEXTS, "w1 w2 w3"),
    "rows": (rows, [], "DATA"),
    "pairs": (pairs, TEXTS, "w1 w2 w3"),
    "triplets": (triplets, TEXTS, "w1 w2 w3"),
    "queries": (queries, TEXTS, "w1 w2 w3"),
    "label sets": (label_sets, [], "DATA"),
    "levels": (levels, ["--label", "species", "--level", "genus"], "DATA"),
    "sounds": (sounds, ["--trunk", "mel_cnn(width=2)"], "sounds/pitch3/2.wav"),
    "photos with texts": (described_photos, [*IMAGES, "--text-trunk", "transformers:BERT"], "w1 w2 w3"),
    "unlabeled": (unlabeled, IMAGES, "loose/7.jpg"),
}
ANSWERS = {  # of the commands in docs/items.md
    "inspect": "smallest class",
    "train": "",
    "evaluate": "Recall@1",
    "report": "report.html",
    "final": "",
    "index": "items embedded",
    "search": "\n    2  ",
    "serve": "Serving things.index",
    "suspects": "items are probably of another class",
    "export": "its embeddings are the same as those of runs/final",
}
BESIDES = {"train": [*SMALL, "SETTINGS"], "inspect": ["COLUMNS"], "final": ["--quiet"]}
WITHOUT_TRAINING = {  # of items without labels, which a pretrained encoder embeds
    "evaluate": ["evaluate", "pixels", "DATA"],
    "report": ["report", "pixels", "DATA", "-o", "things.html"],
    "final": ["train", "--final", "pixels", "--out", "runs/final"],
    "index": ["index", "pixels", "DATA", "-o", "things.index"],
    "suspects": ["suspects", "pixels", "DATA"],
    "export": ["export", "pixels", "-o", "things.onnx"],
}
NO_CLASSES = "`nearfar index` and `nearfar groups` need no classes"
REFUSED = {  # what a kind cannot do, and the line on what to do instead
    **{("unlabeled", name): NO_CLASSES for name in ("train", "evaluate", "report", "suspects")},
    ("unlabeled", "final"): "pixels: no such run",
    ("unlabeled", "export"): "pixels: is a pretrained encoder; expected the folder of a run or a saved learner",
    ("photos with texts", "suspects"): "has no column 'label'; give the column of the classes with --label NAME",
}
ALSO = {  # what the answer has besides
    ("queries", "index"): "queries left out (they search the documents)",
    ("queries", "evaluate"): "(query-gallery, cosine distance)",
    ("label sets", "inspect"): "not zero-shot: ",
}
CARDS = ("photos", "texts", "rows", "sounds", "photos with texts")
"""Kinds of networks, of which cards have other snippets."""
AS_OTHERS = ("pairs", "triplets", "queries", "label sets", "levels")
"""Their networks are those of texts or of rows, and only these are exported here."""


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory):
    return write_bert(transformers, tmp_path_factory.mktemp("bert"), WORDS)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, bert, tmp_path_factory):
    """The folder of a kind of items, its settings, its data, and a query."""
    home = tmp_path_factory.mktemp(request.param.replace(" ", "-"))
    make, settings, query = KINDS[request.param]
    data = make(home)
    stands_for = {"DATA": [str(data)], "SETTINGS": [word.replace("BERT", str(bert)) for word in settings]}
    stands_for["COLUMNS"] = settings if request.param == "levels" else []
    stands_for["QUERY"] = stands_for.get(query, [query])
    return request.param, home, stands_for


def documented():
    """Return the words of the ten commands on the page, by their names in ANSWERS."""
    page = (DOCS / "items.md").read_text()
    block = page.partition("## The same ten commands")[2].split("```")[1]
    commands = [line.partition(" #")[0].split()[1:] for line in block.strip().splitlines()]
    return dict(zip(ANSWERS, commands, strict=True))


SECTIONS = {  # where the ten commands of a kind are: page, section, data, what only the training and `inspect` take
    "texts": ("items", "Texts in a table", "texts", "--trunk transformers:models/minilm", ""),
    "pairs": ("training", "Train on listed pairs", "pairs", "--trunk transformers:models/minilm", ""),
    "photos with texts": (
        *("items", "Images with their texts", "products"),
        *("--trunk transformers:clip/ --text-trunk transformers:clip/", ""),
    ),
    "label sets": ("items", "Several labels per item", "photos", "", ""),
    "levels": ("items", "Classes within classes", "birds", *["--label species --level genus --level family"] * 2),
}


@pytest.mark.parametrize("of", SECTIONS)
def test_the_section_of_a_kind_has_its_ten_commands(of):
    page, section, name, train, inspect = SECTIONS[of]
    text = (DOCS / f"{page}.md").read_text().partition(f"## {section}")[2]
    found = [shlex.split(line)[1:] for line in text.split("```")[1].strip().splitlines()]
    named = {"runs/things": f"runs/{name}", "DATA": f"{name}.csv"}
    named |= {f"things.{ending}": f"{name}.{ending}" for ending in ("index", "onnx")}
    for command, (called, words) in zip(found, documented().items(), strict=True):
        expected = [named.get(word, word) for word in words]
        if called in ("train", "inspect"):
            expected[2:2] = {"train": train, "inspect": inspect}[called].split()
        if "QUERY" in expected:
            expected[expected.index("QUERY")] = command[2]
        assert command == expected


@pytest.mark.slow  # reports, and networks that are traced
def test_each_kind_of_items_takes_ten_commands(kind, capsys, monkeypatch):
    of, home, stands_for = kind
    monkeypatch.chdir(home)
    listen = server.listen
    monkeypatch.setattr(server, "listen", lambda host, port: listen(host, 0))  # other tests listen, too
    monkeypatch.setattr(server, "serve", lambda app, listener: listener.close())
    for name, typed in documented().items():
        if name == "export" and of in AS_OTHERS:
            continue
        words = [*typed, *BESIDES.get(name, [])]
        if of == "unlabeled":
            words = WITHOUT_TRAINING.get(name, words)
        code, out, err = run(capsys, monkeypatch, *(word for given in words for word in stands_for.get(given, [given])))
        if (of, name) in REFUSED:
            assert (code, out, err.count("\n")) == (2, "", 1), name
            assert REFUSED[of, name] in err
        else:
            assert code == 0, f"{name}: {err}"
            assert ANSWERS[name] in out + err
            assert ALSO.get((of, name), "") in out
    if of in CARDS:
        check_card(home, stands_for, monkeypatch)


def check_card(home, stands_for, monkeypatch):
    """Run the snippet of the model card on the items of the run, and compare its commands with those that ran."""
    card = model_card("runs/things")
    (items,) = re.findall(r'embed_run\(folder, "(.*)"\)', card)
    index, search = (shlex.split(line) for line in re.findall(r"`nearfar ((?:index|search) .*?)`", card))
    assert [*index[:2], *search[:1]] == ["index", "things", "search"]
    assert (index[2], index[4]) == (items, search[1])
    (asked,) = stands_for["QUERY"]
    assert ("." in search[2]) == ("." in asked)  # a file, or words
    monkeypatch.chdir(home / "runs")
    (data,) = stands_for["DATA"]
    assert Path(items).suffix in ("", Path(data).suffix)  # a folder, or such a table
    found = {}
    exec(card.split("```python\n")[1].split("```")[0].replace(items, data), found)
    assert len(found["embeddings"]) > 8


def tones(home, samples, rate):
    """Write a folder of sounds, one of which has these samples."""
    soundfile = pytest.importorskip("soundfile")
    time = np.arange(1600) / 16_000
    for name in ("a/0", "a/1", "b/0", "b/1", "c/0", "c/1", "d/0"):
        (home / "sounds" / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(home / f"sounds/{name}.wav", 0.3 * np.sin(2000 * time + len(name) * ord(name[0])), 16_000)
    soundfile.write(home / "sounds/d/1.wav", samples, rate)
    return home / "sounds"


def table(header, line):
    """Return a function that writes a table of 16 rows."""
    return lambda home: write(home / "table.csv", header, *(line(i) for i in range(16)))


WAVE = np.sin(2 * np.pi * 440 * np.arange(1600) / 16_000)
NO_PROBLEM = "test 4 sounds of 2 classes"
BAD_ITEMS = {  # what makes the data, the words after `inspect DATA`, whether it is refused, and the line
    "a mono wav": (lambda home: tones(home, WAVE, 16_000), [], 0, NO_PROBLEM),
    "a 5.1 wav": (lambda home: tones(home, np.tile(WAVE[:, None], (1, 6)), 16_000), [], 0, NO_PROBLEM),
    "3 Hz": (lambda home: tones(home, WAVE[:30], 3), [], 0, "1 sound cannot be decoded (d/1.wav): training stops at"),
    "silence": (lambda home: tones(home, 0 * WAVE, 16_000), [], 0, "1 sound is silent (d/1.wav)"),
    "an empty text": (
        table("text,label", lambda i: f"{f'word{i}' if i else ''},k{i % 4}"),
        [],
        2,
        "table.csv: the text is empty in 1 row, first in row 1 after the header; expected a text in every row",
    ),
    "a pair with a missing photo": (
        table("path1,path2,similar", lambda i: f"{i}.png,{i + 1}.png,1"),
        [],
        2,
        "table.csv: 17 of 17 images do not exist: 0.png, 1.png, 2.png",
    ),
    "levels that contradict each other": (
        table("x,species,genus", lambda i: f"{i},s{i % 8},g{i % 8 // 2 if i else 3}"),
        ["--label", "species", "--level", "genus"],
        2,
        "table.csv: species 's0' is in genus 'g3' and, in row 9, in 'g0'; expected one genus for each species",
    ),
    "an empty name in a label set": (
        table("x,labels", lambda i: f"{i},{'a;b' if i else 'a;;b'}"),
        [],
        2,
        "table.csv: the labels in row 1 have an empty name, got 'a;;b'; expected names with ; between them",
    ),
    "labels for half of the rows": (
        table("x,y2,label", lambda i: f"{i},{i * i % 7},{f'k{i % 4}' if i % 2 else ''}"),
        [],
        2,
        "table.csv: the label is empty in 8 rows, first in row 1 after the header; expected a label in every row "
        "(--skip-bad leaves out the others)",
    ),
}


@pytest.mark.parametrize("case", BAD_ITEMS)
def test_a_bad_item_is_one_line(case, tmp_path, capsys, monkeypatch):
    make, words, refused, line = BAD_ITEMS[case]
    code, out, err = run(capsys, monkeypatch, "inspect", make(tmp_path), *words)
    assert code == refused, err
    assert line in (err if refused else out)
    assert err.count("\n") == bool(refused)
    if line == NO_PROBLEM:
        assert "silent" not in out
        assert "decoded" not in out


def test_a_pair_with_a_missing_item_is_one_line(tmp_path, capsys, monkeypatch):
    write(tmp_path / "pairs.csv", "left,right,same", "rows[0],rows[99],1")
    words = ["train", rows(tmp_path), "--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "run"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pairs.csv: names 'rows[99]' in row 1, but the data have no item of that name" in err
    assert not (tmp_path / "run").exists()


def test_a_text_that_is_too_long_is_one_warning(bert, tmp_path, capsys, monkeypatch):
    long = write(tmp_path / "long.csv", "text,label", "w1 w2,a", f"{'w3 ' * 50},b")
    with pytest.warns(
        UserWarning, match="^long: 1 text of 2 has more than the 6 tokens that the model takes; what foll"
    ):
        code, out, _ = run(capsys, monkeypatch, "embed", f"transformers:{bert}", long, "-o", tmp_path / "long.npz")
    assert (code, "2 embeddings" in out) == (0, True)
