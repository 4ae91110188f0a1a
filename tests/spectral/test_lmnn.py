"""Large margins: targets and impostors by loops, gradient, certificate, mining, strata, the semi-definite program."""

import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from nearfar import LMNN
from nearfar.numerics import scatter
from nearfar.numerics.optimize import Solution
from nearfar.spectral.margin import impostors
from nearfar.spectral.margin.lmnn import active_set, mining, objective, stratified
from nearfar.spectral.margin.lmnn.objective import Hinge
from nearfar.spectral.margin.scml.triplets import nearest_triplets
from tests import conic
from tests.learners import accuracy, data, distances, fit, toy
from tests.references import lmnn as loops


def rows(n=40, d=3, classes=3, seed=0):
    X, y = data(n, d, classes, seed)
    order = np.argsort(y, kind="stable")
    return X[order] - X.mean(axis=0), y[order]


def problem(squared=False, mu=0.4, k=2, **settings):
    X, y = rows()
    rule = objective.PullsAndPushes(k, mu, squared, **settings)
    return X, y, rule.pose(X, y, None, np.eye(3))


def test_targets_equal_loops():
    X, y = rows(60)
    assert_array_equal(impostors.target_neighbors(X, y, 3), loops.targets(X, y, 3))


def test_targets_of_many_small_and_of_large_classes():
    rng = np.random.default_rng(0)
    y = np.sort(np.r_[np.repeat(np.arange(150), 4), np.full(700, 150)])
    X = rng.normal(size=(len(y), 2))
    found = impostors.target_neighbors(X, y, 2)
    assert (y[found] == y[:, None]).all()
    D = np.linalg.norm(X[:, None] - X, axis=2)
    D[(y[:, None] != y) | np.eye(len(y), dtype=bool)] = np.inf
    assert_allclose(np.take_along_axis(D, found, 1), np.sort(D, axis=1)[:, :2])


def test_impostors_of_some_rows_are_those_among_all_rows():
    X, y = rows(150, 4, 4)
    radius = np.full(150, 3.0)
    everything = impostors.find(X, y, radius)
    asked = np.array([0, 7, 8, 60, 149])
    some = impostors.find(X, y, np.where(np.isin(np.arange(150), asked), radius, 0.0))
    kept = np.isin(everything.i, asked)
    assert_array_equal(some.i, everything.i[kept])
    assert_array_equal(some.l, everything.l[kept])
    near = impostors.target_neighbors(X, y, 3, asked)
    assert_array_equal(near[asked], impostors.target_neighbors(X, y, 3)[asked])
    rest = np.setdiff1d(np.arange(150), asked)
    assert_array_equal(near[rest], np.repeat(rest[:, None], 3, axis=1))


@pytest.mark.parametrize("squared", [False, True])
def test_a_sample_of_anchors_sums_their_triplets_only(monkeypatch, squared):
    monkeypatch.setattr(objective, "MAX_ANCHORS", 15)
    X, y = rows()
    posed = objective.PullsAndPushes(2, 0.4, squared, seed=0).pose(X, y, None, np.eye(3))
    L = np.random.default_rng(1).normal(size=(3, 3))
    anchors = np.flatnonzero((posed.j != posed.i).reshape(-1, 2).any(axis=1))
    assert len(anchors) == 15
    Z = X @ L.T
    value = 0.0
    for i in anchors:
        for j in loops.targets(X, y, 2)[i]:
            pull = np.sum((Z[i] - Z[j]) ** 2)
            value += 0.6 * pull
            for l in np.flatnonzero(y != y[i]):
                hinge = max(0.0, 1 + pull - np.sum((Z[i] - Z[l]) ** 2))
                value += 0.4 * (hinge**2 if squared else hinge)
    edges = posed.scan(L)
    hinge = Hinge(squared)
    assert posed.value(L, edges, hinge) == pytest.approx(value, rel=1e-9)
    assert posed.certify(L, edges, hinge).value == pytest.approx(value, rel=1e-9)
    f, gradient, _ = posed(L, edges, hinge)
    step = 1e-6 * np.random.default_rng(2).normal(size=L.shape)
    rise = posed.value(L + step, edges, hinge) - posed.value(L - step, edges, hinge)
    assert f == pytest.approx(value, rel=1e-9)
    assert rise == pytest.approx(2 * np.vdot(gradient, step), rel=1e-3)


def test_drawn_rows_push_for_all(monkeypatch):
    X, y = rows(120, 3, 3)
    monkeypatch.setattr(objective, "MAX_ANCHORS", 20)
    whole = objective.PullsAndPushes(2, 0.4, seed=0).pose(X, y, None, np.eye(3))
    monkeypatch.setattr(objective, "MAX_PUSHERS", 30)
    posed = objective.PullsAndPushes(2, 0.4, seed=0).pose(X, y, None, np.eye(3))
    assert len(posed.X) < 120
    L = np.random.default_rng(1).normal(size=(3, 3))
    Z = posed.X @ L.T
    value = 0.0
    for i, j in zip(posed.i, posed.j, strict=True):
        if i == j:
            continue
        pull = np.sum((Z[i] - Z[j]) ** 2)
        value += 0.6 * pull
        for l in posed.pushers:
            if posed.labels[l] != posed.labels[i]:
                value += 0.4 * (120 / 30) * max(0.0, 1 + pull - np.sum((Z[i] - Z[l]) ** 2))
    assert posed.unit * posed.value(L, posed.scan(L), Hinge()) == pytest.approx(value, rel=1e-9)
    assert len(posed.pushers) == 30
    assert_allclose(posed.C, whole.C)  # the same pulls
    monkeypatch.setattr(objective, "MAX_PUSHERS", 119)
    nearly = objective.PullsAndPushes(2, 0.4, seed=0).pose(X, y, None, np.eye(3))
    value = whole.value(L, whole.scan(L), Hinge())
    assert nearly.unit * nearly.value(L, nearly.scan(L), Hinge()) == pytest.approx(value, rel=0.05)


def test_very_many_rows_are_learned_from_a_sample_of_pushers(monkeypatch):
    X, y = rows(900, 4, 4)
    everything = LMNN(random_state=0).fit(X, y)
    whole = objective.PullsAndPushes(3, 0.5).pose(X, y, None, np.eye(4))
    monkeypatch.setattr(objective, "MAX_ANCHORS", 450)
    monkeypatch.setattr(objective, "MAX_PUSHERS", 450)
    with pytest.warns(UserWarning, match=r"among 450 drawn rows: a recall of 25% of the impostors"):
        sample = LMNN(random_state=0).fit(X, y)
    assert sample.objective_ == pytest.approx(everything.objective_, rel=0.25)
    assert sample.duality_gap_ <= 0.01 * sample.objective_
    L = sample.components_
    assert whole.value(L, whole.scan(L), Hinge()) <= 1.1 * everything.objective_


def test_many_rows_are_learned_from_a_sample_of_anchors(monkeypatch):
    X, y = rows(600, 4, 4)
    everything = LMNN(random_state=0).fit(X, y)
    monkeypatch.setattr(objective, "MAX_ANCHORS", 300)
    with pytest.warns(UserWarning, match=r"600 rows: 300 of them.*recall of 50% of the impostors"):
        sample = LMNN(random_state=0).fit(X, y)
    assert sample.objective_ == pytest.approx(everything.objective_, rel=0.15)
    assert sample.duality_gap_ <= 0.01 * sample.objective_
    with pytest.warns(UserWarning, match="recall"):
        again = LMNN(random_state=0).fit(X, y)
    assert_array_equal(again.components_, sample.components_)
    shape = [learner.get_mahalanobis_matrix() for learner in (everything, sample)]
    assert_allclose(shape[0], shape[1], atol=0.3 * np.abs(shape[0]).max())


@pytest.mark.filterwarnings("ignore:LMNN. the search stopped after .* duality gap inf")
def test_the_search_ends_soon_where_impostors_are_left_out(monkeypatch):
    """Without a bound no gap can close: it went on to the last of its steps."""
    X, y = rows(300, 4, 4)
    find = impostors.find
    monkeypatch.setattr(impostors, "find", lambda *args, **kwargs: find(*args, **kwargs, most=600))
    with pytest.warns(UserWarning, match="nearest"):
        learner = LMNN().fit(0.01 * X, y)
    assert learner.n_iter_ < 300


def test_blocks_of_many_impostors_are_not_cut_if_the_rows_have_few_on_average(monkeypatch):
    monkeypatch.setattr(impostors, "IMPOSTOR_BLOCK_CELLS", 10 * 150)
    X, y = rows(150, 4, 4)
    radius = np.full(150, 1e-9)
    radius[:10] = np.inf  # the first block: all rows of other classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = impostors.find(X, y, radius, most=8000)
    assert found.complete


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_no_impostor_is_missed(scale):
    X, y = rows(150, 4, 4)
    Z = scale * X + 100.0
    D = np.sum((Z[:, None] - Z) ** 2, axis=2)
    radius = np.quantile(D, 0.3, axis=1)
    i, l = np.nonzero((radius[:, None] > D) & (y[:, None] != y))
    found = impostors.find(Z, y, radius)
    assert found.complete
    assert (y[found.i] != y[found.l]).all()
    assert set(zip(i.tolist(), l.tolist(), strict=True)) <= set(zip(found.i.tolist(), found.l.tolist(), strict=True))
    assert len(found.i) <= len(i) + 5


def test_too_many_impostors_are_cut_with_a_warning():
    X, y = rows(60)
    with pytest.warns(UserWarning, match="nearest"):
        found = impostors.find(X, y, np.full(60, np.inf), most=300)
    assert not found.complete
    assert 200 <= len(found.i) <= 60 * 7
    D = np.sum((X[:, None] - X) ** 2, axis=2)
    D[y[:, None] == y] = np.inf
    assert_allclose(D[found.i, found.l][found.i == 0].max(), np.sort(D[0])[(found.i == 0).sum() - 1], rtol=1e-5)


@pytest.mark.parametrize("squared", [False, True])
def test_value_equals_loops(squared):
    X, y, task = problem(squared)
    for scale in (0.1, 0.7, 3.0):
        L = scale * np.random.default_rng(1).normal(size=(3, 3))
        near = loops.targets(X, y, 2)
        expected = loops.objective(L.T @ L, X, y, mu=0.4, near=near, squared=squared)
        assert_allclose(task.value(L, task.scan(L), Hinge(squared)), expected, rtol=1e-10)


@pytest.mark.parametrize("hinge", [Hinge(), Hinge(True), Hinge(False, 0.5)])
@pytest.mark.parametrize("p", [2, 3])
def test_gradient_equals_differences(hinge, p):
    _, _, task = problem(hinge.squared)
    rng = np.random.default_rng(2)
    L, step = 0.4 * rng.normal(size=(p, 3)), 1e-6 * rng.normal(size=(p, 3))
    near = task.scan(L, 0.1)
    slope = np.vdot(task(L, near, hinge)[1], step)
    assert_allclose((task(L + step, near, hinge)[0] - task(L - step, near, hinge)[0]) / 2, slope, rtol=1e-6)
    G = task.in_metric(near.squares(task.X @ L.T), near, hinge)[1]
    assert_allclose(2 * L @ G, task(L, near, hinge)[1], rtol=1e-9, atol=1e-9)


def program(X, y, k, mu, squared):
    """The optimum over every triplet, by a generic solver."""
    near = loops.targets(X, y, k)
    triplets = [(i, j, l) for i in range(len(X)) for j in near[i] for l in range(len(X)) if y[l] != y[i]]
    C = sum(np.outer(X[i] - X[j], X[i] - X[j]) for i in range(len(X)) for j in near[i])
    A = np.stack(
        [conic.svec(np.outer(X[i] - X[l], X[i] - X[l]) - np.outer(X[i] - X[j], X[i] - X[j])) for i, j, l in triplets]
    )
    m, q = A.shape
    P = np.diag(np.r_[np.zeros(q), np.full(m, 2.0 * mu * squared)])
    cost = np.r_[(1 - mu) * conic.svec(C), np.full(m, 0.0 if squared else mu)]
    parts = [
        (-np.hstack([A, np.eye(m)]), -np.ones(m), "positive", m),
        (-np.hstack([np.zeros((m, q)), np.eye(m)]), np.zeros(m), "positive", m),
        (-np.hstack([np.eye(q), np.zeros((q, m))]), np.zeros(q), "psd", len(C)),
    ]
    x = conic.solve(P, cost, parts)
    return loops.objective(conic.smat(x[:q]), X, y, mu=mu, near=near, squared=squared)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_optimum_equals_a_generic_solver(loss):
    X, y = rows(24, 2, 2)
    best = program(X, y, 2, 0.6, loss == "squared_hinge")
    learner = LMNN(2, regularization=0.4, loss=loss, tol=1e-5).fit(X, y)
    assert_allclose(learner.objective_, best, rtol=2e-5)
    assert learner.objective_ - learner.duality_gap_ <= best * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_solvers_agree(loss):
    pytest.importorskip("clarabel")
    X, y = data(50, 3)
    settings = {"n_neighbors": 2, "loss": loss}
    exact = LMNN(solver="sdp", tol=1e-6, **settings).fit(X, y)
    assert exact.converged_
    assert exact.duality_gap_ <= 1e-6 * max(1, exact.objective_)
    for solver, tol in (("lbfgs", 1e-5), ("pgd", 1e-3)):
        learner = fit(LMNN(solver=solver, tol=tol, max_iter=3000, **settings), X, y)
        assert learner.converged_
        assert exact.objective_ * (1 - 1e-6) <= learner.objective_ <= exact.objective_ * (1 + tol)
        assert learner.objective_ - learner.duality_gap_ <= exact.objective_ * (1 + 1e-6)


def test_solvers_agree_on_listed_triplets():
    pytest.importorskip("clarabel")
    X, y = data(50, 3)
    triplets = nearest_triplets(X, y, 2, 3)
    exact, found = (LMNN(solver=s, tol=1e-6).fit(X, triplets=triplets) for s in ("sdp", "lbfgs"))
    assert exact.converged_
    assert_allclose(found.objective_, exact.objective_, rtol=1e-5)
    assert_allclose(distances(found, X), distances(exact, X), atol=1e-2 * distances(exact, X).max())


def test_the_same_program_is_not_solved_again_for_a_smaller_gap():
    pytest.importorskip("clarabel")
    X, y = data(50, 3)
    for settings in ({"tol": 1e-14}, {"regularization": 0.0}):  # no pull leaves no bound above 0
        learner = LMNN(2, solver="sdp", max_iter=30, **settings)
        with pytest.warns(ConvergenceWarning, match="cutting planes"):
            learner.fit(X, y)
        assert learner.n_iter_ < 10
        assert not learner.converged_


def test_program_refuses_what_is_too_large():
    X, y = data(60, 3)
    with pytest.raises(ValueError, match=r"^LMNN: .*features.*lbfgs"):
        LMNN(solver="sdp").fit(np.random.default_rng(0).normal(size=(80, 70)), np.arange(80) % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearfar.spectral.margin.lmnn.sdp.MAX_TRIPLETS", 20)
        with pytest.raises(ValueError, match=r"^LMNN: .*triplets.*lbfgs"):
            LMNN(solver="sdp").fit(X, y)


@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_weights_of_the_push(mu):
    X, y = data()
    learner = fit(LMNN(regularization=1 - mu, tol=1e-4), X, y)
    M = learner.get_mahalanobis_matrix()
    assert_allclose(loops.objective(M, X, y, mu=mu), learner.objective_, rtol=1e-8)
    assert learner.objective_ <= loops.objective(np.eye(4), X, y, mu=mu)


def test_pull_alone_is_refused():
    with pytest.raises(ValueError, match=r"^LMNN: regularization must be below 1"):
        LMNN(regularization=1.0).fit(*data())


@pytest.mark.parametrize(
    "settings", [{"loss": "cube"}, {"solver": "newton"}, {"mining": "all"}, {"pull": "push"}, {"tol": 0.0}]
)
def test_bad_settings_are_named(settings):
    with pytest.raises(ValueError, match=f"^LMNN: {next(iter(settings))} must be"):
        LMNN(**settings).fit(*data())


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("small", [1, 2])
def test_rows_of_small_classes_pull_those_that_there_are(small, squared):
    X, y = data(30)
    y = np.where(np.arange(30) < small, 3, y)
    with pytest.warns(UserWarning, match=rf"^LMNN: n_neighbors=3: class 3 has {small} rows?;"):
        learner = LMNN(loss="squared_hinge" if squared else "hinge", tol=1e-5, max_iter=2000).fit(X, y)
    M = learner.get_mahalanobis_matrix()
    f = loops.objective(M, X, y, squared=squared)
    assert_allclose(learner.objective_, f, rtol=1e-7)
    assert learner.duality_gap_ <= 1e-5 * f
    rng = np.random.default_rng(0)
    for k in range(8):
        A = rng.normal(size=(4, 1 + k % 4))
        N = M + 10.0 ** -(k // 2 + 1) * np.trace(M) * A @ A.T
        assert loops.objective(N, X, y, squared=squared) >= f - learner.duality_gap_


@pytest.mark.parametrize("strategy", mining.STRATEGIES)
def test_mined_triplets_of_small_classes(strategy):
    X, y = data(30)
    y = np.where(np.arange(30) < 2, 3, y)
    a, p, n = mining.mine(X, y, strategy, 5, seed=0).T
    assert (y[a] == y[p]).all()
    assert (a != p).all()
    assert (y[a] != y[n]).all()
    assert (np.bincount(a, minlength=30) > 0).all()


def test_the_warning_of_rare_classes_names_the_smallest():
    X, y = data()
    y = np.where(np.arange(len(y)) < 2, y.max() + 1, y)
    with pytest.warns(UserWarning, match=rf"^LMNN: n_neighbors=3: class {y.max()} has 2 rows; each row gets at most"):
        LMNN(max_iter=3, tol=1.0).fit(X, y)


@pytest.mark.parametrize("init", ["pca", "lda", "identity", "random"])
def test_fewer_components_lower_the_objective(init):
    X, y = toy(120)
    learner = fit(LMNN(n_components=2, init=init, random_state=0), X, y)
    assert learner.components_.shape == (2, 8)
    assert learner.converged_
    assert (np.diff(learner.history_) <= 0).all()
    whole = fit(LMNN(init=init, random_state=0, tol=1e-3), X, y)
    assert learner.objective_ >= whole.objective_ - whole.duality_gap_
    assert learner.duality_gap_ >= learner.objective_ - whole.objective_


def test_given_components_say_who_is_a_target():
    X, y = toy(120)
    L = np.eye(8)[:2]
    learner = fit(LMNN(n_components=2, init=L), X, y)
    near = loops.targets(X @ L.T, y)
    f = loops.objective(learner.get_mahalanobis_matrix(), X, y, near=near)
    assert_allclose(f, learner.objective_, rtol=1e-7)
    assert f <= loops.objective(L.T @ L, X, y, near=near)


def test_more_components_than_rows_are_zero():
    rng = np.random.default_rng(0)
    learner = fit(LMNN(2, n_components=15), rng.normal(size=(10, 20)), np.arange(10) % 2)
    assert learner.components_.shape == (15, 20)
    assert_allclose(learner.components_[9:], 0)


def test_warm_start_goes_on():
    X, y = toy(150)
    learner = fit(LMNN(warm_start=True, max_iter=15, tol=1e-4), X, y)
    first = learner.objective_
    for _ in range(6):
        fit(learner, X, y)
    assert learner.objective_ < first
    assert_allclose(learner.objective_, fit(LMNN(tol=1e-4), X, y).objective_, rtol=5e-3)


def test_warm_start_begins_where_the_last_fit_ended():
    X, y = toy(150)
    learner = fit(LMNN(warm_start=True), X, y)
    last = learner.objective_
    assert_allclose(fit(learner, X, y).history_[0], last, rtol=1e-9)


@pytest.mark.parametrize("squared", [False, True])
def test_a_start_gets_its_best_scale(squared):
    _, _, task = problem(squared)
    for scale in (1e-3, 1.0, 40.0):
        L = active_set.scaled(task, scale * np.eye(3))
        best, *others = (task.value(t * L, task.scan(t * L), Hinge(squared)) for t in (1, 0.97, 1.03))
        assert best <= min(others)


@pytest.mark.parametrize("squared", [False, True])
def test_value_of_a_rounded_hinge_follows_from_its_kinks(squared):
    _, _, task = problem(squared)
    L = active_set.scaled(task, np.random.default_rng(3).normal(size=(3, 3)))
    place = active_set.ActiveSetSearch(task, "lbfgs", None).place(L, Hinge(squared))
    for share in (1e-9, 1e-2, 0.2, 5.0):
        hinge, value = active_set.rounded(task, place, share)
        assert_allclose(value, task.value(L, place.edges, hinge), rtol=1e-12)


@pytest.mark.parametrize("hinge", [Hinge(True), Hinge(False, 0.5)])
@pytest.mark.parametrize("p", [2, 3])
def test_curvature_equals_second_differences(hinge, p):
    _, _, task = problem(hinge.squared)
    rng = np.random.default_rng(2)
    K = 0.4 * rng.normal(size=(p, 3))
    edges = task.scan(K, 0.1)
    H, (a, b, weight) = active_set.curvature(task, K, edges, hinge)
    D = rng.normal(size=(p, p))
    D += D.T
    d = D[a, b] * weight
    t = 1e-4
    f = [task.value(np.linalg.cholesky(np.eye(p) + s * D).T @ K, edges, hinge) for s in (-t, 0.0, t)]
    assert_allclose(d @ d, np.sum(D**2))
    assert_allclose(d @ H @ d, (f[0] - 2 * f[1] + f[2]) / t**2, rtol=1e-4)


def test_newton_steps_lower_the_value_to_where_no_gradient_is_left():
    _, _, task = problem()
    hinge, K = Hinge(False, 0.5), active_set.scaled(task, np.eye(3))
    edges, damping = task.scan(K, 5.0), active_set.Damping()
    values = [task.value(K, edges, hinge)]
    for _ in range(15):
        K, slopes = active_set.descend(task, K, edges, hinge, damping)
        values.append(task.value(K, edges, hinge))
        assert len(slopes) <= active_set.NEWTON_STEPS
    assert (np.diff(values) <= 0).all()
    assert np.abs(task(K, edges, hinge)[1]).max() < 1e-3 * np.abs(task.C).max()


def test_steps_of_newton_are_damped_until_the_value_falls():
    damping = active_set.Damping(1e-3)
    assert not damping.seen(1.0, -1.0)
    assert_allclose(damping.share, 1e-2)
    assert damping.seen(1.0, 0.2)
    assert_allclose(damping.share, 1e-2)
    assert damping.seen(1.0, 0.9)
    assert_allclose(damping.share, 2e-3)


def test_a_step_stays_positive_definite():
    entries = (*np.triu_indices(2), np.array([1.0, np.sqrt(2.0), 1.0]))
    D = active_set.step(np.eye(3), np.diag([50.0, 0.5]), entries, 0.0)
    assert_allclose(D, np.diag([-0.9, -0.5]), atol=1e-9)


def test_a_step_has_an_end_where_nothing_bends():
    entries = (*np.triu_indices(2), np.array([1.0, np.sqrt(2.0), 1.0]))
    D = active_set.step(np.diag([1.0, 1.0, 0.0]), np.diag([0.5, -1.0]), entries, 1e-20)
    assert np.linalg.eigvalsh(D).max() <= 1e3
    np.linalg.cholesky(np.eye(2) + D)


def test_damping_stays_within_numbers():
    damping = active_set.Damping(1e-3)
    for _ in range(50):
        damping.seen(1.0, 1.0)
    assert damping.share >= 1e-10
    for _ in range(400):
        damping.seen(1.0, -1.0)
        damping.failed()
    assert damping.share <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "tol"), [(2, 1e-4), (9, 1e-4), (21, 1e-3)])
def test_pushes_alone_are_solved(seed, tol):
    X, y = data(40 + 20 * (seed % 3), 3 + seed % 3, 3, seed)
    learner = fit(LMNN(regularization=0.0, tol=tol), X, y)
    assert learner.objective_ < loops.objective(np.eye(X.shape[1]), X, y, mu=1.0)


@pytest.mark.parametrize("squared", [False, True])
def test_means_of_slopes_bound_the_optimum(squared):
    X, y, task = problem(squared)
    low = LMNN(2, regularization=0.6, loss="squared_hinge" if squared else "hinge", tol=1e-5).fit(X, y).objective_
    rng, hinge, found = np.random.default_rng(4), Hinge(squared, 0.0 if squared else 0.3), []
    L = active_set.scaled(task, np.eye(3))
    edges = task.scan(L, 0.2)
    for _ in range(4):
        found.append(task(L + 0.02 * rng.normal(size=(3, 3)), edges, hinge)[2])
    single = [task.mean([one], edges) for one in found]
    mixed = single[0].mixed(single[1], 0.25)
    assert_allclose(mixed.S, 0.75 * single[0].S + 0.25 * single[1].S)
    assert_allclose(task.mean(found, edges).total, np.mean([one.total for one in found]))
    bounds = [task.bound(dual) for dual in (*single, mixed, task.mean(found, edges))]
    assert 0 < max(bounds) <= low * (1 + 1e-5)


def test_whitening_leaves_out_what_no_row_has():
    X, y = rows(60, 4)
    X = np.column_stack([X, X[:, 0] + X[:, 1], np.ones(60)])
    task = objective.PullsAndPushes().pose(X, y, None, np.eye(6))
    A, B = active_set.whitening(task)
    assert A.shape == B.shape == (6, 4)
    assert_allclose(A.T @ B, np.eye(4), atol=1e-9)
    C = A.T @ task.C @ A
    assert_allclose(C, np.eye(4) * C[0, 0], rtol=1e-4, atol=1e-4 * C[0, 0])


@pytest.mark.parametrize("unit", [1.0, 1e-8])
def test_dependent_features_get_no_length_of_rounding(unit):
    for seed in range(4):
        X, y = data(120, 2, 3, seed)
        X = np.column_stack([X, X[:, 0] + X[:, 1]]) * [1, 1, unit]
        L = fit(LMNN(), X, y).components_
        assert L.shape == (2, 3)
        assert np.abs(L @ [1, 1, -1 / unit]).max() <= 1e-6 * np.abs(L).max() / unit


def test_nearly_dependent_features_do_not_hold_the_search_up():
    X, y = toy(150)
    noise = 1e-5 * np.random.default_rng(0).normal(size=(150, 2))
    X = np.column_stack([X, X[:, :2] + X[:, 2:4] + noise])
    learner = fit(LMNN(), X, y)
    assert learner.converged_
    assert learner.n_iter_ <= 150


def test_rows_of_the_factor_that_no_longer_count_are_dropped():
    K = np.diag([2.0, 1.0, 1e-3]) @ np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    assert_allclose(active_set.without_small(K).T @ active_set.without_small(K), K.T @ K, atol=2e-6)
    assert len(active_set.without_small(K)) == 2
    assert active_set.without_small(np.zeros((2, 3))).shape == (1, 3)


@pytest.mark.slow
def test_second_pass_looks_neighbors_up_again():
    X, y = toy(150)
    once, twice = fit(LMNN(), X, y), fit(LMNN(outer_passes=2), X, y)
    near = loops.targets(once.transform(X), y)
    assert_allclose(loops.objective(twice.get_mahalanobis_matrix(), X, y, near=near), twice.objective_, rtol=1e-7)


def test_training_neighbors_do_not_get_worse():
    X, y = toy(200)
    Z = fit(LMNN(), X, y).transform(X)
    assert accuracy(Z[::2], y[::2], Z[1::2], y[1::2]) >= accuracy(X[::2], y[::2], X[1::2], y[1::2])


def test_progress_and_silence(capsys):
    X, y = data()
    fit(LMNN(verbose=True, max_iter=3), X, y)
    assert "LMNN: iteration 1, objective" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="duality gap"):
        LMNN(max_iter=2).fit(X, y)


@pytest.mark.parametrize("strategy", mining.STRATEGIES)
def test_mined_triplets_obey_labels(strategy):
    X, y = rows(60, 5)
    triplets = mining.mine(X, y, strategy, 3, seed=0)
    a, p, n = triplets.T
    assert (y[a] == y[p]).all()
    assert (y[a] != y[n]).all()
    assert (a != p).all()
    assert len(np.unique(triplets, axis=0)) == len(triplets)
    assert_array_equal(triplets, mining.mine(X, y, strategy, 3, seed=0))
    if strategy != "batch_semi_hard":
        assert len(triplets) == 60 * 9


@pytest.mark.parametrize("strategy", ["batch_hard", "extreme_hpen", "extreme_epen", "extreme_ephn", "batch_semi_hard"])
def test_mined_triplets_equal_loops(strategy):
    X, y = rows(30)
    expected = []
    for i in range(30):
        d = [float(np.sum((X[i] - x) ** 2)) for x in X]
        own = sorted((j for j in range(30) if j != i and y[j] == y[i]), key=lambda j: d[j])
        others = sorted((l for l in range(30) if y[l] != y[i]), key=lambda l: d[l])
        positives = own[-2:] if strategy in ("batch_hard", "extreme_hpen") else own[:2]
        for j in positives:
            if strategy == "batch_semi_hard":
                negatives = [l for l in others if d[l] >= d[j]][:2]
            else:
                negatives = others[-2:] if strategy in ("extreme_hpen", "extreme_epen") else others[:2]
            expected += [(i, j, l) for l in negatives]
    assert set(map(tuple, mining.mine(X, y, strategy, 2).tolist())) == set(expected)


def test_sampled_negatives_follow_the_weights():
    X, y = rows(60, 5)
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    D = np.sum((U[:, None] - U) ** 2, axis=2)
    with np.errstate(all="raise"):
        for d in (1, 2, 3, 5):
            assert np.isfinite(mining.log_weights(np.array([0.0, 4.0]), d)).all()
    w = mining.log_weights(D, 5)
    r = np.sqrt(D[0, 1:])
    assert_allclose(np.exp(w[0, 1:]), np.minimum(1.4, 1 / (r**3 * (1 - r**2 / 4))), rtol=1e-6)
    lengths = np.arange(1, 61)[:, None]
    same = [mining.mine(rows, y, "negative_sampling", 1, seed=0) for rows in (X, lengths * X)]
    assert_array_equal(*same)
    drawn = np.zeros(60)
    for seed in range(300):
        triplets = mining.mine(X, y, "negative_sampling", 1, seed=seed)
        drawn[triplets[0, 2]] += 1
    p = np.where(y != y[0], np.exp(w[0]), 0)
    p /= p.sum()
    assert np.abs(drawn / 300 - p).max() < 0.1
    assert drawn[y == y[0]].sum() == 0


@pytest.mark.parametrize("draw", [mining.rejection_draws, mining.gumbel_draws])
def test_draws_of_different_columns_have_the_law_of_one_after_the_other(draw):
    labels = np.array([1, 0, 2, 1, 0, 1, 2])
    D = np.array([0.0, 0.3, 1.2, 2.0, 2.5, 0.1, 3.9])
    weights = np.where(labels == 1, 0.0, np.exp(mining.log_weights(D, 3)))
    assert np.ptp(weights[labels != 1]) > 0.5
    own = np.ones(20_000, dtype=int)
    found = draw(np.tile(D, (20_000, 1)), own, labels, 3, 2, np.random.default_rng(0))
    assert found.shape == (20_000, 2, 2)
    p = weights / weights.sum()
    one_draw = np.outer(p, p / (1 - p)).T * (1 - np.eye(7))  # p_i p_j / (1 - p_i)
    two_draws = np.outer(p, p)
    for pair, law in ((found[:, 0], one_draw), (found[:, 1], one_draw), (found[:, :, 0], two_draws)):
        seen = np.zeros((7, 7))
        np.add.at(seen, tuple(pair.T), 1 / 20_000)
        assert_allclose(seen, law, atol=4 * np.sqrt(law.max() / 20_000))


def test_as_many_different_negatives_as_there_are():
    X, y = data(40, 5, 2)
    k = int(min(np.bincount(y))) - 1
    triplets = mining.mine(X, y, "negative_sampling", k, seed=0)
    assert len(np.unique(triplets, axis=0)) == len(triplets) == 40 * k * k
    assert (y[triplets[:, 0]] != y[triplets[:, 2]]).all()


@pytest.mark.parametrize("strategy", mining.STRATEGIES)
@pytest.mark.parametrize("pull", ["targets", "triplets"])
def test_learning_from_mined_triplets(strategy, pull):
    X, y = data()
    learner = fit(LMNN(mining=strategy, pull=pull, tol=1e-4, random_state=0), X, y)
    assert learner.converged_
    if strategy == "negative_sampling":
        return
    triplets = mining.mine(X, y, strategy, 3)
    M, seen, f = learner.get_mahalanobis_matrix(), {}, 0.0
    for i, j, l in triplets:
        d_ij, d_il = (float((X[i] - X[q]) @ M @ (X[i] - X[q])) for q in (j, l))
        seen[i, j] = d_ij * (pull == "targets" or (triplets[:, :2] == (i, j)).all(axis=1).sum())
        f += 0.5 * max(0.0, 1 + d_ij - d_il)
    assert_allclose(f + 0.5 * sum(seen.values()), learner.objective_, rtol=1e-7)


@pytest.mark.parametrize("settings", [{}, {"solver": "pgd"}, {"n_components": 2}, {"mining": "batch_hard"}])
def test_size_of_the_rows_does_not_matter(settings):
    X, y = data()
    X = X / np.sqrt(np.mean(np.var(X, axis=0)))
    triplets = {} if settings else {"triplets": mining.mine(X, y, "batch_hard", 2)}
    learner = LMNN(random_state=0, **settings).fit(X, y, **triplets)
    for size in (2.0**-500, 2.0**10, 2.0**500):
        other = LMNN(random_state=0, **settings).fit(size * X, y, **triplets)
        assert_array_equal(size * other.components_, learner.components_)
    for size in (1e-150, 1e150):
        other = LMNN(random_state=0, **settings).fit(size * X, y, **triplets)
        assert other.converged_
        assert_allclose(other.objective_, learner.objective_, rtol=2e-2)


def test_given_and_former_components_are_in_the_units_of_the_rows():
    X, y = data()
    first = np.random.default_rng(0).normal(size=(2, X.shape[1]))
    learner = LMNN(n_components=2, init=first).fit(X, y)
    other = LMNN(n_components=2, init=first / 2**40, warm_start=True).fit(X * 2.0**40, y)
    assert_array_equal(2.0**40 * other.components_, learner.components_)
    assert_allclose(other.fit(X * 2.0**40, y).objective_, learner.objective_, rtol=2e-2)


def test_all_triplets_listed_are_the_problem_itself():
    X, y = data(30, 3)
    near = loops.targets(X, y, 2)
    triplets = [(i, j, l) for i in range(30) for j in near[i] for l in range(30) if y[l] != y[i]]
    learner = LMNN(2, tol=1e-4).fit(X, y)
    listed = LMNN(tol=1e-4).fit(X, triplets=triplets)
    assert_allclose(listed.objective_, learner.objective_, rtol=1e-4)
    same = LMNN(2, tol=1e-4, mining="batch_all").fit(X, y)
    assert_allclose(distances(same, X), distances(learner, X))


def test_one_sphere_around_everything_is_the_problem_itself():
    X, y = data()
    X = X / scatter.unit(X)  # the units in which the problem itself is searched
    whole = {"rounds": 1, "spheres": 1, "radius": 1e9, "identity": False}
    learner = fit(LMNN(stratified=whole, random_state=0, tol=1e-3), X, y)
    assert_allclose(distances(learner, X), distances(fit(LMNN(tol=1e-3), X, y), X), rtol=1e-5, atol=1e-6)


def test_strata_keep_the_variance_and_are_seeded():
    X, y = toy(200)
    settings = {"rounds": 3, "radius": 3.0}
    learner = fit(LMNN(stratified=settings, random_state=1), X, y)
    assert_allclose(learner.transform(X).var(axis=0).sum(), X.var(axis=0).sum())
    assert np.linalg.matrix_rank(learner.components_) == 8
    assert_array_equal(learner.components_, fit(LMNN(stratified=settings, random_state=1), X, y).components_)
    assert learner.n_iter_ >= 3
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        LMNN(stratified={"rounds": 1, "radius": 1e-6}, random_state=0).fit(X, y)
    assert any("no sphere" in str(w.message) for w in seen)


def test_random_labels_do_not_break_the_search():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.integers(2, size=80)
    learner = fit(LMNN(), X, y)
    assert np.isfinite(learner.components_).all()
    assert learner.objective_ <= loops.objective(np.eye(3), X, y)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_few_directions_of_overlapping_classes_take_few_steps(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, 400)
    X = rng.normal(size=(10, 8))[y] + rng.normal(size=(400, 8))
    learner = fit(LMNN(n_components=2), X, y)
    assert learner.n_iter_ < 120
    tight = fit(LMNN(n_components=2, tol=1e-4), X, y)
    assert learner.objective_ <= 1.01 * tight.objective_


def test_strata_have_larger_spheres_from_round_to_round(monkeypatch):
    X, y = data()
    seen = []

    def sample(Y, labels, radius, *_):
        seen.append(radius / np.std(Y, axis=0).mean())
        return np.zeros(0, dtype=int)

    monkeypatch.setattr(stratified, "sample", sample)
    with pytest.warns(UserWarning, match="no sphere"):
        stratified.stratified(X, y, None, 1, {"rounds": 3, "spheres": 1, "radius": 0.2, "growth": 0.5}, 0)
    assert_allclose(seen, [0.2, 0.7, 1.2])


def test_strata_draw_fewer_spheres_and_rows_from_round_to_round():
    X, y = data()
    seen = []

    def solve(rows, labels, *_):
        seen.append(np.bincount(labels).tolist())
        return Solution(np.eye(4))

    settings = {"rounds": 8, "spheres": 10, "radius": 1e9, "share": 0.5}
    stratified.stratified(X, y, solve, 1, settings, 0)
    expected = []
    for t, spheres in enumerate((10, 8, 6, 5, 4, 3, 2, 2)):
        share = max(0.5 - 0.05 * t, 0.2)
        expected += spheres * [np.ceil(share * np.bincount(y)).tolist()]
    assert seen == expected


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("yes", "stratified must be True, False or a dict"),
        ({"sphere": 3}, r"stratified takes rounds, spheres, .*; got \['sphere'\]"),
        ({"rounds": 0}, "rounds must be an integer >= 1"),
        ({"rounds": 2.5}, "rounds must be an integer"),
        ({"spheres": 0}, "spheres must be an integer >= 1"),
        ({"radius": -1.0}, "radius must be a finite number > 0"),
        ({"radius": "wide"}, "radius must be a finite number > 0"),
        ({"growth": -1.0}, "growth must be a finite number >= 0"),
        ({"share": 0.0}, "share must be"),
        ({"share": 1.5}, "share must be"),
        ({"identity": "no"}, "identity must be one of True, False"),
        ({"identity": False}, r"stratified: identity=False needs rounds=1 and spheres=1; got rounds=10 and"),
        (
            {"identity": False, "rounds": 1},
            r"stratified: identity=False needs .*; got rounds=1 and spheres=None: a further sphere",
        ),
    ],
)
def test_bad_settings_of_strata_are_named(settings, word):
    with pytest.raises(ValueError, match=f"^LMNN: {word}"):
        LMNN(stratified=settings).fit(*data())


def test_strata_need_classes():
    with pytest.raises(
        ValueError, match=r"^LMNN: stratified needs labels, because it draws rows of each class; got triplets"
    ):
        LMNN(stratified=True).fit(data()[0], triplets=[[0, 1, 2]])


@pytest.mark.parametrize("d", [3, 9])
def test_rows_that_do_not_differ_give_a_metric_of_no_use(d):
    model = LMNN().fit(np.ones((6, d)), triplets=[[0, 2, 1], [2, 4, 3]])
    assert model.objective_ == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "most"),
    [
        (None, 150),  # bytes; there are up to three graphs, and the slopes of ten steps
        (2, 110),  # no slopes, because they bound nothing if the rank is limited
    ],
)
def test_memory_per_impostor(rank, most):
    X = np.random.default_rng(0).normal(size=(600, 8))
    y = np.arange(600) % 300  # classes of two rows: nearly all 358,800 pairs of classes are impostors at first
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LMNN(max_iter=40, n_components=rank).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / 358_800 < most
