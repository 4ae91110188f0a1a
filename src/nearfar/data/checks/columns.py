"""Remarks on columns: features that are constant or of very different sizes, and queries with nothing to find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.standard_columns import constant
from ...quoting import count_of, quoted
from ..cells import Cells, have_short_years, numbers_in, readings_of_dates, unread_date
from ..dataset import Dataset, Task, some
from ..written_numbers import notations_in_table, telling, two_ways

UNEVEN_SCALES = 100.0  # ratio of two standard deviations above which the smaller feature has almost no influence
FLAT_SHARE = 1e-12
"""Features whose standard deviation is a smaller share of the largest are rounding errors, as the last of an SVD."""
FEWEST_PER_CLASS = 3  # items per class on the mean, from which one value in each class is no coincidence
REWRITE = ": write them in another way"  # the end of a remark
ROW_NUMBER_NAMES = ("index", "level_0", "unnamed: 0", "row", "rownames")
"""Names of columns of row numbers, as pandas, R and others write them."""


def scale_warning(rows: Dataset) -> str:
    """Return a warning if the units of features differ so much that most methods use only the largest ones."""
    if rows.array is None or rows.kind != "row" or rows.texts is not None or are_embeddings(rows):
        return ""
    spread = rows.array.std(axis=0, dtype=np.float64)
    flat = constant(spread, rows.array.mean(axis=0, dtype=np.float64), rows.array.dtype)
    spread = spread[~flat & (spread > FLAT_SHARE * spread.max(initial=0.0))]
    if not len(spread) or spread.max() <= UNEVEN_SCALES * spread.min():
        return ""
    return (
        f"The sizes of features differ: their standard deviations are {spread.min():.3g} to {spread.max():.3g}. Most "
        "learners and networks need standardized features (`--standardize`)."
    )


def are_embeddings(rows: Dataset) -> bool:
    """Return whether rows are lists of numbers, whose coordinates have one scale, and not measurements of their own.

    Rows without names of columns, as in an .npz, are embeddings if all of them have length 1.
    """
    if rows.columns:
        return all(name.endswith("]") and "[" in name for name in rows.columns)
    assert rows.array is not None
    return bool(np.allclose(np.linalg.norm(rows.array, axis=1), 1.0, atol=1e-3))


def remarks_on_embeddings(rows: Dataset) -> Iterator[str]:
    """Yield remarks on columns of a table of embeddings that are probably not part of an embedding."""
    others = [name for name in rows.columns if not (name.endswith("]") and "[" in name)]
    if 0 < len(others) < len(rows.columns):
        yield (
            f"Every embedding consists of a list of numbers and {some(others)}: remove columns that are not features "
            "from the table, and put the names of rows into a column `name`."
        )
    else:
        yield from remarks_on_row_numbers(rows)


def remarks_on_columns(rows: Dataset) -> Iterator[str]:
    """Yield remarks on the columns of rows."""
    if rows.kind != "row" or rows.texts is not None:
        return
    yield from remarks_on_row_numbers(rows)
    yield from remarks_on_telling_columns(rows)
    if rows.cells is not None and rows.array is None:
        yield _on_cells(rows.cells)
        yield from remarks_on_readings(rows.cells.columns)
    if rows.array is None:
        return
    spread = rows.array.std(axis=0, dtype=np.float64)
    flat = np.flatnonzero(constant(spread, rows.array.mean(axis=0, dtype=np.float64), rows.array.dtype))
    if len(flat):
        called = [rows.columns[column] if rows.columns else str(column) for column in flat]
        verb = "is" if len(flat) == 1 else "are"
        yield f"{count_of(len(flat), 'feature')} {verb} constant in training ({some(called)})."
    if warning := scale_warning(rows):
        yield warning


def _on_cells(cells: Cells) -> str:
    """Return a remark on a table that only a learner with an encoder reads."""
    numbers = {name: numbers_in(column) for name, column in cells.columns.items()}
    others = [name for name, found in numbers.items() if found is None or not np.isfinite(found).all()]
    verb = "is" if len(others) == 1 else "are"
    return (
        f"{some(others, 3)} {verb} not numbers without gaps: `nearfar fit` encodes such columns, and prints what "
        "becomes of each; `nearfar train` refuses them."
    )


def remarks_on_readings(columns: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Yield remarks on columns that seem to be numbers or dates, but cannot be read as such in one way only."""
    notations = notations_in_table(columns)
    for name, column in columns.items():
        cells = telling(column)
        days = [] if name in notations else readings_of_dates(cells)
        if notations.get(name) == "":
            yield f"The column {quoted(name)} is not used, because its commas may be decimal or of thousands{REWRITE}."
        elif len(days) > 1:
            shown = " or ".join(days)
            yield f"The column {quoted(name)} is not used, because its dates may be {shown}{REWRITE}."
        elif not days and name not in notations and have_short_years(cells):
            yield f"The column {quoted(name)} is not used as dates, because its years have two digits{REWRITE}."
        elif not days and name not in notations and (dates := unread_date(cells)):
            unread, shown = map(quoted, dates)
            how = f"is not written like {shown}" if dates[1] else "is no date that can be read"
            yield (
                f"The column {quoted(name)} is not used as dates, because {unread} {how}: write all of its dates like "
                "2024-05-17."
            )
        elif not days and name not in notations and (ways := two_ways(cells)):
            one, other = map(quoted, ways)
            yield (
                f"The numbers of the column {quoted(name)} are not written in one way ({one} and {other}), so that "
                f"they are read as words{REWRITE}."
            )


def remarks_on_row_numbers(rows: Dataset) -> Iterator[str]:
    """Yield remarks on columns of row numbers, which tell the class in a table that is sorted by it."""
    if rows.cells is not None:
        columns = {name: numbers_in(cells) for name, cells in rows.cells.columns.items()}
    elif rows.array is not None and rows.columns:
        columns = dict(zip(rows.columns, rows.array.T, strict=True))
    else:
        return
    for name, values in columns.items():
        if values is not None and name.lower() in ROW_NUMBER_NAMES and (values == np.round(values)).all():
            yield f"The column {name!r} seems to number the rows, but is used as a feature: remove it from the table."


def remarks_on_telling_columns(rows: Dataset) -> Iterator[str]:
    """Yield a remark on columns with one value in each class, which tell the class or what it belongs to."""
    if len(rows) < FEWEST_PER_CLASS * len(rows.classes):
        return
    _, first, number = np.unique(rows.labels, return_index=True, return_inverse=True)  # first: a row of each class
    if len(first) < 2:
        return
    if rows.cells is not None:
        columns = {name: np.array(list(map(str, cells))) for name, cells in rows.cells.columns.items()}
    elif rows.array is not None and rows.columns and not are_embeddings(rows):
        columns = dict(zip(rows.columns, rows.array.T, strict=True))
    else:
        return
    telling_ones = [
        name
        for name, values in columns.items()
        if (values == values[first][number]).all() and (values != values[0]).any()
    ]
    if telling_ones:
        noun = "column" if len(telling_ones) == 1 else "columns"
        verb = "has" if len(telling_ones) == 1 else "have"
        yield (
            f"The {noun} {some(list(map(quoted, telling_ones)), 3)} {verb} one value in each class, and so may tell "
            "the class: remove what is not known of new rows."
        )


def remarks_on_groups(task: Task) -> Iterator[str]:
    """Yield remarks on items without another item of their class in another group, which have nothing to find."""
    parts = {"validation": (task.validation, task.validation), "test": (task.test, task.gallery or task.test)}
    for role, (queries, gallery) in parts.items():
        if queries is None or gallery is None or queries.groups is None or gallery.groups is None:
            continue
        in_class = Counter(gallery.labels.tolist())
        in_class_and_group = Counter(zip(gallery.labels.tolist(), gallery.groups.tolist(), strict=True))
        kinds = zip(queries.labels.tolist(), queries.groups.tolist(), strict=True)
        # a query has nothing to find if all items of its class are in its own group
        lost = sum(0 < in_class[label] == in_class_and_group[label, group] for label, group in kinds)
        if lost:
            yield (
                f"{lost} of the {len(queries)} {role} items have no item of their class in another group (the column "
                "'group'): they have nothing to find, and can only be wrong neighbors of others."
            )


def remarks_on_gallery(task: Task) -> Iterator[str]:
    """Yield a remark on queries whose class is not in the gallery."""
    if task.gallery is None:
        return
    there = {task.gallery.classes[c] for c in task.gallery.labels}
    classes = [task.test.classes[c] for c in task.test.labels]
    lost = [name for name in classes if name not in there]
    if lost:
        yield (
            f"{len(lost):,} of the {len(task.test):,} queries are of classes that are not in the gallery "
            f"({some(list(dict.fromkeys(lost)), 3)}): retrieval leaves them out; `nearfar evaluate --protocol "
            "identification` measures how well they are rejected."
        )
