"""An exported network or learner gives, in ONNX Runtime, what the library gives."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

import nearfar
from nearfar.data import Dataset, open_dataset, open_items
from nearfar.data.class_labels import sets_in
from nearfar.deep.networks.text_settings import Dense, LayerNorm, Pooling, UnitLength
from nearfar.deep.networks.transformers_text_trunk import TransformersTextTrunk
from nearfar.deep.networks.whiten import Whiten
from nearfar.evaluation import recall_at_k
from nearfar.models import export, sentence_folder
from nearfar.models.loading import load_embedder
from nearfar.report import model_card
from nearfar.train import TrainConfig, embed_run, train
from nearfar.train.checkpoint import read_about
from nearfar.train.run import RunFolder
from nearfar.train.scoring import tokens_of
from nearfar.trust import TrustError
from nearfar.workflows import calibrating
from nearfar.workflows.calibrating import export_calibrated

from ..commands import run

rng = np.random.default_rng(0)


def embedded(path, name, items):
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {name: items})[0]


@pytest.fixture(scope="module")
def images_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    train(TrainConfig.of(data="digits", objective="TripletLoss()", image_size=28, steps=3, epochs=1), folder)
    return folder


@pytest.mark.slow
def test_a_network_of_images_is_exported(images_run, tmp_path, capsys, monkeypatch):
    path = tmp_path / "digits.onnx"
    code, out, err = run(capsys, monkeypatch, "export", images_run, "-o", path)
    assert (code, err) == (0, "")
    assert f"{path}: " in out
    images = rng.integers(0, 256, (7, 28, 28, 1), dtype=np.uint8)
    expected = embed_run(images_run, Dataset.from_array("seven", images, np.arange(7)))
    for n in (1, 7):
        found = embedded(path, "images", images[:n])
        np.testing.assert_allclose(found, expected[:n], atol=1e-4 * np.abs(expected).max())
    told = json.loads(ort.InferenceSession(path).get_modelmeta().custom_metadata_map["about"])
    assert (told["size"], told["channels"], told["distance"]) == (28, 1, "cosine")
    assert "upright by their EXIF, 16-bit grays by their upper byte, transparent pixels on white" in told["pixels"]
    assert [file.name for file in tmp_path.iterdir()] == ["digits.onnx"]


@pytest.mark.slow
def test_a_network_is_exported_as_a_program_of_torch(images_run, tmp_path, capsys, monkeypatch):
    path = tmp_path / "digits.pt2"
    code, out, err = run(capsys, monkeypatch, "export", images_run, "-o", path)
    assert (code, out) == (0, f"{path}: a program of torch.export; its embeddings are those of {images_run}\n"), err
    images = rng.integers(0, 256, (7, 28, 28, 1), dtype=np.uint8)
    expected = embed_run(images_run, Dataset.from_array("seven", images, np.arange(7)))
    program = torch.export.load(path).module()
    for n in (1, 7):
        found = program(torch.from_numpy(images[:n])).detach()
        np.testing.assert_allclose(found, expected[:n], atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": 20, "resize": 22},
        {
            "image_size": 20,
            "resize": 23,
            "preprocessing": {"mean": [0.5] * 3, "std": [0.2] * 3, "interpolation": "bicubic"},
        },
        {"image_size": 20, "squash": True},
    ],
    ids=["default", "record", "squash"],
)
def test_images_are_served_as_the_documentation_says(settings, tmp_path, monkeypatch, capsys):
    """With its code alone, in all kinds of images, embeddings are those of the library, and photos are found."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    shapes = {"tall": (40, 24, 3), "wide": (19, 31, 3), "clear": (30, 30, 4), "turned": (24, 36, 3), "gray": (26, 20)}
    for name, shape in shapes.items():
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 6 if name == "turned" else 1
        for kind in "ab":
            (tmp_path / "images" / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / "images" / kind / f"{name}.png", exif=exif)
    config = TrainConfig.of(
        data="images", test="images", validation=0.0, steps=2, trunk="conv4(width=8)", augment="", **settings
    )
    train(config, tmp_path / "run", progress=False)
    export.export_run(tmp_path / "run", "photos.onnx")
    page = (Path(__file__).parents[2] / "docs/export.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    (embedder,) = (block for block in blocks if "photos.onnx" in block)
    (server,) = (block for block in blocks if "photos.npz" in block)
    (tmp_path / "embedding.py").write_text(embedder)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "embedding", raising=False)
    served = {}
    exec(embedder, served)
    items = open_items("images")
    expected = embed_run("run", items)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = np.stack([served["embedding"](f"images/{name}") for name in items.names])
    np.testing.assert_allclose(found, expected, atol=1e-4)

    code, _, err = run(capsys, monkeypatch, "embed", "run", "images", "-o", "photos.npz")
    assert code == 0, err
    service = {"__name__": "service"}
    exec(server, service)
    with ThreadingHTTPServer(("127.0.0.1", 0), service["Search"]) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{listening.server_port}/"
        with urllib.request.urlopen(address, data=Path("images/a/tall.png").read_bytes()) as answer:
            neighbors = json.load(answer)
        with pytest.raises(urllib.error.HTTPError, match="not an image"):
            urllib.request.urlopen(address, data=b"no image")
        listening.shutdown()
    assert sorted(neighbor["name"] for neighbor in neighbors[:2]) == ["a/tall.png", "b/tall.png"]
    assert [neighbor["distance"] for neighbor in neighbors[:2]] == pytest.approx([0, 0], abs=1e-5)


@pytest.mark.slow
def test_a_network_of_rows_is_exported(tmp_path):
    X, y = rng.normal(size=(80, 6)).astype(np.float32), np.arange(80) % 8
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    config = TrainConfig.of(data=str(tmp_path / "rows.npz"), objective="TripletLoss()", trunk="mlp", steps=3, epochs=1)
    train(config, tmp_path / "run")
    export.export_run(tmp_path / "run", tmp_path / "rows.onnx")
    expected = embed_run(tmp_path / "run", open_dataset(str(tmp_path / "rows.npz")))
    found = embedded(tmp_path / "rows.onnx", "rows", X)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    # a file that goes to others does not tell where the data lie on this machine
    assert str(tmp_path).encode() not in (tmp_path / "rows.onnx").read_bytes()


@pytest.mark.slow
def test_texts_are_embedded_as_the_documentation_says(runs, tmp_path, monkeypatch):
    """In batches of any number and length, with the code of the page alone, embeddings are those of the library."""
    monkeypatch.chdir(tmp_path)
    export.export_run(runs / "texts", "texts.onnx")
    assert {file.name for file in tmp_path.iterdir()} == {"texts.onnx", "texts.tokenizer.json"}
    page = (Path(__file__).parents[2] / "docs/export.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "texts.onnx" in block)
    served = {}
    exec(code, served)
    texts = ["dark red", "bright", "green blue dark red", "red " * 40]
    expected = nearfar.load(runs / "texts").embed(texts)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for n in (1, 2, 4):
        np.testing.assert_allclose(served["embeddings"](texts[:n]), expected[:n], atol=1e-5)
    empty = {"input_ids": np.zeros((1, 1), np.int64), "attention_mask": np.zeros((1, 1), np.int64)}
    assert np.isfinite(served["session"].run(None, empty)[0]).all()


@pytest.mark.slow
def test_both_networks_of_images_with_their_texts_are_exported(runs, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompts = {"query": ("q: ", 0), "document": ("d: ", 3)}  # the graph pools all tokens of a prompt, or none
    monkeypatch.setattr("nearfar.train.checkpoint.prompts_of", lambda about: prompts)
    code, out, err = run(capsys, monkeypatch, "export", runs / "pairs", "-o", "photos.onnx")
    files = ["photos.onnx", "photos.texts.onnx", "photos.texts.tokenizer.json"]
    assert (code, sorted(file.name for file in tmp_path.iterdir())) == (0, files), err
    assert "with its network of texts in photos.texts.onnx and photos.texts.tokenizer.json" in out
    page = (Path(__file__).parents[2] / "docs/export.md").read_text()
    (source,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.S) if '"texts.onnx"' in block)
    served = {}
    exec(source.replace("texts.onnx", files[1]).replace("texts.tokenizer.json", files[2]), served)
    texts = ["dark red", "bright", "green blue dark red"]
    expected = nearfar.load(runs / "pairs").embed(texts)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(served["embeddings"](texts), expected, atol=1e-5)
    about = json.loads(served["session"].get_modelmeta().custom_metadata_map["about"])
    assert about["prompts"] == {"query": "q: "}
    code, _, err = run(capsys, monkeypatch, "export", runs / "photos", "-o", "photos.onnx")
    assert (code, "photos.onnx exists" in err) == (2, True)


def test_an_export_leaves_nothing_of_the_one_that_it_replaces(tmp_path, capsys, monkeypatch):
    beside = export.files_of_export(tmp_path / "photos.onnx")
    for file in (*beside, tmp_path / "other.texts.onnx"):
        file.write_text("old")
    nearfar.RCA().fit(rng.normal(size=(20, 3)), np.arange(20) % 4).save(tmp_path / "rca.safetensors")
    words = ["export", tmp_path / "rca.safetensors", "-o", tmp_path / "photos.onnx"]
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, "photos.onnx exists" in err) == (2, True)
    with pytest.raises(TypeError):
        export._replace_export(beside[0], {beside[0]: b"new", beside[1]: None})  # what fails replaces nothing
    assert {file.read_text() for file in beside} == {"old"}
    code, out, err = run(capsys, monkeypatch, *words, "--overwrite")
    assert (code, err) == (0, "")
    assert "texts" not in out
    assert [file for file in beside if file.exists()] == [beside[0]]
    assert (tmp_path / "other.texts.onnx").exists()


@pytest.mark.slow
def test_a_network_that_looks_its_numbers_up_is_exported(tmp_path, monkeypatch):
    """Rows of token ids: random numbers are no ids."""
    (tmp_path / "lookups.py").write_text(
        "from torch import nn\n\n\n"
        "class Words(nn.Module):\n"
        "    def __init__(self, shape):\n"
        "        super().__init__()\n"
        "        self.vectors = nn.Embedding(9, 5)\n\n"
        "    def forward(self, ids):\n"
        "        return self.vectors(ids.long()).mean(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    X, y = rng.integers(0, 9, (80, 6)), np.arange(80) % 8
    np.savez(tmp_path / "ids.npz", X=X, y=y)
    config = TrainConfig.of(data=str(tmp_path / "ids.npz"), trunk="lookups:Words", steps=3, epochs=1, keep="trained")
    train(config, tmp_path / "run", progress=False)
    with pytest.raises(TrustError, match="names lookups:Words, which is code"):
        export.export_run(tmp_path / "run", tmp_path / "ids.onnx")
    export.export_run(tmp_path / "run", tmp_path / "ids.onnx", trust="lookups")
    expected = embed_run(tmp_path / "run", open_dataset(str(tmp_path / "ids.npz")), trust="lookups")
    found = embedded(tmp_path / "ids.onnx", "rows", X.astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.slow
def test_names_of_columns_are_exported(tmp_path):
    X, y = rng.normal(size=(40, 3)), np.repeat(np.arange(8), 5)
    np.savetxt(tmp_path / "t.csv", np.c_[X, y], delimiter=",", header="one,two,three,label", comments="")
    train(TrainConfig.of(data=tmp_path / "t.csv", steps=1, epochs=1), tmp_path / "run", progress=False)
    export.export_run(tmp_path / "run", tmp_path / "run.onnx")
    learner = nearfar.RCA().fit(X, y)
    learner.feature_names_in_ = np.array(["one", "two", "three"], dtype=object)
    export.export_learner(learner, tmp_path / "rca.onnx")
    for name in ("run", "rca"):
        about = ort.InferenceSession(tmp_path / f"{name}.onnx").get_modelmeta().custom_metadata_map["about"]
        assert json.loads(about)["columns"] == ["one", "two", "three"]


def test_a_linear_learner_is_exported(tmp_path, capsys, monkeypatch):
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    learner = nearfar.RCA(n_components=2).fit(X, y)
    learner.save(tmp_path / "rca.safetensors")
    code, out, err = run(capsys, monkeypatch, "export", tmp_path / "rca.safetensors", "-o", tmp_path / "rca.onnx")
    assert (code, err) == (0, "")
    size = (tmp_path / "rca.onnx").stat().st_size
    assert f": {size} bytes; " in out
    found = embedded(tmp_path / "rca.onnx", "rows", X.astype(np.float32))
    np.testing.assert_allclose(found, learner.transform(X), atol=1e-5)


def test_what_is_not_linear_is_refused(tmp_path):
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    learner = nearfar.KernelDCA().fit(X, y)
    with pytest.raises(ValueError, match=r"^KernelDCA is not a linear learner"):
        export.export_learner(learner, tmp_path / "kernel.onnx")
    assert not list(tmp_path.iterdir())


def test_a_learner_that_encodes_its_table_is_refused(tmp_path, capsys, monkeypatch):
    table = tmp_path / "sensors.csv"
    days = [f"{i},2024-01-{i % 28 + 1:02},{i % 4}" for i in range(40)]
    table.write_text("\n".join(["value,day,label", *days]))
    learner = tmp_path / "sensors.safetensors"
    assert run(capsys, monkeypatch, "fit", table, "RCA()", "-o", learner)[0] == 0
    code, _, err = run(capsys, monkeypatch, "export", learner, "-o", tmp_path / "sensors.onnx")
    assert code == 2
    assert "the learner encodes the dates, words or missing cells of its table, which the file would not do" in err
    assert not (tmp_path / "sensors.onnx").exists()


def test_a_file_that_gives_something_else_is_not_kept(tmp_path, monkeypatch):
    learner = nearfar.RCA().fit(rng.normal(size=(30, 4)), np.arange(30) % 3)
    monkeypatch.setattr(export, "OFF", 0.0)
    with pytest.raises(ValueError, match="gives other embeddings"):
        export.export_learner(learner, tmp_path / "rca.onnx")
    assert not list(tmp_path.iterdir())


def test_no_run_is_one_line(tmp_path, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "export", tmp_path / "nothing", "-o", tmp_path / "x.onnx")
    assert (code, err) == (
        2,
        f"nearfar: {tmp_path / 'nothing'}: does not exist; expected the folder of a run or a saved learner\n",
    )


@pytest.mark.parametrize("write", [export.export_run, export.export_program])
def test_a_missing_folder_is_said_before_the_network_is_loaded(tmp_path, monkeypatch, write):
    monkeypatch.setattr(export, "load_embedder", None)
    with pytest.raises(FileNotFoundError, match=r"^out: .*x\.onnx: there is no folder "):
        write(tmp_path / "run", tmp_path / "missing" / "x.onnx")


@pytest.mark.slow
def test_what_onnx_lacks_is_named_in_one_line(few_digits, tmp_path, capsys, monkeypatch):
    settings = {"trunk": "spd", "image_size": 28, "steps": 1, "epochs": 1, "device": "cpu", "keep": "trained"}
    train(TrainConfig.of(data=few_digits, **settings), tmp_path / "run", progress=False)
    code, _, err = run(capsys, monkeypatch, "export", tmp_path / "run", "-o", tmp_path / "x.onnx")
    assert (code, err.count("\n")) == (2, 1)
    assert "a part that ONNX cannot express: No ONNX function found for <OpOverload(op='aten.linalg_matrix_exp'" in err
    assert "\x1b" not in err
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.slow
def test_the_metric_after_a_network_is_exported_with_it(few_digits, tmp_path):
    """One file has the trunk, the embedding layer, the whitening and the scaling of pixels."""
    how = {"data": few_digits, "objective": "TripletLoss()", "image_size": 28, "steps": 3, "epochs": 1}
    train(TrainConfig.of(**how, metric="whitening"), tmp_path / "run", progress=False)
    export.export_run(tmp_path / "run", tmp_path / "run.onnx")
    images = rng.integers(0, 256, (5, 28, 28, 1), dtype=np.uint8)
    expected = embed_run(tmp_path / "run", Dataset.from_array("five", images, np.arange(5)))
    found = embedded(tmp_path / "run.onnx", "images", images)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_weights_of_8_bits_have_a_scale_for_each_channel():
    from onnx import TensorProto, helper, numpy_helper

    convolution = rng.normal(size=(16, 4, 3, 3)) * np.logspace(-3, 3, 16)[:, None, None, None]
    linear = rng.normal(size=(16, 20)) * np.logspace(3, -3, 20)
    weights = {"convolution": convolution, "linear": linear, "both": rng.normal(size=(20, 20))}
    nodes = [
        helper.make_node("Conv", ["x", "convolution"], ["maps"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "linear"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "both"], ["once"]),
        helper.make_node("Gemm", ["once", "both"], ["y"], transB=1),  # whose channels are the rows of "both"
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4, 5, 5])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("maps", "hidden", "once")],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    x = rng.normal(size=(3, 4, 5, 5)).astype(np.float32)
    before = ort.InferenceSession(model.SerializeToString()).run(["maps"], {"x": x})[0]
    small = export._quantized(model)
    stored = {one.name: numpy_helper.to_array(one) for one in small.graph.initializer}
    assert stored.keys() == {"convolution.int8", "convolution.scale", "linear.int8", "linear.scale", "both"}
    assert (stored["convolution.scale"].shape, stored["linear.scale"].shape) == ((16,), (20,))
    after = ort.InferenceSession(small.SerializeToString()).run(["maps"], {"x": x})[0]
    error = np.abs(after - before).max(axis=(0, 2, 3)) / np.abs(before).max(axis=(0, 2, 3))
    assert error.max() < 0.02  # with one scale for all, the small channels would be lost: an error of 1
    read = stored["linear.int8"] * stored["linear.scale"]
    assert (np.abs(read - linear).max(axis=0) <= 0.51 * stored["linear.scale"]).all()


@pytest.mark.slow
def test_a_network_that_computes_in_8_bits_tells_its_cost(images_run, tmp_path, capsys, monkeypatch):
    items = open_dataset("digits")
    chosen = np.arange(0, len(items), len(items) // 60)
    images = np.stack([items.read(i) for i in chosen])
    np.savez(tmp_path / "some.npz", X=images, y=items.labels[chosen])
    small = tmp_path / "small.onnx"
    code, out, err = run(capsys, monkeypatch, "export", images_run, "-o", small, "--calibrate", tmp_path / "some.npz")
    assert (code, err) == (0, "")
    told = re.search(r"computes in 8 bits: .* cosine of (\S+) .*Recall@1 is (\S+) instead of (\S+) \(", out)
    cosine, recall_int8, recall = map(float, told.groups())
    assert cosine > 0.95
    assert abs(recall_int8 - recall) < 0.2
    session = ort.InferenceSession(str(small), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["about"])
    assert about["recall_at_1"] == {"float32": recall, "int8": recall_int8}
    assert (about["activations"], about["size"]) == ("int8", 28)
    expected = embed_run(images_run, Dataset.from_array("some", images, items.labels[chosen]))
    assert recall_at_k(expected, items.labels[chosen]) == pytest.approx(recall, abs=1e-4)
    assert f"a Recall@1 of {recall_int8:.4f} instead of {recall:.4f} (measured on" in model_card(images_run)
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".npz"] == ["small.onnx"]
    code, _, err = run(capsys, monkeypatch, "export", images_run, "-o", tmp_path / "a.pt2", "--calibrate", "digits")
    assert (code, err) == (
        2,
        "nearfar: --calibrate: works only with the network of a run, in an .onnx file; leave it out\n",
    )


def test_the_cost_of_8_bits_counts_labels_in_common():
    names, class_labels = sets_in(["a;b", "a", "c", "c;d"])
    items = Dataset.from_array("sets", np.eye(4), np.array([names.index(name) for name in names]))
    items = replace(items, classes=tuple(names), class_labels=class_labels)
    rows = np.array([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    costs = calibrating._costs(rows, rows[::-1][[0, 2, 1, 3]], items)
    assert (costs.recall, costs.recall_int8) == (1.0, 0.0)  # no two sets are equal
    alone = replace(items, class_labels=sets_in(["a", "b", "c", "d"])[1], classes=("a", "b", "c", "d"))
    assert calibrating._costs(rows, rows, alone).recall is None


@pytest.mark.slow
def test_texts_and_rows_compute_in_8_bits(runs, tmp_path):
    for kind, items in (("texts", "texts.csv"), ("rows", "rows.npz")):
        costs = export_calibrated(runs / kind, tmp_path / f"{kind}.onnx", runs / items)
        assert costs.cosine > 0.9
        assert 0 <= costs.recall <= 1
    assert (tmp_path / "texts.tokenizer.json").is_file()


def test_the_javascript_of_the_page_embeds_rows(tmp_path):
    """NODE_PATH names the folder with the packages of npm."""
    packages = Path(os.environ.get("NODE_PATH", "node_modules")).resolve()
    if not shutil.which("node") or not (packages / "onnxruntime-web").is_dir():
        pytest.skip("node or its package onnxruntime-web is not installed")
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (script,) = re.findall(r"```js\n(.*?)```", page, re.S)
    assert len(script.splitlines()) <= 20
    (tmp_path / "embed.mjs").write_text(script)
    (tmp_path / "node_modules").symlink_to(packages)
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    learner = nearfar.GMML().fit(X, np.arange(30) % 3)
    export.export_learner(learner, tmp_path / "learner.onnx")
    X[:3].tofile(tmp_path / "rows.bin")
    command = ["node", "embed.mjs", "learner.onnx", "rows.bin"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120).stdout
    found = np.array([line.split() for line in told.splitlines()], dtype=float)
    np.testing.assert_allclose(found, learner.transform(X[:3]), atol=1e-4)


@pytest.mark.slow
def test_weights_of_8_bits_are_smaller_and_nearly_the_same(images_run, tmp_path, capsys, monkeypatch):
    whole, small = tmp_path / "whole.onnx", tmp_path / "small.onnx"
    export.export_run(images_run, whole)
    code, out, err = run(capsys, monkeypatch, "export", images_run, "-o", small, "--int8")
    assert (code, err) == (0, "")
    assert float(re.search(r"mean cosine of (\S+)", out)[1]) > 0.99
    assert small.stat().st_size < 0.5 * whole.stat().st_size
    items = open_dataset("digits")
    images = np.stack([items.read(i) for i in range(40)])
    images = images.repeat(28 // images.shape[1], axis=1).repeat(28 // images.shape[2], axis=2)
    images = np.pad(images, [(0, 0), (0, 28 - images.shape[1]), (0, 28 - images.shape[2]), (0, 0)])
    expected = embedded(whole, "images", images)
    found = embedded(small, "images", images)
    cosines = (expected * found).sum(1) / np.linalg.norm(expected, axis=1) / np.linalg.norm(found, axis=1)
    assert cosines.min() > 0.95
    learner = tmp_path / "rca.safetensors"
    nearfar.RCA().fit(rng.normal(size=(40, 3)), np.arange(40) % 4).save(learner)
    code, _, err = run(capsys, monkeypatch, "export", learner, "-o", tmp_path / "rca.onnx", "--int8")
    assert code == 2
    assert "--int8: works only with the network of a run" in err


def with_whitening(embedder):
    """Add the closed form that a run may keep."""
    embedder.metric = Whiten(4)
    embedder.metric.learn(rng.normal(size=(40, 4)) + 1, np.arange(40) % 5)


def with_layers(embedder):
    """Add the layers that the folder of a pretrained model may name, and keep its first dimensions."""
    trunk = embedder.trunk.module
    wide = trunk.inner.config.hidden_size
    layers = (Dense(in_features=wide, out_features=7, activation="GELU"), LayerNorm(dimension=7), UnitLength())
    pooling = Pooling(modes=("cls",), layers=layers, truncate_dim=5)
    embedder.trunk.module = TransformersTextTrunk(trunk.inner, pooling).eval()
    embedder.layer = torch.nn.Linear(5, 4)


@pytest.mark.parametrize("changed", [None, with_whitening, with_layers], ids=["linear layer", "whitened", "layers"])
def test_a_run_of_texts_opens_in_sentence_transformers(changed, runs, tmp_path, monkeypatch):
    peer = pytest.importorskip("sentence_transformers")
    embedder = load_embedder(runs / "texts")
    if changed is not None:
        changed(embedder)
        monkeypatch.setattr(sentence_folder, "load_embedder", lambda *_, **__: embedder)
    out = tmp_path / "model"
    sentence_folder.export_sentence_transformers(runs / "texts", out)
    texts = ["dark red", "bright", "green blue dark red", "red " * 40]
    tokens = tokens_of(read_about(RunFolder(runs / "texts").checkpoint("best")), "run", "texts")
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(embedder(torch.from_numpy(tokens.rows(texts))).embedding).numpy()
    theirs = peer.SentenceTransformer(str(out), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, expected, atol=1e-5)
    np.testing.assert_allclose(nearfar.load(f"transformers:{out}").embed(texts), expected, atol=1e-5)


def test_a_folder_for_sentence_transformers_is_written_wholly_or_not_at_all(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "model"
    with pytest.raises(ValueError, match="only a network of texts"):
        sentence_folder.export_sentence_transformers(runs / "rows", out)
    monkeypatch.setattr(sentence_folder, "LARGEST_DIFFERENCE", -1.0)
    with pytest.raises(ValueError, match="gives other embeddings"):
        sentence_folder.export_sentence_transformers(runs / "texts", out)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(sentence_folder, "LARGEST_DIFFERENCE", 1e-5)
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    code, _, said = run(capsys, monkeypatch, "export", runs / "texts", "-o", out, "--overwrite")
    assert code == 2
    assert "is no folder of sentence-transformers" in said
    assert [file.name for file in tmp_path.rglob("*")] == ["model", "mine.txt"]
    (out / "mine.txt").unlink()
    code, _, said = run(capsys, monkeypatch, "export", runs / "texts", "-o", out)
    assert (code, said) == (0, "")  # no progress of others, and no warning about texts of the trial
    (tmp_path / "other").mkdir()
    assert out.stat().st_mode == (tmp_path / "other").stat().st_mode  # others may read it, where they may read others
    (tmp_path / "other").rmdir()
    code, _, said = run(capsys, monkeypatch, "export", runs / "texts", "-o", out)
    assert code == 2
    assert "--overwrite" in said
    assert run(capsys, monkeypatch, "export", runs / "texts", "-o", out, "--overwrite")[0] == 0
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"has other files \('mine.txt'\), which would be lost"):
        sentence_folder.export_sentence_transformers(runs / "texts", out, overwrite=True)
    assert (out / "mine.txt").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(out)
    with pytest.raises(ValueError, match="is a link"):
        sentence_folder.export_sentence_transformers(runs / "texts", link, overwrite=True)
