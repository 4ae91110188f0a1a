"""Losses with functions as their distances: Lp, signal to noise, and a user's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar import LpDistance, SNRDistance
from nearfar.deep import mine_offline, parse_objective
from nearfar.deep.pairwise.comparison import Comparison
from tests.deep.gradients import same
from tests.references import lp, snr

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, -1])
LOSSES = [
    "TripletLoss",
    "NCALoss",
    "SoftmaxTripletLoss",
    "LiftedLoss",
    "GeneralizedLiftedLoss",
    "CenterTripletLoss",
]


def vectors(n=9, seed=0, dim=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=g, dtype=torch.float64, requires_grad=True)


def squared(x, ref):
    return (x[:, None] - ref).square().sum(2)


def as_matrix(rows):
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize(
    "how", [{"p": 1}, {"p": 2}, {"p": 2, "power": 2}, {"p": 3}, {"p": "inf"}, {"p": 1, "power": 2}]
)
def test_lp_equals_its_loops_in_value_and_gradient(how):
    x, ref = vectors(), vectors(5, 1)
    found, expected = LpDistance(**how)(x, ref), as_matrix(lp.reference(x, ref, **how))
    weights = torch.rand(9, 5, dtype=torch.float64)
    same((found * weights).sum(), (expected * weights).sum(), x)
    torch.testing.assert_close(found, expected)


def test_snr_equals_its_loops_in_value_and_gradient():
    x, ref = vectors(), vectors(5, 1)
    found, expected = SNRDistance()(x, ref), as_matrix(snr.reference(x, ref))
    torch.testing.assert_close(found, expected)
    weights = torch.rand(9, 5, dtype=torch.float64)
    same((found * weights).sum(), (expected * weights).sum(), x)
    torch.testing.assert_close(SNRDistance()(x, x), SNRDistance()(x, x.clone()))


def test_scaled_in_its_own_norm():
    x = vectors()
    scaled = x / x.abs().sum(1, keepdim=True)
    torch.testing.assert_close(LpDistance(1, normalize=True)(x, x), LpDistance(1)(scaled, scaled))


@pytest.mark.parametrize(
    "distance", [LpDistance(1), LpDistance("inf"), LpDistance(3, power=2), SNRDistance()], ids=repr
)
@pytest.mark.parametrize("kind", ["equal", "zeros", "flat"])
def test_points_that_coincide_have_a_finite_gradient(distance, kind):
    x = vectors().detach()
    if kind == "zeros":
        x = 0 * x
    elif kind == "equal":
        x[1] = x[0]
    else:
        x[:] = 0.1
    x.requires_grad_()
    value = nearfar.TripletLoss(distance=distance, normalize=False)(x, Y)
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("name", LOSSES)
def test_a_function_gives_what_its_name_does(name, block):
    how = {"normalize": True} | ({} if name == "CenterTripletLoss" else {"block": block})
    x = vectors()
    ours = getattr(nearfar, name)(distance=squared, **how)(x, Y)
    same(ours, getattr(nearfar, name)(distance="sq_euclidean", **how)(x, Y), x)


@pytest.mark.parametrize(
    "how",
    [
        {"swap": True},
        {"soft": True},
        {"miner": nearfar.BatchHard()},
        {"miner": nearfar.BatchHard(), "swap": True},
        {"triplets": "semihard"},
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [None, 2])
def test_every_form_of_triplets(how, block):
    x = vectors()
    same(
        nearfar.TripletLoss(0.5, distance=squared, block=block, **how)(x, Y),
        nearfar.TripletLoss(0.5, block=block, **how)(x, Y),
        x,
    )


def test_pairs_references_memories_and_single_samples():
    x, ref = vectors(), vectors(5, 1)
    ref_y = torch.tensor([0, 1, 2, 3, 0])
    how = {"form": "plain", "reduction": "active"}
    ours = nearfar.ContrastiveLoss(distance=squared, **how)
    named = nearfar.ContrastiveLoss(distance="sq_euclidean", **how)
    same(ours(x, Y, ref=ref, ref_labels=ref_y), named(x, Y, ref=ref, ref_labels=ref_y), x)
    torch.testing.assert_close(ours.sample_losses(x, Y), named.sample_losses(x, Y))
    memories = [nearfar.CrossBatchMemory(loss, size=12) for loss in (ours, named)]
    for step in range(2):
        x = vectors(seed=step)
        same(memories[0](x, Y), memories[1](x, Y), x)
    adversarial = []
    for distance in (squared, "sq_euclidean"):
        torch.manual_seed(0)
        loss = nearfar.TripletLoss(1.0, distance=distance, normalize=False)
        adversarial.append(nearfar.AdversarialTriplet(4, loss=loss).double()(x, Y))
    torch.testing.assert_close(*adversarial)


def test_snr_in_a_contrastive_loss_is_that_of_its_method():
    x = vectors()
    ours = nearfar.ContrastiveLoss(0.8, form="plain", pos_margin=0.1, distance=SNRDistance(), reduction="balanced")
    same(ours(x, Y), nearfar.SNRContrastiveLoss(0.1, 0.8)(x, Y), x)


def test_a_module_is_a_distance_with_parameters():
    class Learned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))

        def forward(self, x, ref):
            return squared(x * self.scale, ref * self.scale)

    x = vectors()
    for block in (None, 2):
        loss = nearfar.TripletLoss(0.5, distance=Learned(), normalize=False, block=block)
        assert [name for name, _ in loss.named_parameters()] == ["distance.scale"]
        scaled = x.detach().requires_grad_()
        nearfar.TripletLoss(0.5, normalize=False)(scaled, Y).backward()
        loss(x, Y).backward()
        torch.testing.assert_close(loss.distance.scale.grad, (x * scaled.grad).sum(0).detach())


def test_in_text_and_offline():
    loss = parse_objective("TripletLoss(distance=LpDistance(p=1, power=2), normalize=False)")
    assert "LpDistance(p=1, power=2, normalize=False)" in repr(loss)
    assert repr(parse_objective(repr(loss))) == repr(loss)
    x = vectors().detach()
    found = mine_offline(nearfar.BatchHard(), x, Y, distance=squared)
    assert found.tolist() == mine_offline(nearfar.BatchHard(), x, Y).tolist()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nearfar.TripletLoss(distance="manhattan"), "TripletLoss: distance must be one of 'sq_euclidean'"),
        (lambda: nearfar.TripletLoss(distance=LpDistance), "TripletLoss: distance must be one of"),
        (lambda: nearfar.CenterTripletLoss(distance=3), "CenterTripletLoss: distance must be one of"),
        (lambda: LpDistance(0.5), "LpDistance: p must be a number of at least 1 or 'inf', got 0.5"),
        (lambda: LpDistance("max"), "LpDistance: p must be a number of at least 1 or 'inf', got 'max'"),
        (lambda: LpDistance(1, power=0.5), "LpDistance: power must be at least 1, got 0.5"),
        (
            lambda: nearfar.TripletLoss(distance=lambda x, ref: x @ ref.T[:, 1:])(vectors(), Y),
            r"distance: expected \(9, 9\) dissimilarities of 9 to 9 vectors, got \(9, 8\)",
        ),
        (
            lambda: nearfar.TripletLoss(distance=squared, miner=nearfar.DistanceWeighted())(vectors(), Y),
            "DistanceWeighted: the distances of unit vectors must be Euclidean, cosine or dot",
        ),
    ],
)
def test_bad_distances_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_rows_know_their_vectors():
    x = vectors()
    c = Comparison(x, Y, x, Y, slice(0, 9), True, "cosine", False).prepared()
    rows = c.block(c.x, c.ref, 2, 5)
    torch.testing.assert_close(1 - rows.x @ rows.ref.T, rows.d)
