"""What the kernel methods promise beyond the laws of all learners."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

import nearfar
from nearfar import (
    KernelDCA,
    KernelFisherMetric,
    Kernelized,
    KernelLLERegularizedMetric,
    KernelNuSVMMetric,
    KernelSpectrumMetric,
    KernelStiefelSPDMetric,
    LaplacianRegularizedKernel,
)
from nearfar.neighbors import graphs
from nearfar.numerics import kernels, scatter
from nearfar.numerics.constraints import LabelPairs
from nearfar.numerics.mahalanobis import shares_of_rows
from nearfar.spectral import locality
from tests import conic
from tests.learners import accuracy, all_pairs, data, distances, fit
from tests.references import laplacian_regularized as loops

X, Y = data()
GAMMA = 0.1
K = kernels.gram(X, X, "rbf", GAMMA)
CLOSED = [
    KernelSpectrumMetric(n_components=4),
    KernelLLERegularizedMetric(n_components=2),
    KernelDCA(),
    KernelFisherMetric(),
    KernelFisherMetric(constraint="within"),
]
ALL = [
    *CLOSED,
    KernelNuSVMMetric(random_state=0),
    KernelStiefelSPDMetric(2, tol=1e-10, max_iter=3000, random_state=0),
    LaplacianRegularizedKernel(random_state=0),
]
PLANE = {"graph_space": "feature", "lle_space": "feature"}


def same(found, expected, rtol=1e-8):
    assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def dual_in_order(learner, X=X):
    """Dual coefficients, one row per row of X."""
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in learner.X_fit_]
    T = np.zeros_like(learner.dual_coef_)
    T[order] = learner.dual_coef_
    return T


def with_kernel(learner, kernel, **settings):
    if kernel == "precomputed":
        settings |= {name: value for name, value in PLANE.items() if name in learner.get_params()}
    return clone(learner).set_params(kernel=kernel, **settings)


@pytest.mark.parametrize("learner", ALL, ids=repr)
def test_landmarks_of_all_rows_change_nothing(learner):
    expected = distances(fit(clone(learner), X, Y), X)
    same(distances(fit(clone(learner).set_params(landmarks=60), X, Y), X), expected, 1e-10)
    few = fit(clone(learner).set_params(landmarks=25, random_state=0), X, Y)
    assert few.dual_coef_.shape[0] == 25
    assert np.isfinite(few.transform(X)).all()


@pytest.mark.parametrize("kernel", ["linear", "polynomial", "laplacian", "cosine", lambda A, B: (A @ B.T + 2) ** 2])
@pytest.mark.parametrize("learner", ALL, ids=repr)
def test_every_kernel(learner, kernel):
    settings = {"n_components": 1} if isinstance(learner, KernelLLERegularizedMetric | KernelSpectrumMetric) else {}
    found = fit(with_kernel(learner, kernel, **settings), X[:40], Y[:40])
    assert_allclose(found.transform(X)[:40], found.transform(X[:40]), rtol=1e-9)
    assert np.ptp(distances(found, X)) > 0


@pytest.mark.parametrize("learner", ALL, ids=repr)
def test_a_precomputed_kernel_is_that_kernel(learner):
    order = np.argsort(X @ np.cos(np.arange(1.0, 5)))  # the order in which the shell takes rows
    A, a = X[order], Y[order]
    settings = {"gamma": GAMMA} | {name: value for name, value in PLANE.items() if name in learner.get_params()}
    expected = fit(clone(learner).set_params(**settings), A, a)
    gram = kernels.gram(A, A, "rbf", GAMMA)
    found = fit(with_kernel(learner, "precomputed"), gram, a)
    same(distances(found, gram), distances(expected, A), 1e-5)


@pytest.mark.parametrize("learner", ALL, ids=repr)
def test_a_precomputed_kernel_has_to_be_one(learner):
    learner = with_kernel(learner, "precomputed")
    name = type(learner).__name__
    low = np.linalg.eigvalsh(K)[0] - 0.5
    with pytest.raises(ValueError, match=rf"^{name}: the kernel matrix .*semi-definite; .*eigenvalue is {low:.3g}"):
        learner.fit(K - 0.5 * np.eye(60), Y)
    with pytest.raises(ValueError, match=rf"^{name}: the kernel matrix must be symmetric; it differs .* by 0\.25"):
        learner.fit(K + 0.25 * np.eye(60)[::-1] * (np.arange(60) < 30), Y)
    with pytest.raises(ValueError, match=rf"^{name}: a precomputed kernel must be a square matrix; got .*60, 4"):
        learner.fit(X, Y)
    fit(learner, K, Y)
    assert learner.transform(K[:5]).shape[0] == 5
    with pytest.raises(ValueError, match=rf"^{name}: X has 59 features, but {name} is expecting 60"):
        learner.transform(K[:, :59])


@pytest.mark.parametrize("name", ["KernelLLERegularizedMetric", "LaplacianRegularizedKernel"])
def test_input_neighbors_need_rows(name):
    with pytest.raises(ValueError, match=f"^{name}: .*_space must be .*'feature'"):
        getattr(nearfar, name)(kernel="precomputed").fit(K, Y)


# ---- S20


def test_spectrum_weights_are_optimal():
    learner = fit(KernelSpectrumMetric(n_components=6, scale=2.5, gamma=GAMMA), X, Y)
    assert_allclose(learner.beta_.sum(), 2.5)
    product = learner.f_ * learner.beta_
    assert_allclose(product, product[0], rtol=1e-12)
    assert_allclose(learner.objective_, 2.5**2 / np.sum(1 / learner.f_))
    twice = fit(KernelSpectrumMetric(n_components=6, scale=5.0, gamma=GAMMA), X, Y)
    same(distances(twice, X), 2 * distances(learner, X))


def test_spectrum_raises_small_spreads_to_the_floor():
    f = fit(KernelSpectrumMetric(n_components=6, gamma=GAMMA), X, Y).f_
    floor = float(np.median(f / f.max()))
    beta = 1 / np.maximum(f, floor * f.max())
    learner = fit(KernelSpectrumMetric(n_components=6, floor=floor, gamma=GAMMA), X, Y)
    assert_allclose(learner.beta_, beta / beta.sum(), rtol=1e-9)


def test_spectrum_learns_the_eigenvectors_with_other_weights():
    learner = fit(KernelSpectrumMetric(n_components=6, gamma=GAMMA), X, Y)
    A = np.linalg.eigh(K)[1][:, ::-1][:, :6]
    expected = sum(beta**2 * np.outer(a, a) for beta, a in zip(learner.beta_, A.T, strict=True))
    Z = learner.transform(X)
    same(Z @ Z.T, expected, 1e-7)  # whatever the signs of the eigenvectors
    assert np.linalg.matrix_rank(Z @ Z.T) == 6
    pairs, labels = all_pairs(Y)
    with pytest.raises(ValueError, match=r"^KernelSpectrumMetric: pairs must hold at least one similar pair"):
        KernelSpectrumMetric().fit(X, pairs=pairs[labels == -1], pair_labels=labels[labels == -1])


def test_spectrum_keeps_the_share_of_the_trace():
    w = np.linalg.eigvalsh(K)[::-1]
    for share in (0.5, 0.9, 1.0):
        p = len(fit(KernelSpectrumMetric(share=share, gamma=GAMMA), X, Y).beta_)
        assert w[:p].sum() >= share * w.sum() * (1 - 1e-9)
        assert p == 1 or w[: p - 1].sum() < share * w.sum()


def test_spectrum_centered_is_the_centered_kernel():
    H = np.eye(60) - 1 / 60
    given = fit(KernelSpectrumMetric(n_components=5, kernel="precomputed"), H @ K @ H, Y)
    centered = fit(KernelSpectrumMetric(n_components=5, center=True, gamma=GAMMA), X, Y)
    same(distances(centered, X), distances(given, H @ K @ H), 1e-7)


def test_spectrum_uses_similar_pairs_only():
    pairs, labels = all_pairs(Y)
    similar = fit(KernelSpectrumMetric(n_components=4), X, pairs=pairs[labels == 1])
    same(distances(similar, X), distances(fit(KernelSpectrumMetric(n_components=4), X, Y), X), 1e-7)


def test_spectrum_floor_and_rank():
    still = fit(KernelSpectrumMetric(n_components=5, floor=0.5), X, Y)
    assert still.f_.min() >= 0.5 * still.f_.max()
    with pytest.raises(ValueError, match=r"^KernelSpectrumMetric: n_components must be .*1..4"):
        KernelSpectrumMetric(n_components=5, kernel="linear").fit(X, Y)
    with pytest.raises(ValueError, match=r"^KernelSpectrumMetric: share"):
        KernelSpectrumMetric(share=1.5).fit(X, Y)


# ---- S21


def test_lle_with_a_linear_kernel_is_the_linear_method():
    weights = graphs.lle_weights(X, 10, 1e-3)
    S, D = scatter.pair_scatters(X, LabelPairs(Y)).mean()
    below = S + 0.7 * locality.rebuilding_scatter(X, weights)
    for solver in ("ratio", "gevd"):
        U = locality.ratio_directions(D, below, 2, solver=solver).x
        settings = {"n_components": 2, "lam": 0.7, "solver": solver, "reg": 0.0, "kernel": "linear"}
        learner = fit(KernelLLERegularizedMetric(**settings), X, Y)
        same(distances(learner, X), np.linalg.norm((X[:, None] - X)[np.triu_indices(60, 1)] @ U.T, axis=1))
        assert_allclose(learner.objective_, np.trace(U @ D @ U.T) / np.trace(U @ below @ U.T), rtol=1e-9)
        linear = nearfar.LLERegularizedMetric(n_components=2, lam=0.7, solver=solver)
        same(distances(learner, X), distances(fit(linear, X, Y), X))
    feature = fit(KernelLLERegularizedMetric(lle_space="feature", **settings), X, Y)
    same(distances(feature, X), distances(learner, X), 1e-7)
    ridged = below + 0.5 * np.trace(below) / 4 * np.eye(4)
    learner = fit(KernelLLERegularizedMetric(n_components=2, lam=0.7, reg=0.5, kernel="linear"), X, Y)
    U = locality.ratio_directions(D, ridged, 2).x
    same(distances(learner, X), np.linalg.norm((X[:, None] - X)[np.triu_indices(60, 1)] @ U.T, axis=1))


def test_lle_directions_are_orthonormal_in_feature_space():
    T = dual_in_order(fit(KernelLLERegularizedMetric(n_components=3, gamma=GAMMA), X, Y))
    assert_allclose(T.T @ K @ T, np.eye(3), atol=1e-7)


def test_lle_without_neighborhoods_is_the_trace_ratio():
    learner = fit(KernelLLERegularizedMetric(n_components=2, lam=0.0, reg=0.0, kernel="polynomial", degree=2), X, Y)
    expected = fit(Kernelized(nearfar.HighDimensionalDCA(n_components=2), "polynomial", degree=2), X, Y)
    same(distances(learner, X), distances(expected, X), 1e-8)


def test_lle_counts_unlabeled_rows():
    y = np.where(np.arange(60) < 40, Y, -1)
    moved = X.copy()
    moved[40:] += 3
    a, b = (fit(KernelLLERegularizedMetric(n_components=1, gamma=GAMMA), rows, y, unlabeled=-1) for rows in (X, moved))
    assert np.abs(distances(a, X[:40]) - distances(b, X[:40])).max() > 1e-3
    with pytest.warns(UserWarning, match=r"^KernelLLERegularizedMetric: n_neighbors=60, but there are 60 rows"):
        KernelLLERegularizedMetric(n_neighbors=60).fit(X, Y)
    with pytest.raises(ValueError, match=r"^KernelLLERegularizedMetric: lam"):
        KernelLLERegularizedMetric(lam=-1).fit(X, Y)


def test_lle_default_count_of_directions():
    assert fit(KernelLLERegularizedMetric(), X, Y).transform(X).shape[1] == 2
    S, D = scatter.pair_scatters(X, LabelPairs(Y)).mean()
    for share in (0.1, 0.5, 0.9):
        U = locality.ratio_directions(D, S, None, share).x
        kept = [np.trace(V @ D @ V.T) / np.trace(D) for V in (locality.ratio_directions(D, S, p).x for p in (1, 2, 3))]
        enough = [p for p, value in zip((1, 2, 3), kept, strict=True) if value >= share]
        assert len(U) == min([*enough, 3])
    pairs, labels = all_pairs(Y)
    told = {"pairs": pairs, "pair_labels": labels}
    assert fit(KernelLLERegularizedMetric(kernel="linear"), X, **told).transform(X).shape[1] == len(
        locality.ratio_directions(D, S + locality.rebuilding_scatter(X, graphs.lle_weights(X, 10)), None).x
    )


# ---- S23


def in_units(X, y):
    """Rows in the units of learners with `shrinkage="auto"`."""
    Z = X / X.std(axis=0)
    return Z * np.sqrt(shares_of_rows(Z, y))


@pytest.mark.parametrize("solver", ["gevd", "hoi"])
def test_dca_with_a_linear_kernel_is_dca(solver):
    even = in_units(X, Y)  # by which DCA divides where its shrinkage is "auto", and a kernel does not
    for shrinkage in (0.0, 0.2, "auto"):
        linear = fit(nearfar.DCA(solver=solver, shrinkage=shrinkage), even, Y)
        learner = fit(KernelDCA(solver=solver, shrinkage=shrinkage, kernel="linear"), even, Y)
        assert_allclose(learner.eigenvalues_, linear.eigenvalues_, rtol=1e-10)
        same(distances(learner, even), distances(linear, even))


def test_dca_whitens_the_regularized_within_scatter():
    learner = fit(KernelDCA(gamma=GAMMA, shrinkage=0.01), X, Y)
    R = kernels.kernel_map(X, "rbf", gamma=GAMMA).rows
    within = scatter.within(R, Y) / 60
    T = dual_in_order(learner)
    inside = T.T @ scatter.within(K, Y) @ T / 60
    whole = 0.99 * inside + 0.01 * np.trace(within) / len(within) * T.T @ K @ T
    assert_allclose(whole, np.eye(2), atol=1e-6)
    links = fit(KernelDCA(gamma=GAMMA, shrinkage=0.01), X, chunklets=Y, negative_links=[[0, 1], [0, 2], [1, 2]])
    same(distances(links, X), distances(learner, X), 1e-6)


# ---- S24


def test_fisher_with_a_linear_kernel_is_fisher():
    for p in (1, 2, 3):
        linear = fit(nearfar.FisherMetric("trace", scale="unit", n_components=p), X, Y)
        learner = fit(KernelFisherMetric(p, constraint="orthonormal", kernel="linear"), X, Y)
        assert_allclose(learner.eigenvalues_, linear.eigenvalues_, rtol=1e-10)
        same(distances(learner, X), distances(linear, X))
        even = in_units(X, Y)
        within = fit(KernelFisherMetric(p, kernel="linear"), even, Y)
        same(distances(within, even), distances(fit(nearfar.FisherMetric(n_components=p), X, Y), X))


def test_fisher_whitens_a_singular_scatter_as_told():
    settings = {"shrinkage": 0.0, "kernel": "linear"}
    flat = np.c_[X, Y]  # rows of one class do not differ along the last
    with pytest.raises(ValueError, match=r"^KernelFisherMetric: the similar scatter is singular \(rank 4 of 5\)"):
        KernelFisherMetric(**settings, on_singular="raise").fit(flat, Y)
    shrunk, pinv = (fit(KernelFisherMetric(2, **settings, on_singular=how), flat, Y) for how in ("shrink", "pinv"))
    assert shrunk.eigenvalues_[0] > 1e3 > pinv.eigenvalues_[0]


def test_fisher_of_one_direction_keeps_it():
    learner = KernelFisherMetric(kernel="linear").fit(X[:, :1] + Y[:, None], Y)
    assert learner.transform(X[:, :1]).shape == (60, 1)


def test_fisher_directions_are_orthonormal_and_useful():
    learner = fit(KernelFisherMetric(gamma=GAMMA, constraint="orthonormal"), X, Y)
    T = dual_in_order(learner)
    assert_allclose(T.T @ K @ T, np.eye(T.shape[1]), atol=1e-6)
    assert (learner.eigenvalues_ < 0).all()
    assert T.shape[1] <= 50
    assert_allclose(learner.objective_, learner.eigenvalues_.sum())


def test_fisher_is_blind_to_centering():
    H = np.eye(60) - 1 / 60
    plain, centered = (
        fit(KernelFisherMetric(3, constraint="orthonormal", kernel="precomputed"), A, Y) for A in (K, H @ K @ H)
    )
    same(distances(centered, H @ K @ H), distances(plain, K), 1e-7)
    assert_allclose(centered.eigenvalues_, plain.eigenvalues_, rtol=1e-9)


# ---- S25


def svm_problem():
    """Dissimilar differences and the similar scatter in the units of the solver, for a linear kernel."""
    pairs, labels = all_pairs(Y)
    Z = (X[pairs[:, 0]] - X[pairs[:, 1]])[labels == -1]
    unit = np.mean(np.sum(Z**2, axis=1))
    return Z / np.sqrt(unit), scatter.pair_scatters(X, LabelPairs(Y)).mean()[0] / unit, unit


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize(("l2", "nu"), [(5.0, 0.5), (200.0, 0.3)])
def test_svm_with_a_linear_kernel_is_the_optimum_over_matrices(definite, l2, nu):
    learner = KernelNuSVMMetric(l2=l2, nu=nu, kernel="linear", n_pairs="all", tol=1e-7, definite=definite)
    fit(learner, X, Y)
    Z, S, unit = svm_problem()
    (m, d), k = Z.shape, 10
    before = np.sum(Z**2, axis=1)
    Q = np.stack([conic.svec(np.outer(z, z)) for z in Z])
    P = np.diag(np.r_[np.ones(k), np.zeros(m + 1)])
    q = np.r_[conic.svec(S), -l2 * nu, np.full(m, l2 / m)]
    rows = [
        (np.hstack([-Q, np.ones((m, 1)), -np.eye(m)]), -before, "positive", m),
        (np.hstack([np.zeros((m + 1, k)), -np.eye(m + 1)]), np.zeros(m + 1), "positive", m + 1),
    ]
    if definite:
        rows.append((np.hstack([-np.eye(k), np.zeros((k, m + 1))]), np.zeros(k), "psd", d))
    x = conic.solve(P, q, rows)
    assert_allclose(learner.objective_, x @ P @ x / 2 + q @ x, rtol=1e-5)
    M = conic.smat(x[:k])
    w, V = np.linalg.eigh(M)
    M = (V * np.maximum(w, 0)) @ V.T / unit
    i, j = np.triu_indices(60, 1)
    expected = np.sqrt(np.einsum("pd,pd->p", (X[i] - X[j]) @ M, X[i] - X[j]))
    same(distances(learner, X), expected, 1e-3)


def test_svm_multipliers_obey_their_bounds_and_nu_counts_errors():
    nu, l2 = 0.3, 200.0
    learner = fit(KernelNuSVMMetric(nu=nu, l2=l2, kernel="linear", n_pairs="all", tol=1e-7), X, Y)
    Z, _, _ = svm_problem()
    pairs, labels = all_pairs(Y)
    a, m = learner.dual_, len(Z)
    assert a.min() >= 0
    assert a.max() <= l2 / m * (1 + 1e-9)
    assert a.sum() >= l2 * nu * (1 - 1e-9)
    assert learner.margin_ > 0
    assert learner.duality_gap_ <= 1e-6 * abs(learner.objective_)
    stretch = learner.pair_distance(pairs[labels == -1], X) ** 2 - np.sum(Z**2, axis=1)
    assert (stretch < learner.margin_ - 1e-8).mean() <= nu
    assert (stretch < learner.margin_ + 1e-8).mean() >= nu


SVM_SETTINGS = [
    {"l2": 50.0},
    {"l2": 50.0, "definite": False},
    {"l2": 2000.0, "nu": 0.1},
    {"l2": 200.0, "nu": 0.3, "l1": 0.0},
    {"l2": 30.0, "l1": 10.0, "nu": 0.1},  # margin 0, and all pairs on it
    {"nu": 1.0},
    {},
]


@pytest.mark.parametrize("settings", SVM_SETTINGS, ids=str)
def test_svm_with_a_linear_kernel_is_the_linear_method(settings):
    pairs, labels = all_pairs(Y)
    told = {"pairs": pairs[::4], "pair_labels": labels[::4], "pair_weights": np.arange(1.0, 444.0)}
    linear = fit(nearfar.NuSVMMetric(**settings), X, **told)
    learner = fit(KernelNuSVMMetric(kernel="linear", **settings), X, **told)
    assert linear.converged_
    assert np.ptp(distances(linear, X)) > 1e-3
    same(distances(learner, X), distances(linear, X), 1e-8)
    assert_allclose(learner.objective_, linear.objective_, rtol=1e-10)
    assert_allclose(learner.margin_, linear.margin_, rtol=1e-8, atol=1e-8)


def test_svm_with_a_linear_kernel_goes_the_same_steps():
    settings = {"l2": 50.0, "max_iter": 20, "n_pairs": "all"}
    linear = fit(nearfar.NuSVMMetric(**settings), X, Y)
    learner = fit(KernelNuSVMMetric(kernel="linear", **settings), X, Y)
    assert not linear.converged_
    same(distances(learner, X), distances(linear, X), 1e-8)


def test_svm_does_not_know_the_unit():
    for settings in ({}, {"l2": 200.0}):
        learners = [KernelNuSVMMetric(kernel="linear", random_state=0, **settings) for _ in range(2)]
        a, b = (fit(learner, c * X, Y) for learner, c in zip(learners, (1, 10), strict=True))
        same(distances(b, 10 * X), distances(a, X), 1e-8)


# ---- S22


def graph(**settings):
    return LaplacianRegularizedKernel(**{"n_pairs": "all", "random_state": 0, **settings})


def test_laplacian_is_the_optimum_over_kernel_matrices():
    A, a = X[:14], Y[:14]
    learner = fit(graph(q=13, n_neighbors=3, lam=0.5, tol=1e-7), A, a)
    n, k = 14, 105
    edges = loops.edges(A, 3)
    pairs, labels = all_pairs(a)

    def difference(i, j):
        e = np.eye(n)[i] - np.eye(n)[j]
        return np.outer(e, e)

    C = np.mean([difference(i, j) for i, j in pairs[labels == 1]], axis=0)
    C = C + 0.5 * sum(difference(i, j) for i, j in edges)
    D = np.stack([conic.svec(difference(i, j)) for i, j in pairs[labels == -1]])
    rows = [(-D, -np.ones(len(D)), "positive", len(D)), (-np.eye(k), np.zeros(k), "psd", n)]
    x = conic.solve(np.zeros((k, k)), conic.svec(C + 1e-9 * np.eye(n)), rows)
    assert_allclose(learner.objective_, conic.svec(C) @ x, rtol=1e-5)
    assert learner.duality_gap_ <= 1e-7 * learner.objective_


@pytest.mark.slow
def test_laplacian_scales_with_c_and_falls_with_q():
    one = fit(graph(), X, Y)
    five = fit(graph(c=5.0), X, Y)
    assert_allclose(five.objective_, 5 * one.objective_, rtol=1e-6)
    same(five.embedding_ @ five.embedding_.T, 5 * one.embedding_ @ one.embedding_.T, 1e-4)
    values = [fit(graph(q=q), X, Y).objective_ for q in (5, 15, 30, 59)]
    assert values == sorted(values, reverse=True)
    for learner in (one, five):
        assert_allclose(loops.least(learner.embedding_, Y), learner.c, rtol=1e-6)


@pytest.mark.slow
def test_laplacian_embeds_every_row_in_its_place():
    learner = fit(graph(q=59, ridge=1e-9), X, Y)
    same(learner.transform(X), learner.embedding_, 1e-3)
    pairs, labels = all_pairs(Y)
    by_pairs = fit(graph(q=59), X, pairs=pairs, pair_labels=labels)
    same(by_pairs.embedding_ @ by_pairs.embedding_.T, learner.embedding_ @ learner.embedding_.T, 1e-4)
    assert learner.transductive_ is True
    near = fit(graph(q=59, ridge=1e-3), X[:45], Y[:45])
    assert accuracy(near.transform(X[:45]), Y[:45], near.transform(X[45:]), Y[45:]) >= 0.8


def test_laplacian_of_a_graph_in_pieces_is_finite():
    A = np.vstack([X[:30], X[:30] + 1000])
    learner = fit(graph(n_neighbors=5), A, np.r_[Y[:30], Y[:30]])
    assert learner.duality_gap_ <= 1e-6 * learner.objective_
    assert np.abs(learner.transform(A)).max() < 1e3


@pytest.mark.slow
def test_laplacian_errors():
    with pytest.raises(ValueError, match=r"^LaplacianRegularizedKernel: n_components must be at most \d+, the rank"):
        graph(n_components=25).fit(X, Y)
    for wrong in ({"lam": 0}, {"c": 0}, {"ridge": 0}, {"q": 0}, {"tol": 0}, {"graph_space": "no"}):
        with pytest.raises(ValueError, match=f"^LaplacianRegularizedKernel: {next(iter(wrong))} must be"):
            graph(**wrong).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graph(n_components=2).fit(X, Y).transform(X).shape == (60, 2)
    with pytest.warns(match="stopped after 3"):
        graph(max_iter=3).fit(X, Y)


@pytest.mark.filterwarnings("ignore:.*all similar pairs coincide")
def test_equal_rows_leave_the_nu_support_vectors_nothing_to_separate():
    with pytest.raises(
        ValueError, match=r"^KernelNuSVMMetric: pairs must hold dissimilar rows that differ; all of them coincide"
    ):
        nearfar.KernelNuSVMMetric().fit(np.ones((20, 3)), np.arange(20) % 2)


# --- Warm starts


WARM = [
    nearfar.KernelFastNCA(2),
    nearfar.KernelNCA(2),
    nearfar.KernelPCCA(2),
    nearfar.KernelStiefelSPDMetric(2, n_pairs="all"),
]


@pytest.mark.parametrize("learner", WARM, ids=lambda learner: type(learner).__name__)
@pytest.mark.filterwarnings("ignore")
def test_a_warm_start_is_carried_to_other_landmarks_and_kernels(learner):
    A, a = data(150, 6)
    told = {"landmarks": 60, "gamma": 0.02, "max_iter": 300}
    cold = clone(learner).set_params(random_state=1, **told).fit(A, a)
    warm = clone(learner).set_params(random_state=0, warm_start=True, **told).fit(A[:140], a[:140])
    warm.set_params(random_state=1).fit(A, a)
    way = abs(cold.history_[-1] - cold.history_[0])
    assert abs(warm.history_[0] - warm.history_[-1]) < 0.1 * way
    assert abs(warm.objective_ - cold.objective_) < 0.1 * way
    assert not hasattr(warm, "_last")
    # kernel values that are given belong to rows that nobody knows: no start leads to them or back
    G = kernels.gram(A, A, "rbf", 0.02)
    warm.set_params(kernel="precomputed", landmarks=None).fit(G, a)
    before, steps = warm.objective_, warm.n_iter_
    assert warm.fit(G, a).n_iter_ <= steps
    assert_allclose(warm.objective_, before, rtol=1e-2)
    assert warm.set_params(kernel="rbf").fit(A, a).components_.shape[0] == 2
