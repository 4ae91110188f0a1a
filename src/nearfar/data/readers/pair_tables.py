"""Tables whose rows list pairs, triplets, or queries with documents and hard negatives, instead of items with classes.

    text1,text2,similar             pairs of texts, 1 or 0
    anchor,positive,negative        triplets
    query,document,negative1,...    queries with a document that answers them, and hard negatives
    query,document,relevance        queries with documents of some relevance, 0, 1, 2, ...
    any,other                       with any names, as sentence-transformers trains on: the order of the columns counts
    any,other,...,score

The items are the different cells: texts, or images where cells are paths of image files. Items that similar pairs
connect are one class, so that whole classes are held out and no item of the test is seen in training. A column `split`
states which rows are those of the training, the validation and the test instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ...quoting import count_of, quoted
from ..dataset import DataError
from ..image_formats import KNOWN
from ..listed import UNSURE, PairsOfItems

Table = Mapping[str, Sequence[Any]]

ENDS = (
    ("anchor", "positive"),
    ("query", "document"),
    ("query", "positive"),
    ("query", "answer"),
    ("question", "answer"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("path1", "path2"),
    ("item1", "item2"),
    ("left", "right"),
)
"""Columns of the two items of a pair. Of the first five, items that are not listed together are dissimilar."""
ASYMMETRIC = 5
QUERIES = ("query", "question")
"""First columns whose items search those of the second column and the negatives."""
SAME = "same"
"""The column that belongs to `left` and `right`, which may also be features."""
DEGREES = (SAME, "similar", "relevance", "score", "is_duplicate")
LABEL = "label"
"""A column of numbers from 0 to 1 that data sets of pairs have instead; with other cells it is no degree."""
NEGATIVES = ("negative", "negatives")
MINED = ("name", "negative")
"""Columns of the table that `nearfar suspects --negatives` writes."""
DOUBTFUL = "doubtful"
WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


@dataclass(frozen=True)
class PairRows:
    """The rows of a table as names of items.

    Attributes
    ----------
    ends : list of (first, second)
        The pair of each row; the second is None where a row has only a first item and negatives.
    degree : ndarray of float, shape (rows,)
        Degree of each pair.
    negatives : list of list of (name, degree)
        Negatives of the first item of each row.
    by_class : bool
        As in `PairsOfItems`.
    numbers : list of int
        Number of each row in the table, from 1; of the first row with that anchor in a table of mined negatives.
    asked : bool
        Whether the first items are queries, which search the others.
    """

    ends: list[tuple[str, str | None]]
    degree: NDArray[np.float32]
    negatives: list[list[tuple[str, float]]]
    by_class: bool
    numbers: list[int]
    asked: bool = False

    def pair(self, row: int) -> list[str]:
        """Return the items of the pair of a row: one if it has only a first item."""
        return [name for name in self.ends[row] if name is not None]

    def named(self, row: int) -> list[str]:
        """Return all items of a row: its pair, and its negatives."""
        return [*self.pair(row), *(name for name, _ in self.negatives[row])]


def lists_pairs(table: Table) -> bool:
    """Return whether a table lists pairs of texts or of image files, by its columns."""
    ends = _ends(table)
    if ends is None or not len(table[ends[0]]):
        return False
    return isinstance(table[ends[0]][0], str) and not _is_number(table[ends[0]][0])


def are_paths(table: Table) -> bool:
    """Return whether the cells of a table of pairs are paths of image files."""
    ends = _ends(table)
    assert ends is not None
    return str(table[ends[0]][0]).lower().endswith(KNOWN)


def _ends(table: Collection[str]) -> tuple[str, str] | None:
    for ends in ENDS:
        if all(name in table for name in ends):
            return None if ends == ("left", "right") and SAME not in table else ends
    return None


def read_rows(path: Path, table: Table) -> PairRows:
    """Return the rows of a table of pairs.

    Raises
    ------
    DataError
        If a cell is empty, or a degree is no number; the message names the row.
    """
    ends = _ends(table)
    if ends is None and all(name in table for name in MINED):
        return _mined(path, table)
    if ends is None:
        known = "; ".join(",".join(names) for names in (*ENDS, MINED))
        raise DataError(f"{path}: expected the columns of pairs, such as {known}; it has {','.join(table)}")
    first, second = (_cells(path, table[name], name) for name in ends)
    degrees = _column_of_degrees(table)
    if degrees is None:
        degree = np.ones(len(first), dtype=np.float32)
    else:
        degree = _degrees(path, table[degrees], degrees)
    negatives: list[list[tuple[str, float]]] = [[] for _ in first]
    for column in filter(_has_negatives, table):
        for row, cell in enumerate(table[column]):
            negatives[row] += [(name, 0.0) for name in _several(cell)]
    by_class = degrees is None or ENDS.index(ends) < ASYMMETRIC
    pairs: list[tuple[str, str | None]] = list(zip(first, second, strict=True))
    numbers = [*range(1, len(pairs) + 1)]
    return PairRows(pairs, degree, negatives, by_class, numbers, asked=ends[0] in QUERIES)


def columns_of_pairs(names: Collection[str]) -> tuple[str, str, str] | None:
    """Return which columns hold the two items of a pair and whether they are the same; None if there are none.

    >>> columns_of_pairs(["question1", "question2", "is_duplicate", "id"])
    ('question1', 'question2', 'is_duplicate')
    """
    ends = _ends(names)
    degree = next((name for name in (*DEGREES, LABEL) if name in names), None)
    return None if ends is None or degree is None else (*ends, degree)


def columns_used(table: Table) -> list[str]:
    """Return the columns of a table of pairs that are read."""
    degrees = _column_of_degrees(table)
    return [*(_ends(table) or ()), *([] if degrees is None else [degrees]), *filter(_has_negatives, table)]


def _column_of_degrees(table: Table) -> str | None:
    named = next((name for name in DEGREES if name in table), None)
    if named is None and LABEL in table:
        words = [_word(cell) for cell in table[LABEL]]
        if all(word is not None and 0 <= word <= 1 for word in words):
            return LABEL
    return named


def _has_negatives(column: str) -> bool:
    return column in NEGATIVES or column.rstrip("0123456789").rstrip("_") == "negative"


def _word(cell: Any) -> float | None:
    """Return a cell as a degree; None if it is neither a number nor a word such as "yes"."""
    word = WORDS.get(str(cell).lower())
    if word is not None:
        return word
    return float(cell) if _is_number(cell) else None


def _mined(path: Path, table: Table) -> PairRows:
    """Return the hard negatives of each item; a pair that the table calls doubtful is neither."""
    anchors = _cells(path, table["name"], "name")
    others = _cells(path, table["negative"], "negative")
    use = [str(cell) for cell in table.get("use", [""] * len(anchors))]
    of: dict[str, list[tuple[str, float]]] = {}
    first: dict[str, int] = {}
    for number, (anchor, other, word) in enumerate(zip(anchors, others, use, strict=True), start=1):
        of.setdefault(anchor, []).append((other, UNSURE if word == DOUBTFUL else 0.0))
        first.setdefault(anchor, number)
    ones = np.ones(len(of), dtype=np.float32)
    ends: list[tuple[str, str | None]] = [(anchor, None) for anchor in of]
    return PairRows(ends, ones, [*of.values()], by_class=True, numbers=[*first.values()])


def _cells(path: Path, column: Sequence[Any], name: str) -> list[str]:
    cells = ["" if cell is None or cell != cell else str(cell) for cell in column]
    empty = next((row for row, cell in enumerate(cells, start=1) if not cell.strip()), None)
    if empty is not None:
        raise DataError(f"{path}: column {quoted(name)} is empty in row {empty}; expected an item in every row")
    return cells


def _several(cell: Any) -> list[str]:
    """Return the items in a cell: a list in JSON, one, or none."""
    cells = cell if isinstance(cell, list) else [cell]
    return [str(one) for one in cells if one is not None and one == one and str(one).strip()]


def _degrees(path: Path, column: Sequence[Any], name: str) -> NDArray[np.float32]:
    """Return degrees in [0, 1]: the largest becomes 1; -1 beside 1 means dissimilar, as in `DeepMetric`."""
    found = np.empty(len(column))
    for row, cell in enumerate(column):
        degree = _word(cell)
        if degree is None:
            raise DataError(
                f"{path}: column {quoted(name)} has {quoted(cell)} in row {row + 1}; expected 1 or 0, yes or no, true "
                "or false, or a degree from 0 on"
            )
        found[row] = degree
    if set(found.tolist()) <= {-1.0, 1.0}:
        found = np.maximum(found, 0)
    wrong = ~np.isfinite(found) | (found < 0)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{path}: column {quoted(name)} has {quoted(column[row])} in row {row + 1}; expected 0 or more")
    return (found / max(found.max(initial=0), 1.0)).astype(np.float32)


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


PARTS = ("train", "validation", "test")
"""Roles of the rows of a table of pairs; an item belongs to the last part in which a row names it."""


def _last_parts(rows: PairRows, roles: Sequence[str]) -> dict[str, str]:
    """Return the last part in which a row names each item."""
    part: dict[str, str] = {}
    for row, role in enumerate(roles):
        for name in rows.named(row):
            if PARTS.index(role) >= PARTS.index(part.get(name, role)):
                part[name] = role
    return part


def split_by_rows(path: Path, rows: PairRows, roles: Sequence[str]) -> tuple[PairRows, dict[str, str], list[str]]:
    """Return the rows that lie within one part, the part of each item, and notes on what is left out.

    No item is in two parts: of the rows of an earlier part, those that pair an item of a later one are left out, and
    such negatives are.

    Raises
    ------
    DataError
        If a row has another role, or no training row or no test row is left.
    """
    wrong = next((role for role in roles if role not in PARTS), None)
    if wrong is not None:
        raise DataError(f"{path}: a table of pairs has rows of {wrong}; expected a split of {', '.join(PARTS)}")
    part = _last_parts(rows, roles)
    kept = []
    inside = []
    for row, role in enumerate(roles):
        if all(part[name] == role for name in rows.pair(row)):
            kept.append(row)
            inside.append([(name, value) for name, value in rows.negatives[row] if part[name] == role])
    for role in ("train", "test"):
        if not any(roles[row] == role for row in kept):
            raise DataError(
                f"{path}: no {role} row has items of its own; expected rows of train and of test in the column split, "
                "which share no item"
            )
    notes = []
    if len(kept) < len(rows.ends):
        left_out = count_of(len(rows.ends) - len(kept), "row")
        notes.append(f"{left_out} with an item of validation or test left out of the parts before")
    negatives_left_out = sum(len(rows.negatives[row]) for row in kept) - sum(map(len, inside))
    if negatives_left_out:
        notes.append(f"{count_of(negatives_left_out, 'negative')} of validation or test left out of the parts before")
    chosen = replace(
        rows,
        ends=[rows.ends[row] for row in kept],
        degree=rows.degree[kept],
        negatives=inside,
        numbers=[rows.numbers[row] for row in kept],
    )
    return chosen, part, notes


def without_pairs_of_one(path: Path, rows: PairRows, *, skip_bad: bool = False) -> tuple[PairRows, list[str]]:
    """Return the rows without pairs of an item with itself, and notes on these; the items stay.

    Two catalogs call an item by the same text: that they are similar teaches nothing. That they differ cannot be
    learned, and is most often an error in the table.

    Raises
    ------
    DataError
        If a row pairs an item with itself as different, unless `skip_bad`.
    """
    similar = []
    wrong = []
    negatives = []
    for row, (anchor, other) in enumerate(rows.ends):
        others = [(name, value) for name, value in rows.negatives[row] if name != anchor]
        negatives.append(others)
        is_itself = anchor == other
        if is_itself and rows.degree[row] > 0:
            similar.append(row)
        if (is_itself and rows.degree[row] == 0) or len(others) < len(rows.negatives[row]):
            wrong.append(row)
    if wrong and not skip_bad:
        first = wrong[0]
        count = count_of(len(wrong), "such row")
        raise DataError(
            f"{path}: row {rows.numbers[first]} pairs {quoted(rows.ends[first][0])} with itself as different, "
            f"the first of {count}; correct them, or leave them out (--skip-bad, skip_bad=True)"
        )
    notes = []
    if similar:
        notes.append(f"{count_of(len(similar), 'pair')} of an item with itself left out")
    if wrong:
        notes.append(f"{count_of(len(wrong), 'pair')} of an item with itself as different left out")
    return replace(rows, negatives=negatives), notes


def items_of(rows: PairRows) -> list[str]:
    """Return the different items of a table, in the order in which they come."""
    return list(dict.fromkeys(name for row in range(len(rows.ends)) for name in rows.named(row)))


def listed_of(path: Path, rows: PairRows, names: Sequence[str]) -> PairsOfItems:
    """Return the rows of a table as numbers of items, without pairs of an item with itself.

    Raises
    ------
    DataError
        If the table names an item that does not exist, or lists a pair as both.
    """
    place = {name.strip(): at for at, name in enumerate(names)}  # a table is read without spaces at the ends of cells
    place |= {name: at for at, name in enumerate(names)}
    pairs: dict[tuple[int, int], float] = {}
    row_of: dict[tuple[int, int], int] = {}
    tuples: list[list[int]] = []
    for (first, second), degree, negatives, row in zip(
        rows.ends, rows.degree, rows.negatives, rows.numbers, strict=True
    ):
        others = [] if second is None else [(second, float(degree))]
        listed = [first, *(name for name, _ in (*others, *negatives))]
        missing = next((name for name in listed if name not in place), None)
        if missing is not None:
            raise DataError(f"{path}: names {quoted(missing)} in row {row}, but the data have no item of that name")
        a = place[first]
        for name, value in (*others, *negatives):
            b = place[name]
            if a == b:
                continue
            pair = (min(a, b), max(a, b))
            before = pairs.setdefault(pair, value)
            earlier = row_of.setdefault(pair, row)
            if UNSURE in (before, value):  # doubtful from one side is doubtful from both
                pairs[pair] = UNSURE
            elif before != value:
                where = f"in rows {earlier} and {row}" if earlier != row else f"in row {row}"
                both = f"{quoted(first)} and {quoted(name)}"
                raise DataError(f"{path}: lists {both} with two different degrees, {where}; correct one of them")
        sure = [name for name, value in (*others, *negatives) if value != UNSURE and place[name] != a]
        if sure:
            tuples.append([a, *(place[name] for name in dict.fromkeys(sure))])
    width = max(map(len, tuples), default=2)
    filled = np.full((len(tuples), width), -1, dtype=np.int64)
    for at, one in enumerate(tuples):
        filled[at, : len(one)] = one
    ends = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    degrees = np.array(list(pairs.values()), dtype=np.float32)
    found = PairsOfItems(filled, ends[:, 0], ends[:, 1], degrees, rows.by_class)
    return replace(found, asks=queries_among(rows, names)) if rows.asked else found


def queries_among(rows: PairRows, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each item is a query only; what is also a document is searched, and does not search."""
    documents = {second for _, second in rows.ends} | {name for names_of in rows.negatives for name, _ in names_of}
    queries = {first for first, _ in rows.ends} - documents
    return np.array([name in queries for name in names], dtype=bool)


def classes_of(listed: PairsOfItems, names: Sequence[str]) -> list[str]:
    """Return the class of each item: the name of the first of the items that similar pairs connect with it."""
    similar = listed.degree > 0
    n = len(names)
    links = coo_array((np.ones(similar.sum()), (listed.i[similar], listed.j[similar])), shape=(n, n))
    _, group = connected_components(links, directed=False)
    _, first = np.unique(group, return_index=True)
    return [names[first[number]] for number in group]


def listed_in(table: str, names: Sequence[str], *, skip_bad: bool = False) -> tuple[PairsOfItems, str]:
    """Return the pairs that a table lists by the names of items, and a clause on them.

    Raises
    ------
    DataError
        If the table cannot be read, or names an item that does not exist.
    """
    from .manifest import read_columns  # which reads tables of pairs, too

    path = Path(table)
    rows, left_out = without_pairs_of_one(path, read_rows(path, read_columns(path)), skip_bad=skip_bad)
    listed = listed_of(path, rows, names)
    doubtful = int((listed.degree == UNSURE).sum())
    note = f"{count_of(len(listed) - doubtful, 'pair')} listed in {path.name}"
    if doubtful:
        note += f", {doubtful:,} doubtful ones left out"
    return listed, ", ".join([note, *left_out])
