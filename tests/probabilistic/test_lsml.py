"""LSML: its optimum, what the gap says, supervision of all kinds, points that coincide, sizes of features."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LSML, Kernelized
from nearfar.numerics import constraints
from nearfar.probabilistic.information.lsml import comparisons
from tests.learners import data, fit
from tests.references import lsml as loops

X, Y = data(30, 3)
QUADRUPLETS = constraints.quadruplets_from_labels(Y, 40, 1)
WEIGHTS = np.random.default_rng(0).random(40)


def prior(d=3, seed=1):
    B = np.random.default_rng(seed).normal(size=(d, d))
    return B @ B.T + np.eye(d)


@pytest.mark.parametrize("gamma", [0.1, 10.0, 1e4])
@pytest.mark.parametrize("dense", [True, False])
def test_finds_the_optimum_of_the_loops(gamma, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(comparisons, "DENSE_PAIRS_PER_FEATURE", 0)
    M0 = prior()
    learner = LSML(gamma, prior=M0).fit(X, quadruplets=QUADRUPLETS, quadruplet_weights=WEIGHTS)
    M, told = learner.get_mahalanobis_matrix(), (X, QUADRUPLETS, WEIGHTS, gamma, M0)
    assert learner.converged_
    assert learner.objective_ == pytest.approx(loops.objective(M, *told), rel=1e-9)
    assert np.abs(M @ loops.gradient(M, *told) @ M).max() <= 1e-5 * M.max()
    assert learner.objective_ <= loops.searched(*told) + 1e-7 * learner.objective_


def test_the_objective_is_convex_in_the_metric():
    rng = np.random.default_rng(0)
    for _ in range(50):
        A, B = (C @ C.T + 0.1 * np.eye(3) for C in rng.normal(size=(2, 3, 3)))
        ends = [loops.objective(M, X, QUADRUPLETS, WEIGHTS, 50.0, np.eye(3)) for M in (A, B)]
        middle = loops.objective((A + B) / 2, X, QUADRUPLETS, WEIGHTS, 50.0, np.eye(3))
        assert middle <= sum(ends) / 2 + 1e-12 * abs(middle)


def test_the_gap_bounds_the_distance_from_the_minimum():
    best = LSML(1e3).fit(X, quadruplets=QUADRUPLETS).objective_
    for steps in (1, 2, 3):
        with pytest.warns(ConvergenceWarning, match="^LSML: Newton's method stopped after"):
            early = LSML(1e3, max_iter=steps).fit(X, quadruplets=QUADRUPLETS)
        assert 0 < early.objective_ - best <= early.duality_gap_


def test_triplets_are_quadruplets_with_one_row_twice():
    triplets = np.array([[0, 1, 2], [5, 3, 4], [8, 9, 20]])
    same = LSML(50.0).fit(X, triplets=triplets)
    assert_array_equal(same.quadruplets_, triplets[:, [0, 1, 0, 2]])
    assert_array_equal(LSML(50.0).fit(X, quadruplets=same.quadruplets_).components_, same.components_)


def test_heavier_residuals_are_smaller():
    missed = []
    for gamma in (1e-6, 1.0, 1e3, 1e6):
        learner = LSML(gamma).fit(X, quadruplets=QUADRUPLETS)
        near, far = (learner.pair_distance(QUADRUPLETS[:, part], X) for part in (slice(0, 2), slice(2, 4)))
        missed.append(np.sum(np.maximum(near - far, 0) ** 2))
    assert missed == sorted(missed, reverse=True)
    assert missed[-1] < 1e-4 * missed[0]


def test_rotations_do_not_matter():
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    M = LSML(20.0).fit(X, quadruplets=QUADRUPLETS).get_mahalanobis_matrix()
    turned = LSML(20.0).fit(X @ Q, quadruplets=QUADRUPLETS).get_mahalanobis_matrix()
    assert_allclose(Q @ turned @ Q.T, M, rtol=1e-7, atol=1e-9)


def test_weights_count_like_repetitions_and_only_in_their_ratios():
    counts = np.arange(40) % 3
    told = {"quadruplets": QUADRUPLETS, "quadruplet_weights": counts}
    weighted = LSML(20.0).fit(X, **told).get_mahalanobis_matrix()
    repeated = LSML(20.0).fit(X, quadruplets=np.repeat(QUADRUPLETS, counts, axis=0)).get_mahalanobis_matrix()
    assert_allclose(weighted, repeated, rtol=1e-7, atol=1e-9)
    told["quadruplet_weights"] = 1e6 * counts
    assert_allclose(LSML(20.0).fit(X, **told).get_mahalanobis_matrix(), weighted, rtol=1e-9, atol=1e-12)


def test_the_order_of_quadruplets_and_of_rows_does_not_matter():
    rng = np.random.default_rng(3)
    M = LSML(20.0).fit(X, quadruplets=QUADRUPLETS).get_mahalanobis_matrix()
    order, rows = rng.permutation(40), rng.permutation(len(X))
    moved = np.argsort(rows)[QUADRUPLETS[order]][:, [1, 0, 3, 2]]
    assert_allclose(LSML(20.0).fit(X[rows], quadruplets=moved).get_mahalanobis_matrix(), M, rtol=1e-7, atol=1e-9)


def test_rows_of_drawn_quadruplets_are_the_users():
    order = np.random.default_rng(0).permutation(len(X))
    a, b = (LSML(random_state=0).fit(X[rows], Y[rows]) for rows in (np.arange(len(X)), order))
    assert_array_equal(order[b.quadruplets_], a.quadruplets_)


def test_drawn_quadruplets_match_pairs_of_both_kinds_at_random():
    labels = np.repeat([0, 1, 2, -1], [20, 10, 5, 3])
    Q = constraints.quadruplets_from_labels(labels, 150, 0)
    assert len(Q) == 150
    assert labels.min() == -1
    assert (labels[Q] >= 0).all()
    assert (labels[Q[:, 0]] == labels[Q[:, 1]]).all()
    assert (labels[Q[:, 2]] != labels[Q[:, 3]]).all()
    assert len(np.unique(Q[:, :2], axis=0)) == len(np.unique(Q[:, 2:], axis=0)) == 150
    assert abs(np.corrcoef(labels[Q[:, 0]], labels[Q[:, 2]])[0, 1]) < 0.3
    few = constraints.quadruplets_from_labels(np.array([0, 0, 1, 1, 1]), 100, 0)
    assert len(np.unique(few, axis=0)) == len(few) == 6


@pytest.mark.parametrize("gamma", [1.0, 1e5])
def test_points_that_coincide(gamma):
    twin = np.concatenate([X, X[:2]])
    # nothing moves the distance of rows 0 and 30: the first quadruplet pulls 1 and 2 together, the second says nothing
    learner = LSML(gamma).fit(twin, quadruplets=[[1, 2, 0, 30], [0, 30, 1, 2], [1, 31, 0, 30]])
    M, v = learner.get_mahalanobis_matrix(), twin[1] - twin[2]
    assert learner.converged_
    assert_allclose(np.linalg.inv(M), np.eye(3) + gamma / 3 * np.outer(v, v), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_the_scale_of_all_features_or_of_one(scale):
    learner = LSML().fit(X * scale, quadruplets=QUADRUPLETS)
    assert learner.converged_
    assert np.isfinite(learner.components_).all()
    uneven = LSML().fit(X * [1, 1, min(max(scale, 1e-8), 1e8)], quadruplets=QUADRUPLETS)
    assert uneven.converged_


def test_features_without_comparisons_keep_the_prior():
    wide = np.concatenate([X, np.zeros((len(X), 40)), X[:, :1] * 0 + 7], axis=1)
    M = LSML(20.0).fit(wide, quadruplets=QUADRUPLETS[:5]).get_mahalanobis_matrix()
    inner = LSML(20.0).fit(X, quadruplets=QUADRUPLETS[:5]).get_mahalanobis_matrix()
    assert_allclose(M[:3, :3], inner, rtol=1e-7, atol=1e-9)
    assert_allclose(M[3:, 3:], np.eye(41), atol=1e-9)
    assert np.ptp(LSML(20.0, n_components=1).fit(wide, quadruplets=QUADRUPLETS[:5]).transform(wide)) > 0


def test_bad_quadruplets_are_one_clear_error():
    good = QUADRUPLETS[:2]
    wrong = {
        r"quadruplets must be an integer array of shape \(m, 4\)": {"quadruplets": good[:, :3]},
        "quadruplets must hold integer row numbers": {"quadruplets": good + 0.5},
        r"quadruplets must hold row numbers 0..29; got \[30\]": {"quadruplets": [[0, 1, 2, 30]]},
        "quadruplets must join different rows": {"quadruplets": [[0, 1, 2, 2]]},
        "quadruplet_weights must be 2 finite": {"quadruplets": good, "quadruplet_weights": [1, -1]},
        "quadruplet_weights must be given with quadruplets=": {"y": Y, "quadruplet_weights": [1, 1]},
        "requires y.*triplets= or quadruplets=": {},
    }
    for message, told in wrong.items():
        with pytest.raises(ValueError, match=f"^LSML: .*{message}"):
            LSML().fit(X, **told)
    for settings in ({"gamma": 0}, {"gamma": np.inf}, {"n_quadruplets": 0}, {"n_quadruplets": 1.5}):
        with pytest.raises(ValueError, match=f"^LSML: {next(iter(settings))}"):
            LSML(**settings).fit(X, Y)


def test_quadruplets_travel_through_pipelines_and_into_folds():
    told = {"quadruplets": QUADRUPLETS, "quadruplet_weights": np.ones(40), "rows": np.arange(30)}
    for learner in (LSML(20.0), Kernelized(LSML(20.0))):
        with sklearn.config_context(enable_metadata_routing=True):
            requested = learner.set_fit_request(**dict.fromkeys(told, True))
            model = make_pipeline(StandardScaler(), requested, KNeighborsClassifier(3))
            grid = {"kneighborsclassifier__n_neighbors": [1, 3]}
            search = GridSearchCV(model, grid, cv=KFold(2, shuffle=True, random_state=0), error_score="raise")
            best = search.fit(X, Y, **told).best_estimator_
        alone = fit(learner, StandardScaler().fit_transform(X), **told)
        assert_allclose(best[1].components_, alone.components_)
    names = np.arange(30) * 3 + 100
    named = LSML(20.0).fit(X, quadruplets=[*names[QUADRUPLETS], [0, 1, 100, 103]], rows=names)
    assert_array_equal(named.components_, LSML(20.0).fit(X, quadruplets=QUADRUPLETS).components_)


@pytest.mark.parametrize("settings", [{}, {"prior": "covariance", "gamma": 100.0}])
@pytest.mark.filterwarnings("ignore:LSML. the covariance is singular")
def test_a_warm_start_leads_to_the_same_optimum(settings):
    X, y = data(200, 6)
    cold = LSML(random_state=0, **settings).fit(X, y)
    learner = LSML(random_state=0, warm_start=True, **settings).fit(X[:190], y[:190]).fit(X, y)
    assert learner.n_iter_ <= cold.n_iter_
    assert_allclose(learner.get_mahalanobis_matrix(), cold.get_mahalanobis_matrix(), rtol=1e-5, atol=1e-7)
    assert learner.fit(X, y).n_iter_ == 1
    wide = np.random.default_rng(0).normal(size=(12, 30))
    few = {"quadruplets": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]}
    again = learner.fit(wide, **few).fit(wide, **few)  # in the span of the differences
    assert_allclose(again.components_, LSML(**settings).fit(wide, **few).components_, rtol=1e-5, atol=1e-7)
    assert learner.set_params(n_components=2).fit(X, y).fit(X, y).converged_
