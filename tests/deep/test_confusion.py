"""Energy and diversity confusion: their lemmas, draws and relations."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nearfar import (
    BinomialDevianceLoss,
    CMLLoss,
    DiversityConfusion,
    EnergyConfusion,
    FisherContrastiveLoss,
    FisherTripletLoss,
    NPairLoss,
    TripletLoss,
)
from nearfar.deep.objective.network_layers import lend
from nearfar.deep.regularizers.energy_confusion import class_moments
from nearfar.deep.wholebatch.batch_classes import batch_classes
from tests.references import diversity_confusion, energy_confusion

from .gradients import grad, samples


@pytest.mark.parametrize("on", ["raw", "normalized"])
@pytest.mark.parametrize("mode", ["paper", "ecaml_code"])
def test_closed_form_equals_the_loops(on, mode):
    x, y = samples()
    value, expected = EnergyConfusion(on=on, mode=mode)(x, y), energy_confusion.reference(x, y, on=on, mode=mode)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(grad(value, x), grad(expected, x))


def test_all_pairs_far_from_the_origin_keep_their_digits():
    x, y = samples()
    exact = EnergyConfusion()(x, y)
    moved = EnergyConfusion()((x.detach() + 1000).float(), y)
    assert moved.item() == pytest.approx(exact.item(), rel=1e-3)


def test_energy_of_one_pair_and_its_mean_over_pairs():
    x, y = samples()
    every = {
        round(energy_confusion.between(x.detach(), y.tolist(), I, J).item(), 9) for I in range(4) for J in range(I)
    }
    loss = EnergyConfusion("one")
    drawn = [round(loss(x, y).item(), 9) for _ in range(200)]
    assert set(drawn) == every
    counts = [drawn.count(value) for value in every]
    assert min(counts) > 15  # 33 expected of each of the 6 pairs
    assert sum(every) / 6 == pytest.approx(EnergyConfusion("all")(x, y).item())
    assert EnergyConfusion(6)(x, y).item() == pytest.approx(EnergyConfusion("all")(x, y).item())
    assert EnergyConfusion(100)(x, y).item() == pytest.approx(EnergyConfusion("all")(x, y).item())


def test_k_pairs_are_different_pairs():
    x, y = samples()
    every = [energy_confusion.between(x.detach(), y.tolist(), I, J).item() for I in range(4) for J in range(I)]
    left_out = {round(sum(every) - one, 6) for one in every}
    loss = EnergyConfusion(5)
    assert {round(5 * loss(x, y).item(), 6) for _ in range(60)} == left_out


def test_a_number_of_pairs_may_be_one_of_numpy():
    x, y = samples()
    torch.testing.assert_close(EnergyConfusion(np.int64(3), seed=5)(x, y), EnergyConfusion(3, seed=5)(x, y))


def test_lemmas():
    x, y = samples(labels=(0, 0, 0, 1, 1))
    value = EnergyConfusion("one")(x, y)
    I, J = x[y == 0], x[y == 1]
    means = (I.mean(0) - J.mean(0)).square().sum()  # squared MMD of the linear kernel

    def spread(z):
        return (z - z.mean(0)).square().sum(1).mean()

    torch.testing.assert_close(value, means + spread(I) + spread(J))

    def rho(a, b):
        return (a[:, None] - b).square().sum(2).mean()

    energy_distance = 2 * rho(I, J) - rho(I, I) - rho(J, J)
    torch.testing.assert_close(energy_distance / 2, means)
    assert value >= energy_distance / 2
    points = torch.tensor([[1.0, 2.0], [1.0, 2.0], [4.0, -2.0]], dtype=torch.float64)
    assert EnergyConfusion()(points, [0, 0, 1]).item() == pytest.approx(25.0)  # two points: the gap is closed


def test_descent_pulls_classes_together():
    x, y = samples(labels=(0, 0, 1, 1))
    with torch.no_grad():
        x[2:] += 3
    step = x.detach() - 0.1 * grad(EnergyConfusion()(x, y), x)

    def gap(z):
        return (z[:2].mean(0) - z[2:].mean(0)).norm()

    assert gap(step) < gap(x.detach())


def test_log_energy_has_the_relative_gradient():
    x, y = samples()
    energy, log = EnergyConfusion()(x, y), EnergyConfusion(mode="ecaml_code")(x, y)
    assert log.item() == pytest.approx(math.log(energy.item()))
    torch.testing.assert_close(grad(log, x), grad(energy, x) / energy.detach())
    same = torch.ones(4, 3, requires_grad=True)
    zero = EnergyConfusion(mode="ecaml_code")(same, [0, 0, 1, 1])
    assert zero == 0
    assert not grad(zero, same).any()


def test_layer_takes_the_whole_gradient():
    features = torch.randn(6, 5, requires_grad=True)
    layer = torch.nn.Linear(5, 3)
    loss = EnergyConfusion(mode="ecaml_code", layer=layer)
    y = torch.arange(6) % 3
    value = loss(layer(features), y, pooled=features)
    assert value.item() == pytest.approx(EnergyConfusion(mode="ecaml_code")(layer(features), y).item(), rel=1e-5)
    value.backward()
    assert features.grad is None
    assert layer.weight.grad.abs().sum() > 0
    assert not list(loss.parameters())
    assert list(loss.state_dict()) == ["_extra_state"]
    with pytest.raises(ValueError, match="pass the trunk's features as pooled="):
        loss(layer(features), y)


@pytest.mark.parametrize("term", [EnergyConfusion, FisherTripletLoss, FisherContrastiveLoss])
def test_layer_of_a_run_is_lent(term):
    x, y = samples()
    features, network = torch.randn(len(x), 6, dtype=x.dtype), torch.nn.Linear(6, x.shape[1]).to(x.dtype)
    told = term(layer="embedding")
    with pytest.raises(ValueError, match=rf"{term.__name__}: layer='embedding' is that of a training run; elsewhere"):
        told(x, y, pooled=features)
    objective = TripletLoss() + term() + 0.5 * told
    lend(network, objective)
    z = network(features)
    expected = TripletLoss()(z, y) + term()(z, y) + 0.5 * term(layer=network)(z, y, pooled=features)
    torch.testing.assert_close(objective(z, y, pooled=features), expected)
    assert repr(told) == f"{term.__name__}(layer='embedding')"
    for wrong in ("pooled", 3, torch.nn.Linear):
        with pytest.raises(ValueError, match=rf"{term.__name__}: layer must be a module, 'embedding' or None; got"):
            term(layer=wrong)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_layer_is_read_in_the_precision_of_the_features(dtype):
    features, y = torch.randn(6, 5).to(dtype), torch.arange(6) % 3
    layer = torch.nn.Linear(5, 3).to(dtype)
    value = EnergyConfusion(layer=layer)(layer(features), y, pooled=features)
    expected = EnergyConfusion()(
        torch.nn.functional.linear(features.double(), layer.weight.double(), layer.bias.double()), y
    )
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-6)
    value.backward()
    assert layer.weight.grad.dtype == dtype


def test_draws_are_seeded_and_resume():
    x, y = samples(labels=tuple(range(30)))

    def draw(loss):
        return [loss(x, y).item() for _ in range(20)]

    assert draw(EnergyConfusion("one", seed=3)) == draw(EnergyConfusion("one", seed=3))
    assert draw(EnergyConfusion("one", seed=3)) != draw(EnergyConfusion("one", seed=4))
    loss = EnergyConfusion("one")
    draw(loss)
    state = copy.deepcopy(loss.state_dict())
    assert state["_extra_state"].dtype == torch.uint8
    after = draw(loss)
    again = EnergyConfusion("one", seed=9)
    again.load_state_dict(state)
    assert draw(again) == after


def test_global_seed_neither_moves_nor_is_moved():
    x, y = samples(labels=tuple(range(30)))
    torch.manual_seed(0)
    first = torch.rand(1)
    torch.manual_seed(0)
    EnergyConfusion("one")(x, y)
    assert torch.rand(1) == first


@pytest.mark.parametrize("pairs", ["all", "one", 3])
@pytest.mark.parametrize("mode", ["paper", "ecaml_code"])
@pytest.mark.parametrize("labels", [(), (0,), (0, 0, 0), (-1, -1), (0, -1)])
def test_fewer_than_two_classes_give_zero(pairs, mode, labels):
    x = torch.randn(len(labels), 3, requires_grad=True)
    value = EnergyConfusion(pairs, mode=mode)(x, torch.tensor(labels, dtype=torch.long))
    assert value == 0
    assert not grad(value, x).any()


@pytest.mark.parametrize("bad", ["two", 0, -1, True, 1.5])
def test_bad_number_of_pairs(bad):
    with pytest.raises(ValueError, match='pairs must be "one", "all" or a number'):
        EnergyConfusion(bad)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("on", ["raw", "normalized"])
def test_diversity_equals_the_loops(center, on):
    x, y = samples()
    value, expected = (
        DiversityConfusion(center=center, on=on)(x, y),
        diversity_confusion.reference(x, y, center=center, on=on),
    )
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(grad(value, x), grad(expected, x))


def test_diversity_is_trace_plus_mean():
    x, y = samples()
    covariance = torch.cov(x.detach().T, correction=0)
    centered, plain = DiversityConfusion(center=True)(x, y), DiversityConfusion()(x, y)
    torch.testing.assert_close(centered.detach(), torch.linalg.eigvalsh(covariance).sum())
    torch.testing.assert_close(plain, centered + x.mean(0).square().sum())


def test_diversity_is_the_mixture_of_class_moments():
    x, y = samples(labels=(0, 0, 0, 1, 1, 2))
    means, spreads = class_moments(x, batch_classes(y))
    shares = torch.bincount(y) / len(y)
    torch.testing.assert_close(DiversityConfusion()(x, y), (shares * (spreads + means.square().sum(1))).sum())


def test_diversity_of_unit_vectors_is_one_without_gradient():
    x, y = samples()
    value = DiversityConfusion(on="normalized")(x, y)
    assert value.item() == pytest.approx(1.0)
    torch.testing.assert_close(grad(value, x), torch.zeros_like(x))
    unit = torch.nn.functional.normalize(x)
    centered = DiversityConfusion(on="normalized", center=True)(x, y)
    torch.testing.assert_close(centered, 1 - unit.mean(0).square().sum())


def test_diversity_is_radial_where_the_base_loss_is_not():
    x, y = samples()
    radial, base = grad(DiversityConfusion()(x, y), x), grad(BinomialDevianceLoss()(x, y), x)
    torch.testing.assert_close(radial, 2 * x.detach() / len(x))
    torch.testing.assert_close((base * x).sum(1).detach(), torch.zeros(len(x), dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.slow
def test_mean_of_bounded_norms_concentrates():
    g = torch.Generator().manual_seed(0)
    zeta, b, delta = 4.0, 32, 0.1
    x = torch.rand(5000, b, 4, generator=g, dtype=torch.float64)  # ||x||^2 in [0, zeta], expectation 4/3
    means = torch.stack([DiversityConfusion()(batch, torch.zeros(b, dtype=torch.long)) for batch in x])
    bound = zeta * math.sqrt(math.log(4 / delta) / (2 * b))
    assert ((means - 4 / 3).abs() <= bound).double().mean() >= 1 - delta / 2


def test_composition_adds_both_confusions():
    x, y = samples(labels=(0, 0, 1, 1, 2, 2))
    loss = CMLLoss(NPairLoss(), energy=0.3, diversity=0.02)
    by_hand = NPairLoss() + 0.3 * EnergyConfusion() + 0.02 * DiversityConfusion()
    torch.testing.assert_close(loss(x, y), by_hand(x, y))
    assert list(loss.parts_) == ["NPairLoss", "EnergyConfusion", "DiversityConfusion"]
    assert list(CMLLoss(energy=0).names()) == ["TripletLoss", "DiversityConfusion"]
    assert list(CMLLoss(diversity=0).names()) == ["TripletLoss", "EnergyConfusion"]


def test_composition_takes_sums_and_own_terms():
    x, y = samples(labels=(0, 0, 1, 1, 2, 2))
    base = TripletLoss(0.1) + 0.5 * BinomialDevianceLoss()
    loss = CMLLoss(base, energy=2.0 * EnergyConfusion(on="normalized"), diversity=DiversityConfusion(center=True))
    value = loss(x, y)
    assert loss.weights == [1.0, 0.5, 2.0, 1.0]
    parts = torch.stack(list(loss.parts_.values()))
    torch.testing.assert_close(value.detach(), (parts * torch.tensor(loss.weights, dtype=parts.dtype)).sum())
    with pytest.raises(TypeError, match="CMLLoss: base must be a loss"):
        CMLLoss("TripletLoss")
    for wrong in ("much", float("nan"), None):
        with pytest.raises(ValueError, match=f"CMLLoss: energy must be a finite number or a term; got {wrong!r}"):
            CMLLoss(energy=wrong)
