"""Two models on the same items: what each finds, how sure the difference is, and the page of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from nearfar.evaluation import evaluate
from nearfar.report import Items, Other, build_report
from nearfar.report.paired_models import OtherItemsError, average_precision, compare_neighbors, difference
from nearfar.report.retrieval import query_neighbors

from .conftest import digits, full_content, read_page


def two(seed: int = 0, distance: str = "cosine") -> tuple[Items, Other]:
    items, rng = digits(), np.random.default_rng(seed)
    noisy = replace(items, embeddings=items.embeddings + rng.normal(0, 8, items.embeddings.shape), read=None)
    scores = evaluate(noisy.embeddings, noisy.labels, distance=distance)
    return items, Other("noisy", scores, noisy, None, distance)


def test_the_difference_and_its_interval_are_those_of_classes() -> None:
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, 7, 60))
    labels[labels == 3] = 4  # a class without queries
    a, b = rng.random(60), rng.random(60)
    told = difference(a, b, labels)
    assert told.size == pytest.approx(np.mean(a) - np.mean(b))
    d, total, classes = np.mean(a - b), 0.0, sorted(set(labels))
    for c in classes:
        total += (sum(a[q] - b[q] - d for q in range(60) if labels[q] == c)) ** 2
    C = len(classes)
    half = t.ppf(0.975, C - 1) * np.sqrt(C / (C - 1) * total) / 60
    assert told.interval == pytest.approx((d - half, d + half))
    assert difference(a, b, np.zeros(60, int)).interval is None


def test_the_interval_holds_what_it_should() -> None:
    """Classes with an offset of their own: of many draws 95% hold the true difference; by queries far fewer would."""
    rng, held = np.random.default_rng(1), []
    for _ in range(400):
        labels = np.repeat(np.arange(20), 15)
        scores = 0.1 + rng.normal(0, 1, 20)[labels] + rng.normal(0, 0.3, 300)
        low, high = difference(scores, np.zeros(300), labels).interval or (0, 0)
        held.append(low <= 0.1 <= high)
    assert 0.92 < np.mean(held) < 0.98


def test_means_are_the_scores_of_the_evaluation() -> None:
    items, other = two()
    found = query_neighbors(items, None, "cosine")
    assert found is not None
    told = compare_neighbors(found, other).differences
    mine = evaluate(items.embeddings, items.labels)
    for key, this, theirs in (
        ("recall_at_1", mine.recall_at[1], other.scores.recall_at[1]),
        ("map_at_r", mine.map_at_r, other.scores.map_at_r),
    ):
        assert told[key].this == pytest.approx(this)
        assert told[key].other == pytest.approx(theirs)


def test_groups_are_those_of_this_model_where_the_other_does_not_tell_them() -> None:
    items, other = two()
    groups = np.random.default_rng(0).integers(0, 2, len(items))
    found = query_neighbors(replace(items, groups=groups), None, "cosine")
    assert found is not None
    told = compare_neighbors(found, other).differences
    for key, this, theirs in zip(told, *(grouped(each, groups) for each in (items, other.queries)), strict=True):
        assert told[key].this == pytest.approx(this)
        assert told[key].other == pytest.approx(theirs)


def grouped(items: Items, groups: np.ndarray) -> tuple[float, float]:
    scores = evaluate(items.embeddings, items.labels, groups=groups, clustering=False)
    return scores.recall_at[1], scores.map_at_r


def test_average_precision_is_not_told_of_neighbors_not_looked_at() -> None:
    items = digits()
    few = query_neighbors(items, None, "cosine", depth=5)
    assert few is not None
    assert average_precision(few) is None


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_queries_are_those_that_one_model_alone_finds(distance: str) -> None:
    items, other = two(distance=distance)
    found = query_neighbors(items, None, "cosine")
    assert found is not None
    against = compare_neighbors(found, other)
    mine, theirs = against.this.right[:, 0], against.other.right[:, 0]
    assert against.counts() == (
        (mine & theirs).sum(),
        (mine & ~theirs).sum(),
        (~mine & theirs).sum(),
        (~mine & ~theirs).sum(),
    )
    assert sum(against.counts()) == len(items)
    assert len(against.gained)
    assert mine[against.gained].all()
    assert not theirs[against.gained].any()
    assert theirs[against.lost].all()
    assert not mine[against.lost].any()
    ranks = against.other.rank_of_first_relevant()[against.gained]
    assert (np.diff(ranks) <= 0).all()
    assert np.bincount(items.labels[against.gained]).max() <= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda items: digits(100), "noisy: has 100 items, expected the same 150 items as this model"),
        (
            lambda items: replace(items, labels=items.labels[::-1]),
            "noisy: has other items; number 0 is 'digit 5",
        ),
        (lambda items: replace(items, names=[*items.names[:-1], "x"]), "number 149 is 'x' of class"),
    ],
)
def test_other_items_are_refused(change, message) -> None:
    items, other = two()
    found = query_neighbors(items, None, "cosine")
    assert found is not None
    with pytest.raises(OtherItemsError, match=message):
        compare_neighbors(found, replace(other, queries=change(items)))
    with pytest.raises(OtherItemsError, match="only one of the two has a gallery"):
        compare_neighbors(found, replace(other, gallery=items))


def test_a_gallery_is_compared_too() -> None:
    items, other = two()
    found = query_neighbors(items, replace(items), "cosine")
    assert found is not None
    against = compare_neighbors(found, replace(other, gallery=other.queries))
    assert against.counts()[0] == len(items)  # every item finds itself


@pytest.mark.slow
def test_the_page_shows_both(tmp_path: Path) -> None:
    content = full_content()
    other = replace(two()[1], name="<b>before</b>")
    page = read_page(build_report(replace(content, other=other), tmp_path / "a.html"))
    assert page.sections[1] == "against"
    assert "Against <b>before</b>: Recall@1 +0." in page.text
    assert "clearly better" in page.text
    assert "Correct with this model only" in page.text
    worse = Other("x", content.scores, content.queries)
    page = read_page(build_report(replace(content, other=worse), tmp_path / "b.html"))
    assert "no clear difference" in page.text
    assert "alone, the clearest" not in page.text


def test_names_may_be_an_array() -> None:
    items, other = two()
    names = np.array([f"photo {i}" for i in range(len(items))])
    named = replace(items, names=names)
    assert named.name(3) == "photo 3"
    found = query_neighbors(named, None, "cosine")
    assert found is not None
    compare_neighbors(found, replace(other, queries=replace(other.queries, names=names)))
    with pytest.raises(OtherItemsError, match="number 0 is 'photo 1'"):
        compare_neighbors(found, replace(other, queries=replace(other.queries, names=np.roll(names, -1))))


def test_names_that_only_number_the_items_of_an_array_are_not_compared_with_others() -> None:
    items, other = two()
    found = query_neighbors(replace(items, names=[f"before[{i}]" for i in range(len(items))]), None, "cosine")
    assert found is not None
    for names in ([f"after[{i}]" for i in range(len(items))], items.names):
        against = compare_neighbors(found, replace(other, queries=replace(other.queries, names=names)))
        assert sum(against.counts()) == len(items)
    others = [f"before[{i + 1}]" for i in range(len(items))]
    with pytest.raises(OtherItemsError, match=r"number 0 is 'before\[1\]'"):
        compare_neighbors(found, replace(other, queries=replace(other.queries, names=others)))
