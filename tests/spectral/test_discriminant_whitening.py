"""Whitening within classes with an emphasis on the class means, and what its users rely on."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.estimator_checks import check_estimator

import nearfar
from nearfar import DiscriminantWhitening
from nearfar.data import Dataset
from nearfar.evaluation import evaluate
from nearfar.numerics.whitening import (
    CANDIDATES,
    chosen_emphasis,
    discriminant_whitening,
    mean_precision_at_r,
    unit_rows,
)
from nearfar.workflows.fitting import check_linear, fit_standardized
from tests.learners import data
from tests.references.discriminant_whitening import metric


def features(classes=24, each=12, d=40, seed=0):
    """Rows whose classes differ in ten directions, and which differ far more in others of every class."""
    rng = np.random.default_rng(seed)
    y = np.arange(classes * each) % classes
    scale = np.r_[np.full(10, 0.7), np.full(10, 3.0), np.full(d - 20, 0.2)]
    centers = rng.normal(size=(classes, d)) * np.r_[np.ones(10), np.zeros(10), np.full(d - 20, 0.05)]
    mix = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (centers[y] + rng.normal(size=(len(y), d)) * scale + 1) @ mix, y


def test_normalized_rows_give_the_metric_of_rows_of_unit_length():
    X, y = features()
    learner = DiscriminantWhitening(normalize=True).fit(X, y)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert_allclose(learner.get_mahalanobis_matrix(), metric(rows, y), rtol=1e-6, atol=1e-6)
    assert_allclose(learner.mean_, rows.mean(axis=0), atol=1e-12)
    assert_allclose(learner.transform(X), (rows - rows.mean(axis=0)) @ learner.components_.T, atol=1e-9)
    assert_allclose(learner.get_metric()(X[0], X[1]), learner.pair_distance([[0, 1]], X)[0], rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(DiscriminantWhitening(normalize=True), on_fail=None)
    assert not [result["check_name"] for result in results if result["status"] == "failed"]


@pytest.mark.parametrize("emphasis", [1.0, 4.0])
@pytest.mark.parametrize("shrinkage", [0.1, 1.0])
def test_settings_equal_the_reference(shrinkage, emphasis):
    X, y = data()
    learner = DiscriminantWhitening(shrinkage=shrinkage, emphasis=emphasis).fit(X, y)
    assert_allclose(learner.get_mahalanobis_matrix(), metric(X, y, shrinkage, emphasis), rtol=1e-7)


def test_more_columns_than_rows_equal_the_reference():
    X, y = features(classes=6, each=3)  # 18 rows of 40 columns
    found = DiscriminantWhitening().fit(X, y).get_mahalanobis_matrix()
    assert_allclose(found, metric(X, y), rtol=1e-6, atol=1e-8 * np.abs(found).max())


def test_rows_of_unknown_class_count_for_the_mean_alone():
    X, y = features()
    unknown = np.arange(len(y)) % 3 == 0
    learner = DiscriminantWhitening().fit(X, np.where(unknown, -1, y), unlabeled=-1)
    assert_allclose(learner.mean_, X.mean(axis=0), atol=1e-12)
    assert_allclose(learner.get_mahalanobis_matrix(), metric(X[~unknown], y[~unknown]), rtol=1e-6, atol=1e-8)


def test_new_classes_are_found_better_than_by_whitening_alone():
    X, y = features()
    new = y % 2 == 0
    scores = {}
    for name, emphasis in {"alone": 1.0, "auto": "auto", "cv": "cv"}.items():
        learner = DiscriminantWhitening(emphasis=emphasis, random_state=0).fit(X[~new], y[~new])
        scores[name] = evaluate(learner.transform(X[new]), y[new], clustering=False).map_at_r
    plain = evaluate(X[new] - X[~new].mean(axis=0), y[new], clustering=False).map_at_r
    assert scores["alone"] > plain + 0.05
    assert scores["auto"] > scores["alone"] + 0.01
    assert scores["cv"] > scores["alone"] + 0.01


def test_folds_of_classes_choose_what_leaves_out_the_classes_best():
    X, y = features()
    chosen = chosen_emphasis(X - X.mean(axis=0), y, 0.5, seed=0)
    order = np.random.default_rng(0).permutation(24)
    scores = []
    for g in CANDIDATES:
        folds = []
        for fold in range(3):
            out = np.isin(y, order[fold::3])
            learner = DiscriminantWhitening(emphasis=g).fit(X[~out], y[~out])
            folds.append(evaluate(learner.transform(X[out]), y[out], clustering=False).map_at_r)
        scores.append(np.mean(folds))
    assert chosen == CANDIDATES[int(np.argmax(scores))]
    learner = DiscriminantWhitening(emphasis="cv", random_state=0).fit(X, y)
    assert learner.emphasis_ in CANDIDATES


def test_few_classes_take_the_rule_instead_of_folds():
    X, y = features(classes=5)
    assert DiscriminantWhitening(emphasis="cv").fit(X, y).emphasis_ == 1.5


def test_the_score_of_the_folds_is_map_at_r():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(40, 3)), rng.integers(0, 9, 40)
    y[0] = 99  # alone
    expected = evaluate(Z, y, clustering=False).map_at_r
    assert_allclose(mean_precision_at_r(Z @ Z.T, y), expected, rtol=1e-12)
    assert mean_precision_at_r(Z @ Z.T, np.arange(40)) == 0.0


@pytest.mark.parametrize(
    "case", ["one class", "all alone", "equal rows", "equal within classes", "one row", "none known", "one column"]
)
def test_degenerate_rows_give_a_finite_map(case):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 5)), np.arange(12) % 3
    if case == "one class":
        y[:] = 0
    elif case == "all alone":
        y = np.arange(12)
    elif case == "equal rows":
        X[:] = 1.0
    elif case == "equal within classes":
        X = X[y]
    elif case == "one row":
        X = X[:1]
        y = y[:1]
    elif case == "none known":
        y[:] = -1
    else:
        X = X[:, :1]
    found = discriminant_whitening(X, y)
    assert np.isfinite(found.components).all()
    assert np.isfinite(found.mean).all()
    if case != "equal rows":
        assert np.linalg.matrix_rank(found.components) == X.shape[1]


@pytest.mark.parametrize("unit", [1e-120, 1e120])
def test_units_of_the_rows_do_not_matter(unit):
    X, y = data()
    Z = DiscriminantWhitening().fit(X, y).transform(X)
    assert_allclose(DiscriminantWhitening().fit(unit * X, y).transform(unit * X), Z, rtol=1e-6, atol=1e-9)


def test_the_largest_emphasis_is_the_largest_that_was_measured():
    X, y = features(classes=200, each=3)
    assert DiscriminantWhitening().fit(X, y).emphasis_ == 12


@pytest.mark.parametrize("settings", [{"shrinkage": 0.0}, {"shrinkage": 1.5}, {"emphasis": 0.0}])
def test_settings_out_of_their_range_are_named(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"^DiscriminantWhitening: {name}"):
        DiscriminantWhitening(**settings).fit(*data())


def test_a_file_keeps_the_mean(tmp_path):
    X, y = features()
    learner = DiscriminantWhitening(normalize=True).fit(X, y)
    learner.save(tmp_path / "w.safetensors")
    assert_array_equal(DiscriminantWhitening.load(tmp_path / "w.safetensors").transform(X), learner.transform(X))


def test_standardized_columns_are_taken_back_into_mean_and_components():
    X, y = data()
    learner, plain = DiscriminantWhitening(), DiscriminantWhitening()
    fit_standardized(learner, X, Dataset.from_array("rows", X, y))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert_allclose(learner.transform(X), plain.fit(Z, y).transform(Z), atol=1e-9)
    with pytest.raises(ValueError, match="is not a linear learner"):
        check_linear(DiscriminantWhitening(normalize=True))


@pytest.mark.parametrize("normalize", [False, True])
def test_an_exported_whitening_gives_the_same_rows(normalize, tmp_path):
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    from nearfar.models.export import export_learner

    X, y = features()
    learner = DiscriminantWhitening(normalize=normalize).fit(X, y)
    export_learner(learner, tmp_path / "w.onnx")
    session = ort.InferenceSession(tmp_path / "w.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {"rows": X.astype(np.float32)})[0]
    expected = learner.transform(X)
    assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_module_of_a_network_gives_the_same_rows():
    torch = pytest.importorskip("torch")
    from nearfar.deep.networks.whiten import Whiten

    X, y = features()
    whiten = Whiten(X.shape[1])
    whiten.learn(X, y)
    expected = nearfar.DiscriminantWhitening(normalize=True).fit(X, y).transform(X)
    found = whiten(torch.from_numpy(X.astype(np.float32))).numpy()
    assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    half = whiten.bfloat16()(torch.from_numpy(X).bfloat16())
    assert half.dtype == torch.bfloat16
    assert whiten.weight.dtype == torch.float32
    assert torch.isfinite(whiten(torch.zeros(2, X.shape[1]))).all()


def test_rows_of_zeros_stay_where_rows_are_normalized():
    assert_array_equal(unit_rows(np.array([[0.0, 0.0], [3.0, 4.0], [3e300, 4e300]])), [[0, 0], [0.6, 0.8], [0.6, 0.8]])
