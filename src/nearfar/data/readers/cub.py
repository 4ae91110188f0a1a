"""CUB-200-2011: birds of 200 species (Wah et al., 2011); the first 100 train, the last 100 test."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..dataset import DataError, Source
from .files import Files, lines, locate, open_files
from .official import FIRST_HALF, Counts, Expected, first_half, official_source

OFFICIAL = {"train": Counts(5864, 100), "test": Counts(5924, 100)}


def read_cub(
    path: str | Path,
    *,
    image_size: int | None = None,
    skip_bad: bool = False,
    expected: Expected | None = OFFICIAL,
) -> Source:
    """Read the extracted archive in its zero-shot protocol.

    Parameters
    ----------
    path : str or Path
        The folder `CUB_200_2011` (with images.txt, image_class_labels.txt, classes.txt, images/) or its parent, or a
        zip of it.
    image_size, skip_bad
        As for `nearfar.data.open_task`.
    expected : mapping, optional
        Number of images and classes of each role, which are checked; None accepts any.

    Returns
    -------
    Source
        The images, with the role of each.
    """
    files = open_files(path)
    top = locate(files, "images.txt")
    images = _pairs(files, top + "images.txt")
    class_of = _pairs(files, top + "image_class_labels.txt")
    names = _pairs(files, top + "classes.txt")
    if missing := images.keys() ^ class_of.keys():
        raise DataError(f"{path}: images.txt and image_class_labels.txt disagree on image {sorted(missing)[0]}")
    if missing := set(class_of.values()) - names.keys():
        raise DataError(f"{path}: classes.txt has no class {sorted(missing)[0]}")
    ids = sorted(images, key=int)
    class_ids = np.array([int(class_of[i]) for i in ids])
    return official_source(
        "CUB-200-2011",
        files,
        [f"{top}images/{images[i]}" for i in ids],
        class_ids,
        first_half(class_ids),
        split=FIRST_HALF,
        expected=expected,
        image_size=image_size,
        skip_bad=skip_bad,
        class_name=lambda number: names[str(number)],
    )


def _pairs(files: Files, name: str) -> dict[str, str]:
    """Read lines of "key value"."""
    rows = [line.split(maxsplit=1) for line in lines(files, name)]
    if any(len(row) != 2 or not row[0].isdigit() for row in rows):
        raise DataError(f"{files.root}/{name}: expected lines of a number and a value")
    return {key: value.strip() for key, value in rows}
