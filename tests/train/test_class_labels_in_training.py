"""Networks that are trained on sets of labels, and on levels of classes."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import nearfar
import nearfar.report
from nearfar import workflows
from nearfar.cli import app
from nearfar.data import DataError, open_items, open_task
from nearfar.data.checks.inspection import inspect_data
from nearfar.data.open import read_levels, with_levels
from nearfar.deep import LabelSets
from nearfar.evaluation import Scores
from nearfar.evaluation.graded import label_set_scores_of_queries
from nearfar.evaluation.protocol import evaluate_queries
from nearfar.index import building
from nearfar.index.stores import open_store
from nearfar.io.scores_file import read_scores
from nearfar.models.embedded import Selection, embed_source, embed_to
from nearfar.models.written import write_embeddings
from nearfar.report import report_run
from nearfar.train import TrainConfig, TrainError, evaluate_run, train
from nearfar.train.relevance import Searched, with_relevance
from nearfar.train.rungs.choice import can_compare
from nearfar.train.settle import settle
from nearfar.train.setup import build, build_loop
from nearfar.workflows.collected import collect
from nearfar.workflows.scoring import score

HOW = {"device": "cpu", "batch_size": 24, "epochs": 1, "keep": "trained", "validation": 0.2}


def write(path, head, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return str(path)


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    rng = np.random.default_rng(0)
    species = np.arange(96) % 16
    X = rng.normal(size=(16, 4))[species] + rng.normal(size=(96, 4))
    rows = [[f"s{s}", f"g{s // 4}", *x] for s, x in zip(species, X.round(3), strict=True)]
    return write(tmp_path_factory.mktemp("birds") / "birds.csv", ["species", "genus", *"wxyz"], rows)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    rng = np.random.default_rng(0)
    has = rng.random((80, 5)) < 0.3
    has[~has.any(1), 0] = True
    X = has @ rng.normal(size=(5, 4)) + 0.3 * rng.normal(size=(80, 4))
    rows = [[";".join(np.array([*"abcde"])[h]), *x] for h, x in zip(has, X.round(3), strict=True)]
    return write(tmp_path_factory.mktemp("sets") / "sets.csv", ["labels", *"wxyz"], rows)


def test_the_objective_is_the_sum_over_the_levels(birds):
    config = TrainConfig.of(data=birds, label="species", levels=["genus"], objective="TripletLoss()", **HOW)
    loop = build(config)
    train = loop.data.train
    items, labels, ids = next(loop.data.batches(0, 0, torch.device("cpu")))
    z = loop.trainable.embedder(items).embedding
    genus = torch.tensor([int(train.classes[label][1:]) // 4 for label in labels])
    expected = nearfar.TripletLoss()(z, labels) + 0.5 * nearfar.TripletLoss()(z, genus)
    torch.testing.assert_close(loop.trainable(items, labels, ids), expected)
    with pytest.raises(TrainError, match="compares with class proxies, but levels need a loss that compares samples"):
        build(config.replace(objective="ProxyNCALoss()"))


def test_batches_of_sets_have_the_labels_of_their_items(sets):
    config = TrainConfig.of(data=sets, **HOW)
    with pytest.raises(TrainError, match="ArcFaceLoss compares with class proxies, but label sets need a loss"):
        build(config.replace(objective="ArcFaceLoss()"))
    loop = build(config)
    train = loop.data.train
    _, labels, ids = next(loop.data.batches(0, 0, torch.device("cpu")))
    assert isinstance(labels, LabelSets)
    names = [set(train.class_labels.of[train.classes[train.labels[i]]]) for i in ids]
    common = labels.hot @ labels.hot.T
    assert common.tolist() == [[len(a & b) for b in names] for a in names]


@pytest.fixture(scope="module")
def of_sets(sets, tmp_path_factory):
    return train(TrainConfig.of(data=sets, **HOW), tmp_path_factory.mktemp("runs") / "sets", progress=False)


def test_a_network_of_sets_of_labels_is_compared_with_the_items_by_labels_in_common(of_sets):
    choice = json.loads((of_sets.folder / "choice.json").read_text())
    assert [one["name"] for one in choice["candidates"]] == ["raw", "trained"]
    unseen = of_sets.task.validation
    found = label_set_scores_of_queries(unseen.array, unseen.class_labels.hot(unseen.classes)[unseen.labels])
    by_set = [found.map_at_r[unseen.labels[found.place] == label].mean() for label in np.unique(unseen.labels)]
    assert choice["candidates"][0]["map_at_r"] == pytest.approx(np.mean(by_set))
    assert f" on held-out items with {choice['classes']} sets of labels (raw rows " in choice["sentence"]


def test_a_network_of_sets_of_labels_that_is_trained_again_has_the_labels_of_all_items(sets, tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.train.rungs.choice.best_of", lambda candidates, **_: "trained")
    plans = []

    def spied(plan, **how):
        plans.append(plan)
        return build_loop(plan, **how)

    monkeypatch.setattr("nearfar.train.trainer.build_loop", spied)
    made = train(TrainConfig.of(data=sets, **HOW | {"keep": "best"}), tmp_path / "run", progress=False)
    assert json.loads((made.folder / "choice.json").read_text())["sentence"].endswith("also on these items.")
    again = plans[-1]
    assert len(again.known.hot) == len(again.task.train) == 40


def test_sets_without_labels_in_common_decide_nothing(sets):
    task = open_task(sets, validation=0.2)
    assert can_compare(task)
    assert not can_compare(replace(task, validation=task.validation.subset([0])))


@pytest.fixture(scope="module")
def of_levels(birds, tmp_path_factory):
    config = TrainConfig.of(data=birds, label="species", levels=["genus"], **HOW)
    return train(config, tmp_path_factory.mktemp("runs") / "birds", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("of_sets", ["Recall@1, labels in common", "MAP@R, labels in common", "nDCG@10, labels in common"]),
        ("of_levels", ["Recall@1, genus", "MAP@R, genus", "nDCG@10, levels in common"]),
    ],
)
def test_scores_by_levels_and_labels_in_common_are_in_table_file_report_and_comparison(kind, names, request, tmp_path):
    run = request.getfixturevalue(kind)
    scores = evaluate_run(run, clustering=False).scores
    there = {name: value for name, value, _ in scores.rows()}
    assert set(names) <= there.keys()
    for name in names:
        assert re.search(rf"^{name} +{there[name]:.4f}", str(scores), re.M)
    content = read_scores(run.folder / "scores.json")
    assert Scores.from_dict(content["scores"]) == scores
    assert content["raw"]["by"].keys() == content["scores"]["by"].keys()
    page = report_run(run.folder, tmp_path / "report.html").read_text()
    table = nearfar.report.compare({"a": [content["scores"]]}, baseline=content["raw"]).markdown()
    outcome = score(run.folder, Selection(), ())
    for name in names:
        assert f">{name}<" in page
        assert f" {name} |" in table
        assert name in outcome.text
    assert score(run.folder, Selection(data=run.config.data), ()).data["scores"]["by"].keys() == scores.by.keys()


def test_scores_by_level_are_those_of_the_names_of_the_level(birds):
    items = with_levels(open_task(birds, label="species", validation=0), read_levels([birds], "species", ["genus"]))
    test = items.test
    scores, _ = evaluate_queries(test.array, test.labels, clustering=False)
    by = with_relevance(scores, test, test.array).by
    genus = [test.class_labels.of[test.classes[label]][1] for label in test.labels]
    expected = evaluate_queries(test.array, np.unique(genus, return_inverse=True)[1], clustering=False)[0]
    assert by["genus"] == {"recall_at_1": expected.recall_at[1], "map_at_r": expected.map_at_r}
    queries = test.subset(np.arange(len(test)) < 12)
    searched = test.subset(np.arange(len(test)) >= 12)
    of_gallery = with_relevance(scores, queries, queries.array, Searched(searched, searched.array)).by
    assert of_gallery.keys() == by.keys()


def test_a_default_batch_is_not_larger_than_the_items(sets, tmp_path):
    how = {name: value for name, value in HOW.items() if name != "batch_size"}
    assert settle(TrainConfig.of(data=sets, **how)).config.batch_size == 32
    assert settle(TrainConfig.of(data=sets, sampler="random", **how)).config.batch_size == 32
    with pytest.raises(TrainError, match="batch_size: 99 is more than the 32 items"):
        build(TrainConfig.of(data=sets, **how | {"batch_size": 99}))


def test_inspection_counts_the_names_of_levels_and_the_labels_of_sets(birds, sets, capsys):
    app(["inspect", birds, "--label", "species", "--level", "genus"], result_action="return_value")
    shown = capsys.readouterr().out
    test = open_task(birds, label="species").test
    genera = {int(name[1:]) // 4 for name in test.classes}
    assert re.search(rf"^genus: 4 in training and validation, {len(genera)} in the test", shown, re.M)
    found = inspect_data(sets)
    assert [str(one) for one in found.levels] == [
        "labels: 5 in training and validation, 5 in the test, 5 of them also in training"
    ]
    assert not any("unseen classes" in remark or "positive pair" in remark for remark in found.remarks)


def test_inspection_reads_captions_and_a_level_is_no_column_without_use(birds, tmp_path):
    for place in range(8):
        Image.new("RGB", (8, 8), (place, 0, 0)).save(tmp_path / f"{place}.png")
    table = write(tmp_path / "captions.csv", ["path", "text"], [[f"{place}.png", f"red {place}"] for place in range(8)])
    found = inspect_data(table)
    assert found.protocol
    assert not any("only one image" in remark for remark in found.remarks)
    write(tmp_path / "captions.csv", ["path", "text"], [[f"{place}.png", f"red {place // 2}"] for place in range(8)])
    assert "4 texts of several classes (red 0, red 1, ... (4 in all)), which count as" in inspect_data(table).protocol
    levels = read_levels([birds], "species", ["genus"])
    task = open_task(birds, label="species")
    assert "columns not used: genus" in task.protocol
    assert "not used" not in with_levels(task, levels).protocol


@pytest.mark.slow
def test_commands_use_the_column_of_the_classes_of_the_training(of_levels, birds, tmp_path):
    folder = of_levels.folder
    building.build(folder, birds, tmp_path / "i.index")
    with open_store(tmp_path / "i.index") as store:
        assert {*store.in_memory().labels} == {f"s{number}" for number in range(16)}
    assert embed_to(folder, birds, tmp_path / "z.npz").dataset.classes == collect(folder, birds).dataset.classes
    assert "MAP@R, genus" in workflows.evaluate(tmp_path / "z.npz").text
    assert embed_source(folder, Selection(data=birds)).dataset.class_labels.levels == ("species", "genus")


@pytest.mark.parametrize("kind", ["sets", "birds"])
def test_a_file_of_embeddings_keeps_sets_of_labels_and_levels(kind, request, tmp_path):
    table = request.getfixturevalue(kind)
    items = open_task(table, label="species" if kind == "birds" else None).test
    if kind == "birds":
        items = replace(items, class_labels=read_levels([table], "species", ["genus"]))
    write_embeddings(tmp_path / "z.npz", items, items.array, "cosine")
    read = open_items(str(tmp_path / "z.npz"))
    assert read.class_labels.levels == items.class_labels.levels
    assert dict(read.class_labels.of) == {name: items.class_labels.of[name] for name in items.classes}
    scores, found = (
        with_relevance(evaluate_queries(one.array, one.labels, clustering=False)[0], one, one.array)
        for one in (items, read)
    )
    assert scores.by == found.by
    if kind == "sets":
        pytest.importorskip("pyarrow")
        write_embeddings(tmp_path / "z.parquet", items, items.array, "cosine")
        assert open_items(str(tmp_path / "z.parquet")).class_labels.of == read.class_labels.of
    arrays = dict(np.load(tmp_path / "z.npz"))
    classes = len(items.classes)
    for name, wrong, says in [
        ("class_labels", arrays["class_labels"][1:], f"expected texts of shape ({classes}, k), the labels of each"),
        ("levels", np.array(["only one", "more", "of", "these", "than", "columns"]), "expected"),
    ]:
        np.savez(tmp_path / "wrong.npz", **{**arrays, name: wrong})
        with pytest.raises(DataError, match=re.escape(says)) as raised:
            open_items(str(tmp_path / "wrong.npz"))
        assert str(raised.value).startswith(f"{tmp_path / 'wrong.npz'}: {name} has shape {wrong.shape}")


def test_degrees_of_documents_are_scored_for_queries_that_search_them(tmp_path):
    lines = [f"q{i},d{i},{1 + i % 2}" for i in range(16)] + [f"q{i},d{(i + 2) % 16},0" for i in range(16)]
    table = tmp_path / "q.csv"
    table.write_text("\n".join(["query,document,relevance", *lines]) + "\n")
    task = open_task(str(table), validation=0)
    queries, documents = (np.eye(16)[[int(name[1:]) for name in part.names]] for part in (task.test, task.gallery))
    how = {"gallery": documents, "gallery_labels": task.gallery.labels, "clustering": False}
    scores, _ = evaluate_queries(queries, task.test.labels, **how)
    found = with_relevance(scores, task.test, queries, Searched(task.gallery, documents))
    assert found.by["listed pairs"] == {"auc": 1.0, "ndcg_at_10": 1.0}
    wrong = np.roll(documents, 1, axis=0)
    found = with_relevance(scores, task.test, queries, Searched(task.gallery, wrong))
    assert found.by["listed pairs"]["ndcg_at_10"] < 0.9
