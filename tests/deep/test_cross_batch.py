"""The cross-batch memory: a true ring, exact values, exact resumption."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import nearfar
from nearfar import AMSoftmaxLoss, ContrastiveLoss, CrossBatchMemory, NPairLoss, TripletLoss
from nearfar.deep.memory.cross_batch import cross_batch
from tests.references import cross_batch as plain

from ..processes import run_in_processes

LOSSES = ["TripletLoss", "ContrastiveLoss", "MarginLoss", "NTXentLoss", "BinomialDevianceLoss", "SoftmaxTripletLoss"]


def batches(count, n=6, d=4, seed=0, classes=4):
    g = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, d, generator=g, dtype=torch.float64), torch.randint(-1, classes, (n,), generator=g))
        for _ in range(count)
    ]


@pytest.mark.parametrize("sizes", [[4] * 5, [3, 5, 1, 7, 2], [10, 3], [0, 2, 12]])
def test_the_ring_holds_the_last_rows_in_order(sizes):
    memory, position, pushed = torch.full((7,), -1.0), torch.tensor(0), []
    for size in sizes:
        new = torch.arange(len(pushed), len(pushed) + size, dtype=torch.float32)
        memory = cross_batch(memory, new, position)
        position, pushed = (position + size) % 7, [*pushed, *new.tolist()]
        ordered = torch.roll(memory, -int(position))
        assert ordered[7 - min(7, len(pushed)) :].tolist() == pushed[-7:]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("settings", [{}, {"weight": 0.3, "start": 2}], ids=str)
def test_values_and_gradients_equal_a_list_of_the_last_embeddings(name, settings):
    steps = [(x.requires_grad_(), y) for x, y in batches(6)]
    loss = getattr(nearfar, name)().double()
    memory = CrossBatchMemory(loss, size=15, **settings).double()
    expected = plain.reference(loss, steps, 15, **settings)
    for (x, y), value in zip(steps, expected, strict=True):
        found = memory(x, y)
        torch.testing.assert_close(found, value)
        torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(value, x))


def test_a_batch_remembered_as_itself_is_the_loss_of_the_batch():
    x, y = batches(1)[0]
    for loss in (TripletLoss(), ContrastiveLoss(), NPairLoss(reg=0)):
        memory = CrossBatchMemory(loss, size=6).double()
        memory(x, y, ids=torch.arange(6))
        torch.testing.assert_close(memory(x, y, ids=torch.arange(6)), 2 * loss(x, y))
    without_ids = CrossBatchMemory(ContrastiveLoss(), size=6).double()
    without_ids(x, y)
    assert not torch.allclose(without_ids(x, y), 2 * ContrastiveLoss()(x, y))


@pytest.mark.parametrize("name", [*LOSSES, "LiftedLoss"])
def test_a_sample_never_meets_itself(name):
    """Beside the memory, the same pairs given as a relation."""
    (x, y), (x2, y2) = batches(2)
    loss = getattr(nearfar, name)().double()
    memory = CrossBatchMemory(loss, size=6).double()
    memory(x, y, ids=torch.tensor([0, 1, 2, 3, -1, 5]))
    ids = torch.tensor([3, 6, 0, 7, -1, 5])
    found = memory(x2.requires_grad_(), y2, ids=ids)
    unknown = (y2[:, None] == -1) | (y == -1)
    relation = torch.where(unknown, -1, (y2[:, None] == y).long())
    for row, column in ((0, 3), (2, 0), (5, 5)):
        relation[row, column] = -1
    expected = loss(x2, y2) + loss(x2, relation, ref=x, ref_labels=y)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, x2), torch.autograd.grad(expected, x2))


def test_boundaries_of_classes_and_samples_work_with_a_memory():
    (x, y), (x2, y2) = batches(2)
    loss = nearfar.MarginLoss(per_class=4, per_sample=12).double()
    torch.nn.init.normal_(loss.class_offsets)
    torch.nn.init.normal_(loss.sample_offsets)
    memory, new = CrossBatchMemory(loss, size=6).double(), torch.arange(6, 12)
    memory(x, y, ids=torch.arange(6))
    found = memory(x2, y2, ids=new)
    expected = loss(x2, y2, ids=new) + loss(x2, y2, ids=new, ref=x, ref_labels=y)
    torch.testing.assert_close(found, expected)
    learned = [loss.boundary, loss.class_offsets, loss.sample_offsets]
    torch.testing.assert_close(torch.autograd.grad(found, learned), torch.autograd.grad(expected, learned))


def test_drift_is_the_mean_squared_way_of_remembered_samples():
    memory, x = CrossBatchMemory(ContrastiveLoss(), size=4), torch.randn(3, 2)
    assert torch.tensor(memory.drift(x, torch.arange(3))).isnan()
    memory(x, torch.tensor([0, 0, 1]), ids=torch.tensor([7, -1, 9]))
    probe = torch.tensor([9, 5, 7, -1])  # 5 was never seen, and -1 says nothing
    now = torch.stack([x[2] + 1, x[0], x[0] - 2, x[1]])
    assert memory.drift(now, probe) == pytest.approx((2 * 1 + 2 * 4) / 2)


def test_sizes_at_the_ends():
    steps = batches(4)
    none = CrossBatchMemory(ContrastiveLoss(), size=0)
    assert [none(x, y) for x, y in steps] == [ContrastiveLoss()(x, y) for x, y in steps]
    small = CrossBatchMemory(ContrastiveLoss(), size=4).double()
    for x, y in steps:
        small(x, y)
        order = torch.arange(2, 6) if int(small.position) == 0 else torch.roll(torch.arange(2, 6), int(small.position))
        assert torch.equal(small.features.sort(0).values, x[order].sort(0).values)


def test_a_proxy_loss_meets_the_memory_as_further_anchors():
    steps = [(x, y.clamp_min(0)) for x, y in batches(3)]
    loss = AMSoftmaxLoss(num_classes=4, embedding_dim=4).double()
    memory = CrossBatchMemory(loss, size=12).double()
    for x, y in steps[:2]:
        memory(x, y)
    x, y = steps[2]
    found = memory(x, y)
    earlier = torch.cat([x for x, _ in steps[:2]]), torch.cat([y for _, y in steps[:2]])
    expected = loss(x, y) + loss(*earlier)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, loss.proxies), torch.autograd.grad(expected, loss.proxies))


def test_evaluation_remembers_nothing():
    memory = CrossBatchMemory(ContrastiveLoss(), size=12).double()
    (x, y), (x2, y2) = batches(2)
    memory(x, y)
    before = {name: value.clone() for name, value in memory.state_dict().items()}
    memory.eval()
    memory(x2, y2)
    assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_resumed_memory_goes_on_bit_for_bit(after):
    steps = batches(6)

    def values(memory, some):
        return [memory(x, y, ids=torch.arange(6)).item() for x, y in some]

    whole = values(CrossBatchMemory(TripletLoss(), size=14).double(), steps)
    first = CrossBatchMemory(TripletLoss(), size=14).double()
    assert values(first, steps[:after]) == whole[:after]
    state = {name: value.clone() for name, value in first.state_dict().items()}
    second = CrossBatchMemory(TripletLoss(), size=14).double()
    second.load_state_dict(state)
    assert values(second, steps[after:]) == whole[after:]


def test_adds_with_other_terms_and_backward_after_the_push():
    objective = CrossBatchMemory(TripletLoss(), size=8) + 0.5 * ContrastiveLoss()
    net = torch.nn.Linear(4, 3)
    for x, y in batches(3):
        objective(net(x.float()), y).backward()
    assert net.weight.grad.isfinite().all()
    assert set(objective.parts_) == {"CrossBatchMemory", "ContrastiveLoss"}


def test_a_frozen_network_sees_a_larger_batch():
    """Anchors of the last batch against everything: the sums over the batch and over the memory add up."""
    steps = batches(3)
    make = lambda: ContrastiveLoss(reduction="sum")  # noqa: E731
    memory = CrossBatchMemory(make(), size=18).double()
    values = [memory(x, y).item() for x, y in steps]
    everything = make()(torch.cat([x for x, _ in steps]), torch.cat([y for _, y in steps])).item()
    before = make()(torch.cat([x for x, _ in steps[:2]]), torch.cat([y for _, y in steps[:2]])).item()
    x, y = steps[2]
    cross = values[2] - make()(x, y).item()
    assert everything == pytest.approx(before + make()(x, y).item() + 2 * cross)


class Step(torch.nn.Module):
    """A network and a remembering objective in one module, as the training engine wraps them."""

    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        settings = {"num_classes": 4, "embedding_dim": 5} if name == "AMSoftmaxLoss" else {}
        self.embed = torch.nn.Linear(4, 5)
        self.objective = CrossBatchMemory(getattr(nearfar, name)(**settings), size=30)

    def forward(self, x, y):
        return self.objective(self.embed(x), y)


SHARED = ["TripletLoss", "NTXentLoss", "AMSoftmaxLoss"]


def run(step, rank, world):
    """Return values and gradients of four steps on this process's part of the batches."""
    found = []
    for x, y in batches(4, n=12, classes=4):
        own = slice(rank * 12 // world, (rank + 1) * 12 // world)
        step.zero_grad()
        value = step(x[own], y[own])
        value.backward()
        found.append([value.detach(), *(p.grad.clone() for p in step.parameters())])
    return found


def worker(rank, world, folder):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    results = {
        name: run(torch.nn.parallel.DistributedDataParallel(Step(name).double()), rank, world) for name in SHARED
    }
    if rank == world - 1:
        torch.save(results, folder / "results.pt")
    dist.barrier()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path):
    run_in_processes(worker, 2, tmp_path)
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for name in SHARED:
        torch.testing.assert_close(results[name], run(Step(name).double(), 0, 1), rtol=1e-6, atol=1e-10)


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="loss must be a pair, triplet or proxy loss, got EnergyConfusion"):
        CrossBatchMemory(nearfar.EnergyConfusion())
    with pytest.raises(ValueError, match="size and start must be at least 0, got -1 and 0"):
        CrossBatchMemory(TripletLoss(), size=-1)
    memory = CrossBatchMemory(TripletLoss(), size=8, embedding_dim=5)
    x, y = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match="the memory holds 5 dimensions, got 3"):
        memory(x, y)
    memory = CrossBatchMemory(TripletLoss(), size=8)
    with pytest.raises(ValueError, match="labels must be one class per sample"):
        memory(x, (y[:, None] == y).long())
    with pytest.raises(ValueError, match="ref does not apply"):
        memory(x, y, ref=x, ref_labels=y)


def test_terms_beside_it_see_the_class_scores_of_its_loss():
    ((x, y),) = batches(1)
    loss = AMSoftmaxLoss(4, 4).double()
    expected = (loss + nearfar.JRS(layers=("class",)))(x, y)  # a memory of nothing adds nothing
    torch.testing.assert_close((CrossBatchMemory(loss, size=8) + nearfar.JRS(layers=("class",)))(x, y), expected)


def test_statistics_are_those_of_the_comparison_with_the_memory():
    (x, y), (later, later_y) = batches(2)
    memory = CrossBatchMemory(TripletLoss(), size=6).double().collect_stats()
    alone = TripletLoss().collect_stats()
    memory(x, y)
    memory(later, later_y)
    alone(later, later_y, ref=x, ref_labels=y)
    assert memory.stats_ == pytest.approx(alone.stats_)
    assert memory.stats_["positive"] > 0
