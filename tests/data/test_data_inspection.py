"""What is said of data before anything is trained on them."""

import json
import re
import sys
from contextlib import suppress

import numpy as np
import pytest

from nearfar import cli
from nearfar.data import DataError, inspect_data, open_task
from nearfar.data.decode import BadImageError

from ..commands import run
from .conftest import png, torn, write

Image = pytest.importorskip("PIL.Image")


def drawn(seed, size=(10, 10)):
    import io

    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def folder(root, classes=3, each=4, size=(10, 10)):
    """Folders of train/ and test/ with their own classes and images that all differ."""
    images = {
        f"{part}/{part}{c}/{k}.png": drawn(1000 * side + 10 * c + k, size)
        for side, part in enumerate(("train", "test"))
        for c in range(classes)
        for k in range(each)
    }
    return write(root, images)


def test_sound_data_have_counts_and_no_remark(tmp_path):
    found = inspect_data(str(folder(tmp_path, classes=40, each=2)))
    assert [(part.role, part.items, part.classes) for part in found.parts] == [
        ("train", 64, 32),
        ("validation", 16, 8),
        ("test", 80, 40),
    ]
    assert {(part.least, part.median, part.most) for part in found.parts} == {(2, 2.0, 2)}
    assert found.kind == "image"
    assert found.smallest == found.largest == (10, 10, 3)
    assert found.remarks == found.bad == found.copies == found.conflicts == found.leaked == ()
    assert found.protocol.startswith(f"{tmp_path.name}: train 64 images of 32 classes")


def test_few_validation_classes_are_remarked_on(tmp_path):
    found = inspect_data(str(folder(tmp_path, classes=10, each=2)))
    assert any("The validation has only 3 classes" in remark for remark in found.remarks)


@pytest.mark.parametrize("size", [(10, 10), (8, 12)])  # of one size they are in memory, else files
def test_equal_images_are_told_apart_by_where_they_are(tmp_path, size):
    folder(tmp_path, size=size)
    first = (tmp_path / "train/train0/0.png").read_bytes()
    extra = {
        "train/train0/again.png": first,
        "train/train1/other.png": (tmp_path / "train/train2/0.png").read_bytes(),
        "test/test0/seen.png": (tmp_path / "train/train1/0.png").read_bytes(),
        "test/test1/large.png": drawn(77, (10, 30)),
    }
    found = inspect_data(str(write(tmp_path, extra)))
    assert found.copies == (("train/train0/0.png", "train/train0/again.png"),)
    assert {frozenset(group) for group in found.conflicts} == {
        frozenset({"train/train1/other.png (train1)", "train/train2/0.png (train2)"}),
        frozenset({"train/train1/0.png (train1)", "test/test0/seen.png (test0)"}),
    }
    assert found.leaked == ("test/test0/seen.png",)
    assert (found.smallest, found.largest) == ((size[1], size[0], 3), (30, 10, 3))
    text = " ".join(found.remarks)
    assert "1 test image is also in training (test/test0/seen.png)" in text
    assert "2 groups of identical images have several classes" in text
    assert "1 image is an exact copy of another one of the same class (train/train0/0.png = " in text
    assert "The test has only 3 classes" in text


@pytest.mark.parametrize("large", [False, True])  # the second has files, which are decoded late
def test_images_that_cannot_be_decoded_are_named_and_the_rest_is_read(tmp_path, large):
    folder(tmp_path)
    extra = {"train/train1/torn.png": torn()} | ({"test/test1/large.png": drawn(77, (10, 30))} if large else {})
    found = inspect_data(str(write(tmp_path, extra)))
    assert found.bad == ("train/train1/torn.png",)
    assert "1 image cannot be decoded (train/train1/torn.png)" in found.remarks[0]
    assert sum(part.items for part in found.parts) == 24 + large


def test_a_link_to_nothing_is_an_image_that_cannot_be_read(tmp_path):
    folder(tmp_path)
    (tmp_path / "train/train1/link.png").symlink_to(tmp_path / "nothing.png")
    found = inspect_data(str(tmp_path))
    assert found.bad == ("train/train1/link.png",)
    assert sum(part.items for part in found.parts) == 24
    with pytest.raises(BadImageError, match=r"link\.png: cannot be read"):
        open_task(str(tmp_path))  # small images of one size are read at once


def test_a_part_of_which_nothing_can_be_decoded_is_no_part(tmp_path):
    folder(tmp_path, classes=3, each=2)
    images = {f"train/train0/large{k}.png": drawn(70 + k, (10, 20 + k)) for k in range(2)}  # so that images stay files
    broken = {f"val/val{c}/{k}.png": torn() for c in range(3) for k in range(2)}
    found = inspect_data(str(write(tmp_path, images | broken)))
    assert [part.role for part in found.parts] == ["train", "test"]
    assert len(found.bad) == 6


def test_classes_of_one_image_uneven_ones_and_those_in_both_parts(tmp_path):
    folder(tmp_path, classes=3, each=1)
    extra = {f"train/many/{k}.png": drawn(500 + k) for k in range(30)} | {"test/many/0.png": drawn(900)}
    found = inspect_data(str(write(tmp_path, extra)))
    text = " ".join(found.remarks)
    assert re.search(
        r"2 training classes have only one image \(train\d, train\d\): without a second one, no positive", text
    )
    assert "4 test classes have only one image (many, test0, test1, ... (4 in all))" in text
    assert "1 class is in training or validation and in the test (many)" in text


def test_classes_of_validation_in_the_test_are_counted_alike_by_remark_and_protocol(tmp_path):
    names = [f"{part}/{c}/{k}.png" for part in ("train", "test") for c in "abcdefghij" for k in range(2)]
    found = inspect_data(str(write(tmp_path / "set", {name: drawn(k) for k, name in enumerate(names)})))
    assert [part.role for part in found.parts] == ["train", "validation", "test"]
    where = "in training or validation and in the test (a, b, c, ... (10 in all))"
    assert f"NOT zero-shot: 10 class names occur {where}" in found.protocol
    assert any(remark.startswith(f"10 classes are {where}") for remark in found.remarks)


def test_a_class_of_many_images_among_small_ones(tmp_path):
    folder(tmp_path, classes=3, each=2)
    found = inspect_data(str(write(tmp_path, {f"train/train0/more{k}.png": drawn(500 + k) for k in range(30)})))
    assert any(
        "The largest training class has 32 images, but half of the classes have at most 2." in r for r in found.remarks
    )


def test_features_that_are_constant_or_far_larger_than_others(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) * [1.0, 1e4, 1.0, 0.0]
    np.savez(tmp_path / "rows.npz", X=X, y=rng.integers(0, 60, 120))
    found = inspect_data(str(tmp_path / "rows.npz"))
    assert found.kind == "row"
    assert found.smallest == found.largest == (4,)
    assert any("1 feature is constant in training (3)" in remark for remark in found.remarks)
    assert any("The sizes of features differ: their standard deviations are" in remark for remark in found.remarks)
    lines = [f"{a},0.1,c{k % 60}" for k, a in enumerate(X[:, 0])]
    (tmp_path / "named.csv").write_text("\n".join(["width,rate,label", *lines]))
    remarks = inspect_data(str(tmp_path / "named.csv")).remarks
    assert any("1 feature is constant in training (rate)" in remark for remark in remarks)
    assert not any("differ in size" in remark for remark in remarks)


def test_columns_of_rounding_errors_are_no_features_of_another_size(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1.0, 2.0, 1e-17]  # as the last column of a singular value decomposition
    np.savez(tmp_path / "rows.npz", embeddings=X, labels=np.arange(120) % 60)
    assert not any("differ in size" in remark for remark in inspect_data(str(tmp_path / "rows.npz")).remarks)
    np.savez(tmp_path / "even.npz", X=X[:, [0, 2]], y=rng.integers(0, 60, 120))
    assert not any("feature" in remark.lower() for remark in inspect_data(str(tmp_path / "even.npz")).remarks)


@pytest.mark.parametrize("name", ["row", "Index", "Unnamed: 0"])
def test_a_column_that_numbers_the_rows_is_remarked_on(tmp_path, name):
    rng = np.random.default_rng(0)
    rows = [f"{k},{a:.3f},{b:.3f},c{k % 60}" for k, (a, b) in enumerate(rng.normal(size=(120, 2)))]
    (tmp_path / "rows.csv").write_text("\n".join([f"{name},width,height,label", *rows]))
    remark = f"The column {name!r} seems to number the rows, but is used as a feature: remove it from the table."
    assert remark in inspect_data(str(tmp_path / "rows.csv")).remarks
    (tmp_path / "sound.csv").write_text("\n".join([f"width,{name},height,label", *rows]))
    assert remark not in inspect_data(str(tmp_path / "sound.csv")).remarks  # a refractive index is no whole number


def test_loose_images_are_named_where_no_task_can_be_made(tmp_path):
    images = {f"c{c}/{k}.png": drawn(10 * c + k) for c in range(3) for k in range(2)}
    found = inspect_data(str(write(tmp_path / "set", images | {"one.png": drawn(98), "two.png": drawn(99)})))
    assert found.protocol == ""
    assert found.remarks[0].endswith("2 images outside of class folders left out (one.png, two.png).")


def test_data_of_which_no_task_can_be_made_are_counted_whole(tmp_path):
    (tmp_path / "seen.csv").write_text("a,label,split\n1,x,train\n2,y,train\n3,x,train\n4,y,train\n")
    assert inspect_data(str(tmp_path / "seen.csv")).remarks[0].endswith("got only train.")
    np.savez(tmp_path / "two.npz", X=np.arange(20.0).reshape(10, 2), y=[0, 1] * 5)
    found = inspect_data(str(tmp_path / "two.npz"))
    assert [(part.role, part.items, part.classes) for part in found.parts] == [("all", 10, 2)]
    assert "two: 2 classes, but holding out classes needs 4 or more" in found.remarks[0]
    assert found.remarks[0].endswith("`nearfar fit` holds out items of every class by default.")
    assert found.protocol == ""
    with pytest.raises(DataError, match="nowhere"):
        inspect_data(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="no class named 'z' or beginning with it"):
        inspect_data(str(tmp_path / "two.npz"), test_classes=["z"])


def test_the_command_prints_a_table_and_writes_all_names(tmp_path, capsys, monkeypatch):
    folder(tmp_path / "photos")
    write(tmp_path / "photos", {"train/train0/again.png": (tmp_path / "photos/train/train0/0.png").read_bytes()})
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["nearfar", "inspect", str(tmp_path / "photos"), "-o", str(out)])
    with suppress(SystemExit):  # which some releases of the command line's library raise at the end
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "photos: color images of 10 x 10 pixels"
    assert lines[2].split() == ["part", "items", "classes", "smallest", "class", "median", "largest"]
    assert lines[3].split() == ["train", "13", "3", "4", "4", "5"]
    assert len({len(line) for line in lines[2:5]}) == 1
    assert any(line.startswith("- 1 image is an exact copy") for line in lines)
    written = json.loads(out.read_text())
    assert written["copies"] == [["train/train0/0.png", "train/train0/again.png"]]
    assert written["parts"][0]["items"] == 13


def test_texts_are_inspected(tmp_path, capsys, monkeypatch):
    lines = [f"{'word ' * (i + 1)}{c},{c}" for c in "abcdef" for i in range(3)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines, "word a,b", "word a,a"]))
    found = inspect_data(tmp_path / "texts.csv")
    assert (found.kind, found.smallest, found.largest) == ("text", (6,), (16,))
    assert len(found.conflicts) == 1
    code, out, err = run(capsys, monkeypatch, "inspect", tmp_path / "texts.csv")
    assert (code, err) == (0, "")
    assert out.startswith("texts: texts of 6 to 16 characters\n")
    assert "1 group of identical texts has several classes" in out


def test_queries_whom_the_gallery_does_not_have_are_told(tmp_path):
    roles = {"a": ["train"], "b": ["train"], "x": ["query", "gallery"], "y": ["query", "query"], "z": ["gallery"]}
    lines = [f"{i},{label},c0,{role}" for label, all_of in roles.items() for i, role in enumerate(3 * all_of)]
    (tmp_path / "table.csv").write_text("\n".join(["width,label,group,split", *lines]))
    remarks = inspect_data(str(tmp_path / "table.csv")).remarks
    told = "6 of the 9 queries are of classes that are not in the gallery (y): retrieval leaves them out;"
    assert any(remark.startswith(told) for remark in remarks)
    assert any(remark.startswith("3 of the 9 test items have no item of their class in another") for remark in remarks)
    enrolled = "\n".join(["width,label,group,split", *lines, "30,y,c0,gallery"])
    (tmp_path / "table.csv").write_text(enrolled)
    assert not any("are not in the gallery" in remark for remark in inspect_data(tmp_path / "table.csv").remarks)


def test_items_whose_class_is_in_their_own_group_alone_are_told(tmp_path):
    rng, roles = np.random.default_rng(0), ["train", "query", "query", "gallery", "gallery", "gallery"]
    lines = ["width,height,label,group,split"]
    for label in "abcdefgh":
        for at, role in enumerate(["train"] if label < "e" else roles[1:]):
            camera = 0 if label == "e" or role == "query" else at  # the gallery of e is of the queries' camera
            lines += [",".join([*map(str, rng.normal(size=2)), label, f"c{camera}", role])] * (
                3 if role == "train" else 1
            )
    (tmp_path / "table.csv").write_text("\n".join(lines))
    told = "2 of the 8 test items have no item of their class in another group (the column 'group'): they"
    assert any(remark.startswith(told) for remark in inspect_data(str(tmp_path / "table.csv")).remarks)
    alone = [line.replace("query", "test").replace("gallery", "test") for line in lines]
    (tmp_path / "alone.csv").write_text("\n".join(alone))
    remarks = inspect_data(str(tmp_path / "alone.csv")).remarks
    assert any(remark.startswith(told.replace("2 of the 8", "5 of the 20")) for remark in remarks)
    none = [line.rsplit(",", 2)[0] + "," + line.rsplit(",", 1)[1] for line in alone]
    (tmp_path / "none.csv").write_text("\n".join(none))
    assert not any("group" in remark for remark in inspect_data(str(tmp_path / "none.csv")).remarks)


def test_images_of_unusual_shapes_are_remarked_on(tmp_path):
    sizes = {"a/0": (64, 48), "a/1": (80, 60), "b/0": (64, 64), "b/1": (9, 7), "c/0": (64, 50), "c/1": (4000, 8)}
    images = {f"{name}.png": png(size=size) for name, size in sizes.items()}
    remarks = inspect_data(str(write(tmp_path / "set", images))).remarks
    assert "2 images are tiny, unlike the others (b/1.png: 9 x 7, c/1.png: 4000 x 8)." in remarks
    long = (
        "1 image is more than 8 times as long as wide (c/1.png: 4000 x 8): networks see only the square in the center."
    )
    assert long in remarks
    same = {f"{name}.png": png(i, size=(9, 7)) for i, name in enumerate(sizes)}
    assert not any("tiny" in remark for remark in inspect_data(str(write(tmp_path / "same", same))).remarks)


def test_rows_that_lack_something_are_left_out_of_an_inspection_if_asked(tmp_path, capsys, monkeypatch):
    rows = [f"{i},{'' if i == 3 else i * i},{'' if i == 5 else 'abcd'[i % 4]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["width,height,label", *rows]))
    code, _, err = run(capsys, monkeypatch, "inspect", tmp_path / "rows.csv")
    assert code == 2
    assert "the label is empty in 1 row" in err
    code, out, _ = run(capsys, monkeypatch, "inspect", tmp_path / "rows.csv", "--skip-bad")
    assert code == 0
    assert "1 row without a label left out (of 40)" in out
    assert "1 row with an empty, NaN or infinite cell left out (rows[3])" in out


@pytest.mark.parametrize("listed", [True, False])
def test_standardizing_is_recommended_for_measurements_but_not_for_embeddings(tmp_path, listed):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3)) * [1000, 1, 1]
    columns = "embedding,label" if listed else "width,height,depth,label"
    cells = [f'"{row.tolist()}"' if listed else ",".join(map(str, row)) for row in rows]
    lines = [f"{cell},c{k % 8}" for k, cell in enumerate(cells)]
    (tmp_path / "rows.csv").write_text("\n".join([columns, *lines]))
    said = [remark for remark in inspect_data(str(tmp_path / "rows.csv")).remarks if "--standardize" in remark]
    assert bool(said) != listed


@pytest.mark.parametrize(("classes", "advised"), [(10, False), (14, True)])  # of 5, half are 2, as by default; of 7, 4
def test_more_validation_classes_are_advised_only_where_there_would_be_more(tmp_path, classes, advised):
    y = np.repeat(np.arange(classes), 4)
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(len(y), 3)), y=y)
    remark = next(one for one in inspect_data(str(tmp_path / "rows.npz")).remarks if "largely random" in one)
    assert ("--set validation=0.5" in remark) == advised


def table(path, columns):
    names = ",".join(columns)
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]))
    return str(path)


@pytest.mark.parametrize("kind", ["texts", "numbers"])
def test_a_column_that_tells_the_class_is_remarked_on(kind, tmp_path):
    label = np.arange(80) % 8
    told = [f"group {k}" for k in label] if kind == "texts" else label * 7
    columns = {"label": [f"c{k}" for k in label], "x": np.random.default_rng(0).normal(size=80), "told": told}
    found = inspect_data(table(tmp_path / "rows.csv", columns))
    remark = "The column 'told' has one value in each class, and so may tell the class"
    assert f"{remark}: remove what is not known of new rows." in found.remarks
    columns["told"] = np.random.default_rng(1).permutation(told)
    assert not any(
        "one value in each class" in told for told in inspect_data(table(tmp_path / "b.csv", columns)).remarks
    )


def test_rows_without_labels_are_no_class_of_one_row(tmp_path):
    found = inspect_data(table(tmp_path / "rows.csv", {"x": [1.0], "z": [2.0]}))
    assert not any("only one row" in remark for remark in found.remarks)


@pytest.mark.parametrize(("column", "told"), [([1e9, 1e9 + 7], True), ([1e-40, 3e-40], True), ([2020, 2024], False)])
def test_a_column_that_float32_blurs_is_named(column, told, tmp_path, recwarn):
    path = table(tmp_path / "rows.csv", {"label": [*"abcd"] * 2, "x": column * 4, "z": [*range(8)]})
    open_task(path, validation=0.0)
    found = [str(one.message) for one in recwarn if "'x' loses its differences in float32" in str(one.message)]
    assert bool(found) is told
