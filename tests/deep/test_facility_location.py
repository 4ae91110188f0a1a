"""Facility location: counts, greedy selection, refinement, the loss, its schedule and its edges."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn import metrics

from nearfar.deep.losses.facility_location import FacilityLocationLoss, partition_scores
from nearfar.deep.losses.facility_location import search as facility
from nearfar.deep.losses.facility_location.partition_scores import (
    AGREEMENTS,
    MEANS,
    Agreement,
    Base,
    expected_information,
    margins,
)
from tests.references import facility_location as plain

MEASURES = [("nmi", mean) for mean in MEANS] + [("ami", mean) for mean in MEANS]
MEASURES += [(kind, "geometric") for kind in AGREEMENTS if kind not in ("nmi", "ami")]
every_measure = pytest.mark.parametrize(("kind", "mean"), MEASURES)


def draw(seed, m=18, classes=6, spread=0.7, d=3):
    """Noisy clusters on the sphere, every class at least once."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, m - classes)])
    z = rng.standard_normal((classes, d))[y] + spread * rng.standard_normal((m, d))
    return z / np.linalg.norm(z, axis=1, keepdims=True), y


def problem_of(seed, gamma=2.0, kind="nmi", mean="geometric", **how):
    z, y = draw(seed, **how)
    return facility.Problem(facility.distances(z), Agreement(y, kind, mean), gamma), y


def score(problem, y, chosen, **how):
    return plain.score(problem.d.tolist(), y.tolist(), problem.gamma, list(map(int, chosen)), **how)


# How far a partition is from the classes


@every_measure
@pytest.mark.parametrize("seed", range(15))
def test_margin_of_a_partition_equals_the_loops(kind, mean, seed):
    rng = np.random.default_rng(seed)
    y = draw(seed)[1]
    a = np.unique(rng.integers(0, rng.integers(1, 9), len(y)), return_inverse=True)[1]
    expected = plain.margin(y.tolist(), a.tolist(), kind, mean)
    assert Agreement(y, kind, mean).of(a) == pytest.approx(expected, abs=1e-12)
    assert Agreement(y, kind, mean).of(y) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_margin_equals_scikit_learn(seed):
    y, a = draw(seed)[1], np.unique(np.random.default_rng(seed + 50).integers(0, 5, 18), return_inverse=True)[1]
    for mean in MEANS:
        nmi = metrics.normalized_mutual_info_score(y, a, average_method=mean)
        ami = metrics.adjusted_mutual_info_score(y, a, average_method=mean)
        assert Agreement(y, "nmi", mean).of(a) == pytest.approx(1 - nmi)
        assert Agreement(y, "ami", mean).of(a) == pytest.approx(1 - max(ami, 0))
    assert Agreement(y, "ari").of(a) == pytest.approx(1 - max(metrics.adjusted_rand_score(y, a), 0))
    assert Agreement(y, "vmeasure").of(a) == pytest.approx(1 - metrics.v_measure_score(y, a))


def test_geometric_agreement_is_not_below_arithmetic():
    y, a = draw(0)[1], np.arange(18) % 4
    assert Agreement(y, "nmi", "geometric").of(a) <= Agreement(y, "nmi", "arithmetic").of(a)


@pytest.mark.parametrize("kind", AGREEMENTS)
def test_trivial_partitions(kind):
    one, two = np.zeros(6, dtype=np.int64), np.array([0, 0, 0, 1, 1, 1])
    assert Agreement(one, kind).of(one) == 0
    assert Agreement(two, kind).of(one) == 1
    assert Agreement(one, kind).of(two) == 1
    assert Agreement(two, kind).of(1 - two) == pytest.approx(0)


def test_expected_information_of_every_cluster_size():
    for c in (1, 3, 7):
        whole = [0] * c + list(range(1, 8 - c))
        for k in range(1, 8):
            mean = np.mean([_part(whole, members) for members in combinations(range(7), k)])
            assert expected_information(7, c)[k] == pytest.approx(mean, abs=1e-12)


def _part(classes, members):
    n, c, k = sum(classes[i] == 0 for i in members), classes.count(0), len(members)
    return n / 7 * np.log(7 * n / (c * k)) if n else 0.0


@every_measure
@pytest.mark.parametrize("seed", range(5))
def test_many_candidates_equal_one_by_one(kind, mean, seed):
    rng = np.random.default_rng(seed)
    y = draw(seed)[1]
    a, moved = rng.integers(0, 4, len(y)), rng.random((9, len(y))) < 0.3
    agreement = Agreement(y, kind, mean)
    found = margins(agreement, Base.of(agreement, a, 4), moved)
    for row, value in zip(moved, found, strict=True):
        assert value == pytest.approx(agreement.of(np.where(row, 4, a)), abs=1e-12)


# Greedy selection


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("seed", range(25))
def test_greedy_equals_brute_force(seed, gamma):
    problem, y = problem_of(seed, gamma)
    chosen = facility.greedy(problem, 6)
    expected, scores = plain.greedy(problem.d.tolist(), y.tolist(), gamma, 6)
    assert chosen.tolist() == expected
    fresh = [problem.value(chosen[: k + 1]) for k in range(6)]
    np.testing.assert_allclose(fresh, scores, atol=1e-9)


@every_measure
@pytest.mark.parametrize("seed", range(3))
def test_greedy_equals_brute_force_for_every_measure(seed, kind, mean):
    problem, y = problem_of(seed, 3.0, kind, mean)
    chosen = facility.greedy(problem, 6)
    _, scores = plain.greedy(problem.d.tolist(), y.tolist(), 3.0, 6, agreement=kind, nmi=mean)
    fresh = [problem.value(chosen[: k + 1]) for k in range(6)]
    np.testing.assert_allclose(fresh, scores, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_first_facility_is_the_medoid_and_all_points_reach_zero(seed):
    problem, _ = problem_of(seed)
    assert facility.greedy(problem, 1)[0] == problem.d.sum(1).argmin()
    everything = facility.greedy(problem, 18)
    assert sorted(everything) == list(range(18))
    assert problem.d[np.arange(18), everything[facility.assign(problem.d, everything)]].sum() == 0


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_not_above_the_optimum(seed):
    problem, _ = problem_of(seed, m=9, classes=3)
    optimum = max(problem.value(np.array(s)) for s in combinations(range(9), 3))
    for how in ("paper", "exact", "full"):
        assert problem.value(facility.refine(problem, facility.greedy(problem, 3), how)) <= optimum + 1e-12


def test_stochastic_greedy_with_all_candidates_is_the_full_greedy():
    problem, _ = problem_of(0)
    rng = np.random.default_rng(0)
    assert facility.greedy(problem, 6, size=18, rng=rng).tolist() == facility.greedy(problem, 6).tolist()
    few = [facility.greedy(problem, 6, size=2, rng=np.random.default_rng(s)) for s in (1, 1, 2)]
    assert few[0].tolist() == few[1].tolist() != few[2].tolist()
    assert all(len(set(chosen)) == 6 for chosen in few)


def test_duplicates_stay_with_the_first_and_facilities_with_themselves():
    z, y = draw(0)
    z[[4, 9, 13]] = z[2]
    problem = facility.Problem(facility.distances(z), Agreement(y), 2.0)
    assert (problem.d[np.ix_([2, 4, 9, 13], [2, 4, 9, 13])] == 0).all()
    nearest = facility.assign(problem.d, np.array([5, 9, 2]))
    assert nearest[[2, 4, 9, 13]].tolist() == [2, 1, 1, 1]
    chosen = facility.greedy(problem, 18)
    assert len(np.unique(facility.assign(problem.d, chosen))) == 18


# Refinement


@pytest.mark.parametrize("how", ["paper", "exact", "full"])
@pytest.mark.parametrize("gamma", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("seed", range(12))
def test_refinement_equals_brute_force(seed, gamma, how):
    problem, y = problem_of(seed, gamma)
    start = np.random.default_rng(seed).choice(18, 6, replace=False)
    found = facility.refine(problem, start, how)
    expected = plain.refine(problem.d.tolist(), y.tolist(), gamma, start.tolist(), how, 5)
    assert found.tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_paper_refinement_does_not_fall_from_pass_to_pass(seed):
    problem, _ = problem_of(seed, 5.0)
    chosen = np.random.default_rng(seed).choice(18, 6, replace=False)
    values = [problem.value(chosen)]
    for _ in range(5):
        chosen = facility.refine(problem, chosen, "paper", passes=1)
        values.append(problem.value(chosen))
    assert (np.diff(values) >= -1e-9).all()


@pytest.mark.parametrize("how", ["exact", "full"])
@pytest.mark.parametrize("seed", range(10))
def test_exact_and_full_refinement_do_not_fall_from_swap_to_swap(seed, how, monkeypatch):
    problem, y = problem_of(seed, 5.0)
    values = []
    swap = facility._Swaps.swap

    def recorded(self, k, candidate):
        before = problem.value(self.facilities)
        swap(self, k, candidate)
        values.append(problem.value(self.facilities) - before)

    monkeypatch.setattr(facility._Swaps, "swap", recorded)
    facility.refine(problem, facility.medoids(-problem.d, y), how)  # the outermost point of each class
    assert values, "a poor start is improved"
    assert min(values) > 0


@pytest.mark.parametrize("seed", range(8))
def test_full_refinement_leaves_no_improving_swap(seed):
    problem, _ = problem_of(seed, 5.0)
    found = facility.refine(problem, facility.greedy(problem, 6), "full")
    best = problem.value(found)
    for k in range(6):
        for j in np.setdiff1d(np.arange(18), found):
            swapped = found.copy()
            swapped[k] = j
            assert problem.value(swapped) <= best + 1e-9
    for how in ("exact", "full"):
        assert facility.refine(problem, found, how).tolist() == found.tolist()


# The loss


def tensors(seed, **how):
    z, y = draw(seed, **how)
    return torch.tensor(3 * z, requires_grad=True), torch.tensor(y)


SETTINGS = [
    {},
    {"gamma": 0.0},
    {"gamma": 1.5, "refine": None},
    {"gamma": 1.5, "refine": "exact", "nmi": "arithmetic"},
    {"gamma": 1.5, "refine": "full", "agreement": "ami"},
    {"gamma": 3.0, "agreement": "ari", "warm_start_oracle": True},
    {"gamma": 3.0, "agreement": "vmeasure", "passes": 1},
    {"gamma": 3.0, "agreement": "const"},
    {"normalize_sum": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_equal_the_loops(settings, seed):
    x, y = tensors(seed)
    y[4] = -1
    value = FacilityLocationLoss(**settings)(x, y)
    how = {{"refine": "refine_how"}.get(name, name): setting for name, setting in settings.items()}
    expected = plain.reference(x, y, **how)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    grads = [torch.autograd.grad(v, x)[0] for v in (value, expected)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)
    assert not grads[0][4].any(), "a sample of unknown class takes no part"


@pytest.mark.parametrize("refine", ["paper", "exact", "full", None])
@pytest.mark.parametrize("seed", range(10))
def test_a_start_from_the_class_medoids_never_ends_below_them(seed, refine):
    z, y = draw(seed, spread=0.2)
    search = FacilityLocationLoss(refine=refine, warm_start_oracle=True).search
    problem = facility.Problem(facility.distances(z), Agreement(y), 0.1)
    facilities, oracle, delta = search.run(z, y, 0.1, (0,))
    rows = np.arange(len(z))
    inner = 0.1 * delta - problem.d[rows, facilities].sum() + problem.d[rows, oracle].sum()
    assert inner >= -1e-12


@pytest.mark.parametrize("seed", range(3))
def test_exact_maximum_is_never_negative_and_not_below_the_search(seed):
    x, y = tensors(seed, m=9, classes=3)
    z = x.detach() / x.detach().norm(dim=1, keepdim=True)
    d = plain.plain_distances(z)
    oracle = plain.medoids(d, y.tolist())
    target = -sum(d[i][oracle[int(y[i])]] for i in range(9))
    best = max(plain.score(d, y.tolist(), 2.0, list(s)) for s in combinations(range(9), 3))
    assert best - target >= 0
    assert FacilityLocationLoss(2.0, warm_start_oracle=True)(x, y).item() <= best - target + 1e-9


def test_tight_classes_cost_nothing():
    y = torch.arange(12) % 4
    x = torch.eye(4, dtype=torch.float64)[y] + 1e-3 * torch.randn(12, 4, dtype=torch.float64)
    assert float(FacilityLocationLoss(0.01)(x, y)) == 0


def test_rotation_scale_and_class_names_do_not_matter():
    x, y = tensors(0)
    loss = FacilityLocationLoss(2.0)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=x.dtype, generator=torch.Generator().manual_seed(0)))[0]
    names = torch.tensor([11, -7, 10**12, 3, 0, 5])
    torch.testing.assert_close(loss(5 * x @ turn, names[y]), loss(x, y))


def test_normalize_sum_at_the_paper_batch_is_the_loss_over_128():
    x, y = tensors(0, m=128, classes=32)
    torch.testing.assert_close(FacilityLocationLoss(normalize_sum=True)(x, y), FacilityLocationLoss()(x, y) / 128)


def test_gamma_decays_per_period_of_training_batches():
    loss = FacilityLocationLoss(gamma=8.0, decay=0.5, period=3)
    x, y, found = torch.randn(12, 4), torch.arange(12) // 3, []
    for call in range(8):
        loss.train(call != 1)  # a validation batch does not count
        loss.on_epoch(call)
        loss(x, y)
        found.append(loss.stats_["gamma"])
    assert found == [8, 8, 8, 8, 4, 4, 4, 2]
    again = FacilityLocationLoss(gamma=8.0, decay=0.5, period=3)
    again.load_state_dict(loss.state_dict())
    assert again.gamma_ == loss.gamma_ == 2
    with pytest.raises(ValueError, match="FacilityLocationLoss: period must be at least 1, got 0"):
        FacilityLocationLoss(period=0)


def test_gamma_decays_per_epoch_and_is_in_the_state():
    loss = FacilityLocationLoss(10.0)
    assert loss.gamma_ == 10
    loss.on_epoch(3)
    assert loss.gamma_ == pytest.approx(10 * 0.94**3)
    again = FacilityLocationLoss(10.0)
    again.load_state_dict(loss.state_dict())
    assert again.gamma_ == loss.gamma_
    x, y = tensors(0)
    torch.testing.assert_close(loss(x, y), FacilityLocationLoss(10 * 0.94**3)(x, y))
    assert loss.stats_["gamma"] == loss.gamma_


def test_stochastic_greedy_is_seeded_and_resumes():
    batches = [tensors(seed, m=40, classes=10) for seed in range(6)]

    def values(loss, some):
        return [loss(x, y).item() for x, y in some]

    def make(seed=0):
        return FacilityLocationLoss(greedy="stochastic", refine=None, seed=seed)

    loss = make()
    whole = values(make(), batches)
    assert values(loss, batches[:3]) == whole[:3]
    resumed = make()
    resumed.load_state_dict(loss.state_dict())
    assert values(resumed, batches[3:]) == whole[3:]
    assert values(make(1), batches) != whole
    all_candidates = FacilityLocationLoss(greedy="stochastic", refine=None, epsilon=1e-9)
    assert values(all_candidates, batches) == values(FacilityLocationLoss(refine=None), batches)


@pytest.mark.parametrize("labels", [[], [2], [1] * 6, list(range(6)), [-1] * 4, [0, 0, 0, -1], [0, 1, 2, -1]], ids=str)
def test_nothing_to_cluster_is_a_zero_with_gradient(labels):
    x = torch.randn(len(labels), 3, requires_grad=True)
    value = FacilityLocationLoss()(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


@pytest.mark.parametrize("refine", ["paper", "exact", "full"])
def test_equal_embeddings_are_finite(refine):
    x = torch.ones(8, 3, requires_grad=True)
    value = FacilityLocationLoss(refine=refine)(x, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]))
    value.backward()
    assert value.isfinite()
    assert (x.grad == 0).all()


def test_singletons_are_legal_facilities():
    x, _ = tensors(0)
    y = torch.tensor([0, 0, 0, 0, *range(1, 15)])
    value = FacilityLocationLoss()(x, y)
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"refine": "pam"}, "refine must be one of 'paper', 'exact', 'full', None; got 'pam'"),
        ({"greedy": "lazy"}, "greedy must be one of 'full', 'stochastic'; got 'lazy'"),
        ({"nmi": "max"}, "nmi must be one of 'geometric', 'arithmetic'; got 'max'"),
        ({"agreement": "purity"}, "agreement must be one of"),
        ({"gamma": -1.0}, "gamma must be at least 0"),
        ({"epsilon": 1.0}, "epsilon must be between 0 and 1, got 1.0"),
        ({"passes": 0}, "passes must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(settings, says):
    with pytest.raises(ValueError, match=f"FacilityLocationLoss: {says}"):
        FacilityLocationLoss(**settings)


def test_other_supervision_and_references_are_refused():
    x, y = tensors(0)
    with pytest.raises(ValueError, match="labels must be one class per sample"):
        FacilityLocationLoss()(x, (y[:, None] == y).long())
    with pytest.raises(ValueError, match="ref does not apply"):
        FacilityLocationLoss()(x, y, ref=x, ref_labels=y)


@pytest.mark.parametrize("kind", AGREEMENTS)
def test_margins_by_the_cells_that_change_equal_those_by_all_cells(kind, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 5)
    agreement, a = Agreement(y, kind), rng.integers(0, 4, 30)
    base, moved = Base.of(agreement, a, 4), rng.random((8, 30)) < 0.3
    expected = [agreement.of(np.where(row, 4, a)) for row in moved]
    for small in (0, 1 << 14):
        monkeypatch.setattr(partition_scores, "SMALL_TABLE", small)
        np.testing.assert_allclose(margins(agreement, base, moved), expected, atol=1e-12)
