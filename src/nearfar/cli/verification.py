"""What ``nearfar evaluate --protocol verification`` does: score pairs of a data set by their distance."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..data import Dataset
from ..evaluation import verify, verify_pairs
from .scoring import distance_of, embedded_on, is_run, searched_on

YES, NO = ("1", "+1", "true", "yes", "same"), ("0", "-1", "false", "no", "different")


def score_verification(source: Path, data: str | None, classes: Sequence[str], pairs: Path | None) -> str:
    """Return the table of all pairs, or of those in a file; a run's test classes also give `verification.json`.

    Parameters
    ----------
    source, data, classes
        As for ``nearfar evaluate``.
    pairs : Path, optional
        A .csv with the columns left, right and same.
    """
    distance = distance_of(source)
    if pairs is None:
        searched = searched_on(source, data, classes)
        dataset, rows, gallery, there = searched
        labels = None if gallery is None else gallery.labels
        found, about = (
            verify(rows, dataset.labels, gallery=there, gallery_labels=labels, distance=distance),
            searched.about(),
        )
    else:
        dataset, rows = embedded_on(source, data, classes)
        found = verify_pairs(rows, *read_pairs(pairs, dataset), distance=distance)
        about = f"{dataset.name}, {len(dataset)} items of {len(dataset.classes)} classes, pairs of {pairs}."
    if is_run(source) and data is None and not classes and pairs is None:
        from ..train.run_folder import write_json

        write_json(source / "verification.json", found.to_dict())
    return f"{about}\n\n{found}"


def read_pairs(path: Path, dataset: Dataset) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.intp]], list[bool]]:
    """Row numbers (m, 2) of the pairs in a file, and whether each is of one class.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        Columns that are missing, a name that the data set does not have, or an answer that is neither yes nor no; with
        the line of the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--pairs: there is no file {path}")
    place = {name: at for at, name in enumerate(dataset.names)}
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file)
        missing = {"left", "right", "same"} - set(table.fieldnames or ())
        if missing:
            raise ValueError(
                f"{path}: expected the columns left, right and same; {', '.join(sorted(missing))} not there"
            )
        ij, same = [], []
        for line, row in enumerate(table, start=2):
            for name in (row["left"], row["right"]):
                if name not in place:
                    first = dataset.names[0]
                    raise ValueError(
                        f"{path}, line {line}: {dataset.name} has no {name!r}; its first item is {first!r}"
                    )
            answer = (row["same"] or "").strip().lower()
            if answer not in YES + NO:
                raise ValueError(f"{path}, line {line}: same must be 1 or 0, got {row['same']!r}")
            ij.append((place[row["left"]], place[row["right"]]))
            same.append(answer in YES)
    return np.array(ij, dtype=np.intp).reshape(-1, 2), same
