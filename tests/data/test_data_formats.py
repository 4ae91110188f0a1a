"""Folders, manifests, arrays and Omniglot archives, good and bad."""

import base64
import csv
import gzip
import io
import json
import pickle
import re
import sys
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from nearfar.data import DataError, DataNotFoundError, image_formats, open_dataset, open_task
from nearfar.data.items import open_items
from nearfar.data.open import open_source
from nearfar.data.readers.arrays import read_gallery
from nearfar.workflows import add_to_samples

from .conftest import class_folders, png, write, zipped


def test_folder_of_classes(folder):
    items = open_dataset(str(folder))
    assert items.classes == ("class0", "class1", "class2", "class3")
    assert items.class_counts.tolist() == [3, 3, 3, 3]
    assert items.array.shape == (12, 10, 12, 3)
    assert items.array[:, 0, 0, 0].tolist() == [10 * c + i for c in range(4) for i in range(3)]
    assert items.names[4] == "class1/1.png"


def test_folders_in_folders_name_classes_by_their_path(tmp_path):
    root = write(tmp_path / "set", {f"{a}/{b}/{i}.png": png() for a in "xy" for b in "12" for i in range(2)})
    assert open_dataset(str(root)).classes == ("x/1", "x/2", "y/1", "y/2")


def test_zip_of_class_folders_drops_the_common_top(tmp_path):
    path = zipped(tmp_path / "set.zip", {f"set/{name}": data for name, data in class_folders().items()})
    assert open_dataset(str(path)).classes == ("class0", "class1", "class2", "class3")


def test_a_class_folder_above_all_others_is_no_common_top(tmp_path):
    root = write(tmp_path / "set", {name: png() for name in ("a/0.png", "a/b/1.png", "a/c/2.png")})
    assert open_dataset(str(root)).classes == ("a", "a/b", "a/c")


def test_names_in_a_zip_are_utf8_also_where_it_does_not_say_so(tmp_path):
    def unsaid(path, encoding):
        """Let no entry say that its name is UTF-8, as many tools write archives."""
        data = path.read_bytes().replace("Käse".encode(), "Käse".encode(encoding).ljust(5, b"x"))
        data = bytearray(data)
        for mark, at in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
            start = -1
            while (start := data.find(mark, start + 1)) >= 0:
                data[start + at] &= ~0x08
        path.write_bytes(data)
        return path

    content = {f"{kind}/{i}.png": png(i) for kind in ("Brot", "Käse") for i in range(3)}
    said = open_dataset(str(zipped(tmp_path / "a.zip", content)))
    for encoding, name in (("utf-8", "Käse"), ("cp437", "Käsex")):
        found = open_dataset(str(unsaid(zipped(tmp_path / f"{encoding}.zip", content), encoding)))
        assert found.classes == ("Brot", name)
        assert [found.read(i).tolist() for i in range(6)] == [said.read(i).tolist() for i in range(6)]


def test_train_and_test_folders_are_the_split(tmp_path):
    parts = {"train": "ab", "val": "cd", "test": "ef"}
    root = write(tmp_path / "s", {f"{p}/{c}/{i}.png": png() for p, cs in parts.items() for c in cs for i in range(2)})
    task = open_task(str(root))
    assert (task.train.classes, task.validation.classes, task.test.classes) == (("a", "b"), ("c", "d"), ("e", "f"))
    assert "split by the folders test, train, val" in task.protocol


def test_folders_are_the_split_in_whatever_case(tmp_path):
    parts = {"Train": "ab", "TEST": "be"}
    root = write(tmp_path / "s", {f"{p}/{c}/{i}.png": png() for p, cs in parts.items() for c in cs for i in range(2)})
    task = open_task(str(root), validation=0)
    assert (task.train.classes, task.test.classes) == (("a", "b"), ("b", "e"))
    assert "split by the folders TEST, Train" in task.protocol


def test_of_training_and_validation_folders_the_validation_is_the_test(tmp_path):
    parts = {"train": "abc", "valid": "de"}
    root = write(tmp_path / "s", {f"{p}/{c}/{i}.png": png() for p, cs in parts.items() for c in cs for i in range(2)})
    task = open_task(str(root), validation=0)
    assert (task.train.classes, task.test.classes) == (("a", "b", "c"), ("d", "e"))
    assert "its validation items are the test" in task.protocol


def test_a_folder_beside_train_and_test_is_told(tmp_path):
    names = [f"{p}/{c}/{i}.png" for p in ("train", "test", "more") for c in "ab" for i in range(2)]
    task = open_task(str(write(tmp_path / "s", {name: png() for name in names})))
    assert "folders such as train are read as classes, not as a split, because of more" in task.protocol


def test_images_of_kinds_that_are_not_read_are_told(tmp_path):
    files = class_folders() | {"class0/a.HEIC": b"ftyp", "class9/b.dng": b"", "class9/c.DNG": b"", "class9/notes": b""}
    task = open_task(str(write(tmp_path / "s", files)))
    told = "4 files left out (2 .dng, 1 .heic, 1 without ending; pip install pillow-heif reads them)"
    assert f"{told}; 1 folder without images left out (class9)" in task.protocol


PILLOW = (
    "jfif",
    "jpe",
    "JPG",
    "pbm",
    "pnm",
    "jp2",
    "avif",
    "tga",
    "bmp",
    "dib",
    "mpo",
    "apng",
    "qoi",
    "pcx",
    "heic",
)


def encoded(ending):
    """An image of 12 x 10 pixels in the format of an ending; None if Pillow cannot write it."""
    kinds = {"jfif": "JPEG", "jpe": "JPEG", "jpg": "JPEG", "pbm": "PPM", "pnm": "PPM", "jp2": "JPEG2000", "apng": "PNG"}
    buffer = io.BytesIO()
    mode = "1" if ending == "pbm" else "RGB"
    try:
        Image.new(mode, (12, 10), 1).save(buffer, kinds.get(ending.lower(), ending.upper()))
    except (KeyError, OSError):
        return None
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize("ending", PILLOW)
def test_a_class_of_any_ending_is_read_or_counted(tmp_path, ending, kind):
    data = encoded(ending)
    files = class_folders(2) | {f"odd/{i}.{ending}": data or b"?" for i in range(2)}
    source = write(tmp_path / "set", files) if kind == "folder" else zipped(tmp_path / "set.zip", files)
    items = open_dataset(source)
    if data is not None:
        assert "odd" in items.classes
        assert items.read(int(np.flatnonzero(items.labels == items.classes.index("odd"))[0])).shape[:2] == (10, 12)
    else:
        assert any(f"2 files left out (2 .{ending}" in note for note in items.notes)
        assert "1 folder without images left out (odd)" in items.notes


def test_images_of_heif_are_read_where_pillow_heif_is_installed(tmp_path, monkeypatch):
    stub = tmp_path / "modules" / "pillow_heif.py"
    write(
        tmp_path,
        {
            "modules/pillow_heif.py": "def register_heif_opener():\n    from PIL import Image\n\n    "
            "Image.register_open('HEIF', Image.OPEN['PNG'][0])\n"
        },
    )
    monkeypatch.syspath_prepend(str(stub.parent))
    for cached in (image_formats._formats, image_formats._has_heif, image_formats.suffixes):
        cached.cache_clear()
    try:
        assert open_dataset(write(tmp_path / "set", class_folders(2) | {"odd/0.heic": png()})).classes[-1] == "odd"
    finally:
        monkeypatch.undo()
        Image.OPEN.pop("HEIF", None)
        Image.ID.remove("HEIF")
        sys.modules.pop("pillow_heif", None)
        for cached in (image_formats._formats, image_formats._has_heif, image_formats.suffixes):
            cached.cache_clear()


def test_pictures_are_read_by_their_content_but_start_no_other_program(tmp_path):
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n"
    source = write(tmp_path / "set", class_folders(2) | {"odd/0.png": page, "odd/1.jpg": png(3)})
    with pytest.raises(DataError, match=r"odd/0.png: cannot be decoded \(not an image\)"):
        open_dataset(source)
    assert open_dataset(source, skip_bad=True).bad == ("odd/0.png",)


def test_empty_classes_and_classes_inside_classes_are_told(tmp_path):
    files = class_folders() | {"class0/inner/0.png": png(), "class0/inner/1.png": png()}
    source = write(tmp_path / "set", files)
    (source / "class8" / "more").mkdir(parents=True)
    notes = open_dataset(source).notes
    assert "1 folder without images left out (class8)" in notes
    assert "1 folder inside class folders is a class of its own (class0/inner)" in notes
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.mkdir("class8")
        for name, data in files.items():
            archive.writestr(name, data)
    assert open_dataset(tmp_path / "set.zip").notes == notes


def test_inner_folders_that_recur_may_be_one_class(tmp_path):
    files = {
        f"{tree}/{side}/{i}.png": png(i) for tree in ("oak", "elm") for side in ("back", "front") for i in range(2)
    }
    notes = open_dataset(write(tmp_path / "leaves", files)).notes
    shown = "elm/back, oak/back, elm/front, ... (4 in all)"
    assert (
        f"each innermost folder is a class ({shown}); to make one of an outer folder, move its files up to it" in notes
    )
    deep = {"oak/0.png": png(0), "oak/1.png": png(1), "old/oak/0.png": png(2), "elm/0.png": png(3)}
    notes = open_dataset(write(tmp_path / "trees", deep)).notes
    assert [note.partition(";")[0] for note in notes if "innermost" in note] == [
        "each innermost folder is a class (oak, old/oak)"
    ]
    apart = {f"{tree}/{tree}{i}/{k}.png": png(i) for tree in ("oak", "elm") for i in range(2) for k in range(2)}
    assert not [note for note in open_dataset(write(tmp_path / "apart", apart)).notes if "innermost" in note]


@pytest.mark.parametrize(("most", "told"), [(4095, 12), (16383, 14), (1023, 10), (65535, None)])
def test_dark_images_of_sixteen_bits_are_told(tmp_path, most, told):
    rng = np.random.default_rng(0)
    for i in range(4):
        (tmp_path / "set" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, most + 1, (20, 20)).astype(np.uint16)
        pixels[0, 0] = most
        Image.fromarray(pixels).save(tmp_path / "set" / "ab"[i % 2] / f"{i}.{'png' if i % 3 else 'tif'}")
    notes = [note for note in open_dataset(tmp_path / "set").notes if "16 bits" in note]
    assert len(notes) == (told is not None)
    if told:
        assert f"use only the lowest {told} bits" in notes[0]
        assert f"multiply their values by {2 ** (16 - told)} when" in notes[0]


def test_dark_images_of_sixteen_bits_are_told_among_colored_ones(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new("RGB", (20, 20), "red").save(tmp_path / "set" / name / "color.png")
        Image.fromarray(np.full((20, 20), 4095, np.uint16)).save(tmp_path / "set" / name / "gray.png")
    notes = [note for note in open_dataset(tmp_path / "set").notes if "16 bits" in note]
    assert len(notes) == 1
    assert "use only the lowest 12 bits" in notes[0]


def test_gray_images_of_32_bits_are_read_in_their_range(tmp_path):
    ramp = np.linspace(0, 1, 100).reshape(10, 10)
    for name, pixels in {"unit": ramp, "bytes": ramp * 255, "words": ramp * 65535}.items():
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.fromarray(pixels.astype(np.float32)).save(tmp_path / "set" / name / "0.tif")
    items = open_dataset(tmp_path / "set")
    for i in range(3):
        np.testing.assert_allclose(items.read(i)[..., 0], np.round(ramp * 255), atol=1)
    Image.fromarray((ramp - 0.5).astype(np.float32)).save(tmp_path / "set" / "unit" / "0.tif")
    with pytest.raises(
        DataError, match=r"its pixels of 32 bits have values from -0.5 to 0.5; expected 0 to 1 or 0 to 255"
    ):
        open_dataset(tmp_path / "set")


def test_query_and_gallery_folders(tmp_path):
    parts = {"train": "ab", "query": "ef", "gallery": "feg"}
    root = write(tmp_path / "s", {f"{p}/{c}/{i}.png": png() for p, cs in parts.items() for c in cs for i in range(2)})
    task = open_task(str(root))
    assert task.test.classes == task.gallery.classes == ("e", "f", "g")
    assert task.gallery.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert "query 4 images of 2 classes, gallery 6 images of 3 classes" in task.protocol


def test_folder_errors(tmp_path):
    with pytest.raises(DataNotFoundError, match="neither a file, a folder nor a known name; expected a folder"):
        open_task(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no images"):
        open_task(str(tmp_path / "empty"))
    with pytest.raises(DataError, match="must be in class folders"):
        open_task(str(write(tmp_path / "flat", {"a.png": png(), "b.png": png()})))
    with pytest.raises(DataError, match="one: 1 class, but holding out classes needs 4"):
        open_task(str(write(tmp_path / "one", {"s/a/1.png": png(), "s/a/2.png": png()})))
    with pytest.raises(DataError, match=r"notes.txt: files of this type are not read; if it is a table, rename it"):
        open_task(str(write(tmp_path, {"notes.txt": "hello"}) / "notes.txt"))


def manifest(tmp_path, text: str, name: str = "m.csv") -> str:
    write(tmp_path, class_folders() | {name: text})
    return str(tmp_path / name)


ROWS = "".join(f"class{c}/{i}.png,{'abcd'[c]}\n" for c in range(4) for i in range(3))


def test_manifest_of_paths_and_labels(tmp_path):
    items = open_dataset(manifest(tmp_path, "\ufeffpath,label\n" + ROWS))
    assert items.classes == ("a", "b", "c", "d")
    assert items.array[:, 0, 0, 0].tolist() == [10 * c + i for c in range(4) for i in range(3)]
    assert open_task(str(tmp_path / "m.csv")).gallery is None


@pytest.mark.parametrize("names", ["query,gallery,x1,y1,x2,y2", "is_query,is_gallery,x_1,y_1,x_2,y_2"])
def test_manifest_with_every_column(tmp_path, names):
    text = f"label,path,split,category,{names}\n"
    for c in range(4):
        for i in range(3):
            flags = "," if c < 2 else ("True,False" if i == 0 else "False,True")
            text += f"{c},class{c}/{i}.png,{'train' if c < 2 else 'test'},bird,{flags},{'1,2,5,9' if i else ',,,'}\n"
    task = open_task(manifest(tmp_path, text))
    assert (len(task.train), len(task.test), len(task.gallery)) == (6, 2, 4)
    assert task.test.classes == task.gallery.classes
    assert task.gallery.read(0).shape == (7, 4, 3)
    assert task.test.read(0).shape == (10, 12, 3)


def test_manifest_where_all_are_query_and_gallery_leaves_one_out(tmp_path):
    lines = [line + (",train,," if line[5] < "2" else ",validation,1,1") for line in ROWS.splitlines()]
    text = "path,label,split,is_query,is_gallery\n" + "\n".join(lines)
    task = open_task(manifest(tmp_path, text))
    assert task.gallery is None
    assert task.test.classes == ("c", "d")
    assert "its validation items are the test" in task.protocol


def test_parquet_manifest(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path, class_folders())
    columns = {
        "path": [f"class{c}/0.png" for c in range(4)],
        "label": [5, 6, 7, 8],
        "split": ["train", "train", "test", "test"],
        "x1": [1.0, None, None, None],
        "y1": [1.0, None, None, None],
        "x2": [3.0, None, None, None],
        "y2": [4.0, None, None, None],
        "parts": [[1, 2], [3], [], None],  # lists beside paths are not read
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "m.parquet")
    task = open_task(str(tmp_path / "m.parquet"))
    assert (task.train.classes, task.test.classes) == (("5", "6"), ("7", "8"))
    assert task.train.read(0).shape == (3, 2, 3)
    assert len(task.notes) == 2
    write(tmp_path, {"bad.parquet": b"PAR1 no"})
    with pytest.raises(DataError, match="not a readable Parquet"):
        open_task(str(tmp_path / "bad.parquet"))


def hugging(path, images, labels, kind="pair", rows=2, names=("ant", "bee", "cat", "dog")) -> str:
    """A table of images as Hugging Face writes it, or of their bytes alone."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array(images, None if kind == "pair" else pyarrow.binary())
    features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    columns = {"image": column} | ({} if labels is None else {"label": labels})
    parquet.write_table(pyarrow.table(columns).replace_schema_metadata(about), path, row_group_size=rows)
    return str(path)


def test_images_in_a_parquet_table(tmp_path):
    pairs = [{"bytes": png(10 * c + i), "path": f"{c}_{i}.png"} for c in range(4) for i in range(3)]
    labels = [c for c in range(4) for _ in range(3)]
    items = open_dataset(hugging(tmp_path / "train.parquet", pairs, labels))
    assert (items.name, items.classes, items.names[4]) == ("train", ("ant", "bee", "cat", "dog"), "1_1.png")
    assert [int(items.read(i).max()) for i in (11, 0, 4)] == [32, 0, 11]
    assert open_task(str(tmp_path / "train.parquet")).train.kind == "image"
    alone = open_dataset(hugging(tmp_path / "b.parquet", [pair["bytes"] for pair in pairs], labels, "bytes", rows=100))
    assert alone.names[4] == "b[4]"
    assert (alone.read(4) == 11).all()
    twice = open_dataset(hugging(tmp_path / "t.parquet", [pair | {"path": "image.png"} for pair in pairs], labels))
    assert twice.names[4] == "t[4]"
    unknown = open_items(hugging(tmp_path / "u.parquet", pairs, [-1] * 12))
    assert (unknown.classes, len(unknown)) == (("",), 12)
    assert open_items(hugging(tmp_path / "n.parquet", pairs, None)).classes == ("",)


def test_images_of_a_parquet_table_are_read_by_groups_and_by_other_processes(tmp_path, monkeypatch):
    from nearfar.data import decode
    from nearfar.data.readers import parquet_images

    monkeypatch.setattr(decode.load, "__defaults__", (0,))
    pairs = [{"bytes": png(i), "path": None} for i in range(12)]
    items = open_dataset(hugging(tmp_path / "train.parquet", pairs, [i // 3 for i in range(12)]))
    assert items.array is None
    monkeypatch.setattr(parquet_images, "_group", parquet_images.RowGroups())
    copy = pickle.loads(pickle.dumps(items.read))
    assert int(copy(7).max()) == int(copy(6).max()) + 1 == 7
    assert len(parquet_images._group.columns) == 1
    again = open_dataset(hugging(tmp_path / "train.parquet", pairs[::-1], [i // 3 for i in range(12)], rows=1))
    assert int(again.read(7).max()) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kept", [2**29, 1000])
def test_groups_of_a_parquet_table_are_kept_by_their_size(tmp_path, monkeypatch, kept):
    from nearfar.data import decode
    from nearfar.data.readers import parquet_images

    monkeypatch.setattr(decode.load, "__defaults__", (0,))
    monkeypatch.setattr(parquet_images, "KEPT", kept)
    monkeypatch.setattr(parquet_images, "OFTEN", 10)
    pairs = [{"bytes": png(i), "path": None} for i in range(250)]
    items = open_dataset(hugging(tmp_path / "train.parquet", pairs, [i % 4 for i in range(250)], rows=125))
    monkeypatch.setattr(parquet_images, "_group", parquet_images.RowGroups())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(7):  # in order a group is read once a time, whatever is kept
            assert [int(items.read(i).max()) for i in range(250)] == list(range(250))
    import pyarrow.parquet

    reads = []

    class Counted(pyarrow.parquet.ParquetFile):
        def iter_batches(self, rows, row_groups, **how):
            reads.extend(row_groups)
            return super().iter_batches(rows, row_groups=row_groups, **how)

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", Counted)
    groups = parquet_images.RowGroups()
    monkeypatch.setattr(parquet_images, "_group", groups)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in np.random.default_rng(0).permutation(250):
            assert int(items.read(i).max()) == i
    assert len(groups.columns) == (2 if kept > 1000 else 1)
    assert sorted(reads) == [0, 1] if kept > 1000 else len(reads) > 100
    said = [str(warning.message) for warning in told]
    assert len(said) == (0 if kept > 1000 else 1)
    assert all("train.parquet: because images are read in random order, a group of" in text for text in said)


def test_errors_of_images_in_a_parquet_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pairs = [{"bytes": png(i), "path": None} for i in range(4)]
    with pytest.raises(DataError, match="column 'label' has 4, but there are 4 classes"):
        open_dataset(hugging(tmp_path / "train.parquet", pairs, [0, 1, 2, 4]))
    with pytest.raises(DataError, match="the label is empty in 1 row, first in row 3"):
        open_dataset(hugging(tmp_path / "train.parquet", pairs, [0, 1, -1, 2]))
    lost = hugging(tmp_path / "lost.parquet", [*pairs[:3], None], [0, 0, 1, 1])
    with pytest.raises(DataError, match=r"lost\[3\] has no bytes"):
        open_dataset(lost)
    assert open_dataset(lost, skip_bad=True).bad == ("lost[3]",)
    two = {"left": [png()] * 4, "right": [png()] * 4, "label": [0, 0, 1, 1]}
    parquet.write_table(pyarrow.table(two), tmp_path / "two.parquet")
    with pytest.raises(DataError, match=r"2 columns contain bytes \(left, right\); name that of the images 'image'"):
        open_dataset(str(tmp_path / "two.parquet"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a header line with path,label"),
        ("path,label\n", "has no rows"),
        (
            "file,label\nx.png,1\ny.png,2\n",
            "column 'file' has 'x.png' in row 1, but features must be numbers; encode it "
            "(`nearfar fit` does, if there are classes) or remove it. Give the column of the classes with label=, and "
            "that of names with name=; put texts into a column `text`, and paths of images "
            "into `path`. The table has file,label",
        ),
        (
            "image,class\nclass0/0.png,a\nclass0/1.png,b\n",
            "column 'image' holds paths of image files; rename it to path, and the column of the classes to label (or "
            "give it with label=NAME). The table has image,class",
        ),
        ("species,filename,label\nred,class0/0.png,a\n", "column 'filename' holds paths of image files; rename it"),
        ("path,class\n" + ROWS, "has no column 'label'; give the column of the classes with label=NAME"),
        ("path,kind\n" + ROWS, "it has path,kind; first rows: class0/0.png,a |"),
        (
            "path,label\nclass0/0.png,1\nclass0/1.png\n",
            "row 2 after the header has 1 value for 2 columns: class0/1.png",
        ),
        ("path,label\nclass0/0.png,\n", "the label is empty in 1 row, first in row 1"),
        (
            "path,label\nclass0/0.png,a\nno/1.png,b\n",
            "1 of 2 images do not exist: no/1.png; paths are written as seen from",
        ),
        (
            "path,label\nclass0/0.png,a\n,b\n",
            "the path is empty in 1 row, first in row 2 after the header; expected a path in every row (skip_bad=True",
        ),
        ("path,label\nno\\0.png,a\nno\\1.png,b\n", "no\\1.png; paths are written with / between folders"),
        ("path,label,split\nclass0/0.png,1,other\n", "unknown split 'other'; expected train"),
        ("path,label,split\nclass0/0.png,1,train\nclass0/1.png,2,train\n", "train and for test, got only train"),
        ("path,label,query\nclass0/0.png,1,perhaps\n", "column 'query' has 'perhaps'"),
        ("path,label,query,gallery\nclass0/0.png,1,1,1\nclass0/1.png,1,1,0\n", "test row 1 is both query and gallery"),
        ("path,label,query,gallery\nclass0/0.png,1,0,0\n", "test row 1 is neither query nor gallery"),
        ("path,label,split\nclass0/0.png,1,train\nclass0/1.png,2,query\n", "has queries but no gallery; mark"),
        ("path,label,split,query\nclass0/0.png,1,train,0\nclass0/1.png,2,test,1\n", "has queries but no gallery"),
        ("path,label,x1,y1\nclass0/0.png,1,0,0\n", "x2 (or x_2), y2 (or y_2) missing; it has path,label,x1,y1"),
        ("path,label,x1,y1,x2,y2\nclass0/0.png,1,0,0,a,9\n", "row 1 has the crop box ['0', '0', 'a', '9']"),
        ("path,label,x1,y1,x2,y2\nclass0/0.png,1,5,0,2,9\n", "expected x1 < x2"),
        ("path,label,x_1,y_1,x_2,y_2\nclass0/0.png,1,0.1,0,0.2,0.9\n", "expected pixels, not shares of the sides"),
    ],
)
def test_manifest_errors(tmp_path, text, message):
    with pytest.raises(DataError) as caught:
        open_task(manifest(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_and_groups_stay_with_their_photos_where_rows_are_left_out(tmp_path):
    write(tmp_path, {f"{i}.png": png(i) for i in range(5)})
    rows = ["0.png,zero,a,x", "1.png,one,,x", "2.png,two,b,y", ",three,a,y", "4.png,four,b,z"]
    for column, kept, labels in (("label", rows, [0, 1, 1]), ("kind", [rows[0], *rows[2:]], [0, 1, 2])):
        (tmp_path / "m.csv").write_text("\n".join([f"path,text,{column},camera", *kept]))
        items = open_source(tmp_path / "m.csv", pairs=True, skip_bad=True, group="camera").items
        assert items.texts_given == ["zero", "two", "four"]
        assert items.names == ("0.png", "2.png", "4.png")
        assert items.labels.tolist() == labels
        assert items.groups.tolist() == ["x", "y", "z"]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_manifest_without_plain_separators_is_refused(tmp_path, mark):
    with pytest.raises(DataError, match=r"its columns are not separated by commas: 'path.+label'; save it as CSV with"):
        open_task(manifest(tmp_path, f"path{mark}label\na,b.png{mark}x{mark}y\n"))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_manifest_that_is_not_utf_8_is_read_with_a_warning(tmp_path, encoding):
    write(tmp_path, class_folders())
    (tmp_path / "m.csv").write_bytes(("path,label\n" + ROWS + "class0/0.png,café\n").encode(encoding))
    with pytest.warns(UserWarning, match=r"m\.csv: is read as .*; save it in UTF-8 if its letters are wrong"):
        assert "café" in open_dataset(str(tmp_path / "m.csv")).classes


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz"])
def test_tables_of_tabs_and_of_json_lines(tmp_path, ending):
    write(tmp_path, class_folders(4))
    rows = [{"file_name": f"class{c}/{i}.png", "label": f"of, {c}"} for c in range(4) for i in range(3)]
    lines = [json.dumps(row) for row in rows]
    if ending.startswith(".tsv"):
        lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    text = "\n".join(lines).encode()
    (tmp_path / f"metadata{ending}").write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    items = open_dataset(str(tmp_path / f"metadata{ending}"))
    assert (items.name, items.classes[0], items.names[4]) == ("metadata", "of, 0", "class1/1.png")
    assert (items.read(4) == 11).all()


def test_lists_of_numbers_in_json_lines_are_features(tmp_path):
    lines = [{"e": [i, i + 0.5], "label": "ab"[i], "width": 9} for i in range(2)]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, lines)))
    items = open_dataset(str(tmp_path / "e.jsonl"))
    assert (items.columns, items.array.tolist()) == (("e[0]", "e[1]"), [[0, 0.5], [1, 1.5]])
    lines[1]["e"] = [1, 2, 3]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(DataError, match="column 'e' has a list of 2 numbers in row 1, and of 3 in row 2"):
        open_dataset(str(tmp_path / "e.jsonl"))
    lines = [{"path": f"class{i}/0.png", "label": "ab"[i], "parts": [1, 2]} for i in range(2)]
    assert open_dataset(manifest(tmp_path, "\n".join(map(json.dumps, lines)), "m.jsonl")).kind == "image"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.jsonl", '{"a": 1}\n{"a":\n', "m.jsonl: line 2 is not JSON ("),
        ("m.jsonl", "[1, 2]\n", "m.jsonl: item 1: expected an object such as"),
        ("m.jsonl", "\n", "m.jsonl: is empty; expected lines such as"),
        ("m.jsonl", '{"width": 1, "label": "a"}\n{"width": 2}\n', "the label is empty in 1 row, first in row 2"),
        (
            "m.jsonl",
            '{"width": 1, "label": ["a", "b"]}\n',
            "row 1 has the label ['a', 'b']; expected a text or a number",
        ),
        (
            "m.tsv",
            "path,label\na.png,b,c\n",
            "its columns are not separated by tabs: 'path,label'; save it as TSV with",
        ),
    ],
)
def test_errors_of_tables_of_tabs_and_of_json_lines(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        open_dataset(str(tmp_path / name))


def test_a_folder_of_tables_says_how_they_are_named(tmp_path):
    write(tmp_path, {"set/data/train.parquet": b"PAR1", "set/readme.md": "text"})
    with pytest.raises(
        DataError, match=r"to read a table in it, give the path of the table, such as .+set/data/train.parquet$"
    ):
        open_dataset(str(tmp_path / "set"))


def test_a_name_that_is_another_word_for_a_column_leaves_that_column_alone(tmp_path):
    path = manifest(tmp_path, "path,label,file_name\nclass0/0.png,a,IMG_1\nclass0/1.png,b,IMG_2\n")
    assert open_dataset(path).names == ("class0/0.png", "class0/1.png")


def test_missing_images_of_a_manifest_can_be_skipped(tmp_path):
    path = manifest(tmp_path, "path,label\n" + ROWS + "gone/1.png,a\n")
    assert open_dataset(path, skip_bad=True).bad == ("gone/1.png",)


TABLE = "width,label,height,name,split\n1,a,2.5,first,train\n3,b,4,second,train\n5,a,6,third,test\n7,b,8,last,test\n"


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_table_of_numbers_holds_rows(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    path.write_bytes(gzip.compress(TABLE.encode()) if kind == "csv.gz" else TABLE.encode())
    if kind == "parquet":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        pandas.read_csv(io.StringIO(TABLE)).iloc[::-1].iloc[::-1].to_parquet(path)
    items = open_dataset(str(path))
    assert (items.kind, items.array.dtype, items.array.tolist()) == (
        "row",
        np.float32,
        [[1, 2.5], [3, 4], [5, 6], [7, 8]],
    )
    assert (items.classes, items.labels.tolist()) == (("a", "b"), [0, 1, 0, 1])
    assert (items.name, items.names) == ("t", ("first", "second", "third", "last"))
    task = open_task(str(path), validation=0)
    assert (len(task.train), len(task.test)) == (2, 2)
    assert f"split by the columns of t.{kind}" in task.protocol


def parquet_of(tmp_path, **columns):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns | {"label": ["a", "b", "a"]}), tmp_path / "t.parquet")
    return str(tmp_path / "t.parquet")


def test_lists_of_numbers_in_a_parquet_table_are_features(tmp_path):
    items = open_dataset(parquet_of(tmp_path, vector=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], size=[7, 8, 9]))
    assert items.array.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (items.columns, items.array.dtype) == (("vector[0]", "vector[1]"), np.float32)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1.0, 2.0], [3.0], [5.0, 6.0]], "column 'vector' has lists of 1 and 2 numbers; expected lists of one length"),
        ([[1.0, 2.0], None, [5.0, 6.0]], "1 row with an empty, NaN or infinite cell, first row 2 after the header"),
        ([[1.0, None], [3.0, 4.0], [5.0, 6.0]], "infinite cell, first row 1 after the header, in 'vector[1]'; fill"),
        ([["x" * 99], ["y"], ["z"]], f"column 'vector' has ['{'x' * 58}... in row 1, but features must be numbers"),
    ],
)
def test_lists_that_are_no_features_are_one_short_error(tmp_path, lists, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        open_dataset(parquet_of(tmp_path, vector=lists))
    assert len(str(caught.value).replace(str(tmp_path), "")) < 370


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'kind,v,label\nred,"[1, 2]",a\nred,"[3, 4]",b\nred,"[5]",a\n'),
        ("t.csv", "v,label\n[1 2],a\n[3 4],b\n[5],a\n"),
        ("t.jsonl", '{"v": [1, 2], "label": "a"}\n{"v": [3, 4], "label": "b"}\n{"v": [5], "label": "a"}\n'),
    ],
)
def test_lists_of_several_lengths_are_named_with_their_rows(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(
        DataError, match=r"column 'v' has a list of 2 numbers in row 1, and of 1 in row 3; expected lists of"
    ):
        open_dataset(tmp_path / name)


def test_a_column_of_groups_goes_with_the_items(tmp_path):
    rows = ROWS.replace("\n", ",1\n", 6).replace("a\n", "a,2\n").replace("c\n", "c,2\n").replace("d\n", "d,2\n")
    task = open_task(manifest(tmp_path, "path,label,group\n" + rows), test_classes=["c", "a"])
    assert task.test.groups.tolist() == ["1"] * 3 + ["2"] * 3
    assert set(task.train.groups.tolist()) == {"1", "2"}
    table = open_dataset(manifest(tmp_path, "width,label,Group\n1,a,x\n2,b,y\n", "rows.csv"))
    assert (table.columns, table.groups.tolist()) == (("width",), ["x", "y"])
    with pytest.raises(
        DataError,
        match=r"rows.csv: the group is empty in 1 row, first in row 2 after the header; expected a group in every row$",
    ):
        open_dataset(manifest(tmp_path, "width,label,group\n1,a,x\n2,b,\n", "rows.csv"))
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=[0, 0, 1], groups=[5, 6, 5], gallery_X=np.eye(2))
    np.savez(tmp_path / "b.npz", X=np.eye(3), y=[0, 0, 1], groups=[5, 6])
    assert open_dataset(str(tmp_path / "a.npz")).groups.tolist() == ["5", "6", "5"]
    with pytest.raises(DataError, match=r"groups has shape \(2,\); expected \(3,\), one per row of X"):
        open_dataset(str(tmp_path / "b.npz"))


def test_columns_that_differ_in_their_case_alone_are_features(tmp_path):
    path = manifest(tmp_path, "Class,CLASS,label\n1,2,a\n3,4,b\n")
    assert open_dataset(path).array.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("damage", [lambda packed: packed[:20], lambda packed: b"no gzip"])
def test_a_torn_packed_table_is_refused(tmp_path, damage):
    (tmp_path / "t.csv.gz").write_bytes(damage(gzip.compress(TABLE.encode())))
    with pytest.raises(DataError, match=r"t\.csv\.gz: not a readable CSV file"):
        open_dataset(str(tmp_path / "t.csv.gz"))


def test_the_index_that_pandas_writes_is_no_feature(tmp_path):
    path = manifest(tmp_path, ",width,label\n0,1.5,a\n1,2.5,b\n")
    assert open_dataset(path).array.tolist() == [[1.5], [2.5]]


def test_true_and_false_are_numbers(tmp_path):
    path = manifest(tmp_path, "width,up,left,label\n1.5,True,false,a\n2.5,False,false,b\n")
    assert open_dataset(path).array.tolist() == [[1.5, 1, 0], [2.5, 0, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "width,label\n1,a\n,b\n",
            "1 row with an empty, NaN or infinite cell, first row 2 after the header, in 'width'; fill such cells",
        ),
        ("width,label\n1,a\ninf,b\n", "infinite cell, first row 2 after the header, in 'width'"),
        ("width,label\n1,a\n2,\n", "the label is empty in 1 row, first in row 2 after the header"),
        (
            "width,color,label\n1,red,a\n2,blue,b\n",
            "column 'color' has 'red' in row 1, but features must be numbers; encode it "
            "(`nearfar fit` does, if there are classes) or remove it.",
        ),
        ("width,up,label\n1,true,a\n2,3,b\n", "column 'up' has 'true' in row 1"),
        ("label\na\nb\n", "has no column of numbers, nor a column 'path' of images; it has label; first rows: a | b"),
        ("width,label\n", "has no rows"),
        ("width,height\n", "has no rows"),
        (
            "width,height\n1,2\n",
            "has no column of classes (label, class, target, y); give the column of the classes with label=NAME "
            "(`nearfar index` and `nearfar groups` need no classes); "
            "it has width,height; first rows: 1,2",
        ),
        (
            ",".join(f"f{i}" for i in range(30)) + "\n" + ",".join("1" * 30) + "\n",
            "f10,f11,... (30 columns); first rows: 1,1,1,1,1,1,1,1,1,1,1,1,... (30 columns)",
        ),
        ("width,width,label\n1,2,a\n", "column 'width' occurs 2 times"),
        (
            "1.5,0.2,0.2,7\n1.6,0.1,0.3,7\n",
            "column '0.2' occurs 2 times; if its first line is data, put a line with the",
        ),
        (
            "M,0.45,0.36,15\nF,0.35,0.26,7\n",
            "first rows: F,0.35,0.26,7; if its first line is data, put a line with the",
        ),
    ],
)
def test_errors_of_tables_of_numbers(tmp_path, text, message):
    with pytest.raises(DataError) as caught:
        open_dataset(manifest(tmp_path, text))
    assert message in str(caught.value)


def save(tmp_path, **arrays) -> str:
    np.savez(tmp_path / "a.npz", **arrays)
    return str(tmp_path / "a.npz")


def test_npz_of_rows(tmp_path, rows):
    labels = np.repeat(np.arange(6), 5)
    task = open_task(save(tmp_path, X=rows.astype(float), y=labels), validation=0)
    assert task.train.kind == "row"
    assert len(task.train.classes) == len(task.test.classes) == 3
    assert task.train.array.dtype == np.float32
    both = np.concatenate([task.train.array, task.test.array])
    assert np.array_equal(np.unique(both, axis=0), np.unique(rows, axis=0))


def test_npz_of_embeddings_with_string_labels_and_split(tmp_path, rows):
    labels = np.repeat(list("abcdef"), 5)
    split = np.repeat(["train", "train", "val", "val", "test", "test"], 5)
    task = open_task(save(tmp_path, embeddings=rows, labels=labels, split=split))
    assert (task.train.classes, task.validation.classes, task.test.classes) == (("a", "b"), ("c", "d"), ("e", "f"))


def test_npz_of_images(tmp_path):
    images = np.zeros((4, 6, 6), np.uint8)
    path = save(tmp_path, X=images, y=[0, 1, 2, 3])
    assert open_dataset(path).array.shape == (4, 6, 6, 1)
    assert open_dataset(path, image_size=3).array.shape == (4, 3, 3, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros((3, 2))}, "has no array y or labels; it has X"),
        ({"y": np.zeros(3)}, "has no array X or x or embeddings; it has y"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(2)}, "y has shape (2,); expected (3,), one per row of X"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "X is empty"),
        ({"X": np.zeros(3), "y": np.zeros(3)}, "X has shape (3,) and type float64; expected (n, d) numbers"),
        ({"X": np.zeros((3, 4, 4)), "y": np.zeros(3)}, "expected (n, d) numbers"),
        ({"X": np.zeros((3, 4, 4, 2), np.uint8), "y": np.zeros(3)}, "(n, H, W, 1 or 3) uint8"),
        ({"X": np.array([[1.0], [np.nan]]), "y": [0, 1]}, "X holds NaN or infinity, first in row 1"),
        (
            {"X": np.array([[1.0], [1e200]]), "y": [0, 1]},
            "X holds values above 3.4e38, the largest float32, first",
        ),
        ({"X": np.ones((2, 1)), "y": [0, np.nan]}, "y is NaN in 1 row, first in row 1; expected a label"),
        ({"X": np.array([["a"], ["b"]]), "y": [0, 1]}, "type <U1"),
        (
            {"X": np.array([[None]]), "y": [0]},
            "arrays of Python objects are not supported: save np.array(list(X), dtype=str)",
        ),
        ({"X": np.zeros((1, 2)), "y": np.array(["a"], dtype=object)}, "save np.array(list(y), dtype=str)"),
        ({"X": np.zeros((2, 1)), "y": [0, 1], "split": ["train", "best"]}, "split has value 'best'"),
        ({"X": np.zeros((2, 1)), "y": [0, 1], "split": ["train"]}, "split has shape (1,)"),
    ],
)
def test_npz_errors(tmp_path, arrays, message):
    with pytest.raises(DataError) as caught:
        open_dataset(save(tmp_path, **arrays))
    assert message in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_numbers_that_float32_does_not_hold_are_told_as_such(tmp_path):
    told = "values above 3.4e38, the largest float32, first in row"
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2.0], [3.0, 1e200]]))
    with pytest.raises(DataError, match=rf"rows.npy: holds {told} 1$"):
        open_items(str(tmp_path / "rows.npy"))
    (tmp_path / "rows.csv").write_text("a,b,label\n1,2,x\n,1e200,y\n")
    with pytest.raises(DataError, match=rf"rows.csv: holds {told} 2 after the header, in 'b'$"):
        open_dataset(str(tmp_path / "rows.csv"))


def test_errors_of_a_gallery_name_its_own_arrays(tmp_path):
    rows = {"X": np.zeros((2, 2)), "y": [0, 1], "gallery_X": np.zeros((3, 2))}
    with pytest.raises(DataError, match=r"has no array gallery_y or gallery_labels; it has X, gallery_X, y$"):
        read_gallery(save(tmp_path, **rows))
    with pytest.raises(DataError, match=r"gallery_y has shape \(2,\); expected \(3,\), one per row of gallery_X$"):
        read_gallery(save(tmp_path, **rows, gallery_y=[0, 1]))


def test_a_file_that_is_no_npz_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"not a readable .npz"):
        open_dataset(str(write(tmp_path, {"a.npz": b"nothing"}) / "a.npz"))


def omniglot(path, alphabets: dict[str, int], images: int = 3):
    """An archive of white 105 x 105 images with one black stroke."""
    from io import BytesIO

    from PIL import Image, ImageDraw

    image = Image.new("1", (105, 105), 1)
    ImageDraw.Draw(image).rectangle((45, 10, 58, 95), fill=0)
    buffer = BytesIO()
    image.save(buffer, "PNG")
    top, content = path.stem, {}
    for name, characters in alphabets.items():
        for c in range(1, characters + 1):
            for i in range(1, images + 1):
                content[f"{top}/{name}/character{c:02d}/0{c:03d}_{i:02d}.png"] = buffer.getvalue()
    return str(zipped(path, content))


def test_omniglot_is_recognized_shrunk_and_inverted(tmp_path):
    items = open_dataset(omniglot(tmp_path / "small.zip", {"Latin": 2, "Greek": 1}))
    assert items.classes == ("Greek/character01", "Latin/character01", "Latin/character02")
    assert items.array.shape == (9, 28, 28, 1)
    assert items.array[0, 14, 13:15, 0].min() == 255
    assert items.array[0, :, :10].max() == items.array[0, 0].max() == 0
    assert open_dataset(str(tmp_path / "small.zip"), image_size=14).array.shape == (9, 14, 14, 1)


def test_omniglot_train_and_test_archives(tmp_path):
    train = omniglot(tmp_path / "small1.zip", {"Latin": 6, "Greek": 4})
    test = omniglot(tmp_path / "small2.zip", {"Greek": 4, "Sanskrit": 3, "Japanese_(katakana)": 2})
    task = open_task(train, test=test, test_classes=["Japanese_(katakana)", "Sanskrit"], validation=0.3)
    assert (len(task.train.classes), len(task.validation.classes), len(task.test.classes)) == (7, 3, 5)
    assert "test 15 images of 5 classes; tested on Omniglot small2, classes Japanese_(katakana), Sanskrit only" in (
        task.protocol
    )
    assert "NOT zero-shot" not in task.protocol
    assert "NOT zero-shot: 4 class names" in open_task(train, test=test, validation=0).protocol
    with pytest.raises(DataError, match="no class named 'Klingon' or beginning with it"):
        open_task(train, test=test, test_classes=["Klingon"])


@pytest.mark.parametrize("name", ["label", "class", "target", "y", "Class", "LABEL"])
def test_rows_of_numbers_name_their_labels_as_tables_do(tmp_path, name):
    path = tmp_path / "rows.csv"
    path.write_text(f"width,height,{name}\n1,2,a\n3,4,b\n5,6,a\n")
    items = open_dataset(str(path))
    assert items.classes == ("a", "b")
    assert items.array.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_link_to_a_folder_above_is_not_followed(tmp_path, folder):
    (folder / "class0" / "up").symlink_to(folder)
    (folder / "again").symlink_to(folder / "class1")  # one beside is
    assert open_dataset(str(folder)).classes == ("again", "class0", "class1", "class2", "class3")


def test_one_array_that_is_called_npz_is_an_error(tmp_path):
    with open(tmp_path / "rows.npz", "wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(DataError, match=r"is an array of NumPy; rename it to .npy"):
        open_dataset(str(tmp_path / "rows.npz"))


def test_bytes_in_an_npz_are_text(tmp_path):
    split = np.array([b"train"] * 4 + [b"test"] * 4)
    path = save(tmp_path, X=np.eye(8), y=np.repeat([b"a", b"b", b"c", "é".encode()], 2), split=split)
    task = open_task(path)
    assert (task.train.classes, task.test.classes) == (("a", "b"), ("c", "é"))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("column", ["embedding", "Embeddings"])
def test_texts_with_labels_and_embeddings_are_embeddings_named_by_their_ids_or_texts(tmp_path, kind, column):
    texts = ["a cat, black", "1 dog", "cats"]
    rows = [[0.5, 1.0], [2.0, -3.0], [1e-3, 4.0]]
    table = {"id": [7, 8, 9], "text": texts, "label": ["cat", "dog", "cat"], column: rows}
    file = tmp_path / f"texts.{kind}"
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), file)
    elif kind == "jsonl":
        lines = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
        file.write_text("\n".join(map(json.dumps, lines)))
    else:
        with file.open("w", newline="") as opened:
            writer = csv.writer(opened, delimiter="," if kind == "csv" else "\t")
            writer.writerows([[*table], *zip(*table.values(), strict=True)])
    items = open_dataset(file)
    assert items.names == ("7", "8", "9")
    assert open_dataset(file, name="text").names == tuple(texts)
    assert [items.classes[label] for label in items.labels] == table["label"]
    np.testing.assert_array_equal(items.array, np.array(rows, dtype=np.float32))
    assert items.columns == (f"{column}[0]", f"{column}[1]")


def test_the_only_column_of_lists_is_the_embedding_and_the_others_are_told(tmp_path):
    file = tmp_path / "items.jsonl"
    lines = [{"sku": f"00{i}", "title": "tea", "price": 9.5, "label": "ab"[i % 2], "vec": [i, 1.0]} for i in range(4)]
    file.write_text("\n".join(map(json.dumps, lines)))
    items = open_dataset(file)
    assert items.columns == ("vec[0]", "vec[1]")
    assert items.notes[-2:] == ("a row is its list 'vec'", "columns not used: title, price")
    file.write_text("\n".join(json.dumps({"label": "a", "x": [i], "y": [2, i], "size": i}) for i in range(4)))
    assert open_dataset(file).columns == ("x[0]", "y[0]", "y[1]", "size")


def test_texts_beside_other_columns_are_items_unless_all_others_are_numbers(tmp_path):
    file = tmp_path / "titles.csv"
    file.write_text("sku,text,label,price,brand\n01,tea,a,3,Alder\n02,milk,b,,\n03,,b,4,Elm\n")
    with pytest.raises(DataError, match=r"the text is empty in 1 row, first in row 3 .*skip_bad=True leaves out"):
        open_dataset(file)
    items = open_dataset(file, skip_bad=True)
    assert (items.kind, items.names) == ("text", ("01", "02"))
    assert "columns not used: price, brand" in items.notes
    assert "1 row without a text left out (of 3)" in items.notes
    file.write_text("sku,text,label,price\n01,tea,a,3\n02,milk,b,5\n")
    items = open_dataset(file)
    assert items.columns == ("price",)
    assert "columns not used: text" in items.notes


@pytest.mark.parametrize(("cells", "why"), [(("a", "b", "a"), "'a' is in rows 1 and 3"), (("a", "", "b"), "row 2 has")])
def test_ids_that_cannot_name_the_rows_are_told(tmp_path, cells, why):
    file = tmp_path / "rows.csv"
    file.write_text("sku,label,embedding\n" + "".join(f'{cell},x,"[1, {i}]"\n' for i, cell in enumerate(cells)))
    notes = open_dataset(file).notes
    assert any(f"column 'sku' cannot name the rows: {why}" in note for note in notes)
    with pytest.raises(DataError, match=f"column 'sku' cannot name the rows: {why}"):
        open_dataset(file, name="sku")
    for labels in ({"labels": np.zeros(3)}, {}):
        np.savez(tmp_path / "rows.npz", embeddings=np.eye(3), ids=np.array(cells), **labels)
        notes = open_items(tmp_path / "rows.npz").notes
        assert any("array 'ids' cannot name the rows" in note for note in notes)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("prefix", ["", "gallery_"])
def test_rows_of_an_npz_that_lack_something_are_left_out_if_asked(tmp_path, named, prefix):
    rows = np.eye(5)
    rows[1, 2] = np.nan
    arrays = {"embeddings": rows, "labels": [0, 0, np.nan, 1, 1], "groups": np.arange(5)}
    if named:
        arrays["ids"] = np.array([*"abcde"])
    names = tuple("ade") if named else ("rows[0]", "rows[3]", "rows[4]")
    path = tmp_path / "rows.npz"
    np.savez(path, **{f"{prefix}{key}": value for key, value in arrays.items()})

    def read(skip_bad):
        if prefix:
            return read_gallery(path, skip_bad=skip_bad)
        return open_dataset(path, skip_bad=skip_bad)

    with pytest.raises(DataError):
        read(skip_bad=False)
    items = read(skip_bad=True)
    assert items.names == names
    assert items.unnamed is not named
    np.testing.assert_array_equal(items.array, np.eye(5)[[0, 3, 4]])
    assert items.groups.tolist() == ["0", "3", "4"]
    notes = [note.split(" left out")[0] for note in items.notes if "left out" in note]
    assert notes == ["1 row with NaN or infinity", "1 row without a label"]


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_rows_without_labels_that_are_not_finite_are_left_out_if_asked(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    rows = np.array([[1.0, 2.0], [np.inf, 0.0], [3.0, 4.0]])
    if kind == "npy":
        np.save(path, rows)
    else:
        np.savez(path, embeddings=rows)
    items = open_items(path, skip_bad=True)
    assert items.names == ("rows[0]", "rows[2]")
    assert items.notes == ("1 row with NaN or infinity left out (rows[1])",)


@pytest.mark.parametrize("word", ["", "NA", "N/A", "n/a", "NULL", "null", "None", "<NA>", "#N/A", "NaN"])
def test_words_that_other_programs_write_for_a_missing_number_are_missing(tmp_path, word):
    file = tmp_path / "rows.csv"
    file.write_text(f"width,label\n1,a\n{word},b\n2,NA\n")
    with pytest.raises(DataError, match=r"1 row with an empty, NaN or infinite cell, first row 2 .* in 'width'"):
        open_dataset(file)
    items = open_dataset(file, skip_bad=True)
    assert items.array.ravel().tolist() == [1, 2]
    assert [items.classes[label] for label in items.labels] == ["a", "NA"]


def test_all_columns_that_are_no_numbers_are_named_at_once(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("mass,width,day,label\n5 g,1,Monday,a\n6 g,2,Friday,b\n")
    with pytest.raises(
        DataError, match=r"column 'mass' has '5 g' in row 1, but features must be numbers \(nor is day\)"
    ):
        open_dataset(file)


def test_json_of_columns_may_number_its_rows_as_pandas_does(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"width": {"0": 1, "1": 2}, "label": {"0": "a", "1": "b"}}))
    items = open_dataset(file)
    assert (items.array.ravel().tolist(), items.classes) == ([1, 2], ("a", "b"))


def test_lists_as_numpy_prints_them_are_read_and_cut_ones_are_told(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,label,embedding\nx,a,[ 1.  -2.5]\ny,b,[3 4]\n")
    np.testing.assert_array_equal(open_dataset(file).array, [[1, -2.5], [3, 4]])
    file.write_text("text,label,embedding\nx,a,[1 ... 2]\ny,b,[3 ... 4]\n")
    with pytest.raises(
        DataError, match=r"column 'embedding' has lists with '\.\.\.' in 2 rows, first in row 1 .*\.tolist"
    ):
        open_dataset(file)
    file.write_text("text,label,embedding\nx,a,[1 2]\ny,b,[3]\n")
    with pytest.raises(DataError, match="'embedding' has a list of 2 numbers in row 1, and of 1 in row 2"):
        open_dataset(file)


def test_a_column_of_numbers_that_is_called_text_is_a_feature(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,label,width\n3,a,1\n4,b,2\n")
    assert open_dataset(file).columns == ("text", "width")


CELLS = [
    ["name", "width", "height", "label"],
    ["n0", "0.5", "1", "bär"],
    ["n1", "2", "3", "öl"],
    ["n2", "-1", "4", "bär"],
]


def excel(path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [*CELLS, []]:
        book.active.append([float(cell) if cell[-1:].isdigit() and cell[0] != "n" else cell for cell in row])
    book.create_sheet("more").append(["other"])
    book.save(path)


def feather(path):
    pyarrow = pytest.importorskip("pyarrow")
    columns = dict(zip(CELLS[0], zip(*CELLS[1:], strict=True), strict=True))
    columns |= {name: [*map(float, columns[name])] for name in ("width", "height")}
    pytest.importorskip("pyarrow.feather").write_feather(pyarrow.table(columns), path)


def lined(separator, encoding="utf-8", comma=False):
    text = "\n".join(separator.join(cell.replace(".", ",") if comma else cell for cell in row) for row in CELLS)
    return lambda path: path.write_bytes(text.encode(encoding))


def compressed(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__MACOSX/._rows.csv", "x")
        archive.writestr("rows.csv", "\n".join(map(",".join, CELLS)))


def compressed_folder(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("export/", "")
        archive.writestr("export/.DS_Store", "x")
        archive.writestr("export/rows.csv", "\n".join(map(",".join, CELLS)))


def compressed_objects(path):
    objects(path.with_suffix(".json"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(path.with_suffix(".json"), "all.json")


def objects(path):
    path.write_text(json.dumps([dict(zip(CELLS[0], row, strict=True)) for row in CELLS[1:]], indent=1))


def of_columns(path):
    path.write_text(json.dumps({column[0]: list(column[1:]) for column in zip(*CELLS, strict=True)}))


TABLES = {
    "xlsx": ("rows.xlsx", excel),
    "feather": ("rows.feather", feather),
    "zip": ("rows.csv.zip", compressed),
    "zip without another ending": ("rows.zip", compressed),
    "zip of a folder": ("rows.zip", compressed_folder),
    "zip of objects": ("rows.zip", compressed_objects),
    "semicolons": ("rows.csv", lined(";")),
    "decimal commas": ("rows.csv", lined(";", comma=True)),
    "tabs": ("rows.csv", lined("\t")),
    "bars": ("rows.csv", lined("|")),
    "commas": ("rows.tsv", lined(",")),
    "utf-16": ("rows.csv", lined(",", "utf-16")),
    "windows": ("rows.csv", lined(",", "cp1252")),
    "list": ("rows.json", objects),
    "list in lines": ("rows.jsonl", objects),
    "columns": ("rows.json", of_columns),
}


@pytest.mark.filterwarnings("ignore:.*(is read as|only its first sheet)")
@pytest.mark.parametrize("kind", TABLES)
def test_one_table_is_the_same_in_every_kind_of_file(tmp_path, kind):
    name, written = TABLES[kind]
    written(tmp_path / name)
    for opened in (open_dataset, open_items):
        items = opened(tmp_path / name)
        assert items.names == ("n0", "n1", "n2")
        assert items.name == "rows"
        assert [items.classes[label] for label in items.labels] == ["bär", "öl", "bär"]
        np.testing.assert_array_equal(items.array, [[0.5, 1], [2, 3], [-1, 4]])


def test_texts_whose_encoding_is_not_plain_are_refused(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes("width,label\n1,кошка\n2,собака\n".encode("cp1251"))
    with pytest.raises(DataError, match=r"rows.csv: line 2 is not UTF-8; save it in UTF-8, such as with `iconv -f "):
        open_dataset(file)
    file.write_bytes("width,label\n1,Vögel\n2,Hund\n".encode("cp1252"))
    with pytest.warns(UserWarning, match="is read as Windows-1252"):
        assert open_dataset(file).classes == ("Hund", "Vögel")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_lists_as_numpy_2_prints_them_are_read(tmp_path, ending):
    mark = "," if ending == "csv" else "\t"
    cells = ["[np.float64(0.1), np.float64(-2e-05)]", "[float32(1.5) int64(2)]"]
    text = "\n".join(f"{mark.join(['x', quoted])}" for quoted in [f'"{cell}"' for cell in cells])
    (tmp_path / f"rows.{ending}").write_text(f"label{mark}embedding\n{text}\n")
    items = open_items(tmp_path / f"rows.{ending}")
    np.testing.assert_allclose(items.array, [[0.1, -2e-5], [1.5, 2]])


def lacking(path, what):
    """A table of four rows of which the second lacks something."""
    rows = [{"name": f"n{i}", "embedding": [float(i), 1.0], "label": "ab"[i % 2]} for i in range(4)]
    rows[1][what] = None
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif path.suffix == ".csv":
        cells = [["" if cell is None else f'"{cell}"' for cell in row.values()] for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *map(",".join, cells)]))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("what", ["embedding", "label"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_that_lack_something_are_counted_and_can_be_left_out(tmp_path, ending, what):
    file = tmp_path / f"rows.{ending}"
    lacking(file, what)
    with pytest.raises(DataError, match=r"1 row.*skip_bad=True"):
        open_dataset(file)
    items = open_dataset(file, skip_bad=True)
    assert items.names == ("n0", "n2", "n3")
    np.testing.assert_array_equal(items.array, [[0, 1], [2, 1], [3, 1]])
    assert any("1 row" in note and "left out (" in note for note in items.notes)


@pytest.mark.parametrize("skip_bad", [False, True])
def test_files_are_found_in_another_form_of_unicode(tmp_path, skip_bad):
    write(tmp_path, {"e\u0301te\u0301/0.png": png(1), "plain/0.png": png(2)})
    manifest(tmp_path, "path,label\n\u00e9t\u00e9/0.png,a\nplain/0.png,b\n")
    items = open_dataset(tmp_path / "m.csv", skip_bad=skip_bad)
    assert [int(items.read(i).max()) for i in range(2)] == [1, 2]
    manifest(tmp_path, "path,label\n\u00e9t\u00e9/1.png,a\nplain/0.png,b\n")
    with pytest.raises(DataError, match="1 of 2 images do not exist"):
        open_dataset(tmp_path / "m.csv")


@pytest.fixture
def exported(tmp_path):
    """A folder as FiftyOne exports it."""
    (tmp_path / "data").mkdir()
    samples = []
    for number, name in enumerate("aabbcc"):
        Image.new("RGB", (6, 4), (40 * number, 0, 0)).save(tmp_path / "data" / f"{number}.png")
        label = {"_id": {"$oid": "0"}, "_cls": "Classification", "label": name}
        tags = ["train" if name != "c" else "test", "checked"]
        samples.append(
            {"_id": {}, "filepath": f"data/{number}.png", "tags": tags, "ground_truth": label, "other": name}
        )
    (tmp_path / "samples.json").write_text(json.dumps({"samples": samples}))
    (tmp_path / "metadata.json").write_text(json.dumps({"sample_fields": [{"name": "filepath"}]}))
    return tmp_path


def test_an_export_of_fiftyone_has_classes_and_split_and_takes_embeddings_and_tags_back(exported):
    task = open_task(str(exported))
    assert task.test.names == ("data/4.png", "data/5.png")
    assert task.test.read(0).shape == (4, 6, 3)
    items = open_dataset(str(exported), label="other")
    assert [items.classes[label] for label in items.labels] == list("aabbcc")
    before = json.loads((exported / "samples.json").read_text())["samples"]
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    for _ in range(2):  # a second time, the same fields and tags
        chosen = {"suspect": [items.names[1]], "duplicate": items.names[2:4]}
        add_to_samples(exported, items.names, embeddings=rows, tags=chosen)
    found = json.loads((exported / "samples.json").read_text())["samples"]
    for number, (sample, old) in enumerate(zip(found, before, strict=True)):
        content = zlib.decompress(base64.b64decode(sample.pop("embedding")["$binary"]["base64"]))
        np.testing.assert_array_equal(np.load(io.BytesIO(content)), rows[number])
        added = {1: ["suspect"], 2: ["duplicate"], 3: ["duplicate"]}.get(number, [])
        assert sample.pop("tags") == [*old.pop("tags"), *added]
        assert sample == old
    fields = json.loads((exported / "metadata.json").read_text())["sample_fields"]
    assert [field["name"] for field in fields] == ["filepath", "embedding"]
    with pytest.raises(ValueError, match=r"tags: suspect: .* has no sample 'data/9\.png'"):
        add_to_samples(exported, items.names, tags={"suspect": ["data/9.png"]})


def test_an_export_of_fiftyone_that_lacks_something_is_one_line(exported):
    with pytest.raises(DataError, match=r"the field 'kind' of 'data/0\.png' has no label; .* it has filepath, tags"):
        open_dataset(str(exported), label="kind")
    (exported / "data" / "3.png").unlink()
    with pytest.raises(DataError, match=r"1 of 6 images do not exist: data/3\.png"):
        open_dataset(str(exported))
    (exported / "samples.json").write_text('{"samples": [{"tags": []}]}')
    with pytest.raises(DataError, match=r"sample 1 has no filepath"):
        open_dataset(str(exported))
