"""Two processes train the weights that one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from nearfar.cli.advice import HOW_TO_CONTINUE
from nearfar.cli.own_code import folder_of_own_modules
from nearfar.train import TrainConfig, TrainError, open_run, train
from nearfar.train.checkpoint import load_tensors, read_about
from nearfar.train.launching import MESSAGE_FOLDER, first_failure
from nearfar.train.network import Trainable
from tests.commands import run

from .. import forking
from ..processes import run_in_processes

OBJECTIVES = {
    "row": "TripletLoss()",
    "proxy": "AMSoftmaxLoss()",
    "set": "TripletLoss() + 0.5*EnergyConfusion() + 0.1*DiversityConfusion()",
    "layers": "AMSoftmaxLoss() + JRS()",
    "drawn": "NPairLoss() + 0.5*EnergyConfusion(pairs='one')",
    "layer": "FisherTripletLoss(layer='embedding', ridge=0.1, reduction='mean') + EnergyConfusion(layer='embedding')",
    "features": "HORDE(channels=16, features=32)",  # trains the trunk, not the embedding layer
    "facilities": "FacilityLocationLoss()",
    "centers": "ProxyNCALoss(proxies='kmeans')",
    "images": "TripletLoss()",
    "held": "TripletLoss()",
    "chunks": "CrossBatchMemory(loss=TripletLoss(miner=BatchHard()), size=40) + AMSoftmaxLoss() + JRS()",
    "sharded": "ArcFaceLoss(scale=16) + 0.5*TripletLoss()",
    "sampled": "CosFaceLoss(scale=16)",
    "sharded and sampled": "CosFaceLoss(scale=16) + EnergyConfusion()",
    "sharded in chunks": "AMSoftmaxLoss()",
    "sharded heads": "CrossEntropyHead(smoothing=0.1) + SubCenterArcFaceLoss(scale=8) + ProxyAnchorLoss(scale=8)",
    "sampled heads": "CrossEntropyHead(smoothing=0.1) + SubCenterArcFaceLoss(scale=8) + ProxyAnchorLoss(scale=8)",
    "mined": "TripletLoss()",
    "divided": "DivideAndConquer(AMSoftmaxLoss() + MarginLoss(), groups=3)",
    "generated": "HDMLLoss(layer='embedding', features=16, window=2) + 0.01*GroupAdversary(hidden=8)",
}
SAMPLERS = {"mined": "SmartMiningSampler(negatives=2, neighbors=5)", "divided": "ClusterSampler(clusters=3, m=2)"}
MANY_CLASSES = {
    "sharded": {"shard_classes": True, "clip": 0.5, "ema": 0.9},
    "sampled": {"sample_classes": 0.6, "optimizer": "adam", "lr": 1e-2, "eps": 1e-2, "clip": 0.5},
    "sharded and sampled": {"shard_classes": True, "sample_classes": 0.6, "lr": 0.1, "momentum": 0.9, "clip": 0.5},
    "sharded in chunks": {"shard_classes": True, "sample_classes": 0.6, "chunk": 5},
    "sharded heads": {"shard_classes": True, "sample_classes": 0.6, "lr": 0.1, "momentum": 0.9, "ema": 0.9},
    "sampled heads": {"sample_classes": 0.6, "lr": 0.1, "momentum": 0.9, "clip": 0.5},
}
LONG = (
    "drawn",
    "sharded",
    "sharded and sampled",
    "sharded heads",
    "mined",
    "divided",
    "generated",
)  # runs that are broken off and go on
IMAGES = {"trunk": "conv4(width=4)", "image_size": 16, "freeze_bn": True, "optimizer": "adam", "lr": 1e-2, "eps": 1e-2}


def settings(name: str, data: str) -> TrainConfig:
    config = TrainConfig.of(
        data=data,
        objective=OBJECTIVES[name],
        trunk="mlp(width=16, depth=1)",
        embedding_dim=8,
        sampler=SAMPLERS.get(name, "m_per_class:8"),
        batch_size=24,
        steps=3,
        optimizer="sgd",
        lr=0.5,
        device="cpu",
        ks=(1,),
    )
    if name == "held":  # in one of two epochs
        return config.replace(freeze_epochs=1, steps=None, epochs=2, sampler="m_per_class:20", batch_size=60)
    if name in MANY_CLASSES:
        return config.replace(symmetries="rotations", **MANY_CLASSES[name])  # 12 classes, of which a batch has 3
    if name == "chunks":
        return config.replace(chunk=5)
    if name == "generated":
        return config.replace(lr=1e-2)
    return config.replace(**IMAGES) if name == "images" else config


def work(rank: int, world: int, folder: str, data: str) -> None:
    os.environ["ACCELERATE_USE_CPU"] = "true"
    for name in OBJECTIVES:
        train(settings(name, data), Path(folder) / name, progress=False)
    for name in LONG:
        long = settings(name, data).replace(steps=9, checkpoint_every=2, dropout=0.2)
        train(long, Path(folder) / f"{name}, whole", progress=False)
        broken_off(long, Path(folder) / f"{name}, again")
        train(None, Path(folder) / f"{name}, again", resume=True, progress=False)


class Stopped(Exception):
    pass


def broken_off(config: TrainConfig, folder: Path) -> None:
    """Train until every process fails in its fifth batch."""
    plain, calls = Trainable.forward, []

    def forward(self, items, labels=None, ids=None):
        calls.append(1)
        if len(calls) == 5:
            raise Stopped
        return plain(self, items, labels, ids)

    Trainable.forward = forward
    try:
        train(config, folder, progress=False)
    except Stopped:
        pass
    finally:
        Trainable.forward = plain


@pytest.fixture(scope="module")
def folders(tmp_path_factory, few_digits) -> tuple[Path, Path]:
    """Runs of every objective by one process and by two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name in OBJECTIVES:
        train(settings(name, few_digits), one / name, progress=False)
    run_in_processes(work, 2, str(two), few_digits)
    return one, two


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_equal_one(folders, name) -> None:
    one, two = (load_tensors(folder / name / "last.safetensors")[0] for folder in folders)
    start = load_tensors(folders[0] / "row" / "last.safetensors")[0]
    assert one.keys() == two.keys()
    for key, value in one.items():
        difference = (value - two[key]).double().norm()
        assert difference <= 1e-5 * value.double().norm(), key
    assert name == "row" or any(not torch.equal(one[key], start[key]) for key in start.keys() & one.keys())


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_their_values_are_those_of_the_whole_batch(folders, name) -> None:
    one, two = (open_run(folder / name).read_metrics()[0] for folder in folders)
    for key in one.keys() - {"images_per_second"}:
        assert two[key] == pytest.approx(one[key], rel=1e-4, abs=1e-6), key


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_two_processes_resume_bit_for_bit(folders, name) -> None:
    whole, again = (folders[1] / f"{name}, {which}" / "last.safetensors" for which in ("whole", "again"))
    assert read_about(whole)["step"] == read_about(again)["step"] == 9
    one, two = load_tensors(whole)[0], load_tensors(again)[0]
    assert all(torch.equal(value, two[key]) for key, value in one.items())


@pytest.mark.slow
def test_a_run_of_two_does_not_go_on_as_one(folders) -> None:
    with pytest.raises(TrainError, match="expected 2 processes, as in the run, got 1"):
        train(None, folders[1] / "drawn, again", resume=True, progress=False)


OWN_LOSS = """
from nearfar.deep.objective.terms import SetTerm

class Mine(SetTerm):
    def value(self, batch):
        return batch.x.square().mean()
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take GPUs where there are some")
def test_devices_are_processes_that_run_nothing_that_lies_among_the_data(tmp_path, rows, planted) -> None:
    (planted / "mylosses.py").write_text(OWN_LOSS)
    words = ["train", rows, "--out", str(tmp_path / "run"), "--trunk", "mlp(width=16, depth=1)", "--devices", "2"]
    words += ["--batch-size", "24", "--sampler", "m_per_class:8", "--set", "steps=2", "--quiet"]
    words += ["--objective", "TripletLoss() + mylosses:Mine()"]
    command = [sys.executable, "-m", "nearfar", *words]
    ended = subprocess.run(command, cwd=planted, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "run").glob("state-2.*.safetensors"))) == 2
    assert (tmp_path / "run" / "scores.json").exists()
    assert list(planted.glob("*.ran")) == []


def test_only_a_command_that_names_a_module_of_the_working_directory_looks_there(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("miner.py", "timm.py", "triton.py"):
        (tmp_path / name).touch()
    named = ["TripletLoss() + 0.5*miner:Loss()", "--sampler=miner:Sampler", "trunk=miner.small:make"]
    others = ["miner.py", "cub:miner", "yours:Loss()", "timm:resnet18", "m_per_class:4", "not.miner:Loss()"]
    for word in [*named, *others]:
        expected = str(tmp_path) if word in named else ""
        assert folder_of_own_modules(["train", "digits", word]) == expected, word
    for words in (["--trust", "miner"], ["--trust=yours,miner.small"]):
        assert folder_of_own_modules(["embed", "run", "digits", *words]) == str(tmp_path)
    assert folder_of_own_modules(["embed", "run", "miner", "--trust", "yours"]) == ""
    monkeypatch.syspath_prepend(tmp_path)
    assert folder_of_own_modules(["train", "digits"]) == str(tmp_path)


def test_a_command_finds_a_module_that_it_names_in_the_working_directory(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses_beside_data.py").write_text(OWN_LOSS)
    words = ["train", "digits", "--out", "run", "--objective", "losses_beside_data:Mine()", "--trunk", "mlp(width=8)"]
    before = list(sys.path)
    code, _, err = run(capsys, monkeypatch, *words, "--set", "steps=1", "--batch-size", "24", "--quiet")
    assert (code, err) == (0, "")
    assert sys.path == before


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take GPUs where there are some")
def test_what_several_processes_run_into_is_said_once(tmp_path) -> None:
    words = ["train", "nowhere", "--out", str(tmp_path / "run"), "--devices", "2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "nearfar", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 2
    assert not list(temporary.glob("torchelastic*"))
    assert [line for line in ended.stderr.splitlines() if "Error" in line or "Traceback" in line] == []
    assert ended.stderr.count("nearfar: 'nowhere' is neither a file") == ended.stderr.count("nowhere") == 1


FALLING = """
import os, sys
from nearfar import cli


def fall(*given, **named):
    raise RuntimeError("the other process is gone")

cli.training.make_config = fall
sys.argv = ["nearfar", "train", "digits", "--out", "run"]
cli.main()
"""


@pytest.mark.slow
def test_one_of_several_processes_leaves_its_traceback_to_the_command_that_started_it(tmp_path) -> None:
    environment = {**os.environ, "RANK": "1", "LOCAL_RANK": "1", MESSAGE_FOLDER: str(tmp_path)}
    ended = forking.run("-c", FALLING, env=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")
    said = (tmp_path / "1").read_text()
    assert said.startswith("Traceback")
    assert said.endswith("RuntimeError: the other process is gone\n")


class Failure(NamedTuple):
    """What torchrun tells of a process."""

    exitcode: int
    timestamp: int = 100

    def signal_name(self) -> str:
        return signal.Signals(-self.exitcode).name


@pytest.mark.parametrize(
    ("failures", "words", "expected"),
    [
        (
            {0: Failure(1), 1: Failure(-9)},
            ["Traceback of the survivor"],
            "nearfar: process 1 was ended by SIGKILL, perhaps because memory ran out",
        ),
        (
            {0: Failure(-15), 1: Failure(-9)},
            ["stopped"],
            "nearfar: process 1 was ended by SIGKILL, perhaps because memory ran out",
        ),
        ({0: Failure(-11), 1: Failure(-9, 130)}, [], "nearfar: process 0 was ended by SIGSEGV; `nearfar train --res"),
        ({1: Failure(2), 0: Failure(-9, 130)}, ["no such file"], "nearfar: no such file"),  # did not end when asked to
        ({1: Failure(2), 0: Failure(-15)}, ["the first", "stopped"], "nearfar: the first"),
        ({0: Failure(1), 1: Failure(1)}, ["Traceback of the first", "Traceback of the second"], "Traceback of the fir"),
        ({0: Failure(3), 1: Failure(-15)}, [], "nearfar: process 0 ended with exit code 3"),
    ],
)
def test_what_ended_first_is_said_alone(tmp_path, failures, words, expected) -> None:
    for at, word in enumerate(words):
        (tmp_path / str(at)).write_text(word)
        os.utime(tmp_path / str(at), ns=(at, at))
    assert first_failure(tmp_path, failures, HOW_TO_CONTINUE["train"]).startswith(expected)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take GPUs where there are some")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in /proc")
def test_a_process_that_is_killed_is_said_in_one_line(tmp_path, rows, planted) -> None:
    """Also where the other process has failed for want of it before torchrun looks.

    What is installed does not look in the working directory (-P); a loss of one's own is found there all the same.
    """
    (planted / "mylosses.py").write_text(OWN_LOSS)
    words = ["train", rows, "--out", str(tmp_path / "run"), "--trunk", "mlp(width=16, depth=1)", "--devices", "2"]
    words += ["--batch-size", "24", "--sampler", "m_per_class:8", "--set", "steps=1000000", "--set", "log_every=1"]
    words += ["--objective", "TripletLoss() + mylosses:Mine()", "--set", "eval_every=1000000", "--quiet"]
    command = [sys.executable, "-P", "-m", "nearfar", *words]
    how = {"cwd": planted, "stderr": subprocess.PIPE, "text": True, "env": os.environ | {"MARK": str(tmp_path)}}
    with subprocess.Popen(command, **how) as run:
        try:
            while not (tmp_path / "run" / "log.jsonl").exists():
                assert run.poll() is None
                time.sleep(0.1)
            ranks = processes_with(f"MARK={tmp_path}")
            run.send_signal(signal.SIGSTOP)
            os.kill(ranks["1"], signal.SIGKILL)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline and not is_dead(ranks["0"]):
                time.sleep(0.1)
            run.send_signal(signal.SIGCONT)
            said = run.communicate(timeout=60)[1]
        finally:
            run.kill() if run.returncode is None else None
    assert run.returncode == 1
    assert said.startswith(
        "nearfar: process 1 was ended by SIGKILL, perhaps because memory ran out; `nearfar train --resume"
    )
    assert said.count("\n") == 1
    assert list(planted.glob("*.ran")) == []


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take GPUs where there are some")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in /proc")
def test_processes_end_with_the_one_that_started_them(tmp_path, rows) -> None:
    words = ["train", rows, "--out", str(tmp_path / "run"), "--trunk", "mlp(width=16, depth=1)", "--devices", "2"]
    words += ["--batch-size", "24", "--sampler", "m_per_class:8", "--set", "steps=1000000", "--set", "log_every=1"]
    command = [sys.executable, "-m", "nearfar", *words, "--set", "eval_every=1000000", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | {"MARK": str(tmp_path)}) as run:
        try:
            while not (tmp_path / "run" / "log.jsonl").exists():
                assert run.poll() is None
                time.sleep(0.1)
            ranks = processes_with(f"MARK={tmp_path}")
        finally:
            run.kill()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all(map(is_dead, ranks.values())):
        time.sleep(0.1)
    alive = [number for number in ranks.values() if not is_dead(number)]
    for number in alive:
        os.kill(number, signal.SIGKILL)
    assert len(ranks) == 2
    assert not alive
    assert (tmp_path / "run" / "last.safetensors").exists()


def processes_with(variable: str) -> dict[str, int]:
    """Return the processes that have a variable in their environment, by their ranks."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            values = path.read_text(errors="replace").split("\0")
        except OSError:
            continue
        rank = [value.removeprefix("RANK=") for value in values if value.startswith("RANK=")]
        if variable in values and rank:
            found[rank[0]] = int(path.parent.name)
    return found


def is_dead(process: int) -> bool:
    """Return whether a process has ended, though the one that started it has not looked yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
