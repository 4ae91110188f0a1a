"""Pair losses: their relations, options and agreement with a known library."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nearfar import (
    CircleLoss,
    DecoupledContrastiveLoss,
    FastAPLoss,
    HistogramLoss,
    IntraPairVarianceLoss,
    MultiSimilarityLoss,
    NPairLoss,
    NTXentLoss,
    PNPLoss,
    PotentialFieldLoss,
    RankedListLoss,
    RecallAtKLoss,
    SupConLoss,
    ThresholdConsistentMarginLoss,
    TupletMarginLoss,
    VICRegLoss,
)
from nearfar.deep.miners.batch_hard import BatchHard
from nearfar.deep.objective.relations import LabelSets
from nearfar.deep.pairwise.soft_histograms import soft_histogram
from nearfar.deep.proxies.angular_margins import turned
from tests.references import (
    circle,
    decoupled_contrastive,
    fast_ap,
    histogram,
    intra_pair_variance,
    multi_similarity,
    nt_xent,
    pnp,
    ranked_list,
    recall_at_k,
    sup_con,
    threshold_consistent_margin,
    tuplet_margin,
    vicreg,
)

from .gradients import grad, same, samples, unit

PAIR_LOSSES = (
    SupConLoss,
    NTXentLoss,
    MultiSimilarityLoss,
    CircleLoss,
    DecoupledContrastiveLoss,
    TupletMarginLoss,
    RankedListLoss,
    HistogramLoss,
    IntraPairVarianceLoss,
    ThresholdConsistentMarginLoss,
)
SETTINGS = [
    (SupConLoss, sup_con, {"temperature": 0.5}),
    (NTXentLoss, nt_xent, {"temperature": 0.5}),
    (MultiSimilarityLoss, multi_similarity, {"alpha": 3.0, "beta": 10.0, "base": 0.2}),
    (MultiSimilarityLoss, multi_similarity, {"epsilon": 0.1}),
    (MultiSimilarityLoss, multi_similarity, {"epsilon": -0.2}),
    (CircleLoss, circle, {"margin": 0.25, "scale": 16.0}),
    (TupletMarginLoss, tuplet_margin, {"scale": 8.0, "margin": 0.4}),
    (RankedListLoss, ranked_list, {"alpha": 1.4, "margin": 0.8, "imbalance": 0.3}),
    (RankedListLoss, ranked_list, {"t_pos": 3.0, "t_neg": 0.0, "margin": 1.0}),
    (FastAPLoss, fast_ap, {"num_bins": 3}),
    (HistogramLoss, histogram, {"num_bins": 7}),
    (IntraPairVarianceLoss, intra_pair_variance, {"pos_eps": 0.2, "neg_eps": 0.3}),
    (ThresholdConsistentMarginLoss, threshold_consistent_margin, {"pos_margin": 0.4, "neg_margin": -0.2}),
    (ThresholdConsistentMarginLoss, threshold_consistent_margin, {"pos_weight": 0.3, "neg_weight": 2.0}),
    (RecallAtKLoss, recall_at_k, {"ks": (1, 3), "rank_temperature": 0.3}),
    (RecallAtKLoss, recall_at_k, {"ks": (2,), "temperature": 0.1, "rank_temperature": 0.1}),
    (PNPLoss, pnp, {"temperature": 0.3}),
    (PNPLoss, pnp, {"variant": "Iu", "temperature": 0.3}),
    (PNPLoss, pnp, {"variant": "Ib", "temperature": 0.1, "b": 0.7}),
    (PNPLoss, pnp, {"variant": "Ds", "temperature": 0.1}),
    (PNPLoss, pnp, {"variant": "Dq", "temperature": 0.1, "alpha": 3.0}),
    (VICRegLoss, vicreg, {"invariance": 2.0, "variance": 3.0, "covariance": 0.5, "gamma": 2.0, "eps": 0.1}),
]


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(("loss", "loops", "settings"), SETTINGS)
def test_settings_reach_the_formula(loss, loops, settings):
    x, y = samples()
    expected = loops.reference(x, y, **settings)
    for block in (None, 4):
        same(loss(**settings, block=block)(x, y), expected, x, rtol=1e-9, atol=1e-12)
    assert loss()(x, y).item() != pytest.approx(expected.item())


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_directions_only(loss):
    x, y = samples()
    value = loss()(x, y)
    torch.testing.assert_close(loss()(x * torch.arange(1.0, 10.0, dtype=torch.float64)[:, None], y), value)
    radial = (grad(value, x) * x.detach()).sum(1)
    torch.testing.assert_close(radial, torch.zeros_like(radial), atol=1e-12, rtol=0)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_relation_matrix_and_label_sets_say_the_same_as_classes(loss):
    x, y = samples()
    known = (y[:, None] >= 0) & (y >= 0)
    relation = torch.where(known, (y[:, None] == y).long(), -1)
    sets = LabelSets.of([[int(c)] if c >= 0 else [] for c in y], num_classes=4)
    value = loss()(x, y)
    torch.testing.assert_close(loss()(x, relation), value)
    torch.testing.assert_close(loss()(x, sets), value)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_reference_set_with_all_but_the_anchors_themselves(loss):
    x, y = samples()
    r, ry = samples(seed=1, labels=(0, 1, 2, 2, 3))
    value = loss()(x, y, ref=r, ref_labels=ry)
    everything = torch.cat([x, r])
    relation = torch.full((len(everything), len(everything)), -1)
    relation[: len(x), len(x) :] = torch.where(y[:, None] >= 0, (y[:, None] == ry).long(), -1)
    torch.testing.assert_close(loss()(everything, relation), value)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_miners_narrow_the_pairs(loss):
    x, y = samples()
    mined = loss(miner=BatchHard())(x, y)
    assert mined.isfinite()
    assert mined.item() != pytest.approx(loss()(x, y).item())
    assert grad(mined, x).isfinite().all()


def test_pairs_of_two_make_cross_entropy():
    x, y = samples(labels=(0, 0, 1, 1, 2, 2, 3, 3))
    s = unit(x) @ unit(x).T / 0.3
    s = s.masked_fill(torch.eye(8, dtype=torch.bool), -torch.inf)
    partner = torch.arange(8).view(4, 2).flip(1).reshape(-1)
    expected = torch.nn.functional.cross_entropy(s, partner)
    same(NTXentLoss(0.3)(x, y), expected, x)
    same(SupConLoss(0.3)(x, y), expected, x)  # one positive each: the two agree


def test_nt_xent_is_the_n_pair_loss_on_scaled_directions():
    x, y = samples()
    torch.testing.assert_close(NTXentLoss(0.25)(x, y), NPairLoss(reg=0.0)(2 * unit(x), y))


def test_other_positives_raise_the_supervised_loss_only():
    same_class = torch.ones(4, 3, dtype=torch.float64)
    assert SupConLoss()(same_class, [0, 0, 0, 0]).item() == pytest.approx(math.log(3))
    assert NTXentLoss()(same_class, [0, 0, 0, 0]) == 0


def test_nothing_saturates_at_low_temperatures():
    angle = torch.tensor([0.0, 1.5, 0.1])  # the positive far, the negative near
    x = torch.stack([angle.cos(), angle.sin()], 1).requires_grad_()
    for temperature in (0.02, 0.01, 0.001):
        value = NTXentLoss(temperature)(x, [0, 0, 1])
        exact = nt_xent.reference(x.double(), torch.tensor([0, 0, 1]), temperature=0.02).item()
        assert temperature < 0.02 or value.item() == pytest.approx(exact, rel=1e-5)
        assert value.item() > 0.5 / temperature
        assert grad(value, x).abs().max() > 0


def test_multi_similarity_tends_to_the_hardest_pairs():
    x, y = samples(labels=(0, 0, 1, 1))
    s = (unit(x) @ unit(x).T).detach()
    hard = [
        max(0.0, 0.5 - s[i, i ^ 1].item())
        + max(0.0, s[i, [k for k in range(4) if k // 2 != i // 2]].max().item() - 0.5)
        for i in range(4)
    ]
    value = MultiSimilarityLoss(alpha=1e4, beta=1e4)(x, y)
    assert value.item() == pytest.approx(sum(hard) / 4, abs=1e-3)


def test_circle_targets_and_weights():
    perfect = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    value = CircleLoss(margin=0.25, scale=256.0)(perfect, [0, 0, 1, 1]).item()
    expected = math.log1p(2 * math.exp(256 * (0.25 * -0.25 - 0.25 * 0.25)))
    assert value == pytest.approx(expected)
    wrong = CircleLoss()(perfect, [0, 1, 0, 1]).item()
    assert wrong > 80


def test_without_pairs_the_losses_are_zero():
    x, _ = samples(labels=(0,) * 5)
    for loss in (NTXentLoss(), SupConLoss()):
        assert loss(x, torch.arange(5)) == 0
    assert CircleLoss()(x, torch.arange(5)) == 0
    assert CircleLoss()(x, torch.zeros(5, dtype=torch.long)) == 0
    assert MultiSimilarityLoss(epsilon=0.1)(x, torch.arange(5)) == 0


@pytest.mark.parametrize("n", [24, 60])
def test_agrees_with_pytorch_metric_learning(n):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    g = torch.Generator().manual_seed(n)
    x = torch.randn(n, 8, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.arange(n) % (n // 4)
    for ours, theirs in [
        (SupConLoss(0.1), losses.SupConLoss(temperature=0.1)),
        (NTXentLoss(0.2), losses.NTXentLoss(temperature=0.2)),
        (MultiSimilarityLoss(2, 50, 0.5), losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)),
        (CircleLoss(0.4, 80), losses.CircleLoss(m=0.4, gamma=80)),
    ]:
        same(ours(x, y), theirs(x, y), x, rtol=1e-9, atol=1e-9)


def test_the_slack_turns_the_angle_of_a_pair_back():
    theta = torch.linspace(0, math.pi, 50, dtype=torch.float64)
    torch.testing.assert_close(turned(theta.cos(), -0.1), (theta - 0.1).cos(), atol=1e-7, rtol=0)


def test_fast_ap_takes_a_bin_for_one_place():
    at = torch.tensor([0.0, 90.0, 60.0, 180.0], dtype=torch.float64).deg2rad()
    x = torch.stack([at.cos(), at.sin()], 1)
    # from the first, squared distances 2, 1 and 4: its partner comes second; from the second 2, 0.27 and 2: third
    value = FastAPLoss(num_bins=4)(x, torch.tensor([0, 0, 1, 2]))
    assert value.item() == pytest.approx(1 - (1 / 2 + 1 / 3) / 2)
    assert FastAPLoss()(x[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])) == 0


def test_ranked_list_is_satisfied_where_both_margins_are_kept():
    at = torch.tensor([0.0, 0.1, 3.0, 3.1], dtype=torch.float64)
    x = torch.stack([at.cos(), at.sin()], 1)
    assert RankedListLoss()(x, torch.tensor([0, 0, 1, 1])) == 0
    near = torch.tensor([0.0, 0.3], dtype=torch.float64)
    pair = torch.stack([near.cos(), near.sin()], 1)
    assert RankedListLoss(imbalance=1.0)(pair, torch.tensor([0, 1])).item() == pytest.approx(1.2 - 2 * math.sin(0.15))
    at = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)  # of one class: half the mean of what is beyond 0.8
    one, two = 2 * math.sin(0.5) - 0.8, 2 * math.sin(1.0) - 0.8
    value = RankedListLoss()(torch.stack([at.cos(), at.sin()], 1), torch.tensor([0, 0, 0]))
    assert value.item() == pytest.approx((one + two + one) / 6)


def test_histograms_tell_how_often_a_similar_pair_is_the_farther():
    x, y = samples(labels=(0, 0, 0, 1, 1, 2, 2))
    s = (unit(x) @ unit(x).T).detach()
    same_class, other = (y[:, None] == y) & ~torch.eye(7, dtype=torch.bool), y[:, None] != y
    exact = (s[same_class][:, None] < s[other]).double().mean().item()
    assert HistogramLoss(num_bins=100_000)(x, y).item() == pytest.approx(exact, abs=1e-3)
    at = torch.tensor([0.0, 0.0, math.pi, math.pi], dtype=torch.float64)  # on the ends of the last bin
    ends = torch.stack([at.cos(), at.sin()], 1)
    assert HistogramLoss()(ends, [0, 0, 1, 1]) == 0
    assert HistogramLoss()(ends, [0, 1, 0, 1]).item() == pytest.approx(1)  # a tie counts as farther
    with pytest.raises(ValueError, match="num_bins must be at least 1, got 0"):
        HistogramLoss(num_bins=0)


def test_vicreg_of_two_views():
    x, y = samples()
    r, ry = samples(seed=1, labels=(0, 1, 2, 2, 3))
    same(
        VICRegLoss()(x, y, ref=r, ref_labels=ry), vicreg.reference(x, y, ref=r, ref_labels=ry), x, rtol=1e-9, atol=1e-12
    )
    both = [grad(loss(x, y, ref=r, ref_labels=ry), r) for loss in (VICRegLoss(), vicreg.reference)]
    torch.testing.assert_close(*both)


@pytest.mark.slow
@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_vicreg_by_class_sums_equals_pairs(two, seed):
    x, _ = samples(seed=seed)
    y = torch.tensor([0, 1, 1, -1, 5, 0, 0, -1, 7])
    r, ry = samples(seed=seed + 5, labels=(0, 1, 1, -1, 9, 0))
    more = {"ref": r, "ref_labels": ry} if two else {}
    by_classes, by_pairs = VICRegLoss().collect_stats(), VICRegLoss(miner=lambda rows: rows).collect_stats()
    same(by_classes(x, y, **more), by_pairs(x, y, **more), x, rtol=1e-10, atol=1e-12)
    assert by_classes.stats_ == by_pairs.stats_
    by_classes.reduction = by_pairs.reduction = "sum"
    same(by_classes(x, y, **more), by_pairs(x, y, **more), x, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradgradcheck(lambda x: by_classes(x, y, **more), x)


def test_vicreg_keeps_the_digits_of_near_views_and_forms_no_pairs(monkeypatch):
    n = torch.arange(3000)
    x = 100 + torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    views = {"ref": x + 2.0**-10, "ref_labels": n}
    monkeypatch.setattr("nearfar.deep.pairwise.comparison.Comparison.block", None)
    value = VICRegLoss(1.0, 0.0, 0.0)(x, n, **views)
    assert value.item() == pytest.approx((views["ref"] - x).square().mean().item(), rel=1e-5)


def test_vicreg_keeps_embeddings_from_falling_together():
    x, y = samples()
    spread_out = VICRegLoss(invariance=0.0)
    assert spread_out(torch.zeros(9, 4), y).item() == pytest.approx(2 * 25 * 0.99)  # each deviation is sqrt(1e-4)
    q = torch.linalg.qr(x.detach() - x.detach().mean(0))[0]
    assert spread_out(3 * q, y).item() == pytest.approx(0, abs=1e-9)  # uncorrelated, of variance 9/8
    assert VICRegLoss(variance=0.0, covariance=0.0)(x[[0, 0, 1, 1]], [0, 0, 1, 1]).item() == pytest.approx(0, abs=1e-9)
    moved = x + torch.arange(4)
    torch.testing.assert_close(VICRegLoss()(moved, y), VICRegLoss()(x, y))
    assert VICRegLoss()(x[:0], y[:0]) == 0
    assert VICRegLoss()(x, y, ref=x[:0], ref_labels=y[:0]) == 0  # two views, of which one is empty
    with pytest.raises(ValueError, match="eps must be positive"):
        VICRegLoss(eps=0.0)


def test_recall_at_k_is_the_score_where_its_steps_are_steep():
    x, y = samples((0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), dim=3)
    steep = {"temperature": 1e-4, "rank_temperature": 1e-6}
    ranking = (unit(x) @ unit(x).T).fill_diagonal_(-2).argsort(1, descending=True)
    right = y[ranking] == y[:, None]
    for k in (1, 2, 4):
        within = right[:, :k].sum(1) / min(k, 2)
        # a rank of exactly k is half within it
        edge = right[:, k - 1] / (2 * min(k, 2))
        found = 1 - RecallAtKLoss((k,), **steep)(x, y)
        torch.testing.assert_close(found, (within - edge).double().mean(), rtol=0, atol=1e-6)
    assert torch.equal(RecallAtKLoss(2)(x, y), RecallAtKLoss([2])(x, y))
    assert torch.equal(RecallAtKLoss(np.array([1, 2]))(x, y), RecallAtKLoss((1, 2))(x, y))
    for wrong in ((), (0, 1), (1.5,), "12", 1.5, None, True):
        with pytest.raises(ValueError, match="ks must be one or more integers"):
            RecallAtKLoss(wrong)


def test_pnp_counts_the_negatives_before_each_positive():
    at = torch.tensor([0.0, 100.0, 60.0, 80.0, 170.0], dtype=torch.float64).deg2rad()
    x = torch.stack([at.cos(), at.sin()], 1)
    y = torch.tensor([0, 0, 1, 2, 3])
    # 100 degrees apart: from the first two of the others are nearer, from the second all three
    assert PNPLoss()(x, y).item() == pytest.approx((2 + 3) / 2)
    assert PNPLoss("Dq", alpha=2.0)(x, y).item() == pytest.approx(1 - (1 / 9 + 1 / 16) / 2)
    for variant in ("O", "Iu", "Ib", "Ds", "Dq"):
        assert PNPLoss(variant)(x[[0, 0, 4, 4]], [0, 0, 1, 1]).item() == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="b and alpha must be positive"):
        PNPLoss("Ib", b=0.0)


def test_pairs_alike_have_no_variance():
    corners = torch.eye(3, dtype=torch.float64)[[0, 0, 1, 1, 2, 2]]
    assert IntraPairVarianceLoss()(corners, [0, 0, 1, 1, 2, 2]) == 0
    at = torch.tensor([0.0, 40.0, 90.0, 150.0], dtype=torch.float64).deg2rad()
    x = torch.stack([at.cos(), at.sin()], 1)  # similar pairs at 40 and 60 degrees
    mean = (math.cos(math.radians(40)) + 0.5) / 2
    value = IntraPairVarianceLoss(pos_eps=0.0, miner=lambda rows: rows._replace(neg=rows.neg & False))(x, [0, 0, 1, 1])
    assert value.item() == pytest.approx((mean - 0.5) ** 2 / 2)


def test_threshold_consistent_margins_average_the_hard_pairs_alone():
    at = torch.tensor([0.0, 10.0, 60.0, 140.0], dtype=torch.float64).deg2rad()
    x = torch.stack([at.cos(), at.sin()], 1)
    # similar pairs at 10, which is near enough, and 80 degrees; dissimilar ones at 50 and farther
    expected = 0.9 - math.cos(math.radians(80)) + (math.cos(math.radians(50)) - 0.55)
    value = ThresholdConsistentMarginLoss(neg_margin=0.55)(x, [0, 0, 1, 1])
    assert value.item() == pytest.approx(expected)
    assert ThresholdConsistentMarginLoss()(x[[0, 0, 3, 3]], [0, 0, 1, 1]) == 0
    corners = torch.eye(3, dtype=torch.float64)[[0, 0, 1, 2]]  # what lies at a margin is among the hard pairs
    assert ThresholdConsistentMarginLoss(1.0, 0.0)(corners, [0, 0, 0, 1]).item() == pytest.approx(4 / 6)
    assert ThresholdConsistentMarginLoss(0.0, 0.0)(corners, [0, 1, 2, 2]).item() == pytest.approx(2 / 10)


def test_what_is_no_number_has_a_place_in_a_histogram():
    d = torch.tensor([[0.5, math.nan], [0.5, 2.0]])  # a place outside would end a GPU's program
    counts = soft_histogram(d, torch.ones(2, 2, dtype=torch.bool), 2, 2.0)
    assert counts[0].isnan().any()
    assert counts[1].tolist() == [0.5, 0.5, 1.0]


def test_what_rounding_leaves_outside_the_range_is_at_its_ends():
    d = torch.tensor([[-1e-3, 2.001]])
    assert soft_histogram(d, torch.ones(1, 2, dtype=torch.bool), 2, 2.0).tolist() == [[1.0, 0.0, 1.0]]


def potential_field(angles, labels, **settings):
    """Return the gradient of the energy in unit vectors, with the proxy of class 0 at 90 degrees."""
    loss = PotentialFieldLoss(4, 2, proxies_per_class=1, reduction="sum", **settings).double()
    with torch.no_grad():  # the proxies of classes 1 to 3 are far from all
        at = torch.tensor([90.0, 190.0, 270.0, 350.0], dtype=torch.float64).deg2rad()
        loss.proxies.copy_(torch.stack([at.cos(), at.sin()], 1))
    at = torch.tensor(angles, dtype=torch.float64).deg2rad()
    x = torch.stack([at.cos(), at.sin()], 1).requires_grad_()
    return torch.autograd.grad(loss(x, labels), x)[0]


def test_potential_fields_act_where_they_should_and_fade_with_the_distance():
    settings = {"delta": 0.2, "alpha": 2.0}
    # within delta of its proxy, and beyond delta of all others, nothing acts on a sample
    assert potential_field([95.0], [0], **settings).abs().max() == 0
    # the pull on a sample weakens with its distance from the proxy
    near, far = (potential_field([angle], [0], **settings).norm() for angle in (110.0, 130.0))
    assert near > far > 0
    # a sample of another class is pushed away by the proxy within delta only
    pushed = potential_field([98.0], [1], delta=0.2, alpha=2.0) - potential_field([98.0], [1], delta=0.1, alpha=2.0)
    assert pushed[0, 0] > 0  # a step down the gradient moves it to the left, away from 90 degrees


@pytest.mark.parametrize("block", [None, 3])
def test_weights_of_decoupled_contrast_are_of_the_whole_batch_and_constant(block):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(14, 5, generator=rng, dtype=torch.float64).requires_grad_()
    y = torch.arange(14) // 3  # the last class has two samples
    loss = DecoupledContrastiveLoss(0.3, sigma=0.5, block=block)
    value = loss(x, y)
    expected = decoupled_contrastive.reference(x, y, temperature=0.3, sigma=0.5)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(one, x)[0] for one in (value, expected)]
    torch.testing.assert_close(*gradients)
    # pairs that are all alike have the weight 1
    equal = torch.eye(4, dtype=torch.float64).repeat_interleave(2, 0)
    plain = DecoupledContrastiveLoss(0.3)(equal, torch.arange(8) // 2)
    torch.testing.assert_close(DecoupledContrastiveLoss(0.3, sigma=1e-3)(equal, torch.arange(8) // 2), plain)
    # opposite positives, for which e^{s / sigma} underflows, stay finite
    opposite = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], requires_grad=True)
    value = DecoupledContrastiveLoss(sigma=1e-3)(opposite, torch.tensor([0, 0, 1, 1]))
    assert torch.autograd.grad(value, opposite)[0].isfinite().all()
