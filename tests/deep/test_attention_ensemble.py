"""The attention-based ensemble: heads that share a network and differ in what they attend to."""

import pytest

torch = pytest.importorskip("torch")

from nearfar import AttentionEnsemble, EnsembleDivergence, HDCLoss
from nearfar.deep.networks.embedder import Embedder
from tests.references.attention_ensemble import reference


def make(heads=3, **settings):
    torch.manual_seed(0)
    first = torch.nn.Conv2d(2, 6, 3)
    second = torch.nn.Sequential(
        torch.nn.Conv2d(6, 5, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    return AttentionEnsemble(first, second, channels=6, features=5, heads=heads, head_dim=4, **settings).double()


def images(n=4):
    return torch.rand(n, 2, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("settings", [{}, {"hidden": 2}, {"heads": 1}])
def test_equals_the_loops_in_value_and_every_gradient(settings):
    net, items = make(**settings), images()
    found, expected = net(items), reference(items, net)
    torch.testing.assert_close(found, expected)
    weights = list(net.parameters())
    along = torch.rand_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * along).sum(), weights), torch.autograd.grad((expected * along).sum(), weights)
    )


def test_heads_of_one_attention_give_one_embedding():
    net, items = make(), images()
    for head in net.heads[1:]:
        head.load_state_dict(net.heads[0].state_dict())
    first, *others = net(items).split(4, dim=1)
    for other in others:
        torch.testing.assert_close(other, first)
    assert net.num_features == 12


def test_heads_that_attend_to_everything_are_the_network_alone():
    net, items = make(), images()
    with torch.no_grad():
        for head in net.heads:
            head[2].weight.zero_()
            head[2].bias.fill_(100.0)  # the sigmoid of 100 is 1
    alone = net.layer(net.second(net.first(items)))
    torch.testing.assert_close(net(items), alone.repeat(1, 3))


def test_an_item_alone_is_embedded_as_in_a_batch():
    net, items = make(), images()
    torch.testing.assert_close(net(items[2:3]), net(items)[2:3])
    assert net(items[:0]).shape == (0, 12)


def test_its_embeddings_are_groups_of_losses_and_a_trunk_without_a_layer():
    embedder = Embedder(make(), None).double()
    objective = HDCLoss(groups=3, shares=(1.0,)) + 0.5 * EnsembleDivergence(groups=3)
    objective(embedder(images(8)).embedding, torch.arange(8) // 2).backward()
    assert all(weight.grad is not None for weight in embedder.trunk.parameters())


def test_bad_numbers_are_named():
    for name in ("heads", "hidden"):
        with pytest.raises(ValueError, match=f"AttentionEnsemble: {name} must be at least 1, got 0"):
            make(**{name: 0})
