"""Tasks: zero-shot splits, filters, notes and the protocol sentence."""

from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data import DataError, Dataset, inspect_data, open_dataset, open_items, open_task
from nearfar.data.dataset import unseen_half
from nearfar.data.open import match_classes, with_several_items
from nearfar.data.public import PUBLIC
from nearfar.io.formats import READERS, TABLES, accepted, function_at, reader_called, reader_of

from .conftest import class_folders, png, write


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reader_of_the_list_names_functions_that_exist_and_take_its_settings(reader):
    parameters = signature(function_at(reader.opens)).parameters
    assert set(reader.settings) <= parameters.keys(), reader.opens
    assert ("path" in parameters) is not (reader.is_named and not reader.prefix)
    for name in filter(None, (reader.items, reader.recognizes)):
        assert callable(function_at(name))
    assert reader.words in accepted()
    assert reader.is_named or reader.folders or reader.fits(Path(f"none{reader.endings[0]}"))


def test_a_public_data_set_has_a_reader():
    assert {reader.name for reader in READERS if reader.downloaded} == PUBLIC.keys()


def test_every_ending_leads_to_a_reader():
    assert {reader_of(f"no/file{ending}").name for ending in TABLES} == {"table"}
    found = {name: reader_of(name) for name in ("a.npz", "a.npy", "a.png", "a.csv.txt", "a")}
    assert [reader and reader.name for reader in found.values()] == ["arrays", "array", None, None, None]


def test_a_downloaded_data_set_gives_way_to_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reader_called("grocery")[0].downloaded
    write(tmp_path, {"grocery/a/1.png": png(), "digits/a/1.png": png()})
    assert reader_called("grocery") is None
    assert open_dataset("grocery").classes == ("a",)
    assert len(open_dataset("digits").classes) == 10
    assert reader_called("cub") is None
    assert reader_called("digits:a") is None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 60), st.integers(0, 5))
def test_half_of_the_classes_is_unseen(n, seed):
    held = unseen_half(n, seed)
    assert held.sum() == n // 2
    assert np.array_equal(held, unseen_half(n, seed))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 6), st.integers(0, 30), st.integers(0, 5))
def test_classes_of_several_items_are_in_training_and_in_the_test(several, alone, seed):
    counts = np.random.default_rng(seed).permutation(np.repeat([7, 1], [several, alone]))
    drawn = unseen_half(len(counts), seed)
    held = with_several_items(counts, drawn, seed)
    assert held.sum() == len(counts) // 2
    tested = held[counts > 1].sum()
    assert tested >= min(2, several // 2)
    assert several - tested >= min(2, (several + 1) // 2)
    if alone == 0:
        assert np.array_equal(held, drawn)


def test_two_large_classes_among_many_single_rows_are_split(tmp_path):
    lines = [f"s{k},{k},1" for k in range(30)] + [f"{'ab'[k % 2]},{k},2" for k in range(8)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,x,z", *lines]))
    for seed in range(5):
        task = open_task(str(tmp_path / "rows.csv"), seed=seed, validation=0.0)
        assert {part.class_counts.max() for part in (task.train, task.test)} == {4}


@pytest.fixture
def source(tmp_path, rows):
    np.savez(tmp_path / "a.npz", X=rows, y=np.arange(30) % 10)
    return str(tmp_path / "a.npz")


def test_a_seeded_split_is_disjoint_complete_and_stated(source, rows):
    task = open_task(source, seed=3, validation=0.4)
    parts = [task.train, task.validation, task.test]
    classes = [c for part in parts for c in part.classes]
    assert sorted(classes) == sorted(map(str, range(10)))
    everything = np.concatenate([part.array for part in parts])
    assert np.array_equal(np.unique(everything, axis=0), np.unique(rows, axis=0))
    assert task.protocol == (
        "a: train 9 rows of 3 classes, validation 6 rows of 2 classes, test 15 rows of 5 classes; "
        "test classes drawn with seed 3; validation classes drawn from the training classes with seed 3."
    )
    assert open_task(source, seed=3).test.classes == task.test.classes
    assert len({open_task(source, seed=s).test.classes for s in range(4)}) > 1


def test_labels_follow_their_classes_through_the_split(source, rows):
    label_of = {row.tobytes(): str(i % 10) for i, row in enumerate(rows)}
    task = open_task(source)
    for part in (task.train, task.validation, task.test):
        assert [part.classes[label] for label in part.labels] == [label_of[row.tobytes()] for row in part.array]


def test_test_classes_are_held_out(source):
    task = open_task(source, test_classes=["3", "7"], validation=0)
    assert task.test.classes == ("3", "7")
    assert len(task.train.classes) == 8
    assert task.validation is None
    assert "classes 3, 7 held out for the test" in task.protocol
    with pytest.raises(DataError, match="expected 2 or more classes for the test and for training, got 1 and 9"):
        open_task(source, test_classes=["3"])


def test_too_few_classes_to_hold_out_say_what_to_do(tmp_path):
    np.savez(tmp_path / "three.npz", X=np.eye(6), y=[0, 1, 2] * 2)
    with pytest.raises(
        DataError, match=r"three: 3 classes, but holding out classes needs 4 or more.* pass split='rows'"
    ):
        open_task(tmp_path / "three.npz")
    np.savez(tmp_path / "one.npz", X=np.eye(6), y=[0] * 6)
    with pytest.raises(DataError, match=r"one: 1 class, but holding out .* 2 for the test$"):
        open_task(tmp_path / "one.npz")


def test_names_match_exactly_then_as_folders_then_as_beginnings():
    names = ["1", "10", "A/x", "A/y", "AB/x"]
    items = Dataset.from_array("d", np.zeros((5, 1), np.float32), names)
    assert match_classes(items, ["1"]) == ["1"]
    assert match_classes(items, ["A"]) == ["A/x", "A/y"]
    assert match_classes(items, ["AB", "A/"]) == ["AB/x", "A/x", "A/y"]
    assert match_classes(items, ["A/x", "A"]) == ["A/x", "A/y"]
    nested = Dataset.from_array("d", np.zeros((3, 1), np.float32), ["A", "A/x", "B"])
    assert (match_classes(nested, ["A"]), match_classes(nested, ["A/"])) == (["A"], ["A/x"])
    items = Dataset.from_array("d", np.zeros((2, 1), np.float32), ["001.Auk", "002.Jay"])
    assert match_classes(items, ["001"]) == ["001.Auk"]


@pytest.mark.parametrize("opened", [open_task, open_dataset])
def test_images_without_pixels_are_refused(opened):
    for size in (0, -3):
        with pytest.raises(DataError, match=f"image_size: expected a side of at least 1 pixel, got {size}"):
            opened("digits", image_size=size)


def test_one_name_is_not_taken_for_a_list_of_letters(source):
    with pytest.raises(DataError, match="classes: expected a list of names, got 'c1'; put it in brackets"):
        open_task(source, test_classes="c1")
    with pytest.raises(DataError, match="classes: expected a list of names"):
        open_dataset(source, classes="c1")


def test_validation_items_are_not_trained_on_with_another_test(source, tmp_path, rows):
    split = np.where(np.arange(30) % 5 == 0, "validation", "test")
    np.savez(tmp_path / "b.npz", X=rows, y=[f"c{i % 5}" for i in range(30)], split=split)
    task = open_task(str(tmp_path / "b.npz"), test=source)
    assert (len(task.train), len(task.validation), len(task.test)) == (24, 6, 30)
    assert task.validation.classes == ("c0",)
    assert "c0" not in task.train.classes


def test_another_source_can_be_the_test(source, tmp_path, rows):
    np.savez(tmp_path / "b.npz", X=rows[:6], y=list("uvwuvw"))
    task = open_task(source, test=str(tmp_path / "b.npz"), validation=0)
    assert (len(task.train), len(task.test)) == (30, 6)
    assert "tested on b" in task.protocol


def test_roles_of_the_test_source_are_followed(source, tmp_path, rows):
    split = ["train"] * 10 + ["query"] * 4 + ["gallery"] * 16
    np.savez(tmp_path / "b.npz", X=rows, y=[f"c{i % 5}" for i in range(30)], split=split)
    task = open_task(source, test=str(tmp_path / "b.npz"))
    assert (len(task.test), len(task.gallery)) == (4, 16)
    assert task.test.classes == task.gallery.classes


def test_lone_items_are_noted_not_fatal(tmp_path):
    names = [
        f"{role}/{role}{c}/{i}.png" for role in ("train", "test") for c in range(3) for i in range(1 if c == 1 else 3)
    ]
    task = open_task(str(write(tmp_path / "set", {name: png() for name in names})))
    assert task.notes == (
        "1 training class with only one image (train1)",
        "1 test class with only one image (test1)",
    )
    assert all(note in task.protocol for note in task.notes)
    assert open_dataset(str(tmp_path / "set")).notes == ("2 classes with only one image (test1, train1)",)


def test_classes_in_both_parts_are_confessed(tmp_path):
    names = [f"{role}/{c}/{i}.png" for role in ("train", "test") for c in "ab" for i in range(2)]
    task = open_task(str(write(tmp_path / "set", {name: png() for name in names})))
    assert "NOT zero-shot: 2 class names occur in training and test (a, b)" in task.protocol


def test_open_dataset_filters_classes(folder):
    assert open_dataset(str(folder), classes=["class1", "class3"]).classes == ("class1", "class3")


@pytest.mark.parametrize("opened", [open_dataset, open_items, open_task, inspect_data])
def test_sources_may_be_paths_and_are_no_arrays(opened, folder):
    assert opened(Path(folder)).name == opened(str(folder)).name
    with pytest.raises(TypeError, match=r"source: expected a path or a name, got ndarray; Dataset\.from_array"):
        opened(np.zeros((3, 4)))


def test_unknown_sources_say_what_is_accepted():
    for source in ("digts", "xyz:/tmp", "cub:"):
        with pytest.raises(DataError, match=r"expected a folder, .zip or .tar .*digits, glyphs, cub:PATH") as caught:
            open_task(source)
        assert "\n" not in str(caught.value)


def test_links_between_two_folders_end(tmp_path):
    from nearfar.data.readers.files import FolderFiles

    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").touch()
        (tmp_path / name / "link").symlink_to(tmp_path / other)
    assert FolderFiles(str(tmp_path)).names() == ["a/0.png", "a/link/0.png", "b/0.png", "b/link/0.png"]


def test_the_files_of_a_folder_are_listed_once(tmp_path, monkeypatch):
    from nearfar.data.readers.files import FolderFiles

    folder = write(tmp_path / "set", class_folders(30, 4))
    listed = []
    walk = FolderFiles.walk

    def counted(files):
        for name in walk(files):
            listed.append(name)
            yield name

    monkeypatch.setattr(FolderFiles, "walk", counted)
    assert len(open_dataset(folder)) == 120
    # to see that the images are not those of Omniglot, the first one is enough
    assert len(listed) < 120 + 30 + 40
