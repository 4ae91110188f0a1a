"""The Siamese network: three ways to feed it, one gradient."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from nearfar import Siamese
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.mlp import MLP

MODES = ("concat", "sequential", "replicated")


def network(norm=False):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(5) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(6, 5), middle, nn.Linear(5, 3)).double()


def triplet():
    g = torch.Generator().manual_seed(1)
    return [torch.randn(n, 6, generator=g, dtype=torch.float64) for n in (4, 4, 4)]


def triplet_loss(a, p, n):
    return ((a - p).square().sum(1) - (a - n).square().sum(1) + 1).clamp_min(0).sum()


def run(mode, update="all", norm=False):
    net = network(norm)
    outputs = Siamese(net, mode, update=update)(*triplet())
    triplet_loss(*outputs).backward()
    return [out.detach() for out in outputs], [p.grad for p in net.parameters()]


@pytest.mark.parametrize("mode", MODES[1:])
def test_all_modes_agree_in_outputs_and_gradients(mode):
    torch.testing.assert_close(run(mode), run("concat"))


def test_the_gradient_is_the_sum_over_branches():
    a, p, n = triplet()
    total = [torch.zeros_like(weight) for weight in network().parameters()]
    for branch in range(3):
        nets = [network() for _ in range(3)]
        triplet_loss(*(net(items) for net, items in zip(nets, (a, p, n), strict=True))).backward()
        total = [t + w.grad for t, w in zip(total, nets[branch].parameters(), strict=True)]
    torch.testing.assert_close(run("concat")[1], total)


@pytest.mark.parametrize("mode", MODES)
def test_updating_the_anchor_branch_alone_is_another_gradient(mode):
    outputs, grads = run(mode, "anchor_branch")
    torch.testing.assert_close(outputs, run("concat")[0])
    net, (a, p, n) = network(), triplet()
    triplet_loss(net(a), net(p).detach(), net(n).detach()).backward()
    torch.testing.assert_close(grads, [w.grad for w in net.parameters()])
    assert not all(torch.allclose(g, h) for g, h in zip(grads, run("concat")[1], strict=True))


def test_batch_statistics_are_those_of_what_is_fed_together():
    together, apart = run("concat", norm=True)[0], run("sequential", norm=True)[0]
    assert not torch.allclose(together[0], apart[0])
    torch.testing.assert_close(run("replicated", norm=True)[0], apart)
    branches = triplet()
    frozen = [Siamese(network(True).eval(), mode)(*branches) for mode in MODES]
    for outputs in frozen[1:]:
        torch.testing.assert_close(outputs, frozen[0])


def test_copies_leave_the_network_with_its_anchors_statistics():
    net, alone = network(True), network(True)
    branches = triplet()
    Siamese(net, "replicated")(*branches)
    alone(branches[0])
    torch.testing.assert_close(net.state_dict(), alone.state_dict())


def test_the_state_is_that_of_one_network():
    for mode in MODES:
        assert {name.removeprefix("net.") for name in Siamese(network(), mode).state_dict()} == set(
            network().state_dict()
        )


@pytest.mark.parametrize("mode", MODES)
def test_named_outputs_are_cut_by_name(mode):
    embedder = Embedder(MLP(6, width=8), 3)
    left, right = torch.rand(2, 6), torch.rand(5, 6)
    a, b = Siamese(embedder, mode)(left, right)
    torch.testing.assert_close(a.embedding, embedder(left).embedding)
    torch.testing.assert_close(b.pooled, embedder(right).pooled)
    torch.testing.assert_close(Siamese(embedder, mode).embed(left), embedder(left))


def test_pairs_train_a_contrastive_loss():
    from nearfar import ContrastiveLoss

    a, b, _ = triplet()
    net = Siamese(network())
    left, right = net(a, b)
    value = ContrastiveLoss()(left, torch.eye(4).long(), ref=right, ref_labels=torch.arange(4))
    value.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="mode must be one of 'concat', 'sequential', 'replicated'; got 'twin'"):
        Siamese(network(), "twin")
    with pytest.raises(ValueError, match="update must be one of 'all', 'anchor_branch'"):
        Siamese(network(), update="first")
    with pytest.raises(ValueError, match="expected two branches or three, got 1"):
        Siamese(network())(triplet()[0])
