"""Labels, groups and ids: one function reads them, whatever container holds them, and equal ones are one class."""

import dataclasses
import inspect
import warnings

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch
from sklearn.utils.estimator_checks import _NotAnArray

import nearfar
from nearfar import evaluation
from nearfar.data import DataError, Dataset
from nearfar.deep import mine_offline
from nearfar.index import Index
from nearfar.labels import as_array, class_name, class_numbers, folded, named_classes, without_spellings_of_numbers

RNG = np.random.default_rng(0)
LABELS = RNG.permutation(np.arange(36) % 4)
OTHERS = RNG.permutation(np.arange(36) % 3)
X = RNG.normal(size=(36, 5)) + 0.5 * LABELS[:, None]
Q = X[:9] + RNG.normal(size=(9, 5))
IJ = np.stack(np.triu_indices(36, 1), axis=1)

CONTAINERS = {
    "list of int": np.ndarray.tolist,
    "list of numbers of NumPy": list,
    "list of tensors": lambda y: list(torch.as_tensor(y)),
    "list of floats": lambda y: y.astype(float).tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "object with __array__": _NotAnArray,
    "tensor": torch.as_tensor,
    "pandas": lambda y: pandas.Series(y, index=np.arange(len(y))[::-1]),
    "pandas category": lambda y: pandas.Series(y, dtype="category"),
    "pandas Int64": lambda y: pandas.Series(y, dtype="Int64"),
    "polars": polars.Series,
    "Arrow": pyarrow.array,
    "Arrow chunks": lambda y: pyarrow.chunked_array([pyarrow.array(y[:7]), pyarrow.array(y[7:])]),
    "list of Arrow": lambda y: list(pyarrow.array(y)),
}
"""Ways to hold the same labels, each made from an array of them."""


def drawn(sampler):
    return [list(batch) for batch in sampler]


def parts(result):
    """What a result consists of, to compare it."""
    if dataclasses.is_dataclass(result):
        return {field.name: parts(getattr(result, field.name)) for field in dataclasses.fields(result)}
    if isinstance(result, (list, tuple)):
        return [parts(value) for value in result]
    return result


def learned(learner, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit(X, y).transform(X)


HOT = LABELS[:, None] == np.arange(LABELS.max() + 1)
DEEP = torch.as_tensor(X, dtype=torch.float32)
USES = {
    "ami": lambda y, g: evaluation.ami(y, g),
    "best_distance": lambda y, g: evaluation.best_distance(X, y, groups=g, most=20),
    "clustering_scores": lambda y, g: evaluation.clustering_scores(X, y),
    "evaluate": lambda y, g: evaluation.evaluate(X, y, groups=g),
    "evaluate by products": lambda y, g: evaluation.evaluate(X, y, group_by=y),
    "evaluate in a gallery": lambda y, g: evaluation.evaluate(Q, LABELS[:9].tolist(), gallery=X, gallery_labels=y),
    "few_shot": lambda y, g: evaluation.few_shot(X, y, ways=2, queries=2, episodes=20),
    "hard_negatives": lambda y, g: evaluation.hard_negatives(X, y),
    "identify": lambda y, g: evaluation.identify(X, y, gallery=X[LABELS < 3], gallery_labels=LABELS[LABELS < 3]),
    "joint_error": lambda y, g: evaluation.joint_error(X, y, X + 1, y),
    "label_set_scores": lambda y, g: evaluation.label_set_scores(X, HOT, groups=g).map_at_r,
    "map_at_r": lambda y, g: evaluation.map_at_r(X, y),
    "mean_average_precision": lambda y, g: evaluation.mean_average_precision(X, y),
    "mrr": lambda y, g: evaluation.mrr(X, y),
    "nmi": lambda y, g: evaluation.nmi(y, g),
    "pairs_across": lambda y, g: evaluation.pairs_across(X, y),
    "pairwise_f1": lambda y, g: evaluation.pairwise_f1(y, g),
    "precision_at_k": lambda y, g: evaluation.precision_at_k(X, y),
    "r_precision": lambda y, g: evaluation.r_precision(X, y),
    "recall_at_k": lambda y, g: evaluation.recall_at_k(X, y),
    "retrieve": lambda y, g: evaluation.retrieve(X, y, groups=g),
    "storage_scores": lambda y, g: evaluation.storage_scores(X, y),
    "subset_recall": lambda y, g: evaluation.subset_recall(X, y, parts=2),
    "suspects": lambda y, g: evaluation.suspects(X, y, folds=2, repeats=1),
    "verify": lambda y, g: evaluation.verify(X, y, groups=g),
    "verify_distances": lambda y, g: evaluation.verify_distances(
        X[IJ[:36, 0], 0] - X[IJ[:36, 1], 0], LABELS[IJ[:36, 0]] == LABELS[IJ[:36, 1]], folds=g
    ),
    "verify_pairs": lambda y, g: evaluation.verify_pairs(X, IJ[:36], LABELS[IJ[:36, 0]] == LABELS[IJ[:36, 1]], folds=g),
    "a learner": lambda y, g: learned(nearfar.LMNN(max_iter=5), y),
    "a learner of sums": lambda y, g: learned(nearfar.RCA(), y),
    "a learner by kernels": lambda y, g: learned(nearfar.Kernelized(nearfar.RCA()), y),
    "a score of a learner": lambda y, g: nearfar.RCA().fit(X, LABELS).score(X, y),
    "a loss": lambda y, g: nearfar.TripletLoss()(DEEP, y).item(),
    "a reference of a loss": lambda y, g: nearfar.TripletLoss()(DEEP, LABELS, ref=DEEP, ref_labels=y).item(),
    "ids of a loss": lambda y, g: nearfar.TripletLoss()(DEEP, y, ids=y).item(),
    "mine_offline": lambda y, g: mine_offline(nearfar.BatchHard(), DEEP, y).tolist(),
    "a sampler": lambda y, g: drawn(nearfar.MPerClassSampler(y, batch_size=4, m=2)),
    "a sampler by groups": lambda y, g: drawn(nearfar.HierarchicalSampler(y, y, batch_size=8, m=4)),
    "an index": lambda y, g: Index(X, labels=y).labels,
    "a data set": lambda y, g: Dataset.from_array("x", X, y).labels,
}
FOUND = {}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("use", USES)
def test_labels_mean_the_same_in_every_container(use, container):
    if use not in FOUND:
        FOUND[use] = parts(USES[use](LABELS, OTHERS))
    if container == "list of floats" and ("loss" in use or use == "mine_offline"):
        pytest.skip("losses take integers")
    made = CONTAINERS[container]
    np.testing.assert_equal(parts(USES[use](made(LABELS), made(OTHERS))), FOUND[use])


def test_every_score_that_takes_labels_is_tested():
    takes = {
        name
        for name in evaluation.__all__
        if {"labels", "groups", "group_by", "seen_labels", "folds"}
        & set(inspect.signature(getattr(evaluation, name)).parameters)
    }
    drawn = {"plot_confusions", "plot_map", "plot_recall"}
    assert takes - drawn <= set(USES)


@pytest.mark.parametrize("labels", [[[0, 1], [1, 0]], [torch.zeros(3), torch.zeros(3)], [np.zeros(3)], "cat", 3, None])
def test_what_is_not_one_label_per_row_is_named(labels):
    with pytest.raises(ValueError, match=r"^gallery_labels: expected (one label per row|hashable)"):
        class_numbers([0, 1], labels)


def test_batches_of_labels_are_to_be_joined():
    with pytest.raises(ValueError, match=r"list of arrays of shape \(3,\); join batches with torch\.cat or np\.conc"):
        evaluation.nmi([torch.zeros(3), torch.ones(3)], [0, 1])


def test_equal_numbers_are_one_class():
    large = 2**63 + 1
    assert class_numbers([1, 2, 1], [1.0, 2.0])[1].tolist() == [0, 1]
    assert class_numbers(np.array([1, 2], np.uint64), np.array([2, -1]))[0].tolist() == [1, 2]
    assert class_numbers([large, large - 1, large])[0].tolist() == [1, 0, 1]
    assert class_numbers([2**53 + 1, 0.5], [2**53])[0].tolist() == [2, 0]
    assert class_numbers(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))[0].tolist() == [0, 1]


def test_every_text_is_its_own_class():
    assert class_numbers(["a", "a\0", "a"])[0].tolist() == [0, 1, 0]
    assert class_numbers(["1", "01", "1.0", 1], names=("labels",))[0].tolist() == [0, 1, 2, 3]
    assert named_classes([("a", 1), ("b", 2), ("a", 1)]) == ([("a", 1), ("b", 2)], pytest.approx([0, 1, 0]))
    with pytest.raises(DataError, match="labels must not end with the character NUL"):
        Dataset.from_array("x", X[:2], ["a", "a\0"])


def test_classes_are_numbered_in_sorted_order():
    assert class_numbers(["b", "a"])[0].tolist() == class_numbers(np.array(["b", "a"]))[0].tolist() == [1, 0]
    assert class_numbers([10, 9.5])[0].tolist() == [1, 0]
    assert class_numbers(["b", 1, "a"])[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("values", [[], [None, 1], [1, float("nan")], ["a", None], [(1, 2), (3, 4)], [True, 2]])
def test_an_array_holds_what_was_given(values):
    found = as_array(values)
    assert found.shape == (len(values),)
    np.testing.assert_equal(found.tolist(), values)


def test_names_of_classes():
    numbers = (7, 7.0, np.float32(7), np.int64(7), 7.5, 1e20, float("inf"), True, "007")
    names = ["7", "7", "7", "7", "7.5", str(10**20), "inf", "True", "007"]
    assert list(map(class_name, numbers)) == names
    assert Dataset.from_array("x", X[:3], [1.0, 2.0, 1.0]).classes == ("1", "2")


def test_a_column_of_numbers_is_written_in_one_way():
    assert without_spellings_of_numbers(["1", "1.0", "-0.0", "10.50", "0", "100"]) == [
        "1",
        "1",
        "0",
        "10.5",
        "0",
        "100",
    ]
    for texts in (["1.0", "cat"], ["1.0", "007"], ["1.0", "1e3"], ["1.0", "+1"], ["1.0", " 1"], ["1.0", ""]):
        assert without_spellings_of_numbers(texts) == texts


def test_spellings_that_are_nearly_equal():
    for alike in (("Cat", "cat ", "CAT"), ("7", "007", "7.0", "07.00"), ("0", "-0", "0.0", "00"), ("ﬁn", "Fin")):
        assert len(set(map(folded, alike))) == 1
    apart = ("cat", "cats", "7", "-7", "70", "0.7", "7.5", "", "007a")
    assert len(set(map(folded, apart))) == len(apart)
