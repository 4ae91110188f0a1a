"""Tensors and arrays of the array API standard stay on their device, and give what NumPy gives."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import sklearn
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist

import nearfar
from nearfar.catalog import Method
from nearfar.estimators.base import Mahalanobis
from nearfar.numerics import class_sums, device_arrays
from tests.estimators.test_sums import CASES
from tests.learners import LEARNERS, data, distances, fit, fitted, make

xp = pytest.importorskip("array_api_strict", reason="an implementation of the array API standard")
LFDA = next(method for method in LEARNERS if method.name == "LFDA")
ON_DEVICES = [*CASES, (LFDA, {}), (LFDA, {"embedding_type": "orthonormalized"}), (LFDA, {"shrinkage": 0.1})]
OF_LABELS = [(method, given) for method, given in ON_DEVICES if method is LFDA or make(method)._labels_read]
OTHERS = [method for method in LEARNERS if method not in [closed for closed, _ in ON_DEVICES]]
LINEAR = [method for method in LEARNERS if type(make(method)).transform is Mahalanobis.transform]
SETTINGS_OF_ROWS = [
    ("GMML", {"n_pairs": 50}),
    ("RCA", {"n_chunklets": 5}),
    ("CovarianceMetric", {"shrinkage": "mcd"}),
    ("DiscriminantWhitening", {"emphasis": "cv"}),
]


def elsewhere(values: Any) -> Any:
    """An array that is not in the memory of the CPU, and of which NumPy reads nothing by itself."""
    return xp.asarray(values, device=xp.Device("device1"))


def ids(value: Any) -> str:
    return value.name if isinstance(value, Method) else "-".join(map(str, getattr(value, "values", list)()))


@pytest.mark.parametrize("placed", [torch.asarray, elsewhere])
@pytest.mark.parametrize(("method", "settings"), ON_DEVICES, ids=ids)
def test_closed_forms_compute_where_the_rows_are(method: Method, settings: dict[str, Any], placed: Any) -> None:
    X, y = data(60)
    y[::7] = 9
    weight = {} if method is LFDA else {"sample_weight": np.arange(60.0) % 3 + 0.5}
    wanted = fit(make(method, **settings), X, y, unlabeled=9, **weight)
    found = fit(make(method, **settings), placed(X), placed(y), unlabeled=9, **weight)
    Z = found.transform(placed(X))
    assert type(Z) is type(placed(X))
    assert Z.device == placed(X).device
    here = distances(wanted, X)
    assert_allclose(pdist(device_arrays.to_host(Z)), here, rtol=1e-5, atol=1e-5 * here.max())
    assert_allclose(distances(found, X), here, rtol=1e-5, atol=1e-5 * here.max())


@pytest.mark.parametrize("name", ["LFDA", "FisherMetric", "GMML"])
def test_fewer_rows_than_features_and_single_precision(name: str) -> None:
    X, y = data(20, d=30)
    X = X.astype(np.float32)
    wanted = fit(getattr(nearfar, name)(), X, y)
    found = fit(getattr(nearfar, name)(), elsewhere(X), y)
    assert found.components_.dtype == np.float32
    here = distances(wanted, X)
    assert_allclose(distances(found, X), here, rtol=1e-4, atol=1e-4 * here.max())


@pytest.mark.parametrize("placed", [torch.asarray, elsewhere])
@pytest.mark.parametrize(("method", "settings"), OF_LABELS, ids=ids)
def test_labels_of_other_shapes_are_refused_as_those_of_numpy(method: Method, settings: Any, placed: Any) -> None:
    X, y = data(40)
    # with InformationGeometryMetric, several columns may be targets
    for labels in (y[:30], np.eye(10)[y])[: 1 if method.name == "InformationGeometryMetric" else 2]:
        messages = []
        for rows, answers in ((X, labels), (placed(X), placed(labels))):
            with pytest.raises(ValueError, match=f"^{method.name}: ") as caught:
                make(method, **settings).fit(rows, answers)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_sparse_tensors_are_refused_in_one_line() -> None:
    X, y = data(40)
    rows = torch.asarray(X).to_sparse()
    for name in ("LFDA", "GMML", "NCA"):
        with pytest.raises(ValueError, match=rf"^{name}: X must be dense; .* pass X.to_dense\(\)$"):
            getattr(nearfar, name)().fit(rows, y)


@pytest.mark.parametrize("method", LINEAR, ids=lambda method: method.name)
def test_a_linear_metric_transforms_rows_where_they_are(method: Method) -> None:
    X = data()[0]
    learner = fitted(method)
    Z = learner.transform(elsewhere(X))
    assert_allclose(device_arrays.to_host(Z), learner.transform(X), rtol=1e-10, atol=1e-12)
    assert_allclose(learner.pair_distance([[0, 1]], elsewhere(X)), learner.pair_distance([[0, 1]], X))


@pytest.mark.parametrize("method", OTHERS, ids=lambda method: method.name)
def test_other_learners_refuse_rows_on_a_device_in_one_line(method: Method) -> None:
    X, y = data(40)
    message = rf"^{method.name}: X must be in the memory of the CPU here; got array_api_strict.Array on "
    with pytest.raises(ValueError, match=message) as caught:
        make(method).fit(elsewhere(X), y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "settings"), SETTINGS_OF_ROWS)
def test_settings_that_need_rows_refuse_a_device_and_read_the_memory_of_the_cpu(name: str, settings: Any) -> None:
    X, y = data(40)
    learner = getattr(nearfar, name)(**settings)
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    with pytest.raises(ValueError, match=rf"^{name}: X must be in the memory of the CPU here"):
        learner.fit(elsewhere(X), y)
    wanted = fit(learner, X, y).components_.copy()
    assert_array_equal(fit(learner, torch.asarray(X), torch.asarray(y)).components_, wanted)


def test_parts_on_a_device() -> None:
    X, y = data(60)
    learner = nearfar.GMML()
    for rows in np.array_split(np.random.default_rng(0).permutation(60), 3):
        learner.partial_fit(elsewhere(X[rows]), elsewhere(y[rows]))
    assert_allclose(learner.get_mahalanobis_matrix(), nearfar.GMML().fit(X, y).get_mahalanobis_matrix(), rtol=1e-8)


def test_inside_the_dispatch_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SCIPY_ARRAY_API", "1")
    X, y = data(40)
    with sklearn.config_context(array_api_dispatch=True):
        for learner in (nearfar.LFDA(), nearfar.FisherMetric(), nearfar.NCA(max_iter=2, random_state=0)):
            assert isinstance(
                fit(learner, torch.asarray(X), torch.asarray(y)).transform(torch.asarray(X)), torch.Tensor
            )


@pytest.mark.parametrize("per_class", [True, False])
def test_sums_of_blocks_on_a_device(per_class: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_sums, "DEVICE_ROWS", 7)
    X, y = data(60)
    X += 100
    codes = np.where(np.arange(60) % 5, y, -1)
    weight = np.arange(60.0) % 4
    wanted = class_sums.class_sums(X, codes, weight, classes=4, per_class=per_class)
    found = class_sums.class_sums(elsewhere(X), codes, weight, classes=4, per_class=per_class)
    for name in ("count", "mean", "scatter", "cube", "fourth"):
        if getattr(wanted, name) is not None:
            assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-9, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.full((4, 2), np.nan), "X must hold finite numbers"),
        (np.zeros((4, 2, 2, 2)), r"X must have shape \(n, d\)|dim 4"),
        (np.zeros((1, 2)), "at least 2 rows; got shape"),
    ],
)
def test_bad_rows_on_a_device_are_named(X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearfar.LFDA().fit(elsewhere(X), np.arange(len(X)) % 2)
    with pytest.raises(ValueError, match="X has 3 features, but the learner was fitted on 4"):
        fitted(LFDA).transform(elsewhere(np.zeros((2, 3))))
