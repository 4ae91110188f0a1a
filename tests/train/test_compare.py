"""Comparisons: every seed and every objective meet the same test."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from nearfar.data import open_task
from nearfar.io.scores_file import read_scores
from nearfar.train import TrainConfig, TrainError, open_run, train_and_compare
from nearfar.train import compare as comparing
from nearfar.train.compare import Trial, _split, run_trial, with_test_classes
from nearfar.train.interrupts import Interrupts, block_interrupts, stop_requested


@pytest.mark.parametrize("chosen", ["The checkpoint of epoch 3 was chosen", "There are no validation classes: the"])
def test_what_holds_for_one_run_is_not_said_of_all(chosen) -> None:
    split = "rows: 3 classes; validation classes drawn from the training classes with seed {}."
    content = {"protocol": f"{split.format(7)} {chosen}.", "split": split.format(7)}
    expected = "rows: 3 classes; validation classes drawn from the training classes with the seed of each run."
    assert _split(content) == expected


def test_all_seeds_are_tested_on_the_same_classes(tmp_path, small, rows) -> None:
    found = train_and_compare(small(data=rows, epochs=1), ["TripletLoss()", "TripletLoss()"], (0, 1), tmp_path / "runs")
    assert [len(scores) for scores in found.scores.values()] == [2]  # one objective, however often it is named
    tests = [np.load(path) for path in sorted((tmp_path / "runs").glob("*/test.npz"))]
    assert len(tests) == 2
    assert tests[0]["classes"].tolist() == tests[1]["classes"].tolist()
    assert not np.array_equal(tests[0]["embeddings"], tests[1]["embeddings"])


def test_settings_are_varied_and_the_validation_scores_told(tmp_path, small, rows) -> None:
    base, vary = small(data=rows, epochs=1, validation=0.4), {"lr": [0.001, 0.1], "dropout": [0.0, 0.5]}
    found = train_and_compare(base, ["TripletLoss()"], (0,), tmp_path / "runs", vary=vary)
    names = [f"TripletLoss(), lr={lr}, dropout={dropout}" for lr in vary["lr"] for dropout in vary["dropout"]]
    assert list(found.scores) == list(found.validation) == names
    runs = [open_run(folder) for folder in (tmp_path / "runs").glob("*-seed0")]
    assert len(runs) == 4
    for run in runs:
        config = TrainConfig.from_json(run.config)
        (value,) = found.validation[f"TripletLoss(), lr={config.lr}, dropout={config.dropout}"]
        assert value == max(row["unseen_map_at_r"] for row in run.read_metrics())
    assert json.loads((tmp_path / "runs" / "comparison.json").read_text())["vary"] == vary


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"lr": []}, "vary: lr: expected at least one, got 0"),
        ({"seed": [1, 2]}, "vary: seed must be the same in all runs"),
        ({"lr": [0.1, -1]}, "lr: .*got -1"),
        ({"lrr": [0.1]}, "did you mean lr"),
    ],
)
def test_settings_that_cannot_vary_are_told_before_anything_is_trained(tmp_path, small, rows, vary, message) -> None:
    with pytest.raises(ValueError, match=message):
        train_and_compare(small(data=rows), ["TripletLoss()"], (0,), tmp_path / "runs", vary=vary)
    assert not (tmp_path / "runs").exists()


def test_data_of_fixed_classes_are_compared(tmp_path, small, rows) -> None:
    base = small(data=rows, epochs=1, split="rows")
    found = train_and_compare(base, ["TripletLoss()"], (0, 1), tmp_path / "runs")
    assert [len(scores) for scores in found.scores.values()] == [2]
    assert "one half of the rows of each held out with the seed of each run" in found.protocol


def test_seeds_and_values_may_be_numbers_of_numpy(tmp_path, small, rows) -> None:
    vary = {"dropout": np.array([0.5], np.float32), "epochs": np.arange(1, 2), "standardize": [np.True_]}
    found = train_and_compare(small(data=rows), ["TripletLoss()"], np.arange(1), tmp_path / "runs", vary=vary)
    assert list(found.scores) == ["TripletLoss(), dropout=0.5, epochs=1, standardize=true"]
    content = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert content["seeds"] == [0]
    assert content["vary"] == {"dropout": [0.5], "epochs": [1], "standardize": [True]}


def test_classes_inside_of_one_held_out_are_not_held_out_with_it(tmp_path, small) -> None:
    y = np.repeat(["A", "A/b", "A/c", "B", "B/b", "B/c", "C", "D"], 5)
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(40, 3)), y=y)
    for seed in range(4):
        base = small(data=str(tmp_path / "rows.npz"), seed=seed)
        named = with_test_classes(base)
        tests = [open_task(c.data, test_classes=c.test_classes, seed=seed).test.classes for c in (base, named)]
        assert tests[0] == tests[1] == named.test_classes


def test_scores_that_are_damaged_are_named(tmp_path) -> None:
    path = tmp_path / "scores.json"
    wrong = ("{", "Expecting"), ("[]", "Expected `object`"), ('{"scores": {}}', "Object missing required field")
    for text, words in wrong:
        path.write_text(text)
        with pytest.raises(
            ValueError, match=rf"scores.json: damaged .{words}.*; remove the file, and the run is scored again"
        ):
            read_scores(path)
    trial = Trial("TripletLoss()", TrainConfig(data="rows.npz"), tmp_path)
    for raw, words in (("{}", "Object missing required field"), ('{"n_lone": "x"}', "Expected `int`, got `str`")):
        path.write_text(f'{{"protocol": "", "scores": {{}}, "raw": {raw}}}')
        with pytest.raises(
            ValueError, match=rf"scores.json: damaged .{words}.*; remove the file, and the run is scored"
        ):
            run_trial(trial)


def test_the_run_of_another_column_is_not_taken(tmp_path, small) -> None:
    rng = np.random.default_rng(0)
    rows = ["a,b,label,classes", *(f"{a},{b},{i % 12},{i % 14}" for i, (a, b) in enumerate(rng.normal(size=(168, 2))))]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    base, out = small(data=str(tmp_path / "rows.csv"), epochs=1), tmp_path / "runs"
    for label in (None, "classes", None, "label"):
        found = train_and_compare(base.replace(label=label), ["TripletLoss()"], (0,), out)
        assert f"test 84 rows of {7 if label == 'classes' else 6} classes" in found.protocol
    assert len(list(out.glob("*-seed0"))) == 3


def test_a_run_with_other_settings_is_refused_where_a_trial_belongs(tmp_path, small, rows) -> None:
    trial = Trial("TripletLoss()", small(data=rows, epochs=1, objective="TripletLoss()"), tmp_path / "run")
    content = run_trial(trial)
    assert run_trial(trial) == content
    for change in ({"label": "classes"}, {"lr": 0.5}, {"seed": 3}):
        name = next(iter(change))
        with pytest.raises(TrainError, match=rf"run: holds a run with other settings \(run's / given: {name}: "):
            run_trial(trial._replace(config=trial.config.replace(**change)))


@pytest.mark.parametrize(("seeds", "jobs", "message"), [((), 1, "seeds"), ((0,), 0, "jobs")])
def test_nothing_to_compare_is_said(tmp_path, small, rows, seeds, jobs, message) -> None:
    with pytest.raises(ValueError, match=f"{message}: expected at least one, got 0"):
        train_and_compare(small(data=rows), ["TripletLoss()"], seeds, tmp_path / "runs", jobs=jobs)


def test_an_objective_that_cannot_be_built_is_said_before_anything_is_trained(tmp_path, small, rows) -> None:
    with pytest.raises(ValueError, match="did you mean TripletLoss"):
        train_and_compare(small(data=rows), ["TripletLoss()", "TripletLos()"], (0,), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_comparison_that_fails_at_once_leaves_no_folder(tmp_path, small, rows) -> None:
    for out in (tmp_path / "runs", tmp_path / "of" / "today" / "runs"):
        with pytest.raises(ValueError, match="conv4"):
            train_and_compare(small(data=rows, trunk="conv4"), ["TripletLoss()"], (0, 1), out)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_an_objective_may_count_its_classes(tmp_path, small, rows) -> None:
    objective = "TripletLoss() + 0.1*DeepFisherLoss(class_counts=[8, 8, 8, 8, 8,])"
    base = small(data=rows, epochs=1, validation=0)
    found = train_and_compare(base, [objective, "AMSoftmaxLoss()"], (0,), tmp_path / "runs")
    assert list(found.scores) == [objective, "AMSoftmaxLoss()"]
    with pytest.raises(ValueError, match=r"class_counts must be 4 .*got \[8, 8, 8, 0\]"):
        train_and_compare(base, ["DeepFisherLoss(class_counts=[8, 8, 8, 0])"], (0,), tmp_path / "other")


def test_no_trial_of_a_pool_begins_after_ctrl_c(tmp_path, monkeypatch, small) -> None:
    begun = []

    def interrupted(trial: comparing.Trial) -> None:
        begun.append(trial)
        raise KeyboardInterrupt

    monkeypatch.setattr(comparing, "run_trial", interrupted)
    comparing._start_process(threading.Event())
    trial = comparing.Trial("TripletLoss()", small(), tmp_path)
    for _ in range(2):  # the second is what the pool has handed out already
        with pytest.raises(KeyboardInterrupt):
            comparing._run_in_pool(trial)
    assert begun == [trial]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_while_processes_start() -> None:
    reached = []

    def started() -> None:
        with block_interrupts():
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        started()
    assert reached


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
@pytest.mark.usefixtures("interruptible")
def test_a_process_that_was_stopped_while_it_began_takes_no_trial() -> None:
    stopped = threading.Event()
    with block_interrupts():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        comparing._start_process(stopped)
    assert stopped.is_set()


def test_others_may_ask_a_training_to_stop_beside_a_signal() -> None:
    with Interrupts() as interrupts:
        assert not interrupts.requested
        stop_requested.set()
        try:
            assert interrupts.requested
            os.kill(os.getpid(), signal.SIGINT)  # the first signal, and no second call to stop
            assert interrupts.requested
        finally:
            stop_requested.clear()


def test_a_signal_that_is_ignored_does_not_stop_a_training(interruptible) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts jobs in the background
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert not interrupts.requested
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def end_violently(trial: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def places_of_modules(trial: object) -> list[str]:
    return sys.path


@pytest.mark.slow
def test_processes_run_nothing_that_lies_among_the_data(monkeypatch, planted) -> None:
    monkeypatch.chdir(planted)
    monkeypatch.setattr(comparing, "_run_in_pool", places_of_modules)
    assert list(comparing._run_each([None], 2)) == [(0, sys.path)]
    assert list(planted.glob("*.ran")) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_a_process_that_is_killed_is_told_of_in_one_line(monkeypatch) -> None:
    monkeypatch.setattr(comparing, "_run_in_pool", end_violently)
    with pytest.raises(ChildProcessError, match=r"was killed.*; run the same comparison again to continue"):
        list(comparing._run_each([None, None], 2))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])  # the command takes SIGINT as SIGTERM: tests/test_cli.py
def test_the_processes_of_a_comparison_end_with_it(tmp_path, rows, number) -> None:
    out, own = tmp_path / "runs", ["--set", "trunk=mlp", "--set", "eval_every=1000000", "--epochs", "1000000"]
    words = ["compare", rows, "--objective", "TripletLoss()", "--seeds", "2", "--jobs", "2", "--out", str(out), *own]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-m", "nearfar", *words], **pipes, text=True, start_new_session=True)
    try:
        while len(list(out.glob("*/last.safetensors"))) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(getattr(signal, number))  # to this one process, as a service does
        _, err = process.communicate(timeout=300)  # the pipes are open until all have ended
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.returncode is None else None
    if number == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
    else:
        assert (process.returncode, err) == (143, "nearfar: stopped; run the same command again to continue\n")
    for folder in out.iterdir():
        assert (folder / "last.safetensors").exists()
        assert not list(folder.glob("*.partial"))
