"""Tables whose items have sets of labels, or whose classes have levels above them."""

import numpy as np
import pytest

from nearfar.data import DataError, open_dataset, open_task
from nearfar.data.class_labels import ClassLabels
from nearfar.data.open import read_levels, with_levels


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_set_of_labels_is_a_class_and_items_are_held_out_at_random(tmp_path):
    lines = [f"{('b;a', 'a', 'c ; a', 'b')[i % 4]},{i}" for i in range(40)]
    table = write(tmp_path / "sets.csv", "labels,x", *lines)
    items = open_dataset(table)
    assert items.classes == ("a", "a;b", "a;c", "b")
    assert items.class_labels.hot(items.classes).tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 0]]
    task = open_task(table)
    assert [len(part) for part in (task.train, task.validation, task.test)] == [17, 3, 20]
    assert "items with sets of labels, one half held out with seed 0" in task.protocol
    assert "test 20 rows of 4 different sets of labels" in task.protocol
    assert "not zero-shot: 3 of the 3 labels of the test are in training or validation" in task.protocol
    rows = [row for part in (task.train, task.validation, task.test) for row in part.array[:, 0]]
    assert sorted(rows) == list(range(40))
    assert task.train.joined(task.test).has_label_sets


def test_lists_of_names_are_sets(tmp_path):
    table = write(tmp_path / "sets.jsonl", '{"labels": ["b", "a"], "text": "one"}', '{"labels": ["c"], "text": "two"}')
    assert open_dataset(table).classes == ("a;b", "c")


@pytest.mark.parametrize("cell", ["a;;b", ";a", "a;", " ; "])
def test_an_empty_name_in_a_set_is_one_line(tmp_path, cell):
    table = write(tmp_path / "sets.csv", "labels,x", "a,1", f"{cell},2")
    with pytest.raises(
        DataError, match=r"sets.csv: the labels in row 2 have an empty name, got '.*'; expected names w"
    ):
        open_dataset(table)


def test_half_of_the_labels_missing_is_one_line(tmp_path):
    table = write(tmp_path / "sets.csv", "labels,x", *(f"{'a;b' if i % 2 else ''},{i}" for i in range(8)))
    with pytest.raises(DataError, match="the label is empty in 4 rows, first in row 1 after the header"):
        open_dataset(table)
    assert len(open_dataset(table, skip_bad=True)) == 4


def test_levels_are_no_features_and_follow_the_classes(tmp_path):
    lines = [f"s{i % 8},g{i % 8 // 2},f{i % 8 // 4},{i}" for i in range(32)]
    table = write(tmp_path / "birds.csv", "species,genus,family,x", *lines)
    levels = read_levels([table], "species", ["genus", "family"])
    assert levels.of["s5"] == ("s5", "g2", "f1")
    task = with_levels(open_task(table, label="species"), levels)
    assert task.train.array.shape[1] == 1
    assert "not used" not in task.protocol
    for part in (task.train, task.test):
        species = np.array([int(name[1:]) for name in part.classes])
        for level, size in ((1, 2), (2, 4)):
            numbers = part.class_labels.at_level(level, part.classes)
            assert (numbers[:, None] == numbers).tolist() == ((species // size)[:, None] == species // size).tolist()


def test_labels_of_two_levels_with_one_name_are_two():
    labels = ClassLabels({"pica": ("pica", "pica"), "pica nuttalli": ("pica nuttalli", "pica")}, ("species", "genus"))
    hot = labels.hot(["pica", "pica nuttalli"])
    assert (hot @ hot.T).tolist() == [[2, 1], [1, 2]]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["s1,g1,1", "s2,g1,2", "s1,g2,3"], "species 's1' is in genus 'g1' and, in row 3, in 'g2'; expected one genus"),
        (["s1,g1,1", "s2,,2"], "column 'genus' is empty in row 2; expected a name in every row"),
    ],
)
def test_levels_that_do_not_fit_are_one_line(tmp_path, lines, says):
    table = write(tmp_path / "birds.csv", "species,genus,x", *lines)
    with pytest.raises(DataError, match=says):
        read_levels([table], "species", ["genus"])
    with pytest.raises(DataError, match="has no column 'family'; it has species, genus, x"):
        read_levels([table], "species", ["family"])
