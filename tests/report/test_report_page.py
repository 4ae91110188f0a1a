"""The page: complete, self-contained, escaped, small, and made of whatever content there is."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from hashlib import sha256
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from nearfar.report import Items, ReportContent, build_report
from nearfar.report.analysis import analyze
from nearfar.report.content import Curve, FeatureWeights
from nearfar.report.page import MAX_PAGE_BYTES
from nearfar.report.plots import Plotter
from nearfar.report.score_rows import describe, flat_scores, score_rows

from .conftest import NASTY, SECTIONS, digits, full_content, read_page


def build(content: ReportContent, folder: Path) -> Path:
    return build_report(content, folder / "report.html")


def rows_content(n: int = 12, classes: int = 2, **changes: object) -> ReportContent:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 6))
    labels = np.arange(n) % classes
    items = Items(rows, labels, [f"c{c}" for c in range(classes)], (), rows.__getitem__)
    return replace(ReportContent("Rows", "some rows", {"map_at_r": 0.5}, queries=items), **changes)


def test_all_sections_are_there_and_linked(full_report: Path) -> None:
    page = read_page(full_report)
    assert page.sections == SECTIONS
    targets = {(attrs.get("href") or "")[1:] for attrs in page.all("a")}
    assert targets == set(SECTIONS)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_nothing_is_loaded_from_elsewhere(full_report: Path) -> None:
    text = full_report.read_text()
    assert not re.search("https?:", text)
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    for tag, attrs in read_page(full_report).tags:
        assert tag not in {"iframe", "object", "embed", "base"}
        assert tag != "script" or "src" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith(("#", "data:"))
        if tag == "link":
            assert attrs["href"] == "data:,"


def test_every_picture_has_an_alternative_text(full_report: Path) -> None:
    page = read_page(full_report)
    assert page.all("img")
    assert all(attrs.get("alt") for attrs in page.all("img"))
    pictures = [attrs for attrs in page.all("svg") if attrs.get("aria-hidden") != "true"]
    assert len(pictures) > 6
    assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in pictures)


def test_text_of_users_is_escaped_and_complete(full_report: Path) -> None:
    page = read_page(full_report)
    assert [attrs.get("type") for attrs in page.all("script")] == ["application/json", None]  # data, and our script
    assert all("onerror" not in attrs for _, attrs in page.tags)
    for name in NASTY:
        assert name.rpartition("/")[2] in page.text
    assert "x<y" in page.text


def test_a_browser_runs_the_script_of_the_page_and_no_other(full_report: Path) -> None:
    (policy,) = [attrs["content"] for attrs in read_page(full_report).all("meta") if "http-equiv" in attrs]
    (script,) = re.findall(r"<script>(.*?)</script>", full_report.read_text(), re.S)
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    inside = "img-src data:; media-src data:; style-src 'unsafe-inline'"
    assert policy == f"default-src 'none'; {inside}; script-src 'sha256-{digest}'"
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(", script)  # names become text, not elements


def test_the_map_knows_the_neighbors_of_its_items(full_report: Path) -> None:
    content = full_content()
    assert content.queries is not None
    (text,) = re.findall(r'<script type="application/json" id="map-data">(.*?)</script>', full_report.read_text())
    data = json.loads(text)
    assert sorted(data["classes"]) == sorted(NASTY)
    assert len(data["items"]) == len(content.queries)
    distances = cdist(content.queries.embeddings, content.queries.embeddings, "cosine")
    np.fill_diagonal(distances, np.inf)
    for i, (name, kind, near) in enumerate(data["items"]):
        assert name == content.queries.names[i]
        assert data["classes"][kind] == content.queries.class_name(i)
        assert [place for place, _ in near] == np.argsort(distances[i], kind="stable")[:8].tolist()


def test_every_class_is_listed_with_its_interval(full_report: Path) -> None:
    content = full_content()
    assert content.queries is not None
    (table,) = re.findall(r'<table class="hardest".*?</table>', full_report.read_text(), re.S)
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="number">(.*?)</td>', table)
    assert sorted(unescape(name) for name, _ in rows) == sorted(NASTY)
    assert [float(recall) for _, recall in rows] == sorted(float(recall) for _, recall in rows)


def test_headline_scores_have_intervals_of_classes(tmp_path: Path) -> None:
    content = replace(full_content(), intervals=None)
    shown = read_page(build_report(content, tmp_path / "report.html")).text
    analysis = analyze(content)
    assert {"recall_at_1", "recall_at_8", "precision_at_2", "map_at_r"} <= analysis.intervals.keys()
    low, high = analysis.intervals["map_at_r"]
    assert low < flat_scores(content.scores)["map_at_r"] < high
    assert f"95% interval {low:.3f}–{high:.3f}" in shown
    other = replace(content, scores={"recall_at": {1: 0.123}})  # of another protocol: not the mean of these queries
    assert "recall_at_1" not in analyze(other).intervals


def test_color_is_never_the_only_sign(full_report: Path) -> None:
    text = full_report.read_text()
    for kind in ("right", "wrong"):
        framed = re.findall(rf'<li class="{kind}".*?</li>', text, flags=re.S)
        assert framed
        assert all('class="mark"' in item for item in framed)


def test_scores_stand_beside_baseline_chance_and_interval(full_report: Path) -> None:
    content = full_content()
    rows = {row.key: row for row in score_rows(content)}
    assert rows["recall_at_1"].baseline == 0.9
    assert rows["recall_at_1"].interval == (0.6, 0.8)
    assert 0 < (rows["recall_at_1"].chance or 0) < 0.5
    assert rows["nmi"].chance is None
    page = read_page(full_report)
    for name in ("Recall@1", "Recall@8", "MAP@R", "NMI, arithmetic", "NMI, geometric", "0.600–0.800"):
        assert name in page.text
    assert f"{rows['map_at_r'].value:.4f}" in page.text


def test_known_scores_are_described_and_others_are_not() -> None:
    assert describe("recall_at_4") == ("Recall@4", "share of queries with a relevant item among the 4 nearest")
    assert describe("recall_at") is None
    assert describe("map_at_r") is not None
    assert describe("n_queries") is None
    assert flat_scores({"nmi": None, "chance": {"mrr": 1.0}, "f1": 0.5, "lone": "miss"}) == {"f1": 0.5}


def test_only_scores_make_a_report(tmp_path: Path) -> None:
    page = read_page(build(ReportContent("Bare", "none", {"recall_at": {"1": 0.25}}), tmp_path))
    assert page.sections == ["scores"]
    assert "25 of 100 queries" in page.text


def test_no_score_at_all_makes_a_report(tmp_path: Path) -> None:
    assert "No score is known" in read_page(build(ReportContent("Bare", "none", {}), tmp_path)).text


@pytest.mark.slow
def test_rows_are_drawn_as_bars(tmp_path: Path) -> None:
    page = read_page(build(rows_content(), tmp_path))
    assert page.sections == ["scores", "neighbors", "confused", "map", "distances", "spectrum"]
    sources = [attrs["src"] or "" for attrs in page.all("img")]
    assert sources
    assert all(source.startswith("data:image/svg+xml") for source in sources)


@pytest.mark.slow
def test_items_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    def gone(i: int) -> np.ndarray:
        if i == 0:
            return np.zeros((4, 4, 1), np.uint8)
        raise FileNotFoundError(i)

    items = replace(digits(20), read=gone)
    page = read_page(build(ReportContent("Gone", "", {}, queries=items), tmp_path))
    assert "map" in page.sections
    assert re.search(r"digit \d+, .*?, class", page.text)


@pytest.mark.parametrize("ends", [(0.8, 0.9), (0.9, 0.8), (0.9, 0.9)])
def test_names_of_lines_that_end_close_together_do_not_meet(ends: tuple[float, float]) -> None:
    splits = zip(("seen", "unseen"), ends, strict=True)
    curves = [Curve(name, np.arange(3.0), np.array([0.1, 0.4, end])) for name, end in splits]
    drawn = Plotter().lines(curves, alt="", unit="Recall@1", share=True)
    heights = [float(y) for y in re.findall(r' y="([\d.]+)"[^>]*>(?:un)?seen</text>', drawn)]
    assert len(heights) == 2
    assert abs(heights[0] - heights[1]) > 10  # the size of the letters


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_few_items(n: int, tmp_path: Path) -> None:
    assert "scores" in read_page(build(rows_content(n), tmp_path)).sections


def test_one_class(tmp_path: Path) -> None:
    page = read_page(build(rows_content(8, 1), tmp_path))
    assert page.sections == ["scores", "neighbors", "confused", "map", "spectrum"]


def test_lone_classes_only(tmp_path: Path) -> None:
    page = read_page(build(rows_content(6, 6), tmp_path))
    assert page.sections == ["scores", "map", "spectrum"]


@pytest.mark.slow
def test_collapsed_embeddings(tmp_path: Path) -> None:
    items = Items(np.ones((12, 3)), np.arange(12) % 3, ["a", "b", "c"])
    page = read_page(build(ReportContent("Collapsed", "", {}, queries=items, distance="euclidean"), tmp_path))
    assert page.sections == ["scores", "neighbors", "confused", "distances", "spectrum"]


def test_collapsed_embeddings_are_said_to_be_that(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for distance, spread, told in (("cosine", 1e-3, True), ("cosine", 1.0, False), ("euclidean", 1e-9, True)):
        rows = np.array([3.0, 4.0, 1.0]) + spread * rng.normal(size=(12, 3))
        content = ReportContent(
            "Same", "", {}, queries=Items(rows, np.arange(12) % 3, ["a", "b", "c"]), distance=distance
        )
        page = read_page(build(content, tmp_path))
        assert ("The embeddings have collapsed" in page.text) == told
    said = replace(content, remarks=["The embeddings have collapsed: their mean cosine distance is 0."])
    assert read_page(build(said, tmp_path)).text.count("have collapsed") == 1


def test_a_curve_of_one_point_is_a_sentence(tmp_path: Path) -> None:
    once = np.ones(1)
    content = ReportContent(
        "Short",
        "",
        {"map_at_r": 0.5},
        losses=[Curve("TripletLoss", once, 0.25 * once), Curve("JRS", np.arange(2.0), np.arange(2.0))],
        recalls={1: [Curve("seen", once, 0.5 * once), Curve("unseen", once, 0.375 * once)]},
    )
    page = read_page(build(content, tmp_path))
    assert "Recall@1 was measured once, after epoch 1: 0.500 on seen classes, 0.375 on unseen classes." in page.text
    assert "TripletLoss: 0.25" in page.text
    charts = [attrs["aria-label"] for attrs in page.all("svg") if attrs.get("class") == "chart"]
    assert charts == ["JRS over training, from 0 to 1"]


def test_changed_settings_are_marked(tmp_path: Path) -> None:
    content = ReportContent(
        "Run",
        "",
        {"map_at_r": 0.5},
        settings={"data": "x", "lr": 0.1, "epochs": 20, "objective": NASTY[0]},
        defaults={"lr": 0.001, "epochs": 20, "objective": "TripletLoss()"},
    )
    path = build(content, tmp_path)
    page = path.read_text()
    changed = re.findall(r'<tr class="changed"><th scope="row">(\w+)</th>.*?<small>default: (.*?)</small>', page)
    assert changed == [("lr", "0.001"), ("objective", "TripletLoss()")]
    assert "Settings in bold differ from their defaults; a default of auto" in page
    assert "Settings in bold" not in build(replace(content, defaults={}), tmp_path).read_text()


def test_weights_of_features_stand_with_their_intervals(tmp_path: Path) -> None:
    weights = np.array([0.1, 0.7, 0.2])
    features = FeatureWeights(["a", NASTY[0], "c"], weights, weights - 0.05, weights + 0.05, fits=20)
    page = read_page(build(ReportContent("Table", "", {"map_at_r": 0.5}, features=features), tmp_path))
    assert page.sections == ["scores", "features"]
    assert page.text.index(NASTY[0]) < page.text.index("20.0%") < page.text.index("5.0–15.0%")
    assert "in 20 fits of the learner on random halves" in " ".join(page.text.split())
    alone = replace(features, low=None, high=None, fits=0)
    page = read_page(build(ReportContent("Table", "", {"map_at_r": 0.5}, features=alone), tmp_path))
    assert "there is no interval" in " ".join(page.text.split())


@pytest.mark.slow
def test_a_gallery_supplies_the_neighbors(tmp_path: Path) -> None:
    gallery = replace(digits(60), names=[f"shelf {i}" for i in range(60)])
    page = read_page(build(ReportContent("Shop", "", {}, queries=digits(20), gallery=gallery), tmp_path))
    assert "separate gallery" in page.text
    assert any("shelf" in (attrs["alt"] or "") for attrs in page.all("img"))


@pytest.mark.slow
def test_large_photographs_fit_into_the_limit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 30
    items = Items(
        rng.normal(size=(120, 4)),
        labels,
        [f"bird {c}" for c in range(30)],
        (),
        lambda i: np.random.default_rng(i).integers(0, 256, (300, 400, 3), np.uint8),
    )
    path = build(ReportContent("Noise", "", {}, queries=items), tmp_path)
    assert path.stat().st_size <= MAX_PAGE_BYTES < 5_000_000


@pytest.mark.slow
def test_the_same_content_gives_the_same_page(tmp_path: Path) -> None:
    first, second = (build_report(rows_content(), tmp_path / name) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_left_behind_by_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match=r"report.html: cannot be written \(disk full\)"):
        build(ReportContent("Bare", "none", {}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_items_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="one label each"):
        Items(np.zeros((3, 2)), np.zeros(2, int), ["a"])
    with pytest.raises(ValueError, match="index the 1 classes, got 0 to 1"):
        Items(np.zeros((2, 2)), np.arange(2), ["a"])
    with pytest.raises(ValueError, match="one per item"):
        Items(np.zeros((2, 2)), np.zeros(2, int), ["a"], ["x"])


def test_scores_over_training_have_no_tick_beyond_1() -> None:
    for values in ([1.0, 1.0, 1.0], [0.4, 0.9, 1.0]):
        curve = Curve("seen", np.arange(3.0), np.array(values))
        svg = Plotter().lines([curve, curve], alt="a", unit="Recall@1", best=1.0, share=True)
        ticks = [float(tick) for tick in re.findall(r">(\d\.\d+)</text>", svg)]
        assert len(ticks) > 1
        assert 1 - 0.2 < max(ticks) <= 1
