"""Learners whose problem has no unit of length of its own find the same metric, up to scale, in any units of X."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import nearfar
from tests.learners import LEARNERS, data, distances, fit, make

X, Y = data()
PAIRS = np.random.default_rng(0).permutation(60).reshape(30, 2)
FAR = np.linalg.norm((X[PAIRS[:, 0]] - X[PAIRS[:, 1]]) * [1.0, 2.0, 0.5, 1.5], axis=1) + 0.1

FITS = {
    "sstress": lambda unit: fit(nearfar.MDSMetric(), unit * X, Y),
    "sstress of listed pairs": lambda unit: fit(nearfar.MDSMetric(), unit * X, pairs=PAIRS, distances=unit * FAR),
    "sstress in the plane": lambda unit: fit(nearfar.MDSMetric(n_components=2), unit * X, Y),
    "stress": lambda unit: fit(nearfar.MDSMetric(loss="stress", n_components=2), unit * X, Y),
    "target distances": lambda unit: fit(
        nearfar.SideInformationMetric(), unit * X, target_pairs=PAIRS, target_distances=unit * FAR
    ),
    "target distances and labels": lambda unit: fit(
        nearfar.SideInformationMetric(beta=unit**2), unit * X, Y, target_pairs=PAIRS, target_distances=unit * FAR
    ),
    "subspace": lambda unit: fit(nearfar.LowRankGMML(2, subspace="trace", random_state=0), unit * X, Y),
    "field": lambda unit: fit(nearfar.LLMA(tol=1e-10, max_iter=2000), unit * X, pairs=PAIRS),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("unit", [1e-5, 1e4])
def test_units_do_not_end_a_search(name, unit):
    as_they_are, scaled = FITS[name](1.0), FITS[name](unit)
    d = distances(as_they_are, X)
    assert as_they_are.converged_
    assert scaled.converged_
    assert_allclose(distances(scaled, unit * X) / unit, d, atol=2e-3 * d.max())


@pytest.mark.parametrize(
    "learner",
    [
        nearfar.GMML(),
        nearfar.LowRankGMML(2),
        nearfar.PartialLabelGMML(),
        nearfar.LayeredGMML(),
        nearfar.AML(),
    ],
    ids=lambda learner: type(learner).__name__,
)
@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_geometric_means_of_very_small_and_very_large_scatters(learner, unit):
    # the product of two scatters, of the fourth power of the unit, would be 0 or infinite
    expected = distances(fit(learner, X, Y), X)
    found = distances(fit(learner, unit * X, Y), unit * X)
    assert_allclose(found / found.max(), expected / expected.max(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "learner",
    [
        nearfar.NCA(init_scale="median", max_iter=10),
        nearfar.NCA(2, max_iter=10),  # starts from discriminants, whose within-class covariance is I
        nearfar.NCA(init_scale="median", dtype="float32", max_iter=10),
        nearfar.NCA(init_scale="median", batch_size=32, max_iter=5, random_state=0),
        nearfar.FastNCA(init_scale="median", max_iter=10),
        nearfar.FastNCA(2, max_iter=10),
    ],
    ids=repr,
)
@pytest.mark.parametrize("unit", [1e-100, 1e-3, 30.0, 1e100])
def test_a_search_from_a_start_without_units_takes_the_same_steps_in_any_unit(learner, unit):
    learner = clone(learner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = distances(learner.fit(X, Y), X)
        found = distances(learner.fit(unit * X, Y), unit * X)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())


@pytest.mark.parametrize("shrinkage", ["lw", "oas", "mcd", 0.1, None])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_shares_of_the_identity_of_very_small_and_very_large_rows(shrinkage, pooled, unit):
    # the shares are quotients of fourth powers of the rows, which would be 0 or infinite
    learner = nearfar.CovarianceMetric(shrinkage=shrinkage, pooled=pooled, random_state=0)
    expected = distances(fit(learner, X, Y), X)
    assert_allclose(distances(fit(learner, unit * X, Y), unit * X), expected, rtol=1e-9)


@pytest.mark.parametrize("shrinkage", ["lw", "oas"])
@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_shares_of_the_identity_of_few_rows_of_any_size(shrinkage, unit):
    wide = np.random.default_rng(1).normal(size=(12, 30))
    learner = nearfar.CovarianceMetric(shrinkage=shrinkage)
    expected = distances(fit(learner, wide), wide)
    assert_allclose(distances(fit(learner, unit * wide), unit * wide), expected, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-100, 1e-90])
def test_a_product_of_scatters_that_underflows_is_one_clear_error(unit):
    with pytest.raises(ValueError, match=r"^GMML: values became zero .*; scale the features of X$"):
        fit(nearfar.GMML("auto"), unit * X, Y)


# settings with which a learner has no length of its own; without them, its start or its prior has one
WITHOUT_LENGTHS = {
    "NCA": {"init_scale": "median"},
    "FastNCA": {"init_scale": "median"},
    "MLKR": {"init_scale": "median"},
    "LSML": {"prior": "covariance"},
}
# learners whose bounds are lengths, and that have no setting for them
WITH_LENGTHS = ("IML",)


@pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)
def test_a_unit_that_is_a_power_of_two_changes_no_digit_and_no_number_of_iterations(method):
    settings = WITHOUT_LENGTHS.get(method.name, {})
    plain = fit(make(method, **settings), X, Y)
    expected = distances(plain, X)
    for unit in (2.0**-7, 8.0, 2.0**40):
        scaled = fit(make(method, **settings), unit * X, Y)
        found = distances(scaled, unit * X)
        same = np.array_equal(found / (found.max() or 1.0), expected / expected.max())
        if method.name in WITH_LENGTHS:
            assert not same
        else:
            assert same
            assert getattr(scaled, "n_iter_", None) == getattr(plain, "n_iter_", None)


@pytest.mark.parametrize("unit", [0.125, 4.0])
def test_bounds_of_iml_are_lengths_so_that_another_unit_is_another_problem(unit):
    """Both optima are certified, and differ: the pairs that violate a bound, and the pull toward I, are others."""
    fits = [fit(nearfar.IML(rivals="fixed", max_iter=10_000), scale * X, Y) for scale in (1.0, unit)]
    assert all(learner.converged_ and learner.duality_gap_ < 1e-5 for learner in fits)
    assert abs(fits[0].objective_ - fits[1].objective_) > 0.1
    first, second = (distances(learner, scale * X) for learner, scale in zip(fits, (1.0, unit), strict=True))
    assert np.abs(first / first.max() - second / second.max()).max() > 0.05


@pytest.mark.parametrize("unit", [2.0**-9, 8.0])
def test_bounds_that_are_given_are_scaled_together_with_the_rows(unit):
    """Rows in another unit, and squared distances in the square of it, are the same problem."""
    settings = (
        lambda square: nearfar.ITML(bounds=(2.0 * square, 9.0 * square), random_state=0),
        lambda square: nearfar.OnlineITML(bounds=(2.0 * square, 9.0 * square), random_state=0),
        lambda square: nearfar.PCCA(reg=0.01 * square, random_state=0),  # its map is in the inverse unit
    )
    for make_learner in settings:
        plain, scaled = make_learner(1.0).fit(X, Y), make_learner(unit**2).fit(unit * X, Y)
        assert scaled.n_iter_ == plain.n_iter_
        np.testing.assert_array_equal(
            distances(scaled, unit * X), distances(plain, X) * (1.0 if isinstance(plain, nearfar.PCCA) else unit)
        )


# learners that state squares of squared distances in the unit of the rows
FOURTH_POWERS = ("MDSMetric",)


@pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)
@pytest.mark.parametrize("unit", [1e-165, 1e-150, 1e150, 1e200])
@pytest.mark.filterwarnings("error", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_of_any_size_give_a_metric_or_one_clear_error(method, unit):
    if method.name in FOURTH_POWERS and 1e-151 < unit < 1e151:
        pytest.skip("fourth powers of these rows are no numbers")
    learner = make(method)
    said = error_of(learner, unit * X)
    if said:
        assert said.startswith(f"{method.name}: ")
        assert "\n" not in said
        assert re.search("scale the features|rows hold values above 1e70", said)
    else:
        assert 1e-151 < unit < 1e151
        d = distances(learner, unit * X)
        assert np.isfinite(d).all()
        assert d.any()


def error_of(learner, rows):
    """The error of a fit, or "" if there is none."""
    try:
        learner.fit(rows, Y)
    except ValueError as error:
        return str(error)
    return ""


# learners whose optimum is near the identity in a small unit, because they stay near a prior
NEAR_A_PRIOR = ("IML", "LSML")


@pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)
@pytest.mark.parametrize("unit", [1e-30, 1e-3, 30.0, 1e3])
def test_a_learner_that_has_not_moved_has_not_converged(method, unit):
    plain = pdist(X) / pdist(X).max()

    def moved(learner, rows):
        d = distances(fit(learner, rows, Y), rows)
        return np.abs(d / (d.max() or 1.0) - plain).max() > 1e-6

    learner = make(method)
    if moved(make(method), X) and not moved(learner, unit * X) and method.name not in NEAR_A_PRIOR:
        assert not learner.converged_


@pytest.mark.parametrize(
    "learner",
    [
        nearfar.RCA(),
        nearfar.RCA(2),
        nearfar.DCA(),
        nearfar.LFDA(),
        nearfar.FisherMetric(),
        nearfar.InformationGeometryMetric(),
        nearfar.MMC(n_pairs="all", tol=1e-10),
    ],
    ids=lambda learner: f"{type(learner).__name__}{learner.n_components or ''}",
)
def test_the_default_prior_does_not_depend_on_the_units_of_each_column(learner):
    units = np.array([1e-3, 1.0, 50.0, 2e3])
    expected = distances(fit(learner, X, Y), X)
    found = distances(fit(clone(learner), X * units, Y), X * units)
    assert_allclose(found / found[0], expected / expected[0], rtol=1e-5)
    constant = np.c_[X, np.full(len(X), 0.1), np.full(len(X), 1e6 + 0.3)]  # deviations that are rounding, not 0
    if not isinstance(learner, nearfar.MMC):  # its floor is shared by all columns
        found = distances(fit(clone(learner), constant, Y), constant)
        assert_allclose(found / found[0], expected / expected[0], rtol=1e-5)
    if hasattr(learner, "partial_fit"):
        summed = distances(clone(learner).partial_fit(constant, Y), constant)
        assert_allclose(summed / summed[0], expected / expected[0], rtol=1e-5)
        summed = distances(clone(learner).partial_fit(X * units, Y), X * units)
        assert_allclose(summed / summed[0], expected / expected[0], rtol=1e-5)
    wide = np.c_[X, X @ np.random.default_rng(1).normal(size=(4, 80))]  # solved in the span of the rows
    widths = np.geomspace(0.1, 10, 84)
    expected = distances(fit(clone(learner), wide, Y), wide)
    found = distances(fit(clone(learner), wide * widths, Y), wide * widths)
    assert_allclose(found / found[0], expected / expected[0], rtol=1e-5)
