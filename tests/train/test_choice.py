"""What a run keeps: the best of the trained network and everything that is cheaper, on held-out classes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image
from torch import nn

import nearfar
from nearfar.data import Dataset, Task, open_items, open_task
from nearfar.data.dataset import held_out_count
from nearfar.data.open import queries_and_documents, same_classes
from nearfar.deep.networks.standardize import Standardize
from nearfar.evaluation import evaluate
from nearfar.models import load_embedder
from nearfar.models.export import export_run
from nearfar.numerics.constraints import LabelPairs
from nearfar.numerics.whitening import unit_rows
from nearfar.report.card import model_card
from nearfar.report.run import read_run
from nearfar.spectral.geometric.gmml import gmml
from nearfar.train import (
    DeepMetric,
    TrainConfig,
    TrainError,
    embed_run,
    evaluate_run,
    train,
    train_final,
)
from nearfar.train.checkpoint import load_tensors, read_about
from nearfar.train.features import embed
from nearfar.train.loading import load_trainable
from nearfar.train.monitor import class_scores
from nearfar.train.rungs import untrained
from nearfar.train.rungs.candidates import Candidate, Choice, best_of, gain_and_error
from nearfar.train.rungs.choice import can_compare
from nearfar.train.rungs.class_scores import left_out, optimism
from nearfar.train.rungs.closed_forms import FORMS, OF_FEATURES, ChosenForm, choose_form, fitted, held_out_score
from nearfar.train.rungs.untrained import UntrainedModel, joint_labels, save_untrained
from nearfar.train.scoring import raw_items

from ..references.held_out_map_at_r import reference

TINY = {
    "trunk": "mlp(width=4, depth=1)",
    "embedding_dim": 2,
    "epochs": 1,
    "batch_size": 16,
    "lr": 1e-9,
    "device": "cpu",
}


def separable(path, classes=20, each=8, d=12, seed=0):
    """Rows whose classes differ in one half of the columns, and not in the other, which are larger."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    X = rng.normal(size=(classes, d))[y] + 0.4 * rng.normal(size=(len(y), d))
    X[:, d // 2 :] = 5 * rng.normal(size=(len(y), d - d // 2))
    np.savez(path, X=X.astype(np.float32), y=y)
    return str(path)


def write_photos(folder, side, classes=16, each=5):
    """Colored photos of one random pattern for each class, with noise."""
    rng = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"c{c}").mkdir(parents=True)
        pattern = rng.uniform(0, 255, (4, 4, 3)).repeat(side // 4, 0).repeat(side // 4, 1)
        for k in range(each):
            pixels = np.clip(pattern + rng.normal(size=pattern.shape, scale=20), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"c{c}/{k}.png")


def made(name, by_class):
    return Candidate(name, name, float(np.mean(by_class)), 0.0, tuple(by_class))


def test_few_classes_hold_out_a_larger_share():
    assert [held_out_count(n) for n in (4, 5, 9, 10, 26, 27, 53, 54, 100)] == [2, 2, 3, 3, 8, 8, 8, 8, 15]
    assert held_out_count(100, 0.3) == 30


def test_a_training_replaces_the_best_of_what_is_cheaper_if_it_is_better_by_a_standard_error():
    raw = made("raw", (0.5, 0.6, 0.7, 0.4))
    gains = np.array([0.01, 0.09, 0.1, 0.04])  # a mean of 0.060, a standard error of 0.039
    error = np.sqrt((3 * 0.1**2 + 4 * np.var(gains)) / 6) / 2
    assert_allclose(gain_and_error(made("trained", raw.by_class + gains), raw), (0.06, error))
    for name in ("trained", "interpolated"):
        assert best_of([raw, made(name, raw.by_class + gains)]) == name
        assert best_of([raw, made(name, raw.by_class + gains - 0.045)]) == "raw"
        assert best_of([raw, made(name, raw.by_class + gains - 0.095)], began_as_features=True) == name
        assert best_of([raw, made(name, raw.by_class + gains - 0.105)], began_as_features=True) == "raw"
    unclear = raw.by_class + gains - 0.045
    for name in ("raw-form", "frozen", "frozen-form"):  # they cost nothing
        assert best_of([raw, made(name, unclear)]) == name
    # a closed form is what classes within the training have preferred
    assert best_of([made("raw", unclear), made("raw-form", raw.by_class)]) == "raw-form"
    assert best_of([made("raw", raw.by_class + gains), made("raw-form", raw.by_class)]) == "raw"
    assert best_of([raw, made("frozen", unclear), made("frozen-form", np.add(raw.by_class, 0.01))]) == "frozen-form"
    trained = made("trained", raw.by_class + gains)
    assert best_of([raw, trained, made("interpolated", raw.by_class + gains)]) == "trained"
    assert best_of([raw, trained, made("interpolated", raw.by_class + gains + [0, 0, 0, 0.01])]) == "interpolated"
    # a closed form that is not clearly better than the raw inputs is what a training must be better than
    form = made("raw-form", (0.8, 0.5, 0.65, 0.5))
    assert best_of([raw, form, trained]) == "raw-form"


def test_the_sentence_compares_the_best_with_the_trained_network_or_with_what_is_cheaper():
    form = made("raw-form", (0.5, 0.6, 0.7, 0.4))
    trained = made("trained", np.add(form.by_class, (0.01, 0.09, 0.1, 0.04)))
    found = Choice((form, trained), best="trained", kept="trained").sentence
    assert "It is better than raw-form by 0.060 ± 0.038 MAP@R" in found
    assert "--final" in found
    unclear = made("trained", np.add(form.by_class, (-0.1, 0.09, 0.1, -0.05)))
    found = Choice((form, unclear), best="raw-form", kept="raw-form").sentence
    assert "It is cheaper, and the trained network is better by only 0.010 ± 0.050 MAP@R" in found
    found = Choice((form, unclear), best="raw-form", kept="trained").sentence
    assert "Raw-form would be cheaper, and the trained network is better by only 0.010" in found
    found = Choice((form, unclear), best="trained", kept="trained").sentence
    assert "It is better than raw-form by 0.010 ± 0.050" in found
    worse = made("trained", np.subtract(form.by_class, 0.01))  # of a network that began as features
    found = Choice((form, worse), best="trained", kept="trained").sentence
    assert "It is worse than raw-form by only 0.010 ± 0.035 MAP@R" in found
    same = made("trained", form.by_class)
    assert "It is as good as raw-form." in Choice((form, same), best="trained", kept="trained").sentence
    found = Choice((form, same), best="raw-form", kept="raw-form").sentence
    assert "It is cheaper, and the trained network is equally good." in found
    assert "--final" not in found


@pytest.mark.parametrize("classes", [2, 3, 8, 30])
def test_a_training_that_is_as_good_is_seldom_taken_for_better(classes):
    """Where the mean gain is 0, it exceeds a standard error in one of six cases, and not in more of few classes."""
    rng = np.random.default_rng(0)
    better = 0
    for deviation in (0.05, 0.1, 0.15):
        for gains in rng.normal(0, deviation, size=(400, classes)):
            gain, error = gain_and_error(made("trained", gains), made("raw", np.zeros(classes)))
            better += gain > error
    assert better / 1200 < 0.19


def test_scores_of_what_the_other_classes_choose_are_unbiased():
    rng = np.random.default_rng(0)
    counts = np.full(8, 10)
    biased = []
    unbiased = []
    for _ in range(400):
        epochs = rng.normal(0.5, 0.1, size=(20, 8))  # all epochs are equally good
        biased.append((epochs @ counts).max() / counts.sum())
        unbiased.append(left_out(epochs, counts).mean())
    assert np.mean(biased) > 0.55
    assert abs(np.mean(unbiased) - 0.5) < 4 * np.std(unbiased) / 20 < 0.02


def test_scores_of_what_the_other_classes_choose_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    deciding, scores = rng.uniform(size=(2, 5, 4))
    counts = np.array([3, 1, 7, 2])
    expected = []
    for c in range(4):
        others = [k for k in range(4) if k != c]
        means = [np.average(deciding[e, others], weights=counts[others]) for e in range(5)]
        expected.append(scores[int(np.argmax(means)), c])
    assert_allclose(left_out(deciding, counts, scores), expected)
    best = int(np.argmax(deciding @ counts))
    assert_allclose(optimism(deciding, counts, scores), scores[best] - expected)


def test_the_trained_network_is_compared_by_what_other_classes_choose_also_after_a_resumption(tmp_path):
    data = separable(tmp_path / "rows.npz")
    settings = {**TINY, "lr": 0.01, "epochs": 4, "metric": "auto"}
    run = train(TrainConfig.of(data=data, **settings), tmp_path / "run", progress=False)
    found = json.loads((tmp_path / "run/choice.json").read_text())
    trained = next(one for one in found["candidates"] if one["name"] == "trained")
    unseen = open_task(data, seed=0).validation
    rows = embed(load_embedder(tmp_path / "run", "trained"), unseen)
    assert trained["map_at_r"] < reference(rows, unseen.labels)
    train(TrainConfig.of(data=data, **{**settings, "epochs": 2}), tmp_path / "parts", progress=False)
    train(run.config.replace(epochs=4), tmp_path / "parts", resume=True, progress=False)
    assert json.loads((tmp_path / "parts/choice.json").read_text()) == found


@pytest.mark.parametrize("form", FORMS)
def test_a_closed_form_is_a_linear_map_of_rows_of_unit_length(form):
    rng = np.random.default_rng(0)
    y = np.arange(60) // 6
    X = rng.normal(size=(10, 5))[y] + rng.normal(size=(60, 5))
    mapped = fitted(form, X, y)
    rows = (X - X.mean(axis=0)) / X.std(axis=0) if FORMS[form].standardized else X
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert_allclose(mapped(X), (unit - mapped.mean) @ mapped.components.T, atol=1e-12)
    if FORMS[form].standardized:  # the units of columns do not count
        units = 10.0 ** np.arange(-2, 3)
        assert_allclose(fitted(form, X * units, y)(X * units), mapped(X), atol=1e-10)
    else:
        assert_allclose(mapped(1e-30 * X), mapped(X), atol=1e-10)
    assert np.isfinite(fitted(form, X[:1].repeat(4, 0), np.array([0, 0, 1, 1]))(X)).all()


@pytest.mark.parametrize("d", [5, 80])  # with 80, more features than rows
@pytest.mark.parametrize("t", [0.1, 0.3])
def test_the_geometric_mean_is_that_of_gmml(d, t):
    rng = np.random.default_rng(0)
    y = np.arange(60) // 6
    X = rng.normal(size=(10, d))[y] + rng.normal(size=(60, d))
    expected = gmml(X / np.linalg.norm(X, axis=1, keepdims=True), LabelPairs(y, "pairs"), t=t, reg=0.1).x
    L = fitted(f"gmml-{t}", X, y).components
    assert_allclose(L.T @ L, expected.T @ expected, atol=1e-10 * np.abs(expected.T @ expected).max())


@pytest.mark.parametrize("d", [5, 80])
@pytest.mark.parametrize("single", [False, True])
def test_relevant_components_are_those_of_rca(d, single):
    rng = np.random.default_rng(0)
    y = np.arange(60) // 6
    if single:
        y[0] = 10
    X = rng.normal(size=(11, d))[y] + rng.normal(size=(60, d)) * np.geomspace(0.1, 2, d)
    learner = nearfar.RCA().fit(X / np.linalg.norm(X, axis=1, keepdims=True), y)
    L = fitted("rca", X, y).components
    expected = learner.get_mahalanobis_matrix()
    assert_allclose(L.T @ L, expected, atol=1e-9 * np.abs(expected).max())


def test_a_form_is_chosen_where_it_helps_on_held_out_classes():
    rng = np.random.default_rng(0)
    y = np.arange(240) // 8
    X = rng.normal(size=(30, 12))[y] + 0.3 * rng.normal(size=(240, 12))
    assert choose_form(X, y).name in FORMS
    X[:, 6:] = 5 * rng.normal(size=(240, 6))
    assert choose_form(X, y).name != "none"
    assert choose_form(X[:16], y[:16]).name == "none"  # two classes
    assert choose_form(rng.normal(size=(8, 3)), np.arange(8)).name == "none"  # none has two items


def test_choices_during_a_training_search_the_documents_as_its_evaluation_does(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"query {i},document {i},negative {i % 5}" for i in range(24)]
    (tmp_path / "queries.csv").write_text("\n".join(["query,document,negative", *lines, ""]))
    items = open_items(str(tmp_path / "queries.csv"))
    rows = rng.normal(size=(53, 12))[items.labels] + rng.normal(size=(53, 12))
    queries, documents = same_classes(*queries_and_documents(items))

    def searched_by_evaluation(rows):
        parts = {"labels": queries.labels, "gallery": rows[~items.asks], "gallery_labels": documents.labels}
        return evaluate(rows[items.asks], **parts, clustering=False)

    expected = searched_by_evaluation(rows)
    by_class = class_scores(rows, items)
    assert len(by_class.counts) == 24  # no class of a negative
    assert_allclose(by_class.mean(by_class.map_at_r), expected.map_at_r)
    assert_allclose(by_class.mean(by_class.recall_at_1), expected.recall_at[1])
    form = fitted("whitening", rows, items.labels)
    held_out = held_out_score(form(rows), items.labels, asks=items.asks)
    assert_allclose(held_out, searched_by_evaluation(form(rows)).map_at_r)
    # documents that hardly differ by cosine: queries among all items would find others
    rows[~items.asks, 6:] = 1e3
    assert choose_form(rows, items.labels, asks=items.asks).map_at_r != choose_form(rows, items.labels).map_at_r
    (tmp_path / "queries.csv").write_text("query,document\na b,c d\ne f,g h\ng h,e f\n")
    two_classes = open_items(str(tmp_path / "queries.csv"))  # of which the second has only documents
    assert not can_compare(Task("two", items, two_classes, test=items, gallery=None, protocol=""))


def test_only_one_function_of_the_choices_searches():
    """Others would not know who searches whom."""
    folder = Path(nearfar.__file__).parent / "train"
    calling = {path.stem for path in folder.rglob("*.py") if re.search(r"\b(retrieve|evaluate)\(\w", path.read_text())}
    assert calling == {"class_scores", "relevance", "pairs"}  # the last two score the test, and pairs with two networks


def test_columns_of_rows_are_standardized_where_that_helps_held_out_classes():
    rng = np.random.default_rng(0)
    y = np.arange(240) // 8
    X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(240, 6))
    X = (X + 3) * 10.0 ** np.arange(-2, 4)  # columns of other units, far from 0
    assert FORMS[choose_form(X, y, forms=FORMS).name].standardized
    assert not FORMS[choose_form(X, y).name].standardized  # features have one unit
    rows = Dataset.from_array("rows", X.astype(np.float32), y)
    model = UntrainedModel.raw(rows, TrainConfig.of(data="rows"), nn.Identity())
    assert FORMS[model.chosen_form(rows)].standardized
    standardizing = TrainConfig.of(data="rows", standardize=True)
    scale = Standardize(6)
    assert set(UntrainedModel.raw(rows, standardizing, scale).forms) == set(OF_FEATURES)
    images = Dataset.from_array("images", np.zeros((4, 8, 8, 1), np.uint8), [0, 0, 1, 1])
    assert set(UntrainedModel.raw(images, TrainConfig.of(data="images"), nn.Identity()).forms) == set(OF_FEATURES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "standardized rows", "rows in units", "images", "large images"])
def test_what_is_kept_is_loaded_scored_and_embedded_as_it_was_chosen(tmp_path, kind):
    settings = dict(TINY)
    if "rows" in kind:
        settings |= {"data": separable(tmp_path / "rows.npz"), "standardize": kind.startswith("standardized")}
        if kind == "rows in units":
            with np.load(settings["data"]) as arrays:
                X, y = arrays["X"], arrays["y"]
            np.savez(settings["data"], X=(X[:, :6] + 3) * 10.0 ** np.arange(-4, 8, 2, dtype=np.float32), y=y)
    else:
        write_photos(tmp_path / "photos", side=20 if kind == "images" else 80)
        settings |= {"data": str(tmp_path / "photos"), "trunk": "conv4"}
    run = train(TrainConfig.of(**settings), tmp_path / "run", progress=False)
    choice = json.loads((tmp_path / "run/choice.json").read_text())
    assert run.config.keep == "best"
    assert choice["kept"] == choice["best"]
    assert choice["kept"].startswith("raw"), choice["sentence"]
    task = open_task(settings["data"], seed=0)
    if kind == "rows in units":
        assert "standardized" in choice["sentence"].partition(",")[2][:20]
        assert "Standardized columns (--standardize), more classes or a lower" in choice["sentence"]
    in_memory = embed_run(run, task.test)
    assert_allclose(embed_run(tmp_path / "run", task.test), in_memory, atol=1e-5)
    kept = evaluate_run(tmp_path / "run", clustering=False)
    trained = evaluate_run(tmp_path / "run", which="trained", clustering=False)
    assert kept.scores.map_at_r > trained.scores.map_at_r
    assert "prefer to the trained network" in kept.protocol
    assert load_trainable(tmp_path / "run").embedder.embedding_dim == 2  # the trained one
    assert load_embedder(tmp_path / "run", "trained").embedding_dim == 2
    loaded = DeepMetric.load(tmp_path / "run")
    items = [str(tmp_path / "photos" / name) for name in task.test.names] if "images" in kind else task.test.array
    directions = loaded.transform(items)
    assert_allclose(unit_rows(directions), unit_rows(in_memory), atol=1e-4)
    if kind != "large images":
        assert export_run(tmp_path / "run", tmp_path / "model.onnx") > 0.9999
    final = train_final(tmp_path / "run", tmp_path / "final", progress=False)
    assert embed_run(tmp_path / "final", task.test).shape == in_memory.shape
    assert read_about(final.folder / "best.safetensors")["kept"] == choice["kept"]


@pytest.mark.parametrize(
    ("scored", "expected"), [("whitening", "standardized-gmml-0.1"), ("standardized-gmml-0.1", "whitening")]
)
def test_all_training_classes_choose_the_closed_form_that_is_kept(scored, expected, tmp_path, monkeypatch):
    data = separable(tmp_path / "rows.npz")
    task = open_task(data, seed=0)
    learned = task.train.joined(task.validation)

    def choice_of(rows, labels, **_):
        form = expected if len(rows) == len(learned) else scored
        assert form == scored or len(set(labels)) == len(learned.classes)
        return ChosenForm(form, {form: (1.0,)})

    monkeypatch.setattr(untrained, "choose_form", choice_of)
    run = train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    about = read_about(tmp_path / "run/best.safetensors")
    sentence = json.loads((tmp_path / "run/choice.json").read_text())["sentence"]
    assert (about["kept"], about["form"]) == ("raw-form", expected)
    assert about["kept_title"] == f"raw rows, {FORMS[expected].title}"
    assert f"together prefer {about['kept_title']}, which is saved." in sentence
    mapped = fitted(expected, learned.array, learned.labels)(task.test.array)
    for model in (run, tmp_path / "run"):
        assert_allclose(unit_rows(embed_run(model, task.test)), unit_rows(mapped), atol=1e-4)


def test_the_scores_of_candidates_are_those_of_the_held_out_classes(tmp_path):
    data = separable(tmp_path / "rows.npz")
    train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    choice = json.loads((tmp_path / "run/choice.json").read_text())
    unseen = open_task(data, seed=0).validation
    raw = next(one for one in choice["candidates"] if one["name"] == "raw")
    assert_allclose(raw["map_at_r"], reference(unseen.array, unseen.labels), atol=1e-6)
    assert choice["classes"] == len(unseen.classes)


def test_the_scores_in_the_sentence_differ_by_the_gain_where_classes_differ_in_size(tmp_path):
    with np.load(separable(tmp_path / "even.npz", each=24)) as arrays:
        X, y = arrays["X"], arrays["y"]
    kept = np.arange(len(y)) % 24 < 2 + 3 * (y % 8)  # classes of 2 to 23 items
    np.savez(tmp_path / "rows.npz", X=X[kept], y=y[kept])
    train(TrainConfig.of(data=str(tmp_path / "rows.npz"), **TINY), tmp_path / "run", progress=False)
    choice = json.loads((tmp_path / "run/choice.json").read_text())
    trained = next(one for one in choice["candidates"] if one["name"] == "trained")
    for one in choice["candidates"]:
        assert_allclose(one["gain"][0], one["map_at_r"] - trained["map_at_r"], atol=1e-12)


def test_a_closed_set_is_compared_on_held_out_items_too(tmp_path):
    data = separable(tmp_path / "rows.npz", classes=3, each=40)
    run = train(TrainConfig.of(data=data, split="rows", **TINY), tmp_path / "run", progress=False)
    choice = json.loads((tmp_path / "run/choice.json").read_text())
    scores = {one["name"]: one["map_at_r"] for one in choice["candidates"]}
    assert scores["raw"] > scores["trained"]
    assert choice["kept"].startswith("raw")
    assert "on held-out items of 3 classes" in choice["sentence"]
    assert "pretrained" not in choice["sentence"]  # there are no pretrained networks for rows
    assert "which the validation items prefer to the trained network" in evaluate_run(run, clustering=False).protocol


def test_items_of_one_class_in_two_sets_count_as_one_class():
    X = np.zeros((6, 2), np.float32)
    first = Dataset.from_array("first", X, list("aabbcc"))
    second = Dataset.from_array("second", X, list("ccddbb"))
    assert list(joint_labels((first, second))) == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 1, 1]


@pytest.mark.parametrize("classes", [8, 10])
def test_few_classes_have_a_closed_form_among_the_candidates(tmp_path, classes):
    data = separable(tmp_path / "rows.npz", classes=classes, each=30)
    train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    choice = json.loads((tmp_path / "run/choice.json").read_text())
    scores = {one["name"]: one["map_at_r"] for one in choice["candidates"]}
    assert scores["raw-form"] > scores["raw"]


@pytest.mark.parametrize("classes", [4, 6])  # of which half are the test
def test_where_too_few_classes_hold_any_out_the_cheapest_is_kept(tmp_path, classes):
    data = separable(tmp_path / "rows.npz", classes=classes)
    run = train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    assert run.task.validation is None
    assert read_about(tmp_path / "run/best.safetensors")["kept"] == "raw"
    result = evaluate_run(run, clustering=False)
    assert_allclose(result.scores.map_at_r, result.raw.map_at_r)
    assert f"Kept: raw rows, because {classes // 2} training classes are too few to hold some out" in result.kept
    assert "was not compared with the trained network" in result.protocol
    loaded = evaluate_run(tmp_path / "run", clustering=False)
    assert (loaded.scores.map_at_r, loaded.kept) == (result.scores.map_at_r, result.kept)
    trained = evaluate_run(tmp_path / "run", which="trained", clustering=False)
    assert (trained.kept, trained.scores.map_at_r != result.scores.map_at_r) == ("", True)
    assert result.kept in read_run(tmp_path / "run", pictures=False).remarks
    final = train_final(tmp_path / "run", tmp_path / "final", progress=False)
    assert read_about(final.folder / "best.safetensors")["kept"] == "raw"


@pytest.mark.parametrize("asked", [{"objective": "TripletLoss()"}, {"keep": "trained"}, {"validation": 0.0}])
def test_a_network_that_was_asked_for_is_kept_where_nothing_is_held_out(tmp_path, asked):
    data = separable(tmp_path / "rows.npz", classes=4)
    run = train(TrainConfig.of(data=data, **TINY, **asked), tmp_path / "run", progress=False)
    assert "kept" not in read_about(tmp_path / "run/best.safetensors")
    assert run.embedder.embedding_dim == 2


def test_a_named_objective_keeps_the_trained_network_and_says_what_is_better(tmp_path):
    data = separable(tmp_path / "rows.npz")
    run = train(TrainConfig.of(data=data, objective="TripletLoss()", **TINY), tmp_path / "run", progress=False)
    choice = json.loads((tmp_path / "run/choice.json").read_text())
    assert run.config.keep == "trained"
    assert (choice["kept"], choice["best"] != "trained") == ("trained", True)
    assert "--keep best keeps it" in choice["sentence"]
    assert not (tmp_path / "run/trained.safetensors").exists()
    assert run.embedder.embedding_dim == 2


def test_report_and_card_say_what_is_kept_and_what_is_cheaper(tmp_path):
    run = train(TrainConfig.of(data=separable(tmp_path / "rows.npz"), **TINY), tmp_path / "run", progress=False)
    evaluate_run(run, clustering=False)
    sentence = json.loads((tmp_path / "run/choice.json").read_text())["sentence"]
    assert sentence.startswith("Kept: raw rows")
    assert f"- {sentence}" in model_card(tmp_path / "run")
    assert sentence in read_run(tmp_path / "run", pictures=False).remarks


def test_a_run_that_keeps_something_else_is_resumed_from_its_trained_network(tmp_path):
    data = separable(tmp_path / "rows.npz")
    train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    assert read_about(tmp_path / "run/best.safetensors")["kept"].startswith("raw")
    first = load_tensors(tmp_path / "run/trained.safetensors")[0]
    again = train(None, tmp_path / "run", resume=True, progress=False)
    assert again.step > 0
    second = load_tensors(tmp_path / "run/trained.safetensors")[0]
    assert all((first[name] == second[name]).all() for name in first)
    whole = TrainConfig.of(data=data, **{**TINY, "epochs": 2})
    longer = train(whole, tmp_path / "run", resume=True, progress=False)
    assert longer.epoch == 2
    assert read_about(tmp_path / "run/best.safetensors")["kept"].startswith("raw")


def test_an_estimator_is_the_network_that_was_trained(tmp_path, monkeypatch):
    data = separable(tmp_path / "rows.npz")
    with np.load(data) as arrays:
        X, y = arrays["X"], arrays["y"]
    settings = {"batch_size": 16, "lr": 1e-9, "trunk": "mlp(width=4, depth=1)", "embedding_dim": 2, "epochs": 1}
    monkeypatch.setattr("nearfar.train.trainer.choose_model", None)  # nothing else could be kept
    metric = DeepMetric(**settings, validation=0.3).fit(X, y)
    assert metric.transform(X).shape == (len(X), 2)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width", "features"), [(112, 92, 32 * 32), (28, 28, 28 * 28)])
def test_raw_pixels_of_large_images_are_reduced_whether_gray_or_in_color(channels, height, width, features):
    pixels = np.zeros((4, height, width, channels), np.uint8)
    items = Dataset.from_array("images", pixels, [0, 0, 1, 1])
    raw = UntrainedModel.raw(items, TrainConfig.of(data="images"), nn.Identity())
    assert raw.features(items).shape == (4, channels * features)
    assert raw_items(items, nn.Identity()).shape == (4, channels * features)


def test_a_kept_model_is_saved_again(tmp_path):
    data = separable(tmp_path / "rows.npz")
    run = train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    assert run.config.keep == "best"
    rows = np.load(data)["X"]
    loaded = DeepMetric.load(tmp_path / "run")
    loaded.save(tmp_path / "saved")
    assert_allclose(DeepMetric.load(tmp_path / "saved").transform(rows), loaded.transform(rows), atol=1e-6)


def test_raw_inputs_without_tensors_are_saved_again(tmp_path):
    write_photos(tmp_path / "photos", side=20)
    config = TrainConfig.of(data=str(tmp_path / "photos"), trunk="conv4", device="cpu", embedding_dim=2)
    save_untrained(config, tmp_path / "raw", kind="raw", form="none")
    DeepMetric.load(tmp_path / "raw").save(tmp_path / "saved")
    path = str(tmp_path / "photos/c0/0.png")
    assert DeepMetric.load(tmp_path / "saved").transform([path]).shape == (1, 20 * 20 * 3)


def test_a_run_without_its_trained_network_does_not_pass_off_what_it_keeps_as_trained(tmp_path):
    data = separable(tmp_path / "rows.npz")
    train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    (tmp_path / "run/trained.safetensors").unlink()  # as in a copy from a hub
    assert load_embedder(tmp_path / "run").embedding_dim == 12
    with pytest.raises(TrainError, match=r"keeps raw rows.*, and has no trained network"):
        load_embedder(tmp_path / "run", "trained")


def test_a_resumption_that_fails_leaves_what_the_run_keeps(tmp_path):
    data = separable(tmp_path / "rows.npz")
    train(TrainConfig.of(data=data, **TINY), tmp_path / "run", progress=False)
    before = (tmp_path / "run/best.safetensors").read_bytes()
    for state in (tmp_path / "run").glob("state-*.safetensors"):
        state.write_bytes(b"damaged")
    with pytest.raises(TrainError):
        train(None, tmp_path / "run", resume=True, progress=False)
    assert (tmp_path / "run/best.safetensors").read_bytes() == before
    assert (tmp_path / "run/trained.safetensors").is_file()


def broken(*_):
    raise KeyboardInterrupt


def test_a_small_network_is_trained_again_on_all_training_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.train.rungs.choice.best_of", lambda candidates, **_: "trained")
    data = separable(tmp_path / "rows.npz")
    config = TrainConfig.of(data=data, **{**TINY, "lr": 0.01, "epochs": 3})
    run = train(config, tmp_path / "run", progress=False)
    kept, about = load_tensors(tmp_path / "run/best.safetensors")
    trained, before = load_tensors(tmp_path / "run/trained.safetensors")
    assert about == {**before, "again": True}
    name = next(name for name in kept if name.endswith("layer.weight"))
    assert not (kept[name] == trained[name]).all()
    sentence = json.loads((tmp_path / "run/choice.json").read_text())["sentence"]
    assert sentence.endswith("Then it was trained again, for as many epochs, also on these classes.")
    assert "trained again, also on these classes" in evaluate_run(run, clustering=False).protocol
    task = open_task(data, seed=0)
    assert_allclose(embed_run(tmp_path / "run", task.test), embed_run(run, task.test), atol=1e-5)
    with monkeypatch.context() as patch:  # killed while it is trained again
        patch.setattr("nearfar.train.trainer.TrainerInMemory.run", broken)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "killed", progress=False)
    assert load_embedder(tmp_path / "killed").embedding_dim == 2
    train(None, tmp_path / "killed", resume=True, progress=False)
    train(None, tmp_path / "run", resume=True, progress=False)
    for folder in ("killed", "run"):
        again = load_tensors(tmp_path / folder / "best.safetensors")[0]
        assert all((again[name] == kept[name]).all() for name in kept)


@pytest.mark.parametrize("has_time", [True, False])
def test_a_training_with_a_time_limit_is_done_again_if_there_is_time(has_time, tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.train.rungs.choice.best_of", lambda candidates, **_: "trained")
    if not has_time:
        monkeypatch.setattr("nearfar.train.timing.time_limit.TimePlan.seconds_to_train", lambda *_: 1e-9)
    config = TrainConfig.of(data=separable(tmp_path / "rows.npz"), **TINY)
    train(config, tmp_path / "run", progress=False, minutes=1)
    assert ("again" in read_about(tmp_path / "run/best.safetensors")) is has_time


@pytest.mark.parametrize("case", ["keep", "many items", "few held out"])
def test_a_network_is_not_trained_again_where_that_is_not_asked_or_takes_long(case, tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.train.rungs.choice.best_of", lambda candidates, **_: "trained")
    config = TrainConfig.of(data=separable(tmp_path / "rows.npz"), **TINY)
    if case == "keep":
        config = config.replace(keep="trained")
    if case == "many items":
        monkeypatch.setattr("nearfar.train.trainer.MOST_ITEMS_AGAIN", 63)  # four batches of 16
    if case == "few held out":
        monkeypatch.setattr("nearfar.train.trainer.SHARE_FOR_AGAIN", 0.4)
    train(config, tmp_path / "run", progress=False)
    assert "again" not in read_about(tmp_path / "run/best.safetensors")
    assert not (tmp_path / "run/trained.safetensors").exists()
