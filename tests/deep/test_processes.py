"""Several processes together equal one, in value and in every gradient."""

import atexit
import os
import socket
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.multiprocessing as mp

import nearfar
from nearfar.catalog import METHODS
from nearfar.deep import distributed

NAMES = [
    m.name
    for m in METHODS
    if m.done
    and (m.kind in ("loss", "regularizer", "composition", "head") or (m.kind == "memory" and m.takes != "rows"))
]
SMALL = {m.name: m.small for m in METHODS} | {"SNRContrastiveLoss": {"zero_mean": 0.5}}
DIM, POOLED, BATCH = 5, 7, 24


class Step(torch.nn.Module):
    """A network and an objective in one module, as the training engine wraps them."""

    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.embed = torch.nn.Linear(6, POOLED), torch.nn.Linear(POOLED, DIM)
        self.objective = nearfar.TripletLoss() + 0.7 * getattr(nearfar, name)(**SMALL[name])

    def forward(self, images, labels):
        pooled = self.trunk(images).tanh()
        return self.objective(self.embed(pooled), labels, pooled=pooled)


def data():
    g = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, 6, generator=g, dtype=torch.float64), torch.arange(BATCH) % 6


def gradients(step, images, labels):
    step.zero_grad()
    value = step(images, labels)
    value.backward()
    grads = {name: p.grad.clone() for name, p in step.named_parameters() if p.grad is not None}
    return {"value": value.detach(), "parts": dict(getattr(step, "module", step).objective.parts_), **grads}


def worker(rank, world, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    atexit.register(distributed.leave)
    images, labels = data()
    own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    results = {}
    for name in NAMES:
        step = torch.nn.parallel.DistributedDataParallel(Step(name).double(), find_unused_parameters=True)
        results[name] = gradients(step, images[own], labels[own])
    if rank == world - 1:
        torch.save(results, folder / "results.pt")
    dist.barrier()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_every_objective_equals_the_single_process(world, tmp_path: Path):
    mp.spawn(worker, (world, free_port(), tmp_path), nprocs=world)
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    images, labels = data()
    for name in NAMES:
        single = gradients(Step(name).double(), images, labels)
        many = {key.removeprefix("module."): value for key, value in results[name].items()}
        assert many.keys() == single.keys()
        for key, value in single.items():
            torch.testing.assert_close(
                many[key], value, rtol=1e-5, atol=1e-10, msg=lambda m, w=f"{name}: {key}": f"{w}: {m}"
            )


def of_views(net, images):
    numbers, net = torch.arange(len(images)), net.double()
    a, b = net(torch.cat([images, images.flip(1)])).chunk(2)
    value = nearfar.VICRegLoss()(a, numbers, ref=b, ref_labels=numbers)
    value.backward()
    return {"value": value.detach(), **{name: p.grad for name, p in net.named_parameters()}}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, DIM), torch.nn.Tanh())


def view_worker(rank, world, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    atexit.register(distributed.leave)
    own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    results = of_views(torch.nn.parallel.DistributedDataParallel(network().double()), data()[0][own])
    if rank == world - 1:
        torch.save(results, folder / "results.pt")
    dist.barrier()


@pytest.mark.slow
def test_each_process_gives_the_second_views_of_its_own(tmp_path: Path):
    mp.spawn(view_worker, (2, free_port(), tmp_path), nprocs=2)
    many = torch.load(tmp_path / "results.pt", weights_only=True)
    single = of_views(network(), data()[0])
    torch.testing.assert_close({name.removeprefix("module."): value for name, value in many.items()}, single)


def gather_worker(rank, world, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    atexit.register(distributed.leave)
    beside = torch.zeros(2 * world, DIM, requires_grad=True)
    other = beside * 1.0  # older than the gathering, thus its gradient is read after that of the gathering
    x = torch.zeros(2, DIM, requires_grad=True)
    ((distributed.gather(x) + other) * (rank + 1)).sum().backward()
    torch.save({"x": x.grad, "beside": beside.grad}, folder / f"{rank}.pt")
    dist.barrier()


@pytest.mark.slow
def test_gathering_leaves_the_gradient_it_is_given_as_it_is(tmp_path: Path):
    mp.spawn(gather_worker, (2, free_port(), tmp_path), nprocs=2)
    for rank in range(2):
        grads = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(grads["x"], torch.full((2, DIM), 3.0))
        torch.testing.assert_close(grads["beside"], torch.full((4, DIM), rank + 1.0))
