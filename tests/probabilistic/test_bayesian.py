"""Bayesian learners: bounds and fixed points, what a posterior predicts, which pairs to ask."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm as normal
from sklearn.exceptions import NotFittedError

from nearfar import ActivePairSelector, BayesianNCA, BayesianPairMetric
from nearfar.probabilistic.bayesian import variational, weighted_directions
from nearfar.probabilistic.bayesian.active_pairs import active_pairs, querying
from nearfar.probabilistic.bayesian.bayesian_nca import neighbor_posterior
from nearfar.probabilistic.bayesian.bayesian_nca.neighbor_posterior import ProjectedNeighbors
from nearfar.probabilistic.bayesian.variational import Answers, Gaussian
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import all_pairs, data
from tests.references import bayesian_nca as nca_loops
from tests.references import pair_metric as loops


def answers(p=60, k=4, seed=0):
    rng = np.random.default_rng(seed)
    W = np.hstack([rng.exponential(size=(p, k - 1)), -np.ones((p, 1))])
    return Answers(W, np.where(rng.random(p) < expit(-W @ np.array([3.0, 0.1, 1.0, 2.0][:k])), 1.0, -1.0), np.ones(p))


# ------------------------------------------------------------------------------------------------ variational Bayes


def test_bound_rises_with_every_half_step_and_equals_the_loops():
    told, theta0 = answers(), np.ones(4)
    m, C, xi, history = loops.solve(told.W, told.s, theta0, 0.5, rounds=100)
    assert np.diff(history).min() >= -1e-9
    found = variational.logistic_posterior(told, theta0, 0.5, tol=1e-14, max_iter=500)
    assert_allclose(found.x, m, rtol=1e-5)
    assert_allclose(found.attributes["cov"], C, rtol=1e-5, atol=1e-8)
    assert np.diff(found.history).min() >= -1e-9
    q = Gaussian(m, C)
    assert_allclose(found.objective, loops.bound(told.W, told.s, xi, m, C, theta0, 0.5))
    assert_allclose(
        variational.evidence_bound(told, theta0, 0.5, q, 2 * xi + 0.1),
        loops.bound(told.W, told.s, 2 * xi + 0.1, m, C, theta0, 0.5),
    )


def test_fixed_point_satisfies_its_three_equations():
    told, theta0 = answers(), np.ones(4)
    found = variational.logistic_posterior(told, theta0, 1.0, tol=1e-15, max_iter=1000)
    m, C = found.x, found.attributes["cov"]
    xi = np.sqrt((told.W @ m) ** 2 + np.einsum("pk,kl,pl->p", told.W, C, told.W))
    h = np.tanh(xi / 2) / (4 * xi)
    assert_allclose(np.linalg.inv(C), np.eye(4) + 2 * (told.W.T * h) @ told.W, rtol=1e-6, atol=1e-8)
    assert_allclose(m, C @ (theta0 - told.W.T @ told.s / 2), rtol=1e-6)
    assert_array_equal(C, C.T)
    assert np.linalg.eigvalsh(C)[0] > 0


def test_bound_is_below_the_evidence():
    told = answers(p=12)
    found = variational.logistic_posterior(told, np.ones(4), 1.0, tol=1e-12)
    theta = 1 + np.random.default_rng(0).normal(size=(200_000, 4))
    evidence = np.log(np.mean(np.exp(-np.logaddexp(0, told.s * (theta @ told.W.T)).sum(axis=1))))
    assert found.objective < evidence < found.objective + 1.0
    # log sigma(z) >= the quadratic bound at every xi, equal at z = xi
    z, xi = np.meshgrid(np.linspace(-6, 6, 25), np.linspace(1e-5, 6, 20))
    low = -np.logaddexp(0, -xi) + (z - xi) / 2 - variational.slope(xi) * (z**2 - xi**2)
    assert (low <= -np.logaddexp(0, -z) + 1e-12).all()


def test_small_xi_use_the_series():
    xi = np.array([0.0, 1e-8, 9.99e-4, 1.001e-3, 1.0])
    h = variational.slope(xi)
    assert_allclose(h[:2], 1 / 8)
    assert_allclose(h[2:], np.tanh(xi[2:] / 2) / (4 * xi[2:]), rtol=1e-9)


def test_a_hard_prior_stays_and_weights_repeat():
    told, theta0 = answers(), np.array([1.0, 2.0, 3.0, 4.0])
    found = variational.logistic_posterior(told, theta0, 1e9)
    assert_allclose(found.x, theta0, atol=1e-6)
    assert_allclose(found.attributes["cov"], np.eye(4) / 1e9, rtol=1e-5, atol=1e-14)
    twice = Answers(*(np.concatenate([field, field[:9]]) for field in told))
    weighted = told._replace(weight=np.where(np.arange(60) < 9, 2.0, 1.0))
    a, b = (variational.logistic_posterior(each, theta0, 1.0, tol=1e-13) for each in (twice, weighted))
    assert_allclose(a.x, b.x, rtol=1e-9)
    assert_allclose(a.objective, b.objective)


def by_quad(f, mean, deviation):
    """E f(t), t ~ N(mean, deviation^2), by adaptive quadrature between the points where the integrand changes."""
    if deviation == 0:
        return f(mean)
    points = np.r_[mean + deviation * np.array([-10, -3, -1, 0, 1, 3, 10]), -30, -10, -3, 0, 3, 10, 30]
    points = np.unique(points[np.abs(points - mean) <= 10 * deviation + 1e-12])
    density = normal(mean, deviation).pdf
    pieces = [quad(lambda t: f(t) * density(t), *part, epsabs=1e-12) for part in pairwise(points)]
    return sum(value for value, _ in pieces)


@pytest.mark.parametrize("deviation", [0.0, 0.3, 1.0, 1.99, 2.01, 5.0, 10.0, 30.0, 1e3])
def test_expectations_are_exact_at_every_deviation(deviation):
    means = np.array([-40.0, -7.0, -0.3, 0.0, 2.0, 12.0])
    variances = np.full(6, deviation**2)
    p = [by_quad(lambda t: expit(-t), mean, deviation) for mean in means]
    assert_allclose(variational.expected("probability", means, variances), p, atol=1e-6)
    H = [by_quad(lambda t: variational.entropy(expit(-t)), mean, deviation) for mean in means]
    assert_allclose(variational.expected("entropy", means, variances), H, atol=1e-6)
    assert_allclose(variational.expected("entropy", means, variances, nodes=64), H, atol=1e-9)


def test_few_nodes_keep_probabilities_probabilities():
    mean, variance = np.meshgrid(np.linspace(-50, 50, 11), [0.0, 1.0, 9.0, 1e4])
    for nodes in (1, 2, 5):
        p = variational.expected("probability", mean.ravel(), variance.ravel(), nodes)
        assert (p >= 0).all()
        assert (p <= 1).all()


# ------------------------------------------------------------------------------------------------ the pair metric


def fitted(**settings):
    X, y = data()
    pairs, labels = all_pairs(y)
    return BayesianPairMetric(**settings).fit(X, pairs=pairs[::3], pair_labels=labels[::3]), X, pairs, labels


def test_directions_have_mean_squared_distance_one():
    X, _ = data()
    V = weighted_directions.unit_principal(X, 4)
    d2 = [np.sum(((a - b) @ V) ** 2) for k, a in enumerate(X) for b in X[:k]]
    assert_allclose(np.mean(d2), 1)
    assert_allclose(V.T @ V, np.eye(4) * (V[:, 0] @ V[:, 0]), atol=1e-12)


def test_probability_falls_with_distance_and_follows_the_labels():
    learner, X, pairs, labels = fitted()
    p = learner.pair_probability(pairs, X)
    assert_allclose(learner.pair_probability(X[pairs][:5]), p[:5])
    assert ((p > 0) & (p < 1)).all()
    assert p[labels > 0].mean() > p[labels < 0].mean() + 0.2
    assert p[labels > 0].mean() > 0.5
    mean, variance = learner.log_odds(pairs, X)
    W = loops.features(X, pairs, learner.basis_)
    assert_allclose(mean, W @ learner.posterior_mean_)
    assert_allclose(variance, [w @ learner.posterior_cov_ @ w for w in W], rtol=1e-9)


def test_sampled_metrics_follow_the_posterior():
    learner, *_ = fitted(prior_precision=5.0)
    M = learner.sample_metric(4000, random_state=0)
    assert M.shape == (4000, 4, 4)
    assert np.linalg.eigvalsh(M).min() >= -1e-12
    V = learner.basis_ / (learner.basis_[:, 0] @ learner.basis_[:, 0])  # V' basis = I
    g = np.einsum("dk,nde,ek->nk", V, M, V)
    sure = learner.posterior_mean_[:-1] > 4 * np.sqrt(np.diag(learner.posterior_cov_)[:-1])
    assert sure.any()
    assert_allclose(g.mean(axis=0)[sure], learner.posterior_mean_[:-1][sure], rtol=0.05)
    assert_array_equal(learner.sample_metric(2, random_state=3), learner.sample_metric(2, random_state=3))


def test_sampled_metrics_have_the_posterior_covariance_and_no_negative_weights():
    learner, *_ = fitted()
    k = 4
    mean = np.array([5.0, 5.0, 5.0, 0.0])
    cov = np.array([[1.0, 0.9, 0, 0], [0.9, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    learner.posterior_mean_, learner.posterior_cov_ = np.append(mean, 1.0), np.eye(k + 1)
    learner.posterior_cov_[:k, :k] = cov
    V = learner.basis_ / (learner.basis_[:, 0] @ learner.basis_[:, 0])  # V' basis = I
    g = np.einsum("dk,nde,ek->nk", V, learner.sample_metric(20_000, random_state=0), V)
    assert_allclose(np.cov(g[:, :3].T), cov[:3, :3], atol=0.05)
    assert_allclose(np.mean(g[:, 3] < 1e-9), 0.5, atol=0.02)


def test_distribution_of_a_distance():
    learner, X, pairs, _ = fitted()
    law = learner.distance_distribution(pairs[:8], X)
    W = learner.pair_features(pairs[:8], X)
    g = np.random.default_rng(0).multivariate_normal(
        learner.posterior_mean_[:4], learner.posterior_cov_[:4, :4], size=200_000
    )
    d2 = g @ W.T
    for k in range(8):
        kept = d2[:, k][d2[:, k] > 0]
        assert_allclose([law.mean()[k], law.std()[k]], [kept.mean(), kept.std()], rtol=0.05)
    assert_allclose(learner.pair_features(X[pairs[:8]]), W)
    for wrong in (X[:2], X[[[0, 1, 2]]], X[pairs[:8], 1:]):
        with pytest.raises(ValueError, match=r"pairs must have shape|features"):
            learner.pair_features(wrong)
    low, high = law.interval(0.9)
    assert ((low >= 0) & (high > low)).all()


def test_posterior_sharpens_with_pairs_and_warm_starts_end_alike():
    X, y = data()
    pairs, labels = all_pairs(y)
    few = BayesianPairMetric(warm_start=True, tol=1e-12).fit(X, pairs=pairs[::30], pair_labels=labels[::30])
    before = np.linalg.slogdet(few.posterior_cov_)[1]
    cold = BayesianPairMetric(tol=1e-12).fit(X, pairs=pairs[::5], pair_labels=labels[::5])
    warm = few.fit(X, pairs=pairs[::5], pair_labels=labels[::5])
    assert np.linalg.slogdet(warm.posterior_cov_)[1] < before
    assert_allclose(warm.posterior_mean_, cold.posterior_mean_, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"prior_precision": 0.0}, "prior_precision"), ({"prior_mean": [1.0, 2.0]}, "prior_mean"), ({"tol": -1}, "tol")],
)
def test_bad_settings_of_the_pair_metric(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^BayesianPairMetric: {word}"):
        BayesianPairMetric(**settings).fit(X, y)


def test_use_before_fit():
    with pytest.raises(NotFittedError):
        BayesianPairMetric().pair_probability(np.zeros((2, 2, 3)))
    with pytest.raises(NotFittedError):
        BayesianPairMetric().sample_metric()
    with pytest.raises(NotFittedError):
        ActivePairSelector(BayesianPairMetric()).select(np.zeros((2, 2, 3)), 1)


# ------------------------------------------------------------------------------------------------ active pairs


def test_scores_of_pairs():
    a, none = np.linspace(-4, 4, 17), np.zeros(17)
    assert np.argmax(active_pairs(a, none)) == 8  # the pair at the threshold
    assert np.argmax(active_pairs(a, none, "margin")) == 8
    assert_allclose(active_pairs(a, none, "bald"), 0, atol=1e-12)
    v = np.linspace(0, 20, 11)
    assert (np.diff(active_pairs(np.full(11, 1.0), v)) > 0).all()
    assert (np.diff(active_pairs(np.full(11, 1.0), v, "bald")) > 0).all()
    assert len(np.unique(active_pairs(a, none, "random", seed=0))) == 17


@pytest.mark.parametrize("strategy", ["entropy", "bald", "margin", "random"])
def test_select_gives_the_best_of_the_pool(strategy):
    learner, X, pairs, _ = fitted()
    selector = ActivePairSelector(learner, strategy, random_state=0)
    chosen, scores = selector.select(pairs, 5, X)
    assert (np.diff(scores) <= 0).all()
    if strategy != "random":
        every = active_pairs(*learner.log_odds(pairs, X), strategy)
        assert_allclose(scores, np.sort(every)[::-1][:5])
        assert_allclose(every[chosen], scores)
        assert_array_equal(selector.select(X[pairs], 5)[0], chosen)


def test_unique_points_are_asked_once():
    learner, X, pairs, _ = fitted()
    chosen, scores = ActivePairSelector(learner, unique_points=True).select(pairs, 12, X)
    assert len(np.unique(pairs[chosen])) == 24
    assert (np.diff(scores) <= 0).all()
    greedy, seen = [], set()
    for k in np.argsort(-active_pairs(*learner.log_odds(pairs, X)), kind="stable"):
        if not seen & set(pairs[k].tolist()) and len(greedy) < 12:
            greedy.append(k)
            seen |= set(pairs[k].tolist())
    assert_array_equal(chosen, greedy)
    assert len(querying.best(np.arange(3.0), 3, np.array([[0, 1], [1, 2], [0, 2]]))) == 1


def test_candidates_hold_neighbors_and_random_pairs():
    learner, X, _, _ = fitted()
    pool = ActivePairSelector(learner, random_state=0).candidates(X, n_random=50, n_neighbors=2)
    assert (pool[:, 0] < pool[:, 1]).all()
    assert len(np.unique(pool, axis=0)) == len(pool) >= 60
    near = learner.kneighbors(X, n_neighbors=2, return_distance=False)
    known = set(map(tuple, pool.tolist()))
    assert all(tuple(sorted((i, int(j)))) in known for i in range(60) for j in near[i])
    every = ActivePairSelector(learner).candidates(X, n_random=10_000, n_neighbors=0)
    assert_array_equal(every, np.stack(np.triu_indices(60, 1), axis=1))


def test_equal_scores_keep_their_order():
    assert_array_equal(querying.best(np.zeros(50), 5), np.arange(5))
    assert_array_equal(querying.best(np.arange(50) % 2, 30), np.r_[1:50:2, :10:2])


def test_bad_selections():
    learner, X, pairs, _ = fitted()
    for pool, n, word in (
        (pairs[:3], 4, "pool must hold at least n=4 pairs; got"),
        (pairs[:0], 1, "pool must hold at least n=1"),
        (pairs, 0, "n must"),
    ):
        with pytest.raises(ValueError, match=f"^ActivePairSelector: {word}"):
            ActivePairSelector(learner).select(pool, n, X)
    with pytest.raises(ValueError, match="strategy"):
        ActivePairSelector(learner, "guess").select(pairs, 1, X)
    with pytest.raises(ValueError, match="unique_points=True requires a pool of row numbers"):
        ActivePairSelector(learner, unique_points=True).select(X[pairs], 1)
    with pytest.raises(ValueError, match="batch_size"):
        ActivePairSelector(learner).loop(X, pairs, lambda asked: asked[:, 0], batch_size=0)


def excess_log_loss(seed, strategy):
    """How much worse than the truth, after 60 answers of an oracle that the model holds for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 6)) * np.linspace(1.5, 0.6, 6)
    Z = X @ weighted_directions.unit_principal(X, 6)
    pairs = rng.permutation(np.stack(np.triu_indices(100, 1), axis=1))
    d2 = (Z[pairs[:, 0]] - Z[pairs[:, 1]]) ** 2 @ np.array([0.0, 40, 0, 60, 0, 0])
    p = expit(np.quantile(d2, 0.35) - d2)
    told = dict(zip(map(tuple, pairs.tolist()), np.where(rng.random(len(p)) < p, 1, -1).tolist(), strict=True))
    selector = ActivePairSelector(BayesianPairMetric(prior_precision=0.02), strategy, random_state=seed)
    pool, test = pairs[:1500], pairs[1500:]
    learner = selector.loop(X, pool, lambda asked: [told[tuple(pair)] for pair in asked.tolist()], rounds=6)
    assert len(np.unique(selector.pairs_, axis=0)) == len(selector.pairs_) == 60
    q, p = np.clip(learner.pair_probability(test, X), 1e-12, 1 - 1e-12), p[1500:]
    return float(np.mean(p * np.log(np.maximum(p, 1e-300) / q) + (1 - p) * np.log((1 - p) / (1 - q))))


@pytest.mark.slow
def test_asking_beats_random_pairs_on_average():
    random, entropy, bald = (
        np.mean([excess_log_loss(seed, strategy) for seed in range(20)]) for strategy in ("random", "entropy", "bald")
    )
    assert entropy < random
    assert bald < random


@pytest.mark.parametrize("answers", [[0, 1], [1], [[1, -1]], ["a", "b"]])
def test_answers_that_are_none_are_refused(answers):
    X, _ = data()
    with pytest.raises(ValueError, match=r"^oracle must answer each of 2 pairs with \+1 or -1; got"):
        ActivePairSelector(BayesianPairMetric()).loop(X, [[0, 1], [2, 3]], lambda asked: answers)
    with pytest.raises(ValueError, match="n_random must be an integer >= 0; got -1"):
        ActivePairSelector(BayesianPairMetric().fit(*data())).candidates(X, n_random=-1)
    with pytest.raises(ValueError, match="n_neighbors"):
        ActivePairSelector(BayesianPairMetric().fit(*data())).candidates(X, n_neighbors=-1)


def test_loop_reports_each_round():
    X, y = data()
    pairs, labels = all_pairs(y)
    told = {tuple(pair): int(s) for pair, s in zip(pairs.tolist(), labels, strict=True)}
    seen = []
    selector = ActivePairSelector(BayesianPairMetric(), random_state=1)
    learner = fit_quietly(selector, X, pairs, told, seen)
    assert seen == [20, 40, 60]
    assert learner is selector.learner_
    assert learner.warm_start
    assert [told[tuple(pair)] for pair in selector.pairs_.tolist()] == selector.pair_labels_.tolist()


def test_loop_ends_with_the_pool():
    X, y = data()
    pairs, labels = all_pairs(y)
    told = {tuple(pair): int(s) for pair, s in zip(pairs.tolist(), labels, strict=True)}
    seen = []
    fit_quietly(ActivePairSelector(BayesianPairMetric(), random_state=1), X, pairs[::40], told, seen)
    assert seen == [20, 40, len(pairs[::40])]
    fit_quietly(ActivePairSelector(BayesianPairMetric(), random_state=1), X, pairs[:30], told, seen)
    assert seen[3:] == [20, 30]


def test_loop_learns_from_answers_of_both_kinds_only():
    X, _ = data()
    pool, seen = np.stack(np.triu_indices(60, 1), axis=1), []
    replies = iter([np.ones(20), np.ones(20), np.r_[-1, np.ones(19)]])
    selector = ActivePairSelector(BayesianPairMetric(), random_state=1)
    selector.loop(
        X, pool, lambda asked: next(replies), rounds=3, batch_size=20, callback=lambda m, learner: seen.append(m)
    )
    assert seen == [60]
    assert len(np.unique(selector.pairs_, axis=0)) == 60


def fit_quietly(selector, X, pairs, told, seen):
    def oracle(asked):
        return [told[tuple(pair)] for pair in asked.tolist()]

    return selector.loop(X, pairs, oracle, rounds=3, batch_size=20, callback=lambda m, learner: seen.append(m))


# ------------------------------------------------------------------------------------------------ Bayesian NCA


def hoods(k=6):
    X, y = data(40)
    V = weighted_directions.unit_principal(X, 4)
    listed = nca_loops.neighborhoods(X, y, k)
    N = np.array([near for near, _ in listed])
    return X, y, V, listed, ProjectedNeighbors(X @ V, N, y[N] == y[:, None])


def test_curvature_is_that_of_the_literal_bound():
    X, _, V, listed, near = hoods()
    expected = nca_loops.precision(X, listed, V, np.eye(4)) - np.eye(4)
    assert_allclose(neighbor_posterior.curvature(near), expected, rtol=1e-9)


def test_gradient_of_the_log_posterior():
    X, _, V, listed, near = hoods()
    prior = Gaussian(np.array([1.0, 2.0, 0.5, 1.0]), np.diag([1.0, 2.0, 3.0, 4.0]) + 0.1)
    m = np.array([3.0, -0.2, 1.0, 7.0])
    value, gradient = neighbor_posterior.log_posterior(m, near, prior)
    assert_allclose(value, nca_loops.log_posterior(m, X, listed, V, prior.mean, prior.cov), rtol=1e-9)
    expected = numerical_gradient(lambda v: neighbor_posterior.log_posterior(v, near, prior)[0], m)
    assert_allclose(gradient, expected, rtol=1e-6)


def test_fixed_curvature_steps_rise_to_the_same_mean():
    *_, near = hoods()
    prior = Gaussian(np.ones(4), np.eye(4))
    C = np.linalg.inv(np.eye(4) + neighbor_posterior.curvature(near))
    m, values = prior.mean, []
    for _ in range(400):
        value, gradient = neighbor_posterior.log_posterior(m, near, prior)
        values.append(value)
        m = m + C @ gradient
    assert np.diff(values).min() >= -1e-9
    found = neighbor_posterior.neighbor_posterior(near, prior, tol=1e-9)
    assert found.converged
    assert np.diff(found.history).min() >= -1e-9
    assert_allclose(found.x, m, rtol=1e-5)
    assert_allclose(neighbor_posterior.log_posterior(found.x, near, prior)[1], 0, atol=1e-6)
    assert_allclose(found.attributes["cov"], C, rtol=1e-9)
    assert_allclose(found.objective, values[-1] + np.linalg.slogdet(C)[1] / 2, rtol=1e-9)


def test_blocks_do_not_change_the_posterior(monkeypatch):
    *_, near = hoods()
    whole = neighbor_posterior.neighbor_posterior(near, Gaussian(np.ones(4), np.eye(4)))
    monkeypatch.setattr(neighbor_posterior, "POSTERIOR_BLOCK_VALUES", 100)
    parts = neighbor_posterior.neighbor_posterior(near, Gaussian(np.ones(4), np.eye(4)))
    assert_allclose(parts.x, whole.x, rtol=1e-9)
    assert_allclose(parts.attributes["cov"], whole.attributes["cov"], rtol=1e-9)


def test_no_neighbor_of_the_class_leaves_the_prior():
    X = np.array([[0.0, 0], [0.1, 0], [5, 5], [5.1, 5], [9, 0], [9.1, 0]])
    prior = np.diag([2.0, 3.0]) + 0.5
    with pytest.warns(UserWarning, match="n_neighbors=9"):
        BayesianNCA(n_neighbors=9).fit(X, [0, 1, 1, 0, 2, 0])
    alone = ProjectedNeighbors(X, np.array([[1], [0], [3], [2], [5], [4]]), np.zeros((6, 1), dtype=bool))
    found = neighbor_posterior.neighbor_posterior(alone, Gaussian(np.array([1.0, 2.0]), prior))
    assert_allclose(found.x, [1.0, 2.0])
    assert_allclose(found.attributes["cov"], prior)


def test_samples_and_distances_of_bayesian_nca():
    X, y = data()
    learner = BayesianNCA().fit(X, y)
    assert learner.sample_metric(3, random_state=0).shape == (3, 4, 4)
    law = learner.distance_distribution([[0, 1], [2, 3]], X)
    W = learner.pair_features([[0, 1], [2, 3]], X)
    assert_allclose(law.kwds["loc"], W @ learner.posterior_mean_)
    assert_allclose(law.kwds["scale"] ** 2, np.einsum("pk,kl,pl->p", W, learner.posterior_cov_, W))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"n_neighbors": 1}, "n_neighbors"),
        ({"prior_cov": -np.eye(4)}, "prior_cov"),
        ({"prior_cov": np.eye(3)}, "prior_cov"),
        ({"prior_mean": [1.0]}, "prior_mean"),
        ({"tol": -1}, "tol"),
    ],
)
def test_bad_settings_of_bayesian_nca(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^BayesianNCA: {word}"):
        BayesianNCA(**settings).fit(X, y)


def test_a_warm_start_leads_to_the_same_posterior():
    X, y = data(200, 6)
    cold = BayesianNCA().fit(X, y)
    learner = BayesianNCA(warm_start=True).fit(X[:190], y[:190]).fit(X, y)
    assert learner.n_iter_ < cold.n_iter_
    assert_allclose(learner.posterior_mean_, cold.posterior_mean_, rtol=1e-4, atol=1e-6)
    assert learner.fit(X, y).n_iter_ == 1
    other = learner.set_params(n_components=3).fit(X, y)
    assert_array_equal(other.posterior_mean_, BayesianNCA(3).fit(X, y).posterior_mean_)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("learner", [BayesianPairMetric(n_pairs=30), BayesianNCA(max_iter=200)])
def test_pairs_of_points_need_no_feature_names(learner):
    pandas = pytest.importorskip("pandas")
    X, y = data(40)
    table = pandas.DataFrame(X, columns=list("abcd"))
    pairs = all_pairs(y)[0][:5]
    learner.fit(table, y)
    assert_allclose(learner.pair_features(X[pairs]), learner.pair_features(pairs, table))
    if isinstance(learner, BayesianPairMetric):
        assert_allclose(learner.pair_probability(X[pairs]), learner.pair_probability(pairs, table))
