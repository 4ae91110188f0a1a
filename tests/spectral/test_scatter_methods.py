"""What each scatter method and GMML promise beyond the laws of all learners."""

import re
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import inv, sqrtm
from scipy.spatial.distance import pdist
from sklearn.covariance import LedoitWolf
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import f_classif
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar.estimators.validation import row_order
from nearfar.numerics import mahalanobis, psd, scatter
from nearfar.numerics.checks import encode
from nearfar.numerics.constraints import LabelPairs
from nearfar.spectral.scatter import fisher, side_information
from tests import conic
from tests.learners import all_pairs, data, distances, toy
from tests.references import dca as dca_loops
from tests.references import mmc as mmc_loops
from tests.references import side_information as side_loops

# as in the papers, whose identities and invariances hold without a share of the identity in the inverted scatter
RCA = partial(nearfar.RCA, shrinkage=0.0)
DCA = partial(nearfar.DCA, shrinkage=0.0)
FisherMetric = partial(nearfar.FisherMetric, shrinkage=0.0)
MMC = partial(nearfar.MMC, shrinkage=0.0)

X, Y = data()
S, D = scatter.pair_scatters(X, LabelPairs(Y)).mean()
PM = [1, 1, 1, -1]
rng = np.random.default_rng(0)
G = rng.normal(size=(4, 4)) + 2 * np.eye(4)


def metric(learner, X=X, y=Y, **told):
    return (learner.fit(X, **told) if told else learner.fit(X, y)).get_mahalanobis_matrix()


@pytest.mark.parametrize(
    ("kind", "settings", "told"),
    [
        (nearfar.RCA, {}, {}),
        (nearfar.RCA, {"n_components": 2, "criterion": "chunklet", "tol": 1e-9}, {}),
        (nearfar.RCA, {}, {"chunklets": np.where(np.arange(60) < 12, np.arange(60) // 3, -1)}),
        (nearfar.DCA, {}, {}),
        (nearfar.DCA, {}, {"chunklets": np.where(np.arange(60) < 12, np.arange(60) // 3, -1)}),
        (nearfar.LFDA, {}, {}),
        (nearfar.FisherMetric, {"n_components": 2}, {}),
        (nearfar.FisherMetric, {"n_components": 1}, {"pairs": [[0, 1], [1, 2], [3, 4], [0, 3]], "pair_labels": PM}),
        (nearfar.InformationGeometryMetric, {}, {}),
        (nearfar.MMC, {"n_pairs": "all", "tol": 1e-10}, {}),
    ],
)
def test_the_prior_of_auto_is_a_share_of_the_identity(kind, settings, told):
    groups = told.get("chunklets", np.r_[0, 0, 0, 1, 1, 2:57] if "pairs" in told else Y)
    known = groups >= 0  # rows without a chunklet do not count
    freedom = known.sum() - len(np.unique(groups[known]))
    share = 0.3 * 4 / (0.3 * 4 + freedom)
    if kind is nearfar.LFDA or "pairs" in told:  # columns are weighed only where rows are few, or not by pairs
        Z = X / X.std(axis=0)
    else:
        Z = X * weights_of_columns(X[known], groups[known])
    found, expected = kind(**settings), kind(shrinkage=share, **settings)
    if told:
        found.fit(X, **told)
        expected.fit(Z, **told)
    else:
        found.fit(X, Y)
        expected.fit(Z, Y)
    a = distances(found, X)
    b = distances(expected, Z)
    assert_allclose(a / a[0], b / b[0], rtol=1e-5)


def weights_of_columns(X, groups):
    """What columns are multiplied by before "auto" adds a multiple of the identity, from F of a test of variance."""
    n = np.bincount(groups)
    m = (n.sum() - (n**2).sum() / n.sum()) / (len(n) - 1)
    F = f_classif(X, groups)[0]
    r = np.where(F > 1, (F - 1) / (F + m - 1) * (1 - 1 / F), 0)
    return np.sqrt(np.maximum(r, 0.02 * r.max())) / X.std(axis=0)


def few_pairs(m=60, seed=1):
    pairs, labels = all_pairs(Y)
    keep = np.random.default_rng(seed).permutation(len(labels))[:m]
    return {"pairs": pairs[keep], "pair_labels": labels[keep]}


@pytest.mark.parametrize(
    "learner",
    [
        nearfar.CovarianceMetric(shrinkage=None),
        MMC(floor=0, n_pairs="all", tol=1e-9, max_iter=3000),
        FisherMetric(),
        RCA(),
        DCA(),
        nearfar.GMML(reg=0.0, t=0.0),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_affine_maps_leave_the_distances_alone(learner):
    d = distances(learner.fit(X, Y), X)
    rtol = 1e-3 if isinstance(learner, nearfar.MMC) else 1e-6
    assert_allclose(distances(learner.fit(X @ G, Y), X @ G), d, rtol=rtol, atol=rtol * d.max())


# --- Covariance


def test_covariance_squared_distances_add_up():
    learner = nearfar.CovarianceMetric(shrinkage=None).fit(X)
    Z = learner.transform(X) - learner.transform(X.mean(axis=0, keepdims=True))
    assert_allclose(np.sum(Z**2), (len(X) - 1) * learner.rank_)


def test_covariance_pooled_within_classes():
    expected = sum((sum(c == Y) - 1) * np.cov(X[c == Y].T) for c in range(3)) / (len(X) - 3)
    assert_allclose(metric(nearfar.CovarianceMetric(shrinkage=None, pooled=True)), inv(expected), rtol=1e-8)


def test_covariance_pooled_counts_independent_deviations_for_ledoit_and_wolf():
    # a class of two rows is one independent deviation, half their difference; a row alone is none
    halves = (X[0:40:2] - X[1:40:2]) / 2
    y = np.where(np.arange(60) < 40, np.arange(60) // 2, np.arange(60))
    expected = 2 * LedoitWolf(assume_centered=True).fit(halves).covariance_
    found = nearfar.CovarianceMetric(pooled=True).fit(X, y).covariance_
    assert_allclose(found, expected, rtol=1e-9)
    found = nearfar.CovarianceMetric(pooled=True).fit(X, np.where(np.arange(60) < 40, y, -1), unlabeled=-1).covariance_
    assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("shrinkage", ["lw", "oas", "mcd", 0.3])
def test_covariance_shrinkage(shrinkage):
    from sklearn import covariance

    C = X - X.mean(axis=0)
    expected = {
        "lw": lambda: covariance.LedoitWolf().fit(X).covariance_,
        "oas": lambda: covariance.OAS().fit(X).covariance_,
        "mcd": lambda: covariance.MinCovDet(assume_centered=True, random_state=0).fit(C).covariance_,
        0.3: lambda: 0.7 * C.T @ C / 60 + 0.3 * np.trace(C.T @ C / 60) / 4 * np.eye(4),
    }[shrinkage]()
    found = nearfar.CovarianceMetric(shrinkage=shrinkage, random_state=0).fit(X).covariance_
    assert_allclose(found, expected * 60 / 59, rtol=1e-8)


def test_covariance_names_the_constant_column():
    flat = X.copy()
    flat[:, 2] = 5
    with pytest.raises(ValueError, match=r"^CovarianceMetric: column 2 of X must vary, but is constant"):
        nearfar.CovarianceMetric(shrinkage=None).fit(flat)


def test_covariance_of_dependent_columns_warns_and_tells_the_rank():
    with pytest.warns(UserWarning, match="rank 4 of 5"):
        learner = nearfar.CovarianceMetric(shrinkage=None).fit(np.c_[X, X[:, 0] + X[:, 1]])
    assert learner.rank_ == 4


@pytest.mark.parametrize("wrong", ["median", -0.1, 2.0])
def test_covariance_refuses_other_shrinkage(wrong):
    with pytest.raises(ValueError, match=r"^CovarianceMetric: shrinkage"):
        nearfar.CovarianceMetric(shrinkage=wrong).fit(X)


def test_covariance_pooled_needs_labels():
    with pytest.raises(ValueError, match="requires y"):
        nearfar.CovarianceMetric(pooled=True).fit(X)


# --- MMC


def test_mmc_reaches_the_optimum_of_a_generic_solver():
    told = few_pairs()
    learner = MMC(floor=0, tol=1e-8, max_iter=3000).fit(X, **told)
    s = told["pair_labels"] == 1
    Z = X[told["pairs"][:, 0]] - X[told["pairs"][:, 1]]
    best, M = conic.farthest(Z[s].T @ Z[s], Z[~s])
    assert learner.converged_
    assert_allclose(learner.objective_, best, rtol=1e-5)
    assert learner.duality_gap_ <= 1e-7 * best
    assert_allclose(learner.get_mahalanobis_matrix(), M, atol=1e-2 * np.abs(M).max())


def test_mmc_scales_with_alpha_and_holds_its_constraint():
    one, four = MMC(n_pairs="all").fit(X, Y), MMC(alpha=4.0, n_pairs="all").fit(X, Y)
    M = one.get_mahalanobis_matrix()
    assert_allclose(four.get_mahalanobis_matrix(), 4 * M)
    assert_allclose(four.objective_, 2 * one.objective_)
    assert_allclose(mmc_loops.parts(M, X, Y)[0], 1, rtol=1e-10)


def test_diagonal_mmc_is_optimal():
    learner = MMC(diagonal=True, floor=0, n_pairs="all", c=2.0, tol=1e-9, max_iter=5000).fit(X, Y)
    M = learner.get_mahalanobis_matrix()
    assert_allclose(M, np.diag(np.diag(M)))
    near, far = mmc_loops.parts(M, X, Y)
    assert_allclose(near, 1.0, rtol=1e-6)  # c / 2
    assert_allclose(near - 2 * np.log(far), learner.objective_, rtol=1e-6)
    assert learner.converged_
    for _ in range(50):
        w = np.diag(M) * rng.uniform(0.5, 2, 4) + 0.1 * M.max() * rng.random(4) * (rng.random() < 0.5)
        near, far = mmc_loops.parts(np.diag(w), X, Y)
        assert near - 2 * np.log(far) >= learner.objective_ - learner.duality_gap_ - 1e-6


def test_diagonal_mmc_equals_the_full_one_on_one_feature():
    x = X[:, :1]
    full, diagonal = MMC(n_pairs="all").fit(x, Y), MMC(diagonal=True, c=2.0, n_pairs="all").fit(x, Y)
    assert_allclose(full.get_mahalanobis_matrix(), diagonal.get_mahalanobis_matrix(), rtol=1e-6)


@pytest.mark.parametrize("diagonal", [False, True])
def test_mmc_on_a_singular_scatter(diagonal):
    flat = np.c_[X, np.where(Y == 0, 1.0, 2.0)]
    with pytest.raises(ValueError, match=r"^MMC: the similar scatter is singular \(rank 4 of 5\)"):
        MMC(diagonal, shrinkage=0.0).fit(flat, Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.isfinite(nearfar.MMC(diagonal).fit(flat, Y).components_).all()
    # one feature of many in the units of its own needs no share of the identity
    assert ["was added to its diagonal" in str(one.message) for one in caught] == [True] * diagonal


@pytest.mark.parametrize("diagonal", [False, True])
def test_mmc_with_repeated_values_stays_finite(diagonal):
    rough = np.round(X)
    learner = MMC(diagonal=diagonal).fit(rough, Y)
    assert np.isfinite(learner.components_).all()
    assert learner.converged_


@pytest.mark.parametrize("diagonal", [False, True])
def test_mmc_never_falls(diagonal):
    learner = MMC(diagonal, n_pairs="all", tol=1e-12, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(X, Y)
    if not diagonal:
        assert (np.diff(learner.history_) >= -1e-12 * learner.objective_).all()
    longer = MMC(diagonal, n_pairs="all", tol=1e-9, max_iter=5000).fit(X, Y)
    better = longer.objective_ - learner.objective_
    assert (-better if diagonal else better) >= -1e-9 * abs(learner.objective_)


def test_mmc_warns_when_cut_short_and_continues_from_there():
    from sklearn.exceptions import ConvergenceWarning

    learner = MMC(max_iter=2, tol=1e-10, n_pairs="all", warm_start=True)
    with pytest.warns(ConvergenceWarning, match=r"^MMC: .*gap"):
        learner.fit(X, Y)
    first = learner.objective_
    assert not learner.converged_
    learner.set_params(max_iter=3000, tol=1e-6).fit(X, Y)
    assert learner.converged_
    assert learner.objective_ >= first


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("floor", [0.2, 0.7])
def test_mmc_keeps_the_floor_in_every_direction_and_is_optimal_there(diagonal, floor):
    learner = MMC(diagonal, floor=floor, n_pairs="all", c=2.0, tol=1e-8).fit(X, Y)
    M = learner.get_mahalanobis_matrix()
    same = Y[:, None] == Y
    S = sum(np.outer(X[i] - X[j], X[i] - X[j]) for i in range(len(X)) for j in range(i) if same[i, j])
    S = np.diag(np.diag(S)) if diagonal else S
    C = np.linalg.cholesky(S)
    w = np.linalg.eigvalsh(C.T @ M @ C)
    assert learner.converged_
    assert_allclose(w.sum(), 1, rtol=1e-9)
    assert_allclose(w[0], floor / 4, rtol=1e-3)
    far = mmc_loops.parts(M, X, Y)[1]
    value = 1 - 2 * np.log(far) if diagonal else far
    assert_allclose(value, learner.objective_, rtol=1e-9)
    most = np.exp((learner.duality_gap_ + 1e-9) / 2) * far if diagonal else far + learner.duality_gap_
    for k in range(30):
        A = rng.normal(size=(4, 1 + k % 4))
        B = A @ A.T if k < 10 else C.T @ M @ C - floor / 4 * np.eye(4) + 1e-2 * A @ A.T
        B = np.diag(np.diag(B)) if diagonal else B
        B = floor / 4 * np.eye(4) + (1 - floor) * B / np.trace(B)
        inverse = np.linalg.inv(C)
        assert mmc_loops.parts(inverse.T @ B @ inverse, X, Y)[1] <= most


@pytest.mark.parametrize("diagonal", [False, True])
def test_mmc_goes_on_from_the_metric_above_the_floor(diagonal):
    learner = MMC(diagonal, floor=0.7, n_pairs="all", warm_start=True, tol=1e-7).fit(X, Y)
    assert learner.fit(X, Y).n_iter_ <= 8
    assert learner.converged_


@pytest.mark.parametrize("floor", [-0.1, 1.0, 1.5])
def test_mmc_refuses_a_floor_that_leaves_nothing(floor):
    with pytest.raises(ValueError, match=r"^MMC: floor must be"):
        MMC(floor=floor).fit(X, Y)


def test_mmc_reports_progress(capsys):
    MMC(verbose=True).fit(X, Y)
    assert "MMC: iteration 1, objective" in capsys.readouterr().out


# --- Side information, Fisher


def test_side_information_is_below_every_metric_of_trace_one():
    learner = nearfar.SideInformationMetric().fit(X, Y)
    A = side_loops.difference(X, Y)
    M = learner.get_mahalanobis_matrix()
    assert_allclose(np.trace(M), 1)
    assert_allclose(np.sum(A * M), learner.objective_)
    assert_allclose(learner.objective_, np.linalg.eigvalsh(A)[0])
    for _ in range(100):
        B = rng.normal(size=(4, 4))
        N = B @ B.T / np.trace(B @ B.T)
        assert np.sum(A * N) >= learner.objective_


def test_side_information_equals_the_generic_solver():
    A = side_loops.difference(X, Y)
    k = 10
    rows = [
        (conic.svec(np.eye(4))[None], np.ones(1), "zero", 1),
        (-np.eye(k), np.zeros(k), "psd", 4),
    ]
    M = conic.smat(conic.solve(np.zeros((k, k)), conic.svec(A), rows))
    assert_allclose(np.sum(A * M), nearfar.SideInformationMetric().fit(X, Y).objective_, rtol=1e-6)


def test_side_information_has_one_direction_and_warns_when_nothing_separates():
    with pytest.raises(ValueError, match=r"^SideInformationMetric: n_components must be 1"):
        nearfar.SideInformationMetric(n_components=2).fit(X, Y)
    twice = np.repeat(X, 2, axis=0)
    # every similar pair is far, every dissimilar pair coincides
    with pytest.warns(UserWarning, match="no direction"):
        nearfar.SideInformationMetric().fit(twice, pairs=[[0, 2], [0, 1]], pair_labels=[1, -1])


def test_first_fisher_approach_equals_side_information():
    a = metric(FisherMetric("trace"))
    assert_allclose(a, metric(nearfar.SideInformationMetric()), atol=1e-12)


def test_first_fisher_approach_says_where_no_direction_helps():
    with pytest.warns(
        UserWarning, match="there is no direction in which dissimilar pairs are farther apart than similar ones"
    ):
        FisherMetric("trace").fit([[0.0, 0], [5, 0], [1, 1], [1, 1]], pairs=[[0, 1], [2, 3]], pair_labels=[1, -1])


def test_first_fisher_approach_with_more_directions():
    learner = FisherMetric("trace", n_components=3, scale="unit").fit(X, Y)
    L = learner.components_
    assert_allclose(L @ L.T, np.eye(3), atol=1e-12)
    assert_allclose((S - D) @ L.T, L.T * learner.eigenvalues_, atol=1e-10)
    assert (np.diff(learner.eigenvalues_) >= 0).all()
    assert_allclose(np.trace(metric(FisherMetric("trace", n_components=3))), 1)


def test_second_fisher_approach():
    learner = FisherMetric(n_components=2).fit(X, Y)
    L = learner.components_
    assert_allclose(L @ S @ L.T, np.eye(2), atol=1e-10)
    assert_allclose(np.trace(L @ (S - D) @ L.T), learner.objective_)
    assert_allclose(learner.objective_, np.sum(1 - learner.eigenvalues_))


def test_second_fisher_approach_finds_the_discriminant_directions_of_balanced_classes():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    y = np.arange(60) % 3
    Z = X + 2 * np.eye(4)[y]
    L = FisherMetric(n_components=2).fit(Z, y).components_
    scalings = LinearDiscriminantAnalysis(solver="eigen").fit(Z, y).scalings_[:, :2]
    overlap = np.linalg.svd(np.linalg.qr(L.T)[0].T @ np.linalg.qr(scalings)[0])[1]
    assert_allclose(overlap, 1, atol=1e-8)


def test_fisher_refuses_all_directions_and_singular_scatters():
    with pytest.raises(ValueError, match=r"^FisherMetric: n_components must be below 4"):
        FisherMetric(n_components=4).fit(X, Y)
    flat = np.c_[X, X[:, 0]]
    with pytest.raises(ValueError, match=r"^FisherMetric: .*rank 4 of 5"):
        FisherMetric(on_singular="raise").fit(flat, Y)
    with pytest.warns(UserWarning, match="rank 4 of 5"):
        learner = FisherMetric().fit(flat, Y)
    S, D = scatter.pair_scatters(flat, LabelPairs(Y)).mean()
    L = fisher.fisher(S + 1e-6 * np.trace(S) / 5 * np.eye(5), D).x
    assert_allclose(learner.get_mahalanobis_matrix(), L.T @ L, rtol=1e-7, atol=1e-8)
    L = FisherMetric(n_components=2, on_singular="pinv").fit(flat, Y).components_
    d = distances(FisherMetric(n_components=2).fit(X, Y), X)
    assert_allclose(np.linalg.norm((flat[0] - flat[1]) @ L.T), d[0], rtol=1e-6)


# --- RCA


def test_rca_whitens_its_chunklets():
    chunklets = np.where(np.arange(60) < 40, Y, -1)
    learner = RCA().fit(X, chunklets=chunklets)
    kept = chunklets >= 0
    C = scatter.within(X[kept], chunklets[kept]) / kept.sum()
    L = learner.components_
    assert_allclose(L @ C @ L.T, np.eye(4), atol=1e-12)
    assert_allclose(L, L.T, atol=1e-12)
    moved = X.copy()
    moved[~kept] += 100
    assert_allclose(metric(RCA(), moved, chunklets=chunklets), learner.get_mahalanobis_matrix(), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:RCA. 20 of the chunklets have a single row")
def test_rca_ignores_single_rows():
    chunklets = np.where(np.arange(60) < 40, Y, 100 + np.arange(60))
    alone = np.where(np.arange(60) < 40, Y, -1)
    assert_allclose(metric(RCA(), chunklets=chunklets), metric(RCA(), chunklets=alone), rtol=1e-9)
    with pytest.raises(
        ValueError, match=r"^RCA: chunklets must hold one of at least 2 rows; every chunklet has a single row"
    ):
        RCA().fit(X, chunklets=np.arange(60))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rca_with_fewer_components_beats_other_feasible_maps(k):
    learner = RCA(k, objective="probabilistic", kappa=2.0).fit(X, Y)
    C, T = scatter.within(X, Y) / 60, scatter.total(X) / 60
    L = learner.components_
    assert_allclose(L @ C @ L.T, 2.0 / k * np.eye(k), atol=1e-10)

    def value(A):
        A = A * np.sqrt(2.0 / np.trace(A @ C @ A.T))
        return np.linalg.slogdet(A @ T @ A.T)[1]

    best = value(L)
    for _ in range(300):
        assert value(rng.normal(size=(k, 4))) <= best + 1e-10
        assert value(L + 0.1 * rng.normal(size=(k, 4)) * np.abs(L).max()) <= best + 1e-10


def test_probabilistic_rca_holds_kappa_and_is_whitening_by_default():
    C = scatter.within(X, Y) / 60
    learner = RCA(objective="probabilistic", kappa=2.0).fit(X, Y)
    M = learner.get_mahalanobis_matrix()
    assert_allclose(np.sum(M * C), 2.0)
    assert_allclose(learner.objective_, np.linalg.slogdet(M)[1], rtol=1e-9)
    assert_allclose(metric(RCA(objective="probabilistic")), metric(RCA()), rtol=1e-9)
    unbiased = metric(RCA(ddof="chunklets"))
    assert_allclose(unbiased, inv(C * 60 / 57), rtol=1e-8)


@pytest.mark.parametrize("ddof", [0, "chunklets"])
def test_rca_weighs_rows_or_chunklets_alike(ddof):
    kinds = [X[c == Y] for c in range(3)]
    mean = sum(np.cov(rows.T, bias=ddof == 0) for rows in kinds) / 3
    assert len({len(rows) for rows in kinds}) > 1
    learner = RCA(weighting="chunklets", ddof=ddof)
    assert_allclose(metric(learner), inv(mean), rtol=1e-9)
    assert not np.allclose(metric(RCA(ddof=ddof)), inv(mean), rtol=1e-3)
    some = np.where(np.arange(60) < 10, -1, Y)
    kinds = [X[some == c] for c in range(3)]
    mean = sum(np.cov(rows.T, bias=ddof == 0) for rows in kinds) / 3
    assert_allclose(metric(learner, chunklets=some), inv(mean), rtol=1e-9)


def test_rca_shrinks_by_the_estimate_of_ledoit_and_wolf():
    # a chunklet of two rows is one independent deviation, half their difference
    halves = (X[0:40:2] - X[1:40:2]) / 2
    pairs = np.where(np.arange(60) < 40, np.arange(60) // 2, -1)
    expected = inv(LedoitWolf(assume_centered=True).fit(halves).covariance_)
    for weighting in ("rows", "chunklets"):
        learner = RCA(shrinkage="lw", weighting=weighting)
        assert_allclose(metric(learner, chunklets=pairs), expected, rtol=1e-9)
    # scale and a divisor do not change the share; with many rows of few classes it is that of the pooled covariance
    twice = metric(RCA(shrinkage="lw", ddof="chunklets"), chunklets=pairs)
    assert_allclose(twice, expected / 2, rtol=1e-9)
    many, y = np.repeat(X, 30, axis=0) + rng.normal(size=(1800, 4)), np.repeat(Y, 30)
    pooled = metric(nearfar.CovarianceMetric(pooled=True), many, y)
    assert_allclose(metric(RCA(shrinkage="lw", ddof="chunklets"), many, y), pooled, rtol=1e-9)


def test_rca_names_the_shares_it_knows():
    with pytest.raises(ValueError, match=r"^RCA: shrinkage must be in \[0, 1\] or 'auto' or 'lw'; got 'ledoit'"):
        RCA(shrinkage="ledoit").fit(X, Y)
    with pytest.raises(ValueError, match=r"^RCA: shrinkage must be in \[0, 1\] or 'auto' or 'lw'; got 1.5"):
        RCA(shrinkage=1.5).fit(X, Y)
    found = RCA(2, criterion="chunklet", shrinkage="lw").fit(X, Y)
    assert np.isfinite(found.components_).all()


def test_mmc_takes_all_pairs_of_small_tables():
    assert_allclose(metric(MMC()), metric(MMC(n_pairs="all")), rtol=1e-9)
    few = metric(MMC(n_pairs=5, random_state=0))
    assert not np.allclose(few / np.trace(few), metric(MMC()) / np.trace(metric(MMC())), rtol=1e-2)


def test_rca_on_singular_data():
    flat = np.c_[X, X[:, 0]]
    with pytest.raises(ValueError, match=r"^RCA: the within-chunklet covariance is singular \(rank 4 of 5\)"):
        RCA(on_singular="raise").fit(flat, Y)
    with pytest.warns(UserWarning, match="was added to its diagonal"):
        RCA().fit(flat, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RCA(shrinkage=0.1).fit(flat, Y)


def test_chunklets_may_come_from_pairs_or_be_drawn():
    pairs = [[0, 1], [1, 2], [5, 6], [8, 9], [9, 10], [20, 30], [31, 32]]
    chunklets = np.full(60, -1)
    for k, members in enumerate([(0, 1, 2), (5, 6), (8, 9, 10), (20, 30), (31, 32)]):
        chunklets[list(members)] = k
    assert_allclose(metric(RCA(), pairs=pairs), metric(RCA(), chunklets=chunklets), rtol=1e-9)
    drawn = [RCA(n_chunklets=15, chunklet_size=3, random_state=s).fit(X, Y).components_ for s in (0, 0, 1)]
    assert_allclose(drawn[0], drawn[1])
    assert np.abs(drawn[0] - drawn[2]).max() > 1e-6


# --- DCA


@pytest.mark.parametrize("solver", ["gevd", "hoi"])
def test_dca_diagonalizes_both_scatters(solver):
    learner = DCA(solver=solver).fit(X, Y)
    C_b, C_w = dca_loops.scatters(X, Y)
    A = learner.components_.T
    assert A.shape == (4, 2)
    assert_allclose(A.T @ C_w @ A, np.eye(2), atol=1e-10)
    assert_allclose(A.T @ C_b @ A, np.diag(learner.eigenvalues_), atol=1e-9)
    assert learner.eigenvalues_[0] >= learner.eigenvalues_[1]
    assert_allclose(learner.objective_, np.linalg.slogdet(A.T @ C_b @ A)[1], rtol=1e-9)


def test_dca_keeps_directions_with_scatter_between_chunklets_as_large_as_told():
    b = np.linalg.eigvalsh(dca_loops.scatters(X, Y)[0])[::-1]
    for share, kept in ((0.99, 2), (1.01, 1)):
        assert len(DCA(tol=share * b[1] / b[0]).fit(X, Y).components_) == kept
        assert nearfar.KernelDCA(kernel="linear", shrinkage=0, tol=share * b[1] / b[0]).fit(X, Y).transform(
            X
        ).shape == (60, kept)


def test_dca_default_reaches_the_larger_ratio_of_determinants():
    assert DCA().fit(X, Y).objective_ >= DCA(solver="hoi").fit(X, Y).objective_ - 1e-12


def test_dca_uses_negative_links_only():
    chunklets = np.where(np.arange(60) % 2 == 0, Y + 5, Y)
    links = [[0, 6], [5, 1], [2, 0]]
    learner = DCA().fit(X, chunklets=chunklets, negative_links=links)
    C_b, C_w = dca_loops.scatters(X, chunklets, {tuple(link) for link in links})
    A = learner.components_.T
    assert_allclose(A.T @ C_w @ A, np.eye(A.shape[1]), atol=1e-10)
    assert_allclose(A.T @ C_b @ A, np.diag(learner.eigenvalues_), atol=1e-9)


def test_dca_counts_no_rows_that_have_no_spread():
    chunklets = np.full(60, -1)
    chunklets[:12] = np.r_[np.repeat([0, 1, 2], 3), 3, 4, 5]
    C_w = sum(
        (X[k : k + 3] - X[k : k + 3].mean(axis=0)).T @ (X[k : k + 3] - X[k : k + 3].mean(axis=0)) for k in (0, 3, 6)
    )
    learner = DCA().fit(X, chunklets=chunklets)
    assert_allclose(
        learner.components_ @ (C_w / 9) @ learner.components_.T, np.eye(len(learner.components_)), atol=1e-9
    )


def test_dca_from_pairs_takes_dissimilar_pairs_as_links():
    pairs, labels = [[0, 1], [2, 3], [4, 5], [0, 2], [3, 4]], [1, 1, 1, -1, -1]
    chunklets = np.repeat([0, 1, 2, -1], [2, 2, 2, 54])
    by_pairs = DCA(n_components=1, on_singular="shrink")
    by_chunks = DCA(n_components=1, on_singular="shrink")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = metric(by_pairs, pairs=pairs, pair_labels=labels)
        b = metric(by_chunks, chunklets=chunklets, negative_links=[[0, 1], [1, 2]])
    assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_dca_keeps_as_many_directions_as_lie_between_and_one_less_than_features(scale):
    for classes, most in ((3, 2), (4, 3), (5, 3), (8, 3)):
        chunklets = np.arange(60) % classes
        assert DCA().fit(scale * X, chunklets=chunklets).components_.shape == (most, 4)
        with pytest.raises(ValueError, match=rf"n_components must be at most {most} "):
            DCA(most + 1).fit(scale * X, chunklets=chunklets)


def test_chunklets_of_one_row_are_left_out_with_a_warning():
    chunklets = np.r_[np.arange(56) % 3, 3, 4, -1, -1]
    with pytest.warns(UserWarning, match="2 of the chunklets have a single row, .* they are ignored"):
        found = RCA().fit(X, chunklets=chunklets).components_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = RCA().fit(X, chunklets=np.where(chunklets > 2, -1, chunklets)).components_
    assert_allclose(found, kept, rtol=1e-9)


def test_dca_needs_a_link_and_fewer_components_than_chunklets():
    with pytest.raises(ValueError, match=r"^DCA: negative_links must separate at least one pair"):
        DCA().fit(X, pairs=[[0, 1], [2, 3]])
    with pytest.raises(ValueError, match=r"^DCA: n_components must be at most 2"):
        DCA(3).fit(X, Y)


# --- High-dimensional DCA


def test_high_dimensional_dca_is_an_orthogonal_projection_at_the_exact_ratio():
    learner = nearfar.HighDimensionalDCA(2).fit(X, Y)
    L = learner.components_
    scatters = scatter.pair_scatters(X, LabelPairs(Y))
    assert_allclose(L @ L.T, np.eye(2), atol=1e-12)
    S_b, S_w, ratio = scatters.dissimilar, scatters.similar, learner.objective_
    assert abs(np.linalg.eigvalsh(S_b - ratio * S_w)[-2:].sum()) < 1e-9 * np.trace(S_b)
    V = np.linalg.qr(psd.gevd(S_b, S_w, 2)[1])[0]
    assert ratio >= np.trace(V.T @ S_b @ V) / np.trace(V.T @ S_w @ V) - 1e-12
    bound = np.linalg.eigvalsh(S_b)[-2:].sum() / np.linalg.eigvalsh(S_w)[:2].sum()
    assert np.trace(S_b) / np.trace(S_w) <= ratio <= bound


def test_high_dimensional_dca_in_the_span_equals_the_whole_space():
    wide = rng.normal(size=(30, 50))
    y = np.arange(30) % 3
    pairs, labels = all_pairs(y)
    keep = rng.permutation(len(labels))[:200]
    told = {"pairs": pairs[keep], "pair_labels": labels[keep]}
    d = distances(nearfar.HighDimensionalDCA(12).fit(wide, **told), wide)
    narrow = wide @ np.linalg.qr((wide - wide.mean(axis=0)).T)[0][:, :29]
    assert_allclose(distances(nearfar.HighDimensionalDCA(12).fit(narrow, **told), narrow), d, rtol=1e-6)


def test_high_dimensional_dca_refuses_the_full_rank():
    with pytest.raises(ValueError, match=r"^HighDimensionalDCA: n_components must be below 4, the rank"):
        nearfar.HighDimensionalDCA(4).fit(X, Y)


@pytest.mark.parametrize(("d", "seed"), [(4, 4), (4, 26), (5, 27), (6, 14)])
def test_high_dimensional_dca_spends_no_direction_on_what_rounding_leaves_of_dependent_columns(d, seed):
    X = np.random.default_rng(seed).normal(size=(1000, d))
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    learner = nearfar.HighDimensionalDCA(2).fit(X, np.arange(1000) % 4)
    assert learner.transform(X).std(axis=0).min() > 0.1


def test_high_dimensional_dca_chooses_components_from_pairs():
    L = nearfar.HighDimensionalDCA().fit(X, **few_pairs()).components_
    assert 1 <= len(L) < 4


# --- FISH-MML


def views(n=60):
    other = np.c_[X[:, :2] @ rng.normal(size=(2, 3)), rng.normal(size=(n, 2))]
    return [X, other, rng.normal(size=(n, 3))]


def test_fish_mml_rises_and_is_orthonormal_per_view():
    learner = nearfar.FISHMML(2, lam2=0.5).fit(views(), Y)
    assert (np.diff(learner.history_) >= -1e-10 * abs(learner.objective_)).all()
    for L in learner.view_components_:
        assert_allclose(L @ L.T, np.eye(2), atol=1e-12)


def test_fish_mml_objective_equals_kernels():
    from tests.references import fish_mml

    V = views()
    learner = nearfar.FISHMML(2, lam1=0.3, lam2=0.5).fit(V, Y)
    P = [L.T for L in learner.view_components_]
    assert_allclose(learner.objective_, fish_mml.objective(P, V, Y, 0.3, 0.5))


def test_fish_mml_without_the_scale_of_dependence_has_a_weight_in_other_units():
    V = views()
    learner = nearfar.FISHMML(2, lam2=0.5).fit(V, Y)
    other = nearfar.FISHMML(2, lam2=0.5 / (len(X) - 1) ** 2, hsic_scale=False).fit(V, Y)
    assert_allclose(other.objective_, learner.objective_)
    assert_allclose(distances(other, V), distances(learner, V), rtol=1e-9)


def test_fish_mml_without_dependence_treats_views_apart_in_any_order():
    V = views()
    learner = nearfar.FISHMML(2, lam2=0.0).fit(V, Y)
    for view, L in zip(V, learner.view_components_, strict=True):
        assert_allclose(L, nearfar.FISHMML(2).fit(view, Y).components_, atol=1e-10)
    turned = nearfar.FISHMML(2, lam2=0.0).fit(V[::-1], Y)
    assert_allclose(distances(turned, V[::-1]), distances(learner, V), rtol=1e-9)


def test_fish_mml_adds_up_views_and_takes_one_matrix_too(tmp_path):
    V = views()
    learner = nearfar.FISHMML(2).fit(V, Y)
    parts = [view @ L.T for view, L in zip(V, learner.view_components_, strict=True)]
    assert_allclose(learner.transform(V), np.hstack(parts), atol=1e-12)
    again = nearfar.FISHMML(2, view_sizes=np.array([4, 5, 3])).fit(np.hstack(V), Y)
    assert_allclose(again.transform(np.hstack(V)), learner.transform(V), atol=1e-12)
    again.save(tmp_path / "x")
    assert_allclose(nearfar.FISHMML.load(tmp_path / "x").transform(V), learner.transform(V))


def test_fish_mml_bad_views():
    V = views()
    with pytest.raises(ValueError, match=r"^FISHMML: views must have the same rows"):
        nearfar.FISHMML().fit([V[0], V[1][:-1]], Y)
    with pytest.raises(ValueError, match=r"^FISHMML: n_components must be at most 3"):
        nearfar.FISHMML(4).fit(V, Y)
    for wrong in ((1, 1), (0.5, 3.5), "all"):
        with pytest.raises(ValueError, match=r"^FISHMML: view_sizes must be integers >= 1 whose sum is"):
            nearfar.FISHMML(view_sizes=wrong).fit(X, Y)
    with pytest.raises(ValueError, match=r"^FISHMML: views must have \[4, 5, 3\] columns, as in fit; got \[3, 5, 4\]"):
        nearfar.FISHMML().fit(V, Y).transform(V[::-1])


# --- GMML


def test_gmml_solves_the_riccati_equation():
    A = metric(nearfar.GMML(reg=0.0))
    assert_allclose(A @ S @ A, D, atol=1e-8 * np.linalg.norm(D))
    assert_allclose(np.sum(A * S), np.sum(inv(A) * D))
    half = np.real(sqrtm(S))
    assert_allclose(np.sum(A * S) * 2, 2 * np.trace(np.real(sqrtm(half @ D @ half))))


def test_gmml_with_a_prior():
    P = G @ G.T
    lam = 0.2 * np.trace(S) / 4
    A = metric(nearfar.GMML(reg=0.2, prior=P))
    assert_allclose(A @ (S + lam * inv(P)) @ A, D + lam * P, rtol=1e-8, atol=1e-8)
    assert_allclose(metric(nearfar.GMML(reg=1e12, prior=P)), P, rtol=1e-6)


def test_gmml_geodesic():
    ends = metric(nearfar.GMML(0.0, reg=0.0)), metric(nearfar.GMML(1.0, reg=0.0))
    assert_allclose(ends[0], inv(S), rtol=1e-8)
    assert_allclose(ends[1], D, rtol=1e-8)

    def apart(A, B):
        return np.linalg.norm(np.log(np.linalg.eigvals(np.linalg.solve(A, B)).real))

    for t in (0.2, 0.5, 0.9):
        A = metric(nearfar.GMML(t, reg=0.0))
        assert_allclose(apart(ends[0], A), t * apart(*ends), rtol=1e-8)
    A = metric(nearfar.GMML(1.5, reg=0.0, extrapolate=True))
    assert_allclose(apart(ends[0], A), 1.5 * apart(*ends), rtol=1e-6)


def test_gmml_of_exchanged_pairs_is_the_inverse():
    pairs, labels = all_pairs(Y)
    a = metric(nearfar.GMML(reg=0.0), pairs=pairs, pair_labels=labels)
    b = metric(nearfar.GMML(reg=0.0), pairs=pairs, pair_labels=-labels)
    assert_allclose(a @ b, np.eye(4), atol=1e-8)


def test_gmml_weights_repeat_pairs():
    told = few_pairs()
    w = np.random.default_rng(0).integers(1, 4, 60)
    a = metric(nearfar.GMML(), **told, pair_weights=w)
    Z = X[told["pairs"][:, 0]] - X[told["pairs"][:, 1]]
    s = told["pair_labels"] == 1
    Z, s = np.repeat(Z, w, axis=0), np.repeat(s, w)
    S, D = Z[s].T @ Z[s] / s.sum(), Z[~s].T @ Z[~s] / (~s).sum()
    lam = 0.1 * np.trace(S) / 4
    assert_allclose(a @ (S + lam * np.eye(4)) @ a, D + lam * np.eye(4), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"t": 1.5}, r"t must be in \[0, 1\]"),
        ({"reg": -1.0}, "reg must be"),
        ({"prior": -np.eye(4)}, "smallest eigenvalue is -1"),
        ({"prior": np.eye(3)}, "prior must have shape"),
        ({"n_pairs": 0}, "n_pairs must be"),
    ],
)
def test_gmml_refuses(settings, word):
    with pytest.raises(ValueError, match=f"^GMML: .*{word}"):
        nearfar.GMML(**settings).fit(X, Y)


@pytest.mark.filterwarnings("ignore:GMML. the similar scatter is nearly singular")
def test_gmml_regularizes_singular_scatters():
    flat = np.c_[X, X[:, 0]]
    with pytest.raises(ValueError, match=r"^GMML: .*rank 4 of 5"):
        nearfar.GMML(reg=0.0).fit(flat, Y)
    assert np.isfinite(metric(nearfar.GMML(reg="auto"), flat)).all()
    assert_allclose(metric(nearfar.GMML(reg="auto")), metric(nearfar.GMML(reg=0.0)))


def test_gmml_reports_what_auto_adds():
    with pytest.warns(UserWarning, match="times the prior was added"):
        nearfar.GMML(reg="auto").fit(np.c_[X, X[:, 0]], Y)


@pytest.mark.parametrize(("n", "seed"), [(60, 9), (60, 24), (90, 10)])  # the best t lies beside the coarse grid
def test_gmml_tunes_t_by_cross_validation(n, seed):
    from nearfar.spectral.geometric.gmml import cross_validation

    Z, y = toy(n, seed)
    learner = nearfar.GMML("auto").fit(Z, y)
    plain = nearfar.GMML(learner.t_).fit(Z, y)
    assert_allclose(learner.components_, plain.components_)
    # the slow way: a learner per fold and t, on rows in the order of the fit
    order = row_order(Z)
    Zs, ys = (Z - Z.mean(axis=0))[order], y[order]
    fold = cross_validation.folds(encode(ys)[1])
    assert (np.stack([np.bincount(fold[ys == c], minlength=5) for c in range(3)]) == n / 15).all()

    def hits(t):
        found = 0
        for k in range(5):
            inner = nearfar.GMML(t).fit(Zs[fold != k], ys[fold != k])
            near = KNeighborsClassifier(3).fit(inner.transform(Zs[fold != k]), ys[fold != k])
            votes = ys[fold != k][near.kneighbors(inner.transform(Zs[fold == k]))[1]]
            said = [b if b == c else a for a, b, c in votes]
            found += np.sum(said == ys[fold == k])
        return found

    middle = max(cross_validation.COARSE, key=lambda t: (hits(t), -abs(t - 0.5), -t))
    fine = [round(middle + 0.02 * step, 12) for step in range(-5, 6)]
    assert learner.t_ != middle
    assert_allclose(learner.t_, max(fine, key=lambda t: (hits(t), -abs(t - 0.5))), atol=1e-12)


def test_gmml_tunes_t_by_labels_of_any_two_folds_that_can_be_learned_from():
    for told in (few_pairs(), {"y": np.repeat([0, 1, 2, 3], 15)[np.argsort(np.arange(60) % 7)]}):
        if "pairs" in told:
            with pytest.raises(ValueError, match=r"^GMML: t=\"auto\" needs labels"):
                nearfar.GMML("auto").fit(X, **told)
        else:
            assert 0 <= nearfar.GMML("auto").fit(X, **told).t_ <= 1
    with pytest.raises(ValueError, match=r'^GMML: t must be a number or "auto"; got'):
        nearfar.GMML("best").fit(X, Y)
    few = np.r_[0, 0, 1]  # without any one of these rows there is nothing to learn from, and two folds have none
    with pytest.raises(ValueError, match=r"^GMML: t=\"auto\" needs two classes"):
        nearfar.GMML("auto", reg=1.0).fit(X[:3], few)
    few = np.r_[0, 0, 0, 1]  # without its only row of a second class, one fold has nothing to learn from
    assert 0 <= nearfar.GMML("auto", reg=1.0).fit(X[:4], few).t_ <= 1


# --- More features than rows


WIDE = np.random.default_rng(5).normal(size=(40, 90))
WIDE_Y = np.arange(40) % 3


@pytest.mark.parametrize("on_singular", ["shrink", "pinv"])
def test_fisher_in_the_span_equals_the_whole_space(on_singular):
    S, D = scatter.pair_scatters(WIDE, LabelPairs(WIDE_Y)).mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = fisher.fisher(S, D, on_singular=on_singular)
        span = FisherMetric(on_singular=on_singular).fit(WIDE, WIDE_Y)
    assert_allclose(span.eigenvalues_, whole.attributes["eigenvalues"], rtol=1e-8)
    assert_allclose(distances(span, WIDE), pdist(WIDE @ whole.x.T), rtol=1e-7)
    even = WIDE * weights_of_columns(WIDE, WIDE_Y)
    S, D = scatter.pair_scatters(even, LabelPairs(WIDE_Y)).mean()
    span = nearfar.FisherMetric(on_singular=on_singular).fit(WIDE, WIDE_Y)
    whole = fisher.fisher(mahalanobis.regularized(S, "auto", 40 - len(np.unique(WIDE_Y))), D, on_singular=on_singular)
    assert_allclose(distances(span, WIDE), pdist(even @ whole.x.T), rtol=1e-7)


def test_side_information_in_the_span_equals_the_whole_space():
    whole = side_information.side_information(WIDE, LabelPairs(WIDE_Y))
    span = nearfar.SideInformationMetric().fit(WIDE, WIDE_Y)
    assert_allclose(span.objective_, whole.objective, rtol=1e-10)
    assert_allclose(distances(span, WIDE), pdist(WIDE @ whole.x.T), rtol=1e-7, atol=1e-9)


def test_fish_mml_in_the_span_equals_the_whole_space():
    views = [WIDE[:, :60], WIDE[:, 60:]]
    V = scatter.data_span(views[0])
    wide, narrow = (nearfar.FISHMML(3).fit(given, WIDE_Y) for given in (views, [views[0] @ V.T, views[1]]))
    assert [P.shape for P in wide.view_components_] == [(3, 60), (3, 30)]
    assert_allclose(wide.objective_, narrow.objective_, rtol=1e-10)
    Z, z = wide.transform(views), narrow.transform([views[0] @ V.T, views[1]])
    assert_allclose(pdist(Z), pdist(z), rtol=1e-7)
    again = nearfar.FISHMML(3, warm_start=True).fit(views, WIDE_Y).fit(views, WIDE_Y)
    assert_allclose(again.objective_, wide.objective_, rtol=1e-6)


def test_nu_svm_in_the_span_equals_the_whole_space():
    whole = nearfar.NuSVMMetric(prior=np.eye(90), random_state=0).fit(WIDE, WIDE_Y)
    span = nearfar.NuSVMMetric(random_state=0).fit(WIDE, WIDE_Y)
    assert span.components_.shape == (39, 90)
    assert_allclose(distances(span, WIDE), distances(whole, WIDE), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("solver", ["gevd", "hoi"])
def test_dca_in_the_span_equals_the_whole_space(solver):
    chunklets = np.arange(40) % 3
    found = DCA(solver=solver)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        span = found.fit(WIDE, chunklets=chunklets)
    V = scatter.data_span(WIDE)
    C_b, C_w = dca_loops.scatters(WIDE, chunklets)
    A = span.components_.T
    inner = V @ C_w @ V.T
    shrunk = inner + (psd.SHRINK * np.trace(inner) / 39 * np.eye(39) if solver == "gevd" else 0)
    assert_allclose(A.T @ V.T @ shrunk @ V @ A, np.eye(2), atol=1e-8)
    assert_allclose(A.T @ C_b @ A, np.diag(span.eigenvalues_), rtol=1e-7, atol=1e-8 * span.eigenvalues_[0])


def test_rca_in_the_span_whitens_there():
    with pytest.warns(UserWarning, match="was added to its diagonal"):
        learner = RCA().fit(WIDE, WIDE_Y)
    V = scatter.data_span(WIDE)
    C = V @ (scatter.within(WIDE, WIDE_Y) / 40) @ V.T
    L = learner.components_ @ V.T
    assert learner.components_.shape == (39, 90)
    assert_allclose(L @ (C + psd.SHRINK * np.trace(C) / 39 * np.eye(39)) @ L.T, np.eye(39), atol=1e-7)
    assert_allclose(learner.components_ @ (np.eye(90) - V.T @ V), 0, atol=1e-8 * np.abs(learner.components_).max())


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, {"n_components": 29}) for name in ("GMML", "RCA", "MMC")]
    + [("DCA", {}), ("LMNN", {}), ("LMNN", {"init": "pca", "n_components": 2})]
    + [("NCA", {"n_components": k, "max_iter": 3}) for k in (2, 9)],
)
def test_nothing_of_size_d_by_d_is_formed(name, settings):
    import tracemalloc

    wide = np.random.default_rng(0).normal(size=(30, 4000))
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = getattr(nearfar, name)(**settings).fit(wide, np.arange(30) % 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * wide.nbytes < 8 * 4000**2
    assert np.isfinite(learner.transform(wide)).all()
    small = learner.set_params(n_components=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert small.fit(wide, np.arange(30) % 3).components_.shape == (2, 4000)
        # rows as wide as they are many, after wide ones: no span is left over
        assert small.fit(X, Y).components_.shape == (2, 4)


def test_equal_rows_have_no_span_and_are_told():
    with pytest.warns(UserWarning, match="all similar pairs coincide"):
        learner = nearfar.GMML().fit(np.ones((5, 9)), [0, 0, 1, 1, 1])
    assert np.isfinite(learner.components_).all()


# --- RCA: the chunklet criterion and principal components first


def chunklet_value(L, rows=X, chunklets=Y):
    value = 0.0
    for c in np.unique(chunklets):
        Z = rows[chunklets == c]
        value += np.linalg.slogdet(L @ np.cov(Z.T, bias=True) @ L.T)[1]
    return value


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rca_keeps_the_volume_of_each_chunklet(k):
    learner = RCA(k, criterion="chunklet").fit(X, Y)
    C = scatter.within(X, Y) / 60
    L = learner.components_
    assert learner.converged_
    assert_allclose(L @ C @ L.T, np.eye(k), atol=1e-9)
    best = chunklet_value(L)
    assert best >= chunklet_value(RCA(k).fit(X, Y).components_) - 1e-9

    def value(A):
        return chunklet_value(A) - 3 * np.linalg.slogdet(A @ C @ A.T)[1]

    assert_allclose(value(L), best, atol=1e-9)
    for _ in range(50):
        step = rng.normal(size=L.shape) * np.abs(L).max()
        assert value(L + 1e-3 * step) <= best + 1e-9
        assert abs(value(L + 1e-5 * step) - value(L - 1e-5 * step)) / 2e-5 < 1e-3


def test_units_of_features_do_not_matter_to_the_volume_of_chunklets():
    units = np.array([1.0, 200.0, 0.01, 3.0])
    for seed in range(6):
        rows = np.random.default_rng(seed).normal(size=(60, 4)) * (1 + np.arange(3)[Y, None] * np.arange(4))
        values = []
        for unit in (1.0, units, 1 / units):
            learner = RCA(2, criterion="chunklet").fit(rows * unit, Y)
            values.append(chunklet_value(learner.components_, rows * unit))
        assert_allclose(values, values[0], rtol=1e-6)


def test_both_criteria_of_rca_are_one_metric_with_all_components():
    assert_allclose(metric(RCA(criterion="chunklet")), metric(RCA()))


def test_chunklets_smaller_than_the_components_are_told_and_finite():
    chunklets = np.arange(60) // 2
    with pytest.warns(UserWarning, match="30 chunklets have at most n_components rows"):
        learner = RCA(2, criterion="chunklet").fit(X, chunklets=chunklets)
    assert np.isfinite(learner.components_).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RCA(2, criterion="chunklet", shrinkage=0.1).fit(X, chunklets=chunklets)


def test_the_search_for_the_volume_of_chunklets_goes_on_from_a_warm_start():
    numbers = np.arange(200) % 4
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0]
    R = np.random.default_rng(0).normal(size=(200, 12)) * (1 + np.arange(4)[:, None] * np.arange(12) / 6)[numbers] @ Q
    for settings in ({}, {"pca": 8}):
        cold = RCA(3, criterion="chunklet", **settings).fit(R, numbers)
        learner = RCA(3, criterion="chunklet", warm_start=True, max_iter=3, **settings)
        with pytest.warns(ConvergenceWarning):
            learner.fit(R, numbers)
        short = learner.history_[-1]
        learner.set_params(max_iter=200).fit(R, numbers)
        assert learner.history_[0] >= short
        assert learner.n_iter_ < cold.n_iter_
        assert_allclose(distances(learner, R), distances(cold, R), rtol=1e-3)
        assert learner.fit(R, numbers).n_iter_ <= 2


def test_rca_after_principal_components():
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    learner = RCA(pca=3).fit(X, Y)
    assert_allclose(distances(learner, X), distances(RCA().fit(X @ V.T, Y), X @ V.T), rtol=1e-8)
    assert learner.components_.shape == (3, 4)
    assert RCA(2, pca=3).fit(X, Y).components_.shape == (2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RCA(pca=4).fit(np.c_[X, X[:, 0]], Y)  # singular before, not after
    for n_components, pca in ((None, 5), (None, 0), (3, 2)):
        with pytest.raises(ValueError, match=r"^RCA: pca must be in"):
            RCA(n_components, pca=pca).fit(X, Y)


# --- Side information with target distances


def targets(m=40, seed=2):
    pairs, _ = all_pairs(Y)
    keep = np.random.default_rng(seed).permutation(len(pairs))[:m]
    B = np.random.default_rng(3).normal(size=(2, 4))
    d = np.linalg.norm((X[pairs[keep, 0]] - X[pairs[keep, 1]]) @ B.T, axis=1)
    return B, {"target_pairs": pairs[keep], "target_distances": d}


def test_side_information_finds_the_metric_whose_distances_it_is_told():
    B, told = targets()
    learner = nearfar.SideInformationMetric(tol=1e-9, max_iter=5000).fit(X, **told)
    assert_allclose(learner.get_mahalanobis_matrix(), B.T @ B, atol=1e-3)
    assert_allclose(learner.pair_distance(told["target_pairs"], X), told["target_distances"], rtol=1e-3)
    assert nearfar.SideInformationMetric(2).fit(X, **told).components_.shape == (2, 4)


@pytest.mark.parametrize("beta", [0.0, 1.0, 20.0])
def test_side_information_with_targets_equals_the_generic_solver(beta):
    _, told = targets()
    b = (told["target_distances"] + 0.5) ** 2
    told["target_distances"] = np.sqrt(b)
    Z = X[told["target_pairs"][:, 0]] - X[told["target_pairs"][:, 1]]
    A = beta * side_loops.difference(X, Y)
    Q = np.stack([conic.svec(np.outer(z, z)) for z in Z])
    rows = [(-np.eye(10), np.zeros(10), "psd", 4)]
    M = conic.smat(conic.solve(2 * Q.T @ Q, conic.svec(A) - 2 * Q.T @ b, rows))

    def value(M):
        return np.sum((np.einsum("pd,de,pe->p", Z, M, Z) - b) ** 2) + np.sum(A * M)

    learner = nearfar.SideInformationMetric(beta=beta, tol=1e-8, max_iter=5000).fit(X, Y, **told)
    assert learner.converged_
    assert_allclose(value(learner.get_mahalanobis_matrix()), learner.objective_, rtol=1e-6)
    assert_allclose(learner.objective_, value(M), rtol=1e-5)
    assert learner.duality_gap_ <= 1e-8 * max(1, abs(learner.objective_))
    assert learner.objective_ - learner.duality_gap_ <= value(M) + 1e-6 * abs(value(M))


def test_targets_and_labels_do_not_depend_on_the_order_of_rows():
    _, told = targets()
    d = distances(nearfar.SideInformationMetric().fit(X, Y, **told), X)
    order = np.random.default_rng(4).permutation(60)
    told["target_pairs"] = np.argsort(order)[told["target_pairs"]]
    again = nearfar.SideInformationMetric().fit(X[order], Y[order], **told)
    assert_allclose(distances(again, X), d, rtol=1e-6)


def test_few_targets_leave_other_directions_alone_or_are_refused():
    _, told = targets(2)
    learner = nearfar.SideInformationMetric(beta=0.0).fit(X, Y, **told)
    assert_allclose(learner.pair_distance(told["target_pairs"], X), told["target_distances"], rtol=1e-2)
    with pytest.raises(ValueError, match=r"^SideInformationMetric: the optimum is infinite, because dissimilar pairs"):
        nearfar.SideInformationMetric(beta=1.0).fit(X, Y, **told)
    # where similar pairs are far in every direction that is left, two targets are enough
    learner = nearfar.SideInformationMetric(tol=1e-8, max_iter=5000).fit(
        X, pairs=[*told["target_pairs"], *np.arange(40).reshape(20, 2)], pair_labels=[-1, -1] + 20 * [1], **told
    )
    assert learner.converged_


def test_targets_are_checked_and_warm_start_goes_on(capsys):
    _, told = targets()
    for wrong in ({"target_distances": told["target_distances"][:-1]}, {"target_distances": -told["target_distances"]}):
        with pytest.raises(ValueError, match=r"^SideInformationMetric: target_distances must be"):
            nearfar.SideInformationMetric().fit(X, **(told | wrong))
    with pytest.raises(ValueError, match=r"^SideInformationMetric: target_pairs must hold row numbers"):
        nearfar.SideInformationMetric().fit(X, **(told | {"target_pairs": told["target_pairs"] + 60}))
    for alone in told:
        with pytest.raises(ValueError, match="target_pairs and target_distances must be given together"):
            nearfar.SideInformationMetric().fit(X, Y, **{alone: told[alone]})
    learner = nearfar.SideInformationMetric(warm_start=True, verbose=True).fit(X, **told)
    assert "SideInformationMetric: iteration 1, objective" in capsys.readouterr().out
    assert learner.fit(X, **told).n_iter_ == 1


def test_fish_mml_goes_on_from_the_last_fit(capsys):
    V = views()
    learner = nearfar.FISHMML(2, lam2=0.5, warm_start=True, verbose=True).fit(V, Y)
    assert "FISHMML: iteration 1, objective" in capsys.readouterr().out
    best = learner.objective_
    assert learner.fit(V, Y).n_iter_ == 1
    assert_allclose(learner.objective_, best, rtol=1e-5)


def test_fisher_keeps_the_directions_that_lower_its_objective():
    noisy = np.random.default_rng(0).normal(size=(90, 6))
    noisy[:, 0] += 2.0 * (np.arange(90) % 3)
    every = FisherMetric(n_components=5).fit(noisy, np.arange(90) % 3).eigenvalues_
    found = FisherMetric().fit(noisy, np.arange(90) % 3)
    assert 1 <= (every > 1).sum() < 5
    assert_allclose(found.eigenvalues_, every[every > 1], rtol=1e-10)


def test_ratio_directions_of_pairs_are_the_fewest_that_keep_most_of_the_dissimilar_scatter():
    wide = np.random.default_rng(1).normal(size=(len(Y), 8))
    pairs, signs = all_pairs(Y)
    told = {"pairs": pairs, "pair_labels": signs}
    Z = (wide[pairs[:, 0]] - wide[pairs[:, 1]])[signs < 0]
    kept = [
        np.sum((Z @ nearfar.HighDimensionalDCA(p).fit(wide, **told).components_.T) ** 2) / np.sum(Z**2)
        for p in range(1, 8)
    ]
    p = len(nearfar.HighDimensionalDCA().fit(wide, **told).components_)
    assert p == next((k for k, share in enumerate(kept, 1) if share >= 0.95), 7)
    assert kept[p - 3] > 0.5


@pytest.mark.filterwarnings("ignore:MMC. the similar scatter is singular")
@pytest.mark.parametrize("n", [40, 60, 61])
def test_classes_of_one_repeated_row_are_learned_from(n):
    y = np.arange(n) % 3
    for rows in (np.eye(3, 4)[y], np.random.default_rng(0).normal(size=(3, 4))[y]):
        for learner in (nearfar.MMC(), nearfar.LLERegularizedMetric(), nearfar.KernelLLERegularizedMetric()):
            with pytest.warns(UserWarning, match="all similar pairs coincide"):
                learner.fit(rows, y)
            Z = learner.transform(rows[:3])
            assert min(np.linalg.norm(Z[0] - Z[1]), np.linalg.norm(Z[0] - Z[2])) > 0


def test_fish_mml_names_its_limit_in_the_units_of_the_gain():
    X, y = data(60, 6)
    with pytest.warns(ConvergenceWarning, match="block coordinate ascent") as caught:
        nearfar.FISHMML(2, view_sizes=[3, 3], lam2=1e8, max_iter=1).fit(1e-4 * X, y)
    gain, limit = re.search(r"last gain (\S+), tol (\S+)$", str(caught[0].message)).groups()
    assert float(gain) > float(limit)
