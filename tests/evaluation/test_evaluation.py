"""Retrieval scores: equal to plain loops, invariant, exact on ties, clear on bad input."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.evaluation import (
    Scores,
    best_distance,
    evaluate,
    identify,
    map_at_r,
    mean_average_precision,
    mrr,
    precision_at_k,
    r_precision,
    recall_at_k,
    retrieve,
    verify,
)
from nearfar.evaluation.chance import random_map_at_r, random_mrr, random_precision, random_recall
from nearfar.neighbors import nearest
from tests.references import evaluation as plain

# queries that are drawn may be items of a small gallery
pytestmark = pytest.mark.filterwarnings("ignore:gallery. it contains all")

KS = (1, 2, 4, 8)
DISTANCES = ("cosine", "euclidean")
TABLE = {"embeddings": np.zeros((3, 3)), "distance": "precomputed"}


def samples(n=60, classes=8, d=5, seed=0, integers=False):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    if integers:
        return rng.integers(-1, 2, (n, d)).astype(float), y
    return rng.standard_normal((classes, d))[y] + rng.standard_normal((n, d)), y


def check(scores, reference):
    recall, precision, r_precision, map_at_r, mrr, lone = reference
    assert scores.n_lone == lone
    np.testing.assert_allclose(list(scores.recall_at.values()), list(recall.values()), rtol=1e-12)
    np.testing.assert_allclose(list(scores.precision_at.values()), list(precision.values()), rtol=1e-12)
    np.testing.assert_allclose(
        [scores.r_precision, scores.map_at_r, scores.mrr], [r_precision, map_at_r, mrr], rtol=1e-12
    )


def score(x, y, distance="cosine", **more):
    return evaluate(x, y, distance=distance, clustering=False, **more)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from(DISTANCES),
    st.sampled_from(["exclude", "miss"]),
)
def test_leave_one_out_equals_the_plain_loops(n, classes, d, seed, integers, distance, lone):
    x, y = samples(n, classes, d, seed, integers)
    reference = plain.evaluate(x.tolist(), y.tolist(), KS, distance, lone=lone)
    found = score(x, y, distance, lone=lone)
    check(found, reference)
    assert found.protocol == "leave-one-out"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 10**6), st.booleans(), st.sampled_from(DISTANCES))
def test_mean_average_precision_equals_the_plain_loops(n, m, seed, integers, distance):
    x, y = samples(n, 4, 3, seed, integers)
    own, searched = {}, (x, y)
    if m:
        searched = samples(m, 5, 3, seed + 1, integers)
        own = {"gallery": searched[0], "gallery_labels": searched[1]}
    for lone in ("exclude", "miss"):
        rows = [x.tolist(), y.tolist(), searched[0].tolist(), searched[1].tolist()]
        expected = plain.mean_average_precision(*rows, distance, leave_one_out=not m, lone=lone)
        np.testing.assert_allclose(
            mean_average_precision(x, y, distance=distance, lone=lone, **own), expected, rtol=1e-12
        )


def test_average_precision_is_told_of_whole_rankings_only():
    x, y = samples()
    assert retrieve(x, y, ks=(58,)).average_precision is None
    assert retrieve(x, y, ks=(59,)).average_precision is not None


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 10**6), st.booleans(), st.sampled_from(DISTANCES))
def test_query_gallery_equals_the_plain_loops(n, m, seed, integers, distance):
    (x, y), (gallery, classes) = samples(n, 7, 3, seed, integers), samples(m, 6, 3, seed + 1, integers)
    found = score(x, y, distance, gallery=gallery, gallery_labels=classes)
    reference = plain.evaluate(x.tolist(), y.tolist(), KS, distance, gallery.tolist(), classes.tolist())
    check(found, reference)
    assert found.n_gallery == m
    assert found.protocol == "query-gallery"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from(DISTANCES),
)
def test_groups_equal_the_plain_loops(n, m, classes, cameras, seed, integers, distance):
    x, y = samples(n, classes, 3, seed, integers)
    gallery, others = samples(m, classes, 3, seed + 1, integers) if m else (x, y)
    rng = np.random.default_rng(seed + 2)
    seen_by, taken_by = rng.integers(cameras, size=n), rng.integers(cameras, size=m)
    own = {"gallery": gallery, "gallery_labels": others, "gallery_groups": taken_by} if m else {}
    kinds = list(zip(y, seen_by, strict=True)), list(zip(others, taken_by if m else seen_by, strict=True))
    rows = x.tolist(), y.tolist(), gallery.tolist(), others.tolist()
    found = score(x, y, distance, groups=seen_by, **own)
    check(found, plain.evaluate(*rows[:2], KS, distance, *(rows[2:] if m else ()), kinds=kinds))
    assert found.protocol.endswith("own class only in other groups")
    assert found.n_gallery == max(sum(kind != own_kind for kind in kinds[1]) for own_kind in kinds[0])
    expected = plain.mean_average_precision(*rows, distance, leave_one_out=not m, lone="exclude", kinds=kinds)
    average = mean_average_precision(x, y, distance=distance, groups=seen_by, **own)
    np.testing.assert_allclose(average, expected, rtol=1e-12)


@pytest.mark.parametrize("wide", [False, True])
def test_groups_that_hide_most_of_a_large_gallery(wide):
    """A query that can find fewer items than K, and one whose items lie in few groups of columns."""
    y = np.repeat([0, 1, 2], [1900, 60, 40] if wide else [1990, 6, 4])
    x = np.random.default_rng(3).standard_normal((2000, 3))
    cameras = np.where(y == 0, np.arange(2000) >= 1890 if wide else np.arange(2000) >= 1985, np.arange(2000) % 2)
    kinds = list(zip(y, cameras, strict=True))
    asked = np.array([0, 5, 1889, 1899, 1988, 1991, 1995, 1999])
    gallery = {"gallery": x, "gallery_labels": y, "gallery_groups": cameras}
    found = score(x[asked], y[asked], ks=(1, 8, 200), groups=cameras[asked], **gallery)
    rows = x[asked].tolist(), y[asked].tolist(), (1, 8, 200), "cosine", x.tolist(), y.tolist()
    check(found, plain.evaluate(*rows, kinds=([kinds[i] for i in asked], kinds)))


def test_a_group_of_its_own_for_every_item_changes_nothing():
    x, y = samples()
    assert score(x, y, groups=np.arange(60)).rows() == score(x, y).rows()
    assert score(x, y, groups=np.zeros(60)).n_lone == 60
    far = {"gallery": x[9:], "gallery_labels": y[9:]}
    named = score(x[:9], y[:9], groups=["a"] * 9, gallery_groups=["b"] * 51, **far)
    assert named.rows() == score(x[:9], y[:9], **far).rows()


def test_chance_with_groups_is_that_of_the_items_each_query_can_find():
    rng, y = np.random.default_rng(0), np.repeat(np.arange(3), 60)
    cameras = np.tile(np.repeat([0, 1, 2], [40, 15, 5]), 3)
    runs = [score(rng.standard_normal((180, 64)), y, groups=cameras) for _ in range(100)]
    for name in ("map_at_r", "r_precision", "mrr"):
        assert np.mean([getattr(run, name) for run in runs]) == pytest.approx(runs[0].chance[name], rel=0.1)


def test_one_k_needs_no_list():
    x, y = samples(30, 3, 4, 0, False)
    assert evaluate(x, y, ks=5, clustering=False).recall_at == evaluate(x, y, ks=[5], clustering=False).recall_at


def test_uneven_classes_share_blocks(monkeypatch):
    sizes = [60, 25, 9, 5, 3, 3, 2, 2, 1, 1]
    y = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = np.random.default_rng(2).standard_normal((len(y), 3))
    reference = plain.evaluate(x.tolist(), y.tolist(), KS, "cosine")
    check(score(x, y), reference)
    monkeypatch.setattr(nearest, "BLOCK_MEMORY_BYTES", 30_000)
    check(score(x, y), reference)
    assert reference[-1] == 2


@pytest.mark.parametrize("distance", DISTANCES)
def test_far_hits_are_ranked_exactly(distance):
    rng = np.random.default_rng(0)
    x = (
        np.repeat(rng.standard_normal((100, 4)), 3, axis=0)
        + np.repeat([[0.0], [1e-9], [0.0]], 4, 1)[np.arange(300) % 3]
    )
    y = rng.permutation(np.repeat(np.arange(150), 2))
    reference = plain.evaluate(x.tolist(), y.tolist(), (1,), distance)
    found = score(x, y, distance, ks=(1,))
    assert found.mrr < 0.1, "most hits are far"
    check(found, reference)


def test_far_hits_among_many_as_near_are_ranked_exactly():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((30, 3)), [1e3, 0, 0] + 1e-6 * rng.standard_normal((250, 3))])
    y = np.concatenate([[0], np.arange(2, 31), [0], np.arange(31, 280)])
    check(score(x, y, "euclidean", ks=(1,)), plain.evaluate(x.tolist(), y.tolist(), (1,), "euclidean"))


def test_singles_equal_the_whole():
    x, y = samples()
    scores = score(x, y, ks=(1, 3))
    assert recall_at_k(x, y) == scores.recall_at[1]
    assert recall_at_k(x, y, 3) == scores.recall_at[3]
    assert precision_at_k(x, y, 3) == scores.precision_at[3]
    assert (map_at_r(x, y), r_precision(x, y), mrr(x, y)) == (scores.map_at_r, scores.r_precision, scores.mrr)
    assert (
        recall_at_k(x[:9], y[:9], gallery=x[9:], gallery_labels=y[9:], distance="euclidean")
        == score(x[:9], y[:9], "euclidean", gallery=x[9:], gallery_labels=y[9:]).recall_at[1]
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 50), st.integers(1, 9), st.integers(0, 10**6))
def test_order_of_the_scores(n, classes, seed):
    x, y = samples(n, classes, 3, seed)
    scores = score(x, y)
    if math.isnan(scores.mrr):
        assert scores.n_lone == n
        return
    assert scores.map_at_r <= scores.r_precision + 1e-12
    assert list(scores.recall_at.values()) == sorted(scores.recall_at.values())
    assert scores.recall_at[1] == scores.precision_at[1] <= scores.mrr + 1e-12
    assert scores.mrr <= 1


def test_scale_names_and_row_order_do_not_matter():
    x, y = samples()
    scores = score(x, y)
    assert score(4.0 * x, y) == scores
    assert score(x, [f"class {one}" for one in y]).recall_at == scores.recall_at
    order = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_allclose(score(x[order], y[order]).map_at_r, scores.map_at_r)


def test_labels_of_any_kind():
    x, y = samples()
    expected = score(x, y).map_at_r
    big = (y + 2**62).astype(np.int64)
    for labels in (big, y.astype(str), list(y), [(int(one), "a") for one in y], y.astype(object), y.astype(np.uint8)):
        assert score(x, labels).map_at_r == expected
    assert score(x, [10**30 + int(one) for one in y]).map_at_r == expected
    # NumPy holds signed integers together with those above 2^63 as rounded floats
    assert score(x, [2**63 + int(one) if one else -1 for one in y]).map_at_r == expected
    mixed = [1 if one else "1" for one in y % 2]
    assert score(x, mixed).map_at_r == score(x, y % 2).map_at_r
    same = score(x[:9], list(map(str, y[:9])), gallery=x, gallery_labels=y.astype(str))
    assert same.map_at_r == score(x[:9], y[:9], gallery=x, gallery_labels=y).map_at_r


def test_tensors():
    torch = pytest.importorskip("torch")
    x, y = samples()
    tensor = torch.tensor(x, requires_grad=True)
    assert score(tensor, torch.tensor(y)) == score(x, y)


def test_perfect_and_collapsed_embeddings():
    y = np.repeat(np.arange(12), 6)
    perfect = score(np.eye(12)[y], y)
    assert perfect.map_at_r == perfect.r_precision == perfect.mrr == perfect.recall_at[1] == 1
    constant = np.ones((72, 3), np.float32)
    check(score(constant, y), plain.evaluate(constant.tolist(), y.tolist(), KS, "cosine"))
    check(score(constant, y, "euclidean"), plain.evaluate(constant.tolist(), y.tolist(), KS, "euclidean"))


def test_large_collapsed_set_goes_by_index():
    y = np.tile(np.arange(50), 8)
    for distance in DISTANCES:
        found = retrieve(np.ones((400, 2)), y, ks=(1,), distance=distance)
        expected = np.where(np.arange(400) < 50, 50 + np.arange(400), 1 + y)  # the first of its class, or the second
        np.testing.assert_array_equal(found.first_rank, expected)


def test_one_class_one_row_and_lone_classes():
    x = np.random.default_rng(0).standard_normal((6, 2))
    one = score(x, np.zeros(6))
    assert (one.map_at_r, one.recall_at[1], one.n_classes) == (1, 1, 1)
    single = score(x[:1], ["a"])
    assert math.isnan(single.recall_at[1])
    assert (single.n_lone, single.n_gallery, single.n_queries) == (1, 0, 1)
    assert score(x, np.arange(6), lone="miss").map_at_r == 0
    assert math.isnan(score(x, np.arange(6)).map_at_r)
    half = np.array([0, 0, 1, 1, 2, 3])
    excluded, missed = score(x, half), score(x, half, lone="miss")
    np.testing.assert_allclose(missed.map_at_r, excluded.map_at_r * 4 / 6)
    assert excluded.n_lone == missed.n_lone == 2


def test_k_beyond_the_gallery_sees_all_of_it():
    x, y = samples(5, 2)
    found = score(x, y, ks=(4, 100))
    assert found.recall_at[100] == found.recall_at[4]
    np.testing.assert_allclose(found.precision_at[100], found.precision_at[4] * 4 / 100)


@pytest.mark.parametrize("items", [1, 2, 5])
def test_chance_is_the_mean_over_all_rankings(items):
    for relevant in range(1, items + 1):
        recall, precision, r_precision, map_at_r, mrr = plain.expected_by_enumeration(items, relevant, (1, 2, 9))
        r = np.array([relevant])
        for k in (1, 2, 9):
            np.testing.assert_allclose(random_recall(r, items, k), recall[k], atol=1e-12)
            np.testing.assert_allclose(random_precision(r, items, k), precision[k])
        np.testing.assert_allclose(random_map_at_r(r, items), map_at_r)
        np.testing.assert_allclose(random_mrr(r, items), mrr)
        np.testing.assert_allclose(relevant / items, r_precision)
    nothing = np.array([0])
    assert random_recall(nothing, items, 1) == random_map_at_r(nothing, items) == random_mrr(nothing, items) == 0


def test_random_embeddings_score_at_chance():
    rng, y = np.random.default_rng(0), np.repeat(np.arange(40), 10)
    runs = [score(rng.standard_normal((400, 64)), y) for _ in range(12)]
    chance = runs[0].chance
    assert np.mean([run.map_at_r for run in runs]) == pytest.approx(chance["map_at_r"], rel=0.1)
    assert np.mean([run.recall_at[8] for run in runs]) == pytest.approx(chance["recall_at"][8], rel=0.1)
    assert np.mean([run.mrr for run in runs]) == pytest.approx(chance["mrr"], rel=0.1)


def test_scores_that_were_null_are_nan_and_the_optional_stay_none():
    pytest.importorskip("msgspec")
    lone = score(np.eye(3), [0, 1, 2])
    assert "without a relevant item left out" in lone.protocol_line()
    some = score(np.eye(4), [0, 0, 1, 2]).protocol_line()  # the first two are scored
    assert some.startswith("2 of 4 queries of 3 classes, each searching 3 items")
    assert "; 2 without a relevant item left out; " in some
    assert score(np.eye(4), [0, 0, 1, 2], lone="miss").protocol_line().startswith("4 queries of 3 classes")
    assert "distance); each has a relevant item; ties" in score(np.eye(4), [0, 0, 1, 1]).protocol_line()
    assert "without a relevant item counted as misses" in score(np.eye(3), [0, 1, 2], lone="miss").protocol_line()
    written = lone.to_dict() | {"map_at_r": None, "recall_at": {"1": None}}
    again = Scores.from_dict(written)
    assert math.isnan(again.map_at_r)
    assert math.isnan(again.recall_at[1])
    assert again.nmi is None
    assert again.clusterer is None


def test_scores_travel_as_plain_data():
    pytest.importorskip("msgspec")
    x, y = samples()
    scores = evaluate(x, y, engine="scikit-learn")
    assert Scores.from_dict(json.loads(json.dumps(scores.to_dict()))) == scores
    table = str(scores)
    for part in (
        "Recall@1",
        "MAP@R",
        "NMI (arithmetic)",
        "NMI (geometric)",
        "chance",
        "60 queries of 8 classes",
        "ties",
    ):
        assert part in table
    assert f"{scores.map_at_r:>8.4f}{scores.chance['map_at_r']:>9.4f}" in table
    assert scores.clusterer in table
    plain_scores = score(x, y, ks=(1, 3))
    assert "NMI" not in str(plain_scores)
    assert "clusters" not in str(plain_scores)
    assert [row for row in plain_scores.rows() if "@" in row[0]] == [
        ("Recall@1", plain_scores.recall_at[1], plain_scores.chance["recall_at"][1]),
        ("Recall@3", plain_scores.recall_at[3], plain_scores.chance["recall_at"][3]),
        ("Precision@3", plain_scores.precision_at[3], plain_scores.chance["precision_at"][3]),
        ("MAP@R", plain_scores.map_at_r, plain_scores.chance["map_at_r"]),
    ]
    with pytest.raises(AttributeError):
        scores.mrr = 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, "labels: expected 3 labels, one per row, got 2"),
        ({"labels": [[0], [1], [1]]}, r"labels: expected one label per row, shape \(n,\), got shape \(3, 1\)"),
        ({"labels": np.zeros((3, 1))}, r"labels: expected one label per row, shape \(n,\), got shape \(3, 1\)"),
        ({"labels": [0.0, math.nan, 1.0]}, "labels: 1 of 3 labels are missing"),
        ({"labels": ["a", None, "b"]}, r"labels: 1 of 3 labels are missing \(None or NaN\)"),
        ({"labels": np.array(["a", math.nan, "b"], dtype=object)}, "labels: 1 of 3 labels are missing"),
        (
            {"labels": np.array(["2026-01-01", "NaT", "NaT"], dtype="datetime64[D]")},
            "labels: 2 of 3 labels are missing",
        ),
        ({"labels": None}, r"labels: expected one label per row, shape \(n,\), got None"),
        ({"embeddings": [[1.0], [math.nan], [2.0]]}, "embeddings: 1 of 3 rows hold NaN"),
        ({"gallery": [[1.0]]}, "expected gallery and gallery_labels together"),
        ({"gallery": [[1.0, 2.0]], "gallery_labels": [0]}, "gallery: expected 1 columns"),
        ({"gallery": [[1.0]], "gallery_labels": [0, 1]}, "gallery_labels: expected 1 labels"),
        ({"groups": [0, 1]}, "groups: expected 3 groups, one per row, got 2"),
        ({"groups": [0, 1, None]}, r"groups: 1 of 3 labels are missing"),
        ({"gallery_groups": [0, 1, 1]}, "gallery_groups: expected none without a gallery"),
        ({"gallery": [[1.0]], "gallery_labels": [0], "groups": [0, 0, 1]}, "gallery_groups: expected groups and"),
        ({"ks": (0, 1)}, "ks: expected integers from 1 to"),
        ({"ks": "5"}, r"ks: expected integers from 1 to 2\*\*62, got '5'"),
        ({"ks": ("5",)}, "ks: expected integers from 1 to"),
        ({"ks": ()}, "ks: expected"),
        ({"lone": "drop"}, 'lone: expected "exclude" or "miss"'),
        ({"distance": "dot"}, "distance: expected one of"),
        (TABLE | {"embeddings": np.zeros((3, 2))}, r"^embeddings: expected distances of shape \(3, 3\).*got \(3, 2\)$"),
        (TABLE | {"gallery_labels": [0, 1]}, r"^embeddings: .*shape \(3, 2\), .* a column for each gallery label"),
        (TABLE | {"gallery": [[1.0]], "gallery_labels": [0]}, "^gallery: does not work with precomputed distances"),
        (TABLE | {"rerank": "csls(k=1)"}, "^rerank: does not work with precomputed distances"),
        (TABLE | {"group_by": [0, 0, 1]}, "^group_by: does not work with precomputed distances"),
        (TABLE | {"clustering": "plain"}, "^clustering: does not work with precomputed distances"),
        (TABLE | {"dims": 2}, "^dims: does not work with precomputed distances"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"embeddings": [[1.0], [2.0], [3.0]], "labels": [0, 0, 1], "clustering": False} | change
    with pytest.raises(ValueError, match=message):
        evaluate(**arguments)


def test_wrong_settings_are_refused_before_the_search(monkeypatch):
    monkeypatch.setattr("nearfar.evaluation.protocol.retrieve", None)
    for scored in (evaluate, recall_at_k, precision_at_k, map_at_r, mean_average_precision, r_precision, mrr):
        with pytest.raises(ValueError, match=r"^lone: expected"):
            scored(np.eye(3), [0, 0, 1], lone="drop")
    for wrong in ({"engine": "annoy"}, {"restarts": 0}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected"):
            evaluate(np.eye(3), [0, 0, 1], **wrong)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from(["euclidean", "sqeuclidean"]),
    st.sampled_from(["alone", "gallery", "groups", "groups of a gallery", "ids"]),
)
def test_precomputed_distances_score_as_the_embeddings(n, classes, seed, integers, distance, protocol):
    # integers have ties, and the squares of their distances are exact
    x, y = samples(n, classes, seed=seed, integers=integers)
    rng = np.random.default_rng(seed)
    groups = rng.integers(3, size=n)
    first = np.arange(n) < -(-n // 2)
    queries = first if protocol in ("gallery", "groups of a gallery", "ids") else np.ones(n, dtype=bool)
    searched = ~first if protocol in ("gallery", "groups of a gallery") else np.ones(n, dtype=bool)
    gallery = {} if protocol in ("alone", "groups") else {"gallery_labels": y[searched]}
    others = {
        "groups": {"groups": groups},
        "groups of a gallery": {"groups": groups[queries], "gallery_groups": groups[searched]},
        "ids": {"ids": np.arange(n)[queries], "gallery_ids": np.arange(n)},
    }.get(protocol, {})
    table = ((x[queries][:, None] - x[searched]) ** 2).sum(axis=2)
    if distance == "euclidean":
        table = np.sqrt(table)
    if not gallery:
        np.fill_diagonal(table, rng.uniform(-1, 1, size=n))  # not read
    before = table.copy()
    others["ks"] = (1, 2, n)  # the whole ranking
    found = retrieve(table, y[queries], distance="precomputed", **gallery, **others)
    if gallery:
        gallery["gallery"] = x[searched]
    expected = retrieve(x[queries], y[queries], distance=distance, **gallery, **others)
    for name in set(found._fields) - {"n_in_gallery"}:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(table, before)


def test_precomputed_distances_have_all_scores_of_neighbors():
    x, y = samples()
    table = 1 - (u := x / np.linalg.norm(x, axis=1, keepdims=True)) @ u.T
    scores = evaluate(table, y, distance="precomputed")
    expected = evaluate(x, y, clustering=False)
    assert scores.to_dict() == expected.to_dict() | {"distance": "precomputed"}
    assert "leave-one-out, precomputed distance" in str(scores)
    gallery = evaluate(table[:20], y[:20], gallery_labels=y, distance="precomputed")
    assert "query-gallery, precomputed distance" in str(gallery)
    assert mean_average_precision(table, y, distance="precomputed") == mean_average_precision(x, y)


def test_torch_is_not_imported():
    code = "import sys, nearfar.evaluation; print('torch' in sys.modules, 'faiss' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == ["False"] * 2


def test_where_no_query_can_find_its_class_the_scores_say_why():
    pytest.importorskip("msgspec")
    rows = np.random.default_rng(0).normal(size=(6, 3))
    alone = evaluate(rows, np.arange(6))
    told = "There is no retrieval score: none of the 6 queries has another item of its class to find"
    assert alone.why_unscored() == f"{told} (6 classes); use items that share classes."
    assert np.isnan(alone.recall_at[1])
    assert alone.nmi is None  # as many clusters as items: 1, whatever the embeddings
    text = str(alone)
    assert text.splitlines()[-1] == alone.why_unscored()
    assert "nan" not in text
    assert type(alone).from_dict(alone.to_dict()).why_unscored() == alone.why_unscored()
    other = evaluate(rows, np.arange(6), gallery=rows, gallery_labels=np.arange(6) + 6)
    assert "has an item of its class to find (6 classes)" in other.why_unscored()
    grouped = evaluate(rows, np.arange(6) // 2, groups=np.arange(6) // 2)
    assert "has another item of its class to find in another group (3 classes)" in grouped.why_unscored()
    assert grouped.nmi is not None
    for scored in (evaluate(rows, np.arange(6) // 2), evaluate(rows, np.arange(6), lone="miss")):
        assert scored.why_unscored() == ""
        assert "no score" not in str(scored)


def test_a_gallery_that_contains_the_queries_is_told_and_ids_leave_the_query_itself_out():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(200, 16)), np.arange(200) % 20
    with pytest.warns(UserWarning, match="gallery: it contains all 200 queries"):
        itself = evaluate(rows, labels, gallery=rows, gallery_labels=labels, clustering=False)
    assert itself.recall_at[1] == 1.0
    assert "all queries are in the gallery and can find themselves" in itself.protocol_line()
    names = [f"item {number}" for number in range(200)]
    order = rng.permutation(200)
    gallery = {"gallery": rows[order], "gallery_labels": labels[order]}
    ids = {"ids": names, "gallery_ids": [names[at] for at in order]}
    without = evaluate(rows, labels, **gallery, **ids, clustering=False)
    alone = evaluate(rows, labels, clustering=False)
    assert without.recall_at == alone.recall_at
    assert without.map_at_r == alone.map_at_r
    assert "query-gallery, without the query itself" in without.protocol_line()
    assert "find themselves" not in without.protocol_line() + alone.protocol_line()
    part = evaluate(rows[:50], labels[:50], gallery=rows[40:], gallery_labels=labels[40:], clustering=False)
    assert "10 of the queries are in the gallery" in part.protocol_line()
    assert Scores.from_dict(part.to_dict()) == part
    pairs = verify(rows, labels, **gallery, **ids)
    assert (pairs.n_similar, pairs.auc) == (2 * verify(rows, labels).n_similar, pytest.approx(verify(rows, labels).auc))
    strangers = np.where(labels < 10, labels, labels + 100)
    known = order[labels[order] < 10]
    enrolled = {"gallery": rows[known], "gallery_labels": labels[known]}
    found = identify(rows, strangers, **enrolled, ids=np.arange(200), gallery_ids=known)
    assert found.rank_1 < 1 == identify(rows, strangers, **enrolled).rank_1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": [0, 1]}, "ids: expected ids and gallery_ids together"),
        ({"ids": [0, 1], "gallery": None, "gallery_labels": None}, "ids: works only with a gallery"),
        ({"ids": [0, 1], "gallery_ids": [0]}, "gallery_ids: expected"),
        ({"ids": [0, 1], "gallery_ids": [1, 0]}, "ids: row 0 and the gallery item of the same id are of different"),
        ({"ids": [0, 1], "gallery_ids": [0, 1], "groups": [0, 0]}, "ids: does not work with groups"),
        ({"ids": [0, 1], "group_by": [0, 1]}, "ids: does not work with group_by"),
    ],
)
def test_ids_that_do_not_fit_are_named(change, message):
    rows = {"gallery": [[1.0, 2.0], [3.0, 4.0]], "gallery_labels": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        recall_at_k([[1.0, 2.0], [0.0, 1.0]], ["a", "b"], **rows | change)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_distance_of_rows_is_the_one_that_ranks_them_better(grouped):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 12)
    groups = np.arange(120) if grouped else None
    directions = rng.normal(size=(10, 8))[labels] + 0.3 * rng.normal(size=(120, 8))
    assert best_distance(directions * rng.uniform(0.1, 5, size=(120, 1)), labels, groups=groups) == "cosine"
    lengths = np.ones(8) * (1 + labels[:, None]) + 0.1 * rng.normal(size=(120, 8))
    assert best_distance(lengths, labels, groups=groups) == "euclidean"
    assert best_distance(lengths, labels.tolist(), groups=groups, most=40) == "euclidean"
    assert best_distance(lengths, np.arange(120)) == "cosine"  # nothing to rank


def test_scores_of_one_class_say_that_they_say_nothing():
    rows = np.random.default_rng(0).normal(size=(6, 3))
    told = "These scores say nothing: no item that is searched is of another class; use items of several classes."
    assert told in str(evaluate(rows, np.zeros(6)))
    assert told not in str(evaluate(rows, np.arange(6) // 3))
    assert told not in str(evaluate(rows, np.zeros(6), gallery=rows, gallery_labels=np.arange(6) // 3))
