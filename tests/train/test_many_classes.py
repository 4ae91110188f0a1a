"""Training with proxies that are drawn in each step, or distributed over processes (see also test_distributed.py)."""

from __future__ import annotations

import pytest
import torch

from nearfar.deep import distributed
from nearfar.train import TrainConfig, TrainError, train
from nearfar.train.checkpoint import load_tensors, load_tree
from nearfar.train.optim import make_optimizer

MANY = {"symmetries": "rotations", "objective": "CosFaceLoss(scale=16)"}  # 12 classes, of which a batch has 3
PROXIES = "objective.terms.0.loss.proxies"


def trained(config, folder):
    run = train(config, folder, progress=False)
    return load_tensors(run.folder / "last.safetensors")[0]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_all_classes_drawn_train_as_the_loss_itself(tmp_path, small, optimizer) -> None:
    config = small(**MANY, optimizer=optimizer, lr=1e-3, steps=3, weight_decay=0.01, clip=0.5, seed=2**63 - 1)
    plain = trained(config, tmp_path / "plain")
    drawn = trained(config.replace(sample_classes=1.0), tmp_path / "drawn")
    distributed_over_one = trained(config.replace(shard_classes=True), tmp_path / "sharded")
    for other in (drawn, distributed_over_one):
        torch.testing.assert_close(other[PROXIES], plain["objective.terms.0.proxies"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_rows_that_were_not_drawn_stay_and_keep_their_averages(optimizer) -> None:
    config = TrainConfig.of(
        data="digits", optimizer=optimizer, momentum=0.9, weight_decay=0.1, lr=0.1, sample_classes=0.5
    )
    draws = torch.Generator().manual_seed(0)
    proxies = torch.nn.Parameter(torch.randn(6, 3, generator=draws))
    found = make_optimizer([{"name": "proxies", "params": [proxies], "lr": 0.1}], config)
    first, second = torch.tensor([0, 2, 3]), torch.tensor([2, 5])
    for rows in (first, second):
        before = proxies.detach().clone()
        averages = {key: value.clone() for key, value in found.state[proxies].items()}
        slopes = torch.randn(len(rows), 3, generator=draws)
        proxies.grad = torch.sparse_coo_tensor(rows[None], slopes, (6, 3), check_invariants=False)
        found.step()
        others = torch.isin(torch.arange(6), rows, invert=True)
        assert torch.equal(proxies[others], before[others])
        assert (proxies[rows] != before[rows]).all()
        for key, value in found.state[proxies].items():
            if value.shape == proxies.shape:
                old = averages.get(key, torch.zeros_like(value))
                assert torch.equal(value[others], old[others])
                assert (value[rows] != old[rows]).all()
    assert found.param_groups[0]["params"] == [proxies]
    assert list(found.state) == [proxies]


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective", ["CrossEntropyHead(smoothing=0.1)", "SubCenterArcFaceLoss()", "ProxyAnchorLoss()"]
)
def test_other_losses_with_all_classes_drawn(tmp_path, small, objective) -> None:
    config = small(**{**MANY, "objective": objective}, optimizer="adam", lr=1e-3, eps=1e-3, steps=3)
    plain = trained(config, tmp_path / "plain")
    drawn = trained(config.replace(sample_classes=1.0), tmp_path / "drawn")
    sharded = trained(config.replace(shard_classes=True), tmp_path / "sharded")
    names = ["proxies", "bias"] if objective.startswith("CrossEntropyHead") else ["proxies"]
    for name in names:
        expected = plain[f"objective.terms.0.{name}"]
        for other in (drawn, sharded):
            torch.testing.assert_close(other[f"objective.terms.0.loss.{name}"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_run_of_drawn_classes_resumes(tmp_path, small) -> None:
    config = small(**MANY, sample_classes=0.5, ema=0.9, optimizer="adam")
    whole = trained(config, tmp_path / "whole")
    trained(config.replace(epochs=1), tmp_path / "again")
    run = train(config, tmp_path / "again", resume=True, progress=False)
    again = load_tensors(run.folder / "last.safetensors")[0]
    assert all(torch.equal(value, again[name]) for name, value in whole.items())
    rows = run.folder / "metrics.csv"
    assert "part_CosFaceLoss" in rows.read_text()
    (state,) = run.folder.glob("state-*.safetensors")
    averages = load_tree(state)["optimizer"]["state"]
    assert any(value["exp_avg"].shape == whole[PROXIES].shape for value in averages.values())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"objective": "TripletLoss()"}, "shard_classes: needs a loss with class proxies, such as CosFaceLoss"),
        ({"objective": "AdaFaceLoss()"}, "shard_classes: AdaFaceLoss: its classes cannot be distributed"),
        ({"objective": "MAEHead()"}, "shard_classes: MAEHead needs the outputs of all classes; with very many classes"),
        ({"objective": "AMSoftmaxLoss() + JRS()"}, "shard_classes: JRS reads all class proxies of another loss"),
        (
            {"objective": "AMSoftmaxLoss() + 0.1*SparseCenters()"},
            "shard_classes: SparseCenters reads all class proxies of another loss",
        ),
        (
            {"objective": "SoftTripleLoss()", "shard_classes": False, "sample_classes": 0.1},
            "sample_classes: SoftTripleLoss: its classes cannot be drawn",
        ),
    ],
)
def test_objectives_whose_classes_cannot_be_divided(tmp_path, small, changes, says) -> None:
    config = small(**{"shard_classes": True, **changes})
    with pytest.raises(TrainError, match=says):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sample_classes": 0}, "sample_classes: Expected `float` > 0.0, got 0"),
        ({"sample_classes": 1.5}, "sample_classes: Expected `float` <= 1.0, got 1.5"),
        ({"shard_classes": True, "episodes": "maml"}, "shard_classes must not be given with them"),
        ({"sample_classes": 0.1, "episodes": "maml"}, "sample_classes must not be given with them"),
        (
            {"shard_classes": True, "text_trunk": "transformers:x"},
            "shard_classes works only with class proxies, so it must not be given with text_trunk",
        ),
    ],
)
def test_settings_that_do_not_fit(small, changes, says) -> None:
    with pytest.raises(TrainError, match=says):
        small(**MANY, **changes)


def test_fewer_classes_than_processes(tmp_path, small, monkeypatch) -> None:
    monkeypatch.setattr(distributed, "world", lambda: 5)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    from nearfar.train.network import as_sum, parse_objective
    from nearfar.train.scale.many_classes import with_many_classes

    config = small(objective="CosFaceLoss()", shard_classes=True)
    objective = as_sum(parse_objective(config.objective, num_classes=3, embedding_dim=8))
    with pytest.raises(TrainError, match=r"^config: shard_classes: 3 classes are fewer than the 5 processes"):
        with_many_classes(objective, config)
