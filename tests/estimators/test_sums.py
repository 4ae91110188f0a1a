"""Laws of the learners that need only sums over rows: weights, parts, sparse rows and Dask give what all rows give."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import has_fit_parameter

import nearfar
from nearfar.catalog import Method
from nearfar.estimators import sums
from nearfar.estimators.mahalanobis import SPARSE_LEARNERS
from nearfar.estimators.sums import FromSums
from nearfar.numerics.class_sums import added, class_sums
from tests.learners import LEARNERS, data, distances, fit, make

SUMMED = [method for method in LEARNERS if issubclass(getattr(nearfar, method.name), FromSums)]
OTHERS = [method for method in LEARNERS if method not in SUMMED]
# settings under which other sums are needed
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "CovarianceMetric": [
        {"pooled": True},
        {"pooled": True, "shrinkage": "oas"},
        {"shrinkage": None, "n_components": 2},
        {"shrinkage": 0.3, "assume_centered": True},
        {"assume_centered": True},
    ],
    "RCA": [
        {"n_components": 2},
        {"weighting": "chunklets", "ddof": "chunklets"},
        {"shrinkage": "lw"},
        {"pca": 3},
        {"shrinkage": 0.2, "objective": "probabilistic", "kappa": 2.0},
    ],
    "DiscriminantWhitening": [{"n_components": 2}, {"normalize": True}, {"emphasis": 1.0}],
    "FisherMetric": [{"approach": "trace"}, {"weighting": "class"}],
    "HighDimensionalDCA": [{"weighting": "class"}],
    "SideInformationMetric": [{"weighting": "class"}],
    "GMML": [{"weighting": "class", "t": 0.3, "n_components": 2}],
    "LowRankGMML": [{"n_components": 2}],
    "DCA": [{"solver": "hoi"}],
    "InformationGeometryMetric": [{"center": False}, {"n_components": 2, "shrinkage": 0.1}],
    "FISHMML": [{"view_sizes": [2, 2]}],
    "SPDGMML": [{"weighting": "class", "t": 0.3, "n_components": 2}],
}
CASES = [(method, settings) for method in SUMMED for settings in ({}, *SETTINGS.get(method.name, []))]
every_case = pytest.mark.parametrize(
    ("method", "settings"), CASES, ids=[f"{method.name}{'-'.join(map(str, s.values()))}" for method, s in CASES]
)
every_summed = pytest.mark.parametrize("method", SUMMED, ids=lambda method: method.name)


def equal(found: Any, wanted: Any, X: np.ndarray, rtol: float = 1e-7) -> None:
    d = distances(wanted, X)
    assert_allclose(distances(found, X), d, rtol=rtol, atol=rtol * d.max())


def quietly(call: Any, *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **kwargs)


@pytest.fixture(autouse=True)
def _nothing_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WRITTEN_OUT_VALUES", 0)


def some_rows() -> tuple[np.ndarray, np.ndarray]:
    """Rows with zeros, far from 0 in one column; a class of one row; text as labels, "?" for none."""
    X, y = data(40)
    X = np.where(np.abs(X) < 0.7, 0.0, X)
    X[:, 3] += 50
    names = np.array(["pear", "fig", "apple", "lone"])[y]
    names[5:8] = "?"
    names[9] = "lone"
    return X, names


def test_the_closed_forms_are_among_them() -> None:
    closed = {"CovarianceMetric", "FisherMetric", "RCA", "DiscriminantWhitening", "DCA", "HighDimensionalDCA", "GMML"}
    closed |= {"SideInformationMetric", "LowRankGMML", "InformationGeometryMetric", "FISHMML", "SPDGMML"}
    assert {method.name for method in SUMMED} == closed


@every_case
def test_an_integer_weight_is_the_row_repeated_and_zero_the_row_left_out(method: Method, settings: Any) -> None:
    X, y = some_rows()
    weight = np.random.default_rng(0).integers(0, 4, size=len(X))
    weight[9] = 1
    whole = fit(make(method, **settings), np.repeat(X, weight, axis=0), np.repeat(y, weight), unlabeled="?")
    found = fit(make(method, **settings), X, y, sample_weight=weight, unlabeled="?")
    equal(found, whole, X)
    equal(fit(make(method, **settings), X, y, sample_weight=np.ones(len(X))), fit(make(method, **settings), X, y), X)
    if whole.objective_ is not None and np.isfinite(whole.objective_):
        assert found.objective_ == pytest.approx(whole.objective_, rel=1e-6, abs=1e-9)


def spd_matrices(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    y = np.arange(n) % 3
    A = rng.normal(size=(n, d, 2 * d)) * (1 + y[:, None, None])
    return A @ A.transpose(0, 2, 1), y


@pytest.mark.parametrize("settings", [{}, {"weighting": "class"}, {"embedding": "vec"}])
def test_parts_and_weights_of_positive_definite_matrices(settings: Any) -> None:
    X, y = spd_matrices(30, 3)
    whole = nearfar.SPDGMML(**settings).fit(X, y)
    rng = np.random.default_rng(1)
    learner = nearfar.SPDGMML(**settings)
    for part in np.split(rng.permutation(30), [1, 3, 20]):
        learner.partial_fit(X[part], y[part])
    Z = whole.transform(X)
    assert_allclose(learner.transform(X), Z, atol=1e-9 * np.abs(Z).max())
    assert learner.columns_ == whole.columns_
    weight = rng.integers(0, 4, size=30)
    repeated = nearfar.SPDGMML(**settings).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    Z = repeated.transform(X)
    found = nearfar.SPDGMML(**settings).fit(X, y, sample_weight=weight)
    assert_allclose(found.transform(X), Z, atol=1e-9 * np.abs(Z).max())
    if learner.columns_ == 3:
        with pytest.raises(ValueError, match=r"X must hold points of .* columns, like the first part; got"):
            learner.partial_fit(np.ones((2, 9)), y[:2])


@every_case
def test_parts_are_the_whole_in_any_order_and_cutting(method: Method, settings: Any) -> None:
    X, y = some_rows()
    whole = fit(make(method, **settings), X, y, unlabeled="?")
    rng = np.random.default_rng(1)
    learner = make(method, **settings)
    for part in np.split(rng.permutation(len(X)), [1, 3, 20]):
        quietly(learner.partial_fit, X[part], y[part], unlabeled="?")
    equal(learner, whole, X)


@every_case
def test_sparse_rows_give_what_dense_rows_give(method: Method, settings: Any) -> None:
    X, y = some_rows()
    X[:, 3] -= 50
    whole = fit(make(method, **settings), X, y, unlabeled="?")
    found = fit(make(method, **settings), coo_array(X), y, unlabeled="?")
    equal(found, whole, X)
    Z = found.transform(X)
    assert_allclose(found.transform(csr_matrix(X)), Z, rtol=1e-9, atol=1e-9 * np.abs(Z).max())
    assert found.score(csr_array(X), y) == pytest.approx(whole.score(X, y))


@every_summed
def test_more_features_than_rows(method: Method) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(15, 30))
    y = np.arange(15) % 3
    weight = rng.integers(0, 3, size=15)
    whole = fit(make(method), np.repeat(X, weight, axis=0), np.repeat(y, weight))
    equal(fit(make(method), X, y, sample_weight=weight), whole, X, rtol=1e-6)
    learner = make(method)
    for part in np.array_split(rng.permutation(15), 4):
        quietly(learner.partial_fit, X[part], y[part])
    equal(learner, fit(make(method), X, y), X, rtol=1e-6)


@every_summed
def test_rows_far_from_zero_keep_their_digits(method: Method) -> None:
    X, y = data(60)
    whole = fit(make(method), X + 1e6, y)
    equal(fit(make(method), X + 1e6, y, sample_weight=np.ones(60)), whole, X, rtol=1e-5)
    equal(fit(make(method), csr_array(X + 1e6), y), whole, X, rtol=1e-5)
    learner = make(method)
    for part in np.array_split(np.arange(60), 7):
        quietly(learner.partial_fit, X[part] + 1e6, y[part])
    equal(learner, whole, X, rtol=1e-5)


def test_weights_are_taken_only_where_they_are_obeyed() -> None:
    for method in LEARNERS:
        kind = getattr(nearfar, method.name)
        assert has_fit_parameter(kind, "sample_weight") == (method in SUMMED), method.name
        assert hasattr(kind, "partial_fit") >= (method in SUMMED)


@pytest.mark.parametrize("method", OTHERS, ids=lambda method: method.name)
def test_other_learners_refuse_sparse_rows_in_one_line(method: Method) -> None:
    X, y = data(40)
    learner = make(method)
    assert not learner.__sklearn_tags__().input_tags.sparse
    message = rf"^{method.name}: X must be dense; got a sparse matrix of shape \(40, \d+\); pass X.toarray\(\)"
    with pytest.raises(TypeError, match=message):
        learner.fit(csr_array(X), y)


def test_refusals_of_sparse_rows_name_learners_that_take_them() -> None:
    names = SPARSE_LEARNERS.replace(" and ", ", ").split(", ")
    assert len(names) > 3
    for name in names:
        assert getattr(nearfar, name)().__sklearn_tags__().input_tags.sparse, name
    X, y = data(40)
    learner = nearfar.LMNN().fit(X, y)
    with pytest.raises(TypeError, match=rf"^LMNN: X must be dense; .* such as {SPARSE_LEARNERS}$"):
        learner.transform(csr_array(X))


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (nearfar.GMML("auto"), 't="auto"'),
        (nearfar.GMML(n_pairs=50), "n_pairs=50"),
        (nearfar.RCA(criterion="chunklet"), 'criterion="chunklet"'),
        (nearfar.RCA(n_chunklets=5), "n_chunklets=5"),
        (nearfar.RCA(shrinkage="lw", pca=2), 'pca= and shrinkage="lw"'),
        (nearfar.CovarianceMetric(shrinkage="mcd"), 'shrinkage="mcd"'),
        (nearfar.DiscriminantWhitening(emphasis="cv"), 'emphasis="cv"'),
    ],
)
def test_settings_that_need_the_rows_are_named(learner: Any, words: str) -> None:
    X, y = data(40)
    assert not learner.__sklearn_tags__().input_tags.sparse
    for call in (
        lambda: learner.fit(X, y, sample_weight=np.ones(40)),
        lambda: learner.partial_fit(X, y),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    start = f"^{type(learner).__name__}: X must be dense; got a sparse matrix of shape"
    message = f"{start} .*, or change {re.escape(words)}, which needs dense rows$"
    with pytest.raises(TypeError, match=message):
        learner.fit(csr_array(X), y)


def test_bad_weights_are_refused() -> None:
    X, y = data(40)
    for weight, words in (
        (np.ones(39), r"sample_weight must hold one number per row of X, shape \(40,\); got shape \(39,\)"),
        (-np.ones(40), "finite numbers >= 0; some are negative"),
        (np.full(40, np.nan), "finite"),
        (np.zeros(40), "zero"),
        (["much"] * 40, r"sample_weight must hold one number per row of X, shape \(40,\); got \['much'"),
        (np.full(40, 0.01), "y must hold a class whose weights sum to more than 1; got"),
    ):
        with pytest.raises(ValueError, match=f"GMML: .*{words}"):
            nearfar.GMML().fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="requires labels y; got pairs= as well"):
        nearfar.GMML().fit(X, pairs=[[0, 1]], sample_weight=np.ones(40))


def test_too_little_leaves_a_learner_unfitted() -> None:
    X, y = data(40)
    order = np.argsort(y, kind="stable")
    learner = nearfar.GMML()
    learner.partial_fit(X[order[:1]], y[order[:1]])
    with pytest.raises(NotFittedError):
        learner.transform(X)
    learner.partial_fit(X[order[1:]], y[order[1:]])
    equal(learner, nearfar.GMML().fit(X, y), X)


def test_parts_after_a_fit_start_over() -> None:
    X, y = data(40)
    learner = nearfar.GMML().fit(X[:20], y[:20])
    with pytest.warns(UserWarning, match="holds no sums to continue from; partial_fit starts over with this part"):
        learner.partial_fit(X, y)
    equal(learner, nearfar.GMML().fit(X, y), X)
    learner = nearfar.GMML().partial_fit(X[:20], y[:20])
    equal(learner.fit(X, y), nearfar.GMML().fit(X, y), X)  # a fit starts over


def test_other_settings_or_features_in_a_later_part_are_refused() -> None:
    X, y = data(40)
    learner = nearfar.RCA().partial_fit(X[:20], y[:20])
    with pytest.raises(ValueError, match="3 features"):
        learner.partial_fit(X[20:, :3], y[20:])
    with pytest.raises(ValueError, match="settings must not change between parts"):
        learner.set_params(weighting="chunklets").partial_fit(X[20:], y[20:])


def test_marks_of_all_parts_are_kept(tmp_path: Any) -> None:
    X, y = data(40)
    learner = nearfar.GMML().partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    whole = nearfar.GMML().fit(X, y)
    assert np.array_equal(learner._training_marks.items, whole._training_marks.items)
    sparse = nearfar.GMML().fit(csr_array(X), y)
    assert np.array_equal(sparse._training_marks.items, whole._training_marks.items)
    learner.save(tmp_path / "learner.safetensors")
    assert_allclose(nearfar.GMML.load(tmp_path / "learner.safetensors").transform(X), learner.transform(X))


def test_weights_are_routed_through_pipelines_and_searches() -> None:
    X, y = data(60)
    weight = np.random.default_rng(0).integers(1, 4, size=60)
    with sklearn.config_context(enable_metadata_routing=True):
        learner = nearfar.GMML().set_fit_request(sample_weight=True)
        neighbors = KNeighborsClassifier(3)
        neighbors.set_score_request(sample_weight=True)
        pipeline = make_pipeline(learner, neighbors).set_score_request(sample_weight=True)  # asked for before 1.7
        search = GridSearchCV(pipeline, {"gmml__t": [0.3]}, cv=3)
        search.fit(X, y, sample_weight=weight)
        found = search.best_estimator_["gmml"]
    equal(found, nearfar.GMML(0.3).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)), X)
    with_step = make_pipeline(nearfar.RCA(), KNeighborsClassifier(3)).fit(X, y, rca__sample_weight=weight)
    equal(with_step["rca"], nearfar.RCA().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)), X)


def test_sums_of_parts_by_plain_loops() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) + [0, 5, -20]
    codes = rng.integers(-1, 3, size=30)
    weight = rng.random(30) * 3
    for per_class in (True, False):
        parts = [
            class_sums(X[rows], codes[rows], weight[rows], classes=3, per_class=per_class)
            for rows in (np.arange(11), np.arange(11, 12), np.arange(12, 30))
        ]
        found = added(added(parts[2], parts[0]), parts[1])
        sparse = class_sums(csr_array(X), codes, weight, classes=3, per_class=per_class)
        S = np.zeros((3, 3, 3))
        for c in range(3):
            rows = [k for k in range(30) if codes[k] == c]
            n = sum(weight[k] for k in rows)
            mean = sum(weight[k] * X[k] for k in rows) / n
            cube = np.zeros(3)
            fourth = 0.0
            for k in rows:
                z = X[k] - mean
                S[c] += weight[k] * np.outer(z, z)
                cube += weight[k] * (z @ z) * z
                fourth += weight[k] * (z @ z) ** 2
            for table in (found, sparse):
                assert_allclose(table.count[c], n)
                assert_allclose(table.mean[c], mean)
                if per_class:
                    assert_allclose(table.scatter[c], S[c])
                    assert_allclose(table.cube[c], cube, rtol=1e-6, atol=1e-9)
                    assert_allclose(table.fourth[c], fourth)
        assert_allclose(found.within, S.sum(axis=0))
        assert_allclose(sparse.within, S.sum(axis=0))


def test_a_clone_holds_no_sums() -> None:
    X, y = data(40)
    learner = nearfar.GMML().partial_fit(X, y)
    equal(clone(learner).partial_fit(X, y), learner, X)


@every_summed
def test_small_tables_are_written_out(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    X, y = some_rows()
    weight = np.random.default_rng(0).integers(0, 4, size=len(X))
    rows = np.repeat(np.arange(len(X)), weight)
    whole = fit(make(method), X[rows], y[rows])
    assert_array_equal(fit(make(method), X, y, sample_weight=weight).components_, whole.components_)
    assert_array_equal(fit(make(method), csr_array(X[rows]), y[rows]).components_, whole.components_)
