"""A run folder becomes a report, whatever happened to its data and its log."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearfar.data import open_task
from nearfar.evaluation import evaluate
from nearfar.report import ReportError, build_report, model_card, read_run, report_run

from .conftest import read_page

METRICS = """epoch,step,loss,part_TripletLoss,unseen_recall_at_1,unseen_recall_at_2,seen_recall_at_1,unseen_map_at_r
1,10,0.5,0.4,0.6,0.7,0.7,0.3
2,20,0.4,0.3,,,,
3,30,0.3,0.2,0.7,0.8,0.9,0.4
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Fake a finished run on digits: its embeddings are the pixels."""
    test = open_task("digits").test.subset(np.arange(80))
    assert test.array is not None
    rows = test.array.reshape(len(test), -1).astype(np.float32)
    scores = evaluate(rows, test.labels, clustering=False).to_dict()
    config = {"data": "digits", "objective": "TripletLoss() + JRS()", "seed": 3, "validation": 0.15}
    checkpoint = {"which": "best", "epoch": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "command.txt").write_text("nearfar train digits\n")
    (tmp_path / "environment.json").write_text(json.dumps({"python": "3.11", "versions": {"numpy": "2"}}))
    (tmp_path / "metrics.csv").write_text(METRICS)
    evaluated = {"protocol": "digits.", "scores": scores, "raw": scores, "checkpoint": checkpoint}
    (tmp_path / "scores.json").write_text(json.dumps(evaluated))
    records = [
        {"step": s, "epoch": 1, "parts": {"TripletLoss": 1 / s, "JRS": s}, "active": {"TripletLoss": 0.5}}
        for s in (1, 10, 20, 30)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, records)) + '\n{"step": 40, "par')
    np.savez(
        tmp_path / "test.npz",
        embeddings=rows,
        labels=test.labels,
        classes=np.array(test.classes),
        names=np.array(test.names),
    )
    return tmp_path


@pytest.mark.slow
def test_a_run_folder_becomes_a_page(run: Path) -> None:
    test = open_task("digits").test.subset(np.arange(80))
    path = report_run(run, test=test)
    page = read_page(path)
    assert path == run / "report.html"
    assert {"scores", "neighbors", "map", "training", "setup"} <= set(page.sections)
    assert "TripletLoss() + JRS() on digits" in page.text
    assert any((attrs["src"] or "").startswith("data:image/") for attrs in page.all("img"))


@pytest.mark.slow
def test_curves_come_from_log_and_metrics(run: Path) -> None:
    content = read_run(run, test=open_task("digits").test.subset(np.arange(80)))
    curves = {curve.name: curve for curve in content.losses}
    assert list(curves) == ["TripletLoss", "JRS", "active share, TripletLoss"]
    np.testing.assert_allclose(curves["JRS"].epochs, [0.1, 1, 2, 3])
    np.testing.assert_allclose(curves["JRS"].values, [1, 10, 20, 30])
    assert sorted(content.recalls) == [1, 2]
    seen, unseen = content.recalls[1]
    assert (seen.name, unseen.name) == ("seen", "unseen")
    assert unseen.epochs.tolist() == [1, 3]
    assert unseen.values.tolist() == [0.6, 0.7]
    assert [curve.name for curve in content.map_at_r] == ["unseen"]
    assert content.map_at_r[0].values.tolist() == [0.3, 0.4]
    assert content.best_epoch == 3
    assert content.seed == 3
    page = read_page(report_run(run, test=open_task("digits").test.subset(np.arange(80)))).text
    assert page.index("MAP@R after each evaluation") < page.index("Recall@1 after each evaluation")


@pytest.mark.slow
def test_changed_data_gives_a_report_without_pictures(run: Path) -> None:
    page = read_page(report_run(run, run / "other.html", test=open_task("digits").test))
    assert not page.all("img")
    assert "because the data have changed since the evaluation" in page.text


@pytest.mark.slow
def test_lost_data_gives_a_report_without_pictures(run: Path) -> None:
    config = json.loads((run / "config.json").read_text()) | {"data": str(run / "nowhere")}
    (run / "config.json").write_text(json.dumps(config))
    page = read_page(report_run(run))
    assert not page.all("img")
    assert "the test items could not be opened" in page.text


def test_a_run_without_log_and_metrics_is_enough(run: Path) -> None:
    for name in ("log.jsonl", "metrics.csv", "environment.json", "command.txt"):
        (run / name).unlink()
    content = read_run(run, test=open_task("digits").test.subset(np.arange(80)))
    assert not content.losses
    assert not content.recalls


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.json", "is not the folder of a run"),
        ("scores.json", "was not evaluated"),
        ("test.npz", "was not evaluated"),
    ],
)
def test_missing_files_are_one_clear_line(run: Path, missing: str, said: str) -> None:
    (run / missing).unlink()
    with pytest.raises(ReportError, match=said) as raised:
        report_run(run)
    assert "\n" not in str(raised.value)
    assert not (run / "report.html").exists()


def test_arrays_without_embeddings_are_refused(run: Path) -> None:
    np.savez(run / "test.npz", labels=np.zeros(3, int))
    with pytest.raises(ReportError, match="expected embeddings and labels, got labels"):
        report_run(run)


@pytest.mark.parametrize("name", ["config.json", "scores.json", "test.npz"])
def test_damaged_files_are_named(run: Path, name: str) -> None:
    (run / name).write_bytes((run / name).read_bytes()[:20])
    with pytest.raises(ReportError, match=name):
        report_run(run)


@pytest.mark.slow
def test_the_page_is_understood_without_its_anchors(run: Path) -> None:
    (run / "environment.json").write_text(json.dumps({"weights": "Weights: random (conv4)."}))
    scores = json.loads((run / "scores.json").read_text())
    scores["scores"] |= {"n_lone": 3, "distance": "euclidean"}
    (run / "scores.json").write_text(json.dumps(scores))
    page = " ".join(read_page(report_run(run, test=open_task("digits").test.subset(np.arange(80)))).text.split())
    assert "Scores Neighbors Classes Map Distances Directions Training Settings" in page
    assert "An item is relevant to a query if it is of the same class." in page
    assert "queries without a relevant item: 3 (left out of the means);" in page
    assert "Compared by Euclidean distance;" in page
    assert "weightsrandom (conv4)." in page
    assert page.count("Each chart has its own scale.") == 1


def test_the_ladder_says_over_how_many_splits_its_means_are(run: Path) -> None:
    rows = [
        {
            "name": name,
            "title": title,
            "recall_at_1": [0.5] * splits,
            "map_at_r": [0.4] * splits,
            "seconds": 1.0,
            "splits": splits,
            "recall_at_1_mean": 0.5,
            "recall_at_1_half_width": half,
            "map_at_r_mean": 0.4,
            "map_at_r_half_width": half,
        }
        for name, title, splits, half in (("raw", "raw pixels", 20, 0.1), ("head", "linear layer", 3, None))
    ]
    record = {"protocol": "20 splits.", "rows": rows, "worth": "head", "weights": "", "sentence": "Linear layer."}
    (run / "ladder.json").write_text(json.dumps(record))
    content = replace(read_run(run, pictures=False), queries=None, losses=(), recalls={}, map_at_r=())
    page = build_report(content, run / "ladder.html").read_text()
    table = re.search(r'<section id="ladder">.*?</section>', page, re.S)
    assert table is not None
    cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", table[0], re.S)]
    assert cells == [
        *("Rung", "Splits", "Recall@1", "MAP@R", "Seconds"),
        *("raw pixels", "20", "0.500 ± 0.100", "0.400 ± 0.100", "1.0"),
        *("linear layer", "3", "0.500", "0.400", "1.0"),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ladder.json", '{"rows": 3}'),
        ("ladder.json", '{"rows": [], "worth": "frozen"}'),
        ("ladder.json", '{"rows": [{"title": "", "name": "", "seconds": "x"}], "worth": ""}'),
        ("choice.json", '{"kept": "trained"}'),
        ("theory.json", '{"rows": [["a", 1]]}'),
        ("theory.json", '{"rows": [["a", "b", null]]}'),
    ],
)
def test_tables_that_are_damaged_are_one_line(run: Path, name: str, content: str) -> None:
    (run / name).write_text(content)
    with pytest.raises(ReportError, match="a file of the run is damaged, or of another version of nearfar") as found:
        report_run(run)
    assert "\n" not in str(found.value)
    assert not (run / "report.html").exists()


def test_the_title_names_what_was_kept_instead_of_the_trained_network(run: Path) -> None:
    candidates = [{"name": "raw", "title": "raw pixels"}, {"name": "trained", "title": "trained network"}]
    choice = {"kept": "raw", "candidates": candidates, "sentence": "Kept: raw pixels."}
    (run / "choice.json").write_text(json.dumps(choice))
    page = read_page(report_run(run))
    assert "Raw pixels on " in page.text
    assert "It is raw pixels, which held-out items prefer" in model_card(run)

    (run / "choice.json").write_text(json.dumps({**choice, "kept": "trained"}))
    assert "Raw pixels on " not in read_page(report_run(run)).text
    assert "It is raw pixels" not in model_card(run)
