"""What the shells give to every learner, tried on one of each kind."""

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import GMML, RCA
from nearfar.base import FromPairs, FromSets, FromTriplets, KernelMetric, Mahalanobis, MetricLearner
from nearfar.core import kernels
from nearfar.core.optimize import Solution
from tests.learners import all_pairs, data

X, Y = data()
PAIRS, SIGNS = all_pairs(Y)


class Scaled(FromTriplets, Mahalanobis):
    """Remembers what it was given."""

    def _solve(self, X, labels, triplets):
        self.given_ = labels if triplets is None else triplets
        return np.eye(X.shape[1])


class Sets(FromSets, Mahalanobis):
    def _solve(self, X, candidates):
        self.given_ = candidates
        return np.eye(X.shape[1])


class KernelIdentity(FromPairs, KernelMetric):
    def __init__(self, kernel="rbf", gamma=None, degree=3, coef0=1, landmarks=None, n_components=None, random_state=0):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_components = n_components
        self.random_state = random_state

    def _solve(self, X, pairs):
        return Solution(np.eye(X.shape[1])[: self.n_components], attributes={"rank": X.shape[1]})


class Broken(FromPairs, Mahalanobis):
    def _solve(self, X, pairs):
        return np.full((1, X.shape[1]), np.nan)


def test_given_pairs_set_a_threshold_and_decisions():
    learner = GMML().fit(X, Y)
    assert not hasattr(learner, "predict")
    assert not hasattr(learner, "decision_function")
    learner.fit(X, pairs=PAIRS, pair_labels=SIGNS)
    d = learner.pair_distance(PAIRS, X)
    assert_array_equal(learner.predict(PAIRS, X), np.where(d <= learner.threshold_, 1, -1))
    assert_array_equal(learner.decision_function(PAIRS, X), -d)
    best = np.mean(learner.predict(PAIRS, X) == SIGNS)
    assert best >= max(np.mean(SIGNS == 1), np.mean(SIGNS == -1))
    assert best >= max(np.mean(np.where(d <= t, 1, -1) == SIGNS) for t in d)
    assert not hasattr(learner.fit(X, Y), "threshold_")


def test_calibration_by_rates_and_by_hand():
    learner = GMML().fit(X, Y).calibrate_threshold(PAIRS, SIGNS, X=X, strategy="max_tpr", min_rate=0.9)
    said = learner.predict(PAIRS, X)
    assert np.mean(said[SIGNS == -1] == -1) >= 0.9
    points = X[PAIRS]
    again = GMML().fit(X, Y).calibrate_threshold(points, SIGNS, strategy="max_tpr", min_rate=0.9)
    assert again.threshold_ == learner.threshold_
    assert_array_equal(again.predict(points), said)
    assert (learner.set_threshold(np.inf).predict(PAIRS, X) == 1).all()
    with pytest.raises(ValueError, match=r"^GMML: strategy"):
        learner.calibrate_threshold(PAIRS, SIGNS, X=X, strategy="best")
    with pytest.raises(ValueError, match=r"^GMML: pair_labels"):
        learner.calibrate_threshold(PAIRS, SIGNS[:-1], X=X)


def test_distances_of_wrong_shapes():
    learner = GMML().fit(X, Y)
    with pytest.raises(ValueError, match=r"^GMML: pairs must have shape \(m, 2, d\)"):
        learner.pair_distance(PAIRS)
    with pytest.raises(ValueError, match=r"GMML.*features"):
        learner.pair_distance(X[PAIRS][:, :, :2])


@pytest.mark.parametrize("verb", ["transform", "get_metric", "get_mahalanobis_matrix", "save", "pair_distance"])
def test_nothing_works_before_fit(verb, tmp_path):
    arguments = {"transform": (X,), "save": (tmp_path / "x",), "pair_distance": (PAIRS, X)}.get(verb, ())
    with pytest.raises(NotFittedError):
        getattr(GMML(), verb)(*arguments)


def test_metric_works_inside_scikit_learn():
    learner = GMML().fit(X, Y)
    a = KNeighborsClassifier(3, metric=learner.get_metric(), algorithm="brute").fit(X, Y).predict(X)
    b = make_pipeline(GMML(), KNeighborsClassifier(3)).fit(X, Y).predict(X)
    assert_array_equal(a, b)


def test_explicit_supervision_wins_over_labels():
    a = GMML().fit(X, Y[::-1], pairs=PAIRS, pair_labels=SIGNS)
    assert_allclose(a.components_, GMML().fit(X, pairs=PAIRS, pair_labels=SIGNS).components_)


def test_pairs_travel_through_pipelines():
    with sklearn.config_context(enable_metadata_routing=True):
        learner = GMML().set_fit_request(pairs=True, pair_labels=True, pair_weights=True)
        model = make_pipeline(StandardScaler(), learner, KNeighborsClassifier(3))
        w = np.ones(len(SIGNS))
        model.fit(X, Y, pairs=PAIRS, pair_labels=SIGNS, pair_weights=w)
    alone = GMML().fit(StandardScaler().fit_transform(X), pairs=PAIRS, pair_labels=SIGNS)
    assert_allclose(model[1].components_, alone.components_)


def test_triplets_and_labels_reach_the_method():
    triplets = np.array([[0, 1, 2], [3, 4, 5]])
    assert_array_equal(Scaled().fit(X, triplets=triplets).given_, triplets)
    assert Scaled().fit(X, Y).given_.shape == (60,)
    for bad in ([[0, 0, 1]], [[0, 1]], [[0, 1, 60]]):
        with pytest.raises(ValueError, match=r"^Scaled: triplets"):
            Scaled().fit(X, triplets=bad)


def test_candidate_sets_reach_the_method():
    C = np.eye(3, dtype=int)[Y]
    C[0] = 1
    assert_array_equal(Sets().fit(X, C).given_, C.astype(bool))
    assert Sets().fit(X, np.where(np.arange(60) == 3, -1, Y)).given_.sum() == 59 + 3
    for bad in (2 * C, C[:-1], 0 * C):
        with pytest.raises(ValueError, match=r"^Sets: y must be a 0/1 matrix"):
            Sets().fit(X, bad)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "polynomial", "laplacian", "cosine", lambda a, b: a @ b.T + 1])
def test_kernel_distances_are_those_of_the_feature_space(kernel):
    learner = KernelIdentity(kernel).fit(X, Y)
    K = kernels.gram(X, X, kernel, learner.gamma_, 3, 1)
    d2 = K[0, 0] + K[1, 1] - 2 * K[0, 1]
    assert_allclose(learner.pair_distance([[0, 1]], X), [np.sqrt(d2)], rtol=1e-5)
    assert learner.rank_ == learner.components_.shape[1]


def test_precomputed_kernels_and_landmarks(tmp_path):
    K = kernels.gram(X, X, "rbf", 0.1)
    learner, direct = KernelIdentity("precomputed").fit(K, Y), KernelIdentity("rbf", 0.1).fit(X, Y)
    assert_allclose(learner.pair_distance(PAIRS, K), direct.pair_distance(PAIRS, X), atol=1e-6)
    assert learner.__sklearn_tags__().input_tags.pairwise
    some = KernelIdentity(landmarks=10).fit(X, Y)
    assert some.X_fit_.shape == (10, 4)
    assert some.dual_coef_.shape[0] == 10
    with pytest.raises(ValueError, match=r"^KernelIdentity: .*square"):
        KernelIdentity("precomputed").fit(X, Y)


def test_row_order_is_that_of_values_so_drawn_pairs_agree():
    order = np.random.default_rng(0).permutation(60)
    a, b = GMML(n_pairs=10, random_state=3).fit(X, Y), GMML(n_pairs=10, random_state=3).fit(X[order], Y[order])
    assert_array_equal(a.components_, b.components_)


def test_solutions_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match=r"^Broken: the solution is not finite"):
        Broken().fit(X, Y)


def test_feature_names_are_kept_and_checked(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    learner = RCA().fit(frame, Y)
    learner.save(tmp_path / "x")
    again = MetricLearner.load(tmp_path / "x")
    assert_array_equal(again.feature_names_in_, list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(again.transform(frame), learner.transform(frame))
    with pytest.raises(ValueError, match=r"^RCA.*feature names"):
        again.transform(frame[list("dcba")])


def test_saved_learners_are_data_not_code(tmp_path):
    learner = GMML(prior=np.eye(4), n_pairs=None, random_state=1).fit(X, Y)
    learner.save(tmp_path / "x")
    again = GMML.load(tmp_path / "x")
    assert_array_equal(again.prior, np.eye(4))
    assert again.get_params()["random_state"] == 1
    with pytest.raises(ValueError, match="holds a GMML, not a RCA"):
        RCA.load(tmp_path / "x")
    with pytest.raises(ValueError, match=r"^GMML: random_state=.* cannot be saved"):
        GMML(random_state=np.random.default_rng(0)).fit(X, Y).save(tmp_path / "y")
    from nearfar.core import storage

    for text in (
        {},
        {"format": "nearfar-learner-1", "class": "os.system"},
        {"format": "nearfar-learner-1", "class": "JRS"},
    ):
        storage.write(tmp_path / "z", {}, text)
        with pytest.raises(ValueError, match="holds no learner"):
            MetricLearner.load(tmp_path / "z")
    text = {"format": "nearfar-learner-1", "class": "GMML", "settings": "{}", "fitted": '{"fit": 1}'}
    storage.write(tmp_path / "z", {}, text)
    with pytest.raises(ValueError, match="no fitted attribute"):
        MetricLearner.load(tmp_path / "z")
