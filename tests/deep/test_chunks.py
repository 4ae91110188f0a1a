"""The gradient of a large batch, a chunk of items at a time, is that of the whole batch."""

from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn

import nearfar
from nearfar.deep import average_gradients, backward_in_chunks, rng

N, DIM = 24, 6


class Features(NamedTuple):
    pooled: torch.Tensor
    embedding: torch.Tensor


class Network(nn.Module):
    def __init__(self, dropout=0.0, norm=False):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(7, 9), nn.BatchNorm1d(9) if norm else nn.Identity(), nn.Tanh())
        self.dropout = nn.Dropout(dropout)
        self.layer = nn.Linear(9, DIM)
        self.calls = []

    def forward(self, items):
        self.calls.append((len(items), torch.is_grad_enabled()))
        pooled = self.trunk(items)
        return Features(pooled, self.layer(self.dropout(pooled)))


OBJECTIVES = {
    "mined": lambda: nearfar.TripletLoss(miner=nearfar.BatchHard()),
    "drawn": lambda: nearfar.MarginLoss(miner=nearfar.DistanceWeighted()),
    "proxies and layers": lambda: nearfar.AMSoftmaxLoss(6, DIM) + nearfar.JRS(("pooled", "embedding", "class")),
    "memory": lambda: nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=30),
    "blocks": lambda: nearfar.NTXentLoss(block=5) + 0.1 * nearfar.EnergyConfusion(),
}


def batch():
    g = torch.Generator().manual_seed(1)
    return torch.randn(N, 7, generator=g), torch.arange(N) % 6


def gradients(*modules):
    found = [p.grad for module in modules for p in module.parameters()]
    return [torch.zeros(()) if g is None else g for g in found]


@pytest.mark.parametrize("chunk", [1, 5, 12, 24])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_equals_the_whole_batch(name, chunk):
    items, labels = batch()
    values, found = [], []
    for chunked in (False, True):
        torch.manual_seed(0)
        network, loss = Network(), OBJECTIVES[name]()
        for step in range(2):  # a memory is empty in the first
            torch.manual_seed(step)

            def objective(features, loss=loss):
                return loss(features.embedding, labels, pooled=features.pooled)

            if chunked:
                value = backward_in_chunks(network, items, objective, chunk=chunk)
                assert not value.requires_grad
            else:
                value = objective(network(items))
                value.backward()
        values.append(value.detach())
        found.append(gradients(network, loss))
    torch.testing.assert_close(values[1], values[0], rtol=1e-5, atol=1e-6)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_no_more_than_a_chunk_has_a_graph():
    items, labels = batch()
    network = Network()
    backward_in_chunks(network, items, lambda f: nearfar.TripletLoss()(f.embedding, labels), chunk=10)
    assert network.calls == [(n, graph) for graph in (False, True) for n in (10, 10, 4)]


@pytest.mark.parametrize("kind", [tuple, list, lambda parts: dict(zip("ab", parts, strict=True))])
def test_items_of_several_tensors(kind):
    items, labels = batch()
    layer = nn.Linear(7, DIM)

    def network(part):
        a, b = part.values() if isinstance(part, dict) else part
        return layer(a) * b

    weights = torch.rand(N, 1)
    backward_in_chunks(network, kind((items, weights)), lambda z: nearfar.NCALoss()(z, labels), chunk=7)
    found, layer.weight.grad = layer.weight.grad, None
    nearfar.NCALoss()(layer(items) * weights, labels).backward()
    torch.testing.assert_close(found, layer.weight.grad, rtol=1e-5, atol=1e-6)


def test_both_passes_draw_the_same():
    items, labels = batch()
    network = Network(dropout=0.5)
    seen = {True: [], False: []}
    network.layer.register_forward_hook(lambda layer, given, z: seen[torch.is_grad_enabled()].append(z.detach()))
    torch.manual_seed(3)
    backward_in_chunks(network, items, lambda f: nearfar.TripletLoss()(f.embedding, labels), chunk=6)
    torch.testing.assert_close(seen[True], seen[False], rtol=0, atol=0)
    assert not torch.equal(seen[True][0], network(items).embedding[:6])


def test_running_statistics_count_every_chunk_once():
    items, labels = batch()
    network, plain = Network(norm=True), Network(norm=True)
    backward_in_chunks(network, items, lambda f: nearfar.TripletLoss()(f.embedding, labels), chunk=8)
    for part in items.split(8):
        plain(part)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(dict(network.named_buffers())[name], buffer)


def test_half_precision():
    items, labels = batch()
    found = []
    for chunked in (False, True):
        network = Network()

        def half(part, network=network):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return network(part).embedding

        def objective(z):
            return nearfar.TripletLoss()(z, labels)

        with torch.autocast("cpu", dtype=torch.bfloat16):  # around all: casts of weights are kept until its end
            if chunked:
                backward_in_chunks(half, items, objective, chunk=8)
            else:
                objective(half(items)).backward()
        found.append(gradients(network))
    for one, other in zip(*found, strict=True):
        assert other.abs().sum() > 0
        torch.testing.assert_close(other, one, rtol=0.02, atol=0.02)


def test_the_gradient_may_be_scaled():
    items, labels = batch()
    found = []
    for scale in (1.0, 8.0):
        network = Network()
        backward_in_chunks(
            network,
            items,
            lambda f: nearfar.TripletLoss()(f.embedding, labels),
            chunk=8,
            backward=lambda value, scale=scale: (scale * value).backward(),
        )
        found.append(gradients(network))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, 8 * one)


def loss_of(z):
    return z.sum()


@pytest.mark.parametrize(
    ("chunk", "items", "network", "message"),
    [
        (25, torch.zeros(N, 7), nn.Linear(7, 2), "chunk: 25 items at a time are more than the batch of 24; take at mo"),
        (0, torch.zeros(N, 7), nn.Linear(7, 2), "chunk: must be a whole number of items, at least 1, got 0"),
        (2.0, torch.zeros(N, 7), nn.Linear(7, 2), "chunk: must be a whole number of items, at least 1, got 2.0"),
        (4, [torch.zeros(3, 7), torch.zeros(4, 7)], nn.Linear(7, 2), r"items: .* same number of rows, got \[3, 4\]"),
        (4, "photos", nn.Linear(7, 2), "items: expected a tensor, or a tuple, list or mapping of tensors, got str"),
        (4, torch.zeros(N, 7), lambda x: x.sum(), "network: expected a row for each of 4 items, got shape"),
        (4, torch.zeros(N, 7), lambda x: None, "network: expected a tensor or a tuple of tensors from it, got None"),
    ],
)
def test_what_cannot_be_cut(chunk, items, network, message):
    with pytest.raises((TypeError, ValueError), match=message):
        backward_in_chunks(network, items, loss_of, chunk=chunk)


def test_averages_are_those_of_one_process():
    layer = nn.Linear(2, 1)
    layer.weight.grad = torch.ones(1, 2)
    average_gradients(layer.parameters())
    assert torch.equal(layer.weight.grad, torch.ones(1, 2))
    assert layer.bias.grad is None


class Elsewhere:
    """A kind of device with random numbers of its own, as those of torch.cuda."""

    def __init__(self):
        self.numbers = torch.Generator()

    def get_rng_state(self, device):
        return self.numbers.get_state()

    def set_rng_state(self, state, device):
        self.numbers.set_state(state)


class Moving(nn.Module):
    """A network that takes items from the host, and draws its random numbers on another device."""

    def __init__(self, elsewhere):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(7, DIM)
        self.there = nn.Parameter(torch.empty(1, device="meta"))
        self.elsewhere = elsewhere

    def forward(self, items):
        return self.layer(items * torch.rand(items.shape, generator=self.elsewhere.numbers))


def test_both_passes_draw_the_same_where_the_network_is(monkeypatch):
    elsewhere = Elsewhere()
    known = rng._module
    monkeypatch.setattr(rng, "_module", lambda device: elsewhere if device.type == "meta" else known(device))
    items, labels = batch()
    found = []
    for chunked in (False, True):
        network = Moving(elsewhere)
        elsewhere.numbers.manual_seed(3)
        loss = nearfar.NTXentLoss()
        if chunked:
            backward_in_chunks(network, items, lambda z, loss=loss: loss(z, labels), chunk=8)
        else:
            loss(torch.cat([network(part) for part in items.split(8)]), labels).backward()
        found.append(network.layer.weight.grad)
    torch.testing.assert_close(*found)
