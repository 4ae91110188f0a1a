"""Losses that compare a batch with some of the classes."""

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
]


def batch():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(12, D, generator=g, dtype=torch.float64).requires_grad_()
    return x, torch.tensor([3, 3, 17, 39, 0, -1, 5, 5, 5, 21, 8, 0])


@pytest.mark.parametrize("kind", LOSSES)
def test_all_classes_are_the_loss_itself(kind):
    x, y = batch()
    loss = kind(C, D).double()
    sampled = SampledClasses(loss, share=1.0)
    expected = loss(x, y)
    slopes = torch.autograd.grad(expected, (x, loss.proxies))
    value = sampled(x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, (x, loss.proxies)), slopes)
    few = SampledClasses(loss, share=0.3).eval()
    torch.testing.assert_close(few(x, y), expected)


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("kind", LOSSES)
def test_some_classes_are_a_loss_of_these(kind, block):
    x, y = batch()
    loss = kind(C, D, block=block).double()
    torch.manual_seed(1)
    value = SampledClasses(loss, share=0.3)(x, y)
    (grad,) = torch.autograd.grad(value, loss.proxies, retain_graph=True)
    torch.manual_seed(1)
    classes = draw_classes(y, C, 0.3)
    assert len(classes) == 12
    assert set(y[y >= 0].tolist()) <= set(classes.tolist())
    assert not grad[torch.isin(torch.arange(C), classes, invert=True)].any()
    small = kind(len(classes), D).double()
    small.proxies.data = loss.proxies.data[classes]
    numbers = torch.tensor([-1 if c < 0 else classes.tolist().index(c) for c in y.tolist()])
    expected = small(x, numbers)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(expected, x))


def test_a_batch_of_more_classes_than_the_share():
    y = batch()[1]
    assert len(draw_classes(y, C, 0.01)) == 7


def test_gradients_of_drawn_rows_alone():
    x, y = batch()
    loss = nearfar.CosFaceLoss(C, D)
    dense = torch.autograd.grad(seeded(SampledClasses(loss, 0.3), x.float(), y), loss.proxies)[0]
    optimizer = torch.optim.SparseAdam(list(loss.parameters()), lr=0.1)
    before = loss.proxies.detach().clone()
    seeded(SampledClasses(loss, 0.3, sparse=True), x.float(), y).backward()
    assert loss.proxies.grad.is_sparse
    torch.testing.assert_close(loss.proxies.grad.to_dense(), dense)
    optimizer.step()
    assert ((loss.proxies != before).any(1) == (dense != 0).any(1)).all()


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
        (lambda: SampledClasses(nearfar.ProxyAnchorLoss(C, D)), "ProxyAnchorLoss: its classes cannot be drawn"),
        (lambda: SampledClasses(nearfar.SoftTripleLoss(C, D)), "SoftTripleLoss: its classes cannot be drawn"),
        (lambda: SampledClasses(nearfar.ProxyNCALoss(C, D, proxies="class_mean")), "ProxyNCALoss: its classes cannot"),
        (lambda: SampledClasses(nearfar.CosFaceLoss(C, D), share=0.0), r"share must be in \(0, 1\], got 0.0"),
        (lambda: SampledClasses(nearfar.CosFaceLoss(C, D))(torch.eye(D), torch.arange(D) + C), "labels must be in 0"),
    ],
)
def test_what_cannot_be_drawn(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
