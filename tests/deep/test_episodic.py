"""The three support and query updates, first and second order."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from nearfar.deep.episodes import Episode, classify
from nearfar.deep.losses.am_softmax import AMSoftmaxLoss
from nearfar.deep.losses.n_pair import NPairLoss
from nearfar.deep.losses.nca import NCALoss
from nearfar.deep.losses.triplet import TripletLoss
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.episodic import MODES, EpisodicTrainer
from nearfar.deep.networks.mlp import MLP
from tests.references.episodic import update

LOSSES = {
    "triplet": lambda: TripletLoss(margin=1.0, reduction="valid"),
    "euclidean": lambda: TripletLoss(margin=1.0, distance="euclidean", normalize=False, reduction="sum"),
    "soft": lambda: TripletLoss(soft=True),
    "n-pair": lambda: NPairLoss(),
    "nca": lambda: NCALoss(),
}


def episode(seed=0, ways=3, shots=2, queries=2, d=4):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(ways, d))
    labels = [np.repeat(np.arange(ways), k) for k in (shots, queries)]
    items = [torch.as_tensor(centers[y] + 0.5 * rng.normal(size=(len(y), d))) for y in labels]
    s, q = (torch.as_tensor(y) for y in labels)
    return Episode(items[0], s, items[1], q)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 2, bias=False)).double()


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy().copy()


def loss_of(net, loss, items, labels):
    """Return the loss as a function of all weights as one vector."""

    def value(theta):
        nn.utils.vector_to_parameters(torch.tensor(theta), net.parameters())
        with torch.no_grad():
            return float(loss(net(items), labels))

    return value


def trainer(net, loss, mode, inner_lr=0.3, lr=0.1, **how):
    return EpisodicTrainer(net, loss, torch.optim.SGD(net.parameters(), lr=lr), mode=mode, inner_lr=inner_lr, **how)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_update_is_that_of_differences(mode, loss):
    net, other, task = network(), network(), episode()
    trainer(net, loss(), mode).step([task])
    support = loss_of(other, loss(), task.support, task.support_labels)
    query = loss_of(other, loss(), task.query, task.query_labels)
    expected = update(mode, vector(network()), support, query, 0.3, 0.1)
    np.testing.assert_allclose(vector(net), expected, rtol=1e-4, atol=1e-5)


def test_second_order_differs_from_first():
    found = {}
    for mode in MODES:
        net = network()
        trainer(net, TripletLoss(soft=True), mode).step([episode()])
        found[mode] = vector(net)
    assert np.abs(found["maml"] - found["fomaml"]).max() > 1e-4
    assert np.abs(found["fomaml"] - found["sequential"]).max() > 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_without_an_inner_step_all_are_training_on_queries(mode):
    net, plain, task = network(), network(), episode()
    trainer(net, NPairLoss(), mode, inner_lr=0.0).step([task])
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    NPairLoss()(plain(task.query), task.query_labels).backward()
    optimizer.step()
    np.testing.assert_allclose(vector(net), vector(plain))


class Point(nn.Module):
    """A network that is one vector, whatever comes in."""

    def __init__(self, at):
        super().__init__()
        self.at = nn.Parameter(at)

    def forward(self, items):
        return self.at


@pytest.mark.parametrize("steps", [1, 3])
def test_quadratic_loss_has_the_closed_form(steps):
    rng = np.random.default_rng(0)
    A = torch.as_tensor(rng.normal(size=(4, 4)))
    H, s, q, start = A @ A.T, *(torch.as_tensor(rng.normal(size=4)) for _ in range(3))
    targets = {0: s, 1: q}

    def loss(z, labels):
        gap = z - targets[int(labels[0])]
        return gap @ H @ gap / 2

    one, two = torch.zeros(1), torch.ones(1)
    task = Episode(one, torch.tensor([0]), two, torch.tensor([1]))
    a, eye = 0.02, torch.eye(4, dtype=torch.float64)
    theta = start
    for _ in range(steps):
        theta = theta - a * H @ (theta - s)
    outer = H @ (theta - q)
    grads = {}
    for mode in ("maml", "fomaml"):
        net = Point(start.clone())
        trainer(net, loss, mode, inner_lr=a, inner_steps=steps).backward(task)
        grads[mode] = net.at.grad
    torch.testing.assert_close(grads["fomaml"], outer)
    torch.testing.assert_close(grads["maml"], torch.linalg.matrix_power(eye - a * H, steps) @ outer)


def test_without_curvature_first_order_is_exact():
    task = episode()

    def linear(z, labels):
        return (z * labels[:, None]).sum()

    found = []
    for mode in ("maml", "fomaml"):
        torch.manual_seed(0)
        net = nn.Linear(4, 2).double()
        trainer(net, linear, mode).step([task])
        found.append(vector(net))
    np.testing.assert_allclose(*found)


def test_episodes_of_a_step_are_averaged():
    tasks, sums = [episode(0), episode(1)], []
    for task in tasks:
        net = network()
        trainer(net, NPairLoss(), "maml").step([task])
        sums.append(vector(net))
    net = network()
    trainer(net, NPairLoss(), "maml").step(tasks)
    np.testing.assert_allclose(vector(net), np.mean(sums, axis=0))
    with pytest.raises(ValueError, match="expected one episode, got 2"):
        trainer(net, NPairLoss(), "sequential").step(tasks)
    with pytest.raises(ValueError, match="at least one episode, got 0"):
        trainer(net, NPairLoss(), "maml").step([])


@pytest.mark.parametrize("mode", MODES)
def test_proxies_of_the_loss_learn_too(mode):
    net, loss = network(), AMSoftmaxLoss(3, 2).double()
    before = loss.proxies.detach().clone()
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.1)
    EpisodicTrainer(net, loss, optimizer, mode=mode, inner_lr=0.3).step([episode()])
    assert not torch.equal(before, loss.proxies)


def test_frozen_statistics_stay_and_batch_ones_follow():
    task = episode()._replace(support=torch.rand(6, 4), query=torch.rand(6, 4))
    for norm, stays in (("frozen", True), ("batch", False)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
        before = net[1].running_mean.clone()
        trainer(net, TripletLoss(margin=1.0), "maml", norm=norm).step([task])
        assert torch.equal(before, net[1].running_mean) == stays


def test_embedders_and_unused_or_frozen_weights():
    torch.manual_seed(0)
    net = Embedder(MLP(4, width=8), 3).double()
    net.layer.bias.requires_grad_(False)
    net.unused = nn.Parameter(torch.zeros(2).double())
    before = net.layer.bias.clone()
    for mode in MODES:
        value = trainer(net, NPairLoss(), mode).step([episode()])
        assert np.isfinite(value)
    assert torch.equal(before, net.layer.bias)
    assert torch.equal(net.unused, torch.zeros(2).double())


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_training_lowers_the_loss_of_unseen_episodes(mode):
    """Classes differ in the first two of eight coordinates, the others are loud noise."""
    rng = np.random.default_rng(0)

    def draw():
        y = np.repeat(np.arange(4), 3)
        x = rng.normal(size=(24, 8)) * np.array([0.3, 0.3] + [3.0] * 6)
        x[:, :2] += (rng.normal(size=(4, 2)) * 2)[np.tile(y, 2)]
        items = torch.as_tensor(x)
        return Episode(items[:12], torch.as_tensor(y), items[12:], torch.as_tensor(y))

    torch.manual_seed(0)
    net = nn.Linear(8, 2).double()

    def accuracy():
        with torch.no_grad():
            parts = [
                (net(t.query), net(t.support), t.support_labels, t.query_labels) for t in (draw() for _ in range(40))
            ]
            hits = [classify(q, s, y, 4, normalize=False) == right for q, s, y, right in parts]
        return torch.cat(hits).double().mean()

    before = accuracy()
    run = EpisodicTrainer(net, NPairLoss(), torch.optim.Adam(net.parameters(), lr=0.02), mode=mode, inner_lr=0.001)
    for _ in range(150):
        run.step([draw()])
    assert accuracy() > before + 0.2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"mode": "reptile"}, "mode must be one of 'maml', 'fomaml', 'sequential'"),
        ({"mode": "maml", "norm": "none"}, "norm must be one of 'batch', 'frozen'"),
        ({"mode": "maml", "inner_lr": -1.0}, "inner_lr >= 0"),
        ({"mode": "maml", "inner_steps": 0}, "inner_steps >= 1"),
    ],
)
def test_bad_settings_are_named(how, message):
    with pytest.raises(ValueError, match=message):
        trainer(network(), NPairLoss(), **how)
