"""The columns of a text table: .csv, .tsv, and .jsonl with one object per line; also compressed as .gz."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ...io.cells import unescaped
from ...io.untrusted import Unpacking, check_regular, parse_json
from ...quoting import PATH, quoted, shorten
from ..dataset import DataError
from .saved_datasets import is_saved

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".parquet")
"""Endings of all tables, including .parquet, which is not text."""


def check_column(source: str, argument: str, column: str | None) -> None:
    """Raise a DataError if an argument names a column of a source that is not a table."""
    if column is not None and not source.endswith(TABLES) and not is_saved(Path(source)):
        endings = ", ".join(ending for ending in TABLES if not ending.endswith(".gz"))
        only = f"{source} has no columns; only tables have them ({endings})"
        raise DataError(f"{argument}: got {quoted(column)}, but {only}")


def read_text_table(path: Path) -> dict[str, Sequence[Any]]:
    """Return the columns by their names. The cells of a .csv or .tsv are text; a missing key of a .jsonl is None.

    Without images, lists of d numbers under a key or in a column `e` become e[0], ..., e[d - 1].

    Raises
    ------
    DataError
        If the file cannot be read, is empty, or its lines have different numbers of cells.
    """
    if path.suffix == ".gz":
        kind = path.with_suffix("").suffix
    else:
        kind = path.suffix
    try:
        check_regular(path)
        with _opened(path) as file:
            if kind == ".jsonl":
                return _of_objects(path, file)
            delimiter = "\t" if kind == ".tsv" else ","
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8; save it as {kind[1:].upper()} in UTF-8") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{path}: not a readable {kind[1:].upper()} file ({error})") from error
    return _of_rows(path, rows, "tabs" if kind == ".tsv" else "commas")


def _opened(path: Path) -> TextIO:
    if path.suffix != ".gz":
        return path.open(newline="", encoding="utf-8-sig")
    packed = gzip.GzipFile(path)
    return TextIOWrapper(BufferedReader(Unpacking(packed, path.stat().st_size)), encoding="utf-8-sig", newline="")


def _of_rows(path: Path, rows: list[list[str]], marks: str) -> dict[str, Sequence[Any]]:
    if not rows:
        raise DataError(f"{path}: is empty; expected a header line with path,label")
    header = [name.strip() for name in rows[0]]
    if len(header) == 1 and {";", "\t", ","} & set(header[0]):
        advice = f"save it as {'TSV' if marks == 'tabs' else 'CSV'} with {marks}"
        raise DataError(f"{path}: its columns are not separated by {marks}: {quoted(header[0])}; {advice}")
    times = Counter(header)
    twice = next((name for name in header if name and times[name] > 1), None)
    if twice is not None:
        raise DataError(f"{path}: column {quoted(twice)} occurs {times[twice]} times")
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            count = f"{len(row)} value{'' if len(row) == 1 else 's'} for {len(header)} columns"
            raise DataError(f"{path}: row {number} after the header has {count}: {shorten(','.join(row), PATH)}")
    table: dict[str, Sequence[Any]] = {}
    images = any(name.lower() in ("path", "file_name") for name in header)
    for i, name in enumerate(header):
        column = [unescaped(row[i].strip()) for row in rows[1:]]
        if images:
            table[name] = column
        else:
            table |= _listed_features(name, column)
    return table


def _listed_features(name: str, column: list[str]) -> dict[str, Sequence[Any]]:
    """Return a column, or one column per number if all cells are lists of d numbers, "[0.1, 0.2]" or "[0.1 0.2]"."""
    if name.lower() == "label" or not column or not all(cell[:1] == "[" and cell[-1:] == "]" for cell in column):
        return {name: column}
    lists = [cell[1:-1].replace(",", " ").split() for cell in column]
    if len({len(numbers) for numbers in lists}) > 1:
        return {name: column}
    try:
        numbers = np.array(lists, dtype=np.float64)
    except ValueError:  # text, or an array that NumPy printed with "..."
        return {name: column}
    return {f"{name}[{i}]": feature for i, feature in enumerate(np.ascontiguousarray(numbers.T))}


def _of_objects(path: Path, lines: Iterable[str]) -> dict[str, Sequence[Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f'{path}: line {number}: expected an object such as {{"path": ..., "label": ...}}')
        rows.append(row)
    if not rows:
        raise DataError(f'{path}: is empty; expected lines such as {{"path": ..., "label": ...}}')
    table: dict[str, Sequence[Any]] = {}
    keys = dict.fromkeys(name for row in rows for name in row)
    images = any(name.lower() in ("path", "file_name") for name in keys)
    for name in keys:
        column = [row.get(name) for row in rows]
        if images:
            table[name] = column
        else:
            table |= _features(name, column)
    return table


def _features(name: str, column: list[Any]) -> dict[str, Sequence[Any]]:
    """Return a column, or one column per number if all cells are lists of d numbers, as embeddings are stored."""
    if name.lower() == "label" or not all(isinstance(cell, list) for cell in column):
        return {name: column}
    try:
        numbers = np.array(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # lists of several lengths, of text, or of huge integers
        return {name: column}
    return {f"{name}[{i}]": feature for i, feature in enumerate(np.ascontiguousarray(numbers.T))}
