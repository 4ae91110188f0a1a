"""Rows whose columns have units of their own, and networks that learn from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nearfar.evaluation import evaluate
from nearfar.models import load_embedder
from nearfar.report import report_run
from nearfar.train import TrainError, embed_run, evaluate_run, train
from nearfar.train.scoring import task_of
from nearfar.workflows.fitting import fit
from tests.commands import run as command


@pytest.fixture
def table(tmp_path):
    """Rows of eight classes: the columns have units from 0.01 to 1000, and one is constant."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 12)
    units, shift = 10.0 ** np.array([-2, 0, 3, 1, 0]), np.array([5, -3, 100, 0, 7])
    rows = (rng.normal(size=(8, 5))[y] + 0.3 * rng.normal(size=(96, 5))) * units + shift
    rows[:, 4] = 7.0
    path = tmp_path / "rows.npz"
    np.savez(path, X=rows.astype(np.float32), y=y)
    return path


def config_of(path, small, **changes):
    return small(data=str(path), **{"sampler": "m_per_class:4", "batch_size": 8, **changes})


def test_a_standardized_network_is_one_of_standardized_rows(table, tmp_path, small):
    parts = np.load(table)
    run = train(config_of(table, small, standardize=True), tmp_path / "run", progress=False)
    learned = load_embedder(run).scale
    scaled = (parts["X"] - learned.mean.numpy()) / learned.deviation.numpy()
    np.savez(tmp_path / "scaled.npz", X=scaled, y=parts["y"])
    other = train(config_of(tmp_path / "scaled.npz", small), tmp_path / "other", progress=False)
    found, expected = embed_run(run, str(table)), embed_run(other, str(tmp_path / "scaled.npz"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(found, axis=0).min() > 0


def test_the_units_are_those_of_the_training_rows(table, tmp_path, small):
    from nearfar.train.setup import build

    loop = build(config_of(table, small, standardize=True))
    rows, scale = loop.data.train.array.astype(np.float64), loop.trainable.embedder.scale
    np.testing.assert_allclose(scale.mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(scale.deviation[:4], rows.std(0)[:4], rtol=1e-6)
    assert scale.deviation[4] == 1  # constant
    assert not list(scale.parameters())


def test_a_run_resumed_is_the_run_unbroken(table, tmp_path, small):
    whole = train(config_of(table, small, standardize=True), tmp_path / "whole", progress=False)
    train(config_of(table, small, standardize=True, epochs=1), tmp_path / "cut", progress=False)
    train(config_of(table, small, standardize=True), tmp_path / "cut", resume=True, progress=False)
    found, expected = embed_run(tmp_path / "cut", str(table)), embed_run(whole, str(table))
    np.testing.assert_array_equal(found, expected)


def test_features_of_a_frozen_trunk_know_the_units(table, tmp_path, small):
    how = {"trunk": "identity", "freeze_trunk": True}
    plain = train(config_of(table, small, **how), tmp_path / "plain", progress=False)
    run = train(config_of(table, small, standardize=True, **how), tmp_path / "run", progress=False)
    free = train(config_of(table, small, standardize=True, trunk="identity"), tmp_path / "free", progress=False)
    found, expected = embed_run(run, str(table)), embed_run(free, str(table))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(found, embed_run(plain, str(table)))


def test_a_network_that_goes_on_keeps_its_units(table, tmp_path, small):
    first = train(config_of(table, small, standardize=True), tmp_path / "first", progress=False)
    moved = dict(np.load(table))
    np.savez(tmp_path / "moved.npz", X=moved["X"] * 3 + 1, y=moved["y"])
    how = {"standardize": True, "network_weights": str(first.folder / "best.safetensors"), "lr": 0.0}
    then = train(config_of(tmp_path / "moved.npz", small, **how), tmp_path / "then", progress=False)
    found, expected = embed_run(then, str(table)), embed_run(first, str(table))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_run_is_beside_its_standardized_rows(table, tmp_path, small, capsys, monkeypatch):
    run = train(config_of(table, small, standardize=True), tmp_path / "run", progress=False)
    task, learned = task_of(run), load_embedder(run).scale
    rows = (task.test.array - learned.mean.numpy()) / learned.deviation.numpy()
    alone, plain = (evaluate(X, task.test.labels, clustering=False) for X in (rows, task.test.array))
    assert alone.map_at_r > plain.map_at_r + 0.1
    assert evaluate_run(run).raw.map_at_r == pytest.approx(alone.map_at_r)
    said = command(capsys, monkeypatch, "evaluate", run.folder)[1]
    assert f"baseline (standardized inputs): Recall@1 {alone.recall_at[1]:.4f}, MAP@R {alone.map_at_r:.4f}" in said
    assert "standardized inputs" in report_run(run.folder).read_text()
    other = train(config_of(table, small), tmp_path / "other", progress=False)
    assert evaluate_run(other).raw.map_at_r == pytest.approx(plain.map_at_r)
    said = command(capsys, monkeypatch, "evaluate", other.folder)[1]
    assert f"baseline (raw inputs): Recall@1 {plain.recall_at[1]:.4f}" in said


def test_images_have_no_columns(tmp_path, small):
    with pytest.raises(TrainError, match="standardize works only with rows, got images"):
        train(small(standardize=True), tmp_path / "run", progress=False)


def test_rows_have_no_size_in_pixels(table, tmp_path, small):
    with pytest.raises(TrainError, match="image_size works only with images, got rows; leave it out"):
        train(config_of(table, small, image_size=32), tmp_path / "run", progress=False)


def test_unequal_units_are_remarked_until_they_are_standardized(table, tmp_path, small):
    told = {}
    for standardize in (False, True):
        run = train(config_of(table, small, standardize=standardize), tmp_path / f"{standardize}", progress=False)
        told[standardize] = any("--standardize" in remark for remark in evaluate_run(run).remarks)
        fitted = fit(str(table), "RCA()", tmp_path / f"{standardize}.safetensors", standardize=standardize)
        assert ("--standardize" in fitted) is not standardize
    assert told == {False: True, True: False}


@pytest.mark.slow
def test_standardized_rows_are_exported(table, tmp_path, small):
    export = pytest.importorskip("nearfar.models.export")
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = train(config_of(table, small, standardize=True), tmp_path / "run", progress=False)
    export.export_run(run.folder, tmp_path / "rows.onnx")
    rows = np.load(table)["X"]
    found = runtime.InferenceSession(tmp_path / "rows.onnx").run(None, {"rows": rows})[0]
    expected = load_embedder(run)(torch.as_tensor(rows)).embedding.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
