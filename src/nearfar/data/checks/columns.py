"""Sentences on columns: features that say nothing, or have too much or no say, and queries with nothing to find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..dataset import Dataset, Task, some

UNEVEN_SCALES = 100.0  # standard deviations of two features so far apart leave one of them no say
FLAT_SHARE = 1e-12
"""Features that vary by a smaller share of the most varying one hold rounding errors, as the last ones of an SVD."""
ROW_NUMBER_NAMES = ("id", "index", "level_0", "unnamed: 0", "row", "rownames")
"""What row numbers are called, by pandas and R among others, once they were written as a column."""


def scale_warning(rows: Dataset) -> str:
    """Return a warning if the units of features differ so much that most methods use only the largest ones."""
    if rows.array is None or rows.kind != "row" or rows.texts is not None:
        return ""
    spread = rows.array.std(axis=0, dtype=np.float64)
    spread = spread[spread > FLAT_SHARE * spread.max(initial=0.0)]
    if not len(spread) or spread.max() <= UNEVEN_SCALES * spread.min():
        return ""
    return (
        f"Features differ in size: standard deviations from {spread.min():.3g} to {spread.max():.3g}. Most learners "
        "and networks want them standardized (`--standardize`)."
    )


def on_embeddings(rows: Dataset) -> Iterator[str]:
    """Sentences on columns of a table of embeddings that were hardly meant to be a part of them."""
    others = [name for name in rows.columns if not (name.endswith("]") and "[" in name)]
    if 0 < len(others) < len(rows.columns):
        yield (
            f"Beside its list of numbers, every embedding holds {some(others)}: take columns that are no features out "
            "of the table; the names of rows stand in a column `name`."
        )
    else:
        yield from _numbering(rows)


def on_columns(rows: Dataset) -> Iterator[str]:
    """Sentences on the columns of rows."""
    if rows.array is None or rows.kind != "row" or rows.texts is not None:
        return
    yield from _numbering(rows)
    spread = rows.array.std(axis=0, dtype=np.float64)
    flat = np.flatnonzero(spread == 0)
    if len(flat):
        called = [rows.columns[column] if rows.columns else str(column) for column in flat]
        yield f"{len(flat)} feature(s) are constant in training ({some(called)})."
    if said := scale_warning(rows):
        yield said


def _numbering(rows: Dataset) -> Iterator[str]:
    assert rows.array is not None
    for at, name in enumerate(rows.columns):
        if name.lower() in ROW_NUMBER_NAMES and (rows.array[:, at] == np.round(rows.array[:, at])).all():
            yield f"The column {name!r} seems to number the rows, and becomes a feature: take it out of the table."


def on_groups(task: Task) -> Iterator[str]:
    """Sentences on items whose class is in their own group alone, so that there is nothing for them to find."""
    parts = {"validation": (task.validation, task.validation), "test": (task.test, task.gallery or task.test)}
    for role, (asked, searched) in parts.items():
        if asked is None or searched is None or asked.groups is None or searched.groups is None:
            continue
        there = list(zip(searched.labels.tolist(), searched.groups.tolist(), strict=True))
        alike = Counter(there)
        of = Counter(searched.labels.tolist())
        own = zip(asked.labels.tolist(), asked.groups.tolist(), strict=True)
        lost = sum(0 < of[label] == alike[label, group] for label, group in own)
        if lost:
            yield (
                f"{lost} of the {len(asked)} {role} items have no other of their class in another group (the column "
                "'group'): they can only distract."
            )


def on_gallery(task: Task) -> Iterator[str]:
    """A sentence on queries whose class the gallery does not have."""
    if task.gallery is None:
        return
    there = {task.gallery.classes[c] for c in task.gallery.labels}
    lost = [name for name in (task.test.classes[c] for c in task.test.labels) if name not in there]
    if lost:
        yield (
            f"{len(lost):,} of the {len(task.test):,} queries are of classes that the gallery does not have "
            f"({some(list(dict.fromkeys(lost)), 3)}): retrieval leaves them out; `nearfar evaluate --protocol "
            "identification` says how well they are told from the others."
        )
