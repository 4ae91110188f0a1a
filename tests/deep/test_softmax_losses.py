"""NCA, hard negative contrast and Smooth-AP: forms, relations between them, limits."""

import math

import pytest

torch = pytest.importorskip("torch")

from nearfar import HardNegativeContrastiveLoss, NCALoss, NTXentLoss, SmoothAPLoss
from nearfar.deep.miners.batch_hard import BatchHard
from nearfar.deep.objective.relations import LabelSets
from nearfar.deep.pairwise.reductions import masked_logsumexp, soft_counts, tilted
from tests.references import hard_negative_contrastive, nca_loss, smooth_ap

from .gradients import grad, same, samples

SETTINGS = [
    (NCALoss, nca_loss, {"temperature": 0.5}),
    (NCALoss, nca_loss, {"denominator": "negatives"}),
    (NCALoss, nca_loss, {"positives": "each"}),
    (NCALoss, nca_loss, {"positives": "each", "denominator": "negatives", "normalize": True}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"beta": 0.0, "tau_plus": 0.0}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"beta": 2.0, "tau_plus": 0.3, "temperature": 0.3}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"tau_plus": 0.9}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"detach_weights": True}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"form": "mixture"}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"form": "mixture", "alpha": 0.3, "beta": 3.0}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"form": "mixture", "alpha": 0.0}),
    (HardNegativeContrastiveLoss, hard_negative_contrastive, {"form": "mixture", "alpha": 0.4, "detach_weights": True}),
    (SmoothAPLoss, smooth_ap, {"temperature": 0.1}),
]
LOSSES = (NCALoss, HardNegativeContrastiveLoss, SmoothAPLoss)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(("loss", "loops", "settings"), SETTINGS)
def test_settings_reach_the_formula(loss, loops, settings):
    x, y = samples()
    expected = loops.reference(x, y, **settings)
    for block in (None, 4):
        same(loss(**settings, block=block)(x, y), expected, x, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(grad(loss()(x, y), x), grad(expected, x)), "the setting changes nothing"


@pytest.mark.parametrize("loss", LOSSES)
def test_relations_and_label_sets_stand_for_classes(loss):
    x, y = samples()
    known = (y >= 0)[:, None] & (y >= 0)
    relation = torch.where(known, (y[:, None] == y).long(), -1)
    sets = LabelSets.of([[] if label < 0 else [label] for label in y.tolist()])
    value = loss()(x, y)
    same(loss()(x, relation), value, x)
    same(loss()(x, sets), value, x)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_reference_set_is_compared_with_alone(loss):
    x, y = samples((0, 1, 1, 2))
    ref, ref_y = samples((0, 0, 1, 2, 2, 3), seed=1)
    whole = loss()(x, y, ref=ref, ref_labels=ref_y)
    assert grad(whole, ref).abs().sum() > 0
    torch.testing.assert_close(loss(block=1)(x, y, ref=ref, ref_labels=ref_y), whole)
    alone = [loss()(x[i : i + 1], y[i : i + 1], ref=ref, ref_labels=ref_y) for i in range(4)]
    pairs = torch.tensor([2.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    weights = pairs if loss is HardNegativeContrastiveLoss else torch.ones_like(pairs)
    torch.testing.assert_close(whole, (torch.stack(alone) * weights).sum() / weights.sum())


def test_nca_over_all_is_a_probability_and_over_negatives_has_no_bound():
    x = torch.tensor([[0.0], [0.0], [7.0], [7.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1])
    assert 0 <= NCALoss()(x, y) < 1e-9
    assert NCALoss(denominator="negatives")(x, y).item() == pytest.approx(-49 + math.log(2))


def test_nca_of_one_class():
    x, _ = samples()
    y = torch.zeros(len(x), dtype=torch.long)
    assert NCALoss()(x, y).item() == pytest.approx(0, abs=1e-12)
    assert NCALoss(denominator="negatives")(x, y) == 0


def test_nca_skips_what_has_no_positive():
    x, _ = samples((0, 0, 1, 2, 3))
    y = torch.tensor([0, 0, 1, 2, 3])
    assert NCALoss()(x, y).item() == pytest.approx(nca_loss.reference(x, y).item())
    lonely = torch.arange(5)
    assert NCALoss()(x, lonely) == 0
    assert (grad(NCALoss()(x, lonely), x) == 0).all()


def test_nca_survives_distances_whose_exponentials_vanish():
    x, y = samples()
    far = (1e3 * x.detach()).float().requires_grad_()
    value = NCALoss()(far, y)
    torch.testing.assert_close(value.double(), NCALoss()(far.detach().double(), y), rtol=1e-5, atol=0)
    assert grad(value, far).isfinite().all()


def test_nca_of_single_positives_on_unit_vectors_is_a_softmax_of_twice_the_cosines():
    x, y = samples((0, 0, 1, 1, 2, 2))
    z = torch.nn.functional.normalize(x)
    logits = (2 * z @ z.T).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 0, 3, 2, 5, 4]))
    for positives in ("sum", "each"):
        same(NCALoss(positives=positives, normalize=True)(x, y), expected, x)


def test_hard_negatives_without_tilt_and_debiasing_are_nt_xent():
    x, y = samples()
    same(HardNegativeContrastiveLoss(0.4, beta=0, tau_plus=0)(x, y), NTXentLoss(0.4)(x, y), x)


def test_more_tilt_is_a_larger_loss_up_to_the_nearest_negative():
    x, _ = samples((0, 0, 1, 1, 2, 2))
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    values = [HardNegativeContrastiveLoss(beta=b, tau_plus=0)(x, y).item() for b in (0, 0.5, 1, 4, 1e3)]
    assert values == sorted(values)
    z = torch.nn.functional.normalize(x)
    s = (z @ z.T / 0.5).exp()
    near = s.masked_fill(y[:, None] == y, 0).amax(1)
    p = s[torch.arange(6), torch.tensor([1, 0, 3, 2, 5, 4])]
    assert values[-1] == pytest.approx((p / (p + 4 * near)).log().mean().neg().item(), rel=1e-6)


def test_debiasing_never_takes_more_than_the_least_negative():
    x, y = samples((0, 0, 1, 2))
    x = x.detach() * 0 + torch.eye(4, dtype=torch.float64)  # every cosine 0, so the bracket is below its bound
    value = HardNegativeContrastiveLoss(tau_plus=0.99)(x, y)
    assert value.item() == pytest.approx(math.log(1 + 2 * max(1, math.exp(-2))))
    x[1] = x[0]
    x[2:] = -x[0]
    near, far = math.exp(2), math.exp(-2)
    assert HardNegativeContrastiveLoss(tau_plus=0.5)(x, y).item() == pytest.approx(math.log(1 + 2 * far / near))


def test_views_without_labels():
    x, _ = samples((0,) * 8)
    views = torch.arange(4).repeat(2)
    value = HardNegativeContrastiveLoss()(x, views)
    same(value, hard_negative_contrastive.reference(x, views), x)


def test_low_temperatures_stay_finite():
    x, y = samples()
    single = x.detach().float().requires_grad_()
    for loss in (HardNegativeContrastiveLoss(0.01), SmoothAPLoss(1e-4), NCALoss(1e-3)):
        value = loss(single, y)
        assert value.isfinite()
        assert grad(value, single).isfinite().all()


def test_smooth_average_precision_becomes_the_average_precision():
    x, y = samples((0, 1, 0, 1, 1, 2, 2, 0))
    exact = smooth_ap.reference(x, y, step=lambda gap: (gap > 0).double())
    assert SmoothAPLoss(1e-7)(x, y).item() == pytest.approx(exact.item(), abs=1e-9)


def test_smooth_average_precision_reads_labels_not_places():
    x, y = samples((0, 1, 0, 1, 1, 2, 2, 0))
    order = torch.argsort(y, stable=True)
    torch.testing.assert_close(SmoothAPLoss()(x[order], y[order]), SmoothAPLoss()(x, y))
    perfect = torch.eye(4, dtype=torch.float64)[torch.tensor([0, 1, 0, 2, 2, 1, 2])]
    assert SmoothAPLoss()(perfect, torch.tensor([0, 1, 0, 2, 2, 1, 2])) < 1e-6


def test_smooth_average_precision_takes_no_miner():
    with pytest.raises(TypeError, match="miner"):
        SmoothAPLoss(miner=BatchHard())


@pytest.mark.parametrize("loss", [NCALoss, HardNegativeContrastiveLoss])
def test_a_miner_narrows_the_row(loss):
    x, y = samples()
    value = loss(miner=BatchHard())(x, y)
    assert value.isfinite()
    assert value.item() != pytest.approx(loss()(x, y).item())
    torch.testing.assert_close(loss(miner=BatchHard(), block=2)(x, y), value)


@pytest.mark.parametrize("loss", LOSSES)
def test_settings_out_of_range_are_named(loss):
    with pytest.raises(ValueError, match="temperature must be positive"):
        loss(temperature=0.0)
    if loss is NCALoss:
        with pytest.raises(ValueError, match="denominator must be one of 'all', 'negatives'"):
            loss(denominator="none")


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_tilted_means_and_their_second_derivative(beta, detach):
    g = torch.Generator().manual_seed(0)
    d = torch.rand(4, 6, generator=g, dtype=torch.float64, requires_grad=True)
    keep = torch.rand(4, 6, generator=g) > 0.4
    keep[2] = False
    value = tilted(d, keep, 0.5, beta, detach)
    assert value[2] == -torch.inf
    for row in (0, 1, 3):
        s = -d[row][keep[row]] / 0.5
        w = (beta * s).softmax(0)
        expected = ((w.detach() if detach else w) * s.exp()).sum().log()
        torch.testing.assert_close(value[row], expected)
        torch.testing.assert_close(grad(value[row], d), grad(expected, d))
        slopes = [torch.autograd.grad(v, d, create_graph=True)[0].square().sum() for v in (value[row], expected)]
        torch.testing.assert_close(grad(slopes[0], d), grad(slopes[1], d))  # what is held stays so
    assert torch.autograd.gradgradcheck(lambda v: tilted(v, keep, 0.5, beta)[[0, 1, 3]], (d,))
    torch.testing.assert_close(masked_logsumexp(d, keep, -2.0)[0], (-d[0][keep[0]] / 0.5).logsumexp(0))


def test_soft_counts_in_parts(monkeypatch):
    from nearfar.deep.pairwise import reductions

    g = torch.Generator().manual_seed(0)
    v = torch.rand(7, 5, generator=g, dtype=torch.float64, requires_grad=True)
    keep, columns = torch.rand(7, 5, generator=g) > 0.3, torch.randint(5, (7, 3), generator=g)
    t = v.gather(1, columns)
    expected = (torch.sigmoid((t[:, :, None] - v[:, None]) / 0.1) * keep[:, None]).sum(2)
    for cached in (10, 1 << 17):
        monkeypatch.setattr(reductions, "ENTRIES_IN_CACHE", cached)
        near, counts = soft_counts(v, columns, keep, 0.1)
        assert torch.equal(near, t)
        torch.testing.assert_close(counts, expected)
        assert torch.autograd.gradcheck(lambda d: soft_counts(d, columns, keep, 0.1), (v,))
    assert soft_counts(v, columns, torch.zeros_like(keep), 0.1)[1].max() < 1e-20
