"""Kernelized: any linear learner in a kernel's feature space, under the laws of learners."""

import warnings
from inspect import signature

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import nearfar
from nearfar import GMML, MMC, RCA, CovarianceMetric, Kernelized
from nearfar.catalog import METHODS
from nearfar.estimators.base import MetricLearner
from nearfar.numerics import kernels
from tests.learners import accuracy, all_pairs, data, distances, fit

X, Y = data()
KERNELS = ("linear", "rbf", "polynomial", "laplacian", "cosine")
LINEAR = [
    GMML(reg=0.1),
    RCA(shrinkage=0),
    RCA(n_components=2, shrinkage=0),
    nearfar.DCA(shrinkage=0),
    nearfar.FisherMetric(shrinkage=0),
    nearfar.FisherMetric("trace"),
    nearfar.HighDimensionalDCA(n_components=2),
    nearfar.SideInformationMetric(),
    CovarianceMetric(shrinkage=None),
]


def cubic(A, B):
    return (A @ B.T + 1) ** 3


@pytest.mark.parametrize("inner", [GMML(), RCA(n_chunklets=8, random_state=0), nearfar.DCA()], ids=repr)
def test_scikit_learn_checks(inner):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(Kernelized(inner, random_state=0), on_fail=None)
    assert not {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert sum(r["status"] == "passed" for r in results) >= 30


@pytest.mark.parametrize("inner", LINEAR, ids=repr)
def test_linear_kernel_is_the_linear_method(inner):
    expected = distances(fit(clone(inner), X, Y), X)
    found = distances(fit(Kernelized(inner, "linear"), X, Y), X)
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * expected.max())


@pytest.mark.parametrize("inner", [RCA(), nearfar.DCA(), nearfar.LFDA(), nearfar.FisherMetric()], ids=repr)
def test_coordinates_of_a_kernel_keep_their_size(inner):
    R = kernels.kernel_map(X, "rbf", gamma=0.1).rows
    learner = Kernelized(inner, "rbf", gamma=0.1).fit(X, Y)
    isotropic = clone(inner)
    isotropic._has_units = False
    isotropic.fit(R, Y)
    assert_allclose(distances(learner, X), distances(isotropic, R), rtol=1e-6)
    divided = distances(clone(inner).fit(R, Y), R)
    assert np.abs(divided - distances(learner, X)).max() > 0.01 * divided.max()


@pytest.mark.parametrize("inner", [GMML(reg=0.1), RCA(shrinkage=0), nearfar.DCA(shrinkage=0)], ids=repr)
def test_sample_weights_reach_the_linear_learner(inner):
    weights = np.linspace(0.5, 2, len(X))
    expected = distances(clone(inner).fit(X, Y, sample_weight=weights), X)
    found = distances(Kernelized(inner, "linear").fit(X, Y, sample_weight=weights), X)
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * expected.max())
    assert np.abs(found - distances(clone(inner).fit(X, Y), X)).max() > 1e-3 * expected.max()


@pytest.mark.parametrize("inner", [GMML(reg=0.1), RCA(shrinkage=0.1), nearfar.FisherMetric("trace")], ids=repr)
def test_a_polynomial_kernel_is_the_linear_method_on_products(inner):
    one = np.hstack([np.ones((60, 1)), X / 5])
    products = np.einsum("ni,nj->nij", one, one).reshape(60, -1)
    V = np.linalg.svd(products, full_matrices=False)[2][:15]
    expected = distances(fit(clone(inner), products @ V.T, Y), X=products @ V.T)
    learner = fit(Kernelized(inner, "polynomial", degree=2, gamma=1 / 25, coef0=1), X, Y)
    assert_allclose(distances(learner, X), expected, rtol=1e-7, atol=1e-7 * expected.max())


@pytest.mark.parametrize("kernel", [*KERNELS, cubic])
def test_every_kernel_maps_new_rows_as_training_rows(kernel):
    learner = fit(Kernelized(GMML(), kernel), X[:40], Y[:40])
    assert_allclose(learner.transform(X)[:40], learner.transform(X[:40]))
    K = kernels.gram(X, X[:40], kernel, learner.gamma_, 3, 1)
    given = fit(Kernelized(GMML(), "precomputed"), K[:40], Y[:40])
    d = distances(learner, X)
    assert_allclose(distances(given, K), d, rtol=1e-6, atol=1e-6 * d.max())


@pytest.mark.parametrize("kernel", KERNELS)
def test_landmarks_of_all_rows_are_exact_and_few_come_near(kernel):
    exact = distances(fit(Kernelized(GMML(), kernel, random_state=0), X, Y), X)
    every = distances(fit(Kernelized(GMML(), kernel, landmarks=60, random_state=0), X, Y), X)
    assert_allclose(every, exact, rtol=1e-8, atol=1e-9)
    few = fit(Kernelized(GMML(), kernel, landmarks=30, random_state=0), X, Y)
    assert few.landmarks_.shape == (30,)
    assert few.dual_coef_.shape[0] == 30
    assert np.corrcoef(distances(few, X), exact)[0, 1] > 0.9


def test_landmarks_are_numbers_of_the_users_rows():
    learner = fit(Kernelized(GMML(), landmarks=20, random_state=0), X, Y)
    assert_array_equal(X[learner.landmarks_], learner.X_fit_)
    pairs, labels = all_pairs(Y)
    by_pairs = fit(Kernelized(GMML(), landmarks=20, random_state=0), X, pairs=pairs, pair_labels=labels)
    assert_array_equal(X[by_pairs.landmarks_], by_pairs.X_fit_)


def test_order_of_rows_and_names_of_classes_do_not_matter():
    order = np.random.default_rng(1).permutation(60)
    names = np.array(["pear", "fig", "apple"])[Y]
    for landmarks in (None, 20):
        d = distances(fit(Kernelized(GMML(), landmarks=landmarks, random_state=0), X, Y), X)
        again = fit(Kernelized(GMML(), landmarks=landmarks, random_state=0), X[order], names[order])
        assert_allclose(distances(again, X), d, rtol=1e-6)


def test_supervision_is_handed_on():
    pairs, labels = all_pairs(Y)
    by_pairs = fit(Kernelized(GMML()), X, pairs=pairs, pair_labels=labels)
    d = distances(by_pairs, X)
    assert_allclose(d, distances(fit(Kernelized(GMML()), X, Y), X), rtol=1e-6)
    assert set(by_pairs.predict(pairs, X)) == {-1, 1}
    assert_allclose(distances(fit(Kernelized(GMML()), X, Y, pairs=pairs, pair_labels=labels), X), d)
    by_labels = fit(by_pairs, X, Y)
    assert not hasattr(by_labels, "threshold_")
    assert not hasattr(by_labels, "predict")
    chunklets = fit(Kernelized(RCA(shrinkage=0.1)), X, chunklets=Y)
    assert_allclose(distances(chunklets, X), distances(fit(Kernelized(RCA(shrinkage=0.1)), X, Y), X), rtol=1e-6)
    fit(Kernelized(CovarianceMetric()), X)


def test_what_the_learner_tells_is_told():
    learner = fit(Kernelized(MMC(max_iter=3, random_state=0)), X, Y)
    assert learner.n_iter_ == learner.learner_.n_iter_
    assert learner.objective_ == learner.learner_.objective_
    assert learner.converged_ is learner.learner_.converged_
    assert not hasattr(fit(learner.set_params(learner=GMML()), X, Y), "duality_gap_")


def test_searches_reach_the_settings_inside():
    model = make_pipeline(Kernelized(GMML()), KNeighborsClassifier(3))
    grid = {"kernelized__learner__reg": [0.01, 1.0], "kernelized__gamma": [0.01, 0.1]}
    search = fit(GridSearchCV(model, grid, cv=2, error_score="raise"), X, Y)
    assert search.best_estimator_[0].learner.reg in (0.01, 1.0)
    assert len({round(score, 6) for score in search.cv_results_["mean_test_score"]}) > 1
    assert (
        clone(search.best_estimator_[0]).get_params()["learner__reg"] == search.best_params_["kernelized__learner__reg"]
    )


def test_a_precomputed_kernel_is_cut_by_rows_and_columns():
    K = polynomial_kernel(X, degree=2, gamma=0.1)
    model = make_pipeline(Kernelized(GMML(), "precomputed"), KNeighborsClassifier(3))
    assert fit(GridSearchCV(model, {"kernelized__rank": [5, None]}, cv=2, error_score="raise"), K, Y).best_score_ > 0.4


def test_rank_keeps_leading_directions():
    learner = fit(Kernelized(GMML(), rank=3), X, Y)
    assert learner.transform(X).shape == (60, 3)
    assert distances(fit(Kernelized(GMML(), rank=500), X, Y), X).shape == (1770,)
    with pytest.raises(ValueError, match=r"^Kernelized: rank must be an integer >= 1; got 0"):
        Kernelized(GMML(), rank=0).fit(X, Y)


def test_saved_and_loaded(tmp_path):
    inner = GMML(reg=0.3, prior=np.eye(4) * 2.5)
    learner = fit(Kernelized(inner, "linear", landmarks=30, random_state=0), X, Y)
    learner.save(tmp_path / "a")
    for again in (Kernelized.load(tmp_path / "a"), MetricLearner.load(tmp_path / "a")):
        assert_array_equal(again.transform(X), learner.transform(X))
        assert_array_equal(fit(again, X, Y).transform(X), learner.transform(X))
        again.save(tmp_path / "b")
    again = Kernelized.load(tmp_path / "a")
    assert again.get_params().keys() == learner.get_params().keys()
    assert again.learner.reg == 0.3
    found = Kernelized(nearfar.ITML(bounds=(np.float64(1), 4), random_state=np.int64(3)), landmarks=np.int64(9))
    fit(found, X, Y).save(tmp_path / "a")
    assert Kernelized.load(tmp_path / "a").learner.get_params()["random_state"] == 3
    with pytest.raises(ValueError, match=r"^Kernelized: kernel=.*cannot be saved"):
        fit(Kernelized(GMML(), cubic), X, Y).save(tmp_path / "c")
    with pytest.raises(ValueError, match=r"^Kernelized: learner must be a learner of this library"):
        fit(Kernelized(NeighborhoodComponentsAnalysis(max_iter=2)), X, Y).save(tmp_path / "c")


@pytest.mark.parametrize(
    "inner", ['{"class": "GMML", "settings": {"later": 1}}', '{"class": "os"}', '{"class": "GMML", "settings": 3}']
)
def test_a_file_with_another_inner_learner_is_named(tmp_path, inner):
    from nearfar.io import tensor_file

    text = {"format": "nearfar-learner-1", "class": "Kernelized", "settings": f'{{"learner": {inner}}}', "fitted": "{}"}
    tensor_file.write(tmp_path / "a", {}, text)
    for kind in (Kernelized, MetricLearner):
        with pytest.raises(ValueError, match="a holds no Kernelized of this version"):
            kind.load(tmp_path / "a")


def test_a_file_cannot_name_what_is_no_learner():
    for name in ("train", "catalog", "__version__", "os", None, "Siamese"):
        with pytest.raises(ValueError, match="must be a learner of this library"):
            Kernelized({"class": name, "settings": {}})._linear()


def test_what_is_not_linear_is_refused():
    with pytest.raises(ValueError, match=r"^Kernelized: learner must (be linear|learn one linear map).*KernelDCA"):
        Kernelized(nearfar.KernelDCA()).fit(X, Y)
    with pytest.raises(ValueError, match=r"^Kernelized: learner must be linear; the transform of PCA"):
        Kernelized(PCA(2, whiten=True)).fit(X)
    with pytest.raises(ValueError, match=r"^Kernelized: learner must learn one linear map.*KNeighborsClassifier"):
        Kernelized(KNeighborsClassifier()).fit(X, Y)
    assert fit(Kernelized(PCA(2)), X).transform(X).shape == (60, 2)


def test_errors_name_both():
    with pytest.raises(ValueError, match=r"^Kernelized: GMML: y must hold at least 2 classes"):
        Kernelized(GMML()).fit(X, np.zeros(60))
    with pytest.raises(ValueError, match=r"^Kernelized: .*NaN"):
        Kernelized(GMML()).fit(np.where(X > 2, np.nan, X), Y)
    with pytest.raises(ValueError, match=r"^Kernelized: .*inconsistent"):
        Kernelized(GMML()).fit(X, Y[:-1])
    with pytest.raises(ValueError, match=r"^Kernelized: .*positive semi-definite"):
        Kernelized(GMML(), "precomputed").fit(-np.eye(60), Y)


def test_float32_stays():
    assert fit(Kernelized(GMML()), X.astype(np.float32), Y).transform(X.astype(np.float32)).dtype == np.float32


def test_rings_come_apart():
    A, a = make_circles(300, noise=0.08, factor=0.5, random_state=0)
    one = fit(GMML(n_components=1), A[:150], a[:150])
    curved = fit(Kernelized(nearfar.DCA(n_components=1)), A[:150], a[:150])
    plain, found = (accuracy(m.transform(A[:150]), a[:150], m.transform(A[150:]), a[150:]) for m in (one, curved))
    assert found > 0.95
    assert plain < 0.8


@pytest.mark.parametrize(
    "method",
    [
        m
        for m in METHODS
        if m.kind == "learner"
        and m.takes in ("labels", "pairs", "triplets", "quadruplets", "chunklets")
        and issubclass(getattr(nearfar, m.name), nearfar.estimators.base.Mahalanobis)
    ],
    ids=lambda m: m.name,
)
def test_every_linear_learner_has_a_kernel_form(method):
    inner = getattr(nearfar, method.name)(**method.small)
    if "random_state" in inner.get_params():
        inner.set_params(random_state=0)
    learner = fit(Kernelized(inner, rank=8, random_state=0), X, Y)
    assert np.isfinite(learner.transform(X)).all()
    Z = X[:5] + 0.1
    assert learner.transform(Z).shape == (5, learner.components_.shape[0])
    told = signature(inner.fit).parameters.keys() - {"X", "y"}
    with config_context(enable_metadata_routing=True):
        learner.set_fit_request(**dict.fromkeys(told, True))  # all that the inner one takes can be routed


def test_a_class_for_a_learner_is_refused():
    with pytest.raises(
        ValueError, match=r"^Kernelized: learner must be a learner of this library, such as RCA\(\); got"
    ):
        Kernelized(GMML).fit(X, Y)


WARM = [
    m.name for m in METHODS if m.module and m.kind == "learner" and "warm_start" in vars(getattr(nearfar, m.name)())
]


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_of_the_learner_counts(name):
    X, y = load_iris(return_X_y=True)
    X, y = X[::4], y[::4]
    steps = {"max_iter": 20} if "max_iter" in vars(getattr(nearfar, name)()) else {}
    model = Kernelized(getattr(nearfar, name)(warm_start=True, **steps), landmarks=12, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not issubclass(getattr(nearfar, name), nearfar.estimators.base.Mahalanobis):
            with pytest.raises(ValueError, match="learner must learn one linear map"):
                model.fit(X, y)
            return
        model.fit(X, y)
        model.fit(X, y)
        assert np.isfinite(model.transform(X)).all()
        assert np.isfinite(model.fit(X[:25], y[:25]).transform(X)).all()
        assert np.isfinite(model.set_params(rank=3).fit(X, y).transform(X)).all()


def test_a_warm_start_begins_where_the_last_fit_ended():
    X, y = load_iris(return_X_y=True)
    model = Kernelized(nearfar.NCA(warm_start=True, max_iter=300), landmarks=30, random_state=0).fit(X, y)
    steps, value = model.n_iter_, model.objective_
    again = model.fit(X, y)
    assert again.n_iter_ < steps / 4
    assert again.objective_ >= value - 1e-6
    cold = Kernelized(nearfar.NCA(max_iter=300), landmarks=30, random_state=0).fit(X, y)
    assert cold.fit(X, y).n_iter_ == steps
    moved = model.set_params(random_state=1).fit(X, y)  # other landmarks: the images are carried over
    assert moved.n_iter_ < steps
