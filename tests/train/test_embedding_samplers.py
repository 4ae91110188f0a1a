"""Runs whose batches depend on embeddings of all training items, and objectives that follow their clusters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from nearfar import SmartMiningSampler
from nearfar.deep import EmbeddingSampler
from nearfar.train import DeepMetric, TrainConfig, TrainError, network, train
from nearfar.train import setup as building
from nearfar.train import state as states
from tests.train.test_runs import assert_same, broken_off

SAMPLERS = {
    "mined": ("TripletLoss()", "SmartMiningSampler(neighbors=5)"),
    "seldom": ("TripletLoss()", "SmartMiningSampler(negatives=1, neighbors=5, every=2)"),
    "divided": (
        "DivideAndConquer(AMSoftmaxLoss() + TripletLoss(), groups=3)",
        "ClusterSampler(clusters=3, m=2, every=2)",
    ),
    "conquered": ("DivideAndConquer(MarginLoss(), groups=2)", "ClusterSampler(clusters=2, m=2, until=1)"),
}


def config_of(rows: str, name: str, **changes) -> TrainConfig:
    objective, sampler = SAMPLERS[name]
    fields = {
        "data": rows,
        "objective": objective,
        "sampler": sampler,
        "trunk": "mlp(width=8, depth=1)",
        "embedding_dim": 6,
        "batch_size": 12,
        "epochs": 4,
        "dropout": 0.2,
        "device": "cpu",
        "ks": (1,),
    }
    return TrainConfig.of(**{**fields, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_resumed_run_is_the_run_unbroken(tmp_path, monkeypatch, rows, name) -> None:
    config = config_of(rows, name)
    whole = train(config, tmp_path / "whole", progress=False)
    assert whole.epoch == 4
    per_epoch = whole.step // 4
    assert per_epoch > 1
    for step in (1, per_epoch, per_epoch + 1, 2 * per_epoch + 1):  # in an epoch, at its end, in later ones
        broken_off(monkeypatch, tmp_path / f"{step}", step, config)
        assert_same(whole.folder, train(None, tmp_path / f"{step}", resume=True, progress=False).folder)


def test_batches_hold_the_neighbors_in_embeddings_of_the_start_of_the_epoch(tmp_path, monkeypatch, rows) -> None:
    given, batches = [], []
    refit, forward = SmartMiningSampler.refit, network.Trainable.forward

    def watched_refit(self, embeddings):
        given.append(np.array(embeddings))
        refit(self, embeddings)

    def watched_forward(self, items, labels=None, ids=None):
        if labels is not None:
            batches.append((len(given) - 1, items.clone(), ids.clone()))
        elif len(items) == len(loop.data.train):
            assert not self.training
        return forward(self, items, labels, ids)

    config = config_of(rows, "mined", epochs=2)
    loop = building.build(config)
    monkeypatch.setattr(SmartMiningSampler, "refit", watched_refit)
    monkeypatch.setattr(network.Trainable, "forward", watched_forward)
    train(config, tmp_path / "run", progress=False)
    assert len(given) == 2
    assert not np.array_equal(*given)
    labels = loop.data.train.labels
    for epoch, _, ids in batches:
        rows_now = given[epoch] / np.linalg.norm(given[epoch], axis=1, keepdims=True)
        for anchor, _, *negatives in ids.numpy().reshape(-1, 4):
            others = np.flatnonzero(labels != labels[anchor])
            nearest = others[np.argsort(np.linalg.norm(rows_now[others] - rows_now[anchor], axis=1))[:5]]
            assert set(negatives) <= set(nearest)


@pytest.mark.slow
def test_every_batch_trains_the_group_of_its_cluster(tmp_path, monkeypatch, rows) -> None:
    moved = []
    config = config_of(rows, "divided", epochs=3, objective="DivideAndConquer(ContrastiveLoss(), groups=3)")
    plain = network.Trainable.value

    def value(self, features, items, labels, ids):
        result = plain(self, features, items, labels, ids)
        (slopes,) = torch.autograd.grad(result, features.embedding, retain_graph=True)
        term = self.objective.terms[0]
        (cluster,) = set(term.clusters[ids].tolist())
        if bool(slopes.any()):
            moved.append((cluster, slopes.any(0).tolist()))
        return result

    monkeypatch.setattr(network.Trainable, "value", value)
    train(config, tmp_path / "run", progress=False)
    assert len({cluster for cluster, _ in moved}) == 3
    for cluster, dims in moved:
        assert dims == [at // 2 == cluster for at in range(6)]


@pytest.mark.parametrize(
    ("objective", "sampler", "says"),
    [
        (
            "DivideAndConquer(TripletLoss(), groups=3)",
            "m_per_class:4",
            r"^config: sampler: DivideAndConquer needs ClusterSampler\(clusters=3\), got MPerClassSampler$",
        ),
        (
            "TripletLoss() + DivideAndConquer(TripletLoss(), groups=3)",
            "ClusterSampler(m=2)",
            r"^config: sampler: DivideAndConquer needs one cluster for each group, got 4 clusters and 3 groups$",
        ),
        (
            "TripletLoss()",
            "ClusterSampler(clusters=100, m=2)",
            r"^sampler .*: clusters: expected at most \d+, the samp",
        ),
        ("TripletLoss()", "SmartMiningSampler(negatives=3)", r"^sampler .*: batch_size: must be a multiple of"),
        (
            "DivideAndConquer(ProxyNCALoss(proxies='kmeans'), groups=3)",
            "ClusterSampler(clusters=3, m=2)",
            r"^DivideAndConquer: a run sets no k-means proxies of groups; choose proxies='learned' or 'class_mean'",
        ),
    ],
)
def test_settings_that_do_not_fit_are_told(tmp_path, rows, objective, sampler, says) -> None:
    with pytest.raises(TrainError, match=says):
        train(config_of(rows, "mined", objective=objective, sampler=sampler), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_embeddings_that_are_not_finite_are_told(tmp_path, monkeypatch, rows) -> None:
    monkeypatch.setattr(states, "embed_both", lambda parts, dataset: np.full((len(dataset), 6), np.nan, np.float32))
    with pytest.raises(TrainError, match=r"embeddings of .* that are not finite; lower the learning rate"):
        train(config_of(rows, "mined"), tmp_path / "run", progress=False)


def test_a_run_goes_on_without_images_that_cannot_be_decoded(tmp_path, small) -> None:
    rng = np.random.default_rng(0)
    for name in range(8):
        (tmp_path / f"photos/{name}").mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(0, 255, (9, 9, 3), np.uint8)).save(tmp_path / f"photos/{name}/{i}.png")
    sampler = "SmartMiningSampler(negatives=1, neighbors=2, every=2)"
    how = {"data": str(tmp_path / "photos"), "image_size": 8, "sampler": sampler, "batch_size": 3, "epochs": 1}
    run = train(small(**how), tmp_path / "run", progress=False)
    (tmp_path / "photos" / run.task.train.names[1]).write_bytes(b"not an image")
    more = run.config.replace(epochs=2, skip_bad=True)
    assert train(more, run.folder, resume=True, progress=False).epoch == 2


@pytest.mark.slow
def test_chunks_and_frozen_trunks_look_at_embeddings(tmp_path, rows) -> None:
    for name, changes in (("divided", {"chunk": 5}), ("mined", {"freeze_trunk": True})):
        run = train(config_of(rows, name, epochs=2, **changes), tmp_path / name, progress=False)
        assert run.epoch == 2


def test_an_estimator_mines(rows) -> None:
    with np.load(rows) as arrays:
        X, y = arrays["X"], arrays["y"]
    how = {"trunk": "mlp(width=8, depth=1)", "embedding_dim": 4, "batch_size": 12, "epochs": 1}
    how["settings"] = {"sampler": "SmartMiningSampler(neighbors=5)", "device": "cpu"}
    metric = DeepMetric("TripletLoss()", **how).fit(X, y)
    assert metric.transform(X).shape == (80, 4)


class Longest(EmbeddingSampler):
    """One of a user's own: the items with the longest embeddings."""

    def __init__(self, labels, batch_size, *, seed=0):
        super().__init__((len(labels),), len(labels), batch_size=batch_size, seed=seed, every=1)

    def find(self, rows, rng):
        return np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")

    def batches_per_epoch(self):
        return 2

    def plan(self, rng):
        return self.found()[: 2 * self.batch_size].reshape(2, -1)


@pytest.mark.slow
def test_a_sampler_of_ones_own_looks_at_embeddings(tmp_path, monkeypatch, rows) -> None:
    config = config_of(rows, "mined", sampler=f"{__name__}:Longest")
    whole = train(config, tmp_path / "whole", progress=False)
    assert whole.step == 8
    broken_off(monkeypatch, tmp_path / "broken", 5, config)
    again = train(None, tmp_path / "broken", resume=True, progress=False, trust=__name__)
    assert_same(whole.folder, again.folder)
