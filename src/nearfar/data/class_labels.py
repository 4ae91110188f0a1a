"""Labels of classes: the set of labels that the items of a class have, or the levels of a hierarchy above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..labels import class_name, without_spellings_of_numbers
from ..quoting import quoted

SEPARATOR = ";"


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """The labels that each class has.

    Parameters
    ----------
    of : mapping of str to tuple of str
        Labels of each class. With levels, the class itself and what it belongs to, one for each level.
    levels : tuple of str
        Names of the levels of a hierarchy, the finest first; empty for sets of labels.
    """

    of: Mapping[str, tuple[str, ...]]
    levels: tuple[str, ...] = ()

    def hot(self, classes: Sequence[str]) -> NDArray[np.float32]:
        """Return which labels each class has, (classes, labels), 1 or 0."""
        if self.levels:  # "pica" may be a species and a genus
            keys = [tuple(enumerate(self.of[name])) for name in classes]
        else:
            keys = [tuple((0, label) for label in self.of[name]) for name in classes]
        places = {key: at for at, key in enumerate(dict.fromkeys(key for one in keys for key in one))}
        found = np.zeros((len(classes), len(places)), dtype=np.float32)
        for row, one in enumerate(keys):
            found[row, [places[key] for key in one]] = 1
        return found

    def at_level(self, level: int, classes: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of what each class belongs to at a level."""
        names = [self.of[name][level] for name in classes]
        return np.unique(names, return_inverse=True)[1].astype(np.int64)

    def joined(self, other: ClassLabels | None) -> ClassLabels:
        """Return the labels of the classes of both."""
        return self if other is None else ClassLabels({**self.of, **other.of}, self.levels)

    def marked(self, marks: Sequence[str]) -> ClassLabels:
        """Return the labels of classes that are there once for each mark, which ends the names of all their labels."""
        of = {name + mark: tuple(one + mark for one in labels) for mark in marks for name, labels in self.of.items()}
        return ClassLabels(of, self.levels)


def sets_in(column: Sequence[Any]) -> tuple[list[str], ClassLabels]:
    """Return a class for each row, which is its set of labels, and the labels of these classes.

    >>> sets_in(["b;a", "a", ["a", "b"], ""])[0]
    ['a;b', 'a', 'a;b', '']

    Raises
    ------
    ValueError
        If a name in a set is empty.
    """
    classes = []
    of = {}
    for row, cell in enumerate(column, start=1):
        if cell is None or cell != cell or cell == "" or (isinstance(cell, list) and not cell):
            classes.append("")
            continue
        names = [str(name).strip() for name in (cell if isinstance(cell, list) else str(cell).split(SEPARATOR))]
        if not all(names):
            raise ValueError(
                f"the labels in row {row} have an empty name, got {quoted(cell)}; expected names with {SEPARATOR} "
                "between them"
            )
        labels = tuple(sorted(set(names)))
        classes.append(SEPARATOR.join(labels))
        of[classes[-1]] = labels
    return classes, ClassLabels(of)


def levels_in(path: Path, table: Mapping[str, Sequence[Any]], label: str, levels: Sequence[str]) -> ClassLabels:
    """Return the levels above each class of a table.

    Parameters
    ----------
    path : Path
        The table, for messages.
    table : mapping
        Its columns.
    label : str
        Column of the classes.
    levels : sequence of str
        Columns of the levels above them, the finest first.

    Raises
    ------
    ValueError
        If a column is missing, a cell is empty, or an item of one level belongs to two of the next.
    """
    names = (label, *levels)
    missing = next((name for name in names if name not in table), None)
    if missing is not None:
        raise ValueError(f"{path}: has no column {quoted(missing)}; it has {', '.join(table)}")
    columns = [[*map(class_name, without_spellings_of_numbers(table[name]))] for name in names]
    for name, column in zip(names, columns, strict=True):
        empty = next((row for row, cell in enumerate(column, start=1) if cell in ("", "None", "nan")), None)
        if empty is not None:
            raise ValueError(f"{path}: column {quoted(name)} is empty in row {empty}; expected a name in every row")
    for (fine, of_fine), (coarse, of_coarse) in zip(
        zip(names, columns, strict=True), zip(names[1:], columns[1:], strict=True), strict=False
    ):
        parents: dict[str, str] = {}
        for row, (child, parent) in enumerate(zip(of_fine, of_coarse, strict=True), start=1):
            if parents.setdefault(child, parent) != parent:
                raise ValueError(
                    f"{path}: {fine} {quoted(child)} is in {coarse} {quoted(parents[child])} and, in row {row}, in "
                    f"{quoted(parent)}; expected one {coarse} for each {fine}"
                )
    return ClassLabels({row[0]: row for row in zip(*columns, strict=True)}, names)
