"""What ``nearfar evaluate --protocol verification`` does: score pairs of a data set by their distance."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..evaluation import verify, verify_pairs
from .embedding import Chosen, distance_of, embedded_with_gallery, is_run

YES, NO = ("1", "+1", "true", "yes", "same"), ("0", "-1", "false", "no", "different")


def score_verification(source: Path, chosen: Chosen, pairs: Path | None, fars: Sequence[float] = ()) -> str:
    """Return the table of all pairs, or of those in a file; a run's test classes also give `verification.json`.

    Parameters
    ----------
    source, chosen
        As for ``nearfar evaluate``.
    pairs : Path, optional
        A .csv with the columns left, right and same.
    fars : sequence of float
        False accept rates; those of `verify` where there are none.
    """
    how: dict[str, Any] = {"fars": fars} if fars else {}
    how["distance"] = distance_of(source)
    embedded = embedded_with_gallery(source, chosen)
    dataset, rows, gallery, gallery_rows = embedded
    about = embedded.about()
    if pairs is None:
        how["gallery_labels"] = embedded.gallery_labels
        found = verify(rows, dataset.labels, gallery=gallery_rows, **how)
    else:
        rows = rows if gallery_rows is None else np.concatenate([rows, gallery_rows])
        found = verify_pairs(rows, *read_pairs(pairs, dataset, gallery), **how)
        about = f"{about.removesuffix('.')}, pairs of {pairs}."
    if is_run(source) and chosen.all_of_run and pairs is None:
        from ..train.run_folder import write_json

        write_json(source / "verification.json", found.to_dict())
    return f"{about}\n\n{found}"


def read_pairs(
    path: Path, dataset: Dataset, gallery: Dataset | None = None
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.intp]], list[bool]]:
    """Row numbers (m, 2) of the pairs in a file, and whether each is of one class.

    The rows of the gallery follow those of the data set; a name that both have is the data set's.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        A file that is no CSV in UTF-8, columns that are missing, a name that the data set does not have, or an answer
        that is neither yes nor no; with the line of the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--pairs: there is no file {path}")
    names = dataset.names if gallery is None else (*dataset.names, *gallery.names)
    place: dict[str, int] = {}
    for at, name in enumerate(names):
        place.setdefault(name, at)
    ij, same = [], []
    for line, row in enumerate(_read(path), start=2):
        for name in (row["left"], row["right"]):
            if name not in place:
                first = dataset.names[0]
                raise ValueError(f"{path}, line {line}: {dataset.name} has no {name!r}; its first item is {first!r}")
        answer = (row["same"] or "").strip().lower()
        if answer not in YES + NO:
            raise ValueError(f"{path}, line {line}: same must be 1 or 0, got {row['same']!r}")
        ij.append((place[row["left"]], place[row["right"]]))
        same.append(answer in YES)
    return np.array(ij, dtype=np.intp).reshape(-1, 2), same


def _read(path: Path) -> list[dict[str, str]]:
    """Read the lines of a table, each by the names of its columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            rows, header = list(table), table.fieldnames or ()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: its text is not UTF-8; save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a readable CSV file ({error})") from error
    if not {"left", "right", "same"} <= set(header):
        raise ValueError(f"{path}: expected the columns left, right and same; it has {', '.join(header) or 'none'}")
    return rows
