"""Logistic losses of pairs: the kernels over lists and over labels, LDML, PCCA and its kernel form."""

import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar import LDML, NCA, PCCA, Kernelized, KernelPCCA
from nearfar.numerics.constraints import LabelPairs, Pairs
from nearfar.numerics.pair_differences import PairList
from nearfar.probabilistic import neighbor_softmax
from nearfar.probabilistic.risk import logistic, solvers
from tests.finite_differences import derivative_along
from tests.learners import all_pairs, data, distances, fit, toy
from tests.references import ldml as ldml_loops
from tests.references import nca as nca_loops
from tests.references import pcca as pcca_loops


def problem(n=30, classes=3):
    """Centered rows, labels (some wrong: pairs cannot be told apart), a random map, and every pair with its sign."""
    X, y = data(n, 4, classes)
    y = np.where(np.arange(n) % 5 == 0, (y + 1) % classes, y)
    L = 0.3 * np.random.default_rng(1).normal(size=(3, 4))
    return X - X.mean(axis=0), y, L, ldml_loops.terms(X, y)


def listed(X, y, pair_weight="none"):
    """The same pairs as labels imply, one by one."""
    j, i = np.tril_indices(len(X), -1)
    return solvers.risk(X, Pairs(i, j, y[i] == y[j]), pair_weight)


@pytest.mark.parametrize("by_label", [True, False])
def test_ldml_loss_equals_loops(by_label):
    X, y, L, pairs = problem()
    R = solvers.risk(X, LabelPairs(y)) if by_label else listed(X, y)
    loss = R(L, 0.7, by_metric=True)
    assert_allclose(loss.value, ldml_loops.objective(L.T @ L, 0.7, X, pairs), rtol=1e-10)
    G, slope = ldml_loops.gradient(L.T @ L, 0.7, X, pairs)
    assert_allclose(R.X.T @ loss.pull, G, rtol=1e-9, atol=1e-12)
    assert_allclose(loss.slope, slope, rtol=1e-9)


@pytest.mark.parametrize("by_label", [True, False])
def test_pcca_loss_equals_loops(by_label):
    X, y, L, pairs = problem()
    R = solvers.risk(X, LabelPairs(y)) if by_label else listed(X, y)
    value, G, _ = solvers.gradient(R, L, 1.0, 3.0, 0.0)
    assert_allclose(value, pcca_loops.objective(L, X, pairs), rtol=1e-10)
    assert_allclose(G, pcca_loops.gradient(L, X, pairs), rtol=1e-9, atol=1e-12)


def test_both_kinds_of_pairs_weigh_a_half_where_both_are_there():
    assert solvers.kind_weights(0.2, 0.6, "balanced") == (0.5 / 0.2, 0.5 / 0.6)
    for kinds in ((0.8, 0.0), (0.0, 0.8)):
        assert solvers.kind_weights(*kinds, "balanced") == (1.25, 1.25)
    assert solvers.kind_weights(0.2, 0.6, "none") == (1.25, 1.25)


@pytest.mark.parametrize("k", [2, 4])
def test_first_directions_have_a_mean_squared_distance_of_one(k):
    X = data()[0]
    X[:, 3] = X[:, 0] - X[:, 1]  # rank 3
    Z = X @ solvers.whitened_directions(X, k).T
    assert_allclose(((Z[:, None] - Z) ** 2).sum(-1).mean(), 1)
    r = min(k, 3)
    assert_allclose(np.cov(Z.T, bias=True), np.diag([1 / (2 * r)] * r + [0] * (k - r)), atol=1e-9)
    C = np.cov((X @ solvers.whitening(X).T).T, bias=True)
    assert_allclose(np.linalg.eigvalsh(C), [0, 1, 1, 1], atol=1e-9)


@pytest.mark.parametrize("by_label", [True, False])
@pytest.mark.parametrize("pair_weight", ["none", "balanced"])
@pytest.mark.parametrize("reg", [0.0, 0.5])
def test_gradient_equals_differences(by_label, pair_weight, reg):
    X, y, L, _ = problem()
    R = solvers.risk(X, LabelPairs(y), pair_weight) if by_label else listed(X, y, pair_weight)
    direction = np.random.default_rng(2).normal(size=L.shape)
    expected = derivative_along(lambda t: solvers.gradient(R, L + t * direction, 0.7 + t, 2.0, reg)[0], 0.0, 1.0)
    _, G, slope = solvers.gradient(R, L, 0.7, 2.0, reg)
    assert_allclose(np.vdot(G, direction) + slope, expected, rtol=1e-6)


@pytest.mark.parametrize("height", [1, 3, 8])
def test_blocks_do_not_matter_and_sum_to_all(height):
    X, y, L, _ = problem(40)
    y = np.unique(np.where(y == 2, np.arange(40) // 4 + 4, y), return_inverse=True)[1]
    R = solvers.risk(X, LabelPairs(y))
    Z = R.X @ L.T
    whole = R.pairs.loss(Z, Z, 0.7)
    blocks = list(neighbor_softmax.cut(R.pairs.rows.sizes, height))
    cut = R.pairs.loss(Z, Z, 0.7, blocks=blocks)
    parts = [R.pairs.loss(Z, Z, 0.7, blocks=blocks[k::3]) for k in range(3)]
    for value, pull in (
        (cut.value, cut.pull),
        (sum(part.value for part in parts), sum(part.pull for part in parts)),
    ):
        assert_allclose(value, whole.value, rtol=1e-12)
        assert_allclose(pull, whole.pull, rtol=1e-10, atol=1e-14)


def test_listed_batches_sum_to_all():
    X, y, L, _ = problem()
    R = listed(X, y)
    epoch, loss_of = solvers.batched(R, 50, np.random.default_rng(0))
    parts = [loss_of(L, 1.0, 3.0, batch) for batch in epoch()]
    assert len(parts) == 9
    assert_allclose(sum(loss.value for loss, _ in parts), R(L, 1.0, 3.0).value, rtol=1e-12)
    assert_allclose(sum(loss.pull for loss, _ in parts), R(L, 1.0, 3.0).pull, rtol=1e-9, atol=1e-14)
    assert_allclose(sum(share for _, share in parts), 1.0)


def test_far_rows_stay_finite():
    X, y, L, _ = problem()
    for scale in (0.0, 1e3, 1e6):
        for R in (solvers.risk(X, LabelPairs(y)), listed(X, y)):
            value, G, slope = solvers.gradient(R, scale * L, 1.0, 3.0, 0.0)
            assert np.isfinite([value, slope]).all()
            assert np.isfinite(G).all()
    near = np.logaddexp(0, 3.0 * np.array([-1e6, -3.0, 0.0, 2.0, 1e6]))
    assert_allclose(logistic.softplus(3.0 * np.array([-1e6, -3.0, 0.0, 2.0, 1e6]))[0], near, rtol=1e-15)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("values", [1, 200, 1 << 16])
def test_labels_and_lists_agree_at_all_distances(values, scale, monkeypatch):
    monkeypatch.setattr(logistic, "LOGISTIC_BLOCK_PAIRS", values)
    X, y, L, _ = problem(90, 2)
    found, told = (R(scale * L, 1.0, 3.0, by_metric=True) for R in (solvers.risk(X, LabelPairs(y)), listed(X, y)))
    assert_allclose([found.value, found.slope], [told.value, told.slope], rtol=1e-12)
    order = neighbor_softmax.sorted_rows(X, y).order
    assert_allclose(found.pull, told.pull[order], rtol=1e-10, atol=1e-13)


def test_memory_stays_in_blocks():
    X, y = data(4000, 8, 10)
    R = solvers.risk(X, LabelPairs(y))
    tracemalloc.start()
    R(np.eye(8), 1.0, by_metric=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * 256 * 4000


def test_weighted_differences_equal_loops():
    rng = np.random.default_rng(0)
    X, i, j, w = rng.normal(size=(12, 3)), rng.integers(12, size=40), rng.integers(12, size=40), rng.normal(size=40)
    graph = PairList(i, j, 12)
    assert_allclose(
        graph.squared_distances(X), [np.sum((X[a] - X[b]) ** 2) for a, b in zip(graph.i, graph.j, strict=True)]
    )
    S = sum(v * np.outer(X[a] - X[b], X[a] - X[b]) for a, b, v in zip(i, j, w, strict=True))
    assert_allclose(X.T @ graph.laplacian_times(w[graph.order], X), S, rtol=1e-10, atol=1e-12)


def test_a_similar_pair_beyond_the_threshold_is_pulled():
    X = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 0.5]])
    R = solvers.risk(X, Pairs(np.array([0, 0]), np.array([1, 2]), np.array([True, False])))
    G = solvers.gradient(R, np.eye(2), 1.0, 3.0, 0.0)[1]
    assert G[0, 0] > 0
    assert G[1, 1] < 0


def test_ldml_likelihood():
    X, y, *_ = problem()
    pairs, labels = all_pairs(y)
    learner = fit(LDML(), X, pairs=pairs, pair_labels=labels)
    p = learner.pair_probability(pairs, X)
    likelihood = np.where(labels == 1, np.log(p), np.log(1 - p))
    assert_allclose(-likelihood.mean(), learner.objective_, rtol=1e-6)
    assert_array_equal(learner.predict(pairs, X), np.where(p >= 0.5, 1, -1))
    assert_allclose(learner.threshold_**2, learner.b_)


@pytest.mark.parametrize("settings", [{"reg": 0.0}, {"reg": 0.01}])
def test_ldml_starts_agree_on_the_optimum(settings):
    X, y, *_ = problem()
    R, A = solvers.risk(X, LabelPairs(y)), solvers.whitening(X)
    rng = np.random.default_rng(0)
    starts = [None, np.eye(4), rng.normal(size=(4, 4)), 0.1 * rng.normal(size=(4, 4))]
    found = [
        solvers.minimize_convex(R, A, L0, b, learn_b=True, tol=1e-9, max_iter=2000, **settings)
        for L0, b in zip(starts, (1.0, 5.0, -1.0, 0.0), strict=True)
    ]
    assert_allclose([one.objective for one in found], found[0].objective, rtol=1e-9)
    M = found[0].x.T @ found[0].x
    for one in found:
        assert (one.attributes["kkt"] <= 1e-5).all()
        assert_allclose(one.x.T @ one.x, M, atol=1e-4 * np.abs(M).max())
        assert_allclose(one.attributes["b"], found[0].attributes["b"], rtol=1e-4)


def test_ldml_tells_how_well_all_its_conditions_hold():
    X, y, *_ = problem()
    for tol in (1e-2, 1e-4, 1e-6):
        learner = fit(LDML(reg=0.01, tol=tol, max_iter=1000), X, y)
        assert learner.converged_
        M = learner.get_mahalanobis_matrix()
        assert learner.kkt_ @ [np.trace(M), 1.0, abs(learner.b_)] <= 1.001 * tol


def test_ldml_has_a_kernel_form():
    X, y, *_ = problem()
    pairs, labels = all_pairs(y)
    linear = fit(LDML(reg=0.01, tol=1e-8), X, pairs=pairs, pair_labels=labels)
    kernel = fit(Kernelized(LDML(reg=0.01, tol=1e-8), "linear"), X, pairs=pairs, pair_labels=labels)
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-9)
    assert_allclose(distances(kernel, X), distances(linear, X), rtol=1e-4, atol=1e-5)
    assert_allclose([kernel.threshold_, kernel.learner_.b_], [linear.threshold_, linear.b_], rtol=1e-5)


def test_ldml_settings_matter_as_told():
    X, y, *_ = problem()
    plain = fit(LDML(), X, y)
    assert abs(fit(LDML(pair_weight="balanced"), X, y).b_ - plain.b_) > 1e-3
    assert fit(LDML(fit_bias=False), X, y).b_ == 1.0
    traces = [np.trace(fit(LDML(reg=reg), X, y).get_mahalanobis_matrix()) for reg in (0.0, 0.01, 0.1)]
    assert traces[0] > traces[1] > traces[2]


def test_ldml_of_few_components_is_better_than_cutting():
    X, y, *_ = problem(60)
    full, few = fit(LDML(), X, y), fit(LDML(1), X, y)
    assert few.components_.shape == (1, 4)
    R = solvers.risk(X, LabelPairs(y))
    assert full.objective_ < few.objective_ <= R(full.components_[:1], full.b_).value


@pytest.mark.filterwarnings("ignore:LDML. L-BFGS stopped after 5")
def test_pairs_of_one_kind_are_told():
    X, *_ = problem()
    for label in (1, -1):
        with pytest.warns(UserWarning, match="b is undetermined; it stays 1"):
            assert LDML(max_iter=5).fit(X, pairs=[[0, 1], [2, 3]], pair_labels=[label, label]).b_ == 1.0


def test_pair_weights_count_pairs():
    X, y, *_ = problem()
    pairs, labels = all_pairs(y)
    weights = np.where(np.arange(len(pairs)) < 100, 1.0, 0.0)
    for learner in (LDML(reg=0.01, tol=1e-8), PCCA(2)):
        part = fit(learner, X, pairs=pairs[:100], pair_labels=labels[:100])
        d = distances(part, X)
        whole = fit(learner, X, pairs=pairs, pair_labels=labels, pair_weights=weights)
        assert_allclose(distances(whole, X), d, rtol=1e-3)


@pytest.mark.parametrize("learner", [LDML, PCCA])
def test_batches_agree_with_all_pairs(learner):
    X, y = toy(120)
    X = X / X.std(axis=0)
    whole = fit(learner(2), X, y)
    parts = fit(learner(2, batch_size=30, max_iter=100, random_state=0), X, y)
    assert whole.objective_ <= parts.objective_ <= 1.05 * whole.objective_
    pairs, labels = all_pairs(y)
    drawn = fit(learner(2, batch_size=1000, max_iter=60, random_state=0), X, pairs=pairs, pair_labels=labels)
    assert drawn.objective_ <= 1.05 * whole.objective_


@pytest.mark.parametrize("learner", [LDML, PCCA])
def test_partial_fit_goes_down(learner):
    X, y = toy(120)
    X = X / X.std(axis=0)
    rng, stream = np.random.default_rng(0), learner(2)
    values = []
    for _ in range(60):
        rows = rng.permutation(120)[:60]
        values.append(stream.partial_fit(X[rows], y[rows]).objective_)
    assert np.mean(values[-10:]) < 0.9 * np.mean(values[:10])
    with pytest.raises(ValueError, match=f"^{learner.__name__}: .*features"):
        stream.partial_fit(X[:, :3], y)


def value_of(told, X, y):
    """What the learner's components are worth, by loops."""
    L, pairs = told.components_, ldml_loops.terms(X, y)
    if isinstance(told, NCA):
        return nca_loops.objective(L, X, y)
    return (
        pcca_loops.objective(L, X, pairs)
        if isinstance(told, PCCA)
        else ldml_loops.objective(L.T @ L, told.b_, X, pairs)
    )


@pytest.mark.parametrize("learner", [LDML, PCCA, NCA])
def test_a_stream_tells_the_value_before_each_step(learner):
    X, y, *_ = problem()
    stream = learner(2).partial_fit(X, y)
    for _ in range(3):
        value = value_of(stream, X, y)
        assert_allclose(stream.partial_fit(X, y).objective_, value, rtol=1e-9)


@pytest.mark.parametrize("learner", [LDML, PCCA, NCA])
def test_a_stream_goes_on_from_its_file(learner, tmp_path):
    X, y, *_ = problem()
    stream = learner(2).partial_fit(X, y).partial_fit(X, y)
    stream.save(tmp_path / "stream.safetensors")
    again = learner.load(tmp_path / "stream.safetensors").partial_fit(X, y)
    assert_array_equal(again.components_, stream.partial_fit(X, y).components_)
    assert again.n_iter_ == 3
    again.fit(X, y)
    assert not hasattr(again, "stream_")  # its steps led elsewhere
    assert again.partial_fit(X, y).n_iter_ == 1


@pytest.mark.parametrize("learner", [LDML, PCCA, NCA])
def test_a_stream_does_not_know_where_its_rows_lie(learner):
    X, y, *_ = problem()
    near, far = (learner(2).partial_fit(R, y).partial_fit(R, y).components_ for R in (X, X + 1e6))
    assert_allclose(far, near, rtol=1e-6)


@pytest.mark.parametrize("learner", [LDML, PCCA, NCA])
def test_a_step_of_a_stream_has_not_converged_and_does_not_warn(learner):
    X, y = toy(120)
    stream = fit(learner(2, max_iter=1000, tol=1e-3), X, y)
    assert stream.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.partial_fit(X, y)
    assert not stream.converged_


@pytest.mark.parametrize("learner", [LDML, PCCA, NCA])
def test_a_stream_is_checked_like_a_fit(learner):
    X, y = data()
    for settings, word in (
        ({"n_components": 9}, "n_components"),
        ({"reg": -1.0}, "reg"),
        ({"objective" if learner is NCA else "pair_weight": "class"}, "objective" if learner is NCA else "pair_weight"),
    ):
        with pytest.raises(ValueError, match=f"^{learner.__name__}: {word}"):
            learner(**settings).partial_fit(X, y)
    with pytest.raises(ValueError, match=f"^{learner.__name__}: requires y"):
        learner().partial_fit(X, None)
    names = np.array(["owl", "cat", "ape"], dtype=object)[y]
    names[:9] = -1
    told = learner().partial_fit(X, names, unlabeled=-1).components_
    assert_allclose(told, learner().partial_fit(X[9:], y[9:]).components_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("learner", [LDML, PCCA, NCA])
def test_a_stream_goes_on_from_a_fit_and_forgets_what_is_no_longer_so(learner):
    X, y, *_ = problem()
    stream = learner(2).partial_fit(X, y)
    fit(stream.set_params(n_components=3), X, y)
    assert hasattr(stream, "history_")
    before = stream.components_
    assert stream.partial_fit(X, y).components_.shape == (3, 4)
    assert_allclose(stream.components_, before, atol=0.1 * np.abs(before).max())
    assert not hasattr(stream, "history_")
    if learner is not NCA:
        pairs, labels = all_pairs(y)
        fit(stream, X, pairs=pairs, pair_labels=labels)
        assert not hasattr(stream.partial_fit(X, y), "threshold_")


def test_pcca_loss_tends_to_the_hinge():
    X, y, L, pairs = problem()
    hinge = np.mean([max(0.0, s * (np.sum((L @ (X[i] - X[j])) ** 2) - 1)) for i, j, s in pairs])
    R = solvers.risk(X, LabelPairs(y))
    errors = [abs(R(L, 1.0, beta).value - hinge) for beta in (1.0, 10.0, 1000.0)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-3


@pytest.mark.parametrize("init", ["pca", "identity", "random"])
def test_pcca_starts(init):
    X, y, *_ = problem()
    learner = fit(PCCA(2, init=init, max_iter=20, random_state=0), X, y)
    assert (np.diff(learner.history_) <= 1e-12).all()
    again = fit(PCCA(2, init=learner.components_, max_iter=1), X, y)
    assert again.objective_ < 1.5 * learner.history_[0]


def test_warm_starts_go_on():
    X, y, *_ = problem()
    for learner in (
        LDML(max_iter=5, warm_start=True),
        LDML(2, max_iter=5, warm_start=True),
        PCCA(2, max_iter=5, warm_start=True),
    ):
        first = fit(learner, X, y).objective_
        assert fit(learner, X, y).objective_ < first


def test_linear_kernel_is_the_linear_method():
    X, y, *_ = problem()
    kernel = fit(KernelPCCA(2, kernel="linear", reg=0.0, normalize_kernel=False, landmarks=None), X, y)
    linear = fit(PCCA(2), X, y)
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-6)
    T = kernel.X_fit_.T @ kernel.dual_coef_
    R = solvers.risk(X, LabelPairs(y))
    assert_allclose(R(T.T, 1.0, 3.0).value, kernel.objective_, rtol=1e-8)


@pytest.mark.parametrize("normalize", [True, False])
def test_kernel_pcca_reaches_its_objective_with_its_coefficients(normalize):
    X, y, _, pairs = problem()
    learner = fit(KernelPCCA(2, kernel="polynomial", normalize_kernel=normalize, landmarks=None, max_iter=50), X, y)
    K = (learner.X_fit_ @ learner.X_fit_.T * learner.gamma_ + 1) ** 3
    unit = np.trace(K) / len(K) if normalize else 1.0
    T = learner.dual_coef_
    losses = [
        np.logaddexp(0, 3 * s * (np.sum((learner.transform(X[[i]]) - learner.transform(X[[j]])) ** 2) - 1)) / 3
        for i, j, s in pairs
    ]
    assert_allclose(learner.objective_, np.mean(losses) + 1e-3 * unit * np.trace(T.T @ K @ T), rtol=1e-8)


@pytest.mark.parametrize("learner", [PCCA, KernelPCCA])
def test_pcca_cuts_at_distance_1(learner):
    X, y, *_ = problem()
    pairs, labels = all_pairs(y)
    found = fit(learner(2, max_iter=5), X, pairs=pairs, pair_labels=labels)
    assert_array_equal(found.predict(pairs, X), np.where(found.pair_distance(pairs, X) <= 1, 1, -1))


def test_plain_steps_on_the_kernel_map_are_preconditioned_steps():
    X, y, *_ = problem(20)
    K = np.exp(-0.1 * np.sum((X[:, None] - X) ** 2, axis=2))
    w, V = np.linalg.eigh(K)
    Z, basis = V * np.sqrt(w), V / np.sqrt(w)
    L = 0.3 * np.random.default_rng(0).normal(size=(2, 20))
    R = listed(Z, y)
    stepped = (L - 0.1 * solvers.gradient(R, L, 1.0, 3.0, 0.0)[1]) @ basis.T
    A, J = L @ basis.T, np.zeros((20, 20))
    pairs = ldml_loops.terms(X, y)
    for i, j, s in pairs:
        d = np.sum((A @ (K[i] - K[j])) ** 2)
        e = np.eye(20)[i] - np.eye(20)[j]
        J += s / (1 + np.exp(-3 * s * (d - 1))) / len(pairs) * np.outer(e, e)
    assert_allclose(stepped, A - 2 * 0.1 * A @ K @ J, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("learner", "settings", "word"),
    [
        (LDML, {"reg": -1.0}, "reg"),
        (LDML, {"pair_weight": "class"}, "pair_weight"),
        (LDML, {"max_iter": 0}, "max_iter"),
        (LDML, {"batch_size": -1}, "batch_size"),
        (PCCA, {"beta": 0.0}, "beta"),
        (PCCA, {"init": "zero"}, "init"),
        (PCCA, {"pair_weight": 2}, "pair_weight"),
        (KernelPCCA, {"beta": -3.0}, "beta"),
        (KernelPCCA, {"reg": np.nan}, "reg"),
    ],
)
def test_bad_settings(learner, settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^{learner.__name__}: {word}"):
        learner(**settings).fit(X, y)


@pytest.mark.parametrize(
    "learner", [LDML(reg=0.02, tol=1e-10, max_iter=3000), PCCA(reg=0.02, tol=1e-10, max_iter=3000)]
)
def test_more_features_than_rows_are_solved_in_their_span(learner):
    X, y = data(24, 4)
    wide = np.concatenate([X, np.random.default_rng(0).normal(size=(24, 40))], axis=1)
    V = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)[2][:23]
    fit(learner, wide, y)
    found, objective = distances(learner, wide), learner.objective_
    assert learner.components_.shape == (23, 44)
    fit(learner, wide @ V.T, y)
    assert_allclose(objective, learner.objective_, rtol=1e-6)
    assert_allclose(found, distances(learner, wide @ V.T), rtol=1e-2)
