"""Items without labels: near duplicates, proposed groups, and what to label next."""

import csv

import numpy as np
import pytest

import nearfar
from nearfar import workflows
from nearfar.index import Index

from ..commands import run

Image = pytest.importorskip("PIL.Image")


def table_in(file):
    with file.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A flat folder of 12 photos of four kinds of patterns; the last two are copies, smaller and as a JPEG."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    kinds = rng.uniform(0, 255, size=(4, 6, 6))
    for number in range(10):
        noisy = np.clip(kinds[number % 4] + rng.normal(0, 25, size=(6, 6)), 0, 255)
        Image.fromarray(noisy.astype(np.uint8)).resize((64, 64)).convert("RGB").save(folder / f"{number}.png")
    first = Image.open(folder / "3.png")
    first.resize((40, 40)).save(folder / "a copy.png")
    first.save(folder / "copy.jpg", quality=30)
    return folder


@pytest.fixture(scope="module")
def index(photos):
    pytest.importorskip("torch")
    file = photos.parent / "photos.index"
    nearfar.index.build("pixels", str(photos), file)
    return file


def test_pixels_are_compared_by_their_correlation(photos, index):
    store = nearfar.index.open(index)
    names = store.column("name").tolist()
    assert len(names) == 12
    assert store.distance == "cosine"
    rows = store.in_memory().embeddings
    shades = [
        np.asarray(Image.open(photos / name.split("/")[-1]).convert("L").resize((24, 24)), float) for name in names
    ]
    expected = np.corrcoef([image.ravel() for image in shades])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(unit @ unit.T, expected, atol=0.02)  # colors become grays after the resizing


def test_pixels_are_a_model(photos, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    model = nearfar.load("pixels")
    assert (model.takes, model.distance, model.dimensions, model.trained_on) == (("image",), "cosine", 577, None)
    blank = np.zeros((3, 30, 20, 3), np.uint8) + np.array([0, 90, 255], np.uint8)[:, None, None, None]
    rows = model.embed(blank)
    assert np.isfinite(rows).all()
    assert Index(rows).search(rows, 3).distances.max() < 1e-6  # blank images are copies of each other
    model.save(tmp_path / "saved")
    assert nearfar.load(tmp_path / "saved").fingerprint == model.fingerprint
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pixels").mkdir()
    with pytest.raises(ValueError, match="pixels"):  # a folder of this name is what is there
        nearfar.load("pixels")


def test_thumbnails_say_what_they_take():
    tone = np.zeros((1, 16000), dtype=np.float32)
    with pytest.raises(ValueError, match="the network of pixels takes images, got"):
        nearfar.load("pixels").embed(tone)


def test_an_index_of_pixels_is_searched_and_served_from_anywhere(photos, index, tmp_path, capsys, monkeypatch):
    client = pytest.importorskip("starlette.testclient").TestClient
    from nearfar.serve import open_app

    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, monkeypatch, "search", index, photos / "copy.jpg", "-k", "3")
    assert (code, err) == (0, "")
    assert {line.split("/")[-1] for line in out.splitlines()[1:]} == {"copy.jpg", "a copy.png", "3.png"}
    app = open_app(index, run=None, wrong=tmp_path / "wrong.csv", hosts=["127.0.0.1"], token="")
    served = client(app, base_url="http://127.0.0.1")
    assert served.get("/api/about").json()["images"] is True
    found = served.post("/api/search?k=2", content=(photos / "3.png").read_bytes()).json()
    assert "3.png" in str(found)


def test_copies_are_found_and_the_largest_is_kept(photos, index, capsys, monkeypatch):
    code, out, err = run(capsys, monkeypatch, "duplicates", index, "-k", 3)
    assert (code, err) == (0, "")
    assert all("copy" in line or "3.png" in line for line in out.splitlines()[:3])
    assert "*" not in out  # nothing has a class
    suggested = out.splitlines()[-1].split("--within ")[1].split(",")[0]
    table = photos.parent / "duplicates.csv"
    code, out, err = run(capsys, monkeypatch, "duplicates", index, "-o", table)
    assert (code, err) == (0, "")
    assert out.endswith(f"1 group of 3 items within {suggested}\n")
    rows = {row["name"].split("/")[-1]: row["decision"] for row in table_in(table)}
    assert rows == {"3.png": "keep", "copy.jpg": "remove", "a copy.png": "remove"}
    kept = photos.parent / "kept.csv"
    code, out, err = run(capsys, monkeypatch, "suspects", index, "--decided", table, "-o", kept)
    assert (code, err) == (0, "")
    assert out.endswith("10 items, 0 with another class, 2 removed\n")
    assert [row["path"] for row in table_in(kept)] == [f"photos/{number}.png" for number in range(10)]
    page = photos.parent / "duplicates.html"
    assert run(capsys, monkeypatch, "duplicates", "pixels", photos, "-o", page)[0] == 0
    assert page.read_text().count("<img") == 3


def test_groups_are_a_table_to_train_on(photos, index, capsys, monkeypatch):
    file = photos.parent / "groups.csv"
    code, _, err = run(capsys, monkeypatch, "groups", index, "--within", "0.3", "-o", file)
    assert (code, err) == (0, "")
    rows = table_in(file)
    found = {row["name"].split("/")[-1].split(".")[0]: row["label"] for row in rows}
    assert len({found[str(number)] for number in (3, 7)} | {found["copy"], found["a copy"]}) == 1
    assert rows[0]["label"] == "group 1"
    inspected = nearfar.data.inspect_data(str(file))
    assert sum(part.items for part in inspected.parts) == len(rows)
    page = photos.parent / "groups.html"
    assert run(capsys, monkeypatch, "groups", index, "--within", "0.3", "-o", page)[0] == 0
    assert "Proposed groups" in page.read_text()


def test_what_to_label_next_is_a_table_to_fill_and_to_train_on(photos, index, capsys, monkeypatch):
    file = photos.parent / "labels.csv"
    code, out, err = run(capsys, monkeypatch, "label-next", index, "-k", 4, "-o", file)
    assert (code, err) == (0, "")
    assert out.endswith("4 items to label next, of 12 without a label\n")
    rows = table_in(file)
    kinds = [row["name"].split("/")[-1].split(".")[0].replace("a copy", "3").replace("copy", "3") for row in rows]
    assert sorted(int(kind) % 4 for kind in kinds) == [0, 1, 2, 3]  # one of each kind
    for row, label in zip(rows, "abcd", strict=True):
        row["label"] = label
    with file.open("w", newline="") as handle:
        csv.writer(handle).writerows([rows[0].keys(), *(row.values() for row in rows)])
    for by in ("representative", "doubtful"):
        words = ["label-next", index, "-k", 20, "--labeled", file, "--by", by]
        code, out, err = run(capsys, monkeypatch, *words)
        assert (code, err) == (0, "")
        assert out.count("(nearest: ") == 8  # all others, none twice
    assert nearfar.data.open_items(str(file)).classes == ("a", "b", "c", "d")


def test_texts_have_groups_and_items_to_label(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(4), 5, axis=0) + 0.1 * rng.normal(size=(20, 4))
    names = [f"text {number}" for number in range(20)]
    np.savez(tmp_path / "x.npz", embeddings=rows, names=names)
    assert workflows.groups(tmp_path / "x.npz", within=0.5).startswith("group 1: 5 items: text ")
    lines = workflows.label_next(tmp_path / "x.npz", k=4).splitlines()
    assert sorted(int(line.split()[1]) // 5 for line in lines[:4]) == [0, 1, 2, 3]


def test_bad_questions_are_one_line(index, tmp_path, capsys, monkeypatch):
    (tmp_path / "labels.csv").write_text("name,label\nnobody,a\n")
    (tmp_path / "columns.csv").write_text("a,b\n1,2\n")
    np.savez(tmp_path / "one.npz", embeddings=np.eye(3), labels=["a", "", "b"])
    for words, message in (
        (["groups", index, "--most", "1"], "most: expected at least 2 items of a group, got 1"),
        (["groups", index, "-k", "0"], "-k: expected 1 or more, got 0"),
        (["groups", index, "--within", "-1"], "within: expected a distance of at least 0, got -1.0"),
        (["groups", "pixels"], "DATA: "),
        (["groups", index, "photos"], "leave DATA out"),
        (["label-next", index, "--labeled", tmp_path / "none.csv"], "none.csv: no such file"),
        (["label-next", index, "--labeled", tmp_path / "labels.csv"], "no item is named 'nobody'"),
        (["label-next", index, "--labeled", tmp_path / "columns.csv"], "expected the columns name and label, got a, b"),
        (["label-next", index, "--by", "doubtful"], "--by: doubtful needs items of two classes with a label"),
        (["label-next", index, "-o", tmp_path / "x.txt"], "expected a .csv or an .html file"),
        (["duplicates", tmp_path / "missing.index"], "missing.index"),
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert (code, err.count("\n")) == (2, 1), (words, err)
        assert message in err, (words, err)
