"""Omniglot's own one-shot classification runs (Lake et al., 2015): 20 runs of 20-way 1-shot.

run01/training/class01.png ... class20.png      one image of each class
run01/test/item01.png ... item20.png            images to classify
run01/class_labels.txt                          a line per test item: its path and that of its training image
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...quoting import quoted
from ..dataset import DataError
from ..decode import ImageReader
from ..image_formats import suffixes
from .files import Files, lines, open_files

LABELS = "class_labels.txt"


class OneShotRun(NamedTuple):
    """One run of one-shot classification.

    Attributes
    ----------
    name : str
        Name of its folder, such as "run01".
    training : ndarray of uint8, shape (c, H, W, 1)
        Training images, one per class.
    test : ndarray of uint8, shape (t, H, W, 1)
        Test images.
    answers : ndarray of int64, shape (t,)
        Number of the training image to which each test image belongs.
    """

    name: str
    training: NDArray[np.uint8]
    test: NDArray[np.uint8]
    answers: NDArray[np.int64]


def read_one_shot_runs(path: str | Path, *, image_size: int | None = None) -> list[OneShotRun]:
    """Read the runs of a folder or zip.

    Parameters
    ----------
    path : str or Path
        Contains folders with `training/`, `test/` and `class_labels.txt`, at its top or in other folders.
    image_size : int, optional
        Side of the square images in pixels. By default, 28.

    Returns
    -------
    list of OneShotRun
        Runs in the order of their names. Images are inverted and resized like those of `read_omniglot`.

    Raises
    ------
    DataError
        If there is no run, a run does not have one label for each of its test images, or a line of the labels does not
        name a test and a training image.
    """
    files = open_files(path)
    folders = [PurePosixPath(name).parent for name in files.names() if PurePosixPath(name).name == LABELS]
    if not folders:
        raise DataError(f"{path}: has no one-shot runs; expected folders with {LABELS}")
    parts = {PurePosixPath(name).parent for name in files.names()}
    bare = sorted(part.parent for part in parts if part.name == "test" and part.parent / "training" in parts)
    lost = [folder for folder in bare if folder not in folders]
    if lost:
        raise DataError(f"{path}: {lost[0]} has test/ and training/, but no {LABELS}")
    return [_read_run(files, folder, image_size or 28) for folder in folders]


def _read_run(files: Files, folder: PurePosixPath, size: int) -> OneShotRun:
    pairs = [line.split() for line in lines(files, str(folder / LABELS))]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise DataError(f"{files.root}/{folder / LABELS}: expected lines with a test image and its training image")
    tests = [_image(files, folder, "test", name) for name, _ in pairs]
    own = [_image(files, folder, "training", name) for _, name in pairs]
    without_line = [name for name in _images(files, folder / "test") if name not in tests]
    if without_line:
        name = PurePosixPath(without_line[0]).name
        raise DataError(f"{files.root}/{folder / LABELS}: expected a line for {name} of {folder}/test")
    training = _images(files, folder / "training")
    answers = np.searchsorted(training, own)  # the training images are sorted
    return OneShotRun(folder.name, _pixels(files, training, size), _pixels(files, tests, size), answers)


def _images(files: Files, folder: PurePosixPath) -> list[str]:
    """Return the images of a folder, sorted."""
    return [
        name for name in files.names() if PurePosixPath(name).parent == folder and name.lower().endswith(suffixes())
    ]


def _image(files: Files, folder: PurePosixPath, part: str, name: str) -> str:
    """Return the path of an image of a run. Lines name it relative to the run's parent, which may have any name."""
    found = str(folder / part / PurePosixPath(name).name)
    if found not in files or PurePosixPath(name).parent.name != part:
        raise DataError(f"{files.root}/{folder / LABELS}: {quoted(name)} is not an image of {folder / part}")
    return found


def _pixels(files: Files, names: list[str], size: int) -> NDArray[np.uint8]:
    read = ImageReader(files, tuple(names), channels=1, size=size, invert=True)
    return np.stack([read(i) for i in range(len(names))])
