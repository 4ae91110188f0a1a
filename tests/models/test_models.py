"""What `nearfar.load` returns is a model, whatever kind it is: the same few questions, the same answers everywhere."""

import numpy as np
import pytest

import nearfar
from nearfar.data import open_items
from nearfar.data.items import embedding_rows
from nearfar.models.embedded import recorded_distance

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


@pytest.mark.slow
def test_an_encoder_is_a_model_without_a_training(bert, clip, photos, tmp_path):
    torch = pytest.importorskip("torch")
    paths = [photos / f"{number:02}.png" for number in range(3)]
    texts = ["red", "dark green", "bright"]
    of_texts = check_model(nearfar.load(f"transformers:{bert}"), tmp_path / "bert", texts, 3)
    of_both = nearfar.load(f"transformers:{clip}")
    assert (of_texts.takes, of_both.takes) == (("text",), ("image", "text"))
    check_model(of_both, tmp_path / "clip", paths, 3)
    check_model(of_both, tmp_path / "clip texts", texts, 3)
    transformers = pytest.importorskip("transformers")
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    pixels = np.stack([open_items(path).read(0) for path in paths]).transpose(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = model.get_image_features(pixel_values=torch.tensor(pixels * 2 - 1, dtype=torch.float32))
    expected = getattr(expected, "pooler_output", expected).numpy()
    np.testing.assert_allclose(of_both.embed(paths), expected, atol=1e-5)


@pytest.mark.slow
def test_an_encoder_of_timm_prepares_images_as_its_weights_expect(photos, tmp_path, monkeypatch):
    timm = pytest.importorskip("timm")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    made = timm.create_model("test_resnet", num_classes=0).eval()

    def create_model(name, *, pretrained=False, **options):
        return plain(name, pretrained=False, **options) if not pretrained else loaded(name, **options)

    plain = timm.create_model

    def loaded(name, **options):
        model = plain(name, pretrained=False, **options)
        model.load_state_dict(made.state_dict(), strict=False)
        return model

    monkeypatch.setattr(timm, "create_model", create_model)
    model = check_model(nearfar.load("timm:test_resnet"), tmp_path / "run", [photos / "00.png"], 1)
    assert model.trained_on is None
    prepare = timm.data.create_transform(**timm.data.resolve_data_config({}, model=made))
    image = pytest.importorskip("PIL.Image").open(photos / "00.png").convert("RGB")
    with torch.no_grad():
        expected = made(prepare(image)[None]).numpy()
    np.testing.assert_allclose(model.embed([photos / "00.png"]), expected, atol=1e-4)


@pytest.mark.slow
def test_three_lines_do_what_search_does(runs, clip, photos, tmp_path, capsys, monkeypatch):
    """By a photo, a text and a row, with a run, a learner and an encoder that nothing was trained on."""
    X, y = data(d=5)
    nearfar.RCA().fit(X, y).save(tmp_path / "rca.safetensors")
    np.save(tmp_path / "row.npy", np.ones((1, 5), np.float32))
    photo = str(photos / "05.png")
    rows, row = runs / "rows.npz", tmp_path / "row.npy"
    for source, items, query, asked in (
        (runs / "photos", photos, photo, [photo]),
        (runs / "pairs", photos, photo, [photo]),
        (runs / "pairs", photos, "dark red", ["dark red"]),
        (f"transformers:{clip}", photos, photo, [photo]),
        (f"transformers:{clip}", photos, "dark red", ["dark red"]),
        (runs / "texts", runs / "texts.csv", "dark red", ["dark red"]),
        (runs / "rows", rows, row, np.load(row)),
        (tmp_path / "rca.safetensors", rows, row, np.load(row)),
    ):
        code, _, err = run(capsys, monkeypatch, "index", source, items, "-o", tmp_path / "x.index", "--overwrite")
        assert (code, err) == (0, "")
        table = tmp_path / "hits.csv"
        words = (tmp_path / "x.index", query, "-k", "4", "-o", table, "--overwrite")
        assert run(capsys, monkeypatch, "search", *words)[0] == 0
        told = [line.split(",")[-1] for line in table.read_text().splitlines()[1:]]
        model = nearfar.load(source)
        index = nearfar.index.open(tmp_path / "x.index")
        hits = index.search(model.embed(asked), 4)
        assert hits.names[0].tolist() == told
        assert nearfar.index.search(index, str(query), 4).hits.names[0].tolist() == told
        with pytest.raises(ValueError, match=r"^k: expected 1 or more"):
            nearfar.index.search(index, str(query), 0)


@pytest.mark.slow
def test_an_encoder_is_served(clip, photos, tmp_path, capsys, monkeypatch):
    client = pytest.importorskip("starlette.testclient").TestClient
    from nearfar.serve import open_app

    file = tmp_path / "x.index"
    assert run(capsys, monkeypatch, "index", f"transformers:{clip}", photos, "-o", file)[0] == 0
    app = open_app(file, run=None, wrong=tmp_path / "x.csv", hosts=["127.0.0.1"], token="")
    about = client(app, base_url="http://127.0.0.1").get("/api/about").json()
    assert (about["images"], about["text"], about["rows"]) == (True, True, False)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("ending", ["npz", "parquet", "faiss"])
def test_embeddings_keep_names_labels_and_distance_in_every_file(tmp_path, ending, distance, capsys, monkeypatch):
    X, y = data()
    names = [f"item {i}" for i in range(len(X))]
    np.savez(tmp_path / "rows.npz", X=X, y=[f"class {label}" for label in y], names=names)
    learner = nearfar.RCA().fit(X, y).set_distance(distance)
    learner.save(tmp_path / "rca.safetensors")
    out = tmp_path / f"out.{ending}"
    words = ["embed", tmp_path / "rca.safetensors", tmp_path / "rows.npz", "-o", out]
    code, said, err = run(capsys, monkeypatch, *words)
    assert (code, said.count(f"{len(X)} embeddings of")) == (0, 1), err
    items = open_items(out)
    assert list(items.names) == names
    assert [items.classes[label] for label in items.labels] == [f"class {label}" for label in y]
    assert recorded_distance(out) == distance
    expected = learner.transform(X)
    if ending == "faiss" and distance == "cosine":
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedding_rows(items, out), expected, atol=1e-5)
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert "exists" in err
