"""Continuous similarity scores: the labels, the three updates, the network."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from nearfar.deep.networks.continuous_similarity import ContinuousSimilarityNet, continuous_similarity
from nearfar.deep.networks.continuous_similarity.pair_labels import continuous_labels, interval_labels, unit_range
from tests.references import continuous_similarity as reference

Y = [0, 0, 1, 1, 2, 0]
UPDATES = ("fixed", "alternate", "anchored")


def network(seed=0, d=4, **how):
    torch.manual_seed(seed)
    return ContinuousSimilarityNet(d, relations=3, hidden=5, **how).double()


def items(seed=0, n=6, d=4):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(n, d)))


def test_scores_are_those_of_single_pairs_and_symmetric():
    net, x, other = network(), items(), items(1, 3)
    s = net(x)
    for i in range(6):
        for j in range(6):
            torch.testing.assert_close(s[i, j], reference.score(net, x[i], x[j]))
    torch.testing.assert_close(s, s.T)
    torch.testing.assert_close(net(x, x), s)
    torch.testing.assert_close(net(x, other)[4, 2], reference.score(net, x[4], other[2]))
    assert ((s > 0) & (s < 1)).all()


def loop_targets(net, update):
    if update == "fixed":
        return lambda s, same, d: reference.label(d, same, net.alpha, net.beta)
    lam = net.lam if update == "anchored" else 0.0
    return lambda s, same, d: reference.nearest(s, float(same), same, lam, net.alpha, net.beta)


@pytest.mark.parametrize("update", UPDATES)
def test_loss_and_gradient_are_those_of_the_loop(update):
    net, x = network(update=update, lam=0.7, start=0), items()
    factor, anchor = (1.0, 0.7) if update == "anchored" else (1.7, 0.0)
    found = net.loss(x, torch.tensor(Y))
    expected = reference.loss(net, x, Y, loop_targets(net, update), factor, anchor)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)  # the loop's labels are on a grid
    for a, b in zip(*(torch.autograd.grad(v, list(net.parameters())) for v in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("update", UPDATES)
def test_samples_of_unknown_class_are_in_no_pair(update):
    net, x, y = network(update=update).eval(), items(), torch.tensor([0, -1, 0, 1, -1, 1])
    torch.testing.assert_close(net.loss(x, y), net.loss(x[y >= 0], y[y >= 0]))
    assert torch.isfinite(net.loss(x, torch.full((6,), -1)))


def test_labels_stay_in_their_ranges_and_fall_with_distance():
    d = torch.linspace(0, 1, 11)
    for same, (low, high) in {True: (0.6, 1.0), False: (0.0, 0.4)}.items():
        y = continuous_labels(d, torch.full((11,), same), 0.4, 0.6)
        assert (y.diff() < 0).all()
        assert (y[0].item(), y[-1].item()) == (pytest.approx(high), pytest.approx(low, abs=1e-7))
        assert y[3].item() == pytest.approx(reference.label(0.3, same, 0.4, 0.6))


def test_distances_are_scaled_and_equal_ones_are_zero():
    torch.testing.assert_close(unit_range(torch.tensor([3.0, 1.0, 2.0])), torch.tensor([1.0, 0.0, 0.5]))
    assert unit_range(torch.full((4,), 3.0)).tolist() == [0.0] * 4
    assert unit_range(torch.empty(0)).shape == (0,)


def test_interval_labels_are_the_best_ones():
    rng = np.random.default_rng(0)
    for lam in (0.0, 0.5, 3.0):
        s, same = torch.as_tensor(rng.random(40)), torch.as_tensor(rng.random(40) < 0.5)
        found = interval_labels(s, same, lam, 0.4, 0.6)
        for k in range(40):
            right = reference.nearest(s[k], float(same[k]), bool(same[k]), lam, 0.4, 0.6)
            assert found[k].item() == pytest.approx(right, abs=1e-4)
    inside = torch.tensor([0.7, 0.2], dtype=torch.float64), torch.tensor([True, False])
    torch.testing.assert_close(interval_labels(*inside, 0.0, 0.4, 0.6), inside[0])  # no residual
    far = interval_labels(s, same, 1e9, 0.4, 0.6)
    torch.testing.assert_close(far, same.double(), atol=1e-8, rtol=0)  # binary regression


def test_the_label_step_never_raises_the_objective():
    rng = np.random.default_rng(1)
    s, same = torch.as_tensor(rng.random(60)), torch.as_tensor(rng.random(60) < 0.5)
    best = continuous_similarity(s, interval_labels(s, same, 0.5, 0.4, 0.6), same, 0.5, True)
    for _ in range(20):
        t = torch.as_tensor(rng.random(60))
        t = torch.where(same, 0.6 + 0.4 * t, 0.4 * t)
        assert (best <= continuous_similarity(s, t, same, 0.5, True) + 1e-12).all()


@pytest.mark.parametrize("update", ["fixed", "alternate"])
def test_lambda_only_scales(update):
    x, y, values = items(), torch.tensor(Y), []
    for lam in (0.5, 2.0):
        net = network(update=update, lam=lam)
        value = net.loss(x, y)
        values.append((value, torch.autograd.grad(value, list(net.parameters()))))
    torch.testing.assert_close(values[1][0], values[0][0] * 3 / 1.5)
    for a, b in zip(*(grads for _, grads in values), strict=True):
        torch.testing.assert_close(b, a * 2)


def test_alternating_starts_at_the_first_labels_and_evaluation_does_not_count():
    x, y = items(), torch.tensor(Y)
    net, fixed = network(update="alternate", start=2), network(update="fixed")
    first = fixed.loss(x, y)
    net.eval()
    torch.testing.assert_close(net.loss(x, y), first)
    net.train()
    torch.testing.assert_close(net.loss(x, y), first)
    torch.testing.assert_close(net.loss(x, y), first)
    assert net.loss(x, y) < first
    again = network(update="alternate", start=2)
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(again.loss(x, y), net.loss(x, y))


@pytest.mark.parametrize("block", [1, 2, 5])
def test_blocks_change_nothing(block):
    whole, cut, x, y = network(), network(block=block), items(), torch.tensor(Y)
    a, b = whole.loss(x, y), cut.loss(x, y)
    torch.testing.assert_close(a, b)
    grads = (torch.autograd.grad(v, list(n.parameters())) for v, n in ((a, whole), (b, cut)))
    for p, q in zip(*grads, strict=True):
        torch.testing.assert_close(p, q)
    with torch.no_grad():
        torch.testing.assert_close(cut(x, x[:3]), whole(x, x[:3]))


def test_balanced_counts_both_kinds_the_same():
    net, x = network(balanced=True), items()
    s, d = net(x), reference.distances(x)
    kinds = {True: [], False: []}
    for (i, j), gap in d.items():
        same = Y[i] == Y[j]
        kinds[same].append(1.5 * (s[i, j] - reference.label(gap, same, 0.4, 0.6)) ** 2)
    expected = sum(torch.stack(values).mean() for values in kinds.values()) / 2
    torch.testing.assert_close(net.loss(x, torch.tensor(Y)), expected)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("balanced", [True, False])
def test_degenerate_batches_are_finite(update, balanced):
    net = network(update=update, balanced=balanced)
    for x, y in (
        (items(), [0] * 6),
        (items(), list(range(6))),
        (items() * 0, Y),
        (items()[:1], [0]),
        (items()[:2], [0, 1]),
    ):
        net.zero_grad()
        value = net.loss(x, torch.tensor(y))
        value.backward()
        assert torch.isfinite(value)
        assert all(torch.isfinite(p.grad).all() for p in net.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
def test_a_trunk_and_training_separate_the_pairs(update):
    rng = np.random.default_rng(0)
    y = np.arange(24) % 4
    x = torch.as_tensor(rng.normal(size=(4, 6))[y] * 2 + 0.3 * rng.normal(size=(24, 6)), dtype=torch.float32)
    torch.manual_seed(0)
    net = ContinuousSimilarityNet(4, nn.Linear(6, 4), relations=8, update=update, balanced=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        net.loss(x, torch.as_tensor(y)).backward()
        optimizer.step()
    s, same = net(x).detach(), torch.as_tensor(y[:, None] == y)
    assert s[same].min() > s[~same].max()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"update": "cross"}, "update must be one of 'fixed'"),
        ({"alpha": 0.7}, "0 < alpha < beta < 1"),
        ({"lam": 0}, "lam > 0"),
    ],
)
def test_bad_settings_are_named(how, message):
    with pytest.raises(ValueError, match=message):
        network(**how)
