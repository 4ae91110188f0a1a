"""Proxies distributed over processes: value, gradients and trained proxies are those of one process."""

from __future__ import annotations

from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import nearfar
from nearfar.deep import ShardedClasses

from ..processes import run_in_processes

C, D = 11, 5
PARTS = {1: [12], 2: [9, 3], 4: [4, 0, 5, 3]}
LOSSES = {
    "CosFaceLoss": {},
    "ArcFaceLoss": {},
    "AMSoftmaxLoss": {"block": 5},
    "ProxyNCAPlusPlusLoss": {},
}


def batch(world, rank):
    g = torch.Generator().manual_seed(0)
    images = torch.randn(12, 6, generator=g, dtype=torch.float64)
    y = torch.tensor([3, 3, 7, 10, 0, -1, 5, 5, 5, 2, 8, 0])
    rows = slice(sum(PARTS[world][:rank]), sum(PARTS[world][: rank + 1]))
    return images[rows], y[rows]


def trained(name, world, rank, shard):
    """Return the values of three steps, gradients of the first, and the proxies afterwards."""
    torch.manual_seed(0)
    network = torch.nn.Linear(6, D).double()
    loss = getattr(nearfar, name)(C, D, **LOSSES[name]).double()
    loss = shard(loss)
    optimizer = torch.optim.SGD([*network.parameters(), *loss.parameters()], lr=0.05)
    found = {"values": []}
    for _ in range(3):
        x, y = batch(world, rank)
        optimizer.zero_grad()
        value = loss(network(x), y)
        value.backward()
        for parameter in network.parameters():
            if world > 1:
                dist.all_reduce(parameter.grad)
            parameter.grad /= world
        found["values"].append(value.detach())
        found.setdefault("network", network.weight.grad.clone())
        found.setdefault("proxies", next(iter(loss.parameters())).grad.clone())
        optimizer.step()
    found["after"] = loss.all_proxies() if hasattr(loss, "all_proxies") else loss.proxies.detach()
    found["values"] = torch.stack(found["values"])
    return found


def worker(rank, world, folder):
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(minutes=2))
    found = {name: trained(name, world, rank, ShardedClasses) for name in LOSSES}
    try:
        ShardedClasses(nearfar.CosFaceLoss(1, D))
    except ValueError as error:
        found["few"] = str(error)
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_several_processes_train_what_one_does(world, tmp_path):
    run_in_processes(worker, world, tmp_path)
    for rank in range(world):
        many = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert many.pop("few").endswith(f"loss: 1 classes are fewer than the {world} processes")
        for name, found in many.items():
            one = trained(name, 1, 0, lambda loss: loss)
            own = slice(C * rank // world, C * (rank + 1) // world)
            one["proxies"] = one["proxies"][own]
            for key, value in one.items():
                torch.testing.assert_close(found[key], value, msg=lambda told, key=key: f"{key}: {told}")


@pytest.mark.parametrize("name", LOSSES)
def test_one_process_has_the_loss_itself(name):
    one, other = (trained(name, 1, 0, shard) for shard in (lambda loss: loss, ShardedClasses))
    for key, value in one.items():
        torch.testing.assert_close(other[key], value)


@pytest.mark.parametrize("labels", [[], [-1, -1], [0, 0]])
def test_few_classes_and_samples_are_finite(labels):
    x = torch.randn(len(labels), D, requires_grad=True)
    loss = ShardedClasses(nearfar.ArcFaceLoss(1, D))
    value = loss(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value == 0
    assert x.grad.isfinite().all()
    assert loss.loss.proxies.grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: ShardedClasses(nearfar.TripletLoss()), TypeError, "loss must be a loss with class proxies"),
        (lambda: ShardedClasses(nearfar.SoftTripleLoss(C, D)), TypeError, "its classes cannot be distributed"),
        (lambda: ShardedClasses(nearfar.ProxyAnchorLoss(C, D)), TypeError, "its classes cannot be distributed"),
        (
            lambda: ShardedClasses(nearfar.CosFaceLoss(C, D))(
                torch.eye(D), range(D), ref=torch.eye(D), ref_labels=range(D)
            ),
            ValueError,
            "ref does not apply",
        ),
        (lambda: ShardedClasses(nearfar.CosFaceLoss(C, D))(torch.eye(3), range(3)), ValueError, "embedding_dim is 5"),
    ],
)
def test_what_cannot_be_distributed_says_so(make, error, says):
    with pytest.raises(error, match=says):
        make()
