"""Networks that are trained on sets of labels, and on levels of classes."""

import csv

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep import LabelSets
from nearfar.train import TrainConfig, TrainError, evaluate_run, train
from nearfar.train.setup import build

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
    loop = build(TrainConfig.of(data=sets, **HOW))
    train = loop.data.train
    _, labels, ids = next(loop.data.batches(0, 0, torch.device("cpu")))
    assert isinstance(labels, LabelSets)
    names = [set(train.class_labels.of[train.classes[train.labels[i]]]) for i in ids]
    common = labels.hot @ labels.hot.T
    assert common.tolist() == [[len(a & b) for b in names] for a in names]


@pytest.mark.slow
def test_scores_of_sets_and_levels_are_remarks_of_the_result(birds, sets, tmp_path):
    run = train(TrainConfig.of(data=sets, **HOW), tmp_path / "sets", progress=False)
    remark = next(one for one in evaluate_run(run, clustering=False).remarks if "labels in common" in one)
    assert remark.startswith("By labels in common, of 40 queries: Recall@1 ")
    assert "nDCG@10" in remark
    run = train(
        TrainConfig.of(data=birds, label="species", levels=["genus"], **HOW), tmp_path / "birds", progress=False
    )
    remarks = evaluate_run(tmp_path / "birds", clustering=False).remarks
    assert any(one.startswith("By genus, ") for one in remarks)
    assert any(one.startswith("By the number of levels in common: nDCG@10 ") for one in remarks)
