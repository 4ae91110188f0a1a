"""The column of the classes of a table, named by the user."""

import json

import numpy as np
import pytest

from nearfar.data import DataError, inspect_data, open_dataset, open_task
from nearfar.data.checks.training_items import marks_of, respelled_classes
from nearfar.data.items import open_items

from .conftest import png, write, zipped

COLUMNS = {"width": [1.0, 2.0, 3.0], "label": [7.0, 8.0, 9.0], "species": ["a", "b", "a"]}


def table(tmp_path, columns, kind="csv"):
    """Write columns as a table of some kind; returns its path."""
    path = tmp_path / f"table.{kind}"
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table

        write_table(pa.table(columns), path)
        return path
    rows = list(zip(*columns.values(), strict=True))
    if kind == "jsonl":
        text = "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    else:
        mark = "\t" if kind == "tsv" else ","
        text = "".join(mark.join(map(str, row)) + "\n" for row in [columns.keys(), *rows])
    path.write_text(text)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_the_named_column_holds_the_classes_and_one_called_label_is_a_feature(tmp_path, kind):
    items = open_dataset(table(tmp_path, COLUMNS, kind), label="species")
    assert (items.columns, items.classes) == (("width", "label"), ("a", "b"))
    assert items.array.tolist() == [[1, 7], [2, 8], [3, 9]]
    assert items.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("name", ["Class", "LABEL", "target", "name", "group", "split", "category", "Path"])
def test_a_column_that_has_a_meaning_can_hold_the_classes_by_the_name_that_it_has_in_the_file(tmp_path, name):
    items = open_dataset(table(tmp_path, {"width": [1, 2], name: ["a", "b"]}), label=name)
    assert (items.columns, items.classes, items.groups) == (("width",), ("a", "b"), None)


def test_other_columns_of_labels_keep_the_names_that_they_have_in_the_file(tmp_path):
    path = table(tmp_path, {"Class": [1, 2], "Label": [3, 4], "species": ["a", "b"]})
    assert open_dataset(path, label="species").columns == ("Class", "Label")
    assert open_dataset(table(tmp_path, {"Class": [1, 2], "class": ["a", "b"]}), label="class").columns == ("Class",)


def test_text_in_a_column_that_is_not_the_named_one_is_an_error(tmp_path):
    path = table(tmp_path, {"width": [1, 2], "label": ["x", "y"], "species": ["a", "b"]})
    with pytest.raises(DataError, match="column 'label' has 'x' in row 1, but features must be numbers"):
        open_dataset(path, label="species")


def test_the_labels_of_images_are_those_of_the_named_column(tmp_path, folder):
    columns = {"path": [f"birds/class{c}/0.png" for c in range(4)], "label": ["z"] * 4, "kind": list("abca")}
    for opened in (open_dataset, open_items):
        items = opened(table(tmp_path, columns), label="kind")
        assert (items.classes, items.labels.tolist(), items.columns) == (("a", "b", "c"), [0, 1, 2, 0], ())


def test_images_without_labels_are_taken_only_where_no_column_may_hold_them(tmp_path, folder):
    paths = [f"birds/class{c}/0.png" for c in range(4)]
    assert open_items(table(tmp_path, {"path": paths, "kind": list("abcd")})).classes == ("",)
    for name in ("class", "target", "y"):  # as those of images they would be read only where they are named
        path = table(tmp_path, {"path": paths, name: list("abcd")})
        with pytest.raises(DataError, match=r"no column 'label'; give the column of the classes with label=NAME"):
            open_items(path)
        assert len(open_items(path, label=name).classes) == 4


@pytest.mark.parametrize("label", ["fine", "Fine"])
def test_the_class_names_of_the_named_column_are_those_that_the_file_tells(tmp_path, label):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    features = {label: {"names": ["ant", "bee"]}, "coarse": {"names": ["insect"]}}
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    write_table(
        pa.table({"x": [1, 2], label: [1, 0], "coarse": [0, 0]}).replace_schema_metadata(told), tmp_path / "t.parquet"
    )
    items = open_dataset(tmp_path / "t.parquet", label=label)
    assert (items.classes, items.labels.tolist(), items.columns) == (("ant", "bee"), [1, 0], ("x", "coarse"))


@pytest.mark.parametrize("opened", [open_dataset, open_task, open_items, inspect_data])
def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path, opened):
    path = table(tmp_path, COLUMNS)
    with pytest.raises(DataError, match=r"no column 'specie'; did you mean 'species'\?; it has width,label,species$"):
        opened(path, label="specie")
    with pytest.raises(DataError, match=r"no column 'Kind'; it has width,label,species$"):
        opened(path, label="Kind")


def test_errors_say_how_a_column_is_named(tmp_path):
    path = table(tmp_path, {"width": [1, 2], "species": ["a", "b"]})
    with pytest.raises(DataError, match=r"label=NAME .*; it has width,species"):
        open_dataset(path)
    with pytest.raises(
        DataError, match=r"column 'species' has 'a' in row 1, .* Give the column of the classes with label="
    ):
        open_items(path)
    with pytest.raises(DataError, match=r"no column 'label'; .* label=NAME .*; it has path,kind"):
        open_dataset(table(tmp_path, {"path": ["a.png"], "kind": ["a"]}))


@pytest.mark.parametrize("opened", [open_dataset, open_task, open_items, inspect_data])
def test_sources_without_columns_take_no_name_of_one(tmp_path, folder, opened):
    np.savez(tmp_path / "rows.npz", X=np.eye(8), species=np.arange(8))
    np.save(tmp_path / "rows.npy", np.eye(8))
    (tmp_path / "one.png").write_bytes(png())
    zipped(tmp_path / "a.zip", {"a/0.png": png()})
    write(tmp_path / "loose", {"0.png": png()})
    files = ("birds", "rows.npz", "rows.npy", "one.png", "a.zip", "loose")
    for source in ("digits", "glyphs", f"cub:{folder}", *(str(tmp_path / name) for name in files)):
        with pytest.raises(
            DataError, match=r"^label: got 'species', but .* has no columns; only tables have them \(\.csv"
        ):
            opened(source, label="species")


def test_the_test_may_be_a_table_beside_a_folder_and_a_folder_beside_a_table(tmp_path, folder):
    paths = [f"birds/class{c}/{i}.png" for c in range(4) for i in range(3)]
    path = table(tmp_path, {"path": paths, "kind": np.repeat(list("abcd"), 3).tolist()})
    task = open_task(folder, test=path, validation=0, label="kind")
    assert (task.train.classes[0], task.test.classes) == ("class0", ("a", "b", "c", "d"))
    task = open_task(path, test=folder, validation=0, label="kind")
    assert (task.train.classes, task.test.classes[0]) == (("a", "b", "c", "d"), "class0")
    task = open_task(path, test=path, validation=0, label="kind")
    assert task.train.classes == task.test.classes == ("a", "b", "c", "d")
    with pytest.raises(DataError, match=r"^label: .*birds has no columns"):
        open_task(folder, test=folder, label="kind")


def test_data_are_inspected_by_the_named_column(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"width": rng.normal(size=16).tolist(), "kind": np.repeat(list("abcdefgh"), 2).tolist()}
    assert sum(part.classes for part in inspect_data(table(tmp_path, columns), label="kind").parts) == 8
    few = {"width": [1.0, 2.0], "kind": ["a", "b"]}  # no task, but what there is is told
    assert inspect_data(table(tmp_path, few), label="kind").parts[0].classes == 2


SPELLINGS = {"ints and floats": ([1, 2], [1.0, 3.0]), "numbers with zeros": (["1", "2"], ["1.0", "3.00"])}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "npz", "parquet"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_equal_numbers_are_one_class_in_all_files(tmp_path, ending, spelling):
    paths = []
    for part, classes in zip(("train", "test"), SPELLINGS[spelling], strict=True):
        (tmp_path / part).mkdir()
        columns = {"a": [0.5, 1.5, 2.5] * 2, "b": [1.0, 2.0] * 3, "label": np.repeat(classes, 3).tolist()}
        if ending == "npz":
            paths.append(tmp_path / part / "table.npz")
            np.savez(paths[-1], X=np.transpose([columns["a"], columns["b"]]), y=columns["label"])
        else:
            paths.append(table(tmp_path / part, columns, ending))
    task = open_task(paths[0], test=paths[1], validation=0)
    assert (task.train.classes, task.test.classes) == (("1", "2"), ("1", "3"))
    assert "NOT zero-shot: 1 class name occurs in training and test (1)" in task.protocol


def test_a_missing_label_does_not_rename_the_others(tmp_path):
    (tmp_path / "a.csv").write_text("a,label\n0.5,1.0\n0.25,\n1,2.0\n3,1\n")
    assert open_items(tmp_path / "a.csv").classes == ("", "1", "2")


def test_classes_that_are_spelled_almost_alike_are_named(tmp_path):
    for name, classes in {"train": ("Cat", "007", "owl", "A"), "test": ("cat", "7", "Owls", "a")}.items():
        rows = [f"{i},{label}" for i, label in enumerate(classes * 2)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,label", *rows]))
    found = inspect_data(tmp_path / "train.csv", test=tmp_path / "test.csv")
    clause = "2 test classes are spelled almost like classes of the training ('7' like '007', 'cat' like 'Cat')"
    assert f"perhaps NOT zero-shot: {clause}" in found.protocol
    assert any(remark.startswith(clause) for remark in found.remarks)
    for name in ("train.csv", "test.csv"):
        seen = open_dataset(tmp_path / name)
        marked = marks_of(open_dataset(tmp_path / "train.csv"))
        assert respelled_classes(marked, seen) == (["7", "cat"] if name == "test.csv" else [])
