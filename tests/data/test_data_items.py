"""Items without classes: one image, loose images, rows alone; and anything that a data set is."""

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from nearfar.data import DataError, open_dataset, open_task
from nearfar.data.items import as_items, open_items

from .conftest import class_folders, png, write, zipped


def test_one_image(tmp_path):
    write(tmp_path, {"a.png": png(7, mode="L"), "b.png": png(9)})
    items = open_items(str(tmp_path / "a.png"))
    assert (items.names, items.classes, items.kind) == (("a.png",), ("",), "image")
    assert items.read(0).shape == (10, 12, 1)
    assert (items.read(0) == 7).all()


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_loose_images(tmp_path, kind):
    content = {"b.png": png(2), "a.png": png(1), "notes.txt": "no image"}
    path = write(tmp_path / "in", content) if kind == "folder" else zipped(tmp_path / "in.zip", content)
    items = open_items(str(path))
    assert items.names == ("a.png", "b.png")
    assert [int(items.read(i)[0, 0, 0]) for i in range(2)] == [1, 2]


def test_rows_without_labels(tmp_path, rows):
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "b.npz", embeddings=rows)
    np.savez(tmp_path / "c.npz", X=rows, y=np.arange(30) % 3)
    for name in "a.npy", "b.npz", "c.npz":
        items = open_items(str(tmp_path / name))
        assert np.array_equal(items.array, rows)
        assert items.classes == (("0", "1", "2") if name == "c.npz" else ("",))


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_rows_in_float32_are_copied_seldom(tmp_path, kind):
    rows, file = np.ones((2**14, 64), np.float32), tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        vector = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), 64)
        parquet.write_table(pyarrow.table({"vector": vector}), file)
    elif kind == "npy":
        np.save(file, rows)
    else:
        np.savez(file, embeddings=rows)
    open_items(str(file))  # what is loaded once has no part in it
    tracemalloc.start()
    try:
        items = open_items(str(file))
        peak = tracemalloc.get_traced_memory()[1] / rows.nbytes
    finally:
        tracemalloc.stop()
    assert np.array_equal(items.array, rows)
    assert items.array.dtype == np.float32
    assert peak < (3.5 if kind == "parquet" else 1.8)  # names and labels are a third


def test_names_of_rows_may_be_whole_numbers(tmp_path, rows):
    numbers = 7000 + np.arange(30)
    np.savez(tmp_path / "a.npz", embeddings=rows, names=numbers)
    np.savez(tmp_path / "b.npz", X=rows, y=np.arange(30) % 3, names=numbers)
    for name in "a.npz", "b.npz":
        assert open_items(str(tmp_path / name)).names == tuple(map(str, numbers))


@pytest.mark.parametrize("label", ["", ",label"])
def test_tables_without_labels(tmp_path, label):
    end = "," if label else ""
    (tmp_path / "rows.csv").write_text(f"width,height{label}\n1,2{end}\n3,4{end}\n")
    items = open_items(str(tmp_path / "rows.csv"))
    assert (items.array.tolist(), items.classes) == ([[1, 2], [3, 4]], ("",))
    write(tmp_path, {"a.png": png(7), "b.png": png(9)})
    (tmp_path / "paths.csv").write_text(f"path{label}\nb.png{end}\na.png{end}\n")
    items = open_items(str(tmp_path / "paths.csv"))
    assert (items.names, items.classes, int(items.read(0)[0, 0, 0])) == (("b.png", "a.png"), ("",), 9)
    (tmp_path / "some.csv").write_text("width,label\n1,a\n3,\n")
    some = open_items(str(tmp_path / "some.csv"))
    assert [some.classes[label] for label in some.labels] == ["a", ""]
    with pytest.raises(DataError, match="1 row"):
        open_dataset(str(tmp_path / "some.csv"))
    with pytest.raises(DataError, match="label"):
        open_dataset(str(tmp_path / "rows.csv"))


def test_an_image_of_a_kind_that_is_not_read_is_told_as_such(tmp_path):
    write(tmp_path, {"a.HEIC": b"ftyp"})
    with pytest.raises(
        DataError, match=r"a.HEIC: images of this format are not supported; pip install pillow-heif reads them"
    ):
        open_items(str(tmp_path / "a.HEIC"))
    with pytest.raises(DataError, match=r"a.svg: images of this format are not supported; save it as .jpg, .png"):
        open_items(str(write(tmp_path, {"a.svg": b"<svg/>"}) / "a.svg"))


def test_class_folders_are_read_as_ever(tmp_path):
    assert open_items(str(write(tmp_path / "birds", class_folders()))).classes == tuple(f"class{c}" for c in range(4))


def test_images_beside_class_folders_have_no_class_and_no_part_in_a_task(tmp_path):
    root = write(tmp_path / "birds", class_folders() | {"a.png": png(7), "b.png": png(8)})
    items = open_items(str(root))
    assert items.classes == ("", *(f"class{c}" for c in range(4)))
    assert [name for name, label in zip(items.names, items.labels, strict=True) if label == 0] == ["a.png", "b.png"]
    kept = open_dataset(str(root))
    assert (len(kept), kept.classes) == (len(items) - 2, items.classes[1:])
    assert "2 images outside of class folders left out (a.png, b.png)" in open_task(str(root)).protocol
    split = {f"{part}/{name}": png() for part in ("train", "test") for name in ("x/1.png", "x/2.png", "y/1.png")}
    root = write(tmp_path / "split", split | {"sheet.png": png(7)})
    assert open_items(str(root)).classes == ("", "x", "y")
    assert "left out (sheet.png)" in open_task(str(root)).protocol


def test_what_cannot_be_read_is_named(tmp_path, rows):
    np.save(tmp_path / "cube.npy", rows.reshape(2, 3, 25))
    np.savez(tmp_path / "other.npz", z=rows)
    np.save(tmp_path / "hole.npy", np.where(np.arange(30)[:, None] == 4, np.nan, rows))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "torn.npz").write_bytes(b"PK")
    for name, words in (
        ("cube.npy", "shape"),
        ("hole.npy", "hole.npy: holds NaN or infinity, first in row 4$"),
        ("other.npz", "it has z"),
        ("objects.npy", "not a readable"),
        ("torn.npz", "not a readable"),
        ("nothing.png", "neither a file"),
    ):
        with pytest.raises(DataError, match=words):
            open_items(str(tmp_path / name))


def test_an_array_may_hold_no_rows(tmp_path, rows):
    np.save(tmp_path / "none.npy", rows[:0])
    items = open_items(str(tmp_path / "none.npy"))
    assert items.array.shape == (0, 5)
    with pytest.raises(DataError, match=r"none\.npy"):
        open_dataset(str(tmp_path / "none.npy"))


def test_loose_images_that_cannot_be_decoded_are_left_out(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"not an image")
    items = open_items(str(tmp_path), skip_bad=True)
    assert (items.names, items.bad) == (("good.png",), ("bad.png",))


@pytest.mark.parametrize("takes", [("image",), ("image", "text"), ()])
def test_a_folder_in_a_list_is_named_as_one(tmp_path, takes):
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"photos' is a folder; expected paths of files; a folder is given alone"):
        as_items([tmp_path / "photos"], takes=takes)
