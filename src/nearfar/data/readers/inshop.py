"""In-Shop Clothes Retrieval: 7,982 garments of DeepFashion (Liu et al., 2016), as queries and gallery."""

from __future__ import annotations

from pathlib import Path

from ..dataset import DataError, Source
from .files import Files, lines, locate, open_files
from .official import Counts, Expected, official_source

OFFICIAL = {"train": Counts(25882, 3997), "query": Counts(14218, 3985), "gallery": Counts(12612, 3985)}
PARTITIONS = ("Eval/list_eval_partition.txt", "list_eval_partition.txt")


def read_inshop(
    path: str | Path,
    *,
    image_size: int | None = None,
    skip_bad: bool = False,
    expected: Expected | None = OFFICIAL,
) -> Source:
    """Read the extracted archive in its official protocol: queries search a gallery of other images.

    Parameters
    ----------
    path : str or Path
        The folder with list_eval_partition.txt (or with Eval/ that contains it) and img/, or its parent, or a zip.
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
    top, partition = _partition(files)
    rows = [line.split() for line in lines(files, top + partition)]
    if len(rows) < 3 or rows[1][:3] != ["image_name", "item_id", "evaluation_status"]:
        raise DataError(f"{path}: {partition} is not a count, a header and rows of image_name item_id status")
    rows = rows[2:]
    if any(len(row) != 3 or row[2] not in OFFICIAL for row in rows):
        raise DataError(f"{path}: {partition} has a row that is not image_name item_id and train, query or gallery")
    names, labels, roles = ([row[i] for row in rows] for i in range(3))
    base = _image_base(files, top, names)
    return official_source(
        "In-Shop",
        files,
        [base + name for name in names],
        labels,
        roles,
        split="official split into training garments, queries and gallery",
        expected=expected,
        image_size=image_size,
        skip_bad=skip_bad,
    )


def _partition(files: Files) -> tuple[str, str]:
    try:
        return locate(files, PARTITIONS[0]), PARTITIONS[0]
    except DataError:
        return locate(files, PARTITIONS[1]), PARTITIONS[1]


def _image_base(files: Files, top: str, names: list[str]) -> str:
    """Return the prefix of the names in the list, which begin with img/: in the official archive, it is in Img/."""
    bases = (top, f"{top}Img/", f"{top}img/")
    return next((base for name in names for base in bases if base + name in files), top)
