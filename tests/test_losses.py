"""Laws that every loss and regularizer obeys; a method joins by its file and its reference."""

import re
import warnings
from copy import deepcopy
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import nearfar
from nearfar.catalog import BY_NAME, METHODS
from nearfar.deep.objective.batch import make_batch
from nearfar.deep.objective.relations import LabelSets
from nearfar.deep.objective.terms import AnchorLoss
from nearfar.deep.pairwise.row_loss import RowLoss
from nearfar.deep.proxies.class_proxies import ClassProxyLoss
from nearfar.deep.proxies.heads import HeadLoss

TERMS = [m for m in METHODS if m.kind in ("loss", "regularizer", "head", "composition")]
CLASSES, DIM = 8, 5
ALONE = [m for m in TERMS if m.takes == "rows" and not m.small and m.kind != "composition"]
"""Losses that compare with any reference."""
every_term = pytest.mark.parametrize("method", TERMS, ids=lambda m: m.name)


def make(method, **settings):
    torch.manual_seed(0)
    return getattr(nearfar, method.name)(**{**method.small, **settings}).double()


def batch(n=24, seed=1, labels=None, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, DIM, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    y = torch.arange(n) % 6 if labels is None else torch.as_tensor(labels)
    return x, y, torch.randn(n, 7, generator=g, dtype=torch.float64).to(dtype)


def reference_of(method):
    return import_module(f"tests.references.{method.stem}")


def call(term, x, y, pooled):
    return term(x, y, pooled=pooled)


def value_and_grad(term, x, y, pooled):
    value = call(term, x, y, pooled)
    (grad,) = torch.autograd.grad(value, x)
    return value.detach(), grad


def proxies_of(term):
    return next((value for name, value in term.named_parameters() if name.rsplit(".")[-1] == "proxies"), None)


@every_term
def test_numbers_of_numpy_are_settings(method):
    defaults = {name: p.default for name, p in signature(getattr(nearfar, method.name)).parameters.items()}
    kinds = {int: np.int64, float: np.float32, bool: np.bool_}
    given = {name: kinds[type(value)](value) for name, value in defaults.items() if type(value) in kinds}
    x, y, pooled = batch(12)
    expected = call(make(method), x, y, pooled)
    torch.testing.assert_close(call(make(method, **given), x, y, pooled), expected, rtol=1e-5, atol=1e-5)


@every_term
def test_numbers_that_are_none_are_refused(method):
    for name, parameter in signature(getattr(nearfar, method.name)).parameters.items():
        if str(parameter.annotation) in ("float", "float | None"):
            for value in (float("nan"), float("inf"), "1", True):
                with pytest.raises(ValueError, match=f"^{method.name}: {name} must be"):
                    make(method, **{name: value})


@every_term
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("block", [None, 5])
def test_a_setting_with_a_gradient_is_learned_or_refused(method, block):
    kind = getattr(nearfar, method.name)
    known = signature(kind).parameters
    x, y, pooled = batch(12)
    for name in (name for name, parameter in known.items() if type(parameter.default) is float):
        number = torch.nn.Parameter(torch.tensor(known[name].default, dtype=torch.float64))
        if name not in getattr(kind, "learned", ()):
            with pytest.raises(ValueError, match=f"{method.name}: {name} is not learned; got a tensor"):
                make(method, **{name: number})
            continue
        settings = {"block": block} if "block" in known else {}
        (slope,) = torch.autograd.grad(call(make(method, **{name: number}, **settings), x, y, pooled), number)
        near = [call(make(method, **{name: number.item() + step}), x, y, pooled) for step in (1e-6, -1e-6)]
        torch.testing.assert_close(slope, (near[0] - near[1]).detach() / 2e-6, rtol=1e-5, atol=1e-7)


def learning(method):
    """Return a term all of whose settings that can be learned are learned."""
    known = signature(getattr(nearfar, method.name)).parameters
    return make(method, **{name: True for name in known if name.startswith("learn")})


def learned_numbers(term):
    return [p for p in term.parameters() if p.numel() == 1]


@pytest.mark.parametrize("method", [m for m in TERMS if learned_numbers(learning(m))], ids=lambda m: m.name)
@pytest.mark.parametrize("far", [-8.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learned_number_that_has_gone_too_far_is_still_learned(method, far, dtype):
    x, y, _ = batch(dtype=dtype)
    for place in range(len(learned_numbers(learning(method)))):
        term = learning(method).train()
        number = learned_numbers(term)[place]
        number.data += far
        before = term(x, y)
        (slope,) = torch.autograd.grad(before, number)
        assert slope.isfinite()
        assert slope
        optimizer = torch.optim.Adam([number], lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            term(x, y).backward()
            optimizer.step()
        assert term(x, y) < before


def test_a_temperature_learned_from_easy_pairs_follows_hard_ones_as_that_of_clip():
    y = torch.arange(8) // 2
    easy = torch.eye(4)[y] + 0.3 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    hard = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    loss, plain = nearfar.NTXentLoss(learn_temperature=True), torch.nn.Parameter(torch.tensor([1 / 0.07]).log())
    optimizers = [torch.optim.Adam([number], lr=0.1) for number in (loss.log_scale, plain)]
    reached = []
    for x in [easy] * 100 + [hard] * 30:
        values = [loss(x, y), nearfar.NTXentLoss(1 / plain.exp().squeeze())(x, y)]
        for value, optimizer in zip(values, optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        with torch.no_grad():
            plain.clamp_(max=np.log(100))  # CLIP clips the parameter after the step
        torch.testing.assert_close(*values)
        reached.append(plain.exp().item())
    assert max(reached) == pytest.approx(100)
    torch.testing.assert_close(loss.learned_values()["temperature"], 1 / plain.exp().item(), rtol=1e-5, atol=1e-5)
    assert loss.eval()(hard, y) < 3


REFERENCE_LABELS = {"even": None, "uneven": [0, 0, 1, 1, 1, 2, 3, 4, 4, 5, 6, 7]}


@cache
def value_and_grad_of_reference(name, labels):
    """Return what the plain loops give for the batch with these labels; no way of the library changes it."""
    method = BY_NAME[name]
    x, y, pooled = batch(12, labels=REFERENCE_LABELS[labels])
    value = reference_of(method).reference(x, y, pooled=pooled, proxies=proxies_of(make(method)), scores=None)
    (grad,) = torch.autograd.grad(value, x)
    return value.detach(), grad


@every_term
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("labels", REFERENCE_LABELS)
def test_equals_its_reference_in_value_and_gradient(method, labels):
    value, grad = value_and_grad(make(method), *batch(12, labels=REFERENCE_LABELS[labels]))
    expected, expected_grad = value_and_grad_of_reference(method.name, labels)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@every_term
@pytest.mark.usefixtures("ways")
def test_gradient_equals_finite_differences(method):
    term = make(method)
    if reference_of(method).__dict__.get("DETACHED"):
        return  # the method itself states what it holds constant in the gradient; the reference holds the same
    x, y, pooled = batch(10)

    def value(z):
        torch.manual_seed(0)
        fresh = make(method)
        fresh.load_state_dict(term.state_dict())
        return call(fresh, z, y, pooled)

    # along a random direction: every entry is compared with that of the reference above
    assert torch.autograd.gradcheck(value, (x,), eps=1e-6, atol=1e-5, fast_mode=True)


@every_term
def test_words_that_no_setting_knows_are_refused(method):
    for name, setting in signature(getattr(nearfar, method.name)).parameters.items():
        if isinstance(setting.default, str):
            with pytest.raises(ValueError, match=f"{name}|bogus"):
                make(method, **{name: "bogus"})


@every_term
@pytest.mark.parametrize("block", [1, 5, 24])
def test_blocks_change_nothing(method, block):
    if not issubclass(getattr(nearfar, method.name), AnchorLoss):
        return
    x, y, pooled = batch()
    whole, cut = make(method), make(method)
    cut.block = block
    torch.testing.assert_close(value_and_grad(cut, x, y, pooled), value_and_grad(whole, x, y, pooled))


@every_term
def test_order_of_the_batch_changes_nothing(method):
    x, y, pooled = batch()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))
    value, grad = value_and_grad(make(method), x, y, pooled)
    moved, moved_grad = value_and_grad(make(method), x.detach()[order].requires_grad_(), y[order], pooled[order])
    torch.testing.assert_close(moved, value)
    torch.testing.assert_close(moved_grad, grad[order])


@every_term
def test_names_of_the_classes_change_nothing(method):
    if method.small.get("num_classes"):
        return  # the labels of proxy losses are indices
    x, y, pooled = batch()
    names = torch.tensor([40, 7, 1000003, 3, 99, 12])
    torch.testing.assert_close(
        value_and_grad(make(method), x, names[y], pooled), value_and_grad(make(method), x, y, pooled)
    )


EDGES = {
    "empty": [],
    "one sample": [0],
    "one class": [3] * 6,
    "all different": [0, 1, 2, 3, 4, 5],
    "a singleton": [0, 0, 1, 1, 2],
    "all unknown": [-1] * 5,
    "some unknown": [0, 0, 1, 1, -1, -1],
}


@every_term
@pytest.mark.parametrize("labels", EDGES.values(), ids=EDGES.keys())
@pytest.mark.filterwarnings("ignore")
def test_edges_are_finite_with_a_live_gradient(method, labels):
    for kind in ("random", "duplicates", "all equal", "zeros", "huge") if labels else ("empty",):
        x, y, pooled = batch(len(labels), labels=torch.tensor(labels, dtype=torch.long))
        with torch.no_grad():
            if kind == "duplicates" and len(x) > 1:
                x[1], pooled[1] = x[0], pooled[0]
            elif kind == "all equal":
                x[:], pooled[:] = 0.5, 0.5
            elif kind == "zeros":
                x[:], pooled[:] = 0.0, 0.0
            elif kind == "huge":
                x.mul_(1e3)
        value, grad = value_and_grad(make(method), x, y, pooled)
        assert value.isfinite(), kind
        assert grad.isfinite().all(), kind


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("method", ALONE, ids=lambda m: m.name)
def test_a_reference_of_nothing_is_a_zero_with_a_live_gradient(method):
    x, y, _ = batch(8)
    nothing = {"ref": x.new_zeros(0, DIM), "ref_labels": y[:0]}
    miners = [None, *(getattr(nearfar, m.name)() for m in METHODS if m.kind == "miner")]
    takes = "miner" in signature(getattr(nearfar, method.name)).parameters
    reg = {"reg": 0.0} if method.name == "NPairLoss" else {}  # it regularizes the embeddings, not the comparisons
    for miner in miners if takes else [None]:
        value = make(method, **reg, **({} if miner is None else {"miner": miner}))(x, y, **nothing)
        (grad,) = torch.autograd.grad(value, x)
        assert value == 0, miner
        assert not grad.any(), miner


@pytest.mark.parametrize("method", ALONE, ids=lambda m: m.name)
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0)])
def test_an_empty_relation_is_a_zero_with_a_live_gradient(method, n, m):
    x, _, _ = batch(n)
    relations = torch.zeros(n, m, dtype=torch.long)
    reg = {"reg": 0.0} if method.name == "NPairLoss" else {}
    value = make(method, **reg)(x, relations, **({} if n == m else {"ref": x.new_zeros(m, DIM)}))
    (grad,) = torch.autograd.grad(value, x)
    assert value == 0
    assert not grad.any()


@every_term
def test_embeddings_of_any_length_have_a_finite_gradient(method):
    for scale in (1e-40, 1e-30, 1e-25, 1e-20, 1e-15, 1e-10, 1e6, 1e9):
        x, y, pooled = batch(dtype=torch.float32)
        x = (x.detach() * scale).requires_grad_()
        value, grad = value_and_grad(make(method).float(), x, y, pooled * scale)
        assert value.isfinite(), scale
        assert grad.isfinite().all(), scale


@every_term
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_finite_and_close(method, dtype):
    x, y, pooled = batch(dtype=dtype)
    term = make(method).float()
    before = {name: p.dtype for name, p in term.named_parameters()}
    value, grad = value_and_grad(term, x, y, pooled)
    exact, _ = value_and_grad(make(method), x.detach().double().requires_grad_(), y, pooled.double())
    assert value.dtype == torch.float32
    assert grad.dtype == dtype
    assert grad.isfinite().all()
    torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-4)
    assert {name: p.dtype for name, p in term.named_parameters()} == before


@every_term
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("block", [None, 5])
def test_backward_passes_under_autocast(method, block):
    term = make(method).float().eval()
    if hasattr(term, "block"):
        term.block = block
    x, y, pooled = batch(dtype=torch.float32)
    expected, found = [], []
    for grads, enabled in ((expected, False), (found, True)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            value = call(term, x, y, pooled)
            grads += torch.autograd.grad(value, x, create_graph=True)
            if grads[0].requires_grad:
                torch.autograd.grad(grads[0].sum(), x, retain_graph=True, allow_unused=True)
            grads += torch.autograd.grad(value, x)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 0.02 * other.norm() + 1e-5


@pytest.mark.parametrize(
    "make",
    [
        lambda: nearfar.EnergyConfusion("one"),
        lambda: nearfar.VirtualSampleLoss(layer="embedding", eps=0.5),
        lambda: nearfar.FacilityLocationLoss(greedy="stochastic", refine=None),
        lambda: nearfar.SiMix(),
        lambda: nearfar.BayesianUpdating(6, DIM),
    ],
)
def test_validation_leaves_the_draws_of_training_alone(make):
    x, y, _ = batch(60)
    one, other = make().double(), make().double()
    for term in (one, other):
        term(x, y)
    one.eval()
    first = one(x, y)
    assert one(x, y) == first  # the same draws again
    one.train()
    assert [one(x, y).item() for _ in range(3)] == [other(x, y).item() for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@every_term
def test_adds_with_every_regularizer(method):
    x, y, pooled = batch()
    other = nearfar.TripletLoss(0.3)
    both = make(method) + 0.5 * other
    value = call(both, x, y, pooled)
    parts = list(both.parts_.values())
    torch.testing.assert_close(value, call(make(method), x, y, pooled) + 0.5 * other(x, y))
    torch.testing.assert_close(parts[-1], other(x, y).detach())


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize(
    "loss",
    [
        nearfar.SoftmaxTripletLoss,
        partial(nearfar.SmoothAPLoss, temperature=0.3),
        partial(nearfar.TupletMarginLoss, scale=4.0),
        partial(nearfar.HistogramLoss, num_bins=5),
        nearfar.IntraPairVarianceLoss,
        partial(nearfar.PNPLoss, "Iu", temperature=0.3),
        partial(nearfar.RecallAtKLoss, (1, 2), rank_temperature=0.3),
        nearfar.VICRegLoss,
        nearfar.AngularLoss,
        partial(nearfar.AngularLoss, form="softmax"),
        nearfar.MultiSimilarityLoss,
        nearfar.NPairLoss,
        nearfar.HardNegativeContrastiveLoss,
        nearfar.LiftedLoss,
        nearfar.GeneralizedLiftedLoss,
        nearfar.SNRContrastiveLoss,
        nearfar.TripletLoss,
        partial(nearfar.TripletLoss, swap=True),
        nearfar.TripletGlobalLoss,
        nearfar.FisherTripletLoss,
    ],
)
def test_second_derivatives_equal_finite_differences(loss, block):
    if loss is nearfar.TripletGlobalLoss and block is not None:
        pytest.skip("in blocks it holds its means constant")
    x, y, _ = batch(12)
    term = loss(block=block).double()
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)

    def slope(z, again=False):
        (grad,) = torch.autograd.grad(term(z, y), z, create_graph=again)
        return (grad * along).sum()

    (found,) = torch.autograd.grad(slope(x, True), x)
    step = 1e-5 * along
    expected = (slope(x + step) - slope(x - step)) / 2e-5
    torch.testing.assert_close((found * along).sum(), expected, rtol=1e-4, atol=1e-4)


def assert_twice_differentiable(term, x, y, pooled):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (grad,) = torch.autograd.grad(call(term, x, y, pooled), x, create_graph=True)
        assert grad.isfinite().all()
        if grad.requires_grad:
            (again,) = torch.autograd.grad(grad.sum(), x, allow_unused=True, materialize_grads=True)
            assert again.isfinite().all()
        assert torch.func.grad(lambda z: call(term, z, y, pooled))(x.detach()).isfinite().all()


@every_term
@pytest.mark.usefixtures("ways")
def test_embeddings_of_no_length_have_second_derivatives(method):
    x, y, pooled = batch(6, labels=[0, 0, 1, 1, 2, 2])
    x.data[0] = 0.0
    assert_twice_differentiable(make(method).eval(), x, y, pooled)


LACKING = pytest.mark.parametrize(
    "labels", [[0] * 6, [0, 0, 1, 2, -1, -1], [0, 1, 2, 3, 4, 5]], ids=["one class", "few", "all different"]
)


@every_term
@LACKING
@pytest.mark.usefixtures("ways")
def test_rows_that_lack_comparisons_have_second_derivatives(method, labels):
    assert_twice_differentiable(make(method).eval(), *batch(6, labels=labels))


@LACKING
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(
    "loss",
    [
        nearfar.AngularLoss(form="softmax"),
        nearfar.NCALoss(positives="each", miner=nearfar.EasyPositive()),
        nearfar.LiftedLoss(distance="dot"),
        nearfar.BayesianUpdating(6, DIM, loss="nca_all"),
    ],
    ids=lambda loss: type(loss).__name__,
)
@pytest.mark.parametrize("scale", [1, 100])
def test_rows_that_lack_comparisons_have_second_derivatives_in_all_forms(loss, labels, scale):
    x, y, pooled = batch(6, labels=labels)
    loss = loss.double().train()
    loss(x, y)
    assert_twice_differentiable(loss.eval(), (x.detach() * scale).requires_grad_(), y, pooled)


FRESH = {method.name: partial(make, method) for method in TERMS} | {
    "batch targets": lambda: nearfar.DeepFisherLoss(CLASSES, DIM, targets="batch"),
    "class means": lambda: nearfar.ProxyNCALoss(CLASSES, DIM, proxies="class_mean"),
    "memory": lambda: nearfar.CrossBatchMemory(nearfar.LiftedLoss(), size=8),
}


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("fresh", FRESH.values(), ids=FRESH.keys())
def test_a_later_call_leaves_the_gradient_of_an_earlier_one_alone(fresh, block):
    first, then = batch(12), batch(12, seed=2, labels=[0, 0, 0, 0, 0, 1, 1, 1, 2, 3, -1, -1])
    grads = []
    for later in (False, True):
        torch.manual_seed(0)
        term = fresh().double()
        if hasattr(term, "block"):
            term.block = block
        value = call(term, *first)
        if later:
            call(term, *then)
        grads.append(torch.autograd.grad(value, first[0])[0])
    torch.testing.assert_close(*grads)


@every_term
@pytest.mark.parametrize("block", [None, 5])
def test_gradients_that_are_differentiated_again_are_the_same(method, block):
    x, y, pooled = batch(12)
    terms = [make(method) for _ in range(2)]
    if block is not None and not hasattr(terms[0], "block"):
        return
    for term in terms:
        term.block = block
    (expected,), (found,) = (
        torch.autograd.grad(call(term, x, y, pooled), x, create_graph=again)
        for term, again in zip(terms, (False, True), strict=True)
    )
    torch.testing.assert_close(found.detach(), expected)


@every_term
@pytest.mark.parametrize("block", [None, 5])
def test_transforms_of_functions_see_the_same_derivatives(method, block):
    x, y, pooled = batch(12)
    term = make(method).eval()  # no state moves, nor do draws
    if block is not None and not hasattr(term, "block"):
        return
    if block is not None:
        term.block = block
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)

    def called(z):
        return call(term, z, y, pooled)

    def along_slope(z):
        return (torch.func.grad(called)(z) * along).sum()

    (expected,) = torch.autograd.grad(called(x), x, create_graph=True)
    torch.testing.assert_close(torch.func.grad(called)(x.detach()), expected.detach())
    if expected.requires_grad:
        (expected,) = torch.autograd.grad((expected * along).sum(), x, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(torch.func.grad(along_slope)(x.detach()), expected)


def test_transforms_reach_network_and_proxies():
    x, y, _ = batch(12)
    net, term = torch.nn.Linear(DIM, 4).double(), nearfar.SoftTripleLoss(6, 4).double() + nearfar.TripletLoss(0.3)
    both = torch.nn.ModuleDict({"net": net, "term": term.collect_stats()})
    expected = torch.autograd.grad(term(net(x.detach()), y), list(both.parameters()))

    def value(weights):
        of = {part: {k[len(part) + 1 :]: w for k, w in weights.items() if k.startswith(part)} for part in both}
        z = torch.func.functional_call(net, of["net"], (x.detach(),))
        return torch.func.functional_call(term, of["term"], (z, y))

    found = torch.func.grad(value)({name: weight.detach() for name, weight in both.named_parameters()})
    torch.testing.assert_close(list(found.values()), list(expected))
    assert all(part.isfinite() for part in term.parts_.values())
    assert term.stats_["TripletLoss"]["active"] > 0


def relation(y, ref_y):
    known = (y >= 0)[:, None] & (ref_y >= 0)
    return torch.where(known, (y[:, None] == ref_y).long(), -1)


@pytest.mark.parametrize("method", ALONE, ids=lambda m: m.name)
@pytest.mark.parametrize("with_ref", [False, True])
def test_one_label_is_a_relation_and_a_set(method, with_ref):
    y, ref_y = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, -1]), torch.tensor([0, 1, 1, 2, 2, -1, 3])
    x, ref = (batch(len(labels), labels=labels)[0] for labels in (y, ref_y))
    term = make(method)
    given, own = ({"ref": ref}, ref_y) if with_ref else ({}, y)
    sets = [LabelSets.of([[c] if c >= 0 else [] for c in labels.tolist()], num_classes=4) for labels in (y, own)]
    results = []
    for labels, others in ((y, own), (relation(y, own), own), sets):
        value = term(x, labels, **given, **({"ref_labels": others} if with_ref else {}))
        results.append((value, *torch.autograd.grad(value, x)))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


@pytest.mark.parametrize("method", ALONE, ids=lambda m: m.name)
def test_a_copy_of_the_batch_is_a_reference_like_the_batch(method):
    y = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, -1])
    x, term = batch(len(y), labels=y)[0], make(method)
    copy = x.detach().clone().requires_grad_()
    value, grad = value_and_grad(term, x, y, None)
    found = term(x, relation(y, y).fill_diagonal_(-1), ref=copy)  # no sample is compared with itself
    torch.testing.assert_close(found, value)
    torch.testing.assert_close(sum(torch.autograd.grad(found, (x, copy))), grad)


@pytest.mark.parametrize("with_ref", [False, True])
def test_classes_in_one_hot_rows_are_no_relation(with_ref):
    """With as many classes as samples, the matrix has the shape of a relation: who is similar to whom."""
    x, y = torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 7, 7])
    for hot in (torch.nn.functional.one_hot(y, 8), torch.nn.functional.one_hot(y, 8).float()):
        given = {"ref": x, "ref_labels": hot} if with_ref else {}
        message = (
            r"one-hot.*labels\.argmax\(1\)" if not with_ref else r"ref_labels: expected one class per row, or none"
        )
        with pytest.raises(ValueError, match=message):
            nearfar.TripletLoss()(x, hot, **given)
    pairs = torch.eye(8)[torch.arange(8) ^ 1]  # each sample is similar to one other, which is similar to it
    torch.testing.assert_close(nearfar.TripletLoss()(x, pairs), nearfar.TripletLoss()(x, torch.arange(8) // 2))
    for relation in (torch.eye(8), torch.eye(8)[torch.arange(8) ^ 1], torch.zeros(8, 8), torch.ones(8, 8)):
        nearfar.TripletLoss()(x, relation)


def test_scores_are_no_relation_and_degrees_only_of_one_loss():
    """Without the errors a score of 5 pushes apart what is the same, and a triplet loss has no dissimilar samples."""
    x, scores = torch.randn(8, 4), torch.randint(0, 6, (8, 8))
    scores[0, 1] = 5
    for score in (scores, scores.float()):
        with pytest.raises(ValueError, match=r"^labels: the relation matrix holds numbers up to 1, .* got 5; divide"):
            nearfar.GeneralizedContrastiveLoss()(x, score)
    degrees = scores / 5
    nearfar.GeneralizedContrastiveLoss()(x, degrees)
    for loss in (nearfar.TripletLoss(), nearfar.ContrastiveLoss(), nearfar.MultiSimilarityLoss(block=3)):
        with pytest.raises(ValueError, match=r"degrees between 0 and 1, first 0\.\d; only GeneralizedContrastiveLoss"):
            loss(x, degrees.clamp(max=0.8))
        loss(x, degrees.round())


@every_term
def test_bad_input_names_the_argument(method):
    x, y, pooled = batch()
    term = make(method)
    with pytest.raises(ValueError, match=r"labels: expected one per embedding, 24, got 23"):
        call(term, x, y[:-1], pooled)
    broken = x.detach().clone()
    broken[3, 0], broken[5, 1] = float("nan"), float("inf")
    with pytest.raises(ValueError, match="embeddings: 2 of 24 rows are not finite"):
        call(term, broken, y, pooled)
    with pytest.raises(ValueError, match="embeddings: expected a"):
        call(term, x[0], y, pooled)
    with pytest.raises(TypeError, match=r"embeddings: expected a .* got ndarray"):
        call(term, x.detach().numpy(), y, pooled)
    for wrong in (None, ["crow"] * 24):
        with pytest.raises(ValueError, match=r"labels: expected \(n,\) integers or a relation matrix, got .*unique"):
            call(term, x, wrong, pooled)
    with pytest.raises(ValueError, match=r"pooled: expected a \(n, d\) float tensor, got .* of shape \(24,\)"):
        call(term, x, y, pooled[:, 0])
    with pytest.raises(ValueError, match="pooled: expected one row per embedding, 24, got 23"):
        call(term, x, y, pooled[:-1])
    with pytest.raises(ValueError, match="the relation matrix needs one column per reference, 24, got 23"):
        call(term, x, relation(y, y[:-1]), pooled)
    for wrong in (y[:, None], torch.nn.functional.one_hot(y)):
        with pytest.raises(ValueError, match=r"labels: the relation matrix .*; classes are \(n,\) integers"):
            call(term, x, wrong, pooled)
    with pytest.raises(ValueError, match="ref: needed with ref_labels"):
        term(x, y, ref_labels=y)
    with pytest.raises(ValueError, match=r"the weights of an objective must be finite, got \[inf"):
        float("inf") * term


@pytest.mark.parametrize(
    "method", [m for m in TERMS if m.kind != "regularizer" and m not in ALONE], ids=lambda m: m.name
)
def test_a_reference_that_does_not_apply_is_refused(method):
    x, y, pooled = batch()
    term, ref = make(method), {"ref": x.detach()[:9] + 1, "ref_labels": y[:9]}
    # sums over pairs with it, and what hands it to losses
    with_ref = ("TripletGlobalLoss", "FisherTripletLoss", "FisherContrastiveLoss")
    with_ref += ("CMLLoss", "Matryoshka", "DivideAndConquer")
    if method.name in with_ref:
        assert term(x, y, **ref) != term(x, y)
    else:
        names = "|".join([method.name, *(type(part).__name__ for _, part in term.parts())])
        with pytest.raises(ValueError, match=f"({names}): .*ref"):
            term(x, y, pooled=pooled, **ref)


BOUNDS = [
    ("BinomialDevianceLoss", {"alpha": 0.0}, {"alpha": 1e-3}, "alpha and eta must be positive, got 0.0 and 25.0"),
    ("BinomialDevianceLoss", {"eta": 0.0}, {"eta": 1e-3}, "alpha and eta must be positive, got 2.0 and 0.0"),
    ("CrossEntropyHead", {"smoothing": 1.0}, {"smoothing": 0.0}, r"smoothing must be in \[0, 1\), got 1.0"),
    ("CrossEntropyHead", {"smoothing": -0.1}, {"smoothing": 0.99}, r"smoothing must be in \[0, 1\), got -0.1"),
    ("DecoupledContrastiveLoss", {"sigma": 0.0}, {"sigma": 1e-3}, "sigma must be positive, got 0.0"),
    ("FastAPLoss", {"num_bins": 0}, {"num_bins": 1}, "num_bins must be at least 1, got 0"),
    ("FisherContrastiveLoss", {"lam": 2.1}, {"lam": 2.0}, r"lam must be in \[0, 2\], got 2.1"),
    ("FisherTripletLoss", {"lam": -0.1}, {"lam": 0.0}, r"lam must be in \[0, 2\], got -0.1"),
    ("HardNegativeContrastiveLoss", {"alpha": 1.1}, {"alpha": 1.0}, r"alpha in \[0, 1\], got 0.1 and 1.1"),
    ("HardNegativeContrastiveLoss", {"alpha": -0.1}, {"alpha": 0.0}, r"alpha in \[0, 1\], got 0.1 and -0.1"),
    ("HardNegativeContrastiveLoss", {"beta": -0.1}, {"beta": 0.0}, "beta must not be negative, got -0.1"),
    ("HardNegativeContrastiveLoss", {"tau_plus": 1.0}, {"tau_plus": 0.0}, r"tau_plus must be in \[0, 1\), .* got 1.0"),
    ("SigLIPLoss", {"scale": 0.0}, {"scale": 1e-3}, "scale must be positive, got 0.0"),
    ("MultiSimilarityLoss", {"alpha": 0.0}, {"alpha": 1e-3}, "alpha and beta must be positive, got 0.0 and 50.0"),
    ("MultiSimilarityLoss", {"beta": 0.0}, {"beta": 1e-3}, "alpha and beta must be positive, got 2.0 and 0.0"),
    ("PotentialFieldLoss", {"proxies_per_class": 0}, {"proxies_per_class": 1}, "proxies_per_class must be at least 1"),
    ("PotentialFieldLoss", {"alpha": 0.0}, {"alpha": 1e-3}, "alpha must be positive, got 0.0"),
    ("PotentialFieldLoss", {"delta": 0.0}, {"delta": 1e-3}, "delta must be positive, got 0.0"),
    ("RankedListLoss", {"imbalance": 1.1}, {"imbalance": 1.0}, r"imbalance must be in \[0, 1\], got 1.1"),
    ("RankedListLoss", {"imbalance": -0.1}, {"imbalance": 0.0}, r"imbalance must be in \[0, 1\], got -0.1"),
    ("SiMix", {"alpha": -0.1}, {"alpha": 0.0}, r"alpha must be in \[0, 1\], got -0.1"),
    ("SiMix", {"alpha": 1.1}, {"alpha": 1.0}, r"alpha must be in \[0, 1\], got 1.1"),
    ("SoftTripleLoss", {"centers": 0}, {"centers": 1}, "centers must be at least 1, got 0"),
    ("SoftTripleLoss", {"gamma": 0.0}, {"gamma": 1e-3}, "gamma must be positive, got 0.0"),
]


@pytest.mark.parametrize(("name", "outside", "inside", "told"), BOUNDS)
def test_settings_reach_to_their_bounds_and_not_beyond(name, outside, inside, told):
    method = next(m for m in TERMS if m.name == name)
    with pytest.raises(ValueError, match=f"{name}: .*{told}"):
        make(method, **outside)
    x, y, pooled = batch()
    value, grad = value_and_grad(make(method, **inside), x, y, pooled)
    assert value.isfinite()
    assert grad.isfinite().all()


@pytest.mark.parametrize(
    "method", [m for m in TERMS if "block" in signature(getattr(nearfar, m.name)).parameters], ids=lambda m: m.name
)
def test_the_block_is_kept(method):  # its values cannot tell: they are the same for any
    assert make(method, block=3).block == 3


@pytest.mark.parametrize(
    "method",
    [m for m in TERMS if issubclass(getattr(nearfar, m.name), (ClassProxyLoss, HeadLoss))],
    ids=lambda m: m.name,
)
def test_embeddings_of_another_size_than_the_proxies_are_named(method):
    x, y, pooled = batch()
    with pytest.raises(ValueError, match=f"embedding_dim is {DIM}, embeddings have {DIM - 1}"):
        call(make(method), x[:, 1:], y, pooled)
    with pytest.raises(ValueError, match=f"embedding_dim is {DIM}, embeddings have {DIM - 1}"):
        call(make(method) + nearfar.JRS(layers=("class",)), x[:, 1:], y, pooled)


@every_term
def test_what_it_prints_makes_it_again(method):
    x, y, pooled = batch()
    term = make(method)
    again = eval(repr(term), {m.name: getattr(nearfar, m.name) for m in METHODS}).double()
    again.load_state_dict(term.state_dict())
    assert repr(again) == repr(term)
    torch.testing.assert_close(call(again, x, y, pooled), call(make(method), x, y, pooled))


@every_term
def test_state_survives_a_round_trip_and_a_copy(method):
    x, y, pooled = batch()
    term = make(method)
    call(term, 1 * x, y, 1 * pooled)
    loaded, copied = make(method), deepcopy(term)  # what the call left behind holds no graph, which has no copy
    loaded.load_state_dict(term.state_dict())
    value = call(term, x, y, pooled)
    for again in (loaded, copied):
        torch.testing.assert_close(call(again, x, y, pooled), value)


NOT_COMPILED = {
    "BayesianUpdating": "it draws from a generator of its own",
    "DivideAndConquer": "the samples of a batch tell which group learns",
    "FacilityLocationLoss": "its search runs on the processor",
    "AdversarialTriplet": "it lists triplets, of which there are as many as the labels make",
    "SiMix": "it mixes pairs, of which there are as many as the labels make",
    "VirtualSampleLoss": "it lists pairs, of which there are as many as the labels make",
}


def check_compiled(make_term, backend="aot_eager"):
    x, y, pooled = batch()
    torch._dynamo.reset()
    compiled = torch.compile(make_term(), fullgraph=True, backend=backend)
    torch.testing.assert_close(value_and_grad(compiled, x, y, pooled), value_and_grad(make_term(), x, y, pooled))


def ready(method):
    """Return a term in the state in which a training loop calls it."""
    term = make(method)
    if method.name == "DivideAndConquer":
        term.assign(torch.zeros(24, dtype=torch.long))
    return term


def gradients_of_our_own(value):
    """Return the names of the nodes in the graph of a value whose gradients we have written: `_UnitBackward`."""
    nodes = [value.grad_fn]
    seen = set()
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            nodes += [after for after, _ in node.next_functions if after is not None]
    return {node.name() for node in seen if isinstance(node, torch.autograd.function.BackwardCFunction)}


@cache
def traced_backward():
    """Return the terms whose gradients are traced, too: those with each of our own, and those that change a buffer.

    The breaks between compiled parts, which all terms are searched for, lie in their values.
    """
    found = {}
    for method in TERMS:
        if method.name in NOT_COMPILED:
            continue
        x, y, pooled = batch()
        term = make(method)
        before = deepcopy(dict(term.named_buffers()))
        reasons = gradients_of_our_own(call(term, x, y, pooled))
        reasons |= {name for name, after in term.named_buffers() if not after.equal(before[name])}
        if not reasons <= set().union(*found.values()):
            found[method.name] = reasons
    assert {"_UnitBackward", "sums"} <= set().union(*found.values())
    return found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("method", [*TERMS, BY_NAME["BayesianUpdating"]], ids=lambda m: m.name)
def test_terms_compile_whole(method):
    if method.name not in NOT_COMPILED:
        check_compiled(lambda: make(method), "aot_eager" if method.name in traced_backward() else "eager")
        return
    x, y, pooled = batch()
    given = {"pooled": pooled, "ids": torch.arange(24)}
    torch._dynamo.reset()
    with pytest.raises(RuntimeError):
        torch.compile(ready(method), fullgraph=True, backend="eager")(x, y, **given)
    torch._dynamo.reset()  # in parts, between which it runs as it is
    compiled, plain = torch.compile(ready(method), backend="eager"), ready(method)
    torch.testing.assert_close(compiled(x, y, **given), plain(x, y, **given))


@pytest.mark.slow
def test_a_search_on_the_processor_runs_between_compiled_parts():
    x, y, _ = batch()
    torch._dynamo.reset()
    penalty = nearfar.IntraClassPenalty()
    relation = (y[:, None] == y).to(torch.int8)
    torch.testing.assert_close(torch.compile(penalty, backend="eager")(x, relation), penalty(x, relation))


def test_terms_that_do_not_compile_whole_are_in_the_documentation():
    page = (Path(__file__).parents[1] / "docs/own_loop.md").read_text()
    text = page.partition("You can compile")[2].partition("\n\n")[0]
    assert {name for name in re.findall(r"`(\w+)`", text) if name in BY_NAME} == NOT_COMPILED.keys()


@pytest.mark.slow
def test_sums_and_memories_compile_whole_and_once_for_batches_of_any_size():
    check_compiled(lambda: nearfar.NTXentLoss(0.01, learn_temperature=True).double())
    terms = []
    for _ in range(2):
        memory = nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=30, embedding_dim=DIM)
        term = memory + 0.3 * nearfar.TripletLoss() + make(BY_NAME["SoftTripleLoss"])
        terms.append(term.double())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, plain = torch.compile(terms[0], fullgraph=True, backend="aot_eager"), terms[1]
    for n in (24, 10):  # the numbers of positives differ, too
        x, y, pooled = batch(n)
        expected = value_and_grad(plain, x, y, pooled)
        for part in (x, y, pooled):
            torch._dynamo.mark_dynamic(part, 0)  # raises if the graph would hold for this size only
        torch.testing.assert_close(value_and_grad(compiled, x, y, pooled), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Operations(TorchDispatchMode):
    """Notes every operation that PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name == "index" and any(t is not None and t.dtype == torch.bool for t in args[1]):
            name = "boolean index"
        self.names.add(name)
        return func(*args, **(kwargs or {}))


@every_term
@pytest.mark.parametrize("miner", [None, "BatchHard", "BatchSemiHard"])
def test_the_hot_path_never_waits_for_a_device(method, miner):
    kind = getattr(nearfar, method.name)
    if not issubclass(kind, AnchorLoss) or (miner and "miner" not in signature(kind).parameters):
        return
    x, y, pooled = batch()
    term = make(method, **({"miner": getattr(nearfar, miner)()} if miner else {}))
    sample = make_batch(x, y, None, None, pooled)
    with Operations() as seen:
        torch.autograd.grad(term.local_value(sample), x)
    assert not seen.names & {"nonzero", "_local_scalar_dense", "masked_select", "boolean index"}


@every_term
def test_statistics_of_the_last_call(method):
    term = make(method).collect_stats()
    if not isinstance(term, RowLoss):
        return
    assert term.stats_ == {}
    x, y, pooled = batch()
    call(term, x, y, pooled)
    assert ("active" in term.stats_) != isinstance(term, nearfar.HistogramLoss)  # counts are no anchor's loss
    assert 0 <= term.stats_.get("active", 0) <= 1
    assert np.isfinite([term.stats_["positive"], term.stats_["negative"]]).all()


def tensors_held(term):
    """Return the tensors on a term and its parts, besides parameters and buffers."""
    held = []
    for module in term.modules():
        values = [value for name, value in vars(module).items() if name not in ("_parameters", "_buffers", "_modules")]
        held += [leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, torch.Tensor)]
    return held


@every_term
def test_reading_statistics_computes_nothing_and_a_call_leaves_no_batch(method):
    x, y, pooled = batch(23)
    plain, term = make(method), make(method).collect_stats()
    torch.manual_seed(0)
    expected = value_and_grad(plain, x, y, pooled)
    torch.manual_seed(0)
    assert all(map(torch.equal, value_and_grad(term, x, y, pooled), expected))
    for module in (plain, term):
        held = tensors_held(module)
        assert not any(tensor.requires_grad or tensor.numel() >= len(x) for tensor in held)
    if not hasattr(term, "stats_"):
        return
    if isinstance(term, AnchorLoss):
        assert plain.stats_ == {}
    state = torch.get_rng_state()
    with Operations() as seen:
        assert term.stats_
    assert seen.names <= {"_local_scalar_dense", "select", "unbind", "_to_copy"}
    assert term.stats_ == term.stats_
    assert torch.equal(torch.get_rng_state(), state)
