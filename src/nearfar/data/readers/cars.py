"""Cars-196: cars of 196 models (Krause et al., 2013); the first 98 train, the last 98 test."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataset import DataError, DataNotFoundError, Source
from ..image_formats import suffixes
from .files import Files, lines, locate, open_files
from .official import FIRST_HALF, Counts, Expected, first_half, official_source

OFFICIAL = {"train": Counts(8054, 98), "test": Counts(8131, 98)}


def read_cars(
    path: str | Path,
    *,
    image_size: int | None = None,
    skip_bad: bool = False,
    expected: Expected | None = OFFICIAL,
) -> Source:
    """Read the archive in its zero-shot protocol, in any of the three layouts in which it is distributed.

    Parameters
    ----------
    path : str or Path
        A folder or zip with (a) `car_ims/` and `cars_annos.mat`; (b) `cars_train/`, `cars_test/` and `devkit/` with
        cars_train_annos.mat, cars_test_annos_withlabels.mat and cars_meta.mat (the test annotations may also be next to
        `devkit/`); (c) folders train/ and test/ with one folder per class, with or without names.csv.
    image_size, skip_bad
        As for `nearfar.data.open_task`.
    expected : mapping, optional
        Number of images and classes of each role, which are checked; None accepts any.

    Returns
    -------
    Source
        The images, with the role of each.

    Notes
    -----
    Classes are split in the order of their official ids. Layout (c) has ids only through the order of a names.csv.
    Without one, the sorted names are split, and the counts would reveal a different half.
    """
    files = open_files(path)
    names, class_ids, classes = _read_any(files)
    return official_source(
        "Cars-196",
        files,
        names,
        class_ids,
        first_half(class_ids),
        split=FIRST_HALF,
        expected=expected,
        image_size=image_size,
        skip_bad=skip_bad,
        class_name=lambda number: classes[number],
    )


Listing = tuple[list[str], NDArray[np.int64], list[str]]
"""File names, zero-based class ids and class names."""


def _read_any(files: Files) -> Listing:
    for name, read in (
        ("cars_annos.mat", _single),
        ("devkit/cars_train_annos.mat", _devkit),
        ("cars_train_annos.mat", _devkit),
    ):
        try:
            top = locate(files, name)
        except DataNotFoundError:
            continue
        return read(files, top, name)
    return _folders(files)


def _single(files: Files, top: str, name: str) -> Listing:
    mat = _mat(files, top + name)
    annotations = mat["annotations"].ravel()
    names = [top + _text(row["relative_im_path"]) for row in annotations]
    ids = np.array([int(row["class"].item()) - 1 for row in annotations])
    return names, ids, [_text(c) for c in mat["class_names"].ravel()]


def _devkit(files: Files, top: str, name: str) -> Listing:
    kit = top + name.removesuffix("cars_train_annos.mat")
    with_labels = [d + "cars_test_annos_withlabels.mat" for d in (kit, top)]
    test = next((name for name in with_labels if name in files), None)
    if test is None:
        raise DataNotFoundError(f"{files.root}: has no {with_labels[0]}; the devkit's own test file has no labels")
    classes = [_text(c) for c in _mat(files, kit + "cars_meta.mat")["class_names"].ravel()]
    names: list[str] = []
    ids: list[int] = []
    for table, folder in ((kit + "cars_train_annos.mat", "cars_train"), (test, "cars_test")):
        base = _image_folder(files, top, folder)
        for row in _mat(files, table)["annotations"].ravel():
            names.append(base + _text(row["fname"]))
            ids.append(int(row["class"].item()) - 1)
    return names, np.array(ids), classes


def _image_folder(files: Files, top: str, folder: str) -> str:
    """Return the path of cars_train/ next to the devkit; one mirror has cars_train/cars_train/."""
    bases = [f"{top}{folder}/", f"{top}{folder}/{folder}/", f"{folder}/", f"{folder}/{folder}/"]
    return next((base for base in bases if f"{base}00001.jpg" in files), bases[0])


def _folders(files: Files) -> Listing:
    names = [name for name in files.names() if name.lower().endswith(suffixes())]
    parts = [name.split("/") for name in names]
    if not names or any(len(part) < 3 or part[-3] not in ("train", "test") for part in parts):
        expected = "cars_annos.mat, devkit/cars_train_annos.mat, or train/ and test/ of class folders"
        raise DataNotFoundError(f"{files.root}: not a Cars-196 archive; expected {expected}")
    classes = _class_order(files, {part[-2] for part in parts})
    number = {c: i for i, c in enumerate(classes)}
    return names, np.array([number[part[-2]] for part in parts]), classes


def _class_order(files: Files, found: set[str]) -> list[str]:
    """Return the names in the order of names.csv, if it exists ("/" is "-" in folders), else in sorted order."""
    try:
        listed = [line.strip().replace("/", "-") for line in lines(files, locate(files, "names.csv") + "names.csv")]
    except DataNotFoundError:
        return sorted(found)
    if set(listed) != found or len(listed) != len(found):
        raise DataError(f"{files.root}: names.csv lists {len(listed)} classes, unlike the {len(found)} class folders")
    return listed


def _mat(files: Files, name: str) -> dict[str, Any]:
    from scipy.io import loadmat

    data = files.read(name)
    try:
        return loadmat(io.BytesIO(data))
    except Exception as error:  # a corrupt .mat file raises nearly any exception
        raise DataError(f"{files.root}/{name}: not a readable MATLAB file ({error})") from error


def _text(value: Any) -> str:
    return str(np.asarray(value).ravel()[0])
