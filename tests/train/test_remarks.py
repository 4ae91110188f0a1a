"""What a run says of its own training: each remark where it is due, and none where it is not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from nearfar.evaluation import evaluate
from nearfar.report import report_run
from nearfar.train import TrainConfig, evaluate_run, train
from nearfar.train.remarks import always_frozen, collapsed, course, idle, remarks, worse_than_frozen, worse_than_raw

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
    assert "collapsed" in collapsed(1e-6 * one, CONFIG)
    near = one / np.linalg.norm(one, axis=1, keepdims=True)
    for spread, said in ((0.005, True), (0.02, False)):  # mean cosine distances of 0.0002 and of 0.003
        assert bool(collapsed(near + spread * rng.normal(size=near.shape), CONFIG)) == said
    assert not collapsed(rows(0.1), CONFIG)
    assert not collapsed(np.zeros((40, 8)), CONFIG)


def test_embeddings_worse_than_the_items():
    good, bad = (evaluate(rows(spread), LABELS, clustering=False) for spread in (0.1, 1.0))
    said = worse_than_raw(bad, good, CONFIG)
    theirs = f"Recall@1 {good.recall_at[1]:.3f} and MAP@R {good.map_at_r:.3f}"
    assert f"{theirs} against {bad.recall_at[1]:.3f} and {bad.map_at_r:.3f}" in said
    for trunk, linear in (("conv4", False), ("mlp(width=16)", True), ("identity", False)):
        assert ("--trunk identity" in worse_than_raw(bad, good, CONFIG.replace(trunk=trunk))) is linear
    assert not worse_than_raw(good, bad, CONFIG)
    assert not worse_than_raw(bad, None, CONFIG)
    assert not worse_than_raw(bad, replace(good, map_at_r=bad.map_at_r), CONFIG)
    assert not worse_than_raw(replace(good, map_at_r=good.map_at_r - 0.01), good, CONFIG)
    assert worse_than_raw(replace(good, map_at_r=good.map_at_r - 0.1), good, CONFIG)  # Recall@1 alone is nearly 1
    assert not worse_than_raw(good, good, CONFIG)


def test_a_training_worse_than_the_pretrained_trunk():
    good, bad = (evaluate(rows(spread), LABELS, clustering=False) for spread in (0.1, 1.0))
    said = worse_than_frozen(bad, good)
    assert said.startswith("The features of the pretrained trunk give better neighbors without this training (Recall@1")
    assert "--rung whitened" in said
    assert not worse_than_frozen(good, bad)
    assert not worse_than_frozen(bad, None)
    how = {"epochs": [], "log": [], "config": CONFIG, "frozen": good}
    assert remarks(rows(1.0), bad, **how, steps=200) == (said,)
    assert remarks(rows(1.0), bad, **how, steps=0) == ()  # nothing was trained


@pytest.mark.parametrize(
    ("scores", "word"),
    [
        ((0.7, 0.6, 0.5, 0.4), "The first of 4 evaluations was the best (validation MAP@R 0.700; at the end 0.400)"),
        ((0.3, 0.4, 0.5, 0.6), "still rose at the end (0.500 up to epoch 3, 0.600 at epoch 4)"),
        ((0.7, 0.6, 0.5), ""),
        ((0.7, 0.69, 0.69, 0.69), ""),
        ((0.3, 0.5, 0.6, 0.61), ""),
        ((0.3, 0.7, 0.5, 0.4), ""),
        ((0.6, 0.7, 0.5, 0.4), ""),
        ((0.3, 0.7, 0.5, 0.6), ""),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.71), "0.600 up to epoch 6, 0.710 at epoch 8"),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.70, 0.7, 0.71), ""),
        ((None, None, None, None), ""),
        ((), ""),
    ],
)
def test_the_course_of_the_validation(scores, word):
    said = course([{"unseen_map_at_r": None}, *table(*scores)], CONFIG.replace(select="map_at_r"))
    assert word in said
    assert bool(said) == bool(word)


def test_a_trunk_that_was_frozen_to_the_end():
    assert not always_frozen(CONFIG)
    assert not always_frozen(CONFIG.replace(freeze_epochs=2, epochs=3))
    assert "frozen for all 2 epochs (freeze_epochs=3)" in always_frozen(CONFIG.replace(freeze_epochs=3, epochs=2))
    config = CONFIG.replace(freeze_epochs=3, epochs=3)
    scores = evaluate(rows(0.1), LABELS, clustering=False)
    assert remarks(rows(0.1), scores, [], [], config, raw=scores) == (always_frozen(config),)


def test_easier_negatives_are_advised_only_where_the_hardest_are_mined():
    same = np.ones((40, 8)) + 1e-3 * np.random.default_rng(0).normal(size=(40, 8))
    for objective, said in (("SupConLoss()", False), ("TripletLoss(miner=BatchHard())", True)):
        config = CONFIG.replace(objective=objective)
        assert ("easier negatives than the hardest" in collapsed(same, config)) is said
        assert "lower" not in collapsed(same, config, steps=20)
        assert "after 20 batches. More epochs may spread them" in collapsed(same, config, steps=20)


def batches(*shares, name="TripletLoss"):
    return [{"step": k, "active": {name: share, "NPairLoss": 1.0}} for k, share in enumerate(shares)]


def test_a_loss_that_no_anchor_has():
    (said,) = idle(batches(*[1.0] * 12, *[0.01] * 4))
    assert said.startswith("At the end, almost no anchor had a TripletLoss above 0 (1.0% of them)")
    assert not idle(batches(*[1.0] * 13, *[0.01] * 3))
    assert not idle(batches(*[0.0] * 6, *[0.05] * 2))
    assert idle(batches(*[1.0] * 15, *[0.0] * 5))
    assert not idle([])


def test_a_loss_that_was_zero_from_the_beginning_needs_no_long_log():
    log = batches(0.0, 0.0)
    epochs = [{"epoch": 1.0, "part_TripletLoss": 0.0}, {"epoch": 2.0, "part_TripletLoss": 0.0}]
    (said,) = idle(log, epochs)
    assert said.startswith("The TripletLoss was 0 in every epoch, so nothing was learned from it: a larger margin")
    assert not idle(log, [epochs[0], {"epoch": 2.0, "part_TripletLoss": 1e-6}])
    assert not idle(log, [epochs[0], {"epoch": 2.0}])
    assert not idle([], epochs)


def test_a_larger_margin_is_advised_only_where_a_loss_has_one():
    (said,) = idle(batches(*[0.0] * 8, name="TripletLoss"))
    assert "a larger margin, harder negatives" in said
    (said,) = idle(batches(*[0.0] * 8, name="FacilityLocationLoss"))
    assert "margin" not in said


@pytest.mark.parametrize(("value", "said"), [(0.0, 1), (0.1, 1), (-17.6, 0), (None, 1)])
def test_a_loss_below_zero_still_learns_where_no_anchor_is_above(value, said):
    log = [
        {**record, "parts": {"ProxyNCALoss": value, "NPairLoss": -1.0}}
        for record in batches(*[0.0] * 8, name="ProxyNCALoss")
    ]
    assert len(idle(log)) == said


def test_few_batches_in_the_log_say_nothing_of_a_loss():
    assert not idle(batches(1.0, 0.0, 0.0, 0.0)[1:])
    damaged = [
        {"step": 1},
        {"step": 2, "active": {"TripletLoss": None}},
        {"step": 3, "active": None},
        {"active": [0.0]},
    ]
    assert not idle(damaged)
    assert not idle([*batches(*[0.0] * 3), *damaged])
    assert idle([*batches(*[0.0] * 24), damaged[1], damaged[2]])


@pytest.mark.slow
def test_remarks_are_kept_and_shown(tmp_path):
    config = TrainConfig.of(
        data="digits",
        objective="TripletLoss()",
        trunk="conv4(width=4)",
        embedding_dim=1,
        epochs=1,
        steps=5,
        image_size=16,
    )
    run = train(config, tmp_path / "run")
    result = evaluate_run(run)
    assert any("better neighbors than the embeddings" in said for said in result.remarks)
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["remarks"] == list(result.remarks)
    page = report_run(tmp_path / "run").read_text()
    assert all(said.replace("'", "&#39;") in page for said in result.remarks)


@pytest.mark.slow
def test_damaged_files_cost_remarks_only(tmp_path):
    config = TrainConfig.of(data="digits", trunk="identity", embedding_dim=2, steps=5, keep="trained")
    folder = train(config, tmp_path / "run").folder
    (folder / "metrics.csv").write_text("epoch,unseen_map_at_r\n1,abc\n")
    assert any("better neighbors" in said for said in evaluate_run(folder).remarks)
    (folder / "metrics.csv").unlink()
    scores = json.loads((folder / "scores.json").read_text())
    for odd in (None, [3, None]):
        (folder / "scores.json").write_text(json.dumps({**scores, "remarks": odd}))
        assert report_run(folder).is_file()
