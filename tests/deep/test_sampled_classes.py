"""Losses that compare a batch with some of the classes."""

from functools import partial
from itertools import combinations

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep import SampledClasses
from nearfar.deep.proxies.sampled_classes import draw_classes

C, D = 40, 6
LOSSES = [
    nearfar.AMSoftmaxLoss,
    nearfar.CosFaceLoss,
    nearfar.ArcFaceLoss,
    nearfar.AdaFaceLoss,
    nearfar.ProxyNCAPlusPlusLoss,
    nearfar.ProxyNCALoss,
    nearfar.SubCenterArcFaceLoss,
    nearfar.CrossEntropyHead,
    partial(nearfar.CrossEntropyHead, smoothing=0.1, temperature=0.3),
    partial(nearfar.CrossEntropyHead, smoothing=0.1, normalize=True, reduction="sum"),
]
ALL = [*LOSSES, nearfar.ProxyAnchorLoss]


def batch():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(12, D, generator=g, dtype=torch.float64).requires_grad_()
    return x, torch.tensor([3, 3, 17, 39, 0, -1, 5, 5, 5, 21, 8, 0])


@pytest.mark.parametrize("kind", ALL)
def test_all_classes_are_the_loss_itself(kind):
    x, y = batch()
    loss = kind(C, D).double()
    sampled = SampledClasses(loss, share=1.0)
    expected = loss(x, y)
    inputs = [x, *loss.parameters()]
    slopes = torch.autograd.grad(expected, inputs)
    value = sampled(x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, inputs), slopes)
    few = SampledClasses(loss, share=0.3).eval()
    torch.testing.assert_close(few(x, y), expected)


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("kind", LOSSES)
def test_some_classes_are_a_loss_of_these(kind, block):
    x, y = batch()
    loss = kind(C, D, block=block).double()
    torch.manual_seed(1)
    value = SampledClasses(loss, share=0.3)(x, y)
    parameters = loss.class_parameters().values()
    grads = torch.autograd.grad(value, tuple(parameters), retain_graph=True)
    torch.manual_seed(1)
    classes = draw_classes(y, C, 0.3)
    assert len(classes) == 12
    assert set(y[y >= 0].tolist()) <= set(classes.tolist())
    small = kind(len(classes), D).double()
    for parameter, grad, part in zip(parameters, grads, small.class_parameters().values(), strict=True):
        of_classes = grad.unflatten(0, (-1, C))
        assert of_classes.any()
        assert not of_classes[:, torch.isin(torch.arange(C), classes, invert=True)].any()
        part.data = parameter.data.unflatten(0, (-1, C))[:, classes].flatten(0, 1)
    numbers = torch.tensor([-1 if c < 0 else classes.tolist().index(c) for c in y.tolist()])
    expected = small(x, numbers)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(expected, x))


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_drawn_classes_of_proxy_anchor_are_right_on_average(share, monkeypatch):
    x, y = torch.randn(5, D, dtype=torch.float64, requires_grad=True), torch.tensor([1, 4, -1, 4, 1])
    loss = nearfar.ProxyAnchorLoss(8, D).double()
    number = int(8 * share) - 2  # of the six that are not in the batch
    values = []
    for others in combinations([0, 2, 3, 5, 6, 7], number):
        classes = torch.tensor(sorted([1, 4, *others]))
        monkeypatch.setattr("nearfar.deep.proxies.sampled_classes.draw_classes", lambda *_, drawn=classes: drawn)
        values.append(SampledClasses(loss, share)(x, y))
    mean = torch.stack(values).mean()
    expected = loss(x, y)
    torch.testing.assert_close(mean, expected)
    inputs = [x, loss.proxies]
    torch.testing.assert_close(torch.autograd.grad(mean, inputs), torch.autograd.grad(expected, inputs))


def test_a_batch_of_more_classes_than_the_share():
    y = batch()[1]
    assert len(draw_classes(y, C, 0.01)) == 7


@pytest.mark.parametrize("share", [0.1, 0.01])
def test_samples_of_unknown_class_leave_class_0_among_the_drawn(share):
    for labels in ([0, 5, -1], [-1, 0, -1, 5]):
        for seed in range(20):
            torch.manual_seed(seed)
            assert {0, 5} <= set(draw_classes(torch.tensor(labels), 100, share).tolist())


@pytest.mark.parametrize(
    "kind", [nearfar.CosFaceLoss, nearfar.SubCenterArcFaceLoss, nearfar.CrossEntropyHead, nearfar.ProxyAnchorLoss]
)
def test_gradients_of_drawn_rows_alone(kind):
    x, y = batch()
    loss = kind(C, D)
    parameters = list(loss.parameters())
    dense = torch.autograd.grad(seeded(SampledClasses(loss, 0.3), x.float(), y), parameters)
    optimizer = torch.optim.SparseAdam(parameters, lr=0.1)
    before = [parameter.detach().clone() for parameter in parameters]
    seeded(SampledClasses(loss, 0.3, sparse=True), x.float(), y).backward()
    optimizer.step()
    for parameter, slope, start in zip(parameters, dense, before, strict=True):
        assert parameter.grad.is_sparse
        torch.testing.assert_close(parameter.grad.to_dense(), slope)
        moved = parameter != start
        assert not moved[slope == 0].any()
        assert moved[slope.abs() > 1e-6].all()
        assert 0 < moved.sum() < moved.numel()


def seeded(term, x, y):
    torch.manual_seed(2)
    return term(x, y)


def test_it_adds_up_with_others():
    x, y = batch()
    objective = SampledClasses(nearfar.CosFaceLoss(C, D).double(), 0.5) + 0.1 * nearfar.JRS(("embedding", "class"))
    assert bool(objective(x, y).isfinite())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SampledClasses(nearfar.TripletLoss()), "loss must be a loss with class proxies, got TripletLoss"),
        (lambda: SampledClasses(nearfar.MSEHead(C, D)), "loss must be a loss with class proxies, got MSEHead"),
        (lambda: SampledClasses(nearfar.SoftTripleLoss(C, D)), "SoftTripleLoss: its classes cannot be drawn"),
        (lambda: SampledClasses(nearfar.ProxyNCALoss(C, D, proxies="class_mean")), "ProxyNCALoss: its classes cannot"),
        (lambda: SampledClasses(nearfar.CosFaceLoss(C, D), share=0.0), r"share must be in \(0, 1\], got 0.0"),
        (lambda: SampledClasses(nearfar.CosFaceLoss(C, D))(torch.eye(D), torch.arange(D) + C), "labels must be in 0"),
    ],
)
def test_what_cannot_be_drawn(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
