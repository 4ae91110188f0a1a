"""The multi-scale relation network against one pair at a time."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from nearfar.deep.episodes import Episode, prototypes
from nearfar.deep.networks.conv4 import Conv4
from nearfar.deep.networks.multi_scale_relation import MultiScaleRelationNet, multi_scale_relation
from nearfar.deep.networks.scales import Conv4Scales
from tests.references import multi_scale_relation as reference


class Scales(nn.Module):
    """Two scales of a small image."""

    channels = (2, 3)

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1, stride=2)

    def forward(self, images):
        low = self.low(images).tanh()
        return [low, self.high(low).tanh()]


def network(scales=None, **how):
    torch.manual_seed(0)
    return MultiScaleRelationNet(scales or Scales(), **{"width": 4, "hidden": 5} | how).double()


def task(seed=0, ways=3, shots=2, queries=2):
    rng = np.random.default_rng(seed)
    support, query = (torch.as_tensor(rng.normal(size=(ways * k, 1, 6, 6))) for k in (shots, queries))
    labels = [torch.arange(ways).repeat_interleave(k) for k in (shots, queries)]
    return Episode(support, labels[0], query, labels[1].flip(0))


def loop(net, episode, ways=3):
    support, query = (net.scales(items) for items in (episode.support, episode.query))
    return reference.scores(net, query, support, episode.support_labels.tolist(), ways)


def test_scores_loss_and_gradient_are_those_of_the_loop():
    net, episode = network(margin=0.3, weight=0.7, scale=4.0), task()
    rows = loop(net, episode)
    found = net(episode.query, episode.support, episode.support_labels)
    torch.testing.assert_close(found, torch.stack([torch.stack(row) for row in rows]))
    value = net.loss(episode)
    expected = reference.loss(rows, episode.query_labels.tolist(), 0.3, 0.7, 4.0)
    torch.testing.assert_close(value, expected)
    for a, b in zip(*(torch.autograd.grad(v, list(net.parameters())) for v in (value, expected)), strict=True):
        torch.testing.assert_close(a, b)


def test_levels_are_as_deep_as_asked():
    assert [len(g.rest) + 1 for g in network().relations] == [1, 2]
    assert [len(g.rest) + 1 for g in network(depths=(3, 1)).relations] == [3, 1]


@pytest.mark.parametrize("block", [1, 2, 4, 6])
def test_blocks_change_nothing(block):
    episode, values = task(), []
    for net in (network(), network(block=block)):
        value = net.loss(episode)
        values.append((value, *torch.autograd.grad(value, list(net.parameters()))))
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b)


def test_one_shot_prototype_is_the_sample_and_classes_may_be_permuted():
    net, episode = network(), task(shots=1)
    found = net(episode.query, episode.support, episode.support_labels)
    order = torch.tensor([2, 0, 1])
    other = net(episode.query, episode.support[order], episode.support_labels)
    torch.testing.assert_close(other, found[:, order])
    maps = net.scales(episode.support)[0]
    torch.testing.assert_close(prototypes(maps, episode.support_labels, 3), maps)
    permuted = net(episode.query, episode.support, order)
    torch.testing.assert_close(permuted[:, order], found)


def test_one_scale_without_triplets_is_cross_entropy():
    scores, y = torch.rand(5, 3).double(), torch.tensor([0, 2, 1, 1, 0])
    found = multi_scale_relation(scores, y, 0.2, 0.0, 1.0)
    torch.testing.assert_close(found, nn.functional.cross_entropy(scores, y))
    apart = torch.eye(3).double()
    torch.testing.assert_close(
        multi_scale_relation(apart, torch.arange(3), 0.2, 1.0, 1.0), nn.functional.cross_entropy(apart, torch.arange(3))
    )


def test_conv4_gives_four_scales():
    scales = Conv4Scales(Conv4(1, 8)).eval()
    images = torch.rand(2, 1, 28, 28)
    assert [tuple(m.shape) for m in scales(images)] == [(2, 8, 14, 14), (2, 8, 7, 7), (2, 8, 3, 3), (2, 8, 1, 1)]
    torch.testing.assert_close(scales(images)[-1].flatten(1), scales.trunk(images))
    last = Conv4Scales(scales.trunk, skip=2)
    torch.testing.assert_close(last(images), scales(images)[2:])
    assert last.channels == [8, 8]
    with pytest.raises(ValueError, match=r"skip must be in 0\.\.3"):
        Conv4Scales(scales.trunk, skip=4)


@pytest.mark.slow
def test_training_learns_episodes():
    """Classes are where a bar stands; the accuracy of new episodes rises from chance."""
    rng = np.random.default_rng(0)

    def draw():
        bars = rng.choice(8, 4, replace=False)
        y = np.repeat(np.arange(4), 3)
        x = rng.normal(size=(12, 1, 8, 8)) * 0.3
        x[np.arange(12), 0, :, bars[y]] += 2
        first = np.arange(12) % 3 == 0
        t, labels = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
        return Episode(t[first], labels[first], t[~first], labels[~first])

    torch.manual_seed(0)
    net = MultiScaleRelationNet(Scales(), width=8, scale=5.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(120):
        optimizer.zero_grad()
        net.loss(draw()).backward()
        optimizer.step()
    with torch.no_grad():
        hits = [
            net(t.query, t.support, t.support_labels).argmax(1) == t.query_labels for t in (draw() for _ in range(30))
        ]
    assert torch.cat(hits).float().mean() > 0.6


@pytest.mark.parametrize("how", [{"depths": (1,)}, {"depths": (0, 1)}, {"width": 6}])
def test_bad_settings_are_named(how):
    with pytest.raises(ValueError, match="MultiScaleRelationNet: expected a depth"):
        network(**how)
