"""One-shot runs in the layout of Omniglot's archive."""

import numpy as np
import pytest

pytest.importorskip("PIL")

from nearfar.data import DataError
from nearfar.data.readers.one_shot_runs import read_one_shot_runs

from .conftest import png, write, zipped


def content(order=(2, 0, 1), prefix="", named=""):
    """Two runs of three classes; training image c is gray 40 c, its test image the same."""
    files = {}
    for run in ("run01", "run02"):
        for c in range(3):
            files[f"{prefix}{run}/training/class{c + 1:02d}.png"] = png(40 * c, (105, 105), "L")
        for item, c in enumerate(order):
            files[f"{prefix}{run}/test/item{item + 1:02d}.png"] = png(40 * c, (105, 105), "L")
        pairs = [
            f"{named}{run}/test/item{i + 1:02d}.png {named}{run}/training/class{c + 1:02d}.png"
            for i, c in enumerate(order)
        ]
        files[f"{prefix}{run}/class_labels.txt"] = "\n".join(pairs) + "\n"
    return files


@pytest.mark.parametrize("prefix", ["", "all_runs/"])
@pytest.mark.parametrize("named", ["", "all_runs/"])
@pytest.mark.parametrize("packed", [True, False])
def test_runs_are_read(tmp_path, prefix, named, packed):
    files = content(prefix=prefix, named=named)
    path = zipped(tmp_path / "all_runs.zip", files) if packed else write(tmp_path, files)
    runs = read_one_shot_runs(path)
    assert [run.name for run in runs] == ["run01", "run02"]
    for run in runs:
        assert run.training.shape == run.test.shape == (3, 28, 28, 1)
        assert run.training[:, 0, 0, 0].tolist() == [255, 215, 175]  # ink is bright
        assert run.answers.tolist() == [2, 0, 1]
        np.testing.assert_array_equal(run.training[run.answers], run.test)


def test_size_is_chosen(tmp_path):
    assert read_one_shot_runs(write(tmp_path, content()), image_size=20)[0].test.shape == (3, 20, 20, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run01/test/item01.png", "expected lines with a test image and its training image"),
        ("run01/test/item01.png run01/training/class09.png", "class09.png' is not an image of run01/training"),
        ("run01/test/item09.png run01/training/class01.png", "item09.png' is not an image of run01/test"),
        ("run01/training/class01.png run01/training/class01.png", "not an image of run01/test"),
        ("", "expected lines"),
        ("run01/test/item01.png run01/training/class03.png", "expected a line for item02.png of run01/test"),
    ],
)
def test_bad_labels_are_named(tmp_path, line, message):
    path = write(tmp_path, content() | {"run01/class_labels.txt": line})
    with pytest.raises(DataError, match=message):
        read_one_shot_runs(path)


def test_a_run_without_labels_is_named(tmp_path):
    files = content()
    del files["run02/class_labels.txt"]
    with pytest.raises(DataError, match=r"run02 has test/ and training/, but no class_labels\.txt"):
        read_one_shot_runs(write(tmp_path, files))


def test_a_folder_without_runs_says_so(tmp_path):
    with pytest.raises(DataError, match=r"has no one-shot runs; expected folders with class_labels\.txt"):
        read_one_shot_runs(write(tmp_path, {"a/b.png": png()}))
