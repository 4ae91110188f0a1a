"""What is said of images that are in training and in the test."""

import io

import numpy as np
import pytest

from nearfar.data import open_task
from nearfar.data.checks.shared_images import remark_shared

from .conftest import write, zipped

Image = pytest.importorskip("PIL.Image")
rng = np.random.default_rng(0)


def drawn(side):
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("sides", [(9, 9), (9, 11)])  # of one size they are in memory, else files
def test_the_same_image_in_two_classes_is_told(tmp_path, sides):
    images = {
        f"{part}/{c}/{k}.png": drawn(sides[k]) for part in ("train", "test") for c in (part[:2], part) for k in (0, 1)
    }
    write(tmp_path, images)
    assert remark_shared(open_task(str(tmp_path), validation=0.0)) == ""
    images["test/te/1.png"] = images["train/tr/1.png"]
    write(tmp_path, images)
    task = open_task(str(tmp_path), validation=0.0)
    assert (task.train.array is None) == (sides[0] != sides[1])
    assert remark_shared(task) == "NOT disjoint: 1 test image is also a training image (test/te/1.png)."


def test_images_of_an_archive_are_compared(tmp_path):
    sides = iter(range(9, 17))
    images = {
        f"{part}/{part[:2]}{c}/{k}.png": drawn(next(sides)) for part in ("train", "test") for c in "ab" for k in "01"
    }
    assert remark_shared(open_task(str(zipped(tmp_path / "a.zip", images)), validation=0.0)) == ""
    images["test/teb/1.png"] = images["train/tra/1.png"]
    task = open_task(str(zipped(tmp_path / "b.zip", images)), validation=0.0)
    assert task.train.array is None
    assert remark_shared(task) == "NOT disjoint: 1 test image is also a training image (test/teb/1.png)."


def test_cuts_of_one_image_are_the_same_where_their_boxes_are(tmp_path):
    boxes = {"a": (0, 0, 9, 9), "b": (0, 0, 8, 8), "c": (1, 0, 9, 9), "d": (2, 0, 9, 9)}
    rows = [f"1.png,{c},{'train' if c in 'ab' else 'test'},{','.join(map(str, box))}" for c, box in boxes.items()]
    text = "\n".join(["path,label,split,x1,y1,x2,y2", *rows])
    write(tmp_path, {"1.png": drawn(9), "apart.csv": text, "same.csv": text + "\n1.png,d,test,0,0,8,8"})
    task = open_task(str(tmp_path / "apart.csv"), validation=0.0)
    assert task.train.array is None
    assert remark_shared(task) == ""
    found = remark_shared(open_task(str(tmp_path / "same.csv"), validation=0.0))
    assert found.startswith("NOT disjoint: 1 test image is also a training image")


def test_rows_are_not_compared(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.ones((8, 2)), y=np.arange(8) % 4)
    assert remark_shared(open_task(str(tmp_path / "x.npz"))) == ""
