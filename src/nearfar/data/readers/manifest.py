"""A table of images and their labels, or of rows of numbers and their labels."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from ...io.formats import PLAIN_TABLES, is_table
from ...labels import class_name, narrow_texts, text_array, without_spellings_of_numbers
from ...quoting import count_of, quoted, shorten
from ..cells import MISSING, Cells, as_cells, numbers_in
from ..class_labels import ClassLabels, sets_in
from ..dataset import (
    NEED_NONE,
    DataError,
    DataNotFoundError,
    Dataset,
    NoClassesError,
    NoNumbers,
    Source,
    number_labels,
    some,
)
from ..decode import Box
from ..listed import PairsOfItems
from ..written_numbers import readings_of, telling
from .arrays import TOO_LARGE, as_singles
from .crop_boxes import boxes_in
from .files import Files, FolderFiles
from .ids import ids_of, is_id, not_ids
from .media import ENDINGS, FileKind, files_of_a_kind, source_of_files
from .pair_tables import (
    are_paths,
    classes_of,
    columns_used,
    items_of,
    listed_of,
    lists_pairs,
    read_rows,
    split_by_rows,
    without_pairs_of_one,
)
from .parquet import read_parquet
from .saved_datasets import read_feather, read_saved
from .shown_tables import few, rows_from, shown
from .table_roles import roles_in, split_by_columns, split_of
from .text_tables import read_text_table, unpacked_name
from .texts import first_words, text_items

SYNONYMS = {"is_query": "query", "is_gallery": "gallery", "x_1": "x1", "y_1": "y1", "x_2": "x2", "y_2": "y2"}
SYNONYMS |= {"file_name": "path"}  # the name in metadata files of Hugging Face
ANY_CASE = ("path", "label", "class", "target", "split", "query", "gallery", "group", "name", "text")
"""Columns that are also recognized as `Class` or `LABEL`, unless two columns differ by case only."""
LABELS = ("label", "class", "target", "y")
"""Columns that may hold the labels of rows of numbers; the first one that exists is used."""
SETS = "labels"
"""Column of sets of labels, "a;b", or lists of names; used without a column `label` or `class`."""
NAME_IT = "give the column of the classes with label=NAME"
ABOUT = ("split", "query", "gallery", "group", "name")
PART = re.compile(r"(.+)\[\d+\]")
"""Names of the columns that a column of lists becomes."""
EMBEDDINGS = ("embedding", "embeddings")
NO_FEATURES = (*ABOUT, "category", "", "__index_level_0__")
"""The last two are the index of pandas."""
OTHERS_LEFT_OUT = " (skip_bad=True leaves out the others)"
MAX_SEARCHED_COLUMNS = 1000  # maximum number of columns among which a misspelled one is searched
SMALLEST_SPREAD = 2.0**-17  # smallest range of a column, as a share of its numbers, of which float32 keeps 128 steps
SMALLEST_SIZE = 1e-37  # size of numbers below which float32 has fewer digits
LONGEST_NAME = 1000  # characters of a text that is the name of a row

Table = Mapping[str, Sequence[Any]]


class Reading(NamedTuple):
    """How a table is read: the arguments of `read_manifest`."""

    label: str | None
    name: str | None
    group: str | None
    image_size: int | None
    skip_bad: bool
    unlabeled: str | None
    pairs: bool


class NotNumbersError(DataError):
    """A column is not one of numbers."""


def read_manifest(
    path: str | Path,
    *,
    label: str | None = None,
    name: str | None = None,
    group: str | None = None,
    image_size: int | None = None,
    skip_bad: bool = False,
    unlabeled: str | None = None,
    pairs: bool = False,
) -> Source:
    """Read the images that a table lists, or the rows that it holds.

    Parameters
    ----------
    path : str or Path
        A .csv or .tsv (header line, UTF-8), a .jsonl (one object per line), one of these compressed as .gz, a .parquet
        file, or a folder that `save_to_disk` of Hugging Face's datasets wrote. The columns are described in the notes.
    label : str, optional
        Name of the column of the labels in the file. The column then has no other meaning, and a column `label` is read
        like any other.
    name : str, optional
        Name of the column of the names of rows or texts, whose cells are different. By default, `name`, or a column
        such as `id`, `sku`, `item_id` or `uid` whose cells are different.
    group : str, optional
        Name of the column of the groups. By default, `group`.
    image_size : int, optional
        Side in pixels to which every image is made square: the shorter side is resized, and the center is cropped. By
        default, images are kept as they are.
    skip_bad : bool
        Leave out images that cannot be decoded, instead of raising an error.
    unlabeled : str, optional
        Class of items without a label. By default, they are an error.
    pairs : bool
        Read every image with the text of its row, in the column `text` or `caption`. If the table has no labels, every
        image forms its own class, to which all its texts belong.

    Returns
    -------
    Source
        The items, with the role of each if there is a split.

    Raises
    ------
    DataError
        If a column is missing (the error shows the first rows), a value is not valid, or an image file does not exist.

    Notes
    -----
    Columns are `path` (relative to the folder of the table, below which the images must be) and `label`; optional ones
    are `split` (train, validation, test, query, gallery), `query` and `gallery` (true or false, for the test rows),
    `group` (camera, video: as in `Dataset`), and `x1, y1, x2, y2` (crop box in pixels: left, top, right, bottom; empty
    for the whole image). Other columns are not read. The names file_name, is_query, is_gallery, x_1, y_1, x_2, y_2
    are accepted as well, and Path, Label, Class, and so on.

    Without a column `label` or `class`, the column `labels` holds a set of labels for each row, such as "a;b".

    Without `path`, a row consists of the numbers (or true and false) in all other columns. `name` is its name, or
    else a column such as `id` whose cells are different, or else `text`, if it contains texts. The label may also be in
    `class`, `target` or `y`. If there are texts in `text`, and the other columns are not all numbers, the texts are the
    items, and the other columns are not used.

    A column may contain lists of numbers of the same length in every row. If it is the only such column, or called
    `embedding`, a row consists of these numbers only. In a .parquet, a column may also contain the images themselves,
    as bytes or as pairs of bytes and path, which replace `path`.

    A table with the columns of pairs, such as `anchor`, `positive` and `negative`, is described in `pair_tables`.

    If there are only train and validation rows, a task is tested on the validation rows.
    """
    path = Path(path)
    whole, stored = _columns(path, label)
    if label is None and not pairs and lists_pairs(whole):
        return _listed_source(path, whole, image_size=image_size, skip_bad=skip_bad)
    sets = None
    if label is None and SETS in whole and not any(column in whole for column in LABELS[:2]):
        whole, sets = _with_sets(path, whole)
    reading = Reading(label, name, group, image_size, skip_bad, unlabeled, pairs)
    source = _source(path, whole, stored, reading)
    return source if sets is None else replace(source, items=replace(source.items, class_labels=sets))


def _with_sets(path: Path, table: Table) -> tuple[Table, ClassLabels]:
    """Return a table whose sets of labels are classes, in the column `label`, and the labels of each."""
    try:
        classes, sets = sets_in(table[SETS])
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    return {**_without(table, SETS), LABELS[0]: classes}, sets


def _source(path: Path, whole: Table, stored: Files | None, reading: Reading) -> Source:
    """Make a source from the columns of a table."""
    if reading.pairs:
        whole = {**whole, "text": _texts_of_pairs(path, whole)}
        if reading.label is None and "label" not in whole:  # every image forms its own class
            whole = {**whole, "label": [str(image) for image in whole["path"]]}
    place = _place(path, whole, reading.label, reading.unlabeled)
    notes: list[str] = []
    if reading.skip_bad and reading.unlabeled is None:
        whole, notes = _labeled(whole, place)
    if reading.pairs and reading.label is None:
        notes += _shared_texts(whole["text"], whole["label"])
    column = [""] * _length(whole) if place is None else whole[place]
    table: Table = whole if place is None else _without(whole, place)
    if reading.group is not None:
        table = _grouped(path, whole, table, reading.group)
    unnamed = table
    table = _named(path, table, reading.name, whole, stored)
    if "name" in table:
        _check_names(path, table["name"])
    if "path" in table:
        boxes = boxes_in(path, whole)
        labels = _labels(path, column, reading.unlabeled)
        texts = as_cells(whole["text"]) if reading.pairs else None
        how: dict[str, Any] = {"image_size": reading.image_size, "skip_bad": reading.skip_bad}
        return _noted(_images_source(path, table, labels, stored, boxes, texts, **how), notes)
    if reading.name is None:
        notes += [f"named by the column {quoted(name)}" for name in unnamed.keys() - table.keys() - {"name"}]
        notes += _repeated_ids(table, unnamed)
    if _are_texts(table):
        notes += _not_used(table, ["text"])
        labels = _labels(path, column, reading.unlabeled)
        return _noted(_texts_source(path, table, labels, reading.skip_bad), notes)
    return _noted(_table_source(path, table, whole, column, reading), notes)


def _without(table: Table, *names: str) -> dict[str, Sequence[Any]]:
    """Return a table without some columns, if it has them."""
    return {name: cells for name, cells in table.items() if name not in names}


def _length(table: Table) -> int:
    """Return the number of rows of a table."""
    return len(next(iter(table.values()), ()))


def _table_source(path: Path, table: Table, whole: Table, column: Sequence[Any], reading: Reading) -> Source:
    """Make a source of rows of numbers, or of rows of cells if they are not all numbers."""
    notes: list[str] = []
    embedding = _embedding_in(table)
    if embedding:
        if others := _not_used(table, embedding):
            listed = PART.fullmatch(embedding[0])
            assert listed is not None
            notes += [f"a row is its list {quoted(listed[1])}", *others]
        table = {name: cells for name, cells in table.items() if name in (*ABOUT, "text", *embedding)}
    elif "text" in table and numbers_in(table["text"]) is None:
        if "name" in table:
            notes.append("columns not used: text")
        elif _recur(table["text"]):
            notes.append(not_ids("column 'text'", table["text"]))
    read = _without_levels(_named_by_text(table), column)
    notes += _not_used(table, [*read])
    labels = _labels(path, column, reading.unlabeled)
    try:
        source = _rows_source(path, read, _features(path, read, whole), labels, reading.skip_bad)
    except NotNumbersError as error:
        source = _cells_source(path, read, labels, str(error))
    return _noted(source, notes)


def _listed_source(path: Path, table: Table, *, image_size: int | None, skip_bad: bool) -> Source:
    """Make a source from a table of pairs, whose items are texts or images."""
    rows, notes = without_pairs_of_one(path, read_rows(path, table), skip_bad=skip_bad)
    unused = [name for name in table if name not in (*columns_used(table), "split")]
    if unused:
        notes.append(f"columns not used: {some(unused, 3)}")
    split = {"split": table["split"]} if "split" in table else {}
    roles_of_rows = roles_in(path, split)
    if roles_of_rows is None:
        names = items_of(rows)
    else:
        rows, part, left_out = split_by_rows(path, rows, roles_of_rows)
        names = items_of(rows)
        split |= {"split": [part[name] for name in names]}
        notes += left_out
    listed = listed_of(path, rows, names)
    classes = classes_of(listed, names)
    if are_paths(table):
        reading: dict[str, Any] = {"image_size": image_size, "skip_bad": skip_bad}
        source = _images_source(path, {"path": names, **split}, classes, None, None, None, **reading)
    else:
        source = split_by_columns(path, split, text_items(name_of(path), names, classes))
    items = source.items
    notes.append(f"{count_of(len(listed), 'pair')} listed; a class is what similar pairs connect")
    there: PairsOfItems | None = listed
    if len(items) < len(names):  # some images could not be decoded
        there = listed.subset(np.flatnonzero(np.isin(names, items.names)), len(names))
    return replace(source, items=replace(items, listed=there, notes=(*items.notes, *notes)))


def _noted(source: Source, notes: Sequence[str]) -> Source:
    """Return a source with notes before those of its items."""
    return replace(source, items=replace(source.items, notes=(*notes, *source.items.notes)))


def _kept(source: Source, kept: Any, note: str) -> Source:
    """Return some of the items of a source, with a note on the others."""
    items = source.items.subset(kept)
    items = replace(items, notes=(*items.notes, note))
    return replace(source, items=items, roles=None if source.roles is None else source.roles[kept])


def _labeled(table: Table, place: str | None) -> tuple[Table, list[str]]:
    """Return the rows of a table that have a label, and a note on the others."""
    if place is None:
        return table, []
    kept = [i for i, value in enumerate(table[place]) if not _is_missing(value)]
    count = len(table[place]) - len(kept)
    if count == 0 or not kept:
        return table, []
    columns = {
        name: cells[kept] if isinstance(cells, np.ndarray) else [cells[i] for i in kept]
        for name, cells in table.items()
    }
    return columns, [f"{count_of(count, 'row')} without a label left out (of {len(table[place]):,})"]


def _is_missing(value: Any) -> bool:
    """Return whether a label is missing."""
    return value in (None, "") or (isinstance(value, float) and isnan(value))


def _images_source(
    path: Path,
    table: Table,
    labels: list[Any],
    stored: Files | None,
    boxes: list[Box | None] | None,
    texts: NDArray[np.object_] | None,
    *,
    image_size: int | None,
    skip_bad: bool,
) -> Source:
    """Make a source from a table of paths of images or sounds, or from the images that are `stored` in it."""
    if len(table["path"]) == 0:
        raise DataError(f"{path}: has no rows")
    roles = roles_in(path, table)
    if stored is None:
        folder = FolderFiles(str(path.parent))
        paths = _paths_in(path, folder, table["path"], skip_bad=skip_bad)
        files: Files = folder
        kind: FileKind = files_of_a_kind(paths)[0]
    else:
        paths = [str(value) for value in table["path"]]
        files = stored
        kind = getattr(stored, "kind", "image")
    if kind == "sound" and not (boxes is None and texts is None):
        needless = "crop boxes" if texts is None else "texts beside them"
        raise DataError(f"{path}: its column path has sounds, which have no {needless}")
    names = ids_of(table["name"]) if stored is not None and "name" in table else None
    return source_of_files(
        kind,
        name_of(path),
        files,
        paths,
        labels,
        image_size=image_size,
        boxes=boxes,
        texts=texts,
        names=names,
        unnamed=names is None and _are_numbered(stored),
        roles=roles,
        split=split_of(path, table),
        groups=_groups(path, table),
        skip_bad=skip_bad,
    )


def _paths_in(path: Path, folder: FolderFiles, column: Sequence[Any], *, skip_bad: bool) -> list[str]:
    """Return the paths in a column as their files are called; unless `skip_bad`, all must be there."""
    paths = [str(value) for value in column]
    _check_inside(folder, paths)
    found = _as_on_disk(folder, paths)
    if not skip_bad:
        empty = [row for row, value in enumerate(column) if _is_missing(value)]
        _check_filled(path, "path", empty, OTHERS_LEFT_OUT)
        _check_files(path, folder, found)
    return found


def read_columns(path: str | Path, label: str | None = None) -> Table:
    """Return the columns of a table under the names that `read_manifest` uses, without images.

    A column `label` keeps the name that it has in the file.

    Raises
    ------
    DataError
        If the table cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise DataNotFoundError(f"{path}: no such table")
    if not is_table(path):
        raise DataError(f"{path}: expected a table, {', '.join(PLAIN_TABLES)}")
    return _columns(path, label)[0]


def name_of(path: Path) -> str:
    """Return the name of a table without its endings."""
    return Path(unpacked_name(path.name)).stem


def _place(path: Path, table: Table, label: str | None, unlabeled: str | None) -> str | None:
    """Return the name of the column of labels; None if there is none, and items without a label are accepted."""
    if label is not None:
        if label in table:
            return label
        near = get_close_matches(shorten(label), [shorten(name) for name in [*table][:MAX_SEARCHED_COLUMNS]], n=1)
        hint = f"; did you mean {quoted(near[0])}?" if near else ""
        raise DataError(f"{path}: has no column {quoted(label)}{hint}; it has {few(list(table))}")
    images = "path" in table
    candidates = LABELS[:1] if images else LABELS  # in tables of images, only `label`
    found = next((name for name in candidates if name in table), None)
    if found is not None or (unlabeled is not None and not any(name in table for name in LABELS)):
        return found
    if not any(map(len, table.values())):
        raise DataError(f"{path}: has no rows")
    expected = "'label'" if images else f"of classes ({', '.join(LABELS)})"
    advice = f"{NAME_IT} ({NEED_NONE})"
    if not images and sum(numbers_in(cells) is None for cells in table.values()) > 1:  # texts, which may be pairs
        advice += ", or call the columns of pairs anchor, positive and negative, or text1, text2 and score"
    raise NoClassesError(f"{path}: has no column {expected}; {advice}; {shown(table)}")


def _named(path: Path, table: Table, name: str | None, whole: Table, stored: Files | None) -> Table:
    """Return the table with the names of its rows in a column `name`, which may be in a column such as `id`."""
    if name is not None:
        if "path" in table and stored is None:
            raise DataError(f"{path}: name: got {quoted(name)}, but a table of images names its items by their paths")
        if name not in whole:
            raise DataError(f"{path}: has no column {quoted(name)}; it has {few(list(whole))}")
        names = ids_of(whole[name])
        if names is None:
            raise DataError(f"{path}: {not_ids(f'column {quoted(name)}', whole[name])}")
        chosen = name
    elif ("name" in table and not _recur(table["name"])) or ("path" in table and not _are_numbered(stored)):
        return table
    else:
        found = ((column, ids_of(cells)) for column, cells in table.items() if is_id(column))
        chosen, names = next((one for one in found if one[1] is not None), ("", None))
        if names is None:
            return _without(table, "name")
    return _without(table, "name", chosen) | {"name": names}


def _names(table: Table) -> list[str] | None:
    """Return the name of every row; None if the table has no column of names."""
    return [str(name) for name in table["name"]] if "name" in table else None


def _check_names(path: Path, names: Sequence[Any]) -> None:
    """Raise a DataError if names of rows are long texts."""
    try:
        narrow_texts(names, f"{path}: names of items")
    except ValueError as error:
        raise DataError(f"{error}; give the column of the names with name=NAME") from error


def _are_numbered(stored: Files | None) -> bool:
    """Return whether a table contains images whose names were made of their rows, because they have no paths."""
    return stored is not None and stored.names()[:1] == [f"{Path(stored.root).stem}[0]"]


def _grouped(path: Path, whole: Table, table: Table, group: str) -> Table:
    """Return the table with a column `group`, a copy of one of its columns, which may be that of the classes."""
    if group not in whole:
        raise DataError(f"{path}: has no column {quoted(group)}; it has {few(list(whole))}")
    return _without(table, group) | {"group": whole[group]}


def _recur(cells: Sequence[Any]) -> bool:
    """Return whether two cells of a column are equal, as the names of people may be."""
    return len(set(map(str, cells))) < len(cells)


def _repeated_ids(table: Table, unnamed: Table) -> list[str]:
    """Return a note if a column such as `id` does not name the rows because its cells are not different."""
    if "name" in table or "path" in table:
        return []
    column = next((column for column in unnamed if column == "name" or is_id(column)), None)
    if column is None:
        return []
    return [not_ids(f"column {quoted(column)}", unnamed[column])]


def _embedding_in(table: Table) -> list[str]:
    """Return the columns of the embedding: the only column of lists of numbers, or the one that is called so."""
    parts: dict[str, list[str]] = {}
    for column in table:
        if found := PART.fullmatch(column):
            parts.setdefault(found[1], []).append(column)
    if len(parts) == 1:
        return next(iter(parts.values()))
    return next((columns for name, columns in parts.items() if name.lower() in EMBEDDINGS), [])


def _not_used(table: Table, used: Sequence[str]) -> list[str]:
    """Return a note on the columns that are no features beside those that are."""
    others = [name for name in table if name not in (*NO_FEATURES, "text", *used)]
    return [f"columns not used: {some(others, 3)}"] if others else []


def _named_by_text(table: Table) -> Table:
    """Return the table with its column `text` as `name` if the texts are not numbers; other names take precedence."""
    if "text" not in table or numbers_in(table["text"]) is not None:
        return table
    others = _without(table, "text")
    if "name" in table or _recur(table["text"]):
        return others
    return others | {"name": _short(table["text"])}


def _short(texts: Sequence[Any]) -> Sequence[Any]:
    """Return texts as names: where some are long, the first words of each."""
    if any(isinstance(text, str) and len(text) > LONGEST_NAME for text in texts):
        return first_words(_as_texts(texts))
    return texts


def _without_levels(table: Table, labels: Sequence[Any]) -> Table:
    """Return the table without columns of texts that only say what a class belongs to, such as the genus of a species.

    Such a column has one text for each class, and one text for several classes.
    """
    classes = list(map(str, labels))
    count = len(set(classes))
    levels = []
    for name, cells in table.items():
        if name in NO_FEATURES or isinstance(cells, np.ndarray) or not all(isinstance(cell, str) for cell in cells):
            continue
        if any(len(set(part)) >= count for part in (cells[: 2 * count], cells)):  # columns of numbers, by a few rows
            continue
        above = set(zip(classes, cells, strict=True))
        if len(above) == count and not readings_of(telling(as_cells(cells))):
            levels.append(name)
    return _without(table, *levels)


def _are_texts(table: Table) -> bool:
    """Return whether the items of a table are texts: it has a column of texts, and no rows of numbers beside it."""
    if "text" not in table or numbers_in(table["text"]) is not None or _embedding_in(table):
        return False
    others = [cells for name, cells in table.items() if name not in (*NO_FEATURES, "text")]
    if any(_list_length(cell) is not None for cells in others for cell in cells[:1]):  # of different lengths
        return False
    return not others or any(numbers_in(cells) is None for cells in others)


def _texts_of_pairs(path: Path, table: Table) -> list[str]:
    """Return the text of every image of a table."""
    column = next((name for name in ("text", "caption") if name in table), None)
    if "path" not in table or column is None:
        missing = "text" if "path" in table else "path"
        raise DataError(f"{path}: has no column '{missing}', which pairs of images and texts need; {shown(table)}")
    return _texts(path, table[column])


def _shared_texts(texts: Sequence[str], classes: Sequence[Any]) -> list[str]:
    """Return a note on texts that belong to images of several classes, each of which is a miss for the others."""
    of: dict[str, set[str]] = {}
    for text, name in zip(texts, classes, strict=True):
        of.setdefault(text, set()).add(str(name))
    shared = [text for text, names in of.items() if len(names) > 1]
    if not shared:
        return []
    which = f"{count_of(len(shared), 'text')} of several classes ({some(shared, 2)})"
    return [f"{which}, which count as misses for each other; a column label may join them"]


def _texts(path: Path, column: Sequence[Any], advice: str = "") -> list[str]:
    """Return the text of every row."""
    texts = _as_texts(column)
    _check_filled(path, "text", [row for row, text in enumerate(texts) if not text], advice)
    return texts


def _check_filled(path: Path, what: str, empty: Sequence[int], advice: str = "") -> None:
    """Raise a DataError if there are rows without a text, a label or the like."""
    if empty:
        rows = rows_from(len(empty), empty[0])
        raise DataError(f"{path}: the {what} is empty in {rows}; expected a {what} in every row{advice}")


def _as_texts(column: Sequence[Any]) -> list[str]:
    """Return cells as texts; those that are missing or blank are empty."""
    texts = ["" if text is None or text != text else str(text) for text in column]
    return [text if text.strip() else "" for text in texts]


def _texts_source(path: Path, table: Table, labels: list[Any], skip_bad: bool) -> Source:
    texts = _as_texts(table["text"])
    filled = np.array([text != "" for text in texts], dtype=bool)
    if not skip_bad or not filled.any():
        _texts(path, table["text"], OTHERS_LEFT_OUT)
    items = text_items(name_of(path), texts, labels, names=_names(table), groups=_groups(path, table))
    items = replace(items, cells=_cells_of(table, f"{path}: holds texts, but a learner takes numbers"))
    source = split_by_columns(path, table, items)
    if filled.all():
        return source
    note = f"{count_of(int((~filled).sum()), 'row')} without a text left out (of {len(texts):,})"
    return _kept(source, filled, note)


def _features(path: Path, table: Table, whole: Table) -> NDArray[np.float32]:
    """Return the columns of numbers as an array (n, d); errors show the whole table, with its labels."""
    if not any(map(len, whole.values())):
        raise DataError(f"{path}: has no rows")
    columns = _without(table, *NO_FEATURES)
    if not columns:
        raise DataError(f"{path}: has no column of numbers, nor a column 'path' of images; {shown(whole)}")
    numbers = [numbers_in(column) for column in columns.values()]
    wrong = [name for name, found in zip(columns, numbers, strict=True) if found is None]
    if wrong:
        raise _why_not_numbers(path, columns, wrong, f"The table has {few(list(whole))}")
    given = np.array(numbers).T
    rows = as_singles(given)
    large = np.argwhere(np.isinf(rows) & np.isfinite(given))
    if len(large):
        row, column = large[0]
        where = f"first in row {row + 1} after the header, in {quoted([*columns][column])}"
        raise DataError(f"{path}: holds {TOO_LARGE}, {where}")
    blurred = [name for name, found in zip(columns, numbers, strict=True) if found is not None and _loses_digits(found)]
    if blurred:
        are = "loses its" if len(blurred) == 1 else "lose their"
        advice = "subtract the smallest value of the column, or scale it"
        what = f"{some(list(map(quoted, blurred)), 3)} {are} differences in float32, in which rows are kept"
        warnings.warn(f"{path}: {what}; {advice}", stacklevel=2)
    return rows


def _loses_digits(numbers: NDArray[Any]) -> bool:
    """Return whether the numbers (n,) of a column differ, but hardly in float32, as those near 1e9 or below 1e-37 do.

    >>> [_loses_digits(np.array(column)) for column in ([1e9, 1e9 + 7], [1e-40, 2e-40], [1, 9], [5, 5])]
    [True, True, False, False]
    """
    low, high = float(np.fmin.reduce(numbers)), float(np.fmax.reduce(numbers))
    size = max(abs(low), abs(high))
    return 0 < high - low < size * SMALLEST_SPREAD or (low != high and size < SMALLEST_SIZE)


def _why_not_numbers(path: Path, columns: Table, wrong: Sequence[str], it_has: str) -> DataError:
    """Return the error for columns of which some are not numbers; it ends with what the table has."""
    for name, column in columns.items():
        if found := _uneven_lists(column):
            return DataError(f"{path}: column {quoted(name)} {found}; expected lists of one length in all rows")
    for name, column in columns.items():
        if _has_image_files(path, column):
            return DataError(
                f"{path}: column {quoted(name)} holds paths of image files; rename it to path, and the column of the "
                f"classes to label (or give it with label=NAME). {it_has}"
            )
    first, *others = wrong
    row, value = next((row, value) for row, value in enumerate(columns[first], start=1) if not _is_number(value))
    also = f" (nor {'is' if len(others) == 1 else 'are'} {some(others, 3)})" if others else ""
    return NotNumbersError(
        f"{path}: column {quoted(first)} has {quoted(value)} in row {row}, but features must be numbers{also}; encode "
        "it (`nearfar fit` does, if there are classes) or remove it. Give the column of the classes with label=, and "
        f"that of names with name=; put texts into a column `text`, and paths of images into `path`. {it_has}"
    )


def _has_image_files(path: Path, column: Sequence[Any]) -> bool:
    """Return whether the first cell of a column is the path of an image file, as in the column `path`."""
    first = column[0]
    if not isinstance(first, str) or not first.lower().endswith(ENDINGS):
        return False
    try:
        return (path.parent / first).is_file()
    except (OSError, ValueError):  # longer than a path may be, or with a NUL
        return False


def _uneven_lists(column: Sequence[Any]) -> str:
    """Return which two rows of a column of lists differ in length; "" if none do, or if it has other cells."""
    lengths = [_list_length(value) for value in column]
    if None in lengths or len(set(lengths)) < 2:
        return ""
    row = next(row for row, length in enumerate(lengths) if length != lengths[0])
    return f"has a list of {lengths[0]} numbers in row 1, and of {lengths[row]} in row {row + 1}"


def _list_length(value: Any) -> int | None:
    """Return the length of a list, also of one in text, "[0.1, 0.2]" or "[0.1 0.2]"; None for anything else."""
    if isinstance(value, list):
        return len(value)
    if isinstance(value, str) and value[:1] == "[" and value[-1:] == "]":
        return len(value[1:-1].replace(",", " ").split())
    return None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    except (TypeError, ValueError):
        return value in MISSING
    return True


def _rows_source(path: Path, table: Table, rows: NDArray[np.float32], labels: list[Any], skip_bad: bool) -> Source:
    columns = [*_without(table, *NO_FEATURES)]
    items = Dataset.from_array(name_of(path), rows, labels, names=_names(table), columns=columns)
    items = replace(items, groups=_groups(path, table))
    source = split_by_columns(path, table, items)
    bad = ~np.isfinite(rows).all(axis=1)
    if not bad.any():
        return source
    first = int(bad.argmax())
    count = f"{count_of(int(bad.sum()), 'row')} with an empty, NaN or infinite cell"
    if not skip_bad or bad.all():
        where = f"first row {first + 1} after the header, in {quoted(columns[int(np.isfinite(rows[first]).argmin())])}"
        raise NotNumbersError(f"{path}: {count}, {where}; fill such cells, or leave out the rows (skip_bad=True does)")
    note = f"{count} left out ({some([items.names[i] for i in np.flatnonzero(bad)], 3)})"
    return _kept(source, ~bad, note)


def _cells_source(path: Path, table: Table, labels: list[Any], why: str) -> Source:
    """Make a source of rows that are not all numbers, which only a learner that encodes them can use."""
    cells = _cells_of(table, why)
    classes, numbers = number_labels(labels)
    names = _names(table)
    unnamed = names is None
    if names is None:
        names = [f"{name_of(path)}[{i}]" for i in range(len(labels))]
    items = Dataset(
        name=name_of(path),
        labels=numbers,
        classes=classes,
        kind="row",
        read=NoNumbers(why),
        names=tuple(names),
        groups=_groups(path, table),
        unnamed=unnamed,
        cells=cells,
    )
    return split_by_columns(path, table, items)


def _cells_of(table: Table, why: str) -> Cells:
    """Return the cells of the columns that are features."""
    return Cells({name: as_cells(column) for name, column in _without(table, *NO_FEATURES).items()}, why)


def _columns(path: Path, label: str | None) -> tuple[Table, Files | None]:
    """Return the columns under the names of this module, and the images if the table contains them."""
    labels = _labels_of(label)
    stored: Files | None
    if path.is_dir():
        table, stored = read_saved(path, labels)
    elif path.suffix.lower() == ".parquet":
        table, stored = read_parquet(path, labels)
    elif path.suffix.lower() == ".feather":
        table, stored = read_feather(path, labels)
    else:
        table, stored = (read_text_table(path), None)
    return _renamed(table, label), stored


def _labels_of(label: str | None) -> Sequence[str]:
    """Return the names of columns that may hold labels, in lower case."""
    if label is None:
        return LABELS
    return (label.lower(),)


def _renamed(table: Table, label: str | None) -> Table:
    """Return the columns under the names of this module."""
    small = [name.lower() for name in table]
    any_case = set(ANY_CASE)
    if label is not None:  # the usual names of labels then have no meaning
        any_case -= set(LABELS)
    known = {name: name.lower() for name in table if name.lower() in any_case and small.count(name.lower()) == 1}
    known |= {name: plain for name, plain in SYNONYMS.items() if plain not in small}
    known.pop(label or "", None)
    return {known.get(name, name): column for name, column in table.items()}


def _labels(path: Path, column: Sequence[Any], unlabeled: str | None) -> list[Any]:
    """Return the label of every row, or the class `unlabeled` where there is none."""
    empty = [row for row, value in enumerate(column) if _is_missing(value)]
    if unlabeled is None:
        _check_filled(path, "label", empty, OTHERS_LEFT_OUT)
    several = next((row for row, value in enumerate(column) if isinstance(value, list | dict)), None)
    if several is not None:
        what = f"row {several + 1} has the label {quoted(column[several])}"
        raise DataError(f"{path}: {what}; expected a text or a number")
    if not empty:
        return without_spellings_of_numbers(column)
    given = without_spellings_of_numbers(value for value in column if not _is_missing(value))
    names = iter(map(class_name, given))
    return [unlabeled if _is_missing(value) else next(names) for value in column]


def _groups(path: Path, table: Table) -> NDArray[Any] | None:
    """Return the camera, video or the like of every row; None if the table has no such column."""
    if "group" not in table:
        return None
    groups = without_spellings_of_numbers(table["group"])
    names = ["" if value is None or value != value else class_name(value) for value in groups]
    _check_filled(path, "group", [row for row, name in enumerate(names) if name == ""])
    return text_array(names)


def _as_on_disk(folder: FolderFiles, paths: list[str]) -> list[str]:
    """Return paths as the files are called: "é" may be one character or two, and looks the same."""
    missing = {path for path in paths if not path.isascii() and path not in folder}
    if not missing:
        return paths
    there = {normalize("NFC", name): name for name in folder.names() if not name.isascii()}
    return [there.get(normalize("NFC", path), path) if path in missing else path for path in paths]


def _check_inside(folder: FolderFiles, paths: Sequence[str]) -> None:
    """Raise an OutsideError if a path leads out of the folder of the table; links are resolved when they are read."""
    for name in paths:
        if (os.path.isabs(name) or ".." in name) and "\0" not in name:
            folder.path(name)


def _check_files(path: Path, files: Files, paths: Sequence[str]) -> None:
    missing = [name for name in paths if name not in files]
    if missing:
        windows = any("\\" in name for name in missing)
        how = "with / between folders" if windows else f"as seen from {path.parent}"
        what = f"{len(missing)} of {len(paths)} images do not exist: {some(missing, 3)}"
        raise DataNotFoundError(f"{path}: {what}; paths are written {how}")
