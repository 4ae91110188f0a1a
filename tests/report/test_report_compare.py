"""The table of objectives: means, t-intervals, and the same numbers in every form."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from rich.console import Console

from nearfar.report import compare, write_comparison

from .conftest import read_page

RUNS = {
    "TripletLoss()": [{"recall_at": {1: r}, "map_at_r": r / 2} for r in (0.5, 0.6, 0.7)],
    "A | <b>B</b>": [{"recall_at": {"1": 0.65}, "map_at_r": 0.2}],
}
RAW = {"recall_at": {1: 0.3}, "map_at_r": 0.1}


def test_intervals_are_student_t() -> None:
    table = compare(RUNS)
    values = [0.5, 0.6, 0.7]
    mean = sum(values) / 3
    deviation = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
    t_two_degrees = 4.302652729911275
    assert table.mean("TripletLoss()", "recall_at_1") == pytest.approx(mean)
    assert table.half("TripletLoss()", "recall_at_1") == pytest.approx(t_two_degrees * deviation / 3**0.5)
    assert np.isnan(table.half("A | <b>B</b>", "recall_at_1"))


def test_unknown_scores_are_refused() -> None:
    expected = "scores: no run has 'recall'; expected map_at_r, recall_at_1"
    with pytest.raises(ValueError, match=expected):
        compare(RUNS, scores=["map_at_r", "recall"])
    assert compare(RUNS, scores=["map_at_r"]).scores == ("map_at_r",)


def test_markdown_marks_the_best_and_escapes_bars() -> None:
    lines = compare(RUNS, baseline=RAW).markdown().splitlines()
    assert lines[0] == "| Objective | Recall@1 | MAP@R | Seeds |"
    assert lines[2] == "| raw pixels | 0.300 | 0.100 | 1 |"
    assert lines[3] == "| `TripletLoss()` | 0.600 ± 0.248 | **0.300 ± 0.124** | 3 |"
    assert lines[4] == "| A \\| <b>B</b> | **0.650** | 0.200 | 1 |"


def test_scores_that_a_run_lacks_are_dashes() -> None:
    table = compare({"a": [{"f1": 0.5}], "b": [{"mrr": 0.5}]}, scores=["f1"])
    assert table.cell("b", "f1") == "-"
    assert table.best("f1") == "a"


def test_the_terminal_shows_the_same_numbers() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(compare(RUNS, baseline=RAW, note="three seeds").table())
    text = console.export_text()
    for said in ("0.600 ± 0.248", "A | <b>B</b>", "raw pixels", "three seeds"):
        assert said in text


def test_html_is_self_contained_and_escaped(tmp_path: Path) -> None:
    path = write_comparison(compare(RUNS, baseline=RAW, note="<i>x</i>"), tmp_path / "table.html")
    page = read_page(path)
    assert page.sections == ["compare"]
    assert "http:" not in path.read_text()
    assert "A | <b>B</b>" in page.text
    assert "0.600 ± 0.248" in page.text
    assert not page.all("b")
    charts = [attrs for attrs in page.all("svg") if "Recall@1 of 3 objectives" in (attrs["aria-label"] or "")]
    assert len(charts) == 2
    widths = [float((attrs["viewbox"] or "").split()[2]) for attrs in charts]
    assert widths[1] < 320  # points: what a telephone shows without making the text smaller


def test_scores_to_choose_by_come_first_and_are_not_drawn() -> None:
    runs = {name: [{"recall_at": {1: 0.5}, "validation_map_at_r": value}] for name, value in (("a", 0.2), ("b", 0.3))}
    table = compare(runs, baseline=RAW)
    assert table.scores[:2] == ("validation_map_at_r", "recall_at_1")
    assert table.markdown().startswith("| Objective | MAP@R, validation | Recall@1 |")
    assert table.best("validation_map_at_r") == "b"
    assert "Recall@1 in [0, 1]" in table.html()


def test_the_axis_ends_where_scores_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(Axes, "set", lambda axes, **given: shown.append(given.get("xlim")))
    compare({"TripletLoss()": [{"recall_at": {1: r}} for r in (0.2, 0.9)]}).html()  # 0.55 ± 4.4
    assert shown == [(-0.01, 1.01)] * 2


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ValueError, match="runs: expected at least one objective, got none"):
        compare({})
    with pytest.raises(ValueError, match="none of the scores"):
        compare({"a": [{"other": 1.0}]})
