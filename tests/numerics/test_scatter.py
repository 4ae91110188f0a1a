"""Scatters equal their sums over pairs."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar.numerics import pair_differences as core_pairs
from nearfar.numerics import scatter
from nearfar.numerics.constraints import LabelPairs, Pairs, written_out

rng = np.random.default_rng(0)
X = rng.normal(size=(25, 4)) + 3
LABELS = np.array([0] * 9 + [1] * 8 + [2] * 7 + [-1])


def loop(i, j, w):
    S = np.zeros((4, 4))
    for a, b, v in zip(i, j, w, strict=True):
        S += v * np.outer(X[a] - X[b], X[a] - X[b])
    return S


def some_pairs(m, weighted=True):
    i, j = rng.integers(25, size=(2, m))
    j = np.where(i == j, (j + 1) % 25, j)
    return Pairs(i, j, rng.random(m) < 0.5, rng.random(m) if weighted else None)


@pytest.mark.parametrize("m", [5, 200])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("narrow", [0, 40])
def test_weighted_outer(m, weighted, narrow, monkeypatch):
    monkeypatch.setattr(scatter, "MAX_FEATURES_OF_DIFFERENCES", narrow)
    pairs = some_pairs(m, weighted)
    expected = loop(pairs.i, pairs.j, pairs.weights)
    assert_allclose(scatter.weighted_outer(X, pairs.i, pairs.j, pairs.weight), expected, atol=1e-11)


@pytest.mark.parametrize(("d", "m", "laplacian"), [(40, 90, False), (41, 90, True), (41, 50, False)])
def test_many_pairs_of_long_rows_go_through_the_laplacian(d, m, laplacian, monkeypatch):
    taken, times = [], scatter.laplacian_times
    monkeypatch.setattr(scatter, "laplacian_times", lambda *given: taken.append(True) or times(*given))
    X = rng.normal(size=(50, d))
    i, j = rng.integers(50, size=(2, m))
    assert_allclose(scatter.weighted_outer(X, i, j), (X[i] - X[j]).T @ (X[i] - X[j]), atol=1e-10)
    assert bool(taken) == laplacian


def test_weighted_outer_in_blocks(monkeypatch):
    pairs = some_pairs(24)
    monkeypatch.setattr(scatter, "HIGH", 5)
    monkeypatch.setattr(core_pairs, "DIFFERENCE_BLOCK_VALUES", 1)
    assert_allclose(scatter.weighted_outer(X, *pairs[:2], pairs.weight), loop(*pairs[:2], pairs.weight), atol=1e-11)


def test_pair_scatters_and_their_means():
    pairs = some_pairs(40)
    found = scatter.pair_scatters(X, pairs)
    s, w = pairs.similar, pairs.weights
    assert_allclose(found.similar, loop(pairs.i[s], pairs.j[s], w[s]), atol=1e-11)
    assert_allclose(found.dissimilar, loop(pairs.i[~s], pairs.j[~s], w[~s]), atol=1e-11)
    assert_allclose((found.n_similar, found.n_dissimilar), (w[s].sum(), w[~s].sum()))
    assert_allclose(found.mean()[0], found.similar / w[s].sum())


def test_all_pairs_of_labels_by_class_sums():
    listed = written_out(LabelPairs(LABELS))
    assert len(listed.i) == 24 * 23 // 2
    found, expected = scatter.pair_scatters(X, LabelPairs(LABELS)), scatter.pair_scatters(X, listed)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-10)


def test_balanced_pairs_let_every_class_weigh_the_same():
    found = scatter.pair_scatters(X, LabelPairs(LABELS, "class"))
    n = np.bincount(LABELS[:-1])
    p = written_out(LabelPairs(LABELS))
    a, b = LABELS[p.i], LABELS[p.j]
    w = np.where(p.similar, 2 / (n[a] * (n[a] - 1)), 1 / (n[a] * n[b]))
    expected = scatter.pair_scatters(X, p._replace(weight=w))
    for x, y in zip(found, expected, strict=True):
        assert_allclose(x, y, rtol=1e-10)
    assert_allclose((found.n_similar, found.n_dissimilar), (3, 3))


def test_balanced_pairs_with_a_singleton_class():
    labels = np.array([0] * 12 + [1] * 12 + [2])
    found = scatter.pair_scatters(X, LabelPairs(labels, "class"))
    assert found.n_similar == 2
    assert np.isfinite(found.dissimilar).all()


def test_within_between_total():
    known, y = X[:-1], LABELS[:-1]
    means = np.array([known[y == c].mean(axis=0) for c in range(3)])
    assert_allclose(scatter.class_means(known, y), means)
    W = sum(np.outer(x - means[c], x - means[c]) for x, c in zip(known, y, strict=True))
    assert_allclose(scatter.within(X, LABELS), W, atol=1e-11)
    assert_allclose(scatter.within(X, LABELS) + scatter.between(X, LABELS), scatter.total(known), atol=1e-10)


def test_chunklets_apart():
    apart = np.zeros((3, 3), dtype=bool)
    apart[0, 2] = apart[2, 0] = True
    means = scatter.class_means(X[:-1], LABELS[:-1])
    assert_allclose(scatter.chunklets_apart(X, LABELS, apart), np.outer(means[0] - means[2], means[0] - means[2]))
    with pytest.raises(ValueError, match="negative_links must separate at least one pair of chunklets"):
        scatter.chunklets_apart(X, LABELS, np.zeros((3, 3), dtype=bool))


@pytest.mark.slow
def test_links_of_many_chunklets_are_not_listed():
    rng = np.random.default_rng(0)
    rows, chunklets = rng.normal(size=(2000, 3)), np.arange(2000) // 2
    apart = chunklets[::2, None] % 7 != chunklets[::2] % 7
    tracemalloc.start()
    found = scatter.chunklets_apart(rows, chunklets, apart)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6  # the differences of all pairs of means take 20e6
    means = rows.reshape(-1, 2, 3).mean(axis=1)
    l, m = np.nonzero(apart)
    assert_allclose(found, (means[l] - means[m]).T @ (means[l] - means[m]) / len(l), rtol=1e-10)


def test_quartic_moments():
    W = rng.normal(size=(4, 4))
    W = W + W.T
    i, j = np.triu_indices(25, 1)
    Z = X[i] - X[j]
    assert_allclose(scatter.quartic(X, W), (Z * np.einsum("pd,de,pe->p", Z, W, Z)[:, None]).T @ Z, rtol=1e-10)


def test_data_span_keeps_all_differences():
    wide = rng.normal(size=(6, 20))
    V = scatter.data_span(wide)
    assert V.shape == (5, 20)
    Z = wide[:3] - wide[3:]
    assert_allclose(Z @ V.T @ V, Z, atol=1e-12)


def test_data_span_of_many_rows_holds_their_principal_directions():
    long = rng.normal(size=(101, 3)) @ np.diag([1.0, 5.0, 2.0]) @ rng.normal(size=(3, 7)) + 100
    V = scatter.data_span(long)
    _, s, expected = np.linalg.svd(long - long.mean(axis=0), full_matrices=False)
    assert V.shape == (3, 7)
    assert_allclose(np.abs(np.sum(V * expected[:3], axis=1)), 1, atol=1e-10)
    assert_allclose(np.linalg.svd(scatter.centered_triangle(long))[1], s, atol=1e-10)
    assert scatter.centered_triangle(long).shape == (7, 7)


@pytest.mark.parametrize(("similar", "word"), [(True, "dissimilar"), (False, "similar")])
def test_an_empty_set_is_named(similar, word):
    pairs = some_pairs(6)._replace(similar=np.full(6, similar))
    with pytest.raises(ValueError, match=f"pairs must hold at least one {word} pair"):
        scatter.pair_scatters(X, pairs)


@pytest.mark.parametrize("n", [40, 60, 61])
@pytest.mark.parametrize("narrow", [0, 40])
def test_pairs_of_equal_rows_leave_no_rounding(n, narrow, monkeypatch):
    monkeypatch.setattr(scatter, "MAX_FEATURES_OF_DIFFERENCES", narrow)
    rows = np.random.default_rng(0).normal(size=(3, 4))[np.arange(n) % 3]
    i, j = np.triu_indices(n, 1)
    same = i % 3 == j % 3
    assert not scatter.weighted_outer(rows, i[same], j[same]).any()
    nearly = rows + 1e-6 * np.random.default_rng(1).normal(size=rows.shape)
    Z = nearly[i[same]] - nearly[j[same]]
    assert_allclose(scatter.weighted_outer(nearly, i[same], j[same]), Z.T @ Z, rtol=1e-9, atol=1e-12 * np.sum(Z * Z))


@pytest.mark.parametrize(("n", "k"), [(50, 4), (6, 4), (6, 8)])
def test_axes_are_those_of_the_total_scatter(n, k):
    X = np.random.default_rng(0).normal(size=(n, 9)) * np.arange(1, 10)
    w, V = scatter.axes(X, k)
    whole = np.linalg.eigvalsh(scatter.total(X))[::-1][:k]
    assert_allclose(w, whole, rtol=1e-9, atol=1e-9 * whole[0])
    assert_allclose(V.T @ V, np.eye(k), atol=1e-10)
    assert_allclose(scatter.total(X) @ V, V * w, atol=1e-9 * whole[0])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_widest_keeps_what_rows_differ_in(k):
    X = rng.normal(size=(40, 4)) * [1e-3, 1.0, 2.0, 0.0]
    L = np.diag([10.0, 1.0, 1.0, 1e6])
    W = scatter.widest(L, X, k)
    assert W.shape == (k, 4)
    Z, best = X @ W.T, np.linalg.svd((X - X.mean(axis=0)) @ L.T, compute_uv=False)
    assert_allclose(np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False), best[:k], atol=1e-9 * best[0])


def test_widest_of_few_directions_is_filled_with_zeros():
    X = rng.normal(size=(10, 3))
    W = scatter.widest(np.array([[1.0, 1.0, 0.0]]), X, 3)
    assert_allclose(np.abs(W), [[1, 1, 0], [0, 0, 0], [0, 0, 0]], atol=1e-12)
