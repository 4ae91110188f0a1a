"""Re-ranking equals plain loops over full matrices, and finds what plain distances miss."""

import numpy as np
import pytest

from nearfar.evaluation import rerank
from nearfar.evaluation.rerank import augment_gallery, csls, expand_queries, k_reciprocal


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def expand_by_loops(queries, gallery, k, alpha, leave_one_out):
    queries, gallery = unit(queries), unit(gallery)
    expanded = []
    for i, query in enumerate(queries):
        cosines = gallery @ query
        if leave_one_out:
            cosines[i] = -np.inf
        total = query.copy()
        for j in np.argsort(-cosines, kind="stable")[:k]:
            total += max(cosines[j], 0.0) ** alpha * gallery[j]
        expanded.append(total / np.linalg.norm(total))
    return np.array(expanded)


def k_reciprocal_by_loops(rows, n_queries, leave_one_out, k1, k2, weight, distance):  # noqa: C901 - loops of the paper
    """Zhong et al. on full matrices: (n_queries, n_gallery) values."""
    n = len(rows)
    if distance == "cosine":
        d = 1.0 - unit(rows) @ unit(rows).T
    else:
        d = ((rows[:, None] - rows[None]) ** 2).sum(-1)
        d = np.sqrt(d) if distance == "euclidean" else d
    d = np.maximum(d, 0.0)
    d = d / d.max(axis=1, keepdims=True)
    rank = []
    for i in range(n):
        order = [j for j in np.argsort(d[i], kind="stable") if j != i]
        rank.append([i, *order])
    v = np.zeros((n, n))

    def reciprocal(i, k):
        return {j for j in rank[i][: k + 1] if i in rank[j][: k + 1]}

    for i in range(n):
        own = reciprocal(i, k1)
        joined = set(own)
        for j in own:
            other = reciprocal(j, round(k1 / 2))
            if len(other & own) > 2 / 3 * len(other):
                joined |= other
        for j in joined:
            v[i, j] = np.exp(-d[i, j])
        v[i] /= v[i].sum()
    v = np.array([v[rank[i][:k2]].mean(axis=0) for i in range(n)])
    start = 0 if leave_one_out else n_queries
    values = np.empty((n_queries, n - start))
    for i in range(n_queries):
        for j in range(start, n):
            shared = np.minimum(v[i], v[j]).sum()
            values[i, j - start] = (1 - weight) * (1 - shared / (2 - shared)) + weight * d[i, j]
        if leave_one_out:
            values[i, i] = np.inf
    return values


def csls_by_loops(queries, gallery, k, leave_one_out):
    cosines = unit(queries) @ unit(gallery).T
    kept = cosines.copy()
    if leave_one_out:
        np.fill_diagonal(kept, -np.inf)
    of_queries = np.array([np.sort(row)[::-1][:k].mean() for row in kept])
    of_items = np.array([np.sort(column)[::-1][:k].mean() for column in kept.T])
    values = of_queries[:, None] + of_items - 2 * cosines
    if leave_one_out:
        np.fill_diagonal(values, np.inf)
    return values


def two_sets(seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(6, 4))
    return (
        centers[np.arange(18) % 6] + 0.5 * rng.normal(size=(18, 4)),
        centers[np.arange(30) % 6] + 0.5 * rng.normal(size=(30, 4)),
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_expanded_queries_equal_loops(alpha):
    queries, gallery = two_sets()
    expected = expand_by_loops(queries, gallery, 4, alpha, leave_one_out=False)
    np.testing.assert_allclose(expand_queries(queries, gallery, k=4, alpha=alpha), expected, atol=1e-12)
    expected = expand_by_loops(gallery, gallery, 4, alpha, leave_one_out=True)
    np.testing.assert_allclose(augment_gallery(gallery, k=4, alpha=alpha), expected, atol=1e-12)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
@pytest.mark.parametrize(("k1", "k2"), [(1, 1), (5, 3), (8, 6), (12, 1)])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_k_reciprocal_equals_loops(distance, k1, k2, leave_one_out, monkeypatch):
    monkeypatch.setattr(rerank, "BLOCK_BYTES", 20_000)  # several blocks
    queries, gallery = two_sets()
    rows = gallery if leave_one_out else np.concatenate([queries, gallery])
    n_queries = len(gallery) if leave_one_out else len(queries)
    values = k_reciprocal_by_loops(rows, n_queries, leave_one_out, k1, k2, 0.3, distance)
    depth = values.shape[1] - leave_one_out
    found = k_reciprocal(
        rows[:n_queries], None if leave_one_out else gallery, depth=depth, k1=k1, k2=k2, distance=distance
    )
    np.testing.assert_allclose(found.distances, np.sort(values, axis=1)[:, :depth], atol=1e-9)
    np.testing.assert_allclose(np.take_along_axis(values, found.indices, 1), found.distances, atol=1e-9)


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_csls_equals_loops(leave_one_out):
    queries, gallery = two_sets()
    values = csls_by_loops(gallery if leave_one_out else queries, gallery, 3, leave_one_out)
    found = csls(gallery if leave_one_out else queries, None if leave_one_out else gallery, depth=7, k=3)
    np.testing.assert_allclose(found.distances, np.sort(values, axis=1)[:, :7], atol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(values, found.indices, 1), found.distances, atol=1e-12)


def test_csls_does_not_answer_every_query_with_the_hub():
    rng = np.random.default_rng(0)
    gallery = np.concatenate([np.eye(8), np.ones((1, 8))])  # the last item is near to all
    queries = unit(np.eye(8) + 0.5) + 0.02 * rng.normal(size=(8, 8))
    plain = (unit(queries) @ unit(gallery).T).argmax(axis=1)
    assert (plain == 8).all()
    assert (csls(queries, gallery, depth=1, k=2).indices.ravel() == np.arange(8)).all()


def test_duplicates_and_one_class_stay_finite():
    rows = np.ones((12, 3))
    found = k_reciprocal(rows, depth=5, k1=4, k2=2)
    assert np.isfinite(found.distances).all()
    assert (found.indices != np.arange(12)[:, None]).all()
    assert np.isfinite(csls(rows, depth=5, k=2).distances).all()
    assert np.isfinite(expand_queries(rows, k=3)).all()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: expand_queries(x, k=0), "k: expected a whole number of at least 1, got 0"),
        (lambda x: expand_queries(x, alpha=-1), "alpha: expected a finite number of at least 0, got -1"),
        (lambda x: k_reciprocal(x, weight=2), "weight: expected a number in 0..1, got 2"),
        (lambda x: k_reciprocal(x, depth=30), "depth: a query can find 29 items at most, got 30"),
        (lambda x: csls(x, x, depth=31), "depth: a query can find 30 items at most, got 31"),
    ],
)
def test_bad_settings_are_told(call, told):
    with pytest.raises(ValueError, match=told):
        call(two_sets()[1])
