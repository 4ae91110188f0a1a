"""The closed-form metric of a trained network: fitted after training, kept if it helps, part of all that follows."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import nearfar
from nearfar.data import open_task
from nearfar.models import load_embedder
from nearfar.train import DeepMetric, TrainConfig, embed_run, evaluate_run, train
from nearfar.train.checkpoint import load_tensors

pytestmark = pytest.mark.slow  # nearly all of it trains

NAMES = {"embedder.metric.mean", "embedder.metric.weight"}


def names_in(folder, which="best"):
    return load_tensors(folder / f"{which}.safetensors")[0].keys()


def plain_embeddings(folder, items):
    """What the network of a run gives before its metric."""
    import torch

    embedder = load_embedder(folder)
    embedder.metric = torch.nn.Identity()
    return nearfar.train.embed(embedder, items)


@pytest.fixture(scope="module")
def whitened(tmp_path_factory, few_digits):
    folder = tmp_path_factory.mktemp("metric") / "run"
    config = TrainConfig.of(
        data=few_digits,
        trunk="mlp(width=16, depth=1)",
        embedding_dim=8,
        batch_size=24,
        epochs=2,
        device="cpu",
        metric="whitening",
        validation=0.4,
        keep="trained",
    )
    train(config, folder, progress=False)
    return folder


def test_a_run_whitens_by_its_training_items(whitened, few_digits):
    task = open_task(few_digits, validation=0.4, seed=0)
    assert names_in(whitened) >= NAMES
    rows = plain_embeddings(whitened, task.train)
    learner = nearfar.DiscriminantWhitening(normalize=True).fit(rows.astype(np.float64), task.train.labels)
    expected = learner.transform(plain_embeddings(whitened, task.test).astype(np.float64))
    assert_allclose(embed_run(whitened, task.test), expected, atol=1e-4 * np.abs(expected).max())
    assert not names_in(whitened, "last") & NAMES


def test_its_scores_are_told_beside_those_without_it(whitened, few_digits):
    result = evaluate_run(whitened, clustering=False)
    task = open_task(few_digits, validation=0.4, seed=0)
    with np.load(whitened / "test.npz") as arrays:
        assert_allclose(arrays["embeddings"], embed_run(whitened, task.test), atol=1e-5)
    plain = nearfar.evaluation.evaluate(plain_embeddings(whitened, task.test), task.test.labels, clustering=False)
    assert_allclose(result.without_metric.map_at_r, plain.map_at_r, rtol=1e-6)
    assert "A whitening, fitted to the training items, follows the network: MAP@R" in result.protocol
    assert any("without the whitening" in remark for remark in result.remarks)
    content = json.loads((whitened / "scores.json").read_text())
    assert content["without_metric"]["map_at_r"] == result.without_metric.map_at_r


def test_it_is_exported(whitened, few_digits, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from nearfar.models.export import export_run

    export_run(whitened, tmp_path / "run.onnx")
    test = open_task(few_digits, validation=0.4, seed=0).test
    session = ort.InferenceSession(tmp_path / "run.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {"images": test.array[:9]})[0]
    expected = embed_run(whitened, test)[:9]
    assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_new_run_starts_from_the_network_before_its_metric(whitened, small, tmp_path):
    config = small(trunk="mlp(width=16, depth=1)", network_weights=str(whitened / "best.safetensors"), epochs=1)
    train(config, tmp_path / "next", progress=False)
    assert not names_in(tmp_path / "next") & NAMES


def test_a_run_that_goes_on_fits_it_anew(small, tmp_path):
    train(small(metric="whitening", epochs=1), tmp_path / "short", progress=False)
    train(small(metric="whitening", epochs=3), tmp_path / "short", resume=True, progress=False)
    train(small(metric="whitening", epochs=3), tmp_path / "whole", progress=False)
    cut, whole = (load_tensors(tmp_path / name / "best.safetensors") for name in ("short", "whole"))
    assert cut[0].keys() == whole[0].keys()
    for name, value in whole[0].items():
        assert_array_equal(cut[0][name], value)
    assert cut[1]["metric"] == whole[1]["metric"]


def test_auto_keeps_it_only_where_validation_classes_are_better(small, tmp_path):
    kept = {}
    for seed in range(3):
        folder = tmp_path / str(seed)
        train(small(metric="auto", epochs=1, seed=seed, validation=0.4), folder, progress=False)
        about = load_tensors(folder / "best.safetensors")[1]["metric"]
        kept[seed] = about["kept"]
        assert about["kept"] == (about["score"] > about["without"])
        assert NAMES.issubset(names_in(folder)) == about["kept"]
        protocol = evaluate_run(folder, clustering=False).protocol
        assert ("follows the network" in protocol) == about["kept"]
        assert ("was left out" in protocol) != about["kept"]


def test_a_metric_that_is_worse_is_left_out(small, tmp_path, monkeypatch):
    from nearfar.deep.networks.whiten import Whiten

    def forget(self, embeddings, labels):
        self.weight.zero_()[0, 0] = 1.0

    monkeypatch.setattr(Whiten, "learn", forget)
    train(small(metric="auto", validation=0.4), tmp_path / "run", progress=False)
    tensors, about = load_tensors(tmp_path / "run" / "best.safetensors")
    assert not about["metric"]["kept"]
    assert not tensors.keys() & NAMES
    result = evaluate_run(tmp_path / "run", clustering=False)
    assert "was left out" in result.protocol
    assert result.without_metric is None


def test_auto_without_validation_classes_fits_none(small, tmp_path):
    train(small(metric="auto", validation=0.0), tmp_path / "run", progress=False)
    assert "metric" not in load_tensors(tmp_path / "run" / "best.safetensors")[1]


def test_without_it_a_checkpoint_holds_what_it_held(small, tmp_path):
    train(small(), tmp_path / "run", progress=False)
    tensors, about = load_tensors(tmp_path / "run" / "best.safetensors")
    assert not tensors.keys() & NAMES
    assert "metric" not in about
    assert small().digest == small(metric="none").digest != small(metric="auto").digest


def test_a_frozen_trunk_is_embedded_from_its_features(small, few_digits, tmp_path):
    train(small(freeze_trunk=True, metric="whitening"), tmp_path / "run", progress=False)
    task = open_task(few_digits, validation=0.15, seed=0)
    rows = plain_embeddings(tmp_path / "run", task.train)
    learner = nearfar.DiscriminantWhitening(normalize=True).fit(rows.astype(np.float64), task.train.labels)
    expected = learner.transform(plain_embeddings(tmp_path / "run", task.test).astype(np.float64))
    assert_allclose(embed_run(tmp_path / "run", task.test), expected, atol=1e-3 * np.abs(expected).max())


def test_an_estimator_keeps_it_and_saves_it(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 6
    X = (rng.normal(size=(6, 5))[y] + rng.normal(size=(120, 5))).astype(np.float32)
    how = {"trunk": "mlp(width=8, depth=1)", "embedding_dim": 4, "epochs": 2, "batch_size": 24, "random_state": 0}
    metric = DeepMetric(settings={"metric": "whitening"}, **how).fit(X, y)
    plain = DeepMetric(**how).fit(X, y)
    raw = plain.transform(X).astype(np.float64)
    expected = nearfar.DiscriminantWhitening(normalize=True).fit(raw, y).transform(raw)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_allclose(metric.transform(X), expected, atol=1e-4)
    metric.save(tmp_path / "run")
    again = DeepMetric.load(tmp_path / "run")
    assert_array_equal(again.transform(X), metric.transform(X))
    assert again.settings["metric"] == "whitening"


def test_a_line_of_the_run_says_what_came_of_it(small, tmp_path, capsys):
    train(small(metric="auto", validation=0.4), tmp_path / "run", progress=True)
    assert "A whitening, fitted to the training items," in capsys.readouterr().err
