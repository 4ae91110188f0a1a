"""What every learner takes from its base class, tried on one learner of each kind."""

import inspect
import json
import tracemalloc
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar import (
    CDML,
    DCA,
    DMBK,
    FISHMML,
    GMML,
    ITML,
    LDML,
    LFDA,
    LMNN,
    LSML,
    MCML,
    MLKR,
    MMC,
    NCA,
    PCCA,
    RCA,
    BayesianNCA,
    BayesianPairMetric,
    CovarianceMetric,
    FisherMetric,
    HighDimensionalDCA,
    KernelDCA,
    Kernelized,
    LayeredGMML,
    MDSMetric,
    OnlineITML,
    PrivilegedMetric,
    SideInformationMetric,
)
from nearfar.estimators.base import (
    FromChunklets,
    FromPairs,
    FromSets,
    FromTriplets,
    KernelMetric,
    Mahalanobis,
    MetricLearner,
)
from nearfar.numerics import kernels, psd
from nearfar.numerics.optimize import Solution
from tests.learners import all_pairs, data, fit

X, Y = data()
PAIRS, SIGNS = all_pairs(Y)


class Scaled(FromTriplets, Mahalanobis):
    """Remembers what it was given."""

    def _solve(self, X, labels, triplets, work):
        given = labels if triplets is None else triplets
        return Solution(np.eye(X.shape[1]), attributes={"given": given})


class Sets(FromSets, Mahalanobis):
    def _solve(self, X, candidates, work):
        return Solution(np.eye(X.shape[1]), attributes={"given": candidates})


class KernelIdentity(FromPairs, KernelMetric):
    def __init__(self, kernel="rbf", gamma=None, degree=3, coef0=1, landmarks=None, n_components=None, random_state=0):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_components = n_components
        self.random_state = random_state

    def _solve(self, X, pairs, work):
        return Solution(np.eye(X.shape[1])[: self.n_components], attributes={"rank": X.shape[1]})


class Broken(FromPairs, Mahalanobis):
    def _solve(self, X, pairs, work):
        return np.full((1, X.shape[1]), np.nan)


class Telling(FromPairs, Mahalanobis):
    """Tells more in its first fit than in the next."""

    def _solve(self, X, pairs, work):
        if hasattr(self, "n_iter_"):
            return Solution(np.eye(X.shape[1]), objective=2.0, n_iter=3)
        history = np.array([1.0, 0.5])
        return Solution(np.eye(X.shape[1]), 0.5, 2, duality_gap=0.1, history=history, attributes={"kkt": 7})


def test_what_a_fit_told_does_not_pass_for_the_next():
    learner = Telling().fit(X, Y)
    assert (learner.objective_, learner.n_iter_, learner.duality_gap_, learner.kkt_) == (0.5, 2, 0.1, 7)
    assert learner.history_.tolist() == [1.0, 0.5]
    learner.fit(X, Y)
    assert (learner.objective_, learner.n_iter_) == (2.0, 3)
    assert not {"duality_gap_", "history_", "kkt_"} & vars(learner).keys()


def test_what_a_fit_told_does_not_pass_for_the_next_of_a_file(tmp_path):
    LDML(max_iter=500, tol=1e-3).fit(X, Y).save(tmp_path / "learner.safetensors")
    learner = LDML.load(tmp_path / "learner.safetensors")
    assert hasattr(learner, "kkt_")
    learner.set_params(batch_size=20, tol=1.0).fit(X, Y)  # steps on batches have no optimality to tell
    assert not hasattr(learner, "kkt_")


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


def test_weights_of_pairs_count_in_the_threshold():
    weights = np.where(SIGNS > 0, 1.0, 20.0)
    learner = GMML().fit(X, pairs=PAIRS, pair_labels=SIGNS, pair_weights=weights)
    right = learner.predict(PAIRS, X) == SIGNS
    d = learner.pair_distance(PAIRS, X)
    best = max(np.average(np.where(d <= t, 1, -1) == SIGNS, weights=weights) for t in d)
    assert np.average(right, weights=weights) >= best
    assert np.mean(right) < max(np.mean(np.where(d <= t, 1, -1) == SIGNS) for t in d)


def test_pairs_of_no_weight_set_no_threshold():
    with pytest.warns(UserWarning, match="ITML: all pairs are of one kind"):
        learner = ITML().fit(X, pairs=PAIRS, pair_labels=SIGNS, pair_weights=np.where(SIGNS > 0, 1.0, 0.0))
    assert not hasattr(learner, "threshold_")


def test_named_classes_and_unknown_rows():
    names = np.array(["owl", "cat", "fox"], dtype=object)[Y]
    names[:4] = -1
    told = np.where(np.arange(len(Y)) < 4, -1, Y)
    assert_array_equal(GMML().fit(X, names, unlabeled=-1).components_, GMML().fit(X, told, unlabeled=-1).components_)


def test_counts_and_thresholds_that_are_no_numbers_are_refused():
    learner = RCA().fit(X, Y)
    with pytest.raises(ValueError, match=r"^RCA: n_neighbors must be an integer in 1\.\.59; got 3.0"):
        learner.kneighbors(X, n_neighbors=3.0)
    with pytest.raises(ValueError, match=r"^RCA: threshold must be a number; got 'far'"):
        learner.set_threshold("far")
    with pytest.raises(ValueError, match=r"^RCA: threshold must be a number; got nan"):
        learner.set_threshold(np.nan)
    assert learner.set_threshold(np.inf).predict([[0, 1]], X) == 1


def test_pairs_of_points_need_no_feature_names():
    table = pytest.importorskip("pandas").DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    learner = KernelIdentity().fit(table, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d = learner.pair_distance(X[PAIRS])
        assert_allclose(learner.get_metric()(*X[PAIRS[0]]), d[0])
    assert_allclose(d, learner.pair_distance(PAIRS, table))


@pytest.mark.parametrize(
    ("n_neighbors", "queries"), [(0, None), (len(X), None), (len(X) + 1, X[:2]), (True, None), (2.0, X[:2])]
)
def test_neighbors_asked_for_must_exist(n_neighbors, queries):
    most = len(X) if queries is not None else len(X) - 1
    with pytest.raises(ValueError, match=f"^GMML: n_neighbors must be an integer in 1[.][.]{most}; got {n_neighbors}$"):
        GMML().fit(X, Y).kneighbors(X, queries, n_neighbors=n_neighbors)


def test_calibration_by_rates_and_by_hand():
    learner = GMML().fit(X, Y).calibrate_threshold(PAIRS, SIGNS, X=X, strategy="max_tpr", min_rate=0.9)
    said = learner.predict(PAIRS, X)
    assert np.mean(said[SIGNS == -1] == -1) >= 0.9
    points = X[PAIRS]
    again = GMML().fit(X, Y).calibrate_threshold(points, SIGNS, strategy="max_tpr", min_rate=0.9)
    assert_allclose(again.threshold_, learner.threshold_, rtol=1e-14)  # products of other shapes round otherwise
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
    assert Sets().fit(X, np.where(np.arange(60) == 3, -1, Y), unlabeled=-1).given_.sum() == 59 + 3
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


def test_a_matrix_that_becomes_singular_is_told_in_one_error(monkeypatch):
    monkeypatch.setattr(Broken, "_solve", lambda self, X, pairs, work: np.linalg.inv(np.zeros((2, 2))))
    with pytest.raises(ValueError, match=r"^Broken: .*\(Singular matrix\); scale the features, or regularize more$"):
        Broken().fit(X, Y)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("learner", [NCA(), NCA(objective="log"), MLKR(), PCCA()], ids=repr)
def test_features_that_are_too_large_for_their_squares_are_told_in_one_error(learner):
    with pytest.raises(ValueError, match=rf"^{type(learner).__name__}: .*; scale the features"):
        learner.fit(X * 1e160, Y)


@pytest.mark.filterwarnings("error")
def test_a_table_with_pairs_or_in_parts_keeps_its_feature_names():
    table = pytest.importorskip("pandas").DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    fitted = [GMML().fit(table, pairs=PAIRS, pair_labels=SIGNS), OnlineITML().partial_fit(table, Y)]
    fitted.append(OnlineITML().partial_fit(table, pairs=PAIRS, pair_labels=SIGNS).partial_fit(table, Y))
    for learner in fitted:
        assert_array_equal(learner.feature_names_in_, table.columns)
        learner.transform(table)


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
    with pytest.raises(ValueError, match="holds GMML, not RCA"):
        RCA.load(tmp_path / "x")
    ITML(percentiles=(np.int64(5), np.float32(95))).fit(X, Y).save(tmp_path / "z")
    assert ITML.load(tmp_path / "z").percentiles == (5, 95)
    with pytest.raises(ValueError, match=r"^GMML: random_state=.* cannot be saved"):
        GMML(random_state=np.random.default_rng(0)).fit(X, Y).save(tmp_path / "y")
    from nearfar.io import tensor_file as storage

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
    arrays, sound = storage.read(tmp_path / "x")
    for name, value, told in (
        ("classes_", [1], "classes_"),
        ("threshold_", "near", "threshold_ must be a number, got 'near'"),
    ):
        fitted = json.dumps({**json.loads(sound["fitted"]), name: value})
        storage.write(tmp_path / "z", arrays, {**sound, "fitted": fitted})
        with pytest.raises(ValueError, match=f"z holds no GMML of this version: .*{told}"):
            MetricLearner.load(tmp_path / "z")
    for change in (
        {"settings": '{"of_a_later_version": 1}'},
        {"settings": "[1]"},
        {"settings": "{"},
        {"fitted": "null"},
    ):
        storage.write(tmp_path / "z", {}, {**text, "fitted": "{}", **change})
        with pytest.raises(ValueError, match="z holds no GMML of this version"):
            MetricLearner.load(tmp_path / "z")
    for change, word in (("{}", "lacks n_features_in_"), ('{"n_features_in_": 4}', "lacks components_")):
        storage.write(tmp_path / "z", {}, {**text, "fitted": change})
        with pytest.raises(ValueError, match=f"z holds no GMML of this version: it {word}"):
            MetricLearner.load(tmp_path / "z")
    storage.write(tmp_path / "z", {}, {"format": text["format"], "class": "GMML"})
    with pytest.raises(ValueError, match="z holds no GMML of this version"):
        MetricLearner.load(tmp_path / "z")


def test_settings_that_are_tuples_come_back_as_tuples(tmp_path):
    OnlineITML(percentiles=(10, 90)).fit(X, Y).save(tmp_path / "x")
    assert OnlineITML.load(tmp_path / "x").percentiles == (10, 90)


@pytest.mark.parametrize(
    ("learner", "name", "value"),
    [
        (GMML(), "components_", lambda a: a * np.nan),
        (GMML(), "components_", lambda a: None),
        (CDML(max_iter=1), "mean_", lambda a: None),
        (KernelDCA(), "gamma_", lambda a: "wide"),
    ],
)
def test_files_that_lack_what_a_transform_needs_are_refused(tmp_path, learner, name, value):
    from nearfar.io import tensor_file as storage

    path = tmp_path / "x"
    fit(learner, X, Y).save(path)
    arrays, text = storage.read(path)
    plain = json.loads(text["fitted"])
    found = value(arrays.pop(f"fit/{name}", None) if f"fit/{name}" in arrays else plain.pop(name))
    if isinstance(found, np.ndarray):
        arrays[f"fit/{name}"] = found
    elif found is not None:
        plain[name] = found
    storage.write(path, arrays, {**text, "fitted": json.dumps(plain)})
    with pytest.raises(ValueError, match=rf"x holds no {type(learner).__name__} of this version: .*{name}"):
        MetricLearner.load(path)


def test_names_of_columns_that_are_no_text_are_refused(tmp_path):
    from nearfar.io import tensor_file as storage

    GMML().fit(X, Y).save(tmp_path / "x")
    arrays, text = storage.read(tmp_path / "x")
    plain = {**json.loads(text["fitted"]), "feature_names_in_": {"text": "abcd"}}
    storage.write(tmp_path / "x", arrays, {**text, "fitted": json.dumps(plain)})
    with pytest.raises(ValueError, match="expected a list of text, got 'abcd'"):
        MetricLearner.load(tmp_path / "x")


class Rowwise(FromPairs, Mahalanobis):
    """Publishes something of every row."""

    def _solve(self, X, pairs, work):
        return Solution(np.eye(X.shape[1]), attributes={"first": work.as_given(X[:, 0]), "centered": X})


class Chunks(FromChunklets, Mahalanobis):
    _links = True

    def _solve(self, X, chunklets, apart, work):
        return Solution(np.eye(X.shape[1]), attributes={"given": chunklets})


class Spanned(FromPairs, Mahalanobis):
    _span = True

    def __init__(self, n_components=None, warm_start=True):
        self.n_components = n_components
        self.warm_start = warm_start

    def _solve(self, X, pairs, work):
        L = np.eye(X.shape[1])[: self.n_components]
        return Solution(L, attributes={"given": X, "last": work.start()})


def test_values_of_rows_come_back_in_the_order_of_the_rows():
    x = (X - X.mean(axis=0))[:, 0]
    by_labels, by_pairs = Rowwise().fit(X, Y), Rowwise().fit(X, pairs=PAIRS, pair_labels=SIGNS)
    for learner in (by_labels, by_pairs):
        assert_allclose(learner.first_, x, atol=1e-12)
    assert np.abs(by_labels.centered_[:, 0] - x).max() > 1
    assert_allclose(by_pairs.centered_[:, 0], x, atol=1e-12)


def test_landmarks_are_numbers_of_the_users_rows():
    learner = KernelIdentity(landmarks=10).fit(X, Y)
    assert_array_equal(X[learner.landmarks_], learner.X_fit_)


class AsksTwice(KernelIdentity):
    warm_start = True

    def _solve(self, X, pairs, work):
        found = super()._solve(X, pairs, work=work)
        told = {"first": work.start(), "second": work.start(), "found": self._found_before("n_iter_", work)}
        return found.with_x(found.x, attributes=told)


def test_a_kernel_method_may_ask_for_the_last_fit_more_than_once():
    learner = AsksTwice().fit(X, Y)
    assert learner.first_ is None
    learner.fit(X, Y)
    assert learner.first_ is not None
    assert_array_equal(learner.second_, learner.first_)
    assert learner.found_ == learner.n_iter_


def test_wide_rows_are_solved_in_their_span_and_start_there_again():
    wide = np.random.default_rng(0).normal(size=(8, 20))
    y = np.arange(8) % 2
    learner = Spanned().fit(wide, y)
    assert learner.given_.shape == (8, 7)
    assert learner.last_ is None
    order = np.argsort(wide @ np.cos(np.arange(1.0, 21)))
    assert_allclose(learner.given_ @ learner.components_, (wide - wide.mean(axis=0))[order], atol=1e-12)
    assert_allclose(learner.fit(wide, y).last_, np.eye(7), atol=1e-12)
    with pytest.raises(ValueError, match=r"^Spanned: n_components must be an integer in 1..7"):
        Spanned(8).fit(wide, y)
    assert learner.fit(X, Y).given_.shape == X.shape


def test_arguments_that_a_learner_does_not_take_are_named_with_those_it_takes():
    cases = {
        r"LFDA.fit takes X, y, unlabeled; got .* argument 'pairs'": lambda: LFDA().fit(X, pairs=PAIRS),
        r"LFDA.fit takes X, y, unlabeled; too many positional arguments": lambda: LFDA().fit(X, Y, PAIRS),
        r"GMML.fit takes X, y, pairs, .*; got .* 'triplets'": lambda: GMML().fit(X, triplets=[[0, 1, 2]]),
        r"LSML.fit takes X, y, quadruplets, .*; got .* 'pairs'": lambda: LSML().fit(X, pairs=PAIRS),
        r"NCA.partial_fit takes X, y, unlabeled; missing a required argument: 'y'": lambda: NCA().partial_fit(X),
        r"LFDA.fit takes X, y, unlabeled; got": lambda: Kernelized(LFDA()).fit(X, pairs=PAIRS),
    }
    for message, call in cases.items():
        with pytest.raises(TypeError, match=f"^{message}"):
            call()
    assert list(inspect.signature(LFDA.fit).parameters) == ["self", "X", "y", "unlabeled"]
    with pytest.raises(ValueError, match=r"^RCA: chunklets and pairs must not both be given; pass one of them"):
        RCA().fit(X, chunklets=Y, pairs=PAIRS)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: NCA(max_iter=1).fit(X, Y), "NCA: L-BFGS stopped"),
        (lambda: GMML().fit(X, pairs=PAIRS[[0, 1, 2, 2]], pair_labels=[1, -1, 1, 1]), "1 of 4 pairs repeat"),
    ],
)
def test_warnings_of_a_fit_point_at_its_call(call, told):
    with pytest.warns(UserWarning, match=told) as said:
        call()
    assert {warning.filename for warning in said} == {__file__}


# --- Supervision that travels


def test_constraints_travel_through_pipelines():
    triplets, chunklets = np.array([[0, 1, 2], [3, 4, 5]]), np.where(np.arange(60) < 30, Y, -1)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), Scaled().set_fit_request(triplets=True))
        assert_array_equal(model.fit(X, triplets=triplets)[1].given_, triplets)
        model = make_pipeline(StandardScaler(), RCA().set_fit_request(chunklets=True), KNeighborsClassifier())
        model.fit(X, Y, chunklets=chunklets)
    alone = RCA().fit(StandardScaler().fit_transform(X), chunklets=chunklets)
    assert_allclose(model[1].components_, alone.components_)


def search(learner, told):
    grid = {"kneighborsclassifier__n_neighbors": [1, 3]}
    with sklearn.config_context(enable_metadata_routing=True):
        learner.set_fit_request(**dict.fromkeys(told, True))
        model = make_pipeline(StandardScaler(), learner, KNeighborsClassifier())
        return GridSearchCV(model, grid, cv=KFold(3, shuffle=True, random_state=0), error_score="raise").fit(
            X, Y, **told
        )


def test_chunklets_travel_into_the_folds_of_a_search():
    chunklets = np.where(np.arange(60) < 40, Y, -1)
    model = search(RCA(), {"chunklets": chunklets}).best_estimator_
    alone = RCA().fit(StandardScaler().fit_transform(X), chunklets=chunklets)
    assert_allclose(model[1].components_, alone.components_)


class Recorded(GMML):
    """Remembers the distances of the pairs of every fit."""

    seen: list = []

    def _solve(self, X, pairs, work):
        self.seen.append((X, pairs))
        return super()._solve(X, pairs, work=work)


@pytest.mark.parametrize("m", [300, 60])
def test_pairs_of_all_rows_serve_every_fold_of_a_search(m):
    # scikit-learn splits as many pairs as rows like rows: fewer of them are used, with a warning, but none is wrong
    keep = np.random.default_rng(0).permutation(len(SIGNS))[:m]
    told = {"pairs": PAIRS[keep], "pair_labels": SIGNS[keep], "pair_weights": np.ones(m), "rows": np.arange(60)}
    Recorded.seen.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        search(Recorded(), told)
    for n, warned in zip([40] * 6 + [60] if m == 60 else [], said, strict=True):
        assert f"as many pairs as rows, {n}: scikit-learn splits pairs by its folds" in str(warned.message)
    assert len(Recorded.seen) == 2 * 3 + 1
    known = {(*sorted(np.round([X[i].sum(), X[j].sum()], 6)),): sign for (i, j), sign in zip(PAIRS, SIGNS, strict=True)}
    for fold, (train, _) in enumerate(KFold(3, shuffle=True, random_state=0).split(X)):
        scaler = StandardScaler().fit(X[train])
        rows, pairs = Recorded.seen[fold]
        back = np.round(scaler.inverse_transform(rows + scaler.transform(X[train]).mean(axis=0)).sum(axis=1), 6)
        expected = np.isin(PAIRS[keep], train).all(axis=1).sum()
        assert len(pairs.i) == expected if m == 300 else 0 < len(pairs.i) <= expected
        for i, j, similar in zip(pairs.i, pairs.j, pairs.similar, strict=True):
            assert known[(*sorted((back[i], back[j])),)] == (1 if similar else -1)


@pytest.mark.parametrize("learner", [Kernelized(GMML()), PrivilegedMetric()], ids=["Kernelized", "PrivilegedMetric"])
def test_learners_that_hand_pairs_on_take_them_in_a_search_too(learner):
    told = {"pairs": PAIRS, "pair_labels": SIGNS, "pair_weights": np.ones(len(SIGNS)), "rows": np.arange(60)}
    model = search(learner, told).best_estimator_
    alone = clone(learner).fit(StandardScaler().fit_transform(X), **told)
    assert_allclose(model[1].components_, alone.components_)


def test_rows_name_the_rows_of_all_kinds_of_constraints():
    names = np.arange(60) * 3 + 100
    assert_allclose(
        GMML().fit(X, pairs=names[PAIRS], pair_labels=SIGNS, rows=names).components_,
        GMML().fit(X, pairs=PAIRS, pair_labels=SIGNS).components_,
    )
    triplets = np.array([[0, 1, 2], [3, 4, 5]])
    assert_array_equal(Scaled().fit(X, triplets=[*names[triplets], [100, 103, 7]], rows=names).given_, triplets)
    pairs = [[0, 1], [2, 3], [4, 5]]
    a = Chunks().fit(X, pairs=[*names[pairs], [100, 1]], pair_labels=[1, 1, -1, 1], rows=names).given_
    assert_array_equal(a, Chunks().fit(X, pairs=pairs, pair_labels=[1, 1, -1]).given_)


@pytest.mark.slow
def test_links_and_distances_serve_the_folds_of_a_search_too():
    chunklets, links = np.arange(60) // 2, [[k, k + 1] for k in range(29)]
    told = {"chunklets": chunklets, "negative_links": links, "rows": np.arange(60)}
    part = np.arange(40)
    here = {"chunklets": chunklets[part], "negative_links": links[:19]}
    left = DCA(1).fit(X[part], chunklets=chunklets[part], negative_links=links, rows=part)
    assert_allclose(left.components_, DCA(1).fit(X[part], **here).components_)
    d = np.abs(X[PAIRS[:, 0], 0] - X[PAIRS[:, 1], 0])
    distances = {"pairs": PAIRS, "distances": d, "rows": np.arange(60)}
    for learner, given in ((DCA(1), told), (MDSMetric(), distances), (Kernelized(MDSMetric(), rank=5), distances)):
        model = search(learner, given).best_estimator_
        alone = clone(learner).fit(StandardScaler().fit_transform(X), **given)
        assert_allclose(model[1].components_, alone.components_)


# --- Bad input: one ValueError each, in words

PAIR = {"pairs": [[0, 1], [2, 3]], "pair_labels": [1, -1]}
NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[3, 1] = np.nan, np.inf
REFUSED = {
    "nan": (GMML(), {"X": NAN, "y": Y}, "NaN"),
    "infinite": (GMML(), {"X": INF, "y": Y}, "infinity"),
    "one dimension": (GMML(), {"X": X[0], "y": Y}, "2D"),
    "three dimensions": (GMML(), {"X": X[None], "y": Y}, "dim 3"),
    "pairs of points": (RCA(), {"X": X[PAIRS], "y": Y}, r"pass X.reshape\(-1, 4\), pairs=np.arange\(.*pair_labels="),
    "labels of rows": (GMML(), {"X": X[PAIRS], "y": Y}, r"pair_labels must have one entry per pair, shape \(1770,\)"),
    "one row": (GMML(), {"X": X[:1], "y": Y[:1]}, "minimum of 2"),
    "lengths": (GMML(), {"X": X, "y": Y[1:]}, "inconsistent"),
    "nothing told": (GMML(), {"X": X}, "requires y"),
    "row out of range": (GMML(), {"X": X, **PAIR, "pairs": [[0, 60], [1, 2]]}, "pairs must hold row numbers 0..59"),
    "negative row": (GMML(), {"X": X, **PAIR, "pairs": [[0, -1], [1, 2]]}, "pairs must hold row numbers 0..59"),
    "row with itself": (GMML(), {"X": X, **PAIR, "pairs": [[0, 1], [2, 2]]}, r"pairs\[1\] joins a row with itself"),
    "pairs of floats": (GMML(), {"X": X, **PAIR, "pairs": [[0.0, 1.0], [2.0, 3.0]]}, "integer row numbers"),
    "pairs of several lengths": (GMML(), {"X": X, "pairs": [[0, 1], [2]]}, r"pairs must be an integer .*got \[\[0, 1"),
    "no pairs": (GMML(), {"X": X, "pairs": np.zeros((0, 2), int)}, "m >= 1"),
    "points for pairs": (GMML(), {"X": X, "pairs": X[PAIRS]}, "pass the points as X"),
    "label zero": (
        GMML(),
        {"X": X, **PAIR, "pair_labels": [1, 0]},
        r"must be \+1 .*got \[0, 1\]; convert .* with 2 \* same - 1",
    ),
    "labels of truth": (
        GMML(),
        {"X": X, **PAIR, "pair_labels": [True, False]},
        r"got \[False, True\]; convert .* with 2 \* same - 1",
    ),
    "label two": (
        GMML(),
        {"X": X, **PAIR, "pair_labels": [1, 2]},
        r"\+1 \(similar\) or -1 \(dissimilar\); got \[1, 2\]$",
    ),
    "label lengths": (GMML(), {"X": X, **PAIR, "pair_labels": [1, -1, 1]}, r"pair_labels .* shape \(2,\)"),
    "no similar pair": (GMML(), {"X": X, **PAIR, "pair_labels": [-1, -1]}, "pairs must hold at least one similar pair"),
    "no dissimilar pair": (
        GMML(),
        {"X": X, **PAIR, "pair_labels": [1, 1]},
        "pairs must hold at least one dissimilar pair",
    ),
    "both labels": (GMML(), {"X": X, "pairs": [[0, 1], [1, 0]], "pair_labels": [1, -1]}, r"one label; .*\[0, 1\]"),
    "negative weight": (GMML(), {"X": X, **PAIR, "pair_weights": [1.0, -1.0]}, "pair_weights must be"),
    "similar pairs weigh nothing": (
        GMML(),
        {"X": X, **PAIR, "pair_weights": [0.0, 1.0]},
        "pairs must hold at least one similar pair",
    ),
    "dissimilar pairs weigh nothing": (
        MMC(),
        {"X": X, **PAIR, "pair_weights": [1.0, 0.0]},
        "pairs must hold at least one dissimilar pair",
    ),
    "weights of nothing": (GMML(), {"X": X, **PAIR, "pair_weights": [0.0, 0.0]}, "pair_weights must be"),
    "rows lengths": (GMML(), {"X": X, **PAIR, "rows": np.arange(59)}, "rows must be 60 different"),
    "rows twice": (GMML(), {"X": X, **PAIR, "rows": np.zeros(60)}, "rows must be 60 different"),
    "no pair here": (GMML(), {"X": X, **PAIR, "rows": np.arange(100, 160)}, "none of 2 does"),
    "labels beside rows": (GMML(), {"X": X, **PAIR, "pair_labels": [1], "rows": np.arange(60)}, "labels and weights"),
    "one class": (GMML(), {"X": X, "y": np.zeros(60)}, "at least 2 classes"),
    "all unknown": (GMML(), {"X": X, "y": np.full(60, -1), "unlabeled": -1}, "at least 2 classes"),
    "several marks": (GMML(), {"X": X, "y": Y, "unlabeled": [-1, -2]}, r"unlabeled must be one value; got \[-1, -2\]"),
    "a list of a mark": (GMML(), {"X": X, "y": Y, "unlabeled": [-1]}, r"unlabeled must be one value; got \[-1\]"),
    "pairs of points in a list": (RCA(), {"X": X[PAIRS].tolist(), "y": Y}, r"pass X.reshape\(-1, 4\), pairs=np.arange"),
    "all alone": (GMML(), {"X": X, "y": np.arange(60)}, "no similar pair"),
    "chunklets lengths": (RCA(), {"X": X, "chunklets": Y[1:]}, "chunklets must be 60 integers"),
    "chunklets by name": (
        RCA(),
        {"X": X, "chunklets": ["a"] * 60},
        r"dtype <U1; pandas.factorize\(c\)\[0\] turns names",
    ),
    "chunklets with gaps": (RCA(), {"X": X, "chunklets": [np.nan, *Y[1:]]}, r"float64; pandas.factorize\(c\)\[0\]"),
    "chunklets of rows": (RCA(), {"X": X, "chunklets": [[0, 1], [2, 3, 4]]}, r"one per row of X, .*; got \[\[0, 1\]"),
    "chunklets of floats": (RCA(), {"X": X, "chunklets": Y + 0.5}, "chunklets must be 60 integers, .* dtype float64$"),
    "chunklets of infinity": (
        RCA(),
        {"X": X, "chunklets": np.where(Y == 0, np.inf, Y)},
        "chunklets must be 60 integers",
    ),
    "chunklets unknown": (RCA(), {"X": X, "chunklets": np.full(60, -1)}, "at least one chunklet"),
    "links to nowhere": (DCA(), {"X": X, "chunklets": Y, "negative_links": [[0, 9]]}, "negative_links must be"),
    "torn chunklet": (
        DCA(),
        {"X": X, "pairs": [[0, 1], [1, 2], [0, 2]], "pair_labels": [1, 1, -1]},
        "chains of similar pairs join the dissimilar pairs",
    ),
    "components": (GMML(n_components=5), {"X": X, "y": Y}, r"n_components must be an integer in 1\.\.4"),
    "no components": (RCA(0), {"X": X, "y": Y}, r"n_components must be an integer in 1\.\.4"),
    "weighting": (GMML(weighting="row"), {"X": X, "y": Y}, "weighting must be one of"),
    "weightings": (GMML(weighting=["pairs"]), {"X": X, "y": Y}, "weighting must be one of"),
    "word for reg": (GMML(reg="some"), {"X": X, "y": Y}, 'reg must be a finite number >= 0 or "auto"'),
    "bounds of text": (
        ITML(bounds="wide"),
        {"X": X, "y": Y},
        "bounds must be two increasing finite numbers.*got 'wide'",
    ),
    "percentiles of text": (ITML(percentiles="low"), {"X": X, "y": Y}, "percentiles must be two increasing"),
    "margins of text": (CDML(margins="wide"), {"X": X, "y": Y}, "margins must be two numbers.*got 'wide'"),
    "mean of text": (BayesianNCA(prior_mean="one"), {"X": X, "y": Y}, "prior_mean must be a finite number"),
    "covariance of text": (BayesianNCA(prior_cov="one"), {"X": X, "y": Y}, "prior_cov must be a number above 0"),
    "start of text": (LMNN(init=[["a"]]), {"X": X, "y": Y}, "init must be"),
    "targets of text": (MDSMetric(targets=[["a"]]), {"X": X, "y": Y}, "targets must be a table of 60 x 60"),
    "a number for dims": (LayeredGMML(dims=3), {"X": X, "y": Y}, "dims must hold an integer >= 1 .* 1 in all; got 3"),
    "no layers": (LayeredGMML(n_layers=0), {"X": X, "y": Y}, "n_layers must be an integer >= 1"),
    "no neighbors": (LMNN(n_neighbors=0), {"X": X, "y": Y}, "n_neighbors must be an integer >= 1"),
    "another view of text": (PrivilegedMetric(), {"X": X, "y": Y, "privileged": [["a"]] * 60}, "privileged must be a"),
    "a row for a view": (FISHMML(), {"X": [X, Y], "y": Y}, r"views must be matrices; got arrays of \[2, 1\]"),
    "prior not symmetric": (GMML(prior=np.triu(np.ones((4, 4)))), {"X": X, "y": Y}, "symmetric.*smallest eigenvalue"),
    "prior not definite": (GMML(prior=np.diag([1, 1, 1, -2.0])), {"X": X, "y": Y}, "smallest eigenvalue is -2"),
    "kernel not square": (KernelIdentity("precomputed"), {"X": X, "y": Y}, "square"),
    "kernel not symmetric": (KernelIdentity("precomputed"), {"X": np.triu(X @ X.T), "y": Y}, "symmetric"),
    "kernel not definite": (KernelIdentity("precomputed"), {"X": -X @ X.T, "y": Y}, "eigenvalue"),
    "kernel of zeros": (
        KernelIdentity("precomputed"),
        {"X": np.zeros((60, 60)), "y": Y},
        "must not be 0; no two rows differ",
    ),
    "kernel of points": (
        KernelIdentity(lambda a, b: 1.0),
        {"X": X, "y": Y},
        r"\(60, 60\) numbers; got a result of shape \(\)",
    ),
    "negative degree": (
        KernelIdentity("polynomial", degree=-1),
        {"X": X, "y": Y},
        "degree must be a finite number > 0",
    ),
    "infinite coef0": (KernelIdentity("poly", coef0=np.inf), {"X": X, "y": Y}, "coef0 must be a finite number >= 0"),
    "too large": (GMML(), {"X": 1e158 * X, "y": Y}, "the largest is 6.*e.158; scale the features"),
    "too small": (OnlineITML(), {"X": 1e-160 * X, "y": Y}, "the largest is 6.*e-160; scale the features"),
    "one feature": (DMBK(), {"X": X[:, :1], "y": Y}, "n_features=1"),
    "singular": (GMML(reg=0.0), {"X": np.c_[X, X[:, 0]], "y": Y}, "rank 4 of 5.*use reg > 0"),
    "singular chunklets": (
        RCA(shrinkage=0, on_singular="raise"),
        {"X": np.c_[X, X[:, 0]], "y": Y},
        "rank 4 of 5.*shrink",
    ),
    "no difference": (GMML(reg=0.0), {"X": np.repeat(X[:2], 3, axis=0), "y": [0, 0, 0, 1, 1, 1]}, "rank 0 of 4"),
}


@pytest.mark.filterwarnings("ignore:.*all similar pairs coincide", "ignore:(overflow|invalid):RuntimeWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_error_that_starts_with_the_name(case):
    learner, told, words = REFUSED[case]
    with pytest.raises(ValueError, match=rf"(?s)^{type(learner).__name__}\b.*{words}"):
        learner.fit(**told)


@pytest.mark.filterwarnings("ignore:.*the similar scatter is singular")
@pytest.mark.parametrize("learner", [GMML(), MMC(), FisherMetric(), SideInformationMetric(), HighDimensionalDCA()])
def test_equal_similar_rows_give_a_result_and_a_warning(learner):
    flat = np.repeat(X[:6], 2, axis=0)
    with pytest.warns(UserWarning, match="all similar pairs coincide"):
        learner.fit(flat, np.repeat(np.arange(6), 2))
    assert np.isfinite(learner.transform(X)).all()


@pytest.mark.parametrize(
    "learner",
    [RCA(shrinkage=0), DCA(shrinkage=0), MMC(diagonal=True), FisherMetric(shrinkage=0)],
    ids=lambda learner: type(learner).__name__,
)
def test_a_constant_column_gives_a_result_and_a_warning_that_says_what_was_done(learner):
    with pytest.warns(UserWarning, match="was added to its diagonal"):
        learner.fit(np.c_[X, np.full(60, 3.0)], Y)
    assert np.isfinite(learner.transform(np.c_[X, np.full(60, 3.0)])).all()


def test_columns_that_hold_no_numbers_are_named():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    words = table.assign(city=["Rome"] * len(X), kind=pd.Categorical(["a", "b"] * (len(X) // 2)))
    with pytest.raises(ValueError, match=r"^LFDA: X: 2 columns with values that are not numbers \('city', 'kind'\); "):
        LFDA().fit(words, Y)
    gaps = table.assign(x1=pd.array([None, *range(len(X) - 1)], dtype="Int64"), x2=table["x2"].astype(object))
    with pytest.raises(
        ValueError, match=r"^LFDA: Input X contains NaN; fill the missing cells first: .*TableEncoder.*$"
    ):
        LFDA().fit(gaps, Y)


@pytest.mark.parametrize("told", ["y", "chunklets", "pairs"])
def test_many_chunklets_take_no_matrix_of_chunklets_by_chunklets(told):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(16_000, 2))
    numbers = np.repeat(np.arange(8_000), 2)
    given = {"y": numbers, "chunklets": numbers, "pairs": np.arange(16_000).reshape(-1, 2)}
    tracemalloc.start()
    RCA().fit(rows, **{told: given[told]})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # with such a matrix: 64 MB and more


def test_what_says_nothing_alone_is_not_passed_over():
    for told in ({"pair_labels": SIGNS}, {"pair_weights": np.ones(len(SIGNS))}):
        with pytest.raises(ValueError, match=f"^GMML: {next(iter(told))} must be given with pairs$"):
            GMML().fit(X, Y, **told)
    with pytest.raises(ValueError, match=r"^RCA: pair_labels must be given with pairs$"):
        RCA().fit(X, Y, pair_labels=SIGNS)
    for told in ({"y": Y}, {"pairs": PAIRS, "pair_labels": SIGNS}):
        with pytest.raises(ValueError, match=r"^DCA: negative_links must be given with chunklets$"):
            DCA().fit(X, negative_links=[[0, 1]], **told)


def test_repeated_pairs_are_told():
    with pytest.warns(UserWarning, match="1 of 3 pairs repeat others"):
        GMML().fit(X, pairs=[[0, 1], [1, 0], [2, 3]], pair_labels=[1, 1, -1])


@pytest.mark.parametrize("kind", [SideInformationMetric, FisherMetric, GMML, MMC, HighDimensionalDCA])
@pytest.mark.parametrize("empty", [1, -1])
def test_pairs_that_weigh_nothing_are_no_pairs(kind, empty):
    name = "similar" if empty == 1 else "dissimilar"
    with pytest.raises(ValueError, match=f"^{kind.__name__}: pairs must hold at least one {name} pair"):
        kind().fit(X, pairs=PAIRS, pair_labels=SIGNS, pair_weights=np.where(empty == SIGNS, 0.0, 1.0))


@pytest.mark.parametrize("n_pairs", [0, -3, 1.5, "some"])
def test_a_number_of_pairs_that_is_none_is_refused(n_pairs):
    with pytest.raises(ValueError, match=r"^GMML: n_pairs must be an integer"):
        GMML(n_pairs=n_pairs).fit(X, Y)


@pytest.mark.parametrize("alpha", ["much", None, [1.0], float("nan"), float("inf"), 0])
def test_a_setting_that_is_no_number_is_refused(alpha):
    with pytest.raises(ValueError, match=r"^MMC: alpha must be a (finite )?number"):
        MMC(alpha=alpha).fit(X, Y)


@pytest.mark.parametrize("reg", ["much", None, [1.0], np.ones(2), float("nan"), -1.0])
def test_a_regularization_that_is_no_number_is_refused(reg):
    with pytest.raises(ValueError, match=r"^GMML: reg must be a finite number >= 0"):
        GMML(reg=reg).fit(X, Y)


def test_chunklets_of_single_rows_only_are_refused():
    for kind in (DCA, RCA, KernelDCA):
        with pytest.raises(
            ValueError,
            match=f"^{kind.__name__}: chunklets must hold one of at least 2 rows; every chunklet has a single row",
        ):
            kind().fit(X, chunklets=np.arange(len(X)))
    with pytest.raises(
        ValueError, match=r"^DCA: chunklets must hold one of at least 2 rows; every chunklet has a single row"
    ):
        DCA().fit(X, pairs=PAIRS[SIGNS < 0], pair_labels=SIGNS[SIGNS < 0])


@pytest.mark.parametrize("y", [np.arange(len(X)), np.arange(len(X)) / 1.0, [f"class {k}" for k in range(len(X))]])
def test_one_row_per_class_is_one_error_without_a_warning(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"^LMNN: y must hold a class of at least 2 rows; got one row per class"):
            LMNN().fit(X, y)


def test_real_targets_are_refused_and_pointed_to_a_learner_for_them():
    with pytest.raises(ValueError, match=r"^LMNN: y must hold classes; got real numbers such as 0\.5; .* MLKR$"):
        LMNN().fit(X, np.arange(len(X)) + 0.5)


def test_a_pooled_covariance_of_single_rows_is_refused():
    with pytest.raises(
        ValueError, match=r"^CovarianceMetric: y must hold a class of at least 2 rows; got one row per class"
    ):
        CovarianceMetric(pooled=True).fit(X, np.array([f"class {k}" for k in range(len(X))]))


def test_a_metric_that_vanishes_is_told(monkeypatch):
    X, y = data()
    monkeypatch.setattr(psd, "sharp_factor", lambda S, D, t=0.5: np.zeros_like(S))
    with pytest.warns(UserWarning, match=r"the metric and all distances are 0, although rows of size .* differ"):
        GMML().fit(X, y)


@pytest.mark.parametrize("learner", [MCML(max_iter=1), BayesianPairMetric(max_iter=2)])
def test_a_search_that_ran_out_tells_what_it_fell_short_of(learner):
    X, y = 30 * np.random.default_rng(0).normal(size=(40, 3)), np.repeat([0, 1, 2, 3], 10)
    with pytest.warns(ConvergenceWarning) as told:
        learner.fit(X, y)
    assert abs(learner.objective_) > 2  # where `tol` alone would be less than what was asked for
    assert str(told[0].message).endswith(f"tol {learner.tol * abs(learner.objective_):.3g}")


@pytest.mark.parametrize("name", ["predict", "decision_function", "predict_proba"])
def test_what_needs_a_threshold_or_probabilities_names_what_to_call(name):
    X, y = data()
    learner = RCA()
    with pytest.raises(NotFittedError, match="This RCA instance is not fitted yet"):
        getattr(learner, name)([[0, 1]], X)
    learner.fit(X, y)
    assert not hasattr(learner, name)
    needed = "calibrate_probability" if name == "predict_proba" else "set_threshold"
    with pytest.raises(AttributeError, match=f"^RCA.{name}: no .* yet: .*{needed}"):
        getattr(learner, name)([[0, 1]], X)
    learner.set_threshold(1.0).calibrate_probability([[0, 1], [0, 2], [1, 3]], [1, -1, 1], X=X)
    assert len(getattr(learner, name)([[0, 1]], X)) == 1
    assert getattr(RCA, name).__doc__


def test_a_mark_that_no_row_has_is_warned_of_where_labels_are_optional():
    with pytest.warns(UserWarning, match="CovarianceMetric: unlabeled=7 marks no row"):
        nearfar.CovarianceMetric(pooled=True).fit(*data(30), unlabeled=7)


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
@pytest.mark.parametrize("columns", [["when"], ["width", "when"]])
def test_columns_of_dates_are_named(kind, columns):
    pandas = pytest.importorskip("pandas")
    X, y = data(30)
    frame = pandas.DataFrame({"width": X[:, 0], "when": np.arange(30).astype(kind)})[columns]
    with pytest.raises(ValueError, match=r"RCA: X: 1 column with values that are not numbers \('when'\); encode them"):
        RCA().fit(frame, y)
