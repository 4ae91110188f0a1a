"""Scores by labels in common and by degrees of relevance equal plain loops and scikit-learn's."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import ndcg_score

from nearfar.evaluation import evaluate, label_set_scores, ndcg_at_k
from nearfar.evaluation.rerank import unit_rows

rng = np.random.default_rng(0)
X, HOT = rng.normal(size=(40, 5)), rng.random((40, 6)) < 0.25


def loops(similarity, gains, k):
    """Return nDCG@k, Recall@1 and MAP@R by plain loops."""
    rows = []
    for q in range(len(gains)):
        order = sorted((i for i in range(len(gains)) if i != q), key=lambda i: -similarity[q][i])
        found = [gains[q][i] for i in order]
        if not max(found) > 0:
            continue
        dcg = sum(g / np.log2(i + 2) for i, g in enumerate(found[:k]))
        best = sum(g / np.log2(i + 2) for i, g in enumerate(sorted(found, reverse=True)[:k]))
        relevant = sum(g > 0 for g in found)
        hits = [g > 0 for g in found[:relevant]]
        map_at_r = sum(sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit) / relevant
        rows.append((dcg / best, found[0] > 0, map_at_r))
    return np.mean(rows, axis=0), len(rows)


@pytest.mark.parametrize("k", [1, 7, 100])
def test_label_sets_are_scored_by_labels_in_common(k):
    gains = (HOT.astype(int) @ HOT.T.astype(int)).astype(float)
    unit = unit_rows(X)
    expected, queries = loops(unit @ unit.T, gains, k)
    found = label_set_scores(X, HOT, k)
    np.testing.assert_allclose([found.ndcg, found.recall_at_1, found.map_at_r], expected)
    assert found.queries == queries
    assert ndcg_at_k(X, gains, k) == pytest.approx(found.ndcg)
    assert ndcg_at_k(X, csr_array(gains), k) == pytest.approx(found.ndcg)


def test_one_label_each_gives_the_scores_of_classes():
    y = np.arange(40) % 7
    expected = evaluate(X, y, clustering=False)
    found = label_set_scores(X, np.eye(7)[y])
    assert (found.recall_at_1, found.map_at_r) == pytest.approx((expected.recall_at[1], expected.map_at_r))


def test_a_gallery_is_scored_as_by_scikit_learn():
    gains = rng.random((12, 28)) * (rng.random((12, 28)) < 0.3)
    gains[:, 0] += 0.1
    similarity = unit_rows(X[:12]) @ unit_rows(X[12:]).T
    assert ndcg_at_k(X[:12], gains, 5, gallery=X[12:]) == pytest.approx(ndcg_score(gains, similarity, k=5))


def test_bad_relevance_is_one_line():
    with pytest.raises(ValueError, match=r"relevance: expected shape \(40, 40\), queries and items, got \(40, 3\)"):
        ndcg_at_k(X, np.ones((40, 3)))
    with pytest.raises(ValueError, match="relevance: gains must be finite, and 0 or more"):
        ndcg_at_k(X, -np.ones((40, 40)))
    with pytest.raises(ValueError, match="hot: expected 40 rows"):
        label_set_scores(X, HOT[:3])
    assert np.isnan(label_set_scores(X[:3], np.eye(3)).ndcg)
