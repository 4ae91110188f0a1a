"""With a number of minutes, a training ends in time, whatever the machine; clocks are those of the tests."""

import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nearfar.data import Dataset, Task
from nearfar.deep.networks.trunks import make_trunk
from nearfar.models import load_embedder
from nearfar.train import TrainConfig, TrainError, evaluate_run, train
from nearfar.train.checkpoint import read_about
from nearfar.train.features import embed
from nearfar.train.optim import rate_factor
from nearfar.train.run import RunFolder
from nearfar.train.rungs.climbing import climb
from nearfar.train.rungs.rung_settings import config_for
from nearfar.train.settle import Plan
from nearfar.train.timing import time_plan as plan
from nearfar.train.timing.forecast import EnoughTimed
from nearfar.train.timing.time_limit import TimeLimit, TimePlan, TooFewMinutes
from nearfar.train.timing.time_plan import (
    Amounts,
    BatchTimes,
    Measured,
    Speed,
    plan_untrained,
    planned,
    seconds_after,
    steps_in_time,
)
from nearfar.train.watchers import Watcher

from ..commands import run
from ..test_training_items import SMALL, rows_file

PHOTOS = {"objective": "SupConLoss()", "epochs": 4, "schedule": "cosine", "warmup": 0.25, "pretrained": True}
AMOUNTS = Amounts(train=2300, unseen=400, test=2700, batches=36, kind="image")


class Clock:
    """A clock that tests turn on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Ticking(Watcher):
    """Turns a clock on with every batch."""

    def __init__(self, clock, seconds):
        self.clock = clock
        self.seconds = seconds

    def on_step(self, step, epoch, record):
        self.clock.now += self.seconds

    def on_epoch(self, row):
        return

    def close(self):
        return


def speed(batch, item=0.001):
    return Speed(batch=batch, item=item, mark=0.0, start=1.0, checkpoint=0.1)


def photos(**settings):
    return TrainConfig.of(data="photos", trunk="timm:mobilenetv1_100", image_size=224, resize=256, **PHOTOS, **settings)


def plan_of(config, minutes, speed, amounts=AMOUNTS, given=None, clock=None):
    limit = TimeLimit(minutes, clock or Clock())
    return planned(given or TrainConfig.of(data="photos"), Measured(config, speed, amounts, opening=2.0), limit)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return TrainConfig.of(data=rows_file("rows.npz"), **{**SMALL, "epochs": 50})


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), "4", True])
def test_minutes_are_a_number_above_zero(minutes, rows, tmp_path):
    with pytest.raises(TrainError, match=r"^minutes: expected a number above 0, such as 4 or 0\.5, got .*$"):
        train(rows, tmp_path / "run", minutes=minutes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "0"], "--minutes: expected a number above 0, such as 4 or 0.5, got 0.0"),
        (["--minutes", "nan"], "--minutes: expected a number above 0, such as 4 or 0.5, got nan"),
        (["--minutes=-4"], "--minutes: expected a number above 0, such as 4 or 0.5, got -4.0"),
        (["--minutes", "4", "--devices", "2"], "--minutes: works on one device, got --devices 2"),
        (["--minutes", "4", "--ladder", "full"], "--minutes: does not work with --ladder full, which takes as long as"),
        (["--minutes", "4", "--resume"], "--minutes: works only at the start of a run; with --resume, it continues"),
    ],
)
def test_options_that_make_no_plan_are_one_line(words, said, rows, tmp_path, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "train", "rows.npz", "--out", tmp_path / "run", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"nearfar: {said}")
    assert not (tmp_path / "run").exists()


def test_a_planned_training_ends_in_time_and_uses_it():
    rng = np.random.default_rng(0)
    for _ in range(200):
        machine = Speed(*np.exp(rng.uniform(-9, 1, 5)))
        amounts = Amounts(*map(int, np.exp(rng.uniform(1, 8, 4))), kind="image")
        config = photos(eval_every=1) if rng.random() < 0.5 else photos()
        left = float(np.exp(rng.uniform(2, 7)))
        steps = steps_in_time(config, machine, amounts, left)
        taken = plan._fixed_seconds(config, machine, amounts)
        taken_by_one = plan._seconds_of(1, config, machine, amounts)
        assert steps == 0 or taken + steps * taken_by_one <= (1 - plan.RESERVE) * left + 1e-6
        assert taken + (steps + 1) * taken_by_one > (1 - plan.RESERVE) * left - 1e-6
        assert seconds_after(config, machine, amounts) < taken


def test_the_schedule_ends_with_the_time():
    found = plan_of(photos(), 1, speed(0.5)).config
    assert 0 < found.steps < 4 * AMOUNTS.batches
    assert found.warmup == 0.25 * found.steps / (4 * AMOUNTS.batches)
    factor = rate_factor(photos().replace(steps=found.steps, warmup=found.warmup), AMOUNTS.batches, found.steps)
    assert factor(found.steps - 1) < 0.01 < 0.9 < max(map(factor, range(found.steps)))
    stepped = plan_of(photos().replace(schedule="step", lr_step=2, freeze_epochs=1), 1, speed(0.5)).config
    assert (stepped.lr_step, stepped.freeze_epochs) == (1, None)


def test_epochs_are_not_exceeded():
    assert plan_of(photos(), 60, speed(0.1)).config.steps == 4 * AMOUNTS.batches


def test_a_second_training_is_planned_if_half_of_the_usual_batches_and_it_fit():
    given = TrainConfig.of(data="photos")
    usual = 4 * AMOUNTS.batches

    def plans(minutes):
        """With another training of 1.5 times the length, and without one."""
        return [
            planned(given, Measured(photos(), speed(0.5), AMOUNTS, 2.0, again), TimeLimit(minutes, Clock()))
            for again in (1.5, 0.0)
        ]

    for minutes, is_planned in ((1, False), (3, True), (60, True)):
        found, alone = plans(minutes)
        assert ("as many of all training classes" in found.sentence) is is_planned
        assert is_planned or found.config.steps == alone.config.steps
    assert plans(60)[0].config.steps == usual
    both, alone = plans(3)
    assert usual / 2 <= both.config.steps < alone.config.steps == usual


def test_evaluations_take_a_small_part_of_the_time():
    found = plan_of(photos(), 4, speed(0.001, item=0.001)).config
    assert found.eval_every * AMOUNTS.batches * 0.001 >= 4 * 0.8 - 0.04
    assert plan_of(photos(eval_every=1), 4, speed(0.001)).config.eval_every == 1


def test_images_are_smaller_where_large_ones_leave_too_few_passes():
    sides = (224, 192, 160, 128, 96)

    def side(left, batch):
        return plan._largest_side(sides, photos(), speed(batch), AMOUNTS, left)

    assert side(240.0, 1.0) == 224
    assert 96 < side(240.0, 4.0) < 224
    assert side(60.0, 10.0) == 96
    assert [side(240.0, batch) for batch in (1, 2, 4, 8, 16)] == sorted(side(240.0, b) for b in (1, 2, 4, 8, 16))[::-1]


def test_too_little_time_is_one_line_with_what_is_possible():
    clock = Clock()
    million = Amounts(train=425_000, unseen=75_000, test=500_000, batches=6640, kind="image")
    with pytest.raises(TrainError) as raised:
        plan_of(photos(), 4, speed(0.5, item=0.01), million, clock=clock)
    said = str(raised.value)
    assert said.startswith("minutes: 4 are too few for 1,000,000 images: reading them, 10 batches and the scores take ")
    minutes = int(said.split("give at least ")[1].split(",")[0])
    assert plan_of(photos(), minutes, speed(0.5, item=0.01), million).config.steps >= plan.FEWEST_STEPS
    with pytest.raises(TrainError):
        plan_of(photos(), minutes - 1, speed(0.5, item=0.01), million)


def test_nothing_is_left_where_the_time_is_too_short(rows, tmp_path, monkeypatch):
    slow = speed(1000.0, item=10.0)
    monkeypatch.setattr(plan, "measure", lambda *_, **sizes: (slow, 1))
    with pytest.raises(TrainError, match=r"^minutes: 4 are too few for 48 rows: .*$"):
        train(rows, tmp_path / "run", minutes=TimeLimit(4, Clock()), progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_a_machine_that_becomes_slower_ends_the_training_with_the_best_checkpoint(rows, tmp_path, monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(plan, "measure", lambda *_, **sizes: (speed(0.01, item=0.0), 2))
    found = train(rows, tmp_path / "run", minutes=TimeLimit(0.5, clock), watchers=[Ticking(clock, 5.0)])
    # after 30 s less what is kept for the scores, which are expected to take longer, too
    assert found.step == 5
    assert f"The time is over after 5 of the {found.config.steps} planned batches" in capsys.readouterr().err
    assert found.best_epoch > 0
    assert found.best is not None
    assert evaluate_run(found).scores.map_at_r > 0


def test_a_machine_that_stays_as_fast_trains_all_planned_batches(rows, tmp_path, monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(plan, "measure", lambda *_, **sizes: (speed(1.0, item=0.0), 2))
    found = train(rows, tmp_path / "run", minutes=TimeLimit(0.5, clock), watchers=[Ticking(clock, 1.0)])
    assert found.step == found.config.steps > 10
    err = capsys.readouterr().err
    assert f"Planned for 0.5 minutes: {found.step} batches, {found.step / 2:.1f} passes over the rows" in err
    assert "The time is over" not in err
    assert clock.now < 30


def test_batches_are_timed_without_the_first_and_without_other_epochs():
    clock = Clock()
    times = BatchTimes(clock, 3.0, whole=False)
    for step, taken in enumerate((10.0, 1.0, 1.0), 1):
        clock.now += taken
        times.on_step(step, 0, None)
    times.on_epoch({})
    clock.now += 50.0
    times.on_step(4, 1, None)
    clock.now += 1.0
    with pytest.raises(EnoughTimed):
        times.on_step(5, 1, None)
    assert times.seconds == 1.0


def test_a_trial_leaves_nothing_and_counts_the_batches_of_a_pass(rows, tmp_path):
    settled = plan.settle(rows)
    found, batches = plan.measure(settled, TimeLimit(0.01))
    assert all(value >= 0 for value in found)
    assert found.batch > 0
    assert batches == len(plan.build_loop(settled).data.sampler)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_the_data_are_refused_as_without_minutes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for classes, each in ((1, 12), (2, 6), (3, 4), (4, 1)):
        rows_file("few.npz", classes=classes, each=each)
        words = ["train", "few.npz", "--set", "device=cpu", "--epochs", "1", "--trunk", "identity", "--quiet"]
        plain = run(capsys, monkeypatch, *words, "--out", f"plain{classes}")
        timed = run(capsys, monkeypatch, *words, "--out", f"timed{classes}", "--minutes", "5")
        assert timed == plain
        assert os.path.exists(f"plain{classes}") == os.path.exists(f"timed{classes}")


def test_ctrl_c_before_the_first_evaluation_keeps_a_checkpoint(rows, tmp_path):
    class Stop(Ticking):
        def on_step(self, step, epoch, record):
            if step == 1:
                os.kill(os.getpid(), signal.SIGINT)

    rows = rows.replace(epochs=3)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(rows, tmp_path / "run", progress=False, watchers=[Stop(None, 0)])
    finally:
        signal.signal(signal.SIGINT, before)
    folder = RunFolder(tmp_path / "run")
    assert read_about(folder.best)["step"] == 1
    assert evaluate_run(folder.path).scores.map_at_r > 0
    resumed = train(None, folder.path, resume=True, progress=False)
    assert resumed.best_epoch > 0
    whole = train(rows, tmp_path / "whole", progress=False)
    assert (resumed.best, resumed.best_epoch) == (whole.best, whole.best_epoch)
    assert (folder.last.read_bytes()) == RunFolder(whole.folder).last.read_bytes()


def test_a_resumed_run_has_no_minutes(rows, tmp_path):
    done = train(rows.replace(epochs=1), tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match=r"^minutes: a resumed run continues to its planned end; leave minutes out$"):
        train(None, done.folder, resume=True, minutes=4)


def test_a_plan_knows_when_the_last_batch_has_to_end():
    clock = Clock()
    found = TimePlan(photos(), after=10.0, sentence="", limit=TimeLimit(1, clock), batch=2.0)
    clock.now = 30.0
    assert [found.slowdown(seconds) for seconds in (1.0, 2.0, 3.0, 60.0)] == [1.0, 1.0, 1.5, 4.0]
    assert [found.seconds_to_train(slowdown) for slowdown in (1.0, 1.5, 4.0)] == [20.0, 15.0, -10.0]


@pytest.mark.parametrize("minutes", [0.5, 4, 8, 40])
def test_features_are_those_of_large_images_where_the_training_has_no_time_for_them(minutes, monkeypatch):
    items = Dataset.from_array("photos", np.zeros((400, 64, 64, 3), np.uint8), np.arange(400) // 10)
    task = Task("photos", items, items.subset(np.arange(80)), test=items, gallery=None, protocol="")
    settled = photos(keep="best")

    def measured(*_, image_size=224, **sizes):
        share = (image_size / 224) ** 2
        return speed(20.0 * share, item=0.1 * share), 5

    monkeypatch.setattr(plan, "settle", lambda config, start: Plan(config, settled, task))

    class Features:
        embedder = torch.nn.Identity()

        def features(self, part):
            clock.now += 0.1 * len(part)

    clock = Clock()
    monkeypatch.setattr(plan, "measure", measured)
    monkeypatch.setattr(plan.UntrainedModel, "frozen", lambda *_: Features())
    given = TrainConfig.of(data="photos")
    if minutes < 8:  # which leave time for features alone: of small images, or of large ones
        with pytest.raises(TooFewMinutes) as raised:
            plan.plan_training(given, TimeLimit(minutes, clock))
        assert raised.value.untrained.image_size == (96 if minutes == 0.5 else None)
        return
    found = plan.plan_training(given, TimeLimit(minutes, clock))
    large = {"image_size": 224, "resize": 256}
    assert (found.config.image_size or 224) < 224 or minutes == 40
    assert found.frozen_sizes == (large if minutes == 8 else {})
    assert clock.now == pytest.approx(88.0 if minutes == 8 else 0.0)  # seconds of the features of 880 items


@pytest.mark.parametrize(("seconds", "timings"), [(3.0, 2), (60.0, 1)])
def test_a_smaller_image_size_is_timed_only_where_that_is_quick(seconds, timings, monkeypatch):
    clock = Clock()
    items = Dataset.from_array("photos", np.zeros((8, 64, 64, 3), np.uint8), np.arange(8) // 2)
    task = Task("photos", items, items, test=items, gallery=None, protocol="")
    settled = photos()
    timed = []

    def measured(*_, image_size=224, **sizes):
        clock.now += seconds
        timed.append(image_size)
        share = (image_size / 224) ** 2
        return speed(60.0 * share), 2

    monkeypatch.setattr(plan, "settle", lambda config, start: Plan(config, settled, task))
    monkeypatch.setattr(plan, "measure", measured)
    found = plan.plan_training(TrainConfig.of(data="photos"), TimeLimit(4, clock))
    assert 96 <= found.config.image_size < 224
    assert timed == [224, found.config.image_size][:timings]


def test_time_is_kept_for_choosing_a_closed_form_of_features_and_for_mirrored_images():
    config = photos()
    plain = speed(1.0)
    wide = plain._replace(features=1024)
    assert seconds_after(config, wide, AMOUNTS) > seconds_after(config, plain, AMOUNTS) + 2
    assert seconds_after(config, plain._replace(features=4096), AMOUNTS) == seconds_after(config, plain, AMOUNTS)
    mirrored = config.replace(augment="mirror")
    slow = speed(1.0, item=0.1)
    assert steps_in_time(config, slow, AMOUNTS, 2000) > steps_in_time(mirrored, slow, AMOUNTS, 2000)


def test_features_of_larger_images_than_those_of_the_training_are_kept_and_loaded(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (8, 32, 32, 3))[np.arange(96) // 12] + rng.integers(-40, 41, (96, 32, 32, 3))
    np.savez(tmp_path / "images.npz", X=pixels.clip(0, 255).astype(np.uint8), y=np.arange(96) // 12)
    save_file(make_trunk("conv4(width=4)", (3, 32, 32)).state_dict(), tmp_path / "weights.safetensors")
    weights = str(tmp_path / "weights.safetensors")
    config = TrainConfig.of(data=str(tmp_path / "images.npz"), trunk="conv4(width=4)", pretrained=weights, lr=1e-9)
    small = config.replace(image_size=16, steps=2, batch_size=16, device="cpu")
    sizes = {"image_size": 32, "resize": None}

    def planned_for(config, limit, start=None):
        return TimePlan(small, after=0.0, sentence="", limit=limit, frozen_sizes=sizes)

    monkeypatch.setattr("nearfar.train.training.plan_training", planned_for)
    monkeypatch.setattr("nearfar.train.rungs.choice.best_of", lambda candidates, **_: "frozen")
    made = train(config, tmp_path / "run", minutes=4, progress=False)
    about = read_about(RunFolder(made.folder).best)
    assert (about["kept"].partition("-")[0], about["settings"]) == ("frozen", sizes)
    kept = evaluate_run(made)
    assert kept.frozen is not None
    loaded = evaluate_run(made.folder)
    assert loaded.scores.map_at_r == pytest.approx(kept.scores.map_at_r, abs=1e-6)
    trained = load_embedder(made.folder, "trained")
    assert load_embedder(made.folder).embedding_dim != trained.embedding_dim


def test_a_rung_that_trains_nothing_is_refused_before_its_time_is_spent(rows, tmp_path, monkeypatch):
    clock = Clock()
    embedded = []

    def slowly(embedder, items, **how):
        embedded.append(len(items))
        clock.now += len(items)  # a second each
        return embed(embedder, items, **how)

    monkeypatch.setattr(plan, "embed", slowly)
    config = config_for("whitened", rows)
    assert plan_untrained(config, TimeLimit(100.0, clock)) == config
    clock.now = 0.0
    embedded.clear()
    with pytest.raises(TooFewMinutes, match=r"^minutes: 0\.5 are too few for \d+ rows: reading them and the scores "):
        climb(rows, tmp_path / "run", rung="whitened", minutes=TimeLimit(0.5, clock), progress=False)
    assert embedded == [8, 8]  # which have to be slow twice
    assert not (tmp_path / "run").exists()


def test_images_of_a_rung_that_trains_nothing_are_as_large_as_the_time_allows(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (48, 128, 128, 3)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", X=pixels, y=np.arange(48) // 6)
    save_file(make_trunk("conv4", (3, 128, 128)).state_dict(), tmp_path / "weights.safetensors")
    weights = str(tmp_path / "weights.safetensors")
    config = TrainConfig.of(data=str(tmp_path / "images.npz"), trunk="conv4", pretrained=weights, image_size=128)
    monkeypatch.setattr(plan, "_seconds_of_item", lambda *_: 1.0)
    with pytest.raises(TooFewMinutes, match=r"give at least 2, or fewer images$"):
        plan_untrained(config, TimeLimit(0.9, Clock()))
    monkeypatch.setattr(plan, "_sides", lambda *_: (128, 96))  # as of a trunk that takes several sizes
    sizes = [plan_untrained(config, TimeLimit(minutes, Clock())).image_size for minutes in (2, 0.9)]
    assert sizes == [128, 96]


def test_a_run_without_time_for_a_training_keeps_the_features_of_its_trunk(tmp_path, monkeypatch, capsys):
    """The trunk is a small one of random weights, and the batches seem to take an hour each."""
    pixels = np.random.default_rng(0).integers(0, 256, (48, 16, 16, 3)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", X=pixels, y=np.arange(48) // 6)
    save_file(make_trunk("conv4", (3, 16, 16)).state_dict(), tmp_path / "weights.safetensors")
    weights = str(tmp_path / "weights.safetensors")
    config = TrainConfig.of(data=str(tmp_path / "images.npz"), trunk="conv4", pretrained=weights, device="cpu")
    monkeypatch.setattr(plan, "measure", lambda *_, **sizes: (speed(3600.0), 2))
    made = train(config, tmp_path / "run", minutes=4)
    about = read_about(RunFolder(made.folder).best)
    assert (about["step"], about["kept"].partition("-")[0]) == (0, "frozen")
    assert "So nothing is trained." in capsys.readouterr().err
    kept = evaluate_run(made).kept
    assert kept == f"Kept: {about['kept_title']}; nothing was trained, because 4 minutes are too few for it."
    random = config.replace(pretrained=False)
    made = train(random, tmp_path / "raw", minutes=4, progress=False)
    assert read_about(RunFolder(made.folder).best)["kept"].partition("-")[0] == "raw"
    with pytest.raises(TrainError, match="minutes: 4 are too few for 48 images"):
        train(config.replace(objective="SupConLoss()"), tmp_path / "named", minutes=4)
    monkeypatch.setattr(plan, "measure", lambda *_, **sizes: (speed(3600.0, item=60.0), 2))
    with pytest.raises(TrainError, match="minutes: 4 are too few for 48 images"):
        train(config, tmp_path / "slow", minutes=4)
    assert not (tmp_path / "named").exists()
    assert not (tmp_path / "slow").exists()
