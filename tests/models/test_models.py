"""What `nearfar.load` returns is a model, whatever kind it is: the same few questions, the same answers everywhere."""

import numpy as np
import pytest

import nearfar
from nearfar.data import open_items

from ..commands import run
from ..learners import LEARNERS, data, fitted


def check_model(model, path, items, n):
    """Check that a model answers, and is the same after it was saved and loaded; return the loaded one."""
    assert model.takes
    assert set(model.takes) <= {"row", "image", "text"}
    assert model.distance in ("cosine", "euclidean", "sqeuclidean")
    embedded = model.embed(items)
    assert embedded.shape == (n, model.dimensions)
    model.save(path)
    loaded = nearfar.load(path)
    assert loaded.fingerprint == model.fingerprint
    assert (loaded.takes, loaded.distance, loaded.dimensions) == (model.takes, model.distance, model.dimensions)
    np.testing.assert_array_equal(loaded.embed(items), embedded)
    known, marks = model.trained_on, loaded.trained_on
    assert (known is None) == (marks is None)
    if known is not None:
        np.testing.assert_array_equal(marks.items, known.items)
    return loaded


@pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)
def test_a_learner_is_a_model(method, tmp_path):
    X, _ = data()
    loaded = check_model(fitted(method), tmp_path / "learner.safetensors", X[:5], 5)
    np.testing.assert_array_equal(loaded.embed(X[:5]), loaded.transform(X[:5]))


def test_fingerprints_tell_models_apart(tmp_path):
    X, y = data()
    first, second = (nearfar.RCA().fit(X[rows], y[rows]) for rows in (slice(40), slice(20, 60)))
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint == nearfar.RCA().fit(X[:40], y[:40]).fingerprint
    assert first.fingerprint != nearfar.RCA().fit(X[:40], y[:40]).set_distance("cosine").fingerprint


@pytest.mark.slow
def test_a_run_is_a_model(runs, photos, tmp_path):
    rows = np.ones((3, 5), np.float32)
    paths = [str(photos / f"{number:02}.png") for number in range(3)]
    texts = ["red", "dark green", "bright"]
    for name, kinds in {"rows": [rows], "photos": [paths], "texts": [texts], "pairs": [paths, texts]}.items():
        for items in kinds:
            model = check_model(nearfar.load(runs / name), tmp_path / f"{name} {len(items[0])}", items, 3)
            unit = model.embed(items) / np.linalg.norm(model.embed(items), axis=1, keepdims=True)
            if items is not texts:
                np.testing.assert_allclose(model.transform(items), unit, atol=1e-6)


@pytest.mark.slow
def test_a_model_embeds_what_the_command_embeds(runs, photos, tmp_path, capsys, monkeypatch):
    sources = {"rows": runs / "rows.npz", "photos": photos, "texts": runs / "texts.csv", "pairs": photos}
    X, y = data(d=5)
    nearfar.RCA().fit(X, y).save(tmp_path / "learner.safetensors")
    models = {name: runs / name for name in sources} | {"learner": tmp_path / "learner.safetensors"}
    for name, path in models.items():
        source = sources.get(name, runs / "rows.npz")
        out = tmp_path / f"{name}.npz"
        assert run(capsys, monkeypatch, "embed", path, source, "-o", out)[0] == 0
        model = nearfar.load(path)
        items = open_items(source)
        written = np.load(out)
        np.testing.assert_array_equal(model.embed(items), written["embeddings"])
        np.testing.assert_array_equal(model.embed(source), written["embeddings"])
        assert written["distance"] == model.distance
        if items.kind == "image":
            np.testing.assert_array_equal(model.embed([photos / path for path in items.names]), written["embeddings"])
            np.testing.assert_array_equal(model.embed([items.read(i) for i in range(24)]), written["embeddings"])
        elif items.kind == "text":
            np.testing.assert_array_equal(model.embed(items.texts_given), written["embeddings"])
        else:
            np.testing.assert_allclose(model.embed(items.array), written["embeddings"], rtol=1e-6)


@pytest.mark.slow
def test_items_of_another_kind_are_refused_in_one_line(runs, photos):
    rows, images, texts = (nearfar.load(runs / name) for name in ("rows", "photos", "texts"))
    with pytest.raises(ValueError, match=r"the network of .*rows takes rows of 5 columns, got images"):
        rows.embed([photos / "00.png"])
    with pytest.raises(ValueError, match=r"the network of .*photos takes images, got rows"):
        images.embed(np.ones((2, 5)))
    with pytest.raises(ValueError, match=r"1 of 1 files do not exist, first 'red'"):
        images.embed(["red"])
    with pytest.raises(ValueError, match=r"the network of .*texts takes .*, got image"):
        texts.embed(photos)
    with pytest.raises(FileNotFoundError, match=r"missing\.png'?: no such file"):
        nearfar.load(runs / "pairs").embed(["missing.png"])
