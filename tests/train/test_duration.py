"""How long a run will take is told beforehand."""

import numpy as np
import pytest
import torch

from nearfar.train import TrainConfig
from nearfar.train.timing.duration import RunTimer, duration
from nearfar.train.timing.forecast import forecast
from nearfar.train.watchers import ProgressLine

from ..commands import run
from ..test_training_items import SMALL, rows_file


def said(timer, per_step=0.5, per_epoch=35, steps=100, first=0, between=60.0):
    """What a timer says, and after which step, where batches take `per_step` and evaluations `between` seconds."""
    now = 1000.0
    for step in range(first + 1, first + steps + 1):
        now += per_step
        text = timer.on_step(step, (step - 1) // per_epoch, now)
        if text:
            return text, step
        if step % per_epoch == 0:
            timer.on_epoch()
            now += between
    return "", None


def test_a_line_comes_after_a_few_timed_batches():
    text, step = said(RunTimer(700, 20))
    assert text == "about 6 min: 20 epochs of 35 steps; Ctrl-C keeps the best"
    assert step == 6  # the first is not timed
    assert said(RunTimer(700, 20), per_step=0.06)[1] == 35  # until they have taken two seconds
    assert said(RunTimer(40_000, 20), per_step=0.001, steps=30)[1] is None
    assert said(RunTimer(40_000, 20), per_step=0.001, per_epoch=2000)[1] == 51  # or fifty are done


def test_it_is_said_once():
    timer = RunTimer(700, 20)
    assert said(timer)[0]
    assert said(timer, first=6) == ("", None)


def test_evaluations_are_counted_and_no_time_between_epochs_is_taken_for_a_batch():
    assert said(RunTimer(60, 20), per_epoch=3, between=600.0)[0].startswith("about 25 s: 20 epochs of 3 steps")
    assert ": 20 epochs of 1 step;" in said(RunTimer(20, 20), per_epoch=1, between=10.0)[0]
    assert said(RunTimer(40, 20), per_epoch=2, between=10.0)[0].startswith("about 3 min: 20 epochs of 2 steps")
    twice = RunTimer(700, 20, evaluation=35.0)
    assert said(twice)[0].startswith("about 12 min")
    scored = RunTimer(700, 20, after=350.0)  # half of the batches
    assert said(scored)[0].startswith("about 9 min")


def test_epochs_that_leave_the_trunk_are_no_measure():
    text, step = said(RunTimer(700, 20, from_epoch=2), steps=200)
    assert step == 76
    assert text.startswith("about 5 min")


def test_the_words_fit_the_run():
    assert said(RunTimer(700, 20, most=True))[0].startswith("at most about 6 min")
    assert said(RunTimer(700, 20, kept=""))[0].endswith("steps")
    text, _ = said(RunTimer(700, 20, 350), first=350)
    assert text == "about 3 min: 344 of the 700 steps of 20 epochs are left; Ctrl-C keeps the best"
    assert said(RunTimer(20, 1))[0] == ""  # ten seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "5 s"), (88, "90 s"), (91, "2 min"), (5390, "90 min"), (5500, "1.5 h"), (7200, "2 h"), (90_000, "25 h")],
)
def test_durations_are_said_in_their_unit(seconds, text):
    assert duration(seconds) == text


def test_the_progress_line_says_it(capsys):
    class Known:
        def on_step(self, step, epoch):
            return "about 8 min" if step == 2 else ""

        def on_epoch(self):
            pass

    line = ProgressLine(3, 1, timer=Known())
    for step in (1, 2, 3):
        line.on_step(step, 0, None)
    line.on_epoch({"epoch": 1, "loss": 1.0})
    line.close()
    assert capsys.readouterr().err.count("about 8 min") == 1


@pytest.mark.slow
def test_a_forecast_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows_file(tmp_path / "rows.npz")
    before = torch.get_rng_state()
    config = TrainConfig.of(data="rows.npz", **{**SMALL, "epochs": 4000}, freeze_epochs=2)
    text = forecast(config)
    assert ": 4,000 epochs of " in text
    assert text.endswith("with the trunk mlp(width=8, depth=1) and SupConLoss() in batches of 16")
    assert torch.equal(torch.get_rng_state(), before)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]
    assert forecast(config.replace(epochs=1, freeze_epochs=None)).startswith("a few seconds: 1 epoch of ")


def test_inspect_times_a_training(tmp_path, capsys, monkeypatch):
    np.savez(tmp_path / "a.npz", X=np.random.default_rng(0).normal(size=(48, 3)), y=np.repeat(np.arange(8), 6))
    code, out, _ = run(capsys, monkeypatch, "inspect", tmp_path / "a.npz")
    assert (code, "how long training would take, run `nearfar inspect DATA --time`" in out) == (0, True)
    words = ("inspect", tmp_path / "a.npz", "--time", "--set", "epochs=1", "--set", "trunk=identity")
    code, out, _ = run(capsys, monkeypatch, *words)
    assert (code, "Training takes a few seconds: 1 epoch of" in out) == (0, True)
    code, _, err = run(capsys, monkeypatch, "inspect", tmp_path / "a.npz", "--set", "epochs=1")
    assert (code, err) == (2, "nearfar: --set: without --time, which times a training, works only for validation\n")
    code, out, _ = run(capsys, monkeypatch, "inspect", tmp_path / "a.npz", "--set", "validation=0")
    assert (code, "validation" in out) == (0, False)
    assert "nearfar train` keeps the cheapest" not in out
