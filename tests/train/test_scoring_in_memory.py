"""A run that was just trained is scored with the data and the network that it holds, as it is from its folder."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from nearfar.data import open as opening
from nearfar.data.open import open_task
from nearfar.models import load_embedder
from nearfar.train import DeepMetric, TrainConfig, embed_run, evaluate_run, network, train
from nearfar.train import task as tasks
from nearfar.train.rungs.untrained import save_untrained
from nearfar.train.scoring import task_of
from tests.commands import run


@pytest.fixture
def calls(monkeypatch) -> Counter:
    """How often data were opened, a network was made, and the settings of a run were read."""
    counted: Counter = Counter()

    def count(name, plain):
        def called(*given, **named):
            counted[name] += 1
            return plain(*given, **named)

        return called

    monkeypatch.setattr(tasks, "open_task", count("data", tasks.open_task))
    made = count("network", network.make_embedder)
    for place in ("nearfar.train.network", "nearfar.train.loading"):
        monkeypatch.setattr(f"{place}.make_embedder", made)
    monkeypatch.setattr(TrainConfig, "from_json", count("settings", TrainConfig.from_json))
    return counted


def scored(folder) -> tuple[dict, dict]:
    with np.load(folder / "test.npz", allow_pickle=False) as arrays:
        return json.loads((folder / "scores.json").read_text()), dict(arrays)


def assert_scored_alike(run) -> None:
    """Scoring the run in memory, and twice, is scoring its folder."""
    found = []
    for given in (run, run, run.folder):
        evaluate_run(given, clustering=False)
        found.append(scored(run.folder))
    for scores, arrays in found[1:]:
        assert scores == found[0][0]
        assert arrays.keys() == found[0][1].keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, found[0][1][name])


@pytest.mark.parametrize("metric", ["none", "whitening"])
def test_training_and_scoring_open_the_data_and_make_the_network_once(tmp_path, small, calls, metric) -> None:
    run = train(small(epochs=1, metric=metric), tmp_path / "run", progress=False)
    evaluate_run(run, clustering=False)
    assert calls == {"data": 1, "network": 1}
    assert task_of(run) is run.task
    evaluate_run(run.folder, clustering=False)
    assert calls == {"data": 2, "network": 2, "settings": 1}


def test_the_command_opens_the_data_and_makes_the_network_once(tmp_path, monkeypatch, capsys, calls) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--trunk", "mlp(width=16,depth=1)", "--embedding-dim", "8", "--epochs", "1", "--out", "run"]
    code, out, _ = run(capsys, monkeypatch, "train", "digits", *options, "--set", "device=cpu")
    assert not code
    assert calls == {"data": 1, "network": 1}
    assert "Recall@1" in out
    assert (tmp_path / "run/scores.json").is_file()


def test_an_estimator_makes_its_network_once(small, calls) -> None:
    digits = open_task("digits").train
    metric = DeepMetric(trunk="mlp(width=16, depth=1)", embedding_dim=4, epochs=1, random_state=0)
    metric.fit(digits.array.reshape(len(digits), -1).astype(np.float32), digits.labels)
    assert calls["network"] == 1
    assert not metric.network_.training


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 3, "objective": "AMSoftmaxLoss()", "lr": 0.3},  # the last epoch is not the best
        {"epochs": 2, "metric": "whitening", "ema": 0.9},
        {"epochs": 1, "trunk": "conv4(width=8)"},
        {"epochs": 1, "trunk": "conv4(width=8)", "freeze_trunk": True, "validation": 0.0},
        {"epochs": 1, "trunk": "conv4(width=8)", "symmetries": "rotations"},
    ],
)
def test_scores_in_memory_are_those_of_the_folder(tmp_path, small, few_digits, settings) -> None:
    data = few_digits if "trunk" in settings else "digits"  # networks of images take seconds for all
    run = train(small(data=data, **settings), tmp_path / "run", progress=False)
    assert_scored_alike(run)
    items = run.task.test.subset(np.arange(20))
    np.testing.assert_array_equal(embed_run(run, items), embed_run(run.folder, items))
    kept = load_embedder(run.folder).state_dict()
    for name, tensor in run.embedder.state_dict().items():
        assert torch.equal(tensor, kept[name]), name


@pytest.mark.slow
def test_a_frozen_run_is_scored_in_memory_as_from_its_folder(tmp_path, small, few_digits) -> None:
    config = small(data=few_digits, trunk="conv4(width=8)")
    assert_scored_alike(save_untrained(config, tmp_path / "run", kind="frozen"))


def test_photos_of_many_sizes_are_held_at_the_size_that_the_network_sees(tmp_path, small, monkeypatch) -> None:
    draws = np.random.default_rng(0)
    for c in range(4):
        (tmp_path / f"photos/class{c}").mkdir(parents=True)
        for i in range(6):
            pixels = draws.integers(0, 256, (90 + i, 100 + c, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"photos/class{c}/{i}.png")
    config = small(
        data=str(tmp_path / "photos"), trunk="conv4(width=8)", sampler="m_per_class:2", batch_size=4, epochs=1
    )
    run = train(config, tmp_path / "run", progress=False)
    assert run.task.test.array.shape[1:] == (84, 84, 3)
    assert_scored_alike(run)
    monkeypatch.setattr(opening, "open_source", None)
    evaluate_run(run, clustering=False)
