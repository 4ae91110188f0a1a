"""The laws of learners: stated once, asked of every learner of the catalog whose file exists.

A reference file (`tests/references/<file>.py`, or `<folder>_<file>.py` where that name is taken) holds the paper's
formula in plain loops, and may hold

* `metric(X, y) -> M` (d, d): what the learner must find, made with `SETTINGS` (default: the catalog's small ones);
* `check(learner, X, y)`: for solvers that iterate, asserts on the fitted learner (optimality, objective by loops);
* `EXCEPTIONS = {"law": "reason"}`: laws that the method does not obey, with the reason in words;
* `TOLERANCE`: relative, of the invariances (default 1e-6).

One of the first two must be there.
"""

from __future__ import annotations

import pickle
import warnings
from copy import copy, deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import nearfar
from nearfar.catalog import Method
from nearfar.estimators.base import FromChunklets, FromPairs, FromSets, FromTriplets, Mahalanobis, MetricLearner
from tests.learners import LEARNERS, accuracy, all_pairs, data, distances, fit, fitted, make, reference, told, toy

every_learner = pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)


def law(name: str, method: Method) -> None:
    """Leave out a law that the method's reference file excepts, with its reason."""
    reason = told(method, "EXCEPTIONS", {}).get(name)
    if reason is not None:
        assert len(reason.split()) >= 3, f"{method.name}: the exception from {name} needs a reason in words"
        pytest.skip(reason)


def close(a: np.ndarray, b: np.ndarray, method: Method) -> None:
    rtol = told(method, "TOLERANCE", 1e-6)
    assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


@pytest.mark.slow
@every_learner
def test_scikit_learn_checks(method: Method) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=f"{method.name}: ")  # few rows, and searches that small settings end
        results = check_estimator(make(method), on_fail=None, on_skip=None)
    assert sum(r["status"] == "passed" for r in results) >= 30
    # scikit-learn leaves this one out unless SCIPY_ARRAY_API=1 was set before SciPy was imported
    others = {r["check_name"]: r["exception"] for r in results if r["status"] != "passed"}
    assert others.keys() <= {"check_array_api_input"}, others


@every_learner
def test_nothing_works_before_a_fit(method: Method, tmp_path: Path) -> None:
    X, y = data()
    pairs, labels = all_pairs(y)
    points = X[pairs]
    calls: dict[str, tuple[Any, ...]] = {
        "transform": (X,),
        "embed": (X,),
        "kneighbors": (X,),
        "score": (X, y),
        "pair_distance": (points,),
        "pair_score": (points,),
        "get_metric": (),
        "get_mahalanobis_matrix": (),
        "get_feature_names_out": (),
        "set_distance": ("cosine",),
        "set_threshold": (1.0,),
        "calibrate_threshold": (points, labels),
        "calibrate_probability": (points, labels),
        "predict": (points,),
        "decision_function": (points,),
        "predict_proba": (points,),
        "save": (tmp_path / "learner.safetensors",),
    }
    learner = make(method)
    for name, arguments in calls.items():
        if hasattr(type(learner), name):
            with pytest.raises(NotFittedError, match=f"^This {method.name} instance is not fitted yet"):
                getattr(learner, name)(*arguments)
    for name in ("dimensions", "fingerprint"):
        with pytest.raises(NotFittedError, match=f"^This {method.name} instance is not fitted yet"):
            getattr(learner, name)


@every_learner
def test_predictions_name_what_they_need(method: Method) -> None:
    X, _ = data()
    learner = copy(fitted(method))
    needed = {"predict_proba": "calibrate_probability"}
    if not hasattr(learner, "threshold_"):
        needed |= dict.fromkeys(("predict", "decision_function"), "calibrate_threshold or set_threshold")
    for name, call in needed.items():
        with pytest.raises(AttributeError, match=f"^{method.name}.{name}: no .* yet: .*{call}"):
            getattr(learner, name)([[0, 1]], X)
    assert set(learner.set_threshold(1.0).predict([[0, 1], [0, 2]], X)) <= {-1, 1}


@every_learner
def test_columns_of_dates_are_named(method: Method) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame(X, columns=["width", "height", "depth", "when"])
    dates = frame.assign(when=pandas.Timestamp("2024-02-29"))
    refused = rf"(?s)^{method.name}: X: 1 column with values that are not numbers \('when'\)"
    for given in (dates, dates[["when"]]):
        with pytest.raises(ValueError, match=refused):
            make(method).fit(given, y)
    with pytest.raises(ValueError, match=refused):
        fit(make(method), frame, y).transform(dates)


@every_learner
def test_is_a_semi_definite_metric(method: Method) -> None:
    X, y = data()
    learner = fitted(method)
    assert isinstance(learner, MetricLearner)
    pairs, _ = all_pairs(y)
    d = learner.pair_distance(pairs, X)
    assert_allclose(d, pdist(learner.transform(X), learner.distance_), rtol=1e-6)
    assert_allclose(learner.pair_distance(X[pairs][:5]), d[:5], rtol=1e-6)
    assert_array_equal(learner.pair_score(pairs, X), -d)
    metric = learner.get_metric()
    assert_allclose([metric(X[0], X[1]), metric(X[2], X[2])], [d[0], 0], rtol=1e-6, atol=1e-12)
    assert_allclose(metric(X[0], X[1], squared=True), d[0] ** 2, rtol=1e-6)
    if isinstance(learner, Mahalanobis):
        M = learner.get_mahalanobis_matrix()
        assert_array_equal(M, M.T)
        w = np.linalg.eigvalsh(M)
        assert w[0] >= -1e-10 * w[-1]
        assert w[-1] > 0
        z = X[0] - X[1]
        assert_allclose(distances(learner, X)[0] ** 2, z @ M @ z, rtol=1e-6)


@every_learner
def test_every_method_compares_by_the_distance_of_the_learner(method: Method, tmp_path: Path) -> None:
    X, y = data()
    learner = copy(fitted(method)).set_threshold(1.0).set_distance("cosine")
    assert not hasattr(learner, "threshold_")
    saved = tmp_path / "learner.safetensors"
    learner.save(saved)
    pairs, _ = all_pairs(y)
    expected = pdist(learner.transform(X), "cosine")
    close = {"rtol": 1e-6, "atol": 1e-9}
    for each in (learner, type(learner).load(saved)):
        assert each.distance_ == "cosine"
        assert_allclose(each.pair_distance(pairs, X), expected, **close)
        assert_allclose(each.pair_distance(X[pairs]), expected, **close)
        assert_allclose(each.get_metric()(X[0], X[1]), expected[0], **close)
        D = squareform(expected)
        np.fill_diagonal(D, np.inf)
        assert_allclose(each.kneighbors(X, n_neighbors=1)[0][:, 0], D.min(axis=1), **close)


@every_learner
def test_row_order_does_not_matter(method: Method) -> None:
    law("row order", method)
    X, y = data()
    order = np.random.default_rng(1).permutation(len(y))
    d = distances(fitted(method), X)
    close(distances(fit(make(method), X[order], y[order]), X), d, method)


@every_learner
def test_label_names_do_not_matter(method: Method) -> None:
    law("label names", method)
    X, y = data()
    d = distances(fitted(method), X)
    close(distances(fit(make(method), X, np.array(["pear", "fig", "apple"])[y]), X), d, method)
    close(distances(fit(make(method), X, np.array([7, 0, 3])[y]), X), d, method)


@every_learner
def test_translation_does_not_matter(method: Method) -> None:
    law("translation", method)
    X, y = data()
    shift = np.array([3.0, -5.0, 1.0, 10.0])
    d = distances(fitted(method), X)
    close(distances(fit(make(method), X + shift, y), X + shift), d, method)


@every_learner
def test_rotation_does_not_matter(method: Method) -> None:
    law("rotation", method)
    X, y = data()
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]
    pairs, labels = all_pairs(y)
    told_pairs = {"pairs": pairs[::3], "pair_labels": labels[::3]} if isinstance(make(method), FromPairs) else {"y": y}
    # the default prior is in units of the columns, which a rotation mixes
    settings = {"shrinkage": 0} if getattr(make(method), "_in_deviations", False) else {}
    d = distances(fit(make(method, **settings), X, **told_pairs), X)
    close(distances(fit(make(method, **settings), X @ Q, **told_pairs), X @ Q), d, method)


@every_learner
def test_rounding_of_the_rows_does_not_matter(method: Method) -> None:
    law("rounding", method)
    X, y = data()
    noise = np.random.default_rng(9).normal(size=X.shape) * np.abs(X).max()
    d = distances(fitted(method), X)
    found = distances(fit(make(method), X + 1e-13 * noise, y), X)
    assert_allclose(found, d, rtol=0, atol=1e-6 * d.max())


@every_learner
def test_rounding_in_a_dependent_column_is_not_stretched(method: Method) -> None:
    law("dependent columns", method)
    search = {"max_iter": 1000} if "max_iter" in method.small else {}  # to its end, not somewhere on its way
    X, y = data()
    X = np.c_[X, X.sum(axis=1)]
    noise = np.random.default_rng(9).normal(size=X.shape) * np.abs(X).max()
    d = distances(fit(make(method, **search), X, y), X)
    found = distances(fit(make(method, **search), X + 1e-16 * noise, y), X)
    assert_allclose(found, d, rtol=0, atol=1e-2 * d.max())  # a search may end elsewhere within its `tol`


@every_learner
def test_same_seed_same_result(method: Method) -> None:
    X, y = data()
    assert_array_equal(fit(make(method), X, y).transform(X), fitted(method).transform(X))


class StoppedError(Exception):
    """Raised in place of storing a solution."""


@every_learner
def test_a_fit_changes_nothing_before_its_solution_is_stored(method: Method, monkeypatch: Any) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise StoppedError

    learner = make(method)
    before = vars(learner).copy()
    monkeypatch.setattr(MetricLearner, "_store", stop)
    with pytest.raises(StoppedError):
        fit(learner, *data())
    of_rows = {"n_features_in_", "feature_names_in_"}
    assert vars(learner).keys() - of_rows == before.keys()
    assert all(vars(learner)[name] is value for name, value in before.items())


def test_every_fit_names_its_learner_in_errors_of_its_arguments() -> None:
    for method in LEARNERS:
        kind = getattr(nearfar, method.name)
        for name in ("fit", "partial_fit"):
            if hasattr(kind, name):
                with pytest.raises(TypeError, match=rf"^{method.name}.{name} takes X, y"):
                    getattr(make(method), name)(*data(), nonsense=1)


@every_learner
def test_numbers_of_numpy_are_settings(method: Method) -> None:
    kinds = {int: np.int64, float: np.float64, bool: np.bool_}
    learner, (X, y) = make(method), data()
    plain = learner.get_params(deep=False)
    numbers = {name: kinds[type(value)](value) for name, value in plain.items() if type(value) in kinds}
    other = clone(learner).set_params(**numbers)
    assert_allclose(distances(fit(other, X, y), X), distances(fitted(method), X), atol=1e-9)


@every_learner
def test_float32_in_float32_out(method: Method) -> None:
    law("float32", method)
    X, y = data()
    X32 = X.astype(np.float32)
    learner = fit(make(method), X32, y)
    assert learner.transform(X32).dtype == np.float32
    # fitted on the very same numbers in float64
    wide = fit(make(method), X32.astype(np.float64), y)
    d = distances(wide, X)
    assert_allclose(distances(learner, X32), d, rtol=1e-3, atol=1e-4 * d.max())


@every_learner
def test_pickles_clones_and_saves(method: Method, tmp_path: Any) -> None:
    X, y = data()
    learner = fitted(method)
    Z = learner.transform(X)
    assert_array_equal(pickle.loads(pickle.dumps(learner)).transform(X), Z)
    assert_array_equal(fit(clone(learner), X, y).transform(X), Z)
    learner.save(tmp_path / "learner.safetensors")
    again = MetricLearner.load(tmp_path / "learner.safetensors")
    assert type(again) is type(learner)
    assert again.get_params().keys() == learner.get_params().keys()
    assert_array_equal(again.transform(X), Z)
    assert again.n_iter_ == learner.n_iter_


@every_learner
def test_nearest_rows(method: Method) -> None:
    X, _ = data()
    learner = fitted(method)
    D = squareform(pdist(learner.transform(X), learner.distance_))
    np.fill_diagonal(D, np.inf)
    d, i = learner.kneighbors(X, n_neighbors=3)
    assert_allclose(d, np.sort(D, axis=1)[:, :3], rtol=1e-6, atol=1e-9 * d.max())
    assert_allclose(np.take_along_axis(D, i, axis=1), d, rtol=1e-6, atol=1e-9 * d.max())
    assert_array_equal(learner.kneighbors(X, X[:4], n_neighbors=1, return_distance=False).shape, (4, 1))


@every_learner
def test_fitted_attributes(method: Method) -> None:
    X, _ = data()
    learner = deepcopy(fitted(method))  # its output is set below
    assert learner.n_features_in_ == 4
    assert learner.n_iter_ >= 1
    assert isinstance(learner.converged_, bool)
    assert len(learner.get_feature_names_out()) == learner.transform(X).shape[1]
    frame = learner.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(learner.get_feature_names_out())


@every_learner
@pytest.mark.filterwarnings("error", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_is_warned_of_without_a_reason(method: Method) -> None:
    X, y = data()
    make(method).fit(X, y)


@every_learner
@pytest.mark.filterwarnings("ignore")
def test_history_ends_at_the_objective(method: Method) -> None:
    learner = fit(make(method, **STEPS[method.name]), *data()) if method.name in STEPS else fitted(method)
    if not hasattr(learner, "history_"):
        return
    law("history", method)
    assert_allclose(learner.history_[-1], learner.objective_, rtol=1e-9)


@every_learner
def test_beats_euclidean_where_two_features_tell(method: Method) -> None:
    law("toy", method)
    X, y = toy()
    learner = fit(make(method, **told(method, "TOY_SETTINGS", {})), X[:200], y[:200])
    plain = accuracy(X[:200], y[:200], X[200:], y[200:])
    learned = accuracy(learner.transform(X[:200]), y[:200], learner.transform(X[200:]), y[200:])
    assert learned >= plain + 0.05, f"{learned:.3f} against {plain:.3f}"


@every_learner
def test_equals_its_reference(method: Method) -> None:
    module = reference(method)
    assert module is not None, f"tests/references/{method.at.rpartition('/')[2]}.py is missing"
    X, y = data()
    learner = fit(make(method, **told(method, "SETTINGS", {})), X, y)
    assert hasattr(module, "metric") or hasattr(module, "check"), (
        "a reference needs metric(X, y) or check(learner, X, y)"
    )
    if hasattr(module, "metric"):
        M = np.asarray(module.metric(X, y))
        assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-6, atol=1e-7 * np.abs(M).max())
    if hasattr(module, "check"):
        module.check(learner, X, y)


@every_learner
def test_numbers_of_rows_need_a_list_that_uses_them(method: Method) -> None:
    if "rows" not in signature(make(method).fit).parameters:
        pytest.skip("takes no rows=")
    X, y = data()
    with pytest.raises(ValueError, match=rf"^{method.name}: rows must be given with "):
        make(method).fit(X, y, rows=np.arange(len(X)))


@every_learner
def test_a_mark_that_no_label_can_equal_is_refused(method: Method) -> None:
    if "unlabeled" not in signature(make(method).fit).parameters:
        pytest.skip("takes no unlabeled=")
    if method.takes == "none":
        pytest.skip("ignores labels")
    X, y = data()
    with pytest.raises(ValueError, match=rf"^{method.name}: unlabeled must be a number, .*'\?'"):
        make(method).fit(X, y, unlabeled="?")
    with pytest.raises(ValueError, match=rf"^{method.name}: unlabeled must be text, .*-1"):
        make(method).fit(X, y.astype(str), unlabeled=-1)


@every_learner
def test_a_mark_that_no_row_has_is_warned_of(method: Method) -> None:
    if "unlabeled" not in signature(make(method).fit).parameters or method.takes == "none":
        return
    X, y = data()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(method).fit(X, y, unlabeled=7)
    texts = [str(warning.message) for warning in caught if "unlabeled" in str(warning.message)]
    assert len(texts) == 1
    assert texts[0].startswith(f"{method.name}: unlabeled=7 marks no row")


@every_learner
def test_rows_without_a_label_are_no_class(method: Method) -> None:
    law("unknown labels", method)
    X, y = data()
    y = np.where(np.arange(len(y)) % 3 == 0, -1, y)
    learner = fit(make(method), X, y, unlabeled=-1)
    assert np.isfinite(learner.transform(X)).all()
    named = [-1 if label < 0 else f"class {label}" for label in y]
    assert_array_equal(fit(make(method), X, named, unlabeled=-1).transform(X), learner.transform(X))
    text = ["?" if label < 0 else f"class {label}" for label in y]
    assert_array_equal(fit(make(method), X, text, unlabeled="?").transform(X), learner.transform(X))
    if make(method).__sklearn_tags__().target_tags.required:
        with pytest.raises(ValueError, match=rf"^{method.name}: .*class"):
            make(method).fit(X, np.full(len(y), -1), unlabeled=-1)


@every_learner
def test_minus_one_is_a_class_like_any_other(method: Method) -> None:
    law("label names", method)
    X, y = data()
    found = fit(make(method), X, y - 1).transform(X)
    assert_array_equal(found, fitted(method).transform(X))
    two = np.where(y == 0, -1, 1)
    assert_array_equal(fit(make(method), X, two).transform(X), fit(make(method), X, two + 1).transform(X))


@every_learner
def test_small_classes_and_few_rows_leave_fewer_neighbors(method: Method) -> None:
    settings = signature(type(make(method))).parameters
    asked = [name for name in ("n_neighbors", "k") if name in settings]
    if not asked:
        pytest.skip("it has no number of neighbors")
    X, y = data(30)
    y[np.flatnonzero(y == 2)[2:]] = 0  # two rows are left
    learner = make(method, **dict.fromkeys(asked, 50))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        learner.fit(X, y)
    assert np.isfinite(learner.transform(X)).all()
    said_of_neighbors = [str(w.message) for w in said if f"{asked[0]}=50" in str(w.message)]
    assert len(said_of_neighbors) in (0, 1)
    assert all(text.startswith(method.name) for text in said_of_neighbors)


@every_learner
def test_explicit_supervision(method: Method) -> None:
    law("explicit supervision", method)
    X, y = data(30)
    settings = told(method, "SETTINGS", {})
    learner = make(method, **settings)
    rng = np.random.default_rng(3)
    if isinstance(learner, FromPairs):
        pairs, labels = all_pairs(y)
        order = rng.permutation(len(labels))
        learner = fit(learner, X, pairs=pairs, pair_labels=labels)
        again = fit(make(method, **settings), X, pairs=pairs[order][:, ::-1], pair_labels=labels[order])
        close(distances(again, X), distances(learner, X), method)
        assert set(learner.predict(pairs, X)) <= {-1, 1}
        if learner.get_params().get("n_pairs") == "all":
            close(distances(fit(make(method, **settings), X, y), X), distances(learner, X), method)
    elif isinstance(learner, FromTriplets):
        a, p, n = (rng.permutation(np.flatnonzero(y == k))[:4] for k in (0, 0, 1))
        triplets = np.stack([a, p[::-1], n], axis=1)
        assert np.isfinite(fit(learner, X, triplets=triplets[a != p[::-1]]).transform(X)).all()
    elif isinstance(learner, FromChunklets):
        fit(learner, X, chunklets=y)
        close(distances(fit(make(method, **settings), X, y), X), distances(learner, X), method)
    elif isinstance(learner, FromSets):
        fit(learner, X, np.eye(3, dtype=int)[y])


@every_learner
def test_tuples_of_points_may_hold_equal_points(method: Method) -> None:
    learner = make(method)
    X, y = data(30)
    X = np.round(X)
    rng = np.random.default_rng(0)
    if isinstance(learner, FromPairs) and not learner._matrices:
        pairs, labels = all_pairs(y)
        some = rng.permutation(len(labels))[:60]
        # one pair with both labels, and pairs of equal points
        points = X[np.concatenate([pairs[some], [[0, 1], [0, 1], [2, 2], [3, 3]]])]
        assert np.isfinite(fit(learner, points, np.r_[labels[some], 1, -1, 1, -1]).transform(X)).all()
    elif isinstance(learner, FromTriplets):
        triplets = np.concatenate(
            [[[0, 1, 1], [2, 2, 3], [4, 5, 4]], rng.permuted(np.tile(np.arange(30), (9, 1)))[:, :3]]
        )
        assert np.isfinite(fit(learner, X[triplets]).transform(X)).all()


@every_learner
@pytest.mark.parametrize(
    "case",
    ["duplicates", "constant column", "one feature", "fewer rows than features", "identical classes", "equal rows"],
)
def test_degenerate_data_give_a_result_or_one_clear_error(method: Method, case: str) -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(12, 3)), np.arange(12) % 2
    if case == "duplicates":
        X = np.repeat(X[:4], 3, axis=0)
        y = np.repeat([0, 1, 0, 1], 3)
    elif case == "constant column":
        X[:, 1] = 2.0
    elif case == "one feature":
        X = X[:, :1] + y[:, None]
    elif case == "fewer rows than features":
        X = rng.normal(size=(12, 20))
    elif case == "equal rows":
        X = np.ones((12, 3))
    else:
        X = np.repeat(X[:6], 2, axis=0)
    reason = told(method, "EXCEPTIONS", {}).get(case)
    if reason is not None:
        with pytest.raises(ValueError, match=f"^{method.name}: "):
            fit(make(method), X, y)
        return
    Z = np.asarray(fit(make(method), X, y).transform(X))
    assert np.isfinite(Z).all()
    assert np.isrealobj(Z)


def bad_calls(method: Method) -> dict[str, tuple[dict[str, Any], str]]:
    """What must be refused, and a word of the message."""
    X, y = data(30)
    hole = X.copy()
    hole[3, 1] = np.nan
    calls: dict[str, tuple[dict[str, Any], str]] = {
        "nan": ({"X": hole, "y": y}, "NaN"),
        "infinite": ({"X": np.where(np.isnan(hole), np.inf, hole), "y": y}, "infinity"),
        "one row": ({"X": X[:1], "y": y[:1]}, "minimum of 2|1 sample"),
        "one dimension": ({"X": X[:, 0], "y": y}, "2D|dimension"),
    }
    if make(method).__sklearn_tags__().target_tags.required:
        calls["one class"] = ({"X": X, "y": np.zeros(30, dtype=int)}, "class|differ")
        if not isinstance(make(method), FromSets) and method.takes != "targets":
            calls["all alone"] = ({"X": X, "y": np.arange(30)}, "similar")
        calls["lengths"] = ({"X": X, "y": y[:-1]}, "inconsistent")
        calls["no labels"] = ({"X": X}, "requires y")
    if method.takes == "targets":
        calls["words"] = ({"X": X, "y": np.array(["pear", "fig"])[y % 2]}, "y must hold finite real numbers")
        calls["nan target"] = ({"X": X, "y": np.where(y == 1, np.nan, y)}, "NaN")
        calls["infinite target"] = ({"X": X, "y": np.where(y == 1, np.inf, y)}, "infinite")
    if isinstance(make(method), FromPairs):
        good = np.array([[0, 1], [2, 3]])
        calls["pair out of range"] = ({"X": X, "pairs": [[0, 30]], "pair_labels": [1]}, "pairs .*30")
        calls["pair with itself"] = ({"X": X, "pairs": [[4, 4]], "pair_labels": [1]}, "itself")
        calls["pair label"] = ({"X": X, "pairs": good, "pair_labels": [0, 1]}, "pair_labels")
        calls["pair lengths"] = ({"X": X, "pairs": good, "pair_labels": [1]}, "pair_labels")
        if "contradicting pairs" not in told(method, "EXCEPTIONS", {}):
            calls["torn"] = ({"X": X, "pairs": [[0, 1], [1, 0]], "pair_labels": [1, -1]}, "one label")
        if make(method)._both_kinds:
            calls["no dissimilar"] = ({"X": X, "pairs": good, "pair_labels": [1, 1]}, "dissimilar")
            calls["no similar"] = ({"X": X, "pairs": good, "pair_labels": [-1, -1]}, "similar")
    return calls


@every_learner
def test_bad_input_is_one_clear_error(method: Method) -> None:
    for kwargs, word in bad_calls(method).values():
        with pytest.raises(ValueError, match=rf"(?s)^{method.name}.*({word})"):
            make(method).fit(**kwargs)


AT_LEAST_ONE = ("k", "n_neighbors", "neighbors", "max_iter")
ANY_NUMBER = ("bias", "prior_mean")  # these may be below 0
KERNEL = {"degree": "polynomial", "coef0": "polynomial"}  # the kernel that reads a setting


@every_learner
def test_settings_out_of_their_range_are_named(method: Method) -> None:
    X, y = data(30)
    shape = signature(type(make(method))).parameters
    for name in shape.keys() - {"random_state", "verbose"}:
        kinds = {kind.strip() for kind in str(shape[name].annotation).split("|")}
        wrong: list[float] = [-1] if "int" in kinds else []
        wrong += [0] if name in AT_LEAST_ONE else []
        wrong += [-1.0, np.inf] if "float" in kinds else []
        if name in ANY_NUMBER:
            wrong.remove(-1.0)
        if name == "gamma" and "ITML" in method.name:  # hard bounds
            wrong.remove(np.inf)
        for value in wrong:
            settings: dict[str, Any] = {name: value}
            if name in KERNEL and "kernel" in shape:
                settings["kernel"] = KERNEL[name]
            if name == "chunklet_size":
                settings["n_chunklets"] = 5
            with pytest.raises(ValueError, match=rf"^{method.name}: {name}\b"):
                fit(make(method, **settings), X, y)


@every_learner
def test_counts_are_integers(method: Method) -> None:
    X, y = data(30)
    shape = signature(type(make(method))).parameters
    for name in shape.keys() - {"random_state", "verbose"}:
        kinds = {kind.strip() for kind in str(shape[name].annotation).split("|")}
        if "int" in kinds and "float" not in kinds:
            with pytest.raises(ValueError, match=rf"^{method.name}: {name}\b"):
                fit(make(method, **{name: 2.5}), X, y)


@every_learner
def test_settings_of_the_wrong_kind_are_named(method: Method) -> None:
    X, y = data(30)
    wrong: dict[str, tuple[Any, ...]] = dict.fromkeys(AT_LEAST_ONE, (1.5, "many"))
    wrong |= {"n_pairs": (2.5, "some"), "landmarks": (0, -1, 1.5), "tol": ("small",), "max_iter": (2.5, None)}
    wrong |= {"n_components": (True, "few"), "init": ("best",), "prior": ("mine",)}
    for name in wrong.keys() & make(method).get_params().keys():
        for value in wrong[name]:
            with pytest.raises(ValueError, match=rf"(?s)^{method.name}\b.*{name}"):
                fit(make(method, **{name: value}), X, y)


@every_learner
def test_words_that_no_setting_knows_are_named(method: Method) -> None:
    X, y = data(30)
    for name, value in make(method).get_params().items():
        if isinstance(value, str):
            with pytest.raises(ValueError, match=rf"(?s)^{method.name}\b.*{name}"):
                fit(make(method, **{name: "bogus"}), X, y)


# settings with which a learner that has a closed form takes steps, and with which another takes enough of them
STEPS = {
    "KernelMCML": {"max_iter": 300},  # its gap is looked at after 150
    "LowRankGMML": {"n_components": 2, "subspace": "riemannian"},
    "RCA": {"n_components": 2, "criterion": "chunklet"},
}


@pytest.mark.parametrize(
    "learner",
    [
        nearfar.ITML(solver="projections"),
        nearfar.LMNN(solver="lbfgs", outer_passes=2),
        nearfar.LMNN(solver="sdp"),
        nearfar.MDSMetric(loss="sstress"),
        nearfar.MDSMetric(loss="stress"),
        nearfar.MDSMetric(loss="stress", n_components=2),
    ],
    ids=str,
)
def test_every_solver_prints_its_progress(learner: Any, capsys: Any) -> None:
    if learner.get_params().get("solver") == "sdp":
        pytest.importorskip("clarabel")
    fit(learner.set_params(verbose=True, max_iter=3), *data())
    assert f"{type(learner).__name__}: iteration 1" in capsys.readouterr().out


@every_learner
def test_progress_is_printed_where_asked_for_only(method: Method, capsys: Any) -> None:
    X, y = data()
    settings = STEPS.get(method.name, {})
    if "verbose" not in make(method).get_params() or method.name == "SideInformationMetric":  # steps need distances
        return
    fit(make(method, **settings), X, y)
    assert capsys.readouterr().out == ""
    fit(make(method, **settings, verbose=True), X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith(f"{method.name}: iteration ") for line in lines)


@pytest.mark.slow
@every_learner
@pytest.mark.filterwarnings("ignore")
def test_a_warm_start_needs_the_same_columns(method: Method) -> None:
    if "warm_start" not in make(method).get_params() or method.name == "BayesianPairMetric":  # the same directions
        return
    X, y = data()
    settings = STEPS.get(method.name, {})
    wide = np.random.default_rng(0).normal(size=(len(X), len(X) + 5))
    rows = {"all": X, "fewer": X[:, :-1], "wide": wide, "less wide": wide[:, :-1]}
    warm = {name: fit(make(method, **settings, warm_start=True), rows[name], y) for name in ("all", "fewer", "wide")}
    cold = {name: fit(make(method, **settings), rows[name], y) for name in ("all", "fewer", "less wide")}
    for first, then in (("all", "fewer"), ("fewer", "all"), ("wide", "less wide"), ("wide", "all")):
        again = fit(deepcopy(warm[first]), rows[then], y)
        assert_array_equal(again.transform(rows[then]), cold[then].transform(rows[then]))


@every_learner
@pytest.mark.filterwarnings("ignore")
def test_a_warm_start_takes_no_more_steps_to_the_same_value(method: Method) -> None:
    if "warm_start" not in make(method).get_params():
        return
    X, y = data()
    learner = fit(make(method, **STEPS.get(method.name, {}), warm_start=True), X, y)
    steps, value, converged = learner.n_iter_, learner.objective_, learner.converged_
    fit(learner, X, y)
    if converged:
        assert learner.n_iter_ <= steps
        assert_allclose(learner.objective_, value, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@every_learner
@pytest.mark.filterwarnings("ignore")
def test_a_warm_start_of_another_number_of_components_is_none(method: Method) -> None:
    known = {"warm_start", "n_components"} <= make(method).get_params().keys()
    if not known or method.name == "SideInformationMetric":  # has one from labels
        return
    X, y = data()
    settings = STEPS.get(method.name, {})
    for first, then in ((2, 1), (1, 2)):
        again = fit(make(method, **settings | {"n_components": first}, warm_start=True), X, y)
        cold = fit(make(method, **settings | {"n_components": then}), X, y)
        again = fit(again.set_params(n_components=then), X, y)
        d = distances(cold, X)
        assert again.transform(X).shape == cold.transform(X).shape
        if cold.converged_ or not hasattr(cold, "duality_gap_"):  # convex problems may start from any
            assert_allclose(distances(again, X), d, rtol=1e-3, atol=1e-3 * d.max())


# closed forms, searches that end at an exact optimum, one view that needs no sweeps; LMNN and CDML may take more steps
NO_SHORTER = (
    "SideInformationMetric",
    "DCA",
    "KernelDCA",
    "NuSVMMetric",
    "KernelNuSVMMetric",
    "FISHMML",
    "LMNN",
    "CDML",
)


@every_learner
@pytest.mark.filterwarnings("ignore")
def test_a_loose_tolerance_ends_a_search_sooner(method: Method) -> None:
    if "tol" not in make(method).get_params() or method.name in NO_SHORTER:
        return
    X, y = data()
    loose, tight = (fit(make(method, **STEPS.get(method.name, {}), tol=tol), X, y) for tol in (0.3, 1e-9))
    assert loose.n_iter_ < tight.n_iter_


@every_learner
def test_batches_are_drawn_by_the_seed(method: Method) -> None:
    if "batch_size" not in make(method).get_params():
        return
    X, y = data()
    one, again, other = (
        fit(make(method).set_params(batch_size=20, max_iter=3, random_state=seed), X, y).transform(X)
        for seed in (0, 0, 1)
    )
    assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@every_learner
@pytest.mark.filterwarnings("ignore")
def test_a_random_start_follows_the_seed(method: Method) -> None:
    if not {"init", "random_state"} <= make(method).get_params().keys() or method.name == "CDML":  # has none
        return
    X, y = data()
    settings = {**STEPS.get(method.name, {}), "init": "random", "max_iter": 2}
    one, again, other = (
        fit(make(method, **settings).set_params(random_state=seed), X, y).transform(X) for seed in (0, 0, 1)
    )
    assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@every_learner
def test_n_components(method: Method) -> None:
    if "n_components" not in make(method).get_params():
        law("n_components", method)
        pytest.fail(f"no n_components: say why in EXCEPTIONS of {reference(method).__file__}")
    X, y = data()
    settings = {"n_components": 1}
    assert fit(make(method, **settings), X, y).transform(X).shape == (60, 1)
    for wrong in (0, 61, 1.5):
        with pytest.raises(ValueError, match=f"^{method.name}: n_components"):
            fit(make(method, n_components=wrong), X, y)


@every_learner
@pytest.mark.filterwarnings("ignore")
def test_the_kept_components_are_some_in_which_rows_differ(method: Method) -> None:
    if "n_components" not in make(method).get_params() or method.name == "BayesianNCA":  # its weight can be negative
        return
    X, y = data()
    flat = np.concatenate([X, np.ones((len(X), 2)), X[:, :1]], axis=1)
    Z = fit(make(method, n_components=1), flat, y).transform(flat)
    assert np.ptp(Z) > 1e-6 * np.ptp(fit(make(method, n_components=1), X, y).transform(X))


@pytest.mark.slow
@every_learner
def test_works_inside_pipelines_and_searches(method: Method) -> None:
    law("pipeline", method)
    X, y = data()
    model = make_pipeline(make(method), KNeighborsClassifier(3))
    search = GridSearchCV(model, {"kneighborsclassifier__n_neighbors": [1, 3]}, cv=2, error_score="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert search.fit(X, y).best_score_ > 0.4


def test_every_learner_is_there() -> None:
    assert {"GMML", "RCA"} <= {method.name for method in LEARNERS}
    assert all(isinstance(getattr(nearfar, method.name), type) for method in LEARNERS)
