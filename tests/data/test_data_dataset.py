"""Datasets, subsets, and splits by class."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data import DataError, Dataset, carve_validation, open_task
from nearfar.data.dataset import PickedReader


def numbered(counts: list[int], in_memory: bool = True) -> Dataset:
    """Rows that hold their own index; class c has counts[c] of them."""
    labels = np.repeat(np.arange(len(counts)), counts)
    array = np.arange(len(labels), dtype=np.float32)[:, None]
    whole = Dataset.from_array("numbered", array, labels)
    if in_memory:
        return whole
    return Dataset("numbered", whole.labels, whole.classes, "row", whole.read, whole.names)


def test_a_data_set_is_shown_in_one_line():
    assert repr(numbered([2, 3])) == "Dataset('numbered', 5 rows of 2 classes)"


@pytest.mark.parametrize("in_memory", [True, False])
def test_subset_keeps_items_labels_and_names_together(in_memory):
    part = numbered([2, 3, 1, 2], in_memory).subset([7, 2, 3, 0])
    assert part.classes == ("0", "1", "3")
    assert part.labels.tolist() == [2, 1, 1, 0]
    assert [float(part.read(i)[0]) for i in range(4)] == [7, 2, 3, 0]
    assert part.names == tuple(f"numbered[{i}]" for i in (7, 2, 3, 0))
    assert part.class_counts.tolist() == [1, 2, 1]
    assert (part.array is not None) == in_memory


def test_subset_of_a_subset_reads_the_right_items():
    part = numbered([4, 4], in_memory=False).subset([6, 5, 4, 1]).subset([False, True, False, True])
    assert isinstance(part.read, PickedReader)
    assert [float(part.read(i)[0]) for i in range(2)] == [5, 1]


@pytest.mark.parametrize("in_memory", [True, False])
def test_negative_numbers_count_from_the_end_also_behind_joined_sets(in_memory):
    both = numbered([2, 2], in_memory).joined(numbered([1, 4], in_memory))
    part = both.subset([-1, -5])
    assert [float(part.read(i)[0]) for i in range(2)] == [4, 0]
    assert part.names == ("numbered[4]", "numbered[0]")


def test_rows_of_several_lengths_are_not_joined():
    longer = Dataset.from_array("longer", np.zeros((2, 3)), [0, 1])
    with pytest.raises(DataError, match="numbered has 1 columns but longer has 3, so they cannot be joined"):
        numbered([2, 2]).joined(longer)


@pytest.mark.parametrize("index", [[4], [-5], [True, False]])
def test_subset_refuses_items_that_do_not_exist(index):
    with pytest.raises(IndexError):
        numbered([2, 2], in_memory=False).subset(index)


def test_only_takes_names_or_indices_and_refuses_unknown_ones():
    whole = numbered([1, 2, 3])
    assert len(whole.only(["1"])) == 2
    assert whole.only([2, 0]).classes == ("0", "2")
    with pytest.raises(DataError, match="no class 'x'; it has 0, 1, 2"):
        whole.only(["x"])
    with pytest.raises(DataError, match="no class number 3; it has 3 classes"):
        whole.only([0, 3])


def test_labels_of_any_kind_are_numbered_in_sorted_order():
    items = Dataset.from_array("a", np.zeros((4, 1), np.float32), ["b", "a", "c", "a"])
    assert items.classes == ("a", "b", "c")
    assert items.labels.tolist() == [1, 0, 2, 0]
    assert Dataset.from_array("a", np.zeros((3, 1), np.float32), [10, 9, 2]).classes == ("2", "9", "10")


def test_unequal_lengths_are_an_error():
    with pytest.raises(DataError, match="3 items but 2 labels"):
        Dataset.from_array("a", np.zeros((3, 1), np.float32), [0, 1])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0.0, np.nan, 1.0]), "1 of 3 labels are missing"),
        (["a", float("nan"), "b"], "1 of 3 labels are missing"),
        (np.array(["a", None, None], dtype=object), "2 of 3 labels are missing"),
        (np.array(["a", 1, "b"], dtype=object), "labels must be of one type"),
    ],
)
def test_missing_labels_and_labels_of_several_types_are_errors(labels, message):
    with pytest.raises(DataError, match=message):
        Dataset.from_array("a", np.zeros((3, 1), np.float32), labels)


def test_datasets_pickle():
    part = pickle.loads(pickle.dumps(numbered([3, 3], in_memory=False).subset([5, 1])))
    assert float(part.read(0)[0]) == 5


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.floats(0, 0.99), st.integers(0, 5))
def test_validation_is_disjoint_seeded_and_complete(counts, fraction, seed):
    whole = numbered(counts)
    train, validation = carve_validation(whole, fraction, seed)
    if validation is None:
        assert train is whole
        assert fraction == 0 or len(counts) < 4
        return
    assert not set(train.classes) & set(validation.classes)
    assert sorted(train.classes + validation.classes) == sorted(whole.classes)
    items = np.concatenate([train.array, validation.array])[:, 0]
    assert sorted(items.tolist()) == list(range(len(whole)))
    assert min(len(train.classes), len(validation.classes)) >= 2
    again = carve_validation(whole, fraction, seed)[1]
    assert again is not None
    assert again.classes == validation.classes


def test_another_seed_carves_other_classes():
    drawn = {carve_validation(numbered([2] * 30), 0.2, seed)[1].classes for seed in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 3])
def test_an_impossible_share_is_an_error(fraction):
    with pytest.raises(DataError, match="share in"):
        carve_validation(numbered([2] * 6), fraction)


def test_importing_the_package_loads_neither_torch_nor_pillow():
    code = "import sys, nearfar.data; print(sorted({'torch', 'PIL', 'kornia', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_digits_are_a_task():
    task = open_task("digits")
    assert task.test.classes == tuple("56789")
    assert set(task.train.classes) | set(task.validation.classes) == set("01234")
    assert (len(task.train) + len(task.validation), len(task.test)) == (901, 896)
    assert task.test.array.shape[1:] == (8, 8, 1)
    assert task.test.array.max() == 255
    assert "0 to 4 seen" in task.protocol
    assert open_task("digits", image_size=16).test.array.shape[1:] == (16, 16, 1)


@pytest.mark.parametrize(
    ("name", "array", "error", "message"),
    [
        (
            "a",
            np.zeros((4, 3, 8, 8), np.uint8),
            DataError,
            r"a: array has shape \(4, 3, 8, 8\) and type uint8; expected",
        ),
        ("a", np.zeros((4, 8, 8)), DataError, r"shape \(4, 8, 8, 1\) and type float64; expected .* or .* uint8"),
        ("a", np.full((4, 2), "x"), DataError, r"shape \(4, 2\) and type <U1; expected .n, d. numbers"),
        (
            np.zeros((4, 2)),
            np.arange(4),
            TypeError,
            "name: expected text, got ndarray; pass name, array, labels in this order",
        ),
    ],
)
def test_arrays_that_are_no_items_are_refused(name, array, error, message):
    with pytest.raises(error, match=message):
        Dataset.from_array(name, array, [0, 0, 1, 1])


@pytest.mark.parametrize("rows", [np.ones((2, 3)), np.ones((2, 3), np.int64), [[1, 1, 1], [1, 1, 1]]])
def test_rows_of_any_numbers_are_singles(rows):
    items = Dataset.from_array("a", rows, [0, 1])
    assert items.kind == "row"
    assert items.array.dtype == items.read(0).dtype == np.float32
    np.testing.assert_array_equal(items.array, np.ones((2, 3)))


def test_gray_images_need_no_axis_of_channels():
    assert Dataset.from_array("a", np.zeros((4, 8, 6), np.uint8), [0, 0, 1, 1]).read(0).shape == (8, 6, 1)
