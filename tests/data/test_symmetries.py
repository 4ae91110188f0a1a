"""Turned and mirrored classes."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.data import DataError, Dataset, open_task
from nearfar.data.class_labels import ClassLabels
from nearfar.data.transforms.symmetries import with_more_classes, with_symmetries


def images(n=6, shape=(5, 5, 1)):
    array = np.random.default_rng(0).integers(0, 255, (n, *shape), np.uint8)
    return Dataset.from_array("some", array, ["b", "a", "c"] * (n // 3))


@pytest.mark.parametrize(("kind", "turns"), [("rotations", 4), ("all", 8)])
@pytest.mark.parametrize("in_memory", [True, False])
def test_every_turn_is_a_class(kind, turns, in_memory):
    base = images()
    found = with_symmetries(base if in_memory else replace(base, array=None), kind)
    assert (found.array is not None) == in_memory
    assert len(found) == len(found.names) == 6 * turns
    assert len(set(found.classes)) == 3 * turns
    for i in range(len(found)):
        turn, item = divmod(i, 6)
        expected = base.read(item)
        for _ in range(turn % 4):
            expected = np.stack([expected[:, 4 - r] for r in range(5)])  # a quarter turn to the left
        expected = expected[:, ::-1] if turn >= 4 else expected
        np.testing.assert_array_equal(found.read(i), expected)
        name = found.classes[found.labels[i]]
        assert name.startswith(base.classes[base.labels[item]])
        assert ("mirrored" in name) == (turn >= 4)
    np.testing.assert_array_equal(found.class_counts, np.tile(base.class_counts, turns))
    assert found.classes[:3] == base.classes
    assert "a turned 90" in found.classes


def test_levels_follow_their_classes():
    above = ClassLabels({"a": ("a", "x"), "b": ("b", "x"), "c": ("c", "y")}, levels=("label", "genus"))
    found = with_symmetries(replace(images(), class_labels=above))
    assert found.class_labels.of["b turned 90"] == ("b turned 90", "x turned 90")
    numbers = found.class_labels.at_level(1, found.classes)
    assert len(set(numbers.tolist())) == 8
    assert numbers[found.classes.index("a turned 90")] == numbers[found.classes.index("b turned 90")]


def test_groups_follow_their_images():
    base = replace(images(), groups=np.array(list("xyzxyz")))
    found = with_symmetries(base, "all")
    assert found.groups.tolist() == list("xyzxyz") * 8
    assert found.subset([6, 47]).groups.tolist() == ["x", "z"]


def test_rectangles_are_turned_one_by_one():
    found = with_symmetries(images(shape=(4, 6, 1)))
    assert found.array is None
    assert {found.read(i).shape for i in range(len(found))} == {(4, 6, 1), (6, 4, 1)}


def test_rows_and_unknown_kinds_are_refused():
    rows = Dataset.from_array("rows", np.zeros((4, 3), np.float32), [0, 0, 1, 1])
    with pytest.raises(DataError, match="got 'rotations' of rows"):
        with_symmetries(rows)
    with pytest.raises(DataError, match="expected one of rotations, all"):
        with_symmetries(images(), "some")


def test_only_training_classes_of_a_task_are_turned():
    task = open_task("digits", seed=3)
    more = with_more_classes(task, "all")
    assert len(more.train.classes) == 8 * len(task.train.classes)
    assert more.validation is task.validation
    assert more.test is task.test
    assert more.protocol.endswith(
        f"; trained on {len(more.train.classes)} classes, including rotated or mirrored ones."
    )
