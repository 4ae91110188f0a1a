"""Training with the network on a chunk of the batch at a time."""

from __future__ import annotations

import pytest
import torch

from nearfar.train import TrainError, train
from nearfar.train.checkpoint import load_tensors

RICH = "CrossBatchMemory(loss=TripletLoss(miner=BatchHard()), size=40) + AMSoftmaxLoss() + 0.5*JRS()"


def trained(config, folder):
    run = train(config, folder, progress=False)
    return load_tensors(run.folder / "last.safetensors")[0]


@pytest.mark.parametrize(
    "changes",
    [{}, {"freeze_trunk": True}, {"freeze_epochs": 1, "epochs": 2, "steps": None, "sampler": "m_per_class:64"}],
    ids=["all", "frozen", "held"],
)
def test_chunks_train_the_weights_of_whole_batches(tmp_path, small, changes) -> None:
    config = small(objective=RICH, optimizer="sgd", lr=0.1, steps=4, clip=5.0)
    if "sampler" in changes:
        changes = changes | {"batch_size": 192}
    config = config.replace(**changes)
    whole = trained(config, tmp_path / "whole")
    chunked = trained(config.replace(chunk=7), tmp_path / "chunks")
    assert whole.keys() == chunked.keys()
    for name, value in whole.items():
        torch.testing.assert_close(chunked[name], value, rtol=1e-5, atol=1e-6, msg=lambda told, name=name: name + told)


def test_chunks_in_half_precision(tmp_path, small) -> None:
    config = small(objective=RICH, optimizer="sgd", lr=0.1, steps=2, precision="bf16")
    whole = trained(config, tmp_path / "whole")
    chunked = trained(config.replace(chunk=8), tmp_path / "chunks")
    start = trained(config.replace(lr=0.0, chunk=8), tmp_path / "start")
    for name, value in whole.items():
        if value.is_floating_point():
            torch.testing.assert_close(chunked[name], value, rtol=0.05, atol=0.01)
    assert any(not torch.equal(start[name], value) for name, value in chunked.items())


@pytest.mark.slow
def test_a_run_in_chunks_resumes(tmp_path, small) -> None:
    config = small(chunk=10, dropout=0.3, epochs=2)
    whole = trained(config, tmp_path / "whole")
    trained(config.replace(epochs=1), tmp_path / "again")
    run = train(config, tmp_path / "again", resume=True, progress=False)
    again = load_tensors(run.folder / "last.safetensors")[0]
    assert all(torch.equal(value, again[name]) for name, value in whole.items())


def test_maps_of_whole_batches(tmp_path, small) -> None:
    config = small(objective="MultiScaleRelationNet(channels=[8])", trunk="conv4(width=8)", image_size=16, chunk=8)
    with pytest.raises(TrainError, match="chunk: MultiScaleRelationNet reads the maps of a whole batch"):
        train(config, tmp_path / "run", progress=False)
