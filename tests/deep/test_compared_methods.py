"""What only these obey: ALMN, A-BIER, HDC, the hierarchical triplet loss and the divergence of ABE."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from nearfar import (
    ALMNLoss,
    BIERLoss,
    BinomialDevianceLoss,
    ContrastiveLoss,
    EnsembleDivergence,
    GroupAdversary,
    HDCLoss,
    HierarchicalTripletLoss,
    IndependentActivations,
    NPairLoss,
    TripletLoss,
)
from nearfar.deep.losses.hdc import hardest
from nearfar.deep.regularizers.group_adversary import reversed_gradient
from tests.references import (
    almn,
    bier,
    ensemble_divergence,
    group_adversary,
    hdc,
    hierarchical_triplet,
    independent_activations,
)

from .gradients import same, samples

SETTINGS = [
    (ALMNLoss, almn, {"k": 1.4, "reg": 0.01}),
    (ALMNLoss, almn, {"k": 3.0}),
    (BIERLoss, bier, {"groups": (1, 4)}),
    (BIERLoss, bier, {"groups": 2, "alpha": 1.0, "beta": 0.1, "eta": 3.0}),
    (HDCLoss, hdc, {"groups": (2, 3), "shares": (0.3,)}),
    (HDCLoss, hdc, {"groups": 4, "shares": (0.9, 0.5), "margin": 2.5}),
    (HierarchicalTripletLoss, hierarchical_triplet, {"beta": 0.5, "levels": 3}),
    (HierarchicalTripletLoss, hierarchical_triplet, {"levels": 1}),
    (EnsembleDivergence, ensemble_divergence, {"groups": 3, "margin": 3.0}),
    (EnsembleDivergence, ensemble_divergence, {"groups": (2, 3), "margin": 0.5}),
    (IndependentActivations, independent_activations, {"groups": (1, 4)}),
    (IndependentActivations, independent_activations, {"groups": 5}),
]


def name_of(loss):
    return getattr(loss, "func", loss).__name__


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(("loss", "loops", "settings"), SETTINGS)
def test_settings_reach_the_formula(loss, loops, settings):
    x, y = samples((0, 0, 0, 1, 1, 2, 2, 2, 3, -1), dim=5)
    expected = loops.reference(x, y, **settings)
    same(loss(**settings)(x, y), expected, x, rtol=1e-9, atol=1e-11)
    assert not torch.allclose(loss()(x, y), expected), "the setting changes nothing"


def test_almn_of_no_slack_is_the_n_pair_loss():
    x, y = samples()
    same(ALMNLoss(k=1.0)(x, y), NPairLoss(reg=0.0)(x, y), x)
    values = [ALMNLoss(k=k)(x, y).item() for k in (1.0, 1.2, 1.5, 2.0)]
    assert values == sorted(values)


def test_bier_of_one_group_is_the_binomial_deviance():
    x, y = samples()
    same(BIERLoss(groups=1)(x, y), BinomialDevianceLoss()(x, y), x)


def test_bier_weighs_what_the_groups_before_have_not_learned():
    g = torch.Generator().manual_seed(0)
    second = torch.randn(4, 2, generator=g, dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1])
    learned = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]], dtype=torch.float64)
    parts = []
    for first in (learned, -learned[[0, 2, 1, 3]]):
        whole = BIERLoss(groups=(2, 2))(torch.cat([first, second], 1), y)
        parts.append((whole - BIERLoss(groups=1)(first, y)).item())
    assert parts[0] < parts[1]


def test_hdc_of_whole_shares_adds_the_contrastive_losses_of_its_groups():
    x, y = samples(dim=6)
    whole = HDCLoss(groups=2, shares=(1.0,), margin=1.0)(x, y)
    alone = [HDCLoss(groups=1, margin=1.0)(part, y) for part in x.split(3, dim=1)]
    same(whole, sum(alone), x)
    assert isinstance(ContrastiveLoss(), torch.nn.Module)


def test_the_hardest_share_of_a_row():
    loss = torch.tensor([[3.0, 1.0, 2.0, 9.0], [1.0, 1.0, 1.0, 0.0]])
    kept = torch.tensor([[True, True, True, False], [True, True, True, True]])
    assert hardest(loss, kept, 0.34).tolist() == [[True, False, True, False], [True, True, True, False]]
    assert hardest(loss, kept, 0.01).tolist() == [[True, False, False, False], [True, True, True, False]]
    assert hardest(loss, torch.zeros_like(kept), 0.5).tolist() == [[False] * 4] * 2


def test_one_level_of_the_tree_has_one_margin_for_each_class_of_anchors():
    x, _ = samples((0, 0, 1, 1), dim=3)
    y = torch.tensor([0, 0, 1, 1])
    with torch.no_grad():
        x[1] = x[0]  # both classes are points: nothing within them
        x[3] = x[2]
    same(HierarchicalTripletLoss(levels=1)(x, y), TripletLoss(margin=4.1)(x, y) / 2, x)


def test_near_classes_have_smaller_margins_than_far_ones():
    angles = torch.tensor([0.0, 0.02, 0.3, 0.32, 2.0, 2.02], dtype=torch.float64)
    x = torch.stack([angles.cos(), angles.sin()], 1)
    margins = hierarchical_triplet.margins(list(x), torch.tensor([0, 0, 1, 1, 2, 2]), 0.1, 16)
    assert margins[0, 1] < margins[0, 2]
    assert margins[1, 2] == pytest.approx(margins[0, 2])  # joined before they meet class 2


def test_groups_that_differ_have_no_divergence_left_to_ask_for():
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, -1.0, 0.0]])
    y = torch.tensor([0, 1])
    assert EnsembleDivergence(2, margin=1.0)(x, y) == 0
    assert EnsembleDivergence(2, margin=3.0)(x, y).item() == pytest.approx(0.5)
    assert EnsembleDivergence(1)(x, y) == 0


def test_groups_of_independent_lengths_add_one_for_each_pair():
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    lengths = torch.exp(signs)  # the lengths of one group say nothing about those of the other
    x = torch.cat([lengths[:, :1], lengths[:, 1:]], 1)
    y = torch.arange(4) % 2
    assert IndependentActivations(2)(x, y).item() == pytest.approx(1)
    apart = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    assert IndependentActivations(2)(apart, y) == 0
    assert IndependentActivations(2)(lengths[:, :1].expand(4, 2), y) > 1
    assert IndependentActivations(1)(x, y) == 0


def test_no_group_gains_by_its_scale():
    x, y = samples(dim=6)
    scales = torch.tensor([3.0, 3.0, 0.2, 0.2, 7.0, 7.0], dtype=x.dtype)
    torch.manual_seed(0)
    for term in (IndependentActivations(3), GroupAdversary(6, 3).double()):
        value = term(x, y)
        torch.testing.assert_close(term(x * scales, y), value)
        (grad,) = torch.autograd.grad(value, x)
        if isinstance(term, GroupAdversary):
            along = torch.stack([(g * v).sum(1) for g, v in zip(grad.split(2, 1), x.split(2, 1), strict=True)])
        else:
            along = torch.stack([(g * v).sum() for g, v in zip(grad.split(2, 1), x.split(2, 1), strict=True)])
        torch.testing.assert_close(along, torch.zeros_like(along))


@pytest.mark.parametrize("settings", [{}, {"groups": 2}, {"groups": (1, 4)}, {"lam": 3.0}, {"hidden": 4}])
def test_adversary_equals_the_loops_in_every_gradient(settings):
    x, y = samples((0, 0, 1, 1, 2, -1), dim=5)
    torch.manual_seed(0)
    term = GroupAdversary(5, **settings).double()
    with torch.no_grad():
        for weight in term.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    told = {name: value for name, value in settings.items() if name != "hidden"}
    expected = group_adversary.reference(x, y, weights=dict(term.named_parameters()), **told)
    found = torch.autograd.grad(term(x, y), [x, *term.parameters()])
    wanted = torch.autograd.grad(expected, [x, *term.parameters()])
    torch.testing.assert_close(found, wanted)
    if "hidden" in settings:
        assert {len(g[0].weight) for g in term.regressors} == {4}


def test_the_groups_run_away_from_what_their_adversaries_learn():
    """A step down the gradient lowers the value for the regressors, and raises it for the embeddings."""
    x, y = samples(dim=6)
    torch.manual_seed(0)
    term = GroupAdversary(6, lam=0.0).double()
    value = term(x, y)
    value.backward()
    with torch.no_grad():
        assert term(x - 1e-3 * x.grad, y) > value
        for weight in term.parameters():
            weight.sub_(1e-4 * weight.grad)
        assert term(x, y) < value


def test_a_reversed_gradient_leaves_the_value():
    x = torch.randn(5, requires_grad=True)
    out = reversed_gradient(x)
    assert torch.equal(out, x)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], -torch.ones(5))


def test_adversaries_begin_without_a_penalty():
    torch.manual_seed(0)
    x, y = samples(dim=6)
    torch.testing.assert_close(
        GroupAdversary(6, lam=1e6).double()(x, y), GroupAdversary(6, lam=0.0).double()(x, y), atol=2, rtol=0
    )
    term = GroupAdversary(6, lam=1.0).double()
    before = term(x, y)
    with torch.no_grad():
        term.regressors[0][0].bias.fill_(0.01)  # of a length below 1
        small = term(x, y)
        term.regressors[0][0].weight.mul_(3)
    assert (small - before).abs() < 1
    assert term(x, y) - small > 50


@pytest.mark.parametrize(
    "loss", [BIERLoss, HDCLoss, EnsembleDivergence, IndependentActivations, partial(GroupAdversary, 4)], ids=name_of
)
def test_groups_that_do_not_fit_the_embedding(loss):
    x, y = samples(dim=4)
    name = name_of(loss)
    with pytest.raises(ValueError, match=f"{name}: embeddings: 9 groups need as many dimensions, got 4"):
        loss(9)(x, y)
    with pytest.raises(ValueError, match=r"groups of \(3, 2\) dimensions are 5 together, got 4"):
        loss((3, 2))(x, y)
    for groups in (0, (2, 0), "2", ()):
        with pytest.raises(ValueError, match=f"{name}: groups must be a number of at least 1, or lengths"):
            loss(groups)


def test_other_settings_that_do_not_fit():
    with pytest.raises(ValueError, match="ALMNLoss: k must be at least 1"):
        ALMNLoss(k=0.5)
    with pytest.raises(ValueError, match="HDCLoss: shares must be numbers"):
        HDCLoss(shares=(1.5,))
    with pytest.raises(ValueError, match="HierarchicalTripletLoss: levels must be at least 1"):
        HierarchicalTripletLoss(levels=0)
    with pytest.raises(ValueError, match="BIERLoss: alpha and eta must be positive"):
        BIERLoss(alpha=0.0)
    with pytest.raises(ValueError, match="GroupAdversary: hidden must be at least 1, got 0"):
        GroupAdversary(6, hidden=0)
    with pytest.raises(ValueError, match=r"GroupAdversary: lam must not be negative, got -1\.0"):
        GroupAdversary(6, lam=-1.0)
    x, y = samples(dim=4)
    with pytest.raises(ValueError, match="GroupAdversary: embedding_dim is 6, embeddings have 4"):
        GroupAdversary(6).double()(x, y)
