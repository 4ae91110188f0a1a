"""What is said of images that are in training and in the test."""

import io

import numpy as np
import pytest
from conftest import write

from nearfar.data import open_task
from nearfar.data.shared import remark_shared

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
    assert remark_shared(task) == "NOT disjoint: 1 test image(s) are training images too (test/te/1.png)."


def test_rows_are_not_compared(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.ones((8, 2)), y=np.arange(8) % 4)
    assert remark_shared(open_task(str(tmp_path / "x.npz"))) == ""
