"""Losses on a linear head: settings, closed forms, relations."""

import math

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar import AMSoftmaxLoss, CrossEntropyHead, HingeHead, HuberHead, KLHead, MAEHead, MSEHead
from nearfar.deep import unit_vectors
from nearfar.deep.losses.huber_head import huber_head as huber
from nearfar.deep.objective.relations import LabelSets
from tests.references import cross_entropy_head, hinge_head, huber_head, kl_head, mae_head, mse_head

C, DIM = 3, 4
LABELS = torch.tensor([0, 2, 1, 1, 0, -1, 2])
HEADS = (MSEHead, MAEHead, HuberHead, KLHead, HingeHead, CrossEntropyHead)
SETTINGS = [
    (MSEHead, mse_head, {"reduction": "sum"}),
    (MAEHead, mae_head, {"reduction": "sum"}),
    (HuberHead, huber_head, {"delta": 0.4}),
    (KLHead, kl_head, {"smoothing": 0.2}),
    (KLHead, kl_head, {"smoothing": 0.2, "direction": "reverse"}),
    (HingeHead, hinge_head, {"margin": 0.5, "squared": True}),
    (CrossEntropyHead, cross_entropy_head, {"temperature": 0.5, "smoothing": 0.1, "reduction": "sum"}),
    (CrossEntropyHead, cross_entropy_head, {"normalize": True, "temperature": 0.1}),
]


def make(head, classes=C, **settings):
    torch.manual_seed(0)
    term = head(classes, DIM, **settings).double()
    if term.bias is not None:
        torch.nn.init.normal_(term.bias)
    return term


def samples(n=7):
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, DIM, generator=g, dtype=torch.float64, requires_grad=True)


def gradients(value, *tensors):
    return torch.autograd.grad(value, [t for t in tensors if t is not None], retain_graph=True)


@pytest.mark.parametrize(("head", "loops", "settings"), SETTINGS)
def test_settings_reach_the_formula(head, loops, settings):
    x = samples()
    for block in (None, 2):
        term = make(head, block=block, **settings)
        value, expected = term(x, LABELS), loops.reference(x, LABELS, proxies=term.proxies, bias=term.bias, **settings)
        torch.testing.assert_close(value, expected)
        weights = (x, term.proxies, term.bias)
        torch.testing.assert_close(gradients(value, *weights), gradients(expected, *weights))


@pytest.mark.parametrize(("head", "loops"), [(MSEHead, mse_head), (MAEHead, mae_head), (HuberHead, huber_head)])
def test_the_class_number_as_target(head, loops):
    x = samples()
    term = make(head, target="index")
    assert term.proxies.shape == (1, DIM)
    expected = loops.reference(x, LABELS, proxies=term.proxies, bias=term.bias, target="index")
    torch.testing.assert_close(term(x, LABELS), expected)


def test_squared_errors_end_at_least_squares():
    x, y = samples(40).detach(), torch.arange(40) % C
    term = make(MSEHead)
    design = torch.cat([x, torch.ones(40, 1, dtype=torch.float64)], 1)
    best = torch.linalg.lstsq(design, torch.nn.functional.one_hot(y, C).double()).solution
    with torch.no_grad():
        term.proxies.copy_(best[:DIM].T)
        term.bias.copy_(best[DIM])
    for part in gradients(term(x, y), term.proxies, term.bias):
        torch.testing.assert_close(part, torch.zeros_like(part))


@pytest.mark.parametrize(("head", "middle"), [(MSEHead, "mean"), (MAEHead, "median")])
def test_a_head_of_bias_alone_is_best_at_the_middle_of_the_labels(head, middle):
    y = torch.tensor([0, 0, 1, 2, 2, 2, 2])
    term = make(head, target="index")
    x = torch.zeros(7, DIM, dtype=torch.float64)
    with torch.no_grad():
        term.bias.fill_(getattr(y.double(), middle)())
    here = term(x, y).item()
    for step in (-0.01, 0.01):
        with torch.no_grad():
            term.bias.add_(step)
        assert term(x, y).item() > here
        with torch.no_grad():
            term.bias.sub_(step)


def test_huber_lies_between_squares_and_absolute_values():
    x, y = samples(), LABELS
    torch.testing.assert_close(make(HuberHead, delta=1e6)(x, y), make(MSEHead)(x, y) / 2)
    torch.testing.assert_close(make(HuberHead, delta=1e-9)(x, y) / 1e-9, make(MAEHead)(x, y))
    r = torch.tensor([0.7 - 1e-9, 0.7 + 1e-9, -5.0], dtype=torch.float64, requires_grad=True)
    value = huber(r, 0.7)
    (slope,) = torch.autograd.grad(value.sum(), r)
    torch.testing.assert_close(value[0], value[1])
    torch.testing.assert_close(slope, torch.tensor([0.7, 0.7, -0.7], dtype=torch.float64))


def test_absolute_errors_of_zero_have_no_gradient():
    term = make(MAEHead)
    with torch.no_grad():
        term.proxies.zero_(), term.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    (grad,) = gradients(term(samples(2).detach(), torch.tensor([0, 0])), term.bias)
    assert (grad == 0).all()


def test_divergence_is_cross_entropy_less_entropy():
    x = samples()
    targets = torch.rand(len(x), C, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    sets = LabelSets(targets)
    kl, ce = make(KLHead), make(CrossEntropyHead)
    p = targets / targets.sum(1, keepdim=True)
    torch.testing.assert_close(ce(x, sets) - kl(x, sets), -(p * p.log()).sum(1).mean())
    torch.testing.assert_close(gradients(kl(x, sets), x), gradients(ce(x, sets), x))
    torch.testing.assert_close(kl(x, LABELS), ce(x, LABELS))
    same = LabelSets(ce.outputs(x).softmax(1).detach())
    for direction in ("forward", "reverse"):
        assert make(KLHead, direction=direction)(x, same).item() == pytest.approx(0, abs=1e-12)
        assert make(KLHead, direction=direction)(x, sets) > 0


def test_target_rows_reach_the_formula():
    x = samples()
    targets = torch.rand(len(x), C, dtype=torch.float64)
    targets[3] = 0
    for head, loops in ((KLHead, kl_head), (CrossEntropyHead, cross_entropy_head)):
        term = make(head)
        expected = loops.reference(x, targets, proxies=term.proxies, bias=term.bias)
        torch.testing.assert_close(term(x, LabelSets(targets)), expected)


def test_the_reverse_direction_needs_positive_targets():
    with pytest.raises(ValueError, match=r"needs positive targets .*, 6 rows have zeros"):
        make(KLHead, direction="reverse")(samples(), LABELS)


def test_hinge_of_two_classes_with_one_output():
    x, y = samples(6), torch.tensor([0, 1, 1, 0, -1, 1])
    term = make(HingeHead, classes=2, multiclass=None)
    expected = hinge_head.reference(x, y, proxies=term.proxies, bias=term.bias)
    torch.testing.assert_close(term(x, y), expected)
    with torch.no_grad():
        term.proxies.zero_(), term.bias.zero_()
    assert term(x, y) == 1
    with pytest.raises(ValueError, match="multiclass=None is for 2 classes, got num_classes=3"):
        HingeHead(3, DIM, multiclass=None)


def test_hinge_is_zero_exactly_at_the_margin():
    term = make(HingeHead, classes=2, multiclass=None, margin=0.5)
    with torch.no_grad():
        term.proxies.copy_(torch.tensor([[1.0, 0, 0, 0]])), term.bias.zero_()
    x = torch.tensor([[0.5, 1, 1, 1], [-0.5, 2, 2, 2]], dtype=torch.float64)
    assert term(x, torch.tensor([1, 0])) == 0
    assert term(0.99 * x, torch.tensor([1, 0])) > 0


def test_cross_entropy_of_cosines_is_am_softmax_without_margin():
    x, y = samples(), LABELS
    head, proxy = make(CrossEntropyHead, normalize=True, temperature=1 / 20), AMSoftmaxLoss(C, DIM, margin=0.0).double()
    assert head.bias is None
    with torch.no_grad():
        proxy.proxies.copy_(head.proxies)
    torch.testing.assert_close(head(x, y), proxy(x, y))


def test_the_weight_becomes_directions_once_for_all_blocks(monkeypatch):
    calls = []
    forward = unit_vectors._Unit.forward
    monkeypatch.setattr(
        unit_vectors._Unit, "forward", lambda ctx, x, length: calls.append(len(x)) or forward(ctx, x, length)
    )
    x, y = torch.randn(9, 4, requires_grad=True), torch.arange(9) % 5
    head = CrossEntropyHead(5, 4, normalize=True, block=2)
    value = head(x, y)
    value.backward()
    assert calls.count(5) == 1
    slope, whole = head.proxies.grad.clone(), CrossEntropyHead(5, 4, normalize=True, block=9)
    whole.load_state_dict(head.state_dict())
    whole(x, y).backward()
    torch.testing.assert_close(whole(x, y), value)
    torch.testing.assert_close(whole.proxies.grad, slope)


def test_cross_entropy_in_closed_form():
    x, y = samples(), LABELS
    term = make(CrossEntropyHead)
    known = y >= 0
    value = term(x, y)
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(term.outputs(x)[known], y[known]))
    p = term.outputs(x).softmax(1) - torch.nn.functional.one_hot(y.clamp_min(0), C)
    torch.testing.assert_close(gradients(value, term.bias)[0], p[known].mean(0))
    with torch.no_grad():
        term.bias.add_(7.0)
        torch.testing.assert_close(term(x, y), value.detach())
        term.proxies.zero_(), term.bias.zero_()
    assert term(x, y).item() == pytest.approx(math.log(C))


def test_cross_entropy_bounds_the_conditional_entropy_of_a_code():
    codes, y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    x = torch.nn.functional.one_hot(codes, DIM).double()
    joint = torch.zeros(3, C, dtype=torch.float64)
    for z, label in zip(codes, y, strict=True):
        joint[z, label] += 1 / len(y)
    given = joint / joint.sum(1, keepdim=True)
    entropy = -(joint * torch.where(given > 0, given, 1.0).log()).sum()
    term = make(CrossEntropyHead)
    assert term(x, y) > entropy
    with torch.no_grad():
        term.bias.zero_()
        term.proxies[:, :3] = (given + 1e-300).log().T
    torch.testing.assert_close(term(x, y), entropy)


@pytest.mark.parametrize("head", HEADS)
def test_unknown_samples_do_not_count(head):
    x = samples()
    term = make(head)
    known = LABELS >= 0
    torch.testing.assert_close(term(x, LABELS), term(x[known], LABELS[known]))
    nothing = term(x, torch.full_like(LABELS, -1))
    assert nothing == 0
    assert (gradients(nothing, x)[0] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_heads_publish_their_outputs_and_compile(head):
    x = samples()
    term = make(head)
    joint = term + 0.5 * nearfar.JRS(layers=("embedding", "class"))
    y = LABELS.clamp_min(0)
    assert joint(x, y).isfinite()
    compiled = torch.compile(term, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), term(x, y))


@pytest.mark.parametrize("head", HEADS)
def test_bad_input_is_named(head):
    x, name = samples(), head.__name__
    with pytest.raises(ValueError, match=rf"{name}: labels must be in 0..2, got 5"):
        make(head)(x, torch.tensor([0, 1, 2, 5, 0, 0, 0]))
    with pytest.raises(ValueError, match=rf"{name}: labels need one column per class, 3, got 2"):
        make(head)(x, LabelSets(torch.ones(7, 2)))
    with pytest.raises(ValueError, match=rf"{name}: ref does not apply"):
        make(head)(x, LABELS, ref=x, ref_labels=LABELS)
    with pytest.raises(ValueError, match=f"{name}: num_classes must be at least 1"):
        head(0, DIM)
    with pytest.raises(ValueError, match=f"{name}: reduction must be one of 'mean', 'sum'"):
        head(C, DIM, reduction="none")


@pytest.mark.parametrize(
    ("make_bad", "message"),
    [
        (lambda: HuberHead(C, DIM, delta=0.0), "HuberHead: delta must be positive, got 0.0"),
        (lambda: HingeHead(C, DIM, margin=0.0), "HingeHead: margin must be positive, got 0.0"),
        (lambda: KLHead(C, DIM, smoothing=1.0), r"KLHead: smoothing must be in \[0, 1\), got 1.0"),
        (lambda: CrossEntropyHead(C, DIM, smoothing=-0.1), "CrossEntropyHead: smoothing .* got -0.1"),
        (lambda: CrossEntropyHead(C, DIM, temperature=0.0), "CrossEntropyHead: temperature .* got 0.0"),
    ],
)
def test_settings_out_of_range_are_named(make_bad, message):
    with pytest.raises(ValueError, match=message):
        make_bad()


@pytest.mark.parametrize(("row", "told"), [([-0.5, 1.5, 0], "-0.5"), ([float("nan"), 0, 0], "nan")])
@pytest.mark.parametrize("head", ["CrossEntropyHead", "KLHead"])
def test_probabilities_that_are_none_are_refused(head, row, told):
    loss = getattr(nearfar, head)(3, 2)
    with pytest.raises(
        ValueError, match=f"{head}: labels: probabilities .* must be finite and not negative, got {told}"
    ):
        loss(torch.ones(2, 2), LabelSets(torch.tensor([row, [0, 1, 0]])))
