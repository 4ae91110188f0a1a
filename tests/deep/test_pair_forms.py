"""Margin, generalized contrastive, softmax triplet and center-triplet losses: settings, relations, bad input."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from nearfar import (
    CenterTripletLoss,
    ContrastiveLoss,
    CrossBatchMemory,
    DistanceWeighted,
    GE2ELoss,
    GeneralizedContrastiveLoss,
    MarginLoss,
    MultiSupConLoss,
    SoftmaxTripletLoss,
    SupConLoss,
)
from nearfar.deep.objective.relations import LabelSets
from nearfar.deep.pairwise.comparison import Comparison
from tests.references import center_triplet, ge2e, generalized_contrastive, margin, multi_sup_con, softmax_triplet

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, -1])


def data(seed=0, n=9, d=4):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64, requires_grad=True)
    return x, torch.randn(n, 6, generator=g, dtype=torch.float64)


def assert_same(found, expected, x):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    grads = [torch.autograd.grad(value, x)[0] for value in (found, expected)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


SETS = [[0, 1], [0], [1, 2], [0, 1, 2], [3], [2], [], [0, 2], [0, 1]]


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("threshold", [0.0, 1 / 3, 0.5, 1.0])
def test_label_sets_count_by_the_share_of_labels_in_common(threshold, block):
    x, _ = data()
    labels = LabelSets.of(SETS)
    loss = MultiSupConLoss(0.5, threshold, block=block)
    sets = [set(one) for one in SETS]
    assert_same(loss(x, labels), multi_sup_con.of_sets(x, sets, 0.5, threshold), x)
    assert_same(loss.sample_losses(x, labels).mean(), multi_sup_con.of_sets(x, sets, 0.5, threshold), x)
    alone = LabelSets.of([[int(c)] if c >= 0 else [] for c in Y])
    assert_same(MultiSupConLoss(0.5, block=block)(x, alone), SupConLoss(0.5)(x, Y), x)


def test_label_sets_without_a_pair_are_zero():
    x, _ = data(n=3)
    for sets in ([[0], [1], [2]], [[], [], []], [[0], [], [1]]):
        value = MultiSupConLoss()(x, LabelSets.of(sets, num_classes=3))
        assert value == 0
        assert not torch.autograd.grad(value, x)[0].any()
    with pytest.raises(ValueError, match="threshold must be in"):
        MultiSupConLoss(threshold=1.5)


@pytest.mark.parametrize(
    "settings", [{"form": "contrast"}, {"form": "contrast", "scale": 2.0, "bias": 0.5}, {"scale": 2.0}]
)
def test_settings_of_ge2e(settings):
    x, _ = data()
    loss = GE2ELoss(**settings).double()
    assert_same(loss(x, Y), ge2e.reference(x, Y, **settings), x)
    assert loss.learned_values().keys() == ({"scale", "bias"} if "form" in settings else {"scale"})
    one = torch.zeros(9, dtype=torch.long)
    assert_same(loss(x, one), ge2e.reference(x, one, **settings), x)
    assert torch.isfinite(loss(torch.ones_like(x), Y))


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("settings", [{"margin": 0.4}, {"boundary": 0.75, "nu": 0.125}], ids=str)
def test_margin_settings(settings):
    x, _ = data()
    assert_same(MarginLoss(**settings).double()(x, Y), margin.reference(x, Y, **settings), x)


def test_boundary_is_learned_towards_balance():
    x, _ = data()
    loss = MarginLoss(boundary=0.2, nu=0.5).double()
    value = loss(x, Y)
    value.backward()
    step = 1e-6
    with torch.no_grad():
        grad, base = loss.boundary.grad.clone(), value.item()
        loss.boundary += step
        assert (loss(x, Y).item() - base) / step == pytest.approx(grad.item(), abs=1e-4)
    assert not MarginLoss(learn_boundary=False).boundary.requires_grad
    assert [name for name, _ in MarginLoss().named_parameters()] == ["boundary"]


@pytest.mark.parametrize("block", [None, 1, 4])
@pytest.mark.parametrize("own", [("class",), ("sample",), ("class", "sample")], ids=str)
def test_margin_with_a_boundary_for_each_class_and_sample(own, block):
    x, _ = data()
    ids = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, -1])
    loss = MarginLoss(per_class=5 if "class" in own else None, per_sample=10 if "sample" in own else None, nu=0.3)
    loss, g = loss.double(), torch.Generator().manual_seed(2)
    loss.collect_stats().block = block
    for offsets in list(loss.parameters())[1:]:
        with torch.no_grad():
            offsets.copy_(torch.randn(len(offsets), generator=g) / 5)
    given = {"class_offsets": loss.class_offsets, "sample_offsets": loss.sample_offsets, "ids": ids}
    found = loss(x, Y, ids=ids)
    expected = margin.reference(x, Y, boundary=loss.boundary.squeeze(), nu=0.3, **given)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    inputs = [x, *loss.parameters()]
    grads = [torch.autograd.grad(value, inputs) for value in (found, expected)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)
    assert any(grad[1:].any() for grad in grads[0][2:])
    assert 0 < loss.stats_["active"] <= 1


def test_boundaries_reach_the_anchors_of_a_reference_and_of_a_memory():
    x, _ = data()
    loss = MarginLoss(per_class=4).double()
    with torch.no_grad():
        loss.class_offsets.copy_(torch.tensor([-0.5, 0.25, 0.5, 0.0]))
    ref, one = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    parts = []
    for k in range(4):  # the anchors of one class, with its boundary for all
        alone = MarginLoss(boundary=1.2 + float(loss.class_offsets[k].detach())).double()
        alone.reduction = "sum"
        parts.append(alone(x, Y.where(Y.eq(k), -1), ref=ref, ref_labels=one))
    loss.reduction = "sum"
    torch.testing.assert_close(loss(x, Y, ref=ref, ref_labels=one), sum(parts), rtol=1e-6, atol=1e-6)
    memory = CrossBatchMemory(MarginLoss(per_sample=9), size=20).double()
    values = [memory(x, Y, ids=torch.arange(9)) for _ in range(2)]
    assert values[1] > values[0]


def test_bad_boundaries_are_named():
    x, _ = data()
    with pytest.raises(ValueError, match="per_class must be at least 1, got 0"):
        MarginLoss(per_class=0)
    with pytest.raises(ValueError, match=r"MarginLoss: labels must be in 0..1, got 3"):
        MarginLoss(per_class=2)(x, Y)
    with pytest.raises(ValueError, match="per_sample needs ids="):
        MarginLoss(per_sample=9)(x, Y)
    with pytest.raises(ValueError, match=r"MarginLoss: ids must be in 0..8, got 9"):
        MarginLoss(per_sample=9)(x, Y, ids=torch.arange(1, 10))
    with pytest.raises(ValueError, match=r"ids: expected \(9,\) integers, got torch.int64 of shape \(3,\)"):
        MarginLoss()(x, Y, ids=[1, 2, 3])


def test_mined_margin_counts_the_two_pairs_of_a_triplet():
    x, _ = data()
    torch.manual_seed(0)
    found = MarginLoss(miner=DistanceWeighted()).double()(x, Y)
    torch.manual_seed(0)
    z = torch.nn.functional.normalize(x)
    d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    c = Comparison(z, Y, z, Y, slice(0, len(Y)), True, "euclidean", False).prepared()
    positive, negative, keep = DistanceWeighted()(c.block(c.x, c.ref, 0, len(Y))).triplets
    beta = float(torch.tensor(1.2))
    pull = (0.2 + d.gather(1, positive) - beta).clamp_min(0)[keep]
    push = (0.2 - d.gather(1, negative) + beta).clamp_min(0)[keep]
    expected = (pull.sum() + push.sum()) / ((pull > 0).sum() + (push > 0).sum())
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("form", ["squared", "survey"])
@pytest.mark.parametrize("block", [None, 1, 4])
def test_graded_similarity(form, block):
    x, pooled = data()
    how = {"form": form, "margin": 1.5}
    loss = GeneralizedContrastiveLoss(**how, block=block)
    assert_same(loss(x, Y), generalized_contrastive.reference(x, Y, **how), x)
    graded = torch.rand(len(Y), len(Y), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    graded[0, 3] = graded[5, 1] = -1
    assert_same(loss(x, graded), generalized_contrastive.reference(x, graded, **how), x)
    features = GeneralizedContrastiveLoss(**how, similarity="pooled", block=block)
    assert_same(
        features(x, Y, pooled=pooled),
        generalized_contrastive.reference(x, Y, pooled=pooled, similarity="pooled", **how),
        x,
    )


def test_binary_similarity_is_the_contrastive_loss():
    x, _ = data()
    for form, other in (("squared", "hadsell"), ("survey", "survey")):
        torch.testing.assert_close(
            GeneralizedContrastiveLoss(1.5, form=form)(x, Y), ContrastiveLoss(1.5, form=other)(x, Y)
        )


def test_the_graded_loss_is_affine_in_the_similarity_and_its_minimum_is_where_stated():
    x, _ = data(n=4)
    loss = GeneralizedContrastiveLoss(2.0)
    at = [loss(x, torch.full((4, 4), g, dtype=torch.float64)).item() for g in (0.0, 0.5, 1.0)]
    assert at[1] == pytest.approx((at[0] + at[2]) / 2)
    rho = torch.linspace(0.01, 0.49, 49, dtype=torch.float64)
    pairs = [torch.stack([torch.zeros(1), r[None]]).double() for r in rho]
    values = [GeneralizedContrastiveLoss(0.5)(p, torch.full((2, 2), 0.6)).item() for p in pairs]
    assert rho[values.index(min(values))].item() == pytest.approx((1 - 0.6) * 0.5, abs=0.01)


def test_features_give_no_gradient_and_are_needed():
    x, pooled = data()
    pooled.requires_grad_()
    GeneralizedContrastiveLoss(similarity="pooled")(x, Y, pooled=pooled).backward()
    assert pooled.grad is None
    with pytest.raises(ValueError, match='similarity="pooled" needs pooled='):
        GeneralizedContrastiveLoss(similarity="pooled")(x, Y)
    memory = CrossBatchMemory(GeneralizedContrastiveLoss(similarity="pooled"), size=4)  # which holds no features
    with pytest.raises(ValueError, match="compares a batch with itself: features of a reference or a memory"):
        memory(x, Y, pooled=pooled)
    with pytest.raises(ValueError, match="form must be one of 'squared', 'survey'; got 'cubic'"):
        GeneralizedContrastiveLoss(form="cubic")


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("distance", ["cosine", "dot", "sq_euclidean"])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_softmax_triplet_settings(distance, temperature):
    x, _ = data()
    how = {"distance": distance, "temperature": temperature if distance == "cosine" else 3.0}
    assert_same(SoftmaxTripletLoss(**how)(x, Y), softmax_triplet.reference(x, Y, **how), x)


@pytest.mark.parametrize("distance", ["cosine", "dot"])
def test_stopped_keys_carry_no_gradient(distance):
    x, _ = data()
    how = {"distance": distance, "temperature": 2.0, "stop_grad_keys": True}
    assert_same(SoftmaxTripletLoss(**how)(x, Y), softmax_triplet.reference(x, Y, **how), x)


def test_softmax_triplet_of_one_pair_is_zero_and_moves_the_right_way():
    x, _ = data(n=2)
    assert SoftmaxTripletLoss()(x, torch.tensor([1, 1])).item() == 0
    x, _ = data()
    x = torch.nn.functional.normalize(x.detach()).requires_grad_()
    loss = SoftmaxTripletLoss(1.0, distance="dot", stop_grad_keys=True)
    (grad,) = torch.autograd.grad(loss(x, Y), x)
    moved = (x - 1e-3 * grad).detach()
    p = [torch.softmax((z @ x.T).masked_fill(torch.eye(len(Y), dtype=bool), -torch.inf)[:8, :8], 1) for z in (x, moved)]
    same = (Y[:8, None] == Y[:8]) & ~torch.eye(8, dtype=bool)
    some = same.any(1)
    assert (p[1] * same).sum(1)[some].sum() > (p[0] * same).sum(1)[some].sum()


def test_softmax_triplet_survives_saturation():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1e-4], [-1.0, 0.0]], requires_grad=True)
    value = SoftmaxTripletLoss(1e-2)(x, torch.tensor([0, 1, 2, 3]))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"negatives": "centers"},
        {"detach_centers": True, "margin": 1.0},
        {"min_per_class": 1, "reduction": "mean"},
    ],
    ids=str,
)
def test_center_triplet_settings(settings):
    x, _ = data(n=12)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, -1])  # no class of two: its members are equally far
    assert_same(CenterTripletLoss(**settings)(x, y), center_triplet.reference(x, y, **settings), x)


@pytest.mark.parametrize("negatives", ["points", "centers"])
def test_centers_of_mean_inputs_are_given(negatives):
    x, _ = data(n=12)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, -1])
    f = torch.nn.Linear(4, 4, bias=False, dtype=torch.float64)  # linear: the mean input's output is the mean output
    means = torch.stack([x[y == c].mean(0) for c in range(4)] + [x[0]])
    given = torch.tensor([0, 1, 2, 3, -1])
    z = f(x).detach().requires_grad_()
    loss = CenterTripletLoss(negatives=negatives, center="input_mean", detach_centers=True)
    value = loss(z, y, ref=f(means), ref_labels=given)
    wanted = center_triplet.reference(z, y, negatives=negatives, detach_centers=True)
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(torch.autograd.grad(value, z)[0], torch.autograd.grad(wanted, z)[0])
    f.zero_grad()
    CenterTripletLoss(100.0, center="input_mean")(z, y, ref=f(means), ref_labels=given).backward()
    assert f.weight.grad.abs().max() > 0
    with pytest.raises(ValueError, match=r"center='input_mean' needs ref=.*which no training run gives"):
        loss(z, y)


def test_center_triplet_relations():
    x, _ = data()
    shift = torch.full((4,), 7.0, dtype=torch.float64)
    torch.testing.assert_close(CenterTripletLoss()(x + shift, Y), CenterTripletLoss()(x, Y))
    two = torch.tensor([[0.0, 0], [2.0, 0], [9.0, 0]])
    value = CenterTripletLoss(100.0)(two, torch.tensor([0, 0, 1]))
    assert value.item() == pytest.approx(4 / 4 - 64 + 100)  # d(z1, z2) / 4, one hinge


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CenterTripletLoss(negatives="means"), "negatives must be one of 'points', 'centers'; got 'means'"),
        (lambda: CenterTripletLoss(center="median"), "center must be one of 'mean', 'input_mean'; got 'median'"),
        (lambda: CenterTripletLoss(distance="l1"), "distance must be one of"),
        (lambda: SoftmaxTripletLoss(0.0), "temperature must be positive, got 0.0"),
        (lambda: SoftmaxTripletLoss(distance="euclidean", stop_grad_keys=True), "stop_grad_keys needs"),
    ],
)
def test_bad_settings_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()
