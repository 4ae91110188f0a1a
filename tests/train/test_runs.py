"""Runs: what they write, and that being broken off changes nothing."""

import json
import os
import random
import re
import signal
import sys
import warnings
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from numpy.testing import assert_array_equal
from PIL import Image
from safetensors.torch import save_file

from nearfar.data import open_dataset
from nearfar.data.decode import BadImageError
from nearfar.deep.networks.weights import TrunkError
from nearfar.deep.objective.terms import SetTerm
from nearfar.deep.proxies.class_proxies import NeighborProxyLoss
from nearfar.models import load_embedder
from nearfar.models.embedded import embed_source
from nearfar.train import (
    TrainConfig,
    TrainError,
    Watcher,
    embed_run,
    estimator,
    evaluate_run,
    network,
    open_run,
    scoring,
    train,
)
from nearfar.train import settle as settling
from nearfar.train import setup as building
from nearfar.train.checkpoint import load_tensors, read_about, replace_file, save_tensors
from nearfar.train.config import Tracker
from nearfar.train.features import embed
from nearfar.train.loading import load_trainable
from nearfar.train.monitor import EpochScores, score_unseen_and_seen
from nearfar.train.optim import param_groups
from nearfar.train.run import RunFolder
from nearfar.train.scoring import task_of
from nearfar.train.trackers import Trackers
from nearfar.train.watchers import ProgressLine, line, summary
from nearfar.trust import TrustError

from .. import forking

RICH = "0.5*TripletLoss() + AMSoftmaxLoss() + 0.1*EnergyConfusion(pairs='one')"


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return load_tensors(folder / f"{name}.safetensors")[0]


def assert_same(one: Path, other: Path) -> None:
    for name in ("last", "best"):
        a, b = weights(one, name), weights(other, name)
        assert a.keys() == b.keys()
        for key in a:
            assert torch.equal(a[key], b[key]), key
    step = read_about(one / "last.safetensors")["step"]
    assert (one / f"state-{step}.0.safetensors").exists()
    drop = {"images_per_second"}
    rows = [
        [{k: v for k, v in row.items() if k not in drop} for row in open_run(f).read_metrics()] for f in (one, other)
    ]
    assert rows[0] == rows[1]
    logs = [[{k: v for k, v in r.items() if k not in drop} for r in open_run(f).read_log()] for f in (one, other)]
    assert logs[0] == logs[1]


def test_the_command_of_a_run_is_one_that_can_be_typed(tmp_path, small, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", [str(tmp_path / "nearfar" / "__main__.py"), "train", "my digits"])
    run = train(small(), tmp_path / "run", progress=False)
    assert (run.folder / "command.txt").read_text() == "nearfar train 'my digits'\n"


def test_a_run_writes_its_folder(tmp_path, small) -> None:
    run = train(small(objective=RICH, log_every=4), tmp_path / "run", progress=False)
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "command.txt",
        "config.json",
        "environment.json",
        "training-items.safetensors",
        "log.jsonl",
        "metrics.csv",
        "best.safetensors",
        "last.safetensors",
        f"state-{run.step}.0.safetensors",
        "choice.json",
    }
    folder = open_run(run.folder)
    log, rows = folder.read_log(), folder.read_metrics()
    assert set(log[0]["parts"]) == {"TripletLoss", "AMSoftmaxLoss", "EnergyConfusion"}
    assert set(log[0]["lr"]) == {"trunk", "embedding", "proxies"}
    assert 0 <= log[0]["active"]["TripletLoss"] <= 1
    assert [row["epoch"] for row in rows] == [1, 2]
    for which in ("seen", "unseen"):
        assert {f"{which}_recall_at_1", f"{which}_recall_at_2", f"{which}_map_at_r"} <= rows[0].keys()
    parts = {"TripletLoss": 0.5, "AMSoftmaxLoss": 1.0, "EnergyConfusion": 0.1}
    assert rows[0]["loss"] == pytest.approx(sum(w * rows[0][f"part_{name}"] for name, w in parts.items()), rel=1e-5)
    assert run.best == max(row["unseen_map_at_r"] for row in rows)
    assert json.loads((run.folder / "environment.json").read_text())["device"] == "cpu"
    assert "objective.terms.1.proxies" in weights(run.folder)


def test_the_test_split_is_scored_at_the_end(tmp_path, small, monkeypatch) -> None:
    run = train(small(data="digits", validation=0.4, epochs=1), tmp_path / "run", progress=False)
    result = evaluate_run(run, clustering=False)
    saved = json.loads((run.folder / "scores.json").read_text())
    assert saved["scores"] == result.scores.to_dict()
    weighted = [(row["queries"], row["recall_at_1"], row["map_at_r"]) for row in saved["classes"].values()]
    assert set(saved["classes"]) == {"5", "6", "7", "8", "9"}
    queries, recalls, precisions = np.array(weighted).T
    assert np.average(recalls, weights=queries) == pytest.approx(result.scores.recall_at[1])
    assert np.average(precisions, weights=queries) == pytest.approx(result.scores.map_at_r)
    assert saved["config"] == run.config.digest
    assert "chosen by MAP@R on the validation classes" in saved["protocol"]
    with np.load(run.folder / "test.npz", allow_pickle=False) as arrays:
        assert arrays["embeddings"].shape == (len(arrays["labels"]), 8)
        assert arrays["classes"].tolist() == ["5", "6", "7", "8", "9"]
        assert len(arrays["names"]) == len(arrays["labels"])
    assert result.raw.recall_at[1] == pytest.approx(0.99, abs=0.003)  # of the pixels
    # the stored embeddings are those of the same network and items, and not computed again
    computed = Mock(side_effect=embed)
    monkeypatch.setattr(scoring, "embed", computed)
    monkeypatch.setattr(estimator, "embed", computed)
    assert evaluate_run(run.folder, clustering=False).scores == result.scores
    rows = embed_source(run.folder).rows
    assert computed.call_count == 0
    assert np.array_equal(rows, np.load(run.folder / "test.npz")["embeddings"])
    with monkeypatch.context() as changed:
        changed.setattr(scoring, "digest_of_items", lambda items: "other items")
        assert embed_source(run.folder).rows == pytest.approx(rows)
    (run.folder / "test.npz").write_bytes(b"no archive")
    evaluate_run(run.folder, clustering=False)
    assert computed.call_count == 2
    assert embed_source(run.folder).rows == pytest.approx(rows)
    assert computed.call_count == 2


@pytest.mark.slow
def test_same_seed_same_run_and_another_seed_another(tmp_path, small) -> None:
    one, two, other = (
        train(small(seed=s, epochs=1), tmp_path / str(k), progress=False) for k, s in enumerate((0, 0, 1))
    )
    assert_same(one.folder, two.folder)
    assert not torch.equal(weights(one.folder)["embedder.layer.weight"], weights(other.folder)["embedder.layer.weight"])


@pytest.mark.slow
def test_training_is_better_than_nothing(tmp_path, small) -> None:
    objective, trunk = "AMSoftmaxLoss()", "mlp(width=64)"
    config = small(data="digits", test="digits", epochs=4, objective=objective, trunk=trunk, lr=3e-3)
    run = train(config, tmp_path / "run", progress=False)
    rows = open_run(run.folder).read_metrics()
    assert rows[-1]["seen_map_at_r"] > 0.99
    assert rows[-1]["loss"] < rows[0]["loss"] / 2


def broken_off(monkeypatch, folder: Path, step: int, config) -> None:
    """Train until Ctrl-C comes after `step` batches."""
    plain = network.Trainable.forward
    count = 0

    def forward(self, items, labels=None, ids=None):
        nonlocal count
        count += labels is not None
        if count == step and labels is not None:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(self, items, labels, ids)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run with it ignored
    try:
        with monkeypatch.context() as patch:
            patch.setattr(network.Trainable, "forward", forward)
            with pytest.raises(KeyboardInterrupt):
                train(config, folder, progress=False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 5, 7])  # in an epoch, at its end, in the next
def test_ctrl_c_writes_a_checkpoint_and_resuming_changes_nothing(tmp_path, monkeypatch, small, step) -> None:
    config = small(objective=RICH, dropout=0.2, schedule="cosine", warmup=0.5)
    whole = train(config, tmp_path / "whole", progress=False)
    before = signal.getsignal(signal.SIGINT)
    broken_off(monkeypatch, tmp_path / "broken", step, config)
    assert signal.getsignal(signal.SIGINT) is before
    assert read_about(tmp_path / "broken" / "last.safetensors")["step"] == step
    torch.rand(3)
    run = train(None, tmp_path / "broken", resume=True, progress=False)
    assert run.best_epoch == whole.best_epoch
    assert_same(whole.folder, run.folder)


KILLED = """
import os, signal, sys
from nearfar.train import TrainConfig, train
from nearfar.train.network import Trainable

def deadly(plain, left, counts):
    def call(*args):
        nonlocal left
        left -= counts(*args)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args)
    return call

what, count = sys.argv[3], int(sys.argv[4])
if what == "batch":
    Trainable.forward = deadly(Trainable.forward, count, lambda *args: True)
else:  # when a file gets its name the count-th time
    os.replace = deadly(os.replace, count, lambda old, new: os.path.basename(new) == what)
train(TrainConfig.from_json(sys.argv[1]), sys.argv[2], progress=False)
"""


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory, small):
    """A run that nothing ends early, of a network with everything that draws."""
    network = {"trunk": "conv4(width=4)", "image_size": 16, "augment": "affine, erasing", "dropout": 0.1}
    config = small(**network, objective=RICH, checkpoint_every=3)
    return train(config, tmp_path_factory.mktemp("whole") / "run", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "count", "left"),
    [
        ("batch", 5, 3),  # in the middle of an epoch
        ("last.safetensors", 1, None),  # the state of the first checkpoint is there, its weights are not
        ("last.safetensors", 2, 3),  # the same of the second
        ("state-5.0.safetensors", 1, 3),  # the best weights of the first epoch are there, its checkpoint is not
        ("metrics.csv", 1, 5),  # its checkpoint is there, its line of the table is not
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(tmp_path, whole_run, what, count, left) -> None:
    config = whole_run.config
    path, folder = tmp_path / "config.json", tmp_path / "killed"
    path.write_text(config.to_json())
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    ended = forking.run("-c", KILLED, path, folder, what, count, env=environment)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    last = folder / "last.safetensors"
    assert (read_about(last)["step"] if last.exists() else None) == left
    run = train(config, folder, resume=True, progress=False)
    assert_same(whole_run.folder, run.folder)
    assert not list(folder.glob("*.partial"))


def test_resuming_with_other_settings_lists_them(tmp_path, small) -> None:
    run = train(small(epochs=1), tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match=r"other settings .*: seed: 0 / 3; lr: 0.001 / 0.5$"):
        train(small(epochs=1, seed=3, lr=0.5), run.folder, resume=True, progress=False)
    again = train(small(epochs=1), run.folder, resume=True, progress=False)  # a finished run stays finished
    assert again == run


@pytest.mark.parametrize("sampler", ["m_per_class:7", "m_per_class:0", "class_ratio:7", "some"])
def test_a_sampler_that_does_not_fit_is_a_wrong_setting(tmp_path, small, sampler) -> None:
    with pytest.raises(TrainError, match=r"^\w+: "):
        train(small(sampler=sampler), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def scores_of(monkeypatch, values):
    """Let the evaluations of the next run score these on the unseen classes."""
    given = iter(values)
    monkeypatch.setattr(
        "nearfar.train.trainer.score_unseen_and_seen", lambda loop: EpochScores({"unseen_map_at_r": next(given)})
    )


@pytest.mark.slow
def test_patience_ends_a_run_and_survives_being_broken_off(tmp_path, monkeypatch, small) -> None:
    config = small(epochs=9, patience=2)
    values = [0.1, 0.3, 0.2, 0.4, 0.4, 0.3, 0.9]
    scores_of(monkeypatch, values)
    whole = train(config, tmp_path / "whole", progress=False)
    assert (whole.epoch, whole.best_epoch, whole.best) == (6, 4, 0.4)
    steps = whole.step // 6
    scores_of(monkeypatch, values)
    broken_off(monkeypatch, tmp_path / "broken", 5 * steps + 1, config)
    scores_of(monkeypatch, values[5:])
    run = train(None, tmp_path / "broken", resume=True, progress=False)
    assert_same(whole.folder, run.folder)
    scores_of(monkeypatch, [])
    assert train(None, run.folder, resume=True, progress=False).epoch == 6  # it stays finished
    scores_of(monkeypatch, [0.1, 0.9, 0.1, 0.1])
    more = train(run.config.replace(patience=4), run.folder, resume=True, progress=False)
    assert (more.epoch, more.best_epoch) == (9, 8)
    with pytest.raises(TrainError, match="patience needs validation classes, and there are none"):
        train(small(patience=1, validation=0.0), tmp_path / "none", progress=False)


@pytest.mark.slow
def test_averaged_weights_are_evaluated_kept_and_resumed(tmp_path, monkeypatch, small) -> None:
    network = {"trunk": "conv4(width=4)", "image_size": 16}  # batch normalization has statistics
    config = small(**network, data="digits", objective=RICH, ema=0.9, lr=3e-3)
    after = []
    plain = torch.optim.Adam.step

    def step(self, *args, **kwargs):
        done = plain(self, *args, **kwargs)
        after.append([p.detach().clone() for group in self.param_groups for p in group["params"]])
        return done

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", step)
        whole = train(config, tmp_path / "whole", progress=False)
    assert whole.best_epoch == 2  # the best checkpoint is that of the last step
    torch.manual_seed(config.seed)
    loop = building.build(config)
    groups = param_groups(loop.trainable.embedder, loop.trainable.objective, config)
    named = {id(p): name for name, p in loop.trainable.named_parameters()}
    trained = [p for group in groups for p in group["params"]]
    averages = [p.detach().clone() for p in trained]
    for t, values in enumerate(after, 1):
        for average, value in zip(averages, values, strict=True):
            average += (1 - min(0.9, (1 + t) / (10 + t))) * (value - average)
    best, last = weights(whole.folder, "best"), weights(whole.folder)
    for p, average, value in zip(trained, averages, after[-1], strict=True):
        torch.testing.assert_close(best[named[id(p)]], average)
        assert torch.equal(last[named[id(p)]], value)
    assert any("running_mean" in key and not torch.equal(best[key], last[key]) for key in best)
    broken_off(monkeypatch, tmp_path / "broken", whole.step // 2 + 3, config)
    run = train(None, tmp_path / "broken", resume=True, progress=False)
    assert_same(whole.folder, run.folder)


@pytest.mark.slow
def test_a_finished_run_goes_on_for_more_epochs(tmp_path, small) -> None:
    config = small(epochs=3, objective=RICH, dropout=0.1, warmup=0.5, schedule="step", lr_step=2)
    whole = train(config, tmp_path / "whole", progress=False)
    train(config.replace(epochs=1), tmp_path / "short", progress=False)
    run = train(config, tmp_path / "short", resume=True, progress=False)
    assert_same(whole.folder, run.folder)
    assert TrainConfig.from_json(run.folder / "config.json") == whole.config
    assert train(None, run.folder, resume=True, progress=False) == run


@pytest.mark.parametrize(
    ("own", "given", "message"),
    [
        (
            {"schedule": "cosine"},
            {"schedule": "cosine", "epochs": 2},
            r"epochs: 1 / 2 \(with a cosine schedule, all learning rates depend on",
        ),
        ({"steps": 2}, {"epochs": 2}, r"steps: 2 / None; epochs: 1 / 2 \(a run with `steps` ends within"),
        ({"epochs": 2}, {"epochs": 1}, r"epochs: 2 / 1 \(a run can be made longer, but not shorter\)$"),
        ({}, {"epochs": 2, "lr": 0.5}, r"given\): lr: 0.001 / 0.5$"),
    ],
)
def test_an_end_that_cannot_move_says_why(tmp_path, small, own, given, message) -> None:
    run = train(small(**{"epochs": 1, **own}), tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match=message):
        train(small(**given), run.folder, resume=True, progress=False)


def test_folders_that_are_taken_or_missing(tmp_path, small) -> None:
    with pytest.raises(TrainError, match="no such run"):
        train(small(), tmp_path / "none", resume=True, progress=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(TrainError, match="not empty"):
        train(small(), tmp_path / "other", progress=False)
    with pytest.raises(TrainError, match="is not the folder of a run"):
        open_run(tmp_path / "other")
    run = train(small(steps=2), tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match="contains a run already"):
        train(small(), run.folder, progress=False)


@pytest.mark.slow
def test_images_that_differ_in_size_become_squares(tmp_path, small) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in range(8):
        (tmp_path / f"photos/{name}").mkdir(parents=True)
        for i in range(4):
            image = Image.fromarray(rng.integers(0, 255, (40 + 3 * i, 50 + name, 3), np.uint8))
            image.save(tmp_path / f"photos/{name}/{i}.png")
    config = small(data=str(tmp_path / "photos"), trunk="auto", sampler="random", batch_size=4, steps=1)
    run = train(config, tmp_path / "run", progress=False)
    assert (run.config.trunk, run.config.image_size) == ("conv4", 84)
    assert evaluate_run(run.folder).scores.recall_at[1] >= 0


def test_a_run_that_meets_an_image_that_cannot_be_decoded_goes_on_without_it(tmp_path, small) -> None:
    rng = np.random.default_rng(0)
    for name in range(8):
        (tmp_path / f"photos/{name}").mkdir(parents=True)
        for i in range(4):
            image = Image.fromarray(rng.integers(0, 255, (40 + 3 * i, 50 + name, 3), np.uint8))
            image.save(tmp_path / f"photos/{name}/{i}.png")
    how = {"data": str(tmp_path / "photos"), "image_size": 8, "sampler": "random", "batch_size": 4, "epochs": 1}
    run = train(small(**how), tmp_path / "run", progress=False)
    parts = task_of(run)
    for part in (parts.train, parts.test):
        (tmp_path / "photos" / part.names[1]).write_bytes(b"not an image")
    longer = run.config.replace(epochs=2)
    with pytest.raises(BadImageError, match="cannot be decoded"):
        train(longer, run.folder, resume=True, progress=False)
    run = train(longer.replace(skip_bad=True), run.folder, resume=True, progress=False)
    assert run.epoch == 2
    assert "2 undecodable images left out" in evaluate_run(run).protocol
    assert run.config.refused(longer) == ["skip_bad: True / False"]


def test_data_that_have_changed_since_the_training_are_noticed(tmp_path, small) -> None:
    def written(classes: int, each: int = 4) -> None:
        lines = [f"{c}.{k},{c % 3},c{c}" for c in range(classes) for k in range(each)]
        (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *lines]))

    written(12)
    run = train(small(data=str(tmp_path / "rows.csv"), trunk="mlp", steps=2), tmp_path / "run", progress=False)
    assert "NOT the data" not in evaluate_run(run.folder).protocol
    written(14)
    assert "NOT the data of the training" in evaluate_run(run.folder).protocol
    with pytest.raises(TrainError, match="4 training classes in the run, 5 now"):
        train(None, run.folder, resume=True, progress=False)
    written(12, each=3)
    assert "NOT the data" not in evaluate_run(run.folder).protocol  # the same classes are unseen
    with pytest.raises(TrainError, match="or of data that have changed since"):
        train(None, run.folder, resume=True, progress=False)


@pytest.mark.slow
def test_images_too_small_for_the_trunk_are_enlarged(tmp_path, small) -> None:
    config = small(trunk="auto", sampler="random", batch_size=4, steps=1)
    run = train(config, tmp_path / "run", progress=False)
    assert (run.config.trunk, run.config.image_size) == ("conv4", 28)


def test_images_too_small_for_the_trunk_are_enlarged_where_those_of_the_test_differ(tmp_path, small) -> None:
    rng = np.random.default_rng(0)
    for name, side in (("data", 8), ("test", 12)):
        np.savez(tmp_path / name, X=rng.integers(0, 255, (24, side, side), np.uint8), y=np.arange(24) // 4)
    data, test = str(tmp_path / "data.npz"), str(tmp_path / "test.npz")
    config = small(data=data, test=test, trunk="auto", sampler="random", batch_size=4, steps=1)
    run = train(config, tmp_path / "run", progress=False)
    assert run.config.image_size == 28
    assert evaluate_run(run.folder).scores.recall_at[1] >= 0


def test_other_sizes_of_the_test_are_brought_to_that_of_training(tmp_path, small) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for folder, shape in (("photos", (20, 20)), ("other", (30, 26))):
        for name in range(6):
            (tmp_path / folder / str(name)).mkdir(parents=True)
            for i in range(4):
                Image.fromarray(rng.integers(0, 255, shape, np.uint8)).save(tmp_path / folder / f"{name}/{i}.png")
    other = str(tmp_path / "other")
    config = small(data=str(tmp_path / "photos"), test=other, sampler="random", batch_size=4, steps=1)
    run = train(config, tmp_path / "run", progress=False)
    assert run.config.image_size == 20
    evaluate_run(run.folder)
    assert_array_equal(np.load(run.folder / "test.npz")["embeddings"], embed_run(run, open_dataset(other)))
    assert_array_equal(embed_run(run, other), embed_run(run, open_dataset(other)))


def test_training_and_test_are_of_one_kind(tmp_path, small) -> None:
    np.savez(tmp_path / "rows.npz", X=np.eye(8), y=np.arange(8) % 2)
    with pytest.raises(
        TrainError, match="rows: expected items like those of the training, an image, got a row of 8 numbers"
    ):
        train(small(test=str(tmp_path / "rows.npz")), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_nothing_is_left_of_a_run_that_fails_before_its_first_checkpoint(tmp_path, small) -> None:
    with pytest.raises(TrainError, match="no checkpoint yet"):
        train(small(objective="TripletLoss(margin=1e60)"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_another_checkpoint_than_the_best_and_the_last_is_refused(tmp_path, small) -> None:
    run = train(small(epochs=1), tmp_path / "run", progress=False)
    for verb in (load_embedder, evaluate_run):
        with pytest.raises(TrainError, match="which must be one of 'best', 'last', 'trained'; got 'lats'"):
            verb(run, which="lats")
    assert not (run.folder / "scores.json").exists()


def test_nothing_is_left_of_a_run_that_cannot_start(tmp_path, small) -> None:
    for wrong in ({"data": "nowhere"}, {"objective": "TripletLos()"}, {"trunk": "conv"}, {"batch_size": 400}):
        with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
            train(small(**wrong), tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()


def test_nothing_is_left_of_a_run_whose_first_checkpoint_does_not_fit(tmp_path, monkeypatch, small) -> None:
    def full(*_: object) -> None:
        raise TrainError("the disk is full")

    monkeypatch.setattr("nearfar.train.run.save_tree", full)  # after the weights of the best epoch
    with pytest.raises(TrainError, match="full"):
        train(small(), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_do_not_train_in_one_folder(tmp_path, monkeypatch, small) -> None:
    def train_there_too(config: object, start: object) -> None:
        with pytest.raises(TrainError, match=rf"(process {os.getpid()}|another process) is training in this folder"):
            train(small(objective="NPairLoss()"), tmp_path / "run", progress=False)
        assert (tmp_path / "run").is_dir()
        monkeypatch.undo()
        return settling.settle(config, start)

    monkeypatch.setattr("nearfar.train.training.settle", train_there_too)
    run = train(small(), tmp_path / "run", progress=False)
    assert run.config.objective == "TripletLoss()"


def test_a_run_that_another_process_finished_meanwhile_is_not_trained_over(tmp_path, monkeypatch, small) -> None:
    plain = RunFolder.create

    def others_are_faster(folder: RunFolder) -> None:
        plain(folder)
        monkeypatch.undo()
        train(small(epochs=1, objective="NPairLoss()"), folder.path, progress=False)

    monkeypatch.setattr(RunFolder, "create", others_are_faster)
    with pytest.raises(TrainError, match="contains a run already"):
        train(small(epochs=1), tmp_path / "run", progress=False)
    config = TrainConfig.from_json(tmp_path / "run" / "config.json")
    assert config.objective == "NPairLoss()"
    assert (tmp_path / "run" / "last.safetensors").exists()


def test_the_lock_that_a_killed_training_left_hinders_nobody(tmp_path, small) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    train(small(epochs=1), tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / ".lock").exists()


def test_steps_end_a_run_inside_an_epoch(tmp_path, small) -> None:
    run = train(small(steps=7), tmp_path / "run", progress=False)
    assert (run.step, run.epoch, run.config.epochs) == (7, 2, 2)
    assert [row["step"] for row in open_run(run.folder).read_metrics()] == [5, 7]


def test_a_folder_that_cannot_be_written_in_is_refused_before_the_work(tmp_path, monkeypatch, small) -> None:
    run = train(small(epochs=1), tmp_path / "run", progress=False)
    monkeypatch.setattr("nearfar.train.scoring.os.access", lambda path, mode: False)
    monkeypatch.setattr("nearfar.train.scoring._task", lambda *of: pytest.fail("opened the data"))
    with pytest.raises(TrainError, match=r"run: is not writable, but scores of the test are stored there"):
        evaluate_run(run)


@pytest.mark.slow
def test_evaluations_can_be_rarer_but_never_miss_the_end(tmp_path, small) -> None:
    run = train(small(epochs=3, eval_every=2), tmp_path / "run", progress=False)
    rows = open_run(run.folder).read_metrics()
    assert [row["unseen_map_at_r"] is None for row in rows] == [True, False, False]
    assert run.best_epoch in (2, 3)


@pytest.mark.slow
def test_without_validation_classes_the_last_epoch_is_best(tmp_path, small) -> None:
    run = train(small(validation=0.0, epochs=2), tmp_path / "run", progress=False)
    assert (run.best, run.best_epoch) == (None, 2)
    assert "no validation classes" in evaluate_run(run, clustering=False).protocol


def test_validation_classes_of_one_item_each_are_not_measured(tmp_path, small) -> None:
    labels = np.concatenate([np.repeat(np.arange(6), 8), np.arange(6, 10)])
    split = np.where(labels < 4, "train", np.where(labels < 6, "test", "validation"))
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(len(labels), 5)), y=labels, split=split)
    run = train(small(data=str(tmp_path / "rows.npz"), epochs=1), tmp_path / "run", progress=False)
    protocol = evaluate_run(run, clustering=False).protocol
    assert "The validation classes could not be scored: the checkpoint is that of the last" in protocol


@pytest.mark.slow
def test_a_run_takes_a_loss_of_ones_own_and_its_network_needs_it_no_more(tmp_path, monkeypatch, small) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    own = "from nearfar.deep.objective.terms import SetTerm\nclass Norms(SetTerm):\n    def value(self, batch):\n"
    (folder / "norms_of_ones_own.py").write_text(own + "        return (batch.x.norm(dim=1) - 1).square().mean()\n")
    monkeypatch.syspath_prepend(folder)
    objective = "TripletLoss() + 0.5*norms_of_ones_own:Norms()"
    run = train(small(objective=objective, epochs=1), tmp_path / "run", progress=False)
    logged = json.loads((run.folder / "log.jsonl").read_text().splitlines()[-1])
    assert set(logged["parts"]) == {"TripletLoss", "Norms"}
    assert train(run.config.replace(epochs=2), run.folder, resume=True, progress=False).epoch == 2
    monkeypatch.delitem(sys.modules, "norms_of_ones_own")
    (folder / "norms_of_ones_own.py").unlink()
    assert evaluate_run(run.folder).scores.recall_at[1] > 0


class Spoiled(SetTerm):
    """A term that turns into NaN at the third call."""

    def __init__(self, at: int, gradient: bool = False) -> None:
        super().__init__()
        self.calls, self.at, self.gradient = 0, at, gradient

    def value(self, batch):
        self.calls += 1
        finite = batch.x.square().sum()
        if self.calls < self.at:
            return finite
        return (batch.x * 0).abs().sqrt().sum() if self.gradient else finite * float("nan")


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (False, "step 7, epoch 2: the loss is not finite: Spoiled is nan; the checkpoint of step 5 is kept"),
        (True, r"step 7, epoch 2: the gradient of TripletLoss \+ Spoiled is not finite; the checkpoint of step 5 is"),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch, small, gradient, message) -> None:
    plain = network.parse_objective

    def spoiled(text, **sizes):
        return plain(text, **sizes) + Spoiled(7, gradient)

    monkeypatch.setattr(network, "parse_objective", spoiled)
    with pytest.raises(TrainError, match=message):
        train(small(), tmp_path / "run", progress=False)
    assert all(torch.isfinite(value).all() for value in weights(tmp_path / "run").values())


@pytest.mark.parametrize(
    "how", [{"validation": 0.0, "steps": 1}, {"validation": 0.5, "steps": 1}, {"checkpoint_every": 1, "epochs": 1}]
)
def test_weights_that_are_not_finite_are_neither_scored_nor_kept(tmp_path, small, how) -> None:
    # the loss of the first step is finite
    config = small(optimizer="sgd", lr=1e38, weight_decay=1e38, **how)
    with pytest.raises(TrainError, match="step 1, epoch 1: the weights are not finite; no checkpoint yet"):
        train(config, tmp_path / "run", progress=False)
    assert not any((tmp_path / "run").glob("*.safetensors"))


def test_all_random_numbers_of_a_run_follow_from_its_seed(monkeypatch, small) -> None:
    drawn = []
    plain = settling.open_data

    def draws(*given, **how):  # as a user's own trunk or data may
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002  # the global generator is what is tested
        return plain(*given, **how)

    monkeypatch.setattr(settling, "open_data", draws)
    for _ in range(2):
        building.build(small())
    assert drawn[0] == drawn[1]


def test_a_file_that_cannot_be_written_is_named(tmp_path) -> None:
    with pytest.raises(TrainError, match=r"best\.safetensors: cannot be written \(No such file or directory\)\Z"):
        replace_file(tmp_path / "nowhere" / "best.safetensors", b"")


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_keeps_the_old_checkpoint(tmp_path, monkeypatch, small) -> None:
    plain = os.fsync
    written = 0

    def fsync(number: int) -> None:
        nonlocal written
        written += 1
        if written > 9:
            raise OSError(28, "No space left on device")
        plain(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(TrainError, match=r"\A[^\n]*No space left on device\); the checkpoint of step \d+ is kept\Z"):
        train(small(epochs=5), tmp_path / "run", progress=False)
    monkeypatch.undo()
    assert not list((tmp_path / "run").glob("*.partial"))
    done = read_about(tmp_path / "run" / "last.safetensors")["step"]
    assert 0 < done < 5 * 5
    assert train(None, tmp_path / "run", resume=True, progress=False).step == 5 * 5


def test_checkpoints_that_are_not_ours(tmp_path, small) -> None:
    run = train(small(steps=2), tmp_path / "run", progress=False)
    last = run.folder / "last.safetensors"
    save_file({"weight": torch.zeros(1)}, last)
    with pytest.raises(TrainError, match="not a checkpoint of nearfar"):
        train(None, run.folder, resume=True, progress=False)
    last.write_bytes(b"\x80\x04 pickled")
    with pytest.raises(TrainError, match="not a checkpoint of nearfar, or damaged"):
        train(None, run.folder, resume=True, progress=False)
    (run.folder / "best.safetensors").unlink()
    with pytest.raises(TrainError, match="no such checkpoint"):
        load_embedder(run)


def test_one_part_objective_is_logged_by_name(tmp_path, small) -> None:
    run = train(small(steps=1), tmp_path / "run", progress=False)
    assert list(open_run(run.folder).read_log()[0]["parts"]) == ["TripletLoss"]


@pytest.mark.slow
def test_frozen_trunk_features_are_computed_once(tmp_path, monkeypatch, small) -> None:
    from nearfar.train import features

    calls = []
    plain = features.embed
    monkeypatch.setattr(features, "embed", lambda *args, **how: calls.append(1) or plain(*args, **how))
    config = small(freeze_trunk=True, trunk="conv4(width=8)", image_size=16, epochs=1)
    one = train(config, tmp_path / "one", progress=False)
    assert len(calls) == 2  # training and validation classes
    two = train(config, tmp_path / "two", progress=False)
    assert len(calls) == 2
    assert_same(one.folder, two.folder)
    train(config.replace(seed=1), tmp_path / "three", progress=False)  # other weights, other features
    assert len(calls) == 4
    embedder = load_embedder(one)
    assert embedder.trunk.num_features == 8
    assert evaluate_run(one, clustering=False).scores.n_classes == 5


def test_frozen_features_are_those_of_the_network(small, few_digits) -> None:
    from nearfar.data import open_task
    from nearfar.train.setup import build

    loop = build(small(freeze_trunk=True, trunk="conv4(width=8)", image_size=16))
    task = open_task(few_digits, image_size=16)
    expected = embed(loop.trainable.embedder, task.train, layer="pooled", image_size=16)
    np.testing.assert_allclose(loop.data.train.array, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 7])  # in the epoch in which the trunk is held, and in the one after it
def test_a_trunk_is_held_for_some_epochs(tmp_path, monkeypatch, small, step) -> None:
    network = {"trunk": "conv4(width=4)", "image_size": 16}
    config = small(**network, freeze_epochs=1, epochs=1, lr=3e-3, weight_decay=0.1, clip=1.0)
    start = building.build(config).trainable.embedder.state_dict()
    first = weights(train(config, tmp_path / "first", progress=False).folder)
    long = config.replace(epochs=2)
    whole = train(long, tmp_path / "whole", progress=False)
    second = weights(whole.folder)
    for key, value in start.items():  # also the statistics of its batch normalization
        held = key.startswith("trunk")
        assert torch.equal(first[f"embedder.{key}"], value) == held, key
        assert not torch.equal(second[f"embedder.{key}"], value), key
    broken_off(monkeypatch, tmp_path / "broken", step, long)
    assert_same(whole.folder, train(None, tmp_path / "broken", resume=True, progress=False).folder)


@pytest.mark.slow
@pytest.mark.parametrize("proxies", ["class_mean", "kmeans"])
def test_computed_proxies_begin_each_epoch_with_the_embeddings_of_all_training_items(
    tmp_path, monkeypatch, small, proxies
) -> None:
    config = small(objective=f"0.5*TripletLoss() + ProxyNCALoss(proxies={proxies!r})", lr=3e-3)
    seen, plain = [], NeighborProxyLoss.refit

    def refit(self, embeddings, labels):
        plain(self, embeddings, labels)
        seen.append((embeddings, labels, self.proxies.detach().clone()))

    with monkeypatch.context() as patch:
        patch.setattr(NeighborProxyLoss, "refit", refit)
        whole = train(config, tmp_path / "whole", progress=False)
    loop = building.build(config)
    np.testing.assert_allclose(seen[0][0], embed(loop.trainable.embedder, loop.data.train), rtol=1e-5, atol=1e-6)
    assert_array_equal(seen[0][1], loop.data.train.labels)
    assert len(seen) == config.epochs
    assert not torch.equal(seen[0][2], seen[1][2])
    last = weights(whole.folder)["objective.terms.1.proxies"]
    assert torch.equal(last, seen[1][2]) == (proxies == "kmeans")  # class means follow every batch
    for step in (whole.step // 2, whole.step // 2 + 3):  # at the end of an epoch, and in the next
        broken = tmp_path / f"broken {step}"
        broken_off(monkeypatch, broken, step, config)
        assert_same(whole.folder, train(None, broken, resume=True, progress=False).folder)


@pytest.mark.slow
@pytest.mark.parametrize("features", [8, 16])  # as long as an embedding, and longer
def test_proxies_of_moments_are_not_set_from_embeddings(tmp_path, monkeypatch, small, features) -> None:
    objective = f"HORDE(features={features}, loss=ProxyNCALoss(proxies='class_mean'))"
    monkeypatch.setattr(NeighborProxyLoss, "refit", lambda *_: pytest.fail("refitted"))
    assert train(small(objective=objective, epochs=1), tmp_path / "run", progress=False).epoch == 1
    with pytest.raises(TrainError, match=r"^HORDE: a run sets no k-means proxies of moments"):
        train(small(objective=objective.replace("class_mean", "kmeans")), tmp_path / "other", progress=False)
    assert not (tmp_path / "other").exists()


def test_the_numbers_of_the_items_reach_the_objective(tmp_path, small) -> None:
    loop = building.build(small())
    own = f"MarginLoss(per_sample={len(loop.data.train)}, nu=0.1)"
    config = small(objective=f"CrossBatchMemory(loss=ContrastiveLoss(), size=50) + {own}", epochs=1, weight_decay=0)
    found = weights(train(config, tmp_path / "run", progress=False).folder)
    seen = [number for batch in loop.data.sampler for number in batch]
    ids = found["objective.terms.0.ids"]
    assert sorted(ids.tolist()) == sorted(seen[-50:])
    assert_array_equal(found["objective.terms.0.classes"], loop.data.train.labels[ids])
    assert set(found["objective.terms.1.sample_offsets"].nonzero().flatten().tolist()) == set(seen)


def test_a_run_lends_its_embedding_layer(small) -> None:
    objective = "EnergyConfusion(mode='ecaml_code', layer='embedding')"
    trainable = building.build(small(objective=objective)).trainable
    torch.manual_seed(0)
    items, labels = torch.rand(12, 64), torch.arange(12) // 4
    trainable(items, labels).backward()
    assert trainable.embedder.layer.weight.grad.abs().max() > 1e-3
    assert all(w.grad is None for w in trainable.embedder.trunk.parameters())
    assert len(list(trainable.objective.parameters())) == 0
    value = building.build(small(objective="FisherTripletLoss(layer='embedding', ridge=10.0)")).trainable(items, labels)
    plain = building.build(small(objective="FisherTripletLoss()")).trainable
    expected = plain(items, labels) + (2 - 2 * 0.01) * 10 * plain.embedder.layer.weight.square().sum()
    torch.testing.assert_close(value, expected)


def test_embeddings_that_are_not_finite_are_told_as_such(small) -> None:
    loop = building.build(small())
    loop.prepare()
    assert score_unseen_and_seen(loop).by_name
    with torch.no_grad():
        for weight in loop.trainable.embedder.parameters():  # finite, as before a training diverges
            weight.fill_(1e30)
    with pytest.raises(
        TrainError, match=r"^the network gives embeddings of .* that are not finite; lower the learning rate"
    ):
        score_unseen_and_seen(loop)


def test_a_loss_that_overflows_is_told_without_a_warning(tmp_path, small, recwarn) -> None:
    torch.set_warn_always(True)  # not only the first time
    try:
        with pytest.raises(TrainError, match="the loss is not finite: inf; no checkpoint yet"):
            train(small(objective="1e38*TripletLoss(margin=100.0)"), tmp_path / "run", progress=False)
    finally:
        torch.set_warn_always(False)
    assert not [str(w.message) for w in recwarn if "scalar" in str(w.message)]


def test_random_batches_tell_the_objective_the_sizes_of_the_classes(tmp_path, small) -> None:
    config = small(data="digits")  # whose classes differ in size
    loop = building.build(config)
    shares = torch.tensor(loop.data.train.class_counts) / len(loop.data.train)
    assert shares.unique().numel() > 1
    own = str([1] * (len(shares) - 1) + [2])
    for objective, sampler, expected in (
        ("DeepFisherLoss()", "random", shares),
        ("TripletLoss() + 0.5*HORDE(features=8, loss=DeepFisherLoss(reduction='sum'))", "random", shares),
        (f"DeepFisherLoss(class_counts={own})", "random", torch.tensor(json.loads(own)) / (len(shares) + 1)),
        ("DeepFisherLoss(class_counts=None)", "random", torch.full_like(shares, 1 / len(shares))),
        ("DeepFisherLoss()", "m_per_class:8", torch.full_like(shares, 1 / len(shares))),
    ):
        trainable = building.build(config.replace(objective=objective, sampler=sampler)).trainable
        found = [value for name, value in trainable.objective.state_dict().items() if name.endswith("shares")]
        assert found, objective
        for value in found:
            torch.testing.assert_close(value, expected.to(value))
    config = config.replace(objective="DeepFisherLoss()", sampler="random", steps=2)
    whole = train(config, tmp_path / "run", progress=False)
    torch.testing.assert_close(weights(whole.folder)["objective.terms.0.shares"], shares)
    assert load_embedder(whole.folder)


def test_progress_goes_to_stderr(tmp_path, small, capfd) -> None:
    train(small(epochs=1), tmp_path / "run")
    out, err = capfd.readouterr()
    assert out == ""
    assert "TripletLoss" in err
    assert "images/s" in err
    assert "unseen" in err
    record = {"parts": {"TripletLoss": 0.2}, "images_per_second": 812.3}
    assert line(record, "rows") == "TripletLoss 0.2  812 rows/s"


@pytest.mark.slow
def test_a_watcher_states_what_it_wants_to_know_and_can_end_a_run(tmp_path, small) -> None:
    class Pruned(Exception):
        pass

    class Pruner(Watcher):
        def on_epoch(self, row):
            if row["epoch"] == 2:
                raise Pruned

    with pytest.raises(Pruned):
        train(small(epochs=3), tmp_path / "run", progress=False, watchers=[Pruner()])
    assert [row["epoch"] for row in open_run(tmp_path / "run").read_metrics()] == [1, 2]
    assert train(None, tmp_path / "run", resume=True, progress=False).epoch == 3


class StandInTracker(ModuleType):
    """What accelerate calls of wandb, mlflow and trackio, all of which have the same idea of a run."""

    def __init__(self, name, refuses="", fails_in=None):
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__version__ = "3.0"
        self.refuses = refuses
        self.fails_in = fails_in
        self.began = {}
        self.settings = {}
        self.logged = {}
        self.ended = False
        self.config = self

    def init(self, **how):
        if self.refuses:
            raise RuntimeError(f"{self.refuses}\nand a page of advice")
        self.began = how
        return self

    def update(self, settings, **_):
        self.settings |= settings

    def log(self, values, step=None, **_):
        if self.fails_in == step:
            raise ConnectionError("no route to host\nand a page of advice")
        self.logged.setdefault(step, {}).update(values)

    def finish(self):
        if self.fails_in == "the end":
            raise ConnectionError("no route to host")
        self.ended = True

    def search_experiments(self, **_):
        return []

    def create_experiment(self, name, **_):
        return name

    def start_run(self, experiment_id, run_name, **_):
        return self.init(project=experiment_id, name=run_name)

    def log_metrics(self, values, step=None):
        self.log(values, step)

    def log_params(self, settings):
        self.settings |= settings

    def end_run(self):
        self.finish()


def install_tracker(monkeypatch, name, **how):
    """Let accelerate find a stand-in of a tracker."""
    from accelerate import tracking

    module = StandInTracker(name, **how)
    module.utils = SimpleNamespace(mlflow_tags=SimpleNamespace())
    module.utils.validation = SimpleNamespace(MAX_PARAM_VAL_LENGTH=500, MAX_PARAMS_TAGS_PER_BATCH=100)
    monkeypatch.setitem(sys.modules, name, module)
    found = [*tracking.get_available_trackers(), tracking.LoggerType(name)]
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: found)
    return module


TRACKERS = [name for name in get_args(Tracker) if name != "csv"]


@pytest.mark.parametrize("name", [name for name in TRACKERS if name != "tensorboard"])
def test_a_tracker_gets_settings_losses_and_validation_scores(tmp_path, small, monkeypatch, name) -> None:
    tracker = install_tracker(monkeypatch, name)
    run = train(small(steps=3, log_every=1, track=(name, "csv")), tmp_path / "first", progress=False)
    assert (tracker.began["project"], tracker.began["name"], tracker.ended) == ("nearfar", "first", True)
    assert tracker.settings["objective"] == "TripletLoss()"
    (row,) = run.read_metrics() if hasattr(run, "read_metrics") else open_run(run.folder).read_metrics()
    assert [values["parts/TripletLoss"] > 0 for values in tracker.logged.values()] == [True] * 3
    assert tracker.logged[3]["epochs/unseen_map_at_r"] == row["unseen_map_at_r"]
    assert (run.folder / "metrics.csv").is_file()


def test_tensorboard_events(tmp_path, small) -> None:
    pytest.importorskip("tensorboard")
    run = train(small(steps=3, track=("tensorboard",)), tmp_path / "run", progress=False)
    assert [file.name[:6] for file in (run.folder / "tensorboard").iterdir()] == ["events"]


def follow(config, folder) -> list[str]:
    """Call the trackers of a run as a training of two steps does, and return their warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trackers = Trackers(Accelerator(cpu=True), config, folder)
        for step in (1, 2):
            trackers.on_step(step, 0, {"parts": {"TripletLoss": 0.1 * step}})
        trackers.on_epoch({"epoch": 1, "step": 2, "loss": 0.15})
        trackers.close()
    return [str(one.message) for one in told if str(one.message).startswith("track:")]


def test_several_trackers_get_each_number_once(tmp_path, small, monkeypatch) -> None:
    trackers = [install_tracker(monkeypatch, name) for name in ("wandb", "trackio")]
    calls = []
    for tracker in trackers:
        tracker.log = lambda values, step, name=tracker.__name__, **_: calls.append((name, step, *values))
    assert not follow(small(track=("wandb", "trackio")), tmp_path)
    numbers = [(1, "parts/TripletLoss"), (2, "parts/TripletLoss"), (2, "epochs/loss")]
    assert sorted(calls) == sorted((name, *number) for name in ("wandb", "trackio") for number in numbers)
    assert [tracker.ended for tracker in trackers] == [True, True]


def test_a_run_goes_on_without_a_tracker_that_fails(tmp_path, small, monkeypatch) -> None:
    install_tracker(monkeypatch, "wandb", fails_in=1)
    with pytest.warns(UserWarning, match=r"^track: wandb failed in step 1 \(no route to host\), so the run continues"):
        run = train(small(steps=2, log_every=1, track=("wandb",)), tmp_path / "run", progress=False)
    assert run.step == 2
    assert (run.folder / "metrics.csv").is_file()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_missing_or_fails_is_one_warning(tmp_path, small, monkeypatch, name) -> None:
    config = small(track=(name,))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, name, None)
        (told,) = follow(config, tmp_path)
    assert re.fullmatch(rf"track: {name} is not installed: pip install \S+; the run continues without it", told)
    if name == "tensorboard":
        events = SimpleNamespace(add_scalar=Mock(side_effect=OSError("no space left\non device")))
        with monkeypatch.context() as patch:
            patch.setattr("torch.utils.tensorboard.SummaryWriter", lambda *_, **__: events)
            (told,) = follow(config, tmp_path)
        assert told == "track: tensorboard failed in step 1 (no space left), so the run continues without it"
        return
    with monkeypatch.context() as patch:
        install_tracker(patch, name, refuses="no key")
        (told,) = follow(config, tmp_path)
    assert told.startswith(f"track: {name} did not start (no key), so the run continues without it")
    for step in (1, 2, "the end"):
        with monkeypatch.context() as patch:
            tracker = install_tracker(patch, name, fails_in=step)
            (told,) = follow(config, tmp_path)
        happened = "did not end its run" if step == "the end" else f"failed in step {step}"
        assert told.startswith(f"track: {name} {happened} (no route to host)")
        assert (1 in tracker.logged) == (step != 1)


def test_trackers_have_names(small) -> None:
    with pytest.raises(TrainError, match=r"track"):
        small(track=("comet",))


@pytest.mark.parametrize("precision", ["bf16"])
def test_half_precision_runs(tmp_path, small, precision) -> None:
    run = train(small(precision=precision, epochs=1), tmp_path / "run", progress=False)
    assert run.best is not None
    assert all(value.dtype != torch.bfloat16 for value in weights(run.folder).values())


@pytest.mark.parametrize(("native", "expected"), [(True, "bf16"), (False, "no")])
def test_precision_auto_is_what_the_device_computes_natively(tmp_path, small, monkeypatch, native, expected) -> None:
    monkeypatch.setattr("nearfar.train.scale.devices._has_native_bf16", lambda on_cpu: native)
    run = train(small(precision="auto", epochs=1), tmp_path / "auto", progress=False)
    assert run.config.precision == expected
    train(small(precision=expected, epochs=1), tmp_path / "named", progress=False)
    auto = weights(tmp_path / "auto")
    named = weights(tmp_path / "named")
    assert all(torch.equal(auto[name], named[name]) for name in named)


def test_turned_images_are_those_of_a_run_that_goes_on(tmp_path, small) -> None:
    rng = np.random.default_rng(0)
    for label in range(8):
        for i, shape in enumerate([(20, 25), (27, 18)]):
            path = tmp_path / "images" / f"class{label}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)
    config = small(data=str(tmp_path / "images"), trunk="conv4(width=4)", sampler="auto", symmetries="all")
    first = building.build(config)
    assert first.config.image_size == 84  # found in the images
    again = building.build(first.config)
    batches = [loop.data.batches(0, 0, torch.device("cpu")) for loop in (first, again)]
    for one, other in zip(*batches, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.slow
def test_symmetries_are_more_training_classes(tmp_path, small) -> None:
    config = small(trunk="conv4(width=4)", image_size=16, batch_size=16, steps=2, symmetries="rotations")
    loop = building.build(config)
    plain = building.build(small(trunk="conv4(width=4)", image_size=16))
    assert len(loop.data.train.classes) == 4 * len(plain.data.train.classes)
    assert loop.data.unseen.classes == plain.data.unseen.classes
    run = train(config, tmp_path / "run", progress=False)
    result = evaluate_run(run, clustering=False)
    assert result.scores.n_classes == len(plain.data.task.test.classes)
    assert "classes, including rotated ones. The checkpoint" in result.protocol


@pytest.mark.slow
def test_a_run_goes_on_from_the_trunk_of_another(tmp_path, small) -> None:
    first = train(small(steps=3), tmp_path / "first", progress=False)
    other = small(steps=1, lr=0.0, seed=5, pretrained=str(first.folder / "last.safetensors"))
    second = train(other, tmp_path / "second", progress=False)
    a, b = (load_embedder(run.folder, "last").trunk.state_dict() for run in (first, second))
    assert all(torch.equal(a[key], b[key]) for key in a if "running" not in key and "num_batches" not in key)


@pytest.mark.slow
def test_a_frozen_run_goes_on_with_all_of_its_network(tmp_path, monkeypatch, small) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    how = {"trunk": "conv4(width=8)", "image_size": 16, "steps": 2}
    first = train(small(freeze_trunk=True, lr_embedding=0.1, **how), tmp_path / "first", progress=False)
    weights = first.folder / "last.safetensors"
    second = train(
        small(lr=0.0, freeze_bn=True, seed=5, network_weights=weights, **how), tmp_path / "2", progress=False
    )
    np.testing.assert_array_equal(embed_run(second, "digits"), embed_run(first, "digits", which="last"))
    third = train(small(lr=0.01, network_weights=weights, **how), tmp_path / "3", progress=False)
    a, b = (load_embedder(run, "last").state_dict() for run in (first, third))
    assert not any(torch.equal(a[key], b[key]) for key in ("trunk.blocks.0.0.weight", "layer.weight"))
    with pytest.raises(TrunkError, match=r"does not fit this network: layer\.bias is \(\d+,\), expected \(3,\)"):
        building.build(small(network_weights=weights, embedding_dim=3, **how))
    with pytest.raises(TrainError, match="pretrained must not be given"):
        small(network_weights=weights, pretrained=weights)


@pytest.mark.slow
@pytest.mark.parametrize("field", ["pretrained", "network_weights"])
def test_a_resumed_run_needs_no_file_of_weights(tmp_path, small, field) -> None:
    first = train(small(steps=2), tmp_path / "first", progress=False)
    start = tmp_path / "start.safetensors"
    start.write_bytes((first.folder / "last.safetensors").read_bytes())
    run = train(small(epochs=1, **{field: start}), tmp_path / "run", progress=False)
    start.unlink()
    assert train(run.config.replace(epochs=2), run.folder, resume=True, progress=False).epoch == 2
    with pytest.raises(TrunkError, match="no such file of weights"):
        train(run.config, tmp_path / "new", progress=False)


def rewritten(path: Path, **about) -> None:
    """Write a checkpoint anew with other values about it; None leaves one out."""
    tensors, old = load_tensors(path)
    save_tensors(path, tensors, {key: value for key, value in (old | about).items() if value is not None})


def test_equal_checkpoints_are_equal_files(tmp_path) -> None:
    tensors = {"ä": torch.arange(3.0), "b": torch.ones(2, 2, dtype=torch.float16)}
    about = {f"key {i}": [i, "ö"] for i in range(12)}
    for name in ("one", "two"):
        save_tensors(tmp_path / name, tensors, about)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    found, told = load_tensors(tmp_path / "one")
    assert told == about
    for key, value in tensors.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=0)


def test_a_run_from_elsewhere_runs_no_code(tmp_path, small) -> None:
    run = train(small(steps=1), tmp_path / "run", progress=False)
    mark = tmp_path / "mark"
    config = json.loads((run.folder / "config.json").read_text())
    (run.folder / "config.json").write_text(json.dumps({**config, "trunk": "subprocess:Popen"}))
    rewritten(run.folder / "best.safetensors", shape=["touch", str(mark)])
    with pytest.raises(TrainError, match="shape of an item must be 1 or 3 positive integers"):
        load_embedder(run.folder)
    rewritten(run.folder / "best.safetensors", shape=[1, 8, 8])
    with pytest.raises(TrustError, match=r"config.json names subprocess:Popen, which is code; .* trust='subprocess' "):
        load_embedder(run.folder)
    assert not mark.exists()


@pytest.mark.slow
def test_no_size_that_a_checkpoint_states_is_trusted(tmp_path, small) -> None:
    """Sizes are compared with the weights before memory of that size is asked for."""
    run = train(small(steps=1), tmp_path / "run", progress=False)
    file = run.folder / "best.safetensors"
    written = file.read_bytes()
    config = json.loads((run.folder / "config.json").read_text())
    numbers = [0, -1, 2**20, 2**31 - 1, 2**40, 10**400, 1.5, True, "8", [8], None]
    for number in numbers:
        for about in ({"shape": [number]}, {"shape": [number, number, 8]}, {"shape": number}):
            file.write_bytes(written)
            rewritten(file, **about)
            with pytest.raises(TrainError, match=r"positive integers|do not belong together|'shape' is missing"):
                load_trainable(run.folder)
    for number in numbers:
        file.write_bytes(written)
        rewritten(file, num_classes=number)
        if number == 2**20:  # no loss of this run has a weight for each class
            continue
        with pytest.raises(TrainError, match=r"positive integer|'num_classes' is missing|weights of its objective"):
            load_trainable(run.folder)
    tensors, about = load_tensors(file)
    proxies = torch.zeros(8, config["embedding_dim"])
    (run.folder / "config.json").write_text(json.dumps({**config, "objective": "ProxyNCALoss()"}))
    for number, fits in ((8, True), (7, False), (9, False), (2**31 - 1, False)):
        save_tensors(file, tensors | {"objective.terms.0.proxies": proxies}, about | {"num_classes": number})
        with nullcontext() if fits else pytest.raises(TrainError, match=r"belong together|8 at most"):
            load_trainable(run.folder)
    file.write_bytes(written)
    for number in (1, 2**31 - 1, 2**40, 10**400):
        (run.folder / "config.json").write_text(json.dumps({**config, "embedding_dim": number}))
        with pytest.raises(TrainError, match=r"do not belong together|embedding_dim"):
            load_trainable(run.folder)


@pytest.mark.slow
def test_damaged_checkpoints_are_one_clear_error(tmp_path, small) -> None:
    run = train(small(steps=1), tmp_path / "run", progress=False)
    rewritten(run.folder / "best.safetensors", weights=[])
    with pytest.raises(TrainError, match=r"the origin of the initial weights must be a text, got \[\]"):
        evaluate_run(run)
    rewritten(run.folder / "best.safetensors", num_classes=None)
    with pytest.raises(TrainError, match=r"best.safetensors: damaged, .*'num_classes' is missing"):
        load_trainable(run.folder)
    rewritten(run.folder / "best.safetensors", shape=None)
    with pytest.raises(TrainError, match=r"best.safetensors: damaged, .*'shape' is missing"):
        load_embedder(run.folder)
    state = run.folder / "state-1.0.safetensors"
    whole = state.read_bytes()
    for tree in (None, {}, {"tensor": "99999"}, {"dict": [["processes", {"value": 1}]]}):
        state.write_bytes(whole)
        rewritten(state, tree=tree)
        with pytest.raises(TrainError, match=r"damaged, (or )?of another version"):
            train(None, run.folder, resume=True, progress=False)
    state.write_bytes(whole)
    (run.folder / "log.jsonl").write_bytes(b'\xff\n[1]\n{"epoch": 1}\n')
    assert train(None, run.folder, resume=True, progress=False).step == 1
    (run.folder / "metrics.csv").write_text("epoch,loss\n1,much\n")
    with pytest.raises(TrainError, match=r"metrics.csv: not a table of numbers"):
        open_run(run.folder).read_metrics()


def test_the_line_of_an_epoch_is_not_broken_in_a_log(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = {"epoch": 2, "loss": 0.25, "unseen_recall_at_1": 0.5, "seen_recall_at_1": 0.75}
    bar = ProgressLine(1, 1)
    bar.on_epoch(row)
    bar.close()
    assert summary(row) in capsys.readouterr().err.splitlines()


def test_products_have_another_precision_during_a_run_only(tmp_path, small) -> None:
    class Level(Watcher):
        seen: set[str] = set()

        def on_step(self, step, epoch, record):
            self.seen.add(torch.get_float32_matmul_precision())

    before = torch.get_float32_matmul_precision()
    train(small(steps=2, matmul_precision="medium"), tmp_path / "run", progress=False, watchers=[Level()])
    assert Level.seen == {"medium"}
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(TrainError, match="matmul_precision"):
        small(matmul_precision="low")


@pytest.mark.parametrize(
    "objective", ["SupConLoss()", "TripletLoss() + 0.1*EnergyConfusion()", "FacilityLocationLoss()"]
)
def test_a_batch_of_one_item_is_refused_by_losses_that_compare_items(tmp_path, small, objective) -> None:
    expected = r"config: batch_size: \w+ compares the items of a batch, so one item trains nothing; expected at least 2"
    with pytest.raises(TrainError, match=expected):
        train(small(objective=objective, batch_size=1), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("objective", ["AMSoftmaxLoss()", "SupConLoss() + CrossEntropyHead()"])
def test_losses_with_proxies_learn_from_batches_of_one_item(tmp_path, small, objective) -> None:
    run = train(
        small(objective=objective, batch_size=1, steps=3, sampler="random", freeze_bn=True),
        tmp_path / "run",
        progress=False,
    )
    assert run.step == 3
