"""Proxies distributed over processes: value, gradients and trained proxies are those of one process."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import nearfar
from nearfar.deep import SampledClasses, ShardedClasses

from ..processes import run_in_processes

C, D = 11, 5
PARTS = {1: [12], 2: [9, 3], 4: [4, 0, 5, 3]}
LOSSES = {
    "CosFaceLoss": {},
    "ArcFaceLoss": {},
    "AMSoftmaxLoss": {"block": 5},
    "ProxyNCAPlusPlusLoss": {},
    "SubCenterArcFaceLoss": {"sub_centers": 2},
    "ProxyAnchorLoss": {},
    "CrossEntropyHead": {},
    "CrossEntropyHead, smoothed": {"smoothing": 0.1, "reduction": "sum", "temperature": 0.5},
    "CrossEntropyHead, cosines": {"smoothing": 0.1, "normalize": True, "temperature": 0.2},
}
SHARE = 0.6


def made(name):
    return getattr(nearfar, name.partition(",")[0])(C, D, **LOSSES[name]).double()


def rows_of(name, world, rank):
    """Return which rows of the proxies a process has."""
    classes = torch.arange(C * rank // world, C * (rank + 1) // world)
    return torch.cat([classes + C * k for k in range(LOSSES[name].get("sub_centers", 1))])


def batch(world, rank):
    g = torch.Generator().manual_seed(0)
    images = torch.randn(12, 6, generator=g, dtype=torch.float64)
    y = torch.tensor([3, 3, 7, 10, 0, -1, 5, 5, 5, 2, 8, 0])
    rows = slice(sum(PARTS[world][:rank]), sum(PARTS[world][: rank + 1]))
    return images[rows], y[rows]


def trained(name, world, rank, shard, seed=None):
    """Return the values of three steps, gradients of the first, and the proxies afterwards."""
    torch.manual_seed(0)
    network = torch.nn.Linear(6, D).double()
    loss = shard(made(name))
    torch.manual_seed(seed or world)  # classes are drawn with the generator of the first process
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
        found.setdefault("parameters", [parameter.grad.clone() for parameter in loss.parameters()])
        optimizer.step()
    found["after"] = loss.all_proxies() if hasattr(loss, "all_proxies") else next(loss.parameters()).detach()
    found["values"] = torch.stack(found["values"])
    return found


def drawn_and_sharded(loss):
    return ShardedClasses(loss, share=SHARE, sparse=True)


def drawn(loss):
    return SampledClasses(loss, share=SHARE)


def worker(rank, world, folder):
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(minutes=2))
    found = {name: trained(name, world, rank, ShardedClasses) for name in LOSSES}
    found["drawn"] = {name: trained(name, world, rank, drawn_and_sharded) for name in LOSSES}
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
        ways = [(many.pop("drawn"), drawn), (many, lambda loss: loss)]
        for (found, way), name in product(ways, LOSSES):
            # the loss of one process, which draws what the first of several does
            one = trained(name, 1, 0, way, seed=world)
            for key, value in one.items():
                part = found[name][key]
                if key == "parameters":
                    value = [grad[rows_of(name, world, rank)] for grad in value]
                    part = [grad.to_dense() for grad in part]
                torch.testing.assert_close(part, value, msg=lambda told, key=key, name=name: f"{name}, {key}: {told}")


@pytest.mark.parametrize("name", LOSSES)
def test_one_process_has_the_loss_itself(name):
    one, other = (trained(name, 1, 0, shard) for shard in (lambda loss: loss, ShardedClasses))
    for key, value in one.items():
        torch.testing.assert_close(other[key], value)


@pytest.mark.parametrize("labels", [[], [-1, -1], [0, 0]])
def test_few_classes_and_samples_are_finite(labels):
    x = torch.randn(len(labels), D, requires_grad=True)
    for name in ("ArcFaceLoss", "SubCenterArcFaceLoss", "CrossEntropyHead", "ProxyAnchorLoss"):
        loss = ShardedClasses(getattr(nearfar, name)(1, D))
        value = loss(x, torch.tensor(labels, dtype=torch.long))
        value.backward()
        assert value == 0 or name == "ProxyAnchorLoss"  # which also pulls samples to their proxy
        assert value.isfinite()
        assert x.grad.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in loss.parameters())


@pytest.mark.parametrize("name", LOSSES)
def test_a_state_of_all_classes_can_be_loaded(name, monkeypatch):
    whole = made(name)
    monkeypatch.setattr("nearfar.deep.distributed.world", lambda: 3)
    monkeypatch.setattr("nearfar.deep.distributed.rank", lambda: 1)
    part = ShardedClasses(made(name))
    part.load_state_dict({f"loss.{key}": value for key, value in whole.state_dict().items()})
    for key, value in part.loss.state_dict().items():
        assert torch.equal(value, whole.state_dict()[key][rows_of(name, 3, 1)])


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: ShardedClasses(nearfar.TripletLoss()), TypeError, "loss must be a loss with class proxies"),
        (lambda: ShardedClasses(nearfar.SoftTripleLoss(C, D)), TypeError, "its classes cannot be distributed"),
        (lambda: ShardedClasses(nearfar.AdaFaceLoss(C, D)), TypeError, "its classes cannot be distributed"),
        (lambda: ShardedClasses(nearfar.MSEHead(C, D)), TypeError, "loss must be a loss with class proxies"),
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
