"""Re-ranking equals plain loops over full matrices, and finds what plain distances miss."""

import csv
import re

import numpy as np
import pytest

from nearfar.evaluation import evaluate, recall_at_k, rerank, search_reranked
from nearfar.evaluation.rerank import augment_gallery, csls, expand_queries, k_reciprocal
from nearfar.index import Index

from ..commands import run


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


def test_csls_ranks_one_query_alone_as_cosines_do():
    queries, gallery = two_sets()
    found = csls(queries[:1], gallery, depth=30)
    np.testing.assert_array_equal(found.indices[0], np.argsort(-(unit(gallery) @ unit(queries[:1])[0])))


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
        (lambda x: expand_queries(x, k=0), "k: expected an integer of at least 1, got 0"),
        (lambda x: expand_queries(x, alpha=-1), "alpha: expected a finite number of at least 0, got -1"),
        (lambda x: k_reciprocal(x, weight=2), "weight: expected a number in 0..1, got 2"),
        (
            lambda x: k_reciprocal(x, depth=30),
            "depth: expected at most 29, the number of items that a query can find, got 30",
        ),
        (
            lambda x: csls(x, x, depth=31),
            "depth: expected at most 30, the number of items that a query can find, got 31",
        ),
    ],
)
def test_bad_settings_are_told(call, told):
    with pytest.raises(ValueError, match=told):
        call(two_sets()[1])


def scores_by_loops(values, relevant, available, ks):
    """Scores of (n, m) values, smaller nearer; cells that are not `available` are neither found nor missed."""
    found = {"map_at_r": [], "mrr": [], "r_precision": [], **{k: [] for k in ks}}
    for row, right, there in zip(values, relevant & available, available, strict=True):
        total = int(right.sum())
        if total == 0:
            continue
        order = [j for j in np.argsort(row, kind="stable") if there[j]]
        hits = right[order]
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        found["map_at_r"].append((precision * hits)[:total].sum() / total)
        found["r_precision"].append(hits[:total].mean())
        found["mrr"].append(1 / (1 + hits.argmax()))
        for k in ks:
            found[k].append(hits[:k].any())
    return {name: np.mean(each) for name, each in found.items()}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize(
    "text", ["expand_queries(k=3)", "augment_gallery(k=3, alpha=1)", "csls(k=4)", "k_reciprocal(k1=5, k2=2)"]
)
def test_scores_after_reranking_equal_loops(text, leave_one_out, grouped, monkeypatch):
    monkeypatch.setattr(rerank, "BLOCK_BYTES", 20_000)  # several blocks
    queries, gallery = two_sets()
    labels = np.arange(30) % 6
    cameras = np.arange(30) % 4
    if leave_one_out:
        queries = gallery
    n = len(queries)
    method = text.partition("(")[0]
    if method == "csls":
        values = csls_by_loops(queries, gallery, 4, leave_one_out)
    elif method == "k_reciprocal":
        rows = gallery if leave_one_out else np.concatenate([queries, gallery])
        values = k_reciprocal_by_loops(rows, n, leave_one_out, 5, 2, 0.3, "cosine")
    else:
        alpha = 1.0 if method == "augment_gallery" else 3.0
        x = expand_by_loops(queries, gallery, 3, alpha, leave_one_out)
        y = unit(gallery)
        if method == "augment_gallery":
            y = expand_by_loops(gallery, gallery, 3, alpha, leave_one_out=True)
        values = 1 - x @ y.T
    relevant = labels[:n, None] == labels
    available = np.ones((n, 30), dtype=bool)
    told = {"gallery": gallery, "gallery_labels": labels}
    if leave_one_out:
        np.fill_diagonal(available, val=False)
        told = {}
    if grouped:
        available &= ~(relevant & (cameras[:n, None] == cameras))
        told |= {"groups": cameras[:n]} | ({} if leave_one_out else {"gallery_groups": cameras})
    expected = scores_by_loops(values, relevant, available, (1, 5))
    scores = evaluate(queries, labels[:n], ks=(1, 5), clustering=False, rerank=text, **told)
    np.testing.assert_allclose(scores.map_at_r, expected["map_at_r"], atol=1e-12)
    np.testing.assert_allclose(scores.r_precision, expected["r_precision"], atol=1e-12)
    np.testing.assert_allclose(scores.mrr, expected["mrr"], atol=1e-12)
    np.testing.assert_allclose([scores.recall_at[1], scores.recall_at[5]], [expected[1], expected[5]], atol=1e-12)


def test_the_protocol_says_that_items_were_looked_at_together():
    pytest.importorskip("msgspec")
    gallery = two_sets()[1]
    plain = evaluate(gallery, np.arange(30) % 6, clustering=False)
    reranked = evaluate(gallery, np.arange(30) % 6, clustering=False, rerank="csls( k=3)")
    told = "re-ranked by csls(k=3), which uses the test items jointly"
    assert reranked.protocol_line() == f"{plain.protocol_line()}; {told}"
    assert type(reranked).from_dict(reranked.to_dict()) == reranked
    assert type(plain).from_dict(plain.to_dict()).rerank is None


def test_a_search_ranks_as_the_scores_do():
    queries, gallery = two_sets()
    for text in ("expand_queries", "augment_gallery", "csls", "k_reciprocal(k1=6)"):
        found = search_reranked(queries, gallery, 30, text)
        assert (np.sort(found.indices, axis=1) == np.arange(30)).all()
        assert (np.diff(found.distances, axis=1) >= 0).all()
        right = (np.arange(18) % 6 == found.indices[:, 0] % 6).mean()
        told = {"gallery": gallery, "gallery_labels": np.arange(30) % 6}
        assert right == recall_at_k(queries, np.arange(18) % 6, rerank=text, **told)


@pytest.mark.parametrize(
    ("text", "distance", "told"),
    [
        (
            "nearest",
            "cosine",
            "rerank: expected one of expand_queries, augment_gallery, k_reciprocal, csls, optionally",
        ),
        ("csls(kk=3)", "cosine", "rerank: csls has no setting 'kk'; did you mean k"),
        ("csls(depth=3)", "cosine", "rerank: csls has no setting 'depth'"),
        ("csls(k='3')", "cosine", "rerank: csls: k must be an integer; got '3'"),
        ("csls", "euclidean", "rerank: csls needs distance='cosine', got 'euclidean'; k_reciprocal supports any"),
        (3, "cosine", "rerank: expected one of"),
    ],
)
def test_a_bad_text_is_told(text, distance, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        evaluate(two_sets()[1], np.arange(30) % 6, rerank=text, distance=distance)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("expand_queries", "expand_queries needs 5 other items to find, and there are 4; set a smaller number, as in"),
        ("augment_gallery(k=4)", "augment_gallery needs 4 other items to find, and there are 3; set a smaller number"),
        ("csls", "csls needs 10 other items to find, and there are 4; set a smaller number, as in csls(k=4)"),
    ],
)
def test_a_gallery_that_is_smaller_than_the_setting_of_a_method_names_the_setting(text, expected):
    queries, gallery = two_sets()
    with pytest.raises(ValueError, match=re.escape(f"rerank: {expected}")):
        search_reranked(queries, gallery[:4], 2, text)
    with pytest.raises(ValueError, match=re.escape("and there are 3; set a smaller number")):
        evaluate(gallery[:4], [0, 0, 1, 1], rerank="expand_queries")
    assert search_reranked(queries, gallery[:4], 2, "k_reciprocal").indices.shape == (len(queries), 2)
    assert search_reranked(queries, gallery[:4], 2, "csls(k=4)").indices.shape == (len(queries), 2)


def test_commands_rerank(tmp_path, capsys, monkeypatch):
    queries, gallery = two_sets()
    rows = tmp_path / "rows.npz"
    np.savez(rows, embeddings=gallery, labels=np.arange(30) % 6)
    code, out, _ = run(capsys, monkeypatch, "evaluate", rows, "--rerank", "k_reciprocal(k1=5)")
    assert code == 0
    assert "re-ranked by k_reciprocal(k1=5), which uses the test items jointly" in out
    expected = evaluate(gallery, np.arange(30) % 6, clustering=False)
    assert f"without re-ranking: Recall@1 {expected.recall_at[1]:.4f}, MAP@R {expected.map_at_r:.4f}" in out

    file = tmp_path / "rows.index"
    Index(gallery).save(file)
    np.save(tmp_path / "asked.npy", queries)
    asked = ("search", file, tmp_path / "asked.npy", "-k", "2", "-o", tmp_path / "hits.csv", "--rerank", "csls(k=4)")
    assert run(capsys, monkeypatch, *asked)[0] == 0
    with (tmp_path / "hits.csv").open() as table:
        hits = [int(row["name"]) for row in csv.DictReader(table)]
    assert hits == csls(queries, gallery, depth=2, k=4).indices.ravel().tolist()

    for given, told in (
        (("evaluate", rows, "--rerank", "best"), "rerank: expected one of expand_queries"),
        (
            ("evaluate", rows, "--rerank", "csls", "--protocol", "verification"),
            "--rerank: works only with --protocol retrieval",
        ),
        (
            ("search", file, tmp_path / "asked.npy", "--rerank", "csls", "--within", "1"),
            "--within: does not work with --rerank",
        ),
        (("search", file, tmp_path / "asked.npy", "--rerank", "csls", "-k", "0"), "-k: expected 1 or more, got 0"),
    ):
        code, _, err = run(capsys, monkeypatch, *given)
        assert code == 2
        assert told in err
