"""Wrong labels are found by models that have not seen them, and what was decided of them trains on."""

import csv
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.data import open_dataset
from nearfar.evaluation import hard_negatives, pairs_across, suspects
from nearfar.evaluation.suspects import (
    EMPHASIS,
    LEAST_VOTE,
    MEAN_WEIGHT,
    NEIGHBORS,
    SHRINKAGE,
    VOTE_TEMPERATURE,
    stratified_folds,
)
from nearfar.index.paths import relative_path
from nearfar.numerics.whitening import discriminant_whitening
from nearfar.workflows.suspecting import suspects as find_suspects

from ..commands import run


def classes_of_rows(seed=0, wrong=0, spread=1.0):
    """Rows of six classes; the labels of the first `wrong` rows are of the next class."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(120) % 6)
    rows = 2.0 * np.eye(6)[labels] + 0.5 + spread * rng.normal(size=(120, 6)) / 3
    given = labels.copy()
    given[:wrong] = (labels[:wrong] + 1) % 6
    return rows, labels, given


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scores_by_loops(rows, labels, folds):
    """s_c of every item, from the formula, one item at a time."""
    rows = unit(rows)
    classes = labels.max() + 1
    scores = np.empty((len(rows), classes))
    for fold in np.unique(folds):
        known = np.flatnonzero(folds != fold)
        model = discriminant_whitening(rows[known], labels[known], shrinkage=SHRINKAGE, emphasis=1.0)
        white = (rows - model.mean) @ model.components.T
        means = np.array([white[known][labels[known] == c].mean(axis=0) for c in range(classes)])
        span = np.linalg.svd((means - means.mean(axis=0)).T, full_matrices=False)[0][:, : classes - 1]
        bent = white - means.mean(axis=0)
        bent = unit(bent + (EMPHASIS - 1) * bent @ span @ span.T)
        for i in np.flatnonzero(folds == fold):
            cosines = bent[known] @ bent[i]
            near = np.argsort(-cosines)[:NEIGHBORS]
            votes = np.zeros(classes)
            for j in near:
                votes[labels[known][j]] += np.exp((cosines[j] - cosines[near[0]]) / VOTE_TEMPERATURE)
            votes /= votes.sum()
            for c in range(classes):
                nearness = -((white[i] - means[c]) ** 2).sum() / 2
                scores[i, c] = MEAN_WEIGHT * nearness + np.log(votes[c] + LEAST_VOTE)
    return scores


def test_doubt_equals_loops():
    rows, _, given = classes_of_rows(wrong=6, spread=2.0)
    found = suspects(rows, given, repeats=1, seed=3)
    scores = scores_by_loops(rows, given, stratified_folds(given, 5, np.random.default_rng(3)))
    own = scores[np.arange(120), given].copy()
    scores[np.arange(120), given] = -np.inf
    np.testing.assert_allclose(found.doubt, scores.max(axis=1) - own, atol=1e-9)
    np.testing.assert_array_equal(found.suggested, scores.argmax(axis=1))


def test_wrong_labels_come_first_with_their_right_class():
    rows, labels, given = classes_of_rows(wrong=6)
    names = np.array(["ash", "birch", "cedar", "elm", "fir", "oak"])
    found = suspects(rows, names[given])
    assert found.classes == names.tolist()
    assert set(found.ranked()[:6].tolist()) == set(range(6))
    assert [found.classes[place] for place in found.suggested[:6]] == names[labels[:6]].tolist()


def test_no_item_is_judged_by_its_own_label():
    """What is said of an item for all classes is the same whatever its label says."""
    rows, _, given = classes_of_rows(spread=2.0)
    folds = np.arange(120) % 5
    own = folds == folds[0]
    from nearfar.evaluation.suspects import judge

    other = given.copy()
    other[0] = (given[0] + 2) % 6
    for first, second in zip(
        judge(unit(rows), given, ~own, np.flatnonzero(own)),
        judge(unit(rows), other, ~own, np.flatnonzero(own)),
        strict=True,
    ):
        np.testing.assert_array_equal(first, second)


def test_folds_are_spread_over_each_class():
    labels = np.repeat([0, 1, 2], [11, 2, 1])
    folds = stratified_folds(labels, 5, np.random.default_rng(0))
    counts = np.bincount(folds[labels == 0], minlength=5)
    assert counts.max() - counts.min() == 1
    assert len(set(folds[labels == 1])) == 2


def test_an_item_alone_in_its_class_is_no_suspect():
    rows, _, given = classes_of_rows()
    given[0] = 6
    found = suspects(rows, given)
    assert found.doubt[0] == -np.inf
    assert 0 not in found.ranked()


def test_equal_rows_stay_finite():
    found = suspects(np.ones((12, 3)), np.arange(12) % 3)
    assert np.isfinite(found.doubt).all()


def test_pairs_across_equal_loops():
    rows, _, given = classes_of_rows(spread=3.0)
    cosines = unit(rows) @ unit(rows).T
    cosines[given[:, None] == given] = -np.inf
    other = cosines.argmax(axis=1)
    expected = {tuple(sorted((i, int(j)))): 1 - cosines[i, j] for i, j in enumerate(other)}
    pairs = sorted(expected, key=lambda pair: (expected[pair], pair))[:15]
    found = pairs_across(rows, given, 15)
    assert list(zip(found.i.tolist(), found.j.tolist(), strict=True)) == pairs
    np.testing.assert_allclose(found.distances, [expected[pair] for pair in pairs], atol=1e-12)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("margin", [1.0, 0.9])
def test_hard_negatives_equal_loops(margin, distance, grouped):
    rows, _, given = classes_of_rows(spread=3.0)
    given[5] = 6  # alone
    suspect = np.arange(120) % 7 == 0
    groups = np.arange(120) // 3 if grouped else np.arange(120)
    near = unit(rows) @ unit(rows).T
    factor = margin
    if distance == "euclidean":
        near = -np.linalg.norm(rows[:, None] - rows, axis=2)
        factor = 1 / margin
    found = hard_negatives(
        rows, given, k=4, margin=margin, suspect=suspect, distance=distance, groups=groups if grouped else None
    )
    for i in range(120):
        mates = [j for j in range(120) if given[j] == given[i] and groups[j] != groups[i]]
        limit = factor * max(near[i, mates]) if mates else np.inf
        others = [j for j in range(120) if given[j] != given[i] and not suspect[j] and near[i, j] <= limit]
        expected = sorted(others, key=lambda j: (-near[i, j], j))[:4]
        np.testing.assert_allclose(found.similarities[i, : len(expected)], near[i, expected], atol=1e-7)
        assert found.indices[i].tolist() == expected + [-1] * (4 - len(expected))


def test_suspects_by_euclidean_distance_depend_on_lengths_but_not_on_the_unit():
    rows, _, given = classes_of_rows(spread=3.0)
    stretched = rows * np.random.default_rng(1).uniform(0.2, 5, size=(120, 1))
    doubts = [suspects(x, given, distance="euclidean").doubt for x in (rows, 1024 * rows, stretched)]
    np.testing.assert_array_equal(doubts[0], doubts[1])
    assert not np.allclose(doubts[0], doubts[2])
    np.testing.assert_allclose(suspects(rows, given).doubt, suspects(stretched, given).doubt)
    np.testing.assert_allclose(suspects(unit(rows), given, distance="euclidean").doubt, suspects(rows, given).doubt)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: suspects(x, np.arange(120) % 3, distance="far"), "distance: expected one of cosine, euclidean"),
        (lambda x: hard_negatives(x, np.arange(120) % 3, distance="far"), "distance: expected one of cosine"),
        (lambda x: suspects(x, np.zeros(120)), "labels: expected at least 2 classes, got 1"),
        (lambda x: suspects(x, np.arange(120)), "labels: expected a class with at least 2 items"),
        (lambda x: suspects(x, np.arange(120) % 3, folds=1), "folds: expected an integer of at least 2, got 1"),
        (lambda x: hard_negatives(x, np.arange(120) % 3, margin=2), "margin: expected a number in 0..1, got 2"),
        (lambda x: hard_negatives(x, np.arange(120) % 3, suspect=[True]), "suspect: expected 120 values"),
        (lambda x: pairs_across(x, np.zeros(120)), "labels: expected at least 2 classes, got 1"),
    ],
)
def test_bad_input_is_told(call, told):
    with pytest.raises(ValueError, match=told):
        call(classes_of_rows()[0])


def test_the_command_writes_tables_and_a_page(tmp_path, capsys, monkeypatch):
    pytest.importorskip("jinja2")
    pytest.importorskip("msgspec")
    rows, labels, given = classes_of_rows(wrong=4)
    names = np.array([f"=item {i}" for i in range(120)])
    classes = np.array(["ash", "birch", "cedar", "elm", "fir", "oak"])
    file = tmp_path / "rows.npz"
    np.savez(file, embeddings=rows, labels=given, names=names, classes=classes)
    code, out, _ = run(capsys, monkeypatch, "suspects", file)
    assert code == 0
    assert out.splitlines()[-1].startswith("4 of 120 items are probably of another class, by ")

    table = tmp_path / "suspects.csv"
    assert run(capsys, monkeypatch, "suspects", file, "-o", table)[0] == 0
    with table.open(newline="") as handle:
        listed = [*csv.DictReader(handle)]
    assert {row["name"] for row in listed} == {f"'=item {i}" for i in range(4)}  # no formula of a spreadsheet
    page = tmp_path / "suspects.html"
    assert run(capsys, monkeypatch, "suspects", file, "-o", page)[0] == 0
    assert page.read_text().count('class="decide"') == 4

    for row in listed:
        row["decision"] = row["suggested"]
    listed[-1]["decision"] = "remove"
    with table.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, listed[0])
        writer.writeheader()
        writer.writerows(listed)
    corrected = tmp_path / "corrected.npz"
    code, out, _ = run(capsys, monkeypatch, "suspects", file, "--decided", table, "-o", corrected)
    assert code == 0
    assert "119 items, 3 with another class, 1 removed" in out
    read = open_dataset(str(corrected))
    known = {name: classes[label] for name, label in zip(names, labels, strict=True)}
    assert all(read.classes[label] == known[name] for name, label in zip(read.names, read.labels, strict=True))

    groups = np.array([f"group of {name}" for name in names])
    np.savez(file, embeddings=rows, labels=given, classes=classes, names=names, groups=groups, distance="euclidean")
    assert run(capsys, monkeypatch, "suspects", file, "--decided", table, "-o", corrected, "--overwrite")[0] == 0
    with np.load(corrected) as arrays:
        assert str(arrays["distance"]) == "euclidean"
        assert arrays["groups"].tolist() == [f"group of {name}" for name in arrays["names"]]

    pairs = run(capsys, monkeypatch, "suspects", file, "--across", "3")[1]
    assert len(pairs.splitlines()) == 3
    hard = tmp_path / "hard.csv"
    assert run(capsys, monkeypatch, "suspects", file, "--negatives", "2", "-o", hard)[0] == 0
    with hard.open(newline="") as handle:
        assert all(row["label"] != row["label of negative"] for row in csv.DictReader(handle))


@pytest.mark.slow
def test_hard_negatives_are_mined_trained_on_and_compared_in_three_commands(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    classes = np.arange(96) % 12
    np.savez("rows.npz", X=rng.normal(size=(12, 6))[classes] + rng.normal(size=(96, 6)), y=classes)
    short = ("--epochs", "1", "--set", "batch_size=24")
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    blocks = [block for _, block in re.findall(r"^```(\w*)\n(.*?)^```", page, re.S | re.M)]
    (block,) = (block for block in blocks if "--negatives" in block)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert [command[0] for command in commands] == ["suspects", "train", "compare"]
    told = []
    for command in commands:
        words = [word.replace("features.npz", "rows.npz").replace("things.csv", "rows.npz") for word in command]
        more = {"suspects": (), "train": short, "compare": (*short, "--seeds", "1")}[words[0]]
        code, out, err = run(capsys, monkeypatch, *words, *more)
        assert code == 0, err
        told.append(out)
    with open("hard.csv", newline="") as handle:
        uses = [row["use"] for row in csv.DictReader(handle)]
    assert {*uses} == {"negative", "doubtful"}
    assert f"{uses.count('negative'):,} negatives of 96 items, and {uses.count('doubtful'):,} nearer ones" in told[0]
    assert re.search(r"\d+ pairs listed in hard.csv, \d+ doubtful ones left out", told[1])
    assert "pairs=hard.csv" in told[2].replace('"', "")


def test_a_corrected_table_of_images_trains(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    from PIL import Image

    rng = np.random.default_rng(0)
    labels = np.arange(24) % 2
    paths = []
    for i in range(24):
        path = tmp_path / "photos" / ("low", "high")[labels[i]] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(100 * labels[i], 100 * labels[i] + 60, (8, 8), dtype=np.uint8)).save(path)
        paths.append(path.relative_to(tmp_path / "photos").as_posix())
    features = tmp_path / "features.npz"
    rows = np.stack([1.0 - labels, labels + 0.0], axis=1) + 0.1 * rng.normal(size=(24, 2))
    given = labels.copy()
    given[3] = 0
    np.savez(
        features, embeddings=rows, labels=given, classes=["low", "high"], names=paths, folder=str(tmp_path / "photos")
    )
    decisions = tmp_path / "decisions.csv"
    decisions.write_text(f"name,label,decision\n{paths[3]},low,high\n")
    table = tmp_path / "corrected.csv"
    code, out, err = run(capsys, monkeypatch, "suspects", features, "--decided", decisions, "-o", table)
    assert code == 0, err
    assert "24 items, 1 with another class, 0 removed" in out
    read = open_dataset(str(table))
    assert read.kind == "image"
    assert [read.classes[label] for label in read.labels] == [("low", "high")[label] for label in labels]
    assert read.read(0).shape[:2] == (8, 8)


def test_paths_on_another_drive_are_absolute(monkeypatch):
    def refused(path, start):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    assert relative_path("/photos/a.png", "/photos/lists") == os.path.join("..", "a.png")
    monkeypatch.setattr(os.path, "relpath", refused)
    assert relative_path("/photos/a.png", "/lists") == os.path.abspath("/photos/a.png")


def test_bad_words_are_told(tmp_path, capsys, monkeypatch):
    rows, _, given = classes_of_rows()
    file = tmp_path / "rows.npz"
    np.savez(file, embeddings=rows, labels=given)
    unknown = tmp_path / "unknown.csv"
    unknown.write_text("name,decision\nnobody,remove\n")
    columns = tmp_path / "columns.csv"
    columns.write_text("a,b\n1,2\n")
    long = tmp_path / "long.csv"
    long.write_text(f"name,decision\n{'x' * 140_000},keep\n")
    for given_words, told in (
        (("--decided", long, "-o", tmp_path / "c.npz"), "long.csv: not a readable CSV file (field larger than"),
        (("-k", "-1"), "-k: expected 1 or more, got -1"),
        (("--across", "0"), "--across: expected 1 or more, got 0"),
        (("--decided", unknown), "--decided: needs --out, the file for the table"),
        (("--decided", unknown, "-o", tmp_path / "c.npz"), "no item is named 'nobody' (1 of 1 are unknown)"),
        (("--decided", columns, "-o", tmp_path / "c.npz"), "expected the columns name and decision"),
        (("--decided", tmp_path / "none.csv", "-o", tmp_path / "c.npz"), "none.csv: no such file"),
        (("--across", "3", "--negatives", "3"), "--across: does not work with --negatives"),
        (("-o", tmp_path / "c.txt"), "expected a file that ends in .csv or .html"),
    ):
        code, _, err = run(capsys, monkeypatch, "suspects", file, *given_words)
        assert code == 2
        assert told in err
        assert not (tmp_path / "c.npz").exists()


def test_items_of_one_group_do_not_vouch_for_each_other():
    """Objects of four photos each; all photos of some objects have the label of another class."""
    rng = np.random.default_rng(0)
    n_classes, n_objects, photos = 6, 12, 4
    true = np.repeat(np.arange(n_classes), n_objects)  # class of each object
    centers = 2.5 * rng.normal(size=(n_classes, 16))[true] + rng.normal(size=(len(true), 16))
    given = true.copy()
    wrong = rng.choice(len(true), 8, replace=False)
    given[wrong] = (given[wrong] + 1) % n_classes
    groups = np.repeat(np.arange(len(true)), photos)
    rows = centers[groups] + 0.1 * rng.normal(size=(len(groups), 16))
    labels = given[groups]
    mistaken = np.isin(groups, wrong)
    alone, together = (suspects(rows, labels, groups=by).doubt > 0 for by in (None, groups))
    assert together[mistaken].mean() > 0.9 > 0.7 > alone[mistaken].mean()
    assert together[~mistaken].mean() < 0.05
    one_group = suspects(rows, labels, groups=np.where(labels == 0, 1000, groups)).doubt
    assert np.isneginf(one_group[labels == 0]).all()  # nobody else can judge them
    with pytest.raises(ValueError, match="labels: expected a class with at least 2 groups"):
        suspects(rows, labels, groups=np.zeros(len(rows)))


def test_more_suspects_than_wrong_labels_explain_are_remarked_on(tmp_path):
    rng = np.random.default_rng(0)
    many = rng.normal(size=(60, 4))  # pairs that nothing separates
    np.savez(tmp_path / "pairs.npz", embeddings=many, labels=np.arange(60) // 2)
    assert "this model does not separate these classes (the median class has 2 items)" in find_suspects(
        tmp_path / "pairs.npz"
    )
    apart = np.repeat(10 * np.eye(4), 15, axis=0) + rng.normal(size=(60, 4))
    labels = np.arange(60) // 15
    labels[:2] = 1
    np.savez(tmp_path / "apart.npz", embeddings=apart, labels=labels)
    assert "so many" not in find_suspects(tmp_path / "apart.npz")


def test_the_function_takes_data_beside_a_learner(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    labels = np.arange(30) % 3
    nearfar.CovarianceMetric().fit(rows).save(tmp_path / "metric.safetensors")
    np.savez(tmp_path / "rows.npz", x=rows, y=labels)
    assert "of 30 items are probably of another class" in find_suspects(
        tmp_path / "metric.safetensors", tmp_path / "rows.npz"
    )
