"""Two processes train the weights that one does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from nearfar.train import TrainConfig, TrainError, open_run, train
from nearfar.train.checkpoint import load_tensors, read_about
from nearfar.train.setup import Step

OBJECTIVES = {
    "row": "TripletLoss()",
    "proxy": "AMSoftmaxLoss()",
    "set": "TripletLoss() + 0.5*EnergyConfusion() + 0.1*DiversityConfusion()",
    "layers": "AMSoftmaxLoss() + JRS()",
    "drawn": "NPairLoss() + 0.5*EnergyConfusion(pairs='one')",
    "layer": "FisherTripletLoss(layer='embedding', ridge=0.1, reduction='mean') + EnergyConfusion(layer='embedding')",
    "features": "HORDE(channels=16, features=32)",  # trains the trunk, not the embedding layer
    "facilities": "FacilityLocationLoss()",
    "centres": "ProxyNCALoss(proxies='kmeans')",
    "images": "TripletLoss()",
    "held": "TripletLoss()",
}
IMAGES = {"trunk": "conv4(width=4)", "image_size": 16, "freeze_bn": True, "optimizer": "adam", "lr": 1e-2, "eps": 1e-2}


def settings(name: str) -> TrainConfig:
    config = TrainConfig.of(
        data="digits",
        objective=OBJECTIVES[name],
        trunk="mlp(width=16, depth=1)",
        embedding_dim=8,
        sampler="m_per_class:8",
        batch_size=24,
        steps=3,
        optimizer="sgd",
        lr=0.5,
        device="cpu",
        ks=(1,),
    )
    if name == "held":  # in one of two epochs
        return config.replace(freeze_epochs=1, steps=None, epochs=2, sampler="m_per_class:64", batch_size=192)
    return config.replace(**IMAGES) if name == "images" else config


def work(rank: int, world: int, port: int, folder: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    torch.set_num_threads(1)
    for name in OBJECTIVES:
        train(settings(name), Path(folder) / name, progress=False)
    long = settings("drawn").replace(steps=9, checkpoint_every=2, dropout=0.2)
    train(long, Path(folder) / "whole", progress=False)
    broken_off(long, Path(folder) / "again")
    train(None, Path(folder) / "again", resume=True, progress=False)


class Stopped(Exception):
    pass


def broken_off(config: TrainConfig, folder: Path) -> None:
    """Train until every process fails in its fifth batch."""
    plain, calls = Step.forward, []

    def forward(self, items, labels=None, ids=None):
        calls.append(1)
        if len(calls) == 5:
            raise Stopped
        return plain(self, items, labels, ids)

    Step.forward = forward
    try:
        train(config, folder, progress=False)
    except Stopped:
        pass
    finally:
        Step.forward = plain


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """Runs of every objective by one process and by two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name in OBJECTIVES:
        train(settings(name), one / name, progress=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (2, port, str(two)), nprocs=2)
    return one, two


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_equal_one(folders, name) -> None:
    one, two = (load_tensors(folder / name / "last.safetensors")[0] for folder in folders)
    start = load_tensors(folders[0] / "row" / "last.safetensors")[0]
    assert one.keys() == two.keys()
    for key, value in one.items():
        difference = (value - two[key]).double().norm()
        assert difference <= 1e-5 * value.double().norm(), key
    assert name == "row" or any(not torch.equal(one[key], start[key]) for key in start.keys() & one.keys())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_their_values_are_those_of_the_whole_batch(folders, name) -> None:
    one, two = (open_run(folder / name).read_metrics()[0] for folder in folders)
    for key in one.keys() - {"images_per_second"}:
        assert two[key] == pytest.approx(one[key], rel=1e-4, abs=1e-6), key


def test_two_processes_resume_bit_for_bit(folders) -> None:
    whole, again = (folders[1] / name / "last.safetensors" for name in ("whole", "again"))
    assert read_about(whole)["step"] == read_about(again)["step"] == 9
    one, two = load_tensors(whole)[0], load_tensors(again)[0]
    assert all(torch.equal(value, two[key]) for key, value in one.items())


def test_a_run_of_two_does_not_go_on_as_one(folders) -> None:
    with pytest.raises(TrainError, match=r"made by 2 process\(es\), this is 1"):
        train(None, folders[1] / "again", resume=True, progress=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take GPUs where there are some")
def test_devices_are_processes_where_there_is_no_gpu(tmp_path) -> None:
    words = ["train", "digits", "--out", str(tmp_path / "run"), "--trunk", "mlp(width=16, depth=1)", "--devices", "2"]
    words += ["--batch-size", "24", "--sampler", "m_per_class:8", "--set", "steps=2", "--quiet"]
    ended = subprocess.run([sys.executable, "-m", "nearfar", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "run").glob("state-2.*.safetensors"))) == 2
    assert (tmp_path / "run" / "scores.json").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take GPUs where there are some")
def test_what_several_processes_run_into_is_said_once(tmp_path) -> None:
    words = ["train", "nowhere", "--out", str(tmp_path / "run"), "--devices", "2"]
    ended = subprocess.run([sys.executable, "-m", "nearfar", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert [line for line in ended.stderr.splitlines() if "Error" in line or "Traceback" in line] == []
    assert ended.stderr.count("nearfar: 'nowhere' is neither a file") == ended.stderr.count("nowhere") == 1
