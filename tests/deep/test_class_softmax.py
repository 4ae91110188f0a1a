"""The softmax over many classes, in parts, against the same with the matrix of all logits."""

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.proxies import class_softmax
from nearfar.deep.proxies.class_softmax import own_and_far_of, own_and_others_of, own_others_and_sums_of
from nearfar.deep.unit_vectors import unit

N, C, D = 7, 23, 5


def inputs(num_classes=C, bias=True, centers=()):
    g = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(N, D, generator=g, dtype=torch.float64)
    w = torch.randn(*centers, num_classes, D, generator=g, dtype=torch.float64)
    b = torch.randn(num_classes, generator=g, dtype=torch.float64) if bias else None
    y = torch.tensor([0, 3, 3, -1, 22, 10, 11]).clamp_max(num_classes - 1)
    return [part if part is None else part.requires_grad_() for part in (x, w, b)], y


def plain(x, w, b, y, cosines):
    z = x @ (unit(w) if cosines else w).mT
    z = z.amax(0) if w.ndim == 3 else z
    z = z if b is None else z + b
    here = torch.arange(w.shape[-2]) == y[:, None]
    return torch.where(here, z, 0.0).sum(1), z.masked_fill(here, -torch.inf).logsumexp(1), z.sum(1)


@pytest.fixture(params=[(0, 20), (0, 1 << 17), (1 << 20, 20), (1 << 20, 1 << 17)], ids=str)
def _sizes(request, monkeypatch):
    """Small and large parts, computed again or kept."""
    monkeypatch.setattr(class_softmax, "LOGITS_KEPT", request.param[0])
    monkeypatch.setattr(class_softmax, "PART", request.param[1])


def check_equal(found, expected, given, slopes):
    gradients = []
    for parts in (found, expected):
        finite = [torch.where(part.isfinite(), part, 0.0) for part in parts]
        value = sum((slope * part).sum() for slope, part in zip(slopes, finite, strict=True))
        gradients.append(torch.autograd.grad(value, given))
    for one, other in zip((*found, *gradients[0]), (*expected, *gradients[1]), strict=True):
        torch.testing.assert_close(one, other)


SLOPES = torch.linspace(-1, 2, N, dtype=torch.float64)


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("num_classes", [C, 2, 1])
@pytest.mark.parametrize(("bias", "cosines"), [(False, False), (True, False), (False, True)])
def test_parts_are_the_whole(bias, cosines, num_classes):
    parts, y = inputs(num_classes, bias)
    given = [part for part in parts if part is not None]
    expected = plain(*parts, y, cosines)
    found = own_others_and_sums_of(*parts[:2], y, bias=parts[2], cosines=cosines)
    check_equal(found, expected, given, [SLOPES, SLOPES.flip(0), SLOPES.square()])
    found = own_and_others_of(*parts[:2], y, bias=parts[2], cosines=cosines)
    check_equal(found, plain(*parts, y, cosines)[:2], given, [SLOPES, SLOPES.flip(0)])


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("num_classes", [C, 2, 1])
def test_the_nearest_of_several_weights(num_classes):
    (x, w, _), y = inputs(num_classes, bias=False, centers=(3,))
    found = own_and_others_of(x, w, y, cosines=True)
    check_equal(found, plain(x, w, None, y, True)[:2], [x, w], [SLOPES, SLOPES.flip(0)])


def plain_columns(x, w, y, known):
    z = x @ unit(w).T
    here = torch.arange(len(w)) == y[:, None]
    return torch.where(here, z, 0.0).sum(1), z.masked_fill(here | ~known[:, None], -torch.inf).logsumexp(0)


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("num_classes", [C, 2, 1])
def test_the_samples_of_other_classes(num_classes):
    (x, w, _), y = inputs(num_classes, bias=False)
    known = torch.tensor([True, True, True, False, True, True, False])
    y = torch.where(known, y, -1)
    y[2] = -1  # of a class elsewhere
    slopes = [SLOPES, torch.linspace(1, 2, num_classes, dtype=torch.float64)]
    check_equal(own_and_far_of(x, w, y, known), plain_columns(x, w, y, known), [x, w], slopes)


def test_no_samples_of_other_classes():
    (x, w, _), _ = inputs(bias=False)
    for rows in (slice(0), slice(2)):
        part = x[rows]
        own, far = own_and_far_of(part, w, torch.full((len(part),), -1), torch.zeros(len(part), dtype=torch.bool))
        assert not own.any()
        assert (far == -torch.inf).all()
        gradients = torch.autograd.grad(own.sum() + torch.where(far.isfinite(), far, 0.0).sum(), [x, w])
        assert not any(grad.any() for grad in gradients)


@pytest.mark.usefixtures("_sizes")
def test_second_derivatives():
    parts, y = inputs()
    assert torch.autograd.gradgradcheck(lambda x, w, b: own_others_and_sums_of(x, w, y, bias=b), parts)
    known = y >= 0
    assert torch.autograd.gradgradcheck(lambda x, w: own_and_far_of(x, w, y, known), parts[:2])
    (x, w, _), _ = inputs(5, bias=False, centers=(2,))
    y = y.clamp_max(4)
    assert torch.autograd.gradgradcheck(lambda x, w: own_and_others_of(x, w, y, cosines=True), (x, w))


def test_far_logits_are_finite():
    x = torch.tensor([[1e4, 0.0], [-1e4, 0.0]], requires_grad=True)
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]], requires_grad=True)
    own, others = own_and_others_of(x, w, torch.tensor([0, 1]))
    assert others.tolist() == [5e3, -5e3]
    (own + others).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[1.5, 0.0], [-0.5, 0.0]]))
    assert w.grad.isfinite().all()


@pytest.mark.parametrize(
    "loss",
    [
        "AMSoftmaxLoss",
        "CosFaceLoss",
        "ArcFaceLoss",
        "ProxyNCAPlusPlusLoss",
        "SubCenterArcFaceLoss",
        "ProxyAnchorLoss",
        "CrossEntropyHead",
        "cosines",
    ],
)
def test_losses_with_many_classes_are_those_in_blocks(loss, monkeypatch):
    monkeypatch.setattr(class_softmax, "FEW", 0)
    monkeypatch.setattr(class_softmax, "PART", 20)
    kinds = {
        "cosines": lambda *sizes, **how: nearfar.CrossEntropyHead(
            *sizes, temperature=0.1, smoothing=0.2, normalize=True, **how
        )
    }
    make = kinds.get(loss) or getattr(nearfar, loss)
    torch.manual_seed(0)
    in_parts = make(C, D).double()
    in_blocks = make(C, D, block=3).double()
    in_blocks.load_state_dict(in_parts.state_dict())
    (x, _, _), y = inputs()
    found = []
    for term in (in_parts, in_blocks):
        value = term(x, y)
        found.append([value, *torch.autograd.grad(value, [x, *term.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
