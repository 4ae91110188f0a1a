"""Runs with models of timm and transformers: one record of how images reach them, used alike wherever they are."""

import csv
import json
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from safetensors.torch import load_file, save_file

import nearfar
from nearfar.data import open_items
from nearfar.models import load_embedder
from nearfar.models.vision_folder import export_vision_model
from nearfar.train import DeepMetric, TrainConfig, TrainError, embed_run, evaluate_run, train
from nearfar.train.checkpoint import read_about
from nearfar.train.scoring import Result

from ..commands import run as run_command

pytestmark = pytest.mark.slow  # all of it trains

TRUNK = "timm:test_resnet(mean=0.3, std=(0.2, 0.25, 0.3))"
SPEED = {"steps": 2, "batch_size": 8, "embedding_dim": 4, "validation": 0.0, "device": "cpu", "ks": (1,)}


@pytest.fixture
def photos(tmp_path):
    """A folder of class folders with photos of several sizes."""
    rng = np.random.default_rng(0)
    for name in "abcd":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(4):
            small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
            size = (170 + 11 * i, 200 - 7 * i)
            small.resize(size, Image.Resampling.BICUBIC).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def expected_features(timm, model, photos, transform=None) -> torch.Tensor:
    """What timm's own pipeline gives, without a classifier and an embedding layer."""
    transform = transform or timm.data.create_transform(
        (3, 160, 160), interpolation="bilinear", crop_pct=0.95, mean=(0.3, 0.3, 0.3), std=(0.2, 0.25, 0.3)
    )
    images = [Image.open(photos / name).convert("RGB") for name in names_of(photos)]
    with torch.no_grad():
        return model(torch.stack([transform(image) for image in images]))


def names_of(photos) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in photos.glob("*/*.png"))


def test_one_record_goes_through_run_checkpoint_embedding_and_export(timm, photos, tmp_path):
    run = train(TrainConfig.of(data=str(photos), trunk=TRUNK, **SPEED), tmp_path / "run", progress=False)
    written = json.loads((run.folder / "config.json").read_text())
    assert written["preprocessing"]["mean"] == [0.3, 0.3, 0.3]
    assert (written["image_size"], written["resize"]) == (160, 168)
    assert written["preprocessing"]["interpolation"] == "bilinear"
    assert TrainConfig.from_json(run.folder / "config.json").preprocessing == run.config.preprocessing
    embedder = load_embedder(run)
    expected = expected_features(timm, embedder.trunk.inner, photos)
    found = embed_run(run, open_items(photos), layer="pooled")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert isinstance(evaluate_run(run, clustering=False), Result)
    metric = DeepMetric.load(run.folder)
    paths = [str(photos / name) for name in names_of(photos)]
    rows = embed_run(run, open_items(photos))
    np.testing.assert_allclose(metric.transform(paths), rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5)
    from nearfar.report import report_run

    page = report_run(run.folder).read_text()
    assert "preprocessing.mean" in page
    assert "random (timm:test_resnet" in page
    assert read_about(run.folder / "best.safetensors")["weights"].startswith("Weights: random")


def test_an_exported_file_normalizes_by_itself(timm, photos, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from nearfar.models.export import export_run

    run = train(TrainConfig.of(data=str(photos), trunk=TRUNK, **SPEED), tmp_path / "run", progress=False)
    export_run(run.folder, tmp_path / "it.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "it.onnx"), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).integers(0, 256, (2, 160, 160, 3), dtype=np.uint8)
    (found,) = session.run(None, {"images": images})
    floats = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = load_embedder(run)(floats).embedding
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    about = json.loads(session.get_modelmeta().custom_metadata_map["about"])
    assert (about["size"], about["resize"]) == (160, 168)
    assert "shorter side to `resize`, bilinear" in about["pixels"]


def test_the_cache_of_frozen_features_tells_pools_and_means_apart(timm, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    for number, options in enumerate(["", "(mean=0.1)", "(pool='gem')"]):
        config = TrainConfig.of(data=str(photos), trunk=f"timm:test_resnet{options}", freeze_trunk=True, **SPEED)
        run = train(config, tmp_path / str(number), progress=False)
        count = len(list((tmp_path / "cache").rglob("*.npy")))
        assert count == number + 1
        rows = np.load(max((tmp_path / "cache").rglob("*.npy"), key=lambda path: path.stat().st_mtime_ns))
        task = open_items(photos)
        features = embed_run(run, task, layer="pooled")
        assert min(np.abs(features - row).max(axis=1).min() for row in rows) < 1e-5


def test_weights_of_a_file_are_told_and_random_ones_remarked(timm, photos, tmp_path, capsys):
    model = timm.create_model("test_vit", num_classes=3)
    path = tmp_path / "vit.safetensors"
    save_file(model.state_dict(), path, metadata={"license": "MIT"})
    config = TrainConfig.of(data=str(photos), trunk="timm:test_vit", pretrained=path, freeze_trunk=True, **SPEED)
    run = train(config, tmp_path / "run")
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(
        f"Weights: pretrained, {path}, license MIT; its classifier (head.bias, head.weight) is left"
    )
    found = embed_run(run, open_items(photos), layer="pooled")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    model.reset_classifier(0)
    np.testing.assert_allclose(found, expected_features(timm, model.eval(), photos, transform), rtol=1e-4, atol=1e-4)
    path.unlink()  # a run that goes on or is read needs no file
    assert load_embedder(run).trunk.num_features == 64
    told = json.loads((run.folder / "environment.json").read_text())["weights"]
    assert first.startswith(f"{told} Settings that were not given have the values of the recipe photos/frozen, because")
    from nearfar.train.remarks import random_trunk

    assert not random_trunk(config, first, 5_000_000)
    small = TrainConfig.of(data="digits", trunk="timm:resnet18")
    assert "11.2 million parameters and started with random weights" in random_trunk(
        small, "Weights: random (x).", 11_200_000
    )
    assert not random_trunk(small, "Weights: random (x).", 900_000)


def test_a_resumed_run_keeps_record_and_weights(timm, photos, tmp_path):
    model = timm.create_model("test_resnet", num_classes=0)
    path = tmp_path / "weights.safetensors"
    save_file(model.state_dict(), path)
    settings = {**SPEED, "steps": None, "data": str(photos), "trunk": TRUNK, "pretrained": path}
    settings["schedule"] = "constant"  # a run of a cosine schedule cannot be made longer
    whole = train(TrainConfig.of(**settings, epochs=2), tmp_path / "whole", progress=False)
    train(TrainConfig.of(**settings, epochs=1), tmp_path / "parts", progress=False)
    path.unlink()
    parts = train(TrainConfig.of(**settings, epochs=2), tmp_path / "parts", resume=True, progress=False)
    assert np.array_equal(embed_run(whole, open_items(photos)), embed_run(parts, open_items(photos)))
    assert "pretrained" in read_about(parts.folder / "last.safetensors")["weights"]


def test_runs_without_a_record_are_read_as_before(timm, photos, tmp_path):
    """Versions before took pixels in [0, 1] without mean and deviation, by their own way of resizing."""
    config = TrainConfig.of(data=str(photos), trunk="timm:test_resnet", **SPEED)
    run = train(config, tmp_path / "run", progress=False)
    written = json.loads((run.folder / "config.json").read_text())
    for name in ("preprocessing", "pretrained"):
        del written[name]
    (run.folder / "config.json").write_text(json.dumps({**written, "image_size": 64, "resize": 72}))
    from safetensors import safe_open

    best = run.folder / "best.safetensors"
    with safe_open(best, framework="pt") as file:
        kept = [key for key in file.keys() if "embedder.scale" not in key]  # noqa: SIM118  # it cannot be iterated
        tensors = {key: file.get_tensor(key) for key in kept}
        metadata = {**file.metadata(), "shape": json.dumps([3, 64, 64])}
    save_file(tensors, best, metadata=metadata)
    embedder = load_embedder(run.folder)
    assert not list(embedder.scale.buffers())
    from nearfar.data.decode import fit

    items = open_items(photos)
    images = np.stack([fit(items.read(i), 72, 64) for i in range(len(items))])
    with torch.no_grad():
        expected = embedder.trunk.inner(torch.from_numpy(images).permute(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(embed_run(run.folder, items, layer="pooled"), expected, rtol=1e-4, atol=1e-5)


def test_small_photos_are_enlarged_to_the_size_of_the_trunk(timm, photos, tmp_path):
    for path in photos.glob("*/*.png"):
        Image.open(path).resize((64, 64)).save(path)
    run = train(TrainConfig.of(data=str(photos), trunk="timm:test_resnet", **SPEED), tmp_path / "run", progress=False)
    assert (run.config.image_size, run.config.resize) == (160, 160)
    fixed = "timm:deit_tiny_patch16_224(depth=1, img_size=32)"
    run = train(TrainConfig.of(data=str(photos), trunk=fixed, **SPEED), tmp_path / "fixed", progress=False)
    assert (run.config.image_size, run.config.resize) == (32, 35)


def test_crops_of_the_augmentation_give_the_size_that_the_trunk_takes(timm, photos, tmp_path):
    fixed = "timm:deit_tiny_patch16_224(depth=1, img_size=32)"
    for number, augment in enumerate(["", "resized_crop, mirror", "crop"]):
        config = TrainConfig.of(data=str(photos), trunk=fixed, augment=augment, **SPEED)
        assert train(config, tmp_path / str(number), progress=False).step == 2


def test_another_trunk_forgets_the_record(timm):
    config = TrainConfig.of(data="digits", trunk="timm:test_resnet", preprocessing={"mean": [0.5] * 3, "std": [1] * 3})
    assert config.replace(epochs=2).preprocessing == config.preprocessing
    assert config.replace(trunk="conv4").preprocessing is None


def test_a_run_of_transformers_needs_its_folder_only_at_the_start(transformers, photos, tmp_path):
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    folder = tmp_path / "vit"
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    processor = {"size": {"height": 32, "width": 32}, "image_mean": [0.4] * 3, "image_std": [0.3] * 3, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\nA model.\n")
    run = train(
        TrainConfig.of(data=str(photos), trunk=f"transformers:{folder}", **SPEED), tmp_path / "run", progress=False
    )
    assert read_about(run.folder / "best.safetensors")["architecture"]["image_pooling"] == "cls"
    assert "license apache-2.0" in read_about(run.folder / "best.safetensors")["weights"]
    before = embed_run(run, open_items(photos))
    folder.rename(tmp_path / "elsewhere")
    assert np.array_equal(embed_run(run, open_items(photos)), before)


def test_vision_transformers_take_every_path(transformers, peft, photos, tmp_path, capsys, monkeypatch):
    """Without a training, with the last stage and with adapters: indexed, searched, grouped and exported."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=16
    )
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "vit")
    processor = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
    trunk = f"transformers:{tmp_path / 'vit'}"
    models = [trunk]
    for name, settings in {"last": {"last_stage": True}, "lora": {"lora": 2}}.items():
        train(TrainConfig.of(data=str(photos), trunk=trunk, **settings, **SPEED), tmp_path / name, progress=False)
        models.append(str(tmp_path / name))
    for number, model in enumerate(models):
        index = tmp_path / f"{number}.index"
        for words in (
            ["index", model, photos, "-o", index],
            ["search", index, photos / "a" / "0.png", "-k", "2"],
            ["groups", index],
            *([["export", model, "-o", tmp_path / f"{number}.onnx"]] if number and find_spec("onnxruntime") else []),
        ):
            code, out, err = run_command(capsys, monkeypatch, *words)
            assert code == 0, err
            assert words[0] != "search" or "a/0.png" in out.splitlines()[1]


@pytest.mark.parametrize("model", ["test_resnet", "test_vit"])
def test_a_run_opens_in_timm_with_its_layer_as_the_classifier_and_here_as_a_trunk(
    timm, photos, tmp_path, capsys, monkeypatch, model
):
    trunk = f"timm:{model}(mean=0.3, std=(0.2, 0.25, 0.3))"
    settings = {**SPEED, "metric": "whitening", "keep": "trained"}
    run = train(TrainConfig.of(data=str(photos), trunk=trunk, **settings), tmp_path / "run", progress=False)
    out = tmp_path / "out"
    code, said, err = run_command(capsys, monkeypatch, "export", run.folder, "-o", out)
    assert (code, said) == (0, f"{out}: a folder of timm; its model gives what that of {run.folder} gives\n"), err
    opened = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(opened), is_training=False)
    z = expected_features(timm, opened, photos, transform)
    whitening = load_file(out / "embedding.safetensors")
    assert set(whitening) == {"whitening.weight", "whitening.mean"}
    z = (z / z.norm(dim=1, keepdim=True) - whitening["whitening.mean"]) @ whitening["whitening.weight"].T
    items = open_items(photos)
    np.testing.assert_allclose(z, embed_run(run, items), rtol=1e-4, atol=1e-5)
    encoder = nearfar.load(f"timm:{out}")  # as any folder of timm: the features before the classifier
    pooled = embed_run(run, items, layer="pooled")
    np.testing.assert_allclose(encoder.embed(items), pooled, atol=1e-5 * np.abs(pooled).max())
    again = TrainConfig.of(data=str(photos), trunk=f"timm:{out}(drop_rate=0.1)")
    assert again.trunk.startswith(f"timm:{model}(in_chans=3, mean=(0.3, 0.3, 0.3), ")
    assert again.pretrained == str(out / "model.safetensors")
    with pytest.raises(ValueError, match=r"^out: .* exists; pass overwrite=True to replace it$"):
        export_vision_model(run.folder, out)
    (out / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"^config: trunk timm:.*: the folder has no model\.safetensors; weights in"):
        nearfar.load(f"timm:{out}")


def test_a_run_on_a_vision_model_opens_in_transformers_and_here(photos, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(**small, image_size=32, patch_size=16)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "vit")
    processor = {"size": {"height": 32, "width": 32}, "image_mean": [0.4] * 3, "image_std": [0.3] * 3, "resample": 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
    trunk = f"transformers:{tmp_path / 'vit'}"
    run = train(TrainConfig.of(data=str(photos), trunk=trunk, **SPEED), tmp_path / "run", progress=False)
    assert export_vision_model(run.folder, tmp_path / "out") == "transformers"
    items = open_items(photos)
    pooled = embed_run(run, items, layer="pooled")
    encoder = nearfar.load(f"transformers:{tmp_path / 'out'}")
    np.testing.assert_allclose(encoder.embed(items), pooled, atol=1e-5 * np.abs(pooled).max())
    layer = load_file(tmp_path / "out" / "embedding.safetensors")
    assert set(layer) == {"linear.weight", "linear.bias"}
    z = torch.from_numpy(pooled) @ layer["linear.weight"].T + layer["linear.bias"]
    np.testing.assert_allclose(z, embed_run(run, items), atol=1e-5)


def test_an_encoder_of_timm_may_have_its_weights_in_a_file(timm, photos, tmp_path):
    model = timm.create_model("test_vit", num_classes=3).eval()
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    encoder = nearfar.load(f"timm:test_vit(pretrained='{tmp_path / 'vit.safetensors'}')")
    model.reset_classifier(0)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    expected = expected_features(timm, model, photos, transform)
    np.testing.assert_allclose(encoder.embed(open_items(photos)), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="pretrained: expected a file of weights, got 3"):
        nearfar.load("timm:test_vit(pretrained=3)")


def test_deep_metric_takes_pretrained_weights(timm, photos, tmp_path):
    model = timm.create_model("test_resnet", num_classes=0)
    path = tmp_path / "weights.safetensors"
    save_file(model.state_dict(), path)
    settings = {"pretrained": str(path), "freeze_trunk": True, "device": "cpu"}
    metric = DeepMetric(trunk=TRUNK, embedding_dim=4, epochs=1, batch_size=8, settings=settings, random_state=0)
    names = names_of(photos)
    metric.fit([str(photos / name) for name in names], [name[0] for name in names])
    paths = [str(photos / name) for name in names]
    from nearfar.data.readers.in_memory import images

    found = metric.network_.features
    assert callable(found)
    embedded = metric.transform(paths)
    with torch.no_grad():
        pooled = expected_features(timm, model.eval(), photos)
        expected = metric.network_.head(pooled).embedding
    expected = expected / expected.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(embedded, expected, rtol=1e-4, atol=1e-4)
    assert images(paths, np.zeros(len(paths), np.int64)).kind == "image"
    metric.save(tmp_path / "saved")
    assert np.array_equal(DeepMetric.load(tmp_path / "saved").transform(paths), embedded)


def test_pretrained_on_the_command_line(timm, photos, tmp_path, capsys, monkeypatch):
    from nearfar.cli import main

    path = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), path)
    words = ["nearfar", "train", str(photos), "--trunk", "timm:test_resnet", "--pretrained", str(path)]
    words += ["--set", "steps=1", "--batch-size", "8", "--set", "device=cpu", "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert f"Weights: pretrained, {path}" in capsys.readouterr().err
    with (tmp_path / "run" / "metrics.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 1


def test_a_size_that_a_grid_of_patches_does_not_take_is_told(timm, photos, tmp_path):
    config = TrainConfig.of(data=str(photos), trunk="timm:test_vit", image_size=8, **SPEED)
    with pytest.raises(TrainError, match=r"image_size: the trunk timm:test_vit takes images of 160 pixels only.*got 8"):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("trunk", ["timm:test_resnet", "timm:test_vit"])
def test_gray_photos_are_taken_by_a_trunk_of_colors(trunk, timm, photos, tmp_path):
    for path in photos.glob("*/*.png"):
        Image.open(path).convert("L").save(path)
    run = train(TrainConfig.of(data=str(photos), trunk=trunk, **SPEED), tmp_path / "run", progress=False)
    assert np.isfinite(embed_run(run, open_items(photos))).all()
