"""A trained network behind the verbs of scikit-learn."""

import pickle
import random
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfar import TripletLoss
from nearfar.data import Dataset
from nearfar.data.listed import UNSURE, PairsOfItems
from nearfar.evaluation import verify_pairs
from nearfar.numerics.constraints import check_pairs
from nearfar.report import report_run
from nearfar.train import DeepMetric, TrainConfig, embed_run, train
from nearfar.train.config import OF_A_RUN, OF_AN_ESTIMATOR, settings_with
from nearfar.train.listed_pairs import KnownPairBatches, KnownPairs

QUICK = {"embedding_dim": 8, "epochs": 2, "random_state": 0, "settings": {"device": "cpu"}}


@pytest.mark.slow
@parametrize_with_checks([DeepMetric(**QUICK)])
def test_it_is_an_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


@pytest.fixture(scope="module")
def fitted(digits):
    X, y = digits
    return DeepMetric("MultiSimilarityLoss()", **{**QUICK, "epochs": 8}).fit(X, y)


@pytest.mark.slow
def test_its_arguments_are_the_settings_that_are_marked_as_such():
    arguments = signature(DeepMetric).parameters
    assert set(settings_with(OF_AN_ESTIMATOR)) == arguments.keys() - {"settings", "random_state", "verbose"}
    defaults = TrainConfig.defaults() | {"validation": 0.0}  # a run holds some classes out
    for name in settings_with(OF_AN_ESTIMATOR):
        assert arguments[name].default == defaults[name], name
    assert not {*settings_with(OF_AN_ESTIMATOR)} & {*settings_with(OF_A_RUN)}


def test_classes_are_nearer_to_themselves_than_in_the_items(digits, fitted):
    from nearfar.evaluation import evaluate

    X, y = digits
    learned = evaluate(fitted.transform(X), y, clustering=False)
    assert learned.map_at_r > evaluate(X, y, clustering=False).map_at_r + 0.1
    assert len(fitted.loss_curve_) == fitted.n_iter_ == 8
    assert fitted.loss_curve_[-1] < fitted.loss_curve_[0]


def test_embeddings_have_unit_length_and_the_verbs_of_learners_use_them(digits, fitted):
    X, _ = digits
    Z = fitted.transform(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-5)
    pairs = np.array([[0, 1], [0, 10], [5, 7]])
    expected = np.linalg.norm(Z[pairs[:, 0]] - Z[pairs[:, 1]], axis=1)
    np.testing.assert_allclose(fitted.pair_distance(pairs, X), expected, rtol=1e-4)
    np.testing.assert_allclose(fitted.pair_distance(X[pairs]), expected, rtol=1e-4)
    distance, index = fitted.kneighbors(X, n_neighbors=1)
    whole = np.linalg.norm(Z[:, None] - Z[None], axis=2) + np.diag(np.full(len(Z), np.inf))
    np.testing.assert_allclose(distance[:, 0], whole.min(1), atol=1e-3)
    np.testing.assert_allclose(whole[np.arange(len(Z)), index[:, 0]], whole.min(1), atol=1e-3)


def test_it_is_the_network_of_a_run_with_the_same_settings(digits, tmp_path):
    X, y = digits
    np.savez(tmp_path / "train.npz", X=X.astype(np.float32), y=y)
    np.savez(tmp_path / "test.npz", X=X[:40].astype(np.float32), y=y[:40])
    metric = DeepMetric("NCALoss()", embedding_dim=8, epochs=2, random_state=3).fit(X, y)
    config = {"data": str(tmp_path / "train.npz"), "test": str(tmp_path / "test.npz"), "validation": 0.0}
    same = TrainConfig.of(objective="NCALoss()", embedding_dim=8, epochs=2, seed=metric.config_.seed, **config)
    train(same, tmp_path / "run", progress=False)
    Z = embed_run(tmp_path / "run", tmp_path / "test.npz")
    np.testing.assert_allclose(metric.transform(X[:40]), Z / np.linalg.norm(Z, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.slow
def test_images_in_memory_and_their_files_give_one_network(tmp_path):
    pytest.importorskip("PIL")
    from PIL import Image

    X, y = load_digits(return_X_y=True)
    images = (X[:120].reshape(-1, 8, 8) * 15).astype(np.uint8).repeat(3, axis=1).repeat(3, axis=2)
    paths = [tmp_path / f"{i}.png" for i in range(len(images))]
    for image, path in zip(images, paths, strict=True):
        Image.fromarray(image).save(path)
    of_arrays, of_files = (DeepMetric(**QUICK).fit(items, y[:120]) for items in (images, paths))
    np.testing.assert_allclose(of_arrays.transform(images), of_files.transform(paths), atol=1e-6)
    column = np.array(paths, dtype=object)[:, None]  # as a ColumnTransformer hands it on
    np.testing.assert_array_equal(of_files.transform(column), of_files.transform(paths))
    np.testing.assert_allclose(of_arrays.transform(images[..., None]), of_files.transform(images), atol=1e-6)
    of_list = DeepMetric(**QUICK).fit(list(images), y[:120])
    np.testing.assert_array_equal(
        of_list.transform([Image.fromarray(image) for image in images]), of_arrays.transform(images)
    )
    assert not hasattr(of_arrays, "n_features_in_")
    with pytest.raises(ValueError, match="DeepMetric: X: expected at least one image, got none"):
        of_arrays.transform(images[:0])


@pytest.mark.slow
def test_a_search_chooses_settings_of_a_network(digits):
    X, y = digits
    model = make_pipeline(StandardScaler(), DeepMetric(**QUICK), KNeighborsClassifier(3))
    search = GridSearchCV(model, {"deepmetric__embedding_dim": [1, 8]}, cv=2).fit(X[:200], y[:200])
    assert search.best_params_["deepmetric__embedding_dim"] == 8  # ten classes on two points are not told apart
    assert search.best_score_ > 0.7


@pytest.mark.slow
def test_validation_classes_choose_the_epoch_as_in_a_run(digits, tmp_path):
    X, y = digits
    metric = DeepMetric(**{**QUICK, "epochs": 4}, validation=0.3).fit(X, y)
    np.savez(tmp_path / "items.npz", X=X.astype(np.float32), y=y)
    data = {"data": str(tmp_path / "items.npz"), "test": str(tmp_path / "items.npz"), "validation": 0.3}
    same = TrainConfig.of(embedding_dim=8, epochs=4, seed=metric.config_.seed, device="cpu", **data)
    run = train(same, tmp_path / "run", progress=False)
    assert (metric.best_epoch_, metric.best_score_) == (run.best_epoch, pytest.approx(run.best))
    assert DeepMetric(**QUICK).fit(X, y).best_score_ is None


def test_items_of_unknown_class_are_not_learned_from(digits):
    X, y = digits
    some = np.where(np.arange(len(y)) % 3 == 0, -1, y)
    metric = DeepMetric(**QUICK).fit(X, some)
    known = DeepMetric(**QUICK).fit(X[some >= 0], y[some >= 0])
    np.testing.assert_array_equal(metric.transform(X[:5]), known.transform(X[:5]))


def test_global_random_numbers_stay_as_they_were(digits):
    X, y = digits
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002  # the global generator is what is tested
    random.seed(5)
    expected = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002  # the global generator is what is tested
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002  # the global generator is what is tested
    random.seed(5)
    DeepMetric(**QUICK).fit(X[:60], y[:60])
    assert expected == (torch.rand(1), np.random.rand(), random.random())  # noqa: NPY002  # the global generator is what is tested


def test_saved_it_is_a_run_and_loaded_the_same(digits, fitted, tmp_path):
    X, y = digits
    fitted.save(tmp_path / "run")
    Z = fitted.transform(X[:20])
    for again in (DeepMetric.load(tmp_path / "run"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.transform(X[:20]), Z)
        assert again.get_params()["objective"] == "MultiSimilarityLoss()"
    np.savez(tmp_path / "items.npz", X=X[:20].astype(np.float32), y=y[:20])
    found = embed_run(tmp_path / "run", tmp_path / "items.npz")
    np.testing.assert_allclose(found / np.linalg.norm(found, axis=1, keepdims=True), Z, atol=1e-6)
    with pytest.raises(ValueError, match="fitted on items in memory, which were not saved; give the DATA"):
        report_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"DeepMetric: .*contains a run already; choose another folder$"):
        fitted.save(tmp_path / "run")


@pytest.mark.slow
def test_loaded_it_knows_its_threshold_and_its_epochs(digits, tmp_path):
    X, y = digits
    metric = DeepMetric(**{**QUICK, "epochs": 3}, validation=0.3).fit(X, y)
    metric.save(tmp_path / "without")
    assert not hasattr(DeepMetric.load(tmp_path / "without"), "threshold_")
    metric.calibrate_threshold([[0, 10], [1, 11], [0, 1], [2, 3]], [1, 1, -1, -1], X=X).save(tmp_path / "run")
    again = DeepMetric.load(tmp_path / "run")
    assert (again.threshold_, again.n_iter_, again.best_epoch_) == (metric.threshold_, 3, metric.best_epoch_)
    np.testing.assert_array_equal(again.loss_curve_, metric.loss_curve_)
    again.fit(X, y).save(tmp_path / "anew")
    assert not hasattr(DeepMetric.load(tmp_path / "anew"), "threshold_")


def test_a_loaded_metric_can_be_fitted_anew(digits, tmp_path):
    X, y = digits
    DeepMetric("NCALoss()", **{**QUICK, "settings": {"device": "cpu", "weight_decay": 0.01}}).fit(X, y).save(
        tmp_path / "run"
    )
    loaded = DeepMetric.load(tmp_path / "run")
    assert loaded.settings["weight_decay"] == 0.01
    assert clone(loaded).fit(X, y).transform(X[:2]).shape == (2, 8)


def test_columns_are_known_by_name(digits, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = digits
    table = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(X.shape[1])])
    metric = DeepMetric(**QUICK).set_output(transform="pandas").fit(table, y)
    assert list(metric.transform(table).columns[:2]) == ["deepmetric0", "deepmetric1"]
    metric.save(tmp_path / "run")
    loaded = DeepMetric.load(tmp_path / "run")
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(table[table.columns[::-1]])


@pytest.mark.parametrize(
    ("changes", "X", "y", "message"),
    [
        ({"objective": "TripletLos()"}, np.eye(6), [0, 0, 0, 1, 1, 1], "TripletLos"),
        ({"lr": -1.0}, np.eye(6), [0, 0, 0, 1, 1, 1], "lr"),
        ({"settings": {"lr": 1.0}}, np.eye(6), [0, 0, 0, 1, 1, 1], "'lr' is a parameter of the estimator"),
        ({"settings": {"data": "x"}}, np.eye(6), [0, 0, 0, 1, 1, 1], "'data' applies only to runs in a folder"),
        ({"settings": {"split": "rows"}}, np.eye(6), [0, 0, 0, 1, 1, 1], "'split' applies only to runs in a folder"),
        ({"settings": {"final": "runs/a"}}, np.eye(6), [0, 0, 0, 1, 1, 1], "'final' applies only to runs in a folder"),
        ({"settings": {"warmups": 1}}, np.eye(6), [0, 0, 0, 1, 1, 1], "did you mean warmup"),
        ({}, np.eye(6), [0, 0, 0, 0, 0, 0], "at least 2 classes"),
        ({}, np.eye(6), None, "requires y"),
        ({}, np.eye(6) * 1e300, [0, 0, 0, 1, 1, 1], "too large for float32"),
        ({}, np.zeros((6, 8, 8)), [0, 0, 0, 1, 1, 1], "uint8; got shape .6, 8, 8. of float64; .* as rows"),
        ({}, ["a.png"] * 6, [0, 0, 0, 1, 1, 1], "6 of 6 files do not exist, first 'a.png'; texts are read as paths"),
        ({}, [[0.0] * (3 + n % 3) for n in range(6)], [0, 0, 0, 1, 1, 1], "rows must be of one length, got 3 to 5"),
        (
            {"trunk": torch.nn.Linear(6, 3)},
            np.eye(6),
            [0, 0, 0, 1, 1, 1],
            "trunk: .*package.module:factory.* got Linear",
        ),
        ({}, np.zeros((6, 28, 28), np.uint8), [0, 1], "inconsistent"),
        ({}, np.eye(6), np.eye(6), "y should be a 1d array"),
        ({}, np.eye(6), [0.1, 0.2, 0.3, 1.1, 1.2, 1.3], "Unknown label type: continuous"),
        ({"objective": TripletLoss()}, np.eye(6), [0, 0, 0, 1, 1, 1], "expected .* text .*, got TripletLoss"),
        ({"settings": 3}, np.eye(6), [0, 0, 0, 1, 1, 1], "settings must be a dict"),
        ({}, ["a.png", float("nan")] * 3, [0, 0, 0, 1, 1, 1], "3 of 6 items are not paths; number 1 is nan"),
        ({}, [np.zeros((8, n)) for n in (8, 8, 9)], [0, 0, 1], r"of one shape, got .8, 8. and .8, 9."),
    ],
)
def test_what_does_not_fit_is_one_error(changes, X, y, message):
    with pytest.raises(ValueError, match=message) as caught:
        DeepMetric(**{**QUICK, **changes}).fit(X, y)
    assert str(caught.value).startswith("DeepMetric: ")
    assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_finite_tells_of_no_checkpoint(digits):
    """The folder of a fit is temporary: none is kept, and none is missed."""
    with pytest.raises(ValueError, match=r"DeepMetric: step 1, epoch 1: the loss is not finite: [^;]*\Z"):
        DeepMetric(**{**QUICK, "objective": "TripletLoss(margin=1e60)"}).fit(*digits)


def test_items_of_another_kind_are_refused(fitted):
    with pytest.raises(ValueError, match=r"DeepMetric: .*takes rows of 64 columns, got images"):
        fitted.transform(np.zeros((2, 28, 28), np.uint8))
    with pytest.raises(ValueError, match="is expecting 64 features"):
        fitted.transform(np.zeros((2, 63)))


@pytest.fixture(scope="module")
def told(digits):
    """Pairs of the first 400 items, and what is told of them."""
    _, y = digits
    pairs = np.random.default_rng(0).permutation(400 * 399 // 2)[:3000]
    i, j = (side[pairs] for side in np.triu_indices(400, 1))
    return np.stack([i, j], axis=1), np.where(y[i] == y[j], 1, -1)


@pytest.mark.slow
def test_pairs_alone_bring_unseen_items_of_a_class_together(digits, told):
    X, y = digits
    pairs, labels = told
    metric = DeepMetric("ContrastiveLoss(normalize=True, reduction='balanced')", **{**QUICK, "epochs": 10})
    metric.fit(X, pairs=pairs, pair_labels=labels)
    unseen = np.stack(np.triu_indices(200, 1), axis=1) + 400
    same = y[unseen[:, 0]] == y[unseen[:, 1]]
    learned, plain = metric.transform(X), X / np.linalg.norm(X, axis=1, keepdims=True)
    assert verify_pairs(learned, unseen, same).auc > verify_pairs(plain, unseen, same).auc + 0.02
    assert np.mean(metric.predict(pairs, X) == labels) > 0.95  # by the threshold that the fit has set
    assert metric.n_iter_ == 10
    metric.set_params(epochs=1)
    assert metric.fit(X, y=None, pairs=pairs[:, ::-1], pair_labels=labels).n_iter_ == 1


def test_a_batch_knows_the_listed_pairs_of_its_items(digits):
    y = digits[1][:16]
    ij = np.stack(np.triu_indices(16, 1), axis=1)
    labels = np.where(y[ij[:, 0]] == y[ij[:, 1]], 1, -1)
    relation = KnownPairs.of(check_pairs(ij, labels, None, 16), 16).relation(torch.arange(16))
    assert (relation.diagonal() == -1).all()
    expected = torch.as_tensor(y[:, None] == y).long().fill_diagonal_(-1)
    torch.testing.assert_close(relation, expected)
    some = KnownPairs.of(check_pairs([[3, 1], [0, 3], [2, 5]], [1, -1, 1], None, 6), 6)
    places = torch.tensor([3, 5, 1, 0, 3])
    known = {(1, 3): 1, (0, 3): 0, (2, 5): 1}
    for a, row in zip(places.tolist(), some.relation(places).tolist(), strict=True):
        assert row == [known.get((min(a, b), max(a, b)), -1) for b in places.tolist()]


def test_every_pair_is_in_one_batch_of_an_epoch():
    pairs = check_pairs([[0, 1], [1, 2], [3, 4], [2, 4], [0, 4]], [1, -1, 1, 1, -1], None, 7)
    batches = KnownPairBatches(KnownPairs.of(pairs, 7), 4, seed=0)
    epochs = [list(batches), list(batches)]
    for epoch in epochs:
        assert len(epoch) == len(batches) == 3
        given = [tuple(batch[k : k + 2]) for batch in epoch for k in (0, 2)]
        assert set(given) == set(zip(pairs.i.tolist(), pairs.j.tolist(), strict=True))
        assert len(given) == 6  # the last batch is completed
    assert epochs[0] != epochs[1]


def test_a_batch_for_more_pairs_than_there_are_holds_each_once():
    known = KnownPairs.of(check_pairs([[0, 1], [1, 2], [3, 4]], [1, -1, 1], None, 7), 7)
    (batch,) = KnownPairBatches(known, 512, seed=0)
    assert sorted(map(tuple, np.sort(np.reshape(batch, (-1, 2))).tolist())) == [(0, 1), (1, 2), (3, 4)]
    with pytest.raises(ValueError, match="batch_size: must be even, for both items of every pair; got 511"):
        KnownPairBatches(known, 511, seed=0)


def test_listed_pairs_take_precedence_over_classes():
    listed = PairsOfItems(
        tuples=np.array([[0, 3, -1], [1, 4, 5]]),
        i=np.array([0, 4, 1, 0]),
        j=np.array([3, 1, 5, 2]),
        degree=np.array([0.0, 0.0, UNSURE, 0.0], np.float32),
        by_class=True,
    )
    items = replace(Dataset.from_array("six", np.zeros((6, 2)), [0, 0, 0, 1, 1, 2]), listed=listed)
    known = KnownPairs.among(items)
    relation = known.relation(torch.arange(6))
    expected = torch.as_tensor(items.labels[:, None] == items.labels).long().fill_diagonal_(-1)
    expected[0, 2] = expected[2, 0] = 0
    expected[1, 5] = expected[5, 1] = -1
    torch.testing.assert_close(relation, expected)
    assert known.relation(torch.tensor([0, 0]))[0, 1] == -1  # an item is no positive of itself
    batches = KnownPairBatches(known, 9, seed=0)
    for batch in batches:
        for anchor, mate, *negatives in np.reshape(batch, (-1, 4)).tolist():
            assert items.labels[anchor] == items.labels[mate]
            assert anchor != mate
            assert (anchor, *negatives)[:2] in ((0, 3), (1, 4))
    degrees = replace(items, listed=replace(listed, degree=np.array([0.25, 0, 1, 0], np.float32), by_class=False))
    assert KnownPairs.among(degrees).relation(torch.arange(6))[0, 3] == 1
    relation = KnownPairs.among(degrees, degrees=True).relation(torch.arange(6))
    assert relation[0, 3] == relation[3, 0] == 0.25
    assert relation[0, 1] == -1
    with pytest.raises(ValueError, match="batch_size: expected at least 4, for all items of a tuple, got 3"):
        KnownPairBatches(known, 3, seed=0)


@pytest.mark.slow
def test_pairs_know_their_items_by_the_numbers_of_rows(digits, told):
    X, _ = digits
    pairs, labels = told
    metric = DeepMetric("ContrastiveLoss()", **QUICK)
    keep = np.random.default_rng(1).permutation(400)[:300]
    within = np.isin(pairs, keep).all(axis=1)
    place = np.full(400, -1)
    place[keep] = np.arange(300)
    a = metric.fit(X[keep], pairs=pairs, pair_labels=labels, rows=keep).transform(X)
    b = metric.fit(X[keep], pairs=place[pairs[within]], pair_labels=labels[within]).transform(X)
    np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_images_learn_from_pairs_and_are_saved_with_the_threshold(told, tmp_path):
    X = (load_digits().images[:400] * 15).astype(np.uint8).repeat(4, 1).repeat(4, 2)
    pairs, labels = told
    settings = {**QUICK, "trunk": "conv4(width=8)"}
    metric = DeepMetric("TripletLoss()", **settings).fit(X, pairs=pairs, pair_labels=labels)
    metric.save(tmp_path / "pairs")
    again = DeepMetric.load(tmp_path / "pairs")
    np.testing.assert_array_equal(again.predict(pairs, X), metric.predict(pairs, X))


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({}, {"pair_labels": [1]}, "pair_labels"),
        ({}, {"pairs": [[0, 1]]}, "pairs must hold at least one dissimilar pair"),
        ({}, {"pairs": [[0, 1]], "rows": np.arange(6)}, "pairs must hold at least one dissimilar pair"),
        ({}, {"pairs": [[0, 1], [2, 3]], "pair_labels": [-1, -1]}, "pairs must hold at least one similar pair"),
        ({}, {"pairs": [[0, 1], [2, 9]], "pair_labels": [1, -1]}, r"pairs must hold row numbers 0\.\.5; got .9"),
        ({"validation": 0.2}, {"pairs": [[0, 1], [2, 3]], "pair_labels": [1, -1]}, "validation: 0.2 needs classes"),
        ({"settings": {"sampler": "m_per_class:2"}}, {"pairs": [[0, 1], [2, 3]], "pair_labels": [1, -1]}, "sampler: "),
        ({"settings": {"episodes": "maml"}}, {"pairs": [[0, 1], [2, 3]], "pair_labels": [1, -1]}, "episodes: 'maml'"),
        ({"batch_size": 7}, {"pairs": [[0, 1], [2, 3]], "pair_labels": [1, -1]}, "batch_size: must be even"),
        ({"objective": "AMSoftmaxLoss()"}, {"pairs": [[0, 1], [2, 3]], "pair_labels": [1, -1]}, "one class per sample"),
    ],
)
def test_pairs_that_do_not_fit_are_one_error(changes, given, message):
    with pytest.raises(ValueError, match=message) as caught:
        DeepMetric(**{**QUICK, **changes}).fit(np.eye(6), **given)
    assert str(caught.value).startswith("DeepMetric: ")
    assert "\n" not in str(caught.value)


def test_pairs_of_points_are_told_as_rows_and_numbers(told, digits):
    pairs, labels = told
    points = digits[0][pairs]
    with pytest.raises(ValueError, match=r"^DeepMetric: X must be rows; got pairs of points, .*=np.arange\(6000\)"):
        DeepMetric(**QUICK).fit(points, labels)
    with pytest.raises(ValueError, match=r"^DeepMetric: y must hold at least 2 classes"):
        DeepMetric(**QUICK).fit(np.zeros((4, 4, 9), np.uint8), [0, 0, 0, 0])  # these are images
