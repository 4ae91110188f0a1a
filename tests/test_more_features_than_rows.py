"""More features than rows: learners work in the span of the rows' differences, and find what they would find in all."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist

import nearfar
from nearfar.numerics import mahalanobis
from nearfar.spectral.embedding.llma import smooth_shift
from tests.learners import LEARNERS, distances, fit, make

N, D = 24, 60
RNG = np.random.default_rng(0)
Y = np.arange(N) % 3
X = np.concatenate([2 * np.eye(3)[Y] + RNG.normal(size=(N, 3)), 0.5 * RNG.normal(size=(N, D - 3))], axis=1)


def learned(name: str, settings: MappingProxyType[str, Any]) -> Any:
    target = Y + 0.1 * X[:, 0] if name == "MLKR" else Y
    return fit(getattr(nearfar, name)(**settings), 0.3 * X if name == "MLKR" else X, target)


DROPS = {
    **dict.fromkeys(
        (
            "SideInformationMetric",
            "FisherMetric",
            "DCA",
            "HighDimensionalDCA",
            "LLERegularizedMetric",
            "LFDA",
            "FISHMML",
        ),
        "it keeps the few directions that separate classes or pairs best",
    ),
    **dict.fromkeys(("LowRankGMML", "StiefelSPDMetric", "DMBK"), "its metric has a low rank by default"),
    **dict.fromkeys(("BayesianPairMetric", "BayesianNCA"), "a PCA to 50 components is part of the method"),
    **dict.fromkeys(
        ("LMNN", "SCML", "MCML", "LDML", "PCCA", "PrivilegedMetric", "MDSMetric", "IML"),
        "the optimum of few rows has a low rank also in their span: what draws rows together is not held by a prior",
    ),
    "LDM": "it weights principal directions, and those without scatter have no weight",
    "NuSVMMetric": "its penalty |M|^2 draws M to 0 where no pair counts",
}
"""Learners that give no full metric to few rows, and why."""


LINEAR = [method for method in LEARNERS if hasattr(getattr(nearfar, method.name), "get_mahalanobis_matrix")]


@pytest.mark.parametrize("method", [method for method in LINEAR if method.name not in DROPS], ids=lambda m: m.name)
def test_directions_that_no_rows_show_are_not_dropped(method):
    learner = make(method)
    fit(learner, X, Y + 0.1 * X[:, 0] if method.takes == "targets" else Y)
    unseen = np.linalg.svd(X - X.mean(axis=0))[2][N - 1 :]
    lengths = np.linalg.norm(learner.transform(unseen) - learner.transform(np.zeros((1, D))), axis=1)
    seen = distances(learner, X)
    assert lengths.min() > 1e-3 * np.median(seen) / np.median(pdist(X)), "a direction was dropped"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "rtol"),
    [
        ("GMML", {}, 1e-9),
        ("GMML", {"t": 0.2, "reg": "auto", "n_pairs": 50, "random_state": 0}, 1e-6),
        ("AML", {"max_iter": 500}, 1e-4),
        ("MMC", {"random_state": 0, "max_iter": 50}, 1e-9),
        ("RCA", {}, 1e-9),
        ("RCA", {"shrinkage": "lw", "objective": "probabilistic", "kappa": 2.0}, 1e-9),
        ("RCA", {"shrinkage": 0.3, "weighting": "chunklets"}, 1e-9),
        ("IML", {}, 1e-6),
        ("IML", {"gamma": 0.0}, 1e-6),
        ("InformationGeometryMetric", {}, 1e-9),
        ("InformationGeometryMetric", {"shrinkage": 0.3}, 1e-9),
        ("NCA", {"max_iter": 20}, 1e-6),
        ("NCA", {"max_iter": 20, "init_scale": "median"}, 1e-6),
        ("FastNCA", {"max_iter": 20}, 1e-6),
        ("PrivilegedMetric", {"random_state": 0, "tol": 1e-8}, 1e-3),
    ],
)
def test_the_metric_is_that_of_all_features(monkeypatch, name, settings, rtol):
    found = learned(name, settings)
    monkeypatch.setattr(getattr(nearfar, name), "_span", False)
    whole = learned(name, settings)
    M = whole.get_mahalanobis_matrix()
    assert_allclose(found.get_mahalanobis_matrix(), M, rtol=rtol, atol=rtol * np.abs(M).max())
    if whole.objective_ is not None:
        assert_allclose(found.objective_, whole.objective_, rtol=rtol, atol=rtol)


def test_the_metric_of_partial_labels_is_that_of_all_features(monkeypatch):
    candidates = np.eye(3)[Y]
    found = nearfar.PartialLabelGMML().fit(X, candidates)
    monkeypatch.setattr(nearfar.PartialLabelGMML, "_span", False)
    whole = nearfar.PartialLabelGMML().fit(X, candidates)
    assert_allclose(found.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["GMML", "RCA", "InformationGeometryMetric"])
def test_sums_of_few_rows_keep_all_directions_too(name):
    dense = learned(name, {})
    half = N // 2
    parts = getattr(nearfar, name)().partial_fit(X[:half], Y[:half]).partial_fit(X[half:], Y[half:])
    M = dense.get_mahalanobis_matrix()
    assert_allclose(parts.get_mahalanobis_matrix(), M, rtol=1e-7, atol=1e-7 * np.abs(M).max())
    if parts.objective_ is not None:
        assert_allclose(parts.objective_, dense.objective_, rtol=1e-7)


def test_what_no_prior_holds_is_dropped():
    pairs = np.stack(np.triu_indices(N, 1), axis=1)
    signs = np.where(pairs[:, 0] == 0, 1, -1)  # the similar pairs span all directions, so that no prior is needed
    bare = nearfar.GMML(reg=0.0).fit(X, pairs=pairs, pair_labels=signs)
    assert np.linalg.matrix_rank(bare.components_) == N - 1
    assert np.linalg.matrix_rank(learned("RCA", {"pca": 10}).components_) == 10


def test_kernel_regression_starts_as_the_identity_of_all_features(monkeypatch):
    found = learned("MLKR", {"max_iter": 3})
    outside = np.linalg.svd(X - X.mean(axis=0))[2][N - 1 :]
    assert_allclose(found.get_mahalanobis_matrix() @ outside.T, outside.T, atol=1e-9)
    assert found.objective_ < np.sum((Y - Y.mean()) ** 2)


def test_a_few_directions_of_kernel_regression_form_no_square_matrix():
    wide = np.concatenate([0.3 * X, np.zeros((N, 20_000))], axis=1)
    found = fit(nearfar.MLKR(2), wide, Y.astype(float))  # 20,060^2 numbers would be 3.2 GB
    assert found.components_.shape == (2, wide.shape[1])
    assert found.objective_ < 0.5 * np.sum((Y - Y.mean()) ** 2)


def test_directions_without_scatter_have_no_part_in_the_diagonal_metric():
    found, all_of_them = learned("LDM", {}), learned("LDM", {"n_components": D})
    assert (found.components_.shape, all_of_them.components_.shape) == ((N - 1, D), (D, D))
    assert_allclose(found.objective_, all_of_them.objective_, rtol=1e-6, atol=1e-6)
    assert_allclose(distances(found, X), distances(all_of_them, X), rtol=1e-5)


@pytest.mark.slow
def test_a_wide_privileged_view_is_one_of_its_span():
    Z = np.concatenate([X, np.zeros((N, 5))], axis=1)
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][: N - 1]
    wide, narrow = (
        nearfar.PrivilegedMetric(random_state=0, tol=1e-7).fit(X[:, :3], Y, privileged=view) for view in (Z, X @ V.T)
    )
    assert wide.privileged_components_.shape[1] == D + 5
    assert_allclose(wide.objective_, narrow.objective_, rtol=1e-6)
    assert_allclose(distances(wide, X[:, :3]), distances(narrow, X[:, :3]), rtol=1e-3)


def test_gaussian_classes_of_many_features_fit_into_memory():
    wide = np.concatenate([X, 1e-3 * RNG.normal(size=(N, 20_000))], axis=1)
    found = fit(nearfar.DMBK(max_iter=20), wide, Y)  # each class's covariance would take 3.2 GB
    assert found.components_.shape == (2, wide.shape[1])


@pytest.mark.parametrize("name", ["ITML", "LSML"])
@pytest.mark.parametrize("n_components", [None, 5, N, D])
def test_a_prior_of_the_identity_stays_outside_of_the_span(monkeypatch, name, n_components):
    settings = {"random_state": 0, "n_components": n_components}
    found = learned(name, settings)
    monkeypatch.setattr(getattr(nearfar, name), "_span", False)
    whole = learned(name, settings)
    assert_allclose(found.objective_, whole.objective_, rtol=1e-6)
    assert_allclose(found.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), rtol=1e-5, atol=1e-6)


def test_other_priors_are_not_reduced():
    for prior in ("covariance", np.diag(np.arange(1.0, D + 1))):
        assert learned("ITML", {"random_state": 0, "prior": prior}).components_.shape == (D, D)


@pytest.mark.parametrize("shrinkage", ["lw", "oas", 0.3, 1e-3, 1.0])
@pytest.mark.parametrize("more", [{}, {"pooled": True}, {"assume_centered": True}, {"n_components": 5}])
def test_the_covariance_of_few_rows_is_that_of_the_whole_space(monkeypatch, shrinkage, more):
    settings = {"shrinkage": shrinkage, **more}
    found = learned("CovarianceMetric", settings)
    monkeypatch.setattr(mahalanobis, "few_rows", lambda *given: None)
    whole = learned("CovarianceMetric", settings)
    assert found.rank_ == whole.rank_
    assert_allclose(found.covariance_, whole.covariance_, rtol=1e-9, atol=1e-12)
    if shrinkage == 1.0 and more == {"n_components": 5}:  # all directions are alike
        assert_allclose(found.components_ @ found.components_.T, whole.components_ @ whole.components_.T, atol=1e-9)
    else:
        assert_allclose(found.components_, whole.components_, rtol=1e-7, atol=1e-9)


def test_as_many_components_as_there_are_features_and_equal_rows_have_a_covariance():
    assert learned("CovarianceMetric", {"n_components": D}).components_.shape == (D, D)
    with pytest.warns(UserWarning, match="rank 0 of 60"):
        nearfar.CovarianceMetric().fit(np.ones((N, D)))


@pytest.mark.parametrize("n_stages", [1, 2])
def test_shifts_do_not_leave_the_span_of_the_rows(monkeypatch, n_stages):
    settings = {"n_stages": n_stages, "random_state": 0, "warm_start": True, "tol": 1e-9}
    found = learned("LLMA", settings)
    monkeypatch.setattr(smooth_shift, "shifts", smooth_shift.stages)
    whole = learned("LLMA", settings)
    new = X + RNG.normal(size=X.shape)
    for rows in (X, new):
        assert_allclose(found.transform(rows), whole.transform(rows), rtol=1e-4, atol=1e-4)
    for one, other in zip(found.centers_ + found.coef_, whole.centers_ + whole.coef_, strict=True):
        assert one.shape == other.shape
    before = found.objective_
    monkeypatch.undo()
    cold = found.n_iter_
    assert fit(found, X, Y).objective_ <= 1.001 * before
    assert found.n_iter_ < cold


def test_memory_that_is_missing_is_told_with_a_way_out(monkeypatch):
    def solve(*given, **also):
        raise MemoryError

    monkeypatch.setattr(nearfar.SDML, "_solve", solve)
    wide = np.concatenate([X, np.zeros((N, 4000 - D))], axis=1)
    with pytest.raises(MemoryError, match=r"^SDML: out of memory; a matrix of 4000 x 4000 .* 0.13 GB.*PCA"):
        nearfar.SDML().fit(wide, Y)
    with pytest.raises(MemoryError, match=r"^$"):
        nearfar.SDML().fit(X, Y)


@pytest.mark.parametrize("name", ["MLKR", "DCA", "DMBK"])
def test_more_components_than_directions_are_refused_with_the_reason(name):
    with pytest.raises(
        ValueError, match=rf"in 1..{N - 1} .* got {N}; the rows of {D} features differ in only {N - 1} directions"
    ):
        learned(name, {"n_components": N})
    assert learned("MLKR", {"n_components": N - 1, "max_iter": 2}).components_.shape == (N - 1, D)


def test_all_directions_of_few_rows_are_too_many_for_divergences():
    with pytest.raises(
        ValueError, match=rf"DMBK: n_components must be below {N - 1}, the rank of X; got {N - 1} \(n_features={D}\)"
    ):
        learned("DMBK", {"n_components": N - 1})
