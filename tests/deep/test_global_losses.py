"""Losses that read more than their anchor's row: lifted, angular, the global and Fisher hinges, HORDE."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from nearfar import (
    HORDE,
    JRS,
    AngularLoss,
    BinomialDevianceLoss,
    CrossBatchMemory,
    FisherContrastiveLoss,
    FisherTripletLoss,
    GeneralizedContrastiveLoss,
    GeneralizedLiftedLoss,
    LiftedLoss,
    SNRContrastiveLoss,
    TripletGlobalLoss,
    TripletLoss,
)
from nearfar.deep.miners.batch_hard import BatchHard
from nearfar.deep.miners.batch_semi_hard import BatchSemiHard
from nearfar.deep.objective.parser import parse_objective
from nearfar.deep.regularizers import horde as horde_module
from nearfar.deep.regularizers.horde import horde
from tests.references import (
    angular,
    binomial_deviance,
    fisher_contrastive,
    fisher_triplet,
    generalized_lifted,
    lifted,
    snr_contrastive,
    triplet_global,
)
from tests.references import horde as horde_reference

from .gradients import grad, same, samples

SETTINGS = [
    (LiftedLoss, lifted, {"margin": 0.5}, {}),
    (LiftedLoss, lifted, {"hard": True}, {}),
    (LiftedLoss, lifted, {"distance": "sq_euclidean", "reduction": "sum"}, {"squared": True, "reduction": "sum"}),
    (GeneralizedLiftedLoss, generalized_lifted, {"margin": -2.5}, {}),  # some anchors are satisfied
    (GeneralizedLiftedLoss, generalized_lifted, {"normalize": True, "margin": 0.3}, {}),
    (SNRContrastiveLoss, snr_contrastive, {"pos_margin": 0.5, "neg_margin": 2.0}, {}),
    (SNRContrastiveLoss, snr_contrastive, {"zero_mean": 0.7, "normalize": True}, {}),
    (AngularLoss, angular, {"alpha": 40.0}, {}),
    (AngularLoss, angular, {"reduction": "valid"}, {}),
    (AngularLoss, angular, {"alpha": 50.0, "reduction": "sum"}, {}),
    (AngularLoss, angular, {"form": "softmax"}, {}),
    (AngularLoss, angular, {"form": "softmax", "alpha": 75.0}, {}),
    (TripletGlobalLoss, triplet_global, {"margin": 0.1, "weight": 2.0}, {}),
    (TripletGlobalLoss, triplet_global, {"over": "triplets", "margin": 0.9}, {}),
    (TripletGlobalLoss, triplet_global, {"normalize": False, "margin": 3.0}, {}),
    (FisherTripletLoss, fisher_triplet, {"margin": 5.0, "lam": 0.8}, {}),
    (FisherTripletLoss, fisher_triplet, {"reduction": "mean", "margin": 1.0}, {"mean": True}),
    (FisherContrastiveLoss, fisher_contrastive, {"margin": 80.0, "lam": 0.1}, {}),
    (FisherContrastiveLoss, fisher_contrastive, {"margin": 2.0, "reduction": "mean", "lam": 0.1}, {"mean": True}),
]
LOSSES = (
    LiftedLoss,
    GeneralizedLiftedLoss,
    SNRContrastiveLoss,
    AngularLoss,
    TripletGlobalLoss,
    FisherTripletLoss,
    FisherContrastiveLoss,
)


@pytest.mark.slow
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(("loss", "loops", "settings", "loop_settings"), SETTINGS)
def test_settings_reach_the_formula(loss, loops, settings, loop_settings):
    x, y = samples()
    known = {key: value for key, value in settings.items() if key not in ("distance", "reduction")}
    reduction = {"reduction": settings["reduction"]} if "reduction" in settings and loops is angular else {}
    expected = loops.reference(x, y, **known, **reduction, **loop_settings)
    assert grad(expected, x).abs().sum() > 0, "this example says nothing"
    for block in (None, 1, 4):
        same(loss(**settings, block=block)(x, y), expected, x, rtol=1e-9, atol=1e-11)


def lifted_with_reference(x, y, ref, ref_y, margin=1.0):
    """Every positive pair of a batch sample and a reference, with both one's negatives across."""
    total, pairs = x.sum() * 0, 0
    for i in range(len(x)):
        for j in range(len(ref)):
            if y[i] == ref_y[j]:
                pushes = [margin - (x[i] - ref[k]).norm() for k in range(len(ref)) if ref_y[k] != y[i]]
                pushes += [margin - (x[k] - ref[j]).norm() for k in range(len(x)) if y[k] != ref_y[j]]
                J = (x[i] - ref[j]).norm() + torch.stack(pushes).exp().sum().log()
                total, pairs = total + J.clamp_min(0) ** 2, pairs + 1
    return total / (2 * pairs)


def angular_with_reference(x, y, ref, ref_y, form):
    z, r, T = torch.nn.functional.normalize(x), torch.nn.functional.normalize(ref), 1.0
    total, count = x.sum() * 0, 0
    for a in range(len(x)):
        for p in range(len(ref)):
            if y[a] != ref_y[p]:
                continue
            f = torch.stack([4 * T * (z[a] + r[p]) @ r[n] for n in range(len(ref)) if ref_y[n] != y[a]])
            f = f - 2 * (1 + T) * z[a] @ r[p]
            if form == "softmax":
                total, count = total + torch.log(1 + f.exp().sum()), count + 1
            else:
                hinges = (f + 2 - 6 * T).clamp_min(0)
                total, count = total + hinges.sum(), count + int((hinges > 0).sum())
    return total / count


@pytest.mark.parametrize("block", [None, 1, 3])
def test_a_reference_set_gives_the_other_side_of_a_pair(block):
    x, y = samples((0, 1, 1, 2))
    ref, ref_y = samples((0, 0, 1, 2, 2), seed=1)
    cases = [(LiftedLoss(block=block), lifted_with_reference(x, y, ref, ref_y))]
    for form in ("hinge", "softmax"):
        cases.append((AngularLoss(45, form=form, block=block), angular_with_reference(x, y, ref, ref_y, form)))
    for loss, expected in cases:
        value = loss(x, y, ref=ref, ref_labels=ref_y)
        same(value, expected, x)
        torch.testing.assert_close(grad(value, ref), grad(expected, ref))
        relation = (y[:, None] == ref_y).long()
        same(loss(x, relation, ref=ref, ref_labels=ref_y), expected, x)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_batch_as_its_own_memory_is_the_loss_with_a_reference(loss):
    x, y = samples((0, 0, 1, 1, 1, 2, 3, 3))
    memory = CrossBatchMemory(loss(), size=8).double()
    old, old_y = samples((0, 1, 1, 2, 3, 3, 4, 4), seed=2)
    memory(old, old_y)
    value = memory(x, y)
    expected = loss()(x, y) + loss()(x, y, ref=old.detach(), ref_labels=old_y)
    same(value, expected, x)
    blocked = CrossBatchMemory(loss(block=3), size=8).double()
    blocked(old, old_y)
    same(blocked(x, y), expected, x)


@pytest.mark.parametrize("loss", LOSSES)
def test_miners_and_blocks_together(loss):
    x, y = samples()
    for miner in (BatchHard(), BatchSemiHard()):
        value = loss(miner=miner)(x, y)
        assert value.isfinite()
        same(loss(miner=miner, block=2)(x, y), value, x)


def test_statistics_of_a_blocked_two_sided_loss():
    x, y = samples()
    whole, cut = LiftedLoss().collect_stats(), LiftedLoss(block=2).collect_stats()
    whole(x, y), cut(x, y)
    assert cut.stats_ == pytest.approx(whole.stats_)
    assert 0 < cut.stats_["active"] <= 1


def test_lifted_smooth_is_near_hard():
    x, y = samples((0, 0, 1, 1, 2, 2, 3, 3))
    hard, smooth = LiftedLoss(hard=True)(x, y).item(), LiftedLoss()(x, y).item()
    more = LiftedLoss(margin=1 + math.log(12), hard=True)(x, y).item()  # six negatives on either side
    assert hard <= smooth <= more


def test_lifted_without_negatives_is_zero():
    x, _ = samples()
    value = LiftedLoss()(x, torch.zeros(len(x), dtype=torch.long))
    assert value == 0
    assert (grad(value, x) == 0).all()
    pair = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    assert grad(LiftedLoss()(pair, torch.tensor([0, 0, 1])), pair).isfinite().all()


def test_angular_is_the_geometry_of_unit_vectors():
    g = torch.Generator().manual_seed(0)
    a, p, n = torch.nn.functional.normalize(torch.randn(3, 5, generator=g, dtype=torch.float64))
    T = math.tan(math.radians(40)) ** 2
    f = 4 * T * (a + p) @ n - 2 * (1 + T) * a @ p
    geometry = ((a - p) ** 2).sum() - 4 * T * ((n - (a + p) / 2) ** 2).sum()
    torch.testing.assert_close(geometry, f + 2 - 6 * T)


def test_angular_without_angle_is_pure_attraction():
    x, y = samples()
    z = torch.nn.functional.normalize(x)
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j and y[i] == y[j]]
    negatives = {i: sum(int(y[k] >= 0 and y[k] != y[i]) for k in range(9)) for i in range(8)}
    total = sum(negatives[i] * ((z[i] - z[j]) ** 2).sum() for i, j in pairs)
    same(AngularLoss(0.0, reduction="sum")(x, y), total, x)


def test_angular_pushes_the_negative_away_from_the_middle():
    x = torch.tensor([[1.0, 0.1, 0], [1.0, -0.1, 0], [0.9, 0, 0.4]], dtype=torch.float64, requires_grad=True)
    (to_x,) = torch.autograd.grad(AngularLoss(10)(x, torch.tensor([0, 0, 1])), x)
    assert -to_x[2] @ x.detach()[2] == pytest.approx(0, abs=1e-12)
    assert (-to_x[2])[0] < 0


def test_angular_with_many_positives_goes_through_one_product(monkeypatch):
    from nearfar.deep.losses import angular as module
    from nearfar.deep.pairwise import hinges

    x, y = samples((0,) * 5 + (1,) * 4 + (2,) * 3)
    loss = AngularLoss(form="softmax")
    expected = loss(x, y)
    monkeypatch.setattr(hinges, "MAX_POSITIVES_WITHOUT_SORT", 1)
    same(loss(x, y), expected, x)
    same(AngularLoss(form="softmax", block=5)(x, y), expected, x)
    monkeypatch.setattr(module, "EXACT", 0.0)
    same(loss(x, y), expected, x)


@pytest.mark.parametrize("alpha", [25, 45])
def test_angular_mined_triplets_are_the_hinges_of_those(alpha):
    x, y = samples((0, 0, 1, 1, 2), seed=2)
    z = torch.nn.functional.normalize(x)
    d = ((z[:, None] - z) ** 2).sum(2)
    expected, count = x.sum() * 0, 0
    for a in range(4):
        p = next(j for j in range(5) if j != a and y[j] == y[a])
        n = min((j for j in range(5) if y[j] != y[a]), key=lambda j: d[a, j].item())
        slope = 4 * math.tan(math.radians(alpha)) ** 2
        value = (d[a, p] - slope * ((z[n] - (z[a] + z[p]) / 2) ** 2).sum()).clamp_min(0)
        expected, count = expected + value, count + int(value > 0)
    assert 0 < count < 4, "some hinges are active, some are not"
    same(AngularLoss(alpha, miner=BatchHard())(x, y), expected / count, x)


def test_global_loss_of_shifted_and_scaled_distances():
    x, y = samples((0, 0, 1, 1, 2, 2))
    lift = torch.cat([x.detach(), 2.0 * torch.eye(6, dtype=torch.float64)], 1)  # every distance grows by 8
    settings = {"normalize": False, "margin": 1.0}
    torch.testing.assert_close(TripletGlobalLoss(**settings)(lift, y), TripletGlobalLoss(**settings)(x, y).detach())
    variances = TripletGlobalLoss(weight=0.0, normalize=False)
    torch.testing.assert_close(variances(3 * x, y), 81 * variances(x, y))


def test_global_loss_of_one_triplet_is_a_hinge_of_means():
    x, _ = samples((0, 0, 1))
    y = torch.tensor([0, 0, 1])
    relation = torch.tensor([[-1, 1, 0], [-1, -1, -1], [-1, -1, -1]])
    d = ((x[0] - x[1]) ** 2).sum() / 4 - ((x[0] - x[2]) ** 2).sum() / 4
    same(TripletGlobalLoss(5.0, weight=0.5, normalize=False)(x, relation), 0.5 * (d + 5.0), x)
    assert TripletGlobalLoss()(x[:2], y[:2]) == 0


def test_global_loss_over_mined_triplets():
    x, y = samples((0, 0, 1, 1, 2))
    loss = TripletGlobalLoss(over="triplets", miner=BatchHard(), normalize=False, margin=9.0)
    d = ((x[:, None] - x) ** 2).sum(2) / 4
    near = [d[a, next(j for j in range(5) if j != a and y[j] == y[a])] for a in range(4)]
    far = [min((d[a, j] for j in range(5) if y[j] != y[a]), key=Tensor.item) for a in range(4)]
    (mu_p, var_p), (mu_n, var_n) = triplet_global.moments(near), triplet_global.moments(far)
    same(loss(x, y), var_p + var_n + 0.8 * (mu_p - mu_n + 9.0).clamp_min(0), x)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(
    ("loss", "loops"), [(FisherTripletLoss, fisher_triplet), (FisherContrastiveLoss, fisher_contrastive)]
)
def test_fisher_losses_equal_their_scatter_matrices(loss, loops, mean):
    h, y = samples(dim=6)
    layer = torch.nn.Linear(6, 3).double()
    settings = {"margin": 40.0, "lam": 0.3, "ridge": 0.5}
    expected = loops.reference(h, y, U=layer.weight.T, mean=mean, **settings)
    for block in (None, 2):
        term = loss(layer=layer, reduction="mean" if mean else "sum", block=block, **settings)
        value = term(layer(h), y)
        same(value, expected, h, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(grad(value, layer.weight), grad(expected, layer.weight))
        assert not list(term.parameters())


def test_fisher_triplet_is_the_hinge_of_the_batch_sum():
    x, y = samples()
    margin, lam = 3.0, 0.6
    d = ((x[:, None] - x) ** 2).sum(2)
    total = sum((2 - lam) * d[a, p] - lam * d[a, n] for a, p, n in fisher_triplet.triplets(y))
    same(FisherTripletLoss(margin, lam=lam)(x, y), total + margin, x)
    inactive = FisherTripletLoss(-1e6)(x, y)
    assert inactive == 0
    assert (grad(inactive, x) == 0).all()


def test_fisher_contrastive_at_its_limits():
    x, y = samples()
    near = sum(((x[i] - x[j]) ** 2).sum() for i in range(8) for j in range(8) if y[i] == y[j])
    torch.testing.assert_close(FisherContrastiveLoss(2.0, lam=0.0)(x, y), 2 * near + 2.0)
    one = FisherContrastiveLoss(2.0, lam=0.5)(x, torch.zeros(9, dtype=torch.long))
    every = sum(((a - b) ** 2).sum() for a in x for b in x)
    torch.testing.assert_close(one, 1.5 * every + 2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LiftedLoss(reduction="none"), "LiftedLoss: reduction must be one of 'mean', 'sum'"),
        (lambda: AngularLoss(89), r"alpha must be in \[0, 89\) degrees, got 89"),
        (lambda: AngularLoss(form="paper"), "form must be one of 'hinge', 'softmax'"),
        (lambda: TripletGlobalLoss(over="all"), "over must be one of 'pairs', 'triplets'"),
        (lambda: FisherTripletLoss(lam=3), r"lam must be in \[0, 2\], got 3"),
        (lambda: FisherContrastiveLoss(reduction="max"), "reduction must be one of 'sum', 'mean'"),
        (lambda: LiftedLoss(block=0), "block must be at least 1, got 0"),
        (lambda: HORDE(4, orders=1), "orders must be at least 2, got 1"),
    ],
)
def test_settings_out_of_range_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("scale", [1e-10, 1e10])
def test_moments_do_not_depend_on_the_length_of_the_features(scale):
    x = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    signs = horde_reference.draw(5, 4, 20).float()
    for found, expected in zip(horde(scale * x, signs), horde(x, signs), strict=True):
        torch.testing.assert_close(found, expected)


def test_moments_estimate_powers_of_inner_products():
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(2, 6, generator=g, dtype=torch.float64))
    signs = horde_reference.draw(4, 6, 200_000)
    products = torch.ones_like(signs[0][0])
    for k, W in enumerate(signs, 1):
        products = products * (x[0] @ W) * (x[1] @ W)
        assert products.mean().item() == pytest.approx((x[0] @ x[1]).item() ** k, abs=0.03)
    for k, moment in enumerate(horde(x[:, None], signs), 2):
        assert (moment[0] @ moment[1]).item() == pytest.approx((x[0] @ x[1]).item() ** k, abs=0.1)


def products(x, signs):
    x = x / x.detach().norm(dim=2).amax(1)[:, None, None]
    product, moments = x @ signs[0], []
    for W in signs[1:]:
        product = product * (x @ W)
        moments.append(torch.nn.functional.normalize(product.mean(1)))
    return torch.stack(moments)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_moments_some_features_at_a_time_are_those_of_all(size, monkeypatch):
    monkeypatch.setattr(
        horde_module, "_parts", lambda x, signs: [slice(a, min(a + size, 40)) for a in range(0, 40, size)]
    )
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 5, generator=g, dtype=torch.float64, requires_grad=True)
    signs = horde_reference.draw(4, 5, 40).to(torch.int8)
    weights = torch.randn(3, 6, 40, generator=g, dtype=torch.float64)
    values = [(weights * m).sum() for m in (torch.stack(horde(x, signs)), products(x, signs.double()))]
    firsts = [torch.autograd.grad(value, x, create_graph=True)[0] for value in values]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(torch.autograd.grad(values[0], x, retain_graph=True)[0], firsts[1].detach())
    torch.testing.assert_close(*firsts)
    torch.testing.assert_close(*(torch.autograd.grad(first.square().sum(), x)[0] for first in firsts))
    torch.testing.assert_close(torch.func.grad(lambda x: (weights * torch.stack(horde(x, signs))).sum())(x), firsts[1])


def test_moments_keep_no_products_for_their_gradient():
    x, kept = torch.randn(4, 9, 5, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        horde(x, horde_reference.draw(5, 5, 1000).to(torch.int8))
    # four moments of 4 x 1000, the signs, and what belongs to x; a product has 4 x 9 x 1000 numbers
    assert sum(kept) < 4 * 4 * 1000 + 5 * 5 * 1000 + 1000


def test_horde_reads_feature_maps():
    g = torch.Generator().manual_seed(0)
    maps = torch.randn(6, 3, 2, 2, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    term = HORDE(5, channels=3, orders=3, features=16, seed=4)
    x = torch.randn(6, 5, dtype=torch.float64)
    value = term(x, y, pooled=maps)
    signs = horde_reference.draw(3, 3, 16, seed=4)
    items = [list(horde_reference.moments(list(m.flatten(1).T), signs)) for m in maps]
    expected = sum(binomial_deviance.reference(torch.stack(order), y) for order in zip(*items, strict=True))
    same(value, expected, maps)
    torch.testing.assert_close(term(x, y, pooled=1e3 * maps), value)
    with pytest.raises(ValueError, match="pass the trunk's feature map as pooled="):
        term(x, y)
    with pytest.raises(ValueError, match="expected maps of 3 channels, got 7 numbers"):
        term(x, y, pooled=torch.randn(6, 7, dtype=torch.float64))


def test_horde_takes_any_loss_as_term_or_text():
    x, y = samples()
    text = HORDE(4, loss="TripletLoss(margin=0.3)", features=32, orders=3)
    term = HORDE(4, loss=TripletLoss(0.3), features=32, orders=3)
    moments = horde(x[:, None], text.signs.double())
    expected = sum(TripletLoss(0.3)(moment, y) for moment in moments)
    for one, scale in ((text, 1.0), (term, 1.0), (2.0 * text, 2.0)):
        same(one(x, y), scale * expected, x)
    old, old_y = samples((0, 1, 2, 3), seed=3)
    refs = horde(old[:, None], text.signs.double())
    across = sum(TripletLoss(0.3)(m, y, ref=r, ref_labels=old_y) for m, r in zip(moments, refs, strict=True))
    same(text(x, y, ref=old, ref_labels=old_y), across, x)
    with pytest.raises(ValueError, match="expected 4 dimensions, got 3"):
        text(x[:, :3], y)
    both = BinomialDevianceLoss() + HORDE(4, features=32)
    assert both(x, y).isfinite()


@pytest.mark.parametrize("loss", [GeneralizedContrastiveLoss(similarity="pooled"), TripletLoss() + JRS(["pooled"])])
def test_losses_inside_horde_read_the_features_of_the_trunk(loss):
    x, y = samples()
    pooled = torch.randn(len(y), 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    term = HORDE(4, loss=loss, features=32, orders=3)
    expected = sum(loss(moment, y, pooled=pooled) for moment in horde(x[:, None], term.signs.double()))
    same(term(x, y, pooled=pooled), expected, x)
    with pytest.raises(ValueError, match="pooled="):
        term(x, y)


@pytest.mark.parametrize("loss", ["AMSoftmaxLoss()", "CrossBatchMemory(loss=ContrastiveLoss(), size=5)"])
@pytest.mark.parametrize("features", ["", ", features=32"])
def test_text_of_horde_gives_the_loss_inside_the_width_of_the_moments(loss, features):
    x, y = samples()
    term = parse_objective(f"HORDE(loss={loss}{features}, orders=2)", num_classes=9, embedding_dim=4).double()
    assert term(x, y).isfinite()
    assert parse_objective(repr(term), num_classes=9, embedding_dim=4).double()(x, y).isfinite()


def test_all_positives_at_once_are_one_positive_where_there_is_one():
    x, y = samples((0, 0, 1, 1, 2, 2))
    d = (x[:, None] - x).square().sum(2).clamp_min(1e-12).sqrt()
    partner, other = torch.arange(6).view(3, 2).flip(1).flatten(), y[:, None] != y
    expected = (d[range(6), partner] + (0.5 - d).masked_fill(~other, -torch.inf).logsumexp(1)).clamp_min(0).mean()
    same(GeneralizedLiftedLoss(0.5)(x, y), expected, x)
    for few in ([0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]):
        assert GeneralizedLiftedLoss()(x, few) == 0


def test_noise_is_what_is_between_two_samples_beside_the_first():
    x, y = samples((0, 0, 1))
    value = SNRContrastiveLoss(neg_margin=0.0)
    ratio = (x[0] - x[1]).var() * (1 / x[0].var() + 1 / x[1].var()) / 2
    same(value(x, y), ratio, x)
    torch.testing.assert_close(value(5 * x + 3, y), value(x, y))  # neither lengths nor means count
    constant = torch.cat([x[:1], torch.ones(1, 4, dtype=torch.float64)])
    torch.testing.assert_close(value(constant, [0, 0]), torch.ones((), dtype=torch.float64))


def test_an_embedding_of_equal_entries_has_no_pairs_in_single_precision():
    x = torch.randn(6, 128, generator=torch.Generator().manual_seed(0))
    x[0], x[3] = 0.1, 0.3  # their means are rounded
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    for settings in ({}, {"normalize": True}):
        loss = SNRContrastiveLoss(**settings)
        assert loss(x, y).item() == pytest.approx(loss(x.double(), y).item(), rel=1e-5)


def test_miners_rank_by_the_noise_beside_the_signal():
    x, y = samples((0, 0, 0, 1, 1), dim=6)
    x = x.detach() * torch.tensor([1.0, 9.0, 1.0, 1.0, 0.1])[:, None]
    d = (x[:, None] - x).var(2) / x.var(1)[:, None]
    other = ~torch.eye(5, dtype=torch.bool) & (y[:, None] == y)
    hardest = (
        torch.where(other, d, 0.0).amax(1).mean() + torch.where(y[:, None] != y, 5 - d, 0.0).clamp_min(0).amax(1).mean()
    )
    torch.testing.assert_close(SNRContrastiveLoss(neg_margin=5.0, miner=BatchHard())(x, y), hardest)
