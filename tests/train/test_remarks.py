"""What a run says of its own training: each remark where it is due, and none where it is not."""

import json

import numpy as np
import pytest

from nearfar.evaluation import evaluate
from nearfar.report import report_run
from nearfar.train import TrainConfig, evaluate_run, train
from nearfar.train.remarks import collapsed, course, idle, unlearned

CONFIG = TrainConfig.of(data="digits", lr=0.3)
LABELS = np.repeat(np.arange(4), 10)


def rows(spread, seed=0):
    rng = np.random.default_rng(seed)
    return np.eye(4, 8)[LABELS] + spread * rng.normal(size=(40, 8))


def table(*scores):
    return [{"epoch": k + 1.0, "unseen_map_at_r": score, "seen_map_at_r": 1.0} for k, score in enumerate(scores)]


def test_one_direction_is_a_collapse_whatever_the_lengths():
    rng = np.random.default_rng(0)
    one = np.ones(8) * rng.uniform(1, 5, (40, 1)) + 1e-3 * rng.normal(size=(40, 8))
    assert "below 0.3" in collapsed(one, CONFIG)
    assert "collapsed" in collapsed(np.zeros((40, 8)) + 1.0, CONFIG)
    assert not collapsed(rows(0.1), CONFIG)
    assert not collapsed(np.zeros((40, 8)), CONFIG)


def test_embeddings_worse_than_the_items():
    good, bad = (evaluate(rows(spread), LABELS, clustering=False) for spread in (0.1, 1.0))
    assert f"Recall@1 {good.recall_at[1]:.3f} against {bad.recall_at[1]:.3f}" in unlearned(bad, good)
    assert not unlearned(good, bad)
    assert not unlearned(good, good)


@pytest.mark.parametrize(
    ("scores", "word"),
    [
        ((0.7, 0.6, 0.5, 0.4), "The first of 4 evaluations was the best (validation MAP@R 0.700, at the end 0.400)"),
        ((0.3, 0.4, 0.5, 0.6), "still rose at the end (0.500 up to epoch 3, 0.600 at epoch 4)"),
        ((0.7, 0.6, 0.5), ""),
        ((0.7, 0.69, 0.69, 0.69), ""),
        ((0.3, 0.5, 0.6, 0.61), ""),
        ((0.3, 0.7, 0.5, 0.4), ""),
        ((None, None, None, None), ""),
        ((), ""),
    ],
)
def test_the_course_of_the_validation(scores, word):
    said = course(table(*scores), CONFIG.replace(select="map_at_r"))
    assert word in said
    assert bool(said) == bool(word)


def test_a_loss_that_no_anchor_has():
    log = [{"step": k, "active": {"TripletLoss": 1.0 if k < 8 else 0.01, "NPairLoss": 1.0}} for k in range(12)]
    assert [said[:45] for said in idle(log)] == ["Towards the end only 1.0% of the anchors had "]
    assert "a TripletLoss" in idle(log)[0]
    assert not idle(
        [{"step": 1}, {"step": 2, "active": {"TripletLoss": None}}, {"step": 3, "active": None}, {"active": [0.0]}]
    )
    assert not idle([])


def test_remarks_are_kept_and_shown(tmp_path):
    config = TrainConfig.of(data="digits", objective="TripletLoss()", embedding_dim=1, epochs=1)
    run = train(config, tmp_path / "run")
    result = evaluate_run(run)
    assert any("better neighbours than their embeddings" in said for said in result.remarks)
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["remarks"] == list(result.remarks)
    page = report_run(tmp_path / "run").read_text()
    assert all(said.replace("'", "&#39;") in page for said in result.remarks)
