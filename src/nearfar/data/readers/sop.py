"""Stanford Online Products: 22,634 products of an online shop (Oh Song et al., 2016), with their official split."""

from __future__ import annotations

from pathlib import Path

from ..dataset import DataError, Source
from .files import lines, locate, open_files
from .official import Counts, Expected, official_source

OFFICIAL = {"train": Counts(59551, 11318), "test": Counts(60502, 11316)}
HEADER = ["image_id", "class_id", "super_class_id", "path"]


def read_sop(
    path: str | Path,
    *,
    image_size: int | None = None,
    skip_bad: bool = False,
    expected: Expected | None = OFFICIAL,
) -> Source:
    """Read the zip, or its extracted folder, in its zero-shot protocol.

    Parameters
    ----------
    path : str or Path
        `Stanford_Online_Products.zip`, the folder of that name (with Ebay_train.txt and Ebay_test.txt), or its parent.
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
    top = locate(files, "Ebay_train.txt")
    names: list[str] = []
    labels: list[int] = []
    roles: list[str] = []
    for role in ("train", "test"):
        rows = [line.split() for line in lines(files, f"{top}Ebay_{role}.txt")]
        if not rows or rows[0] != HEADER or any(len(row) != 4 or not row[1].isdigit() for row in rows[1:]):
            raise DataError(f"{path}: Ebay_{role}.txt is not a table of {' '.join(HEADER)}")
        names += [top + row[3] for row in rows[1:]]
        labels += [int(row[1]) for row in rows[1:]]
        roles += [role] * (len(rows) - 1)
    return official_source(
        "Stanford Online Products",
        files,
        names,
        labels,
        roles,
        split="official zero-shot split of Ebay_train.txt and Ebay_test.txt",
        expected=expected,
        image_size=image_size,
        skip_bad=skip_bad,
    )
