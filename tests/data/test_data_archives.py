"""Miniature official archives in every layout, and wrong counts."""

import io
from pathlib import Path

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, open_task
from nearfar.data.checks.inspection import inspect_data
from nearfar.data.readers.cars import OFFICIAL as CARS
from nearfar.data.readers.cars import read_cars
from nearfar.data.readers.cub import OFFICIAL as CUB
from nearfar.data.readers.cub import read_cub
from nearfar.data.readers.inshop import OFFICIAL as INSHOP
from nearfar.data.readers.inshop import read_inshop
from nearfar.data.readers.official import Counts
from nearfar.data.readers.sop import OFFICIAL as SOP
from nearfar.data.readers.sop import read_sop

from .conftest import png, torn, write, zipped

HALVES = {"train": Counts(6, 2), "test": Counts(6, 2)}


def by_role(source) -> dict[str, tuple[str, ...]]:
    return {role: source.items.subset(source.roles == role).classes for role in np.unique(source.roles).tolist()}


def test_official_counts():
    assert {"train": Counts(5864, 100), "test": Counts(5924, 100)} == CUB
    assert {"train": Counts(8054, 98), "test": Counts(8131, 98)} == CARS
    assert {"train": Counts(59551, 11318), "test": Counts(60502, 11316)} == SOP
    assert {"train": Counts(25882, 3997), "query": Counts(14218, 3985), "gallery": Counts(12612, 3985)} == INSHOP


def cub_files() -> dict[str, bytes | str]:
    # the ids 9 and 10 sort differently as text
    names = {8: "008.Rook", 9: "009.Jay", 10: "010.Auk", 11: "011.Crow"}
    images = [(f"{names[c]}/{i}.jpg", c) for c in names for i in range(3)]
    content: dict[str, bytes | str] = {f"images/{name}": png(c) for name, c in images}
    content["images.txt"] = "".join(f"{k} {name}\n" for k, (name, _) in enumerate(images, 1))
    content["image_class_labels.txt"] = "".join(f"{k} {c}\n" for k, (_, c) in enumerate(images, 1))
    content["classes.txt"] = "".join(f"{c} {name}\n" for c, name in names.items())
    return {f"CUB_200_2011/{name}": data for name, data in content.items()}


@pytest.mark.parametrize("form", ["around", "inside", "zip"])
def test_cub(tmp_path, form):
    path = zipped(tmp_path / "c.zip", cub_files()) if form == "zip" else write(tmp_path / "c", cub_files())
    source = read_cub(path / "CUB_200_2011" if form == "inside" else path, expected=HALVES)
    assert by_role(source) == {"train": ("008.Rook", "009.Jay"), "test": ("010.Auk", "011.Crow")}
    assert source.items.array[:, 0, 0, 0].tolist() == [8] * 3 + [9] * 3 + [10] * 3 + [11] * 3
    assert "official zero-shot" in source.split


def test_cub_errors(tmp_path):
    root = write(tmp_path, cub_files())
    with pytest.raises(DataError, match=r"found train 6 images of 2 classes, test 6 .*; expected train 5864"):
        open_task(f"cub:{root}")
    with pytest.raises(DataError, match=r"give partial=True"):
        inspect_data(f"cub:{root}")
    assert [part.items for part in inspect_data(f"cub:{root}", partial=True).parts] == [6, 6]
    write(root, {"CUB_200_2011/classes.txt": "8 Rook\n9 Jay\n10 Auk\n"})
    with pytest.raises(DataError, match=r"classes.txt has no class 11"):
        read_cub(root, expected=None)
    write(root, {"CUB_200_2011/image_class_labels.txt": "1 8\n"})
    with pytest.raises(DataError, match="disagree on image 10"):
        read_cub(root, expected=None)
    write(root, {"CUB_200_2011/images.txt": "one two\n"})
    with pytest.raises(DataError, match="expected lines of a number and a value"):
        read_cub(root, expected=None)
    with pytest.raises(DataNotFoundError, match=r"has no images.txt"):
        open_task(f"cub:{write(tmp_path / 'other', {'a.txt': ''})}")
    with pytest.raises(DataNotFoundError, match="no such file or folder"):
        open_task("cub:/no/such/place")


CAR_NAMES = ["AM General", "Audi C/V", "BMW X1", "smart fortwo"]


def mat(**content) -> bytes:
    scipy_io = pytest.importorskip("scipy.io")
    buffer = io.BytesIO()
    scipy_io.savemat(buffer, content)
    return buffer.getvalue()


def table(rows: list[tuple[str, int]], name_field: str) -> np.ndarray:
    kinds = [(name_field, object), ("bbox_x1", object), ("class", object)]
    return np.array([(name, 1, c) for name, c in rows], dtype=kinds)[None]


def car_names() -> np.ndarray:
    names = np.empty((1, 4), dtype=object)
    names[0] = CAR_NAMES
    return names


def cars_single() -> dict[str, bytes]:
    rows = [(f"car_ims/{k:06d}.jpg", 4 - k % 4) for k in range(12)]
    annotations = mat(annotations=table(rows, "relative_im_path"), class_names=car_names())
    return {"cars_annos.mat": annotations} | {name: png(c) for name, c in rows}


def cars_devkit(nested: bool = False, outside: bool = False) -> dict[str, bytes]:
    rows = {part: [(f"{k + 1:05d}.jpg", 1 + k % 4) for k in range(n)] for part, n in (("train", 8), ("test", 4))}
    content = {"devkit/cars_meta.mat": mat(class_names=car_names())}
    content["devkit/cars_train_annos.mat"] = mat(annotations=table(rows["train"], "fname"))
    labels = mat(annotations=table(rows["test"], "fname"))
    content[("" if outside else "devkit/") + "cars_test_annos_withlabels.mat"] = labels
    for part, listed in rows.items():
        base = f"cars_{part}/" * (2 if nested else 1)
        content |= {base + name: png(c) for name, c in listed}
    return content


def cars_folders(names: list[str] | None = None) -> dict[str, bytes | str]:
    content: dict[str, bytes | str] = {}
    for c, name in enumerate(CAR_NAMES, 1):
        folder = name.replace("/", "-")
        for k, part in enumerate(("train", "train", "test")):
            content[f"car_data/car_data/{part}/{folder}/{c}{k}.jpg"] = png(c)
    return content | ({"names.csv": "\n".join(names)} if names else {})


@pytest.mark.parametrize(
    "content",
    [
        cars_single,
        cars_devkit,
        lambda: cars_devkit(nested=True),
        lambda: cars_devkit(outside=True),
        cars_folders,
        lambda: cars_folders(CAR_NAMES),
        lambda: {f"Cars196/{name}": data for name, data in cars_single().items()},
    ],
)
def test_cars_in_every_layout(tmp_path, content):
    source = read_cars(write(tmp_path, content()), expected=HALVES)
    roles = {role: [c.replace("/", "-") for c in classes] for role, classes in by_role(source).items()}
    assert roles == {"train": ["AM General", "Audi C-V"], "test": ["BMW X1", "smart fortwo"]}
    assert source.items.array[:, 0, 0, 0].tolist() == (source.items.labels + 1).tolist()


def test_cars_ids_of_folders_come_from_names_csv(tmp_path):
    source = read_cars(write(tmp_path, cars_folders(CAR_NAMES[::-1])), expected=HALVES)
    assert by_role(source)["train"] == ("smart fortwo", "BMW X1")


def test_cars_errors(tmp_path):
    with pytest.raises(DataError, match="expected train 8054 images of 98 classes, test 8131 images of 98"):
        open_task(f"cars:{write(tmp_path / 'a', cars_folders())}")
    with pytest.raises(DataNotFoundError, match=r"not a Cars-196 archive; expected cars_annos.mat, devkit"):
        read_cars(write(tmp_path / "b", {"x/y.png": png()}))
    content = cars_devkit()
    del content["devkit/cars_test_annos_withlabels.mat"]
    with pytest.raises(DataNotFoundError, match="test file has no labels"):
        read_cars(write(tmp_path / "c", content))
    with pytest.raises(DataError, match="not a readable MATLAB file"):
        read_cars(write(tmp_path / "d", {"cars_annos.mat": b"nothing"}))
    with pytest.raises(DataError, match=r"names.csv lists 2 classes, unlike the 4 class folders"):
        read_cars(write(tmp_path / "e", cars_folders(CAR_NAMES[:2])))


def sop_files() -> dict[str, bytes | str]:
    content: dict[str, bytes | str] = {}
    for role, first in (("train", 1), ("test", 3)):
        text = "image_id class_id super_class_id path\n"
        for c in (first, first + 1):
            for i in range(3):
                text += f"{i} {c} 1 bicycle_final/{c}_{i}.JPG\n"
                content[f"bicycle_final/{c}_{i}.JPG"] = png(c)
        content[f"Ebay_{role}.txt"] = text
    return {f"Stanford_Online_Products/{name}": data for name, data in content.items()}


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_sop(tmp_path, form):
    path = zipped(tmp_path / "s.zip", sop_files()) if form == "zip" else write(tmp_path / "s", sop_files())
    source = read_sop(path, expected=HALVES)
    assert by_role(source) == {"train": ("1", "2"), "test": ("3", "4")}
    assert source.items.array[:, 0, 0, 0].tolist() == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3


def test_sop_errors(tmp_path):
    root = write(tmp_path, sop_files())
    with pytest.raises(DataError, match="expected train 59551 images of 11318 classes, test 60502 images of 11316"):
        open_task(f"sop:{root}")
    write(root, {"Stanford_Online_Products/Ebay_test.txt": "a b\n"})
    with pytest.raises(DataError, match=r"Ebay_test.txt is not a table of image_id class_id super_class_id path"):
        read_sop(root, expected=None)


PARTS = {"train": Counts(4, 2), "query": Counts(2, 2), "gallery": Counts(4, 2)}


def inshop_files(base: str = "", partition: str = "Eval/list_eval_partition.txt") -> dict[str, bytes | str]:
    rows = [("train", c, i) for c in (1, 2) for i in (1, 2)]
    rows += [(role, c, i) for c in (7, 8) for role, i in (("query", 1), ("gallery", 2), ("gallery", 3))]
    names = [f"img/WOMEN/Dresses/id_{c:08d}/02_{i}_front.jpg" for _, c, i in rows]
    text = f"{len(rows)}\nimage_name item_id evaluation_status\n"
    lines = [f"{n}    id_{c:08d}    {role}\n" for n, (role, c, _) in zip(names, rows, strict=True)]
    content: dict[str, bytes | str] = {base + n: png(c) for n, (_, c, _) in zip(names, rows, strict=True)}
    return content | {partition: text + "".join(lines)}


@pytest.mark.parametrize("base", ["", "Img/"])
@pytest.mark.parametrize("partition", ["Eval/list_eval_partition.txt", "list_eval_partition.txt"])
def test_inshop(tmp_path: Path, base, partition, monkeypatch):
    root = write(tmp_path, inshop_files(base, partition))
    source = read_inshop(root, expected=PARTS)
    assert len(source.items) == 10, "the first image is not lost to the header"
    assert source.items.array[:, 0, 0, 0].tolist() == [1, 1, 2, 2, 7, 7, 7, 8, 8, 8]
    monkeypatch.setattr(read_inshop, "__kwdefaults__", {"image_size": None, "skip_bad": False, "expected": PARTS})
    task = open_task(f"inshop:{root}")
    assert (len(task.train), len(task.test), len(task.gallery)) == (4, 2, 4)
    assert task.test.classes == task.gallery.classes == ("id_00000007", "id_00000008")
    assert "query 2 images of 2 classes, gallery 4 images of 2 classes" in task.protocol


def test_inshop_errors(tmp_path):
    with pytest.raises(DataError, match="expected train 25882 images of 3997 classes, query 14218"):
        open_task(f"inshop:{write(tmp_path / 'a', inshop_files())}")
    with pytest.raises(DataError, match="is not a count, a header and rows"):
        read_inshop(write(tmp_path / "b", {"list_eval_partition.txt": "3\nfoo\n"}))
    bad = "1\nimage_name item_id evaluation_status\nimg/a.jpg id_1 val\n"
    with pytest.raises(DataError, match="has a row that is not image_name"):
        read_inshop(write(tmp_path / "c", {"list_eval_partition.txt": bad}))


@pytest.mark.parametrize(
    ("read", "files", "parts"),
    [
        (read_cub, cub_files, HALVES),
        (read_cars, cars_folders, HALVES),
        (read_sop, sop_files, HALVES),
        (read_inshop, inshop_files, PARTS),
    ],
    ids=["cub", "cars", "sop", "inshop"],
)
def test_a_corrupt_image_of_an_archive_stops_or_is_skipped(tmp_path, read, files, parts):
    content = files()
    bad = next(name for name in content if name.lower().endswith((".jpg", ".png")))
    root = write(tmp_path, content | {bad: torn()})
    with pytest.raises(DataError, match="cannot be decoded"):
        read(root, expected=parts)
    source = read(root, skip_bad=True, expected=parts)
    assert len(source.items.bad) == 1
    assert bad.endswith(source.items.bad[0])
    assert len(source.items) == sum(count.images for count in parts.values()) - 1
