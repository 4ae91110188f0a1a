"""The columns of a text table: .csv, .tsv, .jsonl or .json, also compressed as .gz or .zip, and of an .xlsx."""

from __future__ import annotations

import csv
import gzip
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from ...io.cells import unescaped
from ...io.formats import files_in_archive, table_in
from ...io.other_formats import mistaken
from ...io.untrusted import CORRUPT, Unpacking, check_expansion, check_regular, parse_json
from ...quoting import PATH, count_of, quoted, shorten
from ..cells import CELL
from ..dataset import DataError, some
from .excel import read_excel
from .text_encoding import SEPARATORS, bad_byte, encoding_of, rows_of, without_declaration

PRINTED = re.compile(r"\b(?:np\.)?(?:float|int|uint)\d+\(([^()]*)\)")
"""A number as NumPy 2 prints it inside a list: np.float64(0.1)."""
NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?")
"""A number as the name of a column."""
ABOVE = "; remove the lines above the line with the names of the columns"
CUT = re.compile(r"\[[-+\d.eE,\snaif]*\.\.\.[-+\d.eE,\snaif]*\]")
"""A list of numbers that NumPy has printed in part, with nan and inf."""


def read_text_table(path: Path) -> dict[str, Sequence[Any]]:
    """Return the columns by their names. The cells of a .csv, .tsv or .xlsx are text; a missing key of JSON is None.

    Without images, lists of d numbers under a key or in a column `e` become e[0], ..., e[d - 1]; those of a row without
    a list are NaN. The sign between columns, and the encoding, may differ from the usual ones if they are plain.

    Raises
    ------
    DataError
        If the file cannot be read, is empty, or its lines have different numbers of cells.
    """
    kind = (Path(unpacked_name(path.name)).suffix or Path(table_in(path)).suffix).lower()
    try:
        if kind == ".xlsx":
            return _of_rows(path, read_excel(path), "")
        check_regular(path)
        what = mistaken(path, text=kind in (".csv", ".tsv")) if path.stat().st_size else ""
        if what and path.suffix.lower() not in (".gz", ".zip"):
            raise DataError(f"{path}: {what}")
        lines = _lines(path)
        _check_text(path, lines)
        if kind in (".json", ".jsonl", ".ndjson"):
            return _of_objects(path, _objects(path, lines, kind), sum(map(len, lines)))
        lines, declared = without_declaration(lines)
        rows, separator = rows_of(lines, declared or ("\t" if kind == ".tsv" else ","))
        return _of_rows(path, rows, SEPARATORS[separator])
    except (OSError, csv.Error, *CORRUPT) as error:
        raise DataError(f"{path}: not a readable {kind[1:].upper()} file ({error})") from error


def _check_text(path: Path, lines: Sequence[str]) -> None:
    """Raise a DataError if a file holds the character NUL, as texts in two or four bytes per letter do."""
    at = next((number for number, line in enumerate(lines, start=1) if "\0" in line), None)
    if at is not None:
        raise DataError(
            f"{path}: line {at} holds the character NUL, as in UTF-16 or UTF-32 or in a file that is no text; save it "
            "as a text in UTF-8"
        )


def unpacked_name(name: str) -> str:
    """Return the name of a table without the ending of its compression.

    >>> unpacked_name("rows.csv.gz"), unpacked_name("rows.csv")
    ('rows.csv', 'rows.csv')
    """
    packed = next((ending for ending in (".gz", ".zip") if name.lower().endswith(ending)), "")
    return name[: len(name) - len(packed)]


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, with their ends; raise a DataError if its encoding is not plain."""
    try:
        with _opened(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline="") as decoded:
            return list(decoded)
    except UnicodeDecodeError as error:
        with _opened(path) as file:
            data = file.read()
        encoding = encoding_of(data)
        if not encoding:
            line = data[: bad_byte(data)].count(b"\n") + 1
            command = "`iconv -f WINDOWS-1251 -t UTF-8 OLD > NEW`"
            advice = f"save it in UTF-8, such as with {command} if it is in Windows-1251"
            raise DataError(f"{path}: line {line} is not UTF-8; {advice}") from error
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not {encoding.upper()}, as it says; save it in UTF-8") from error
    name = {"cp1252": "Windows-1252"}.get(encoding, "UTF-16")
    warnings.warn(f"{path}: is read as {name}; save it in UTF-8 if its letters are wrong", stacklevel=2)
    return list(StringIO(text, newline=""))


def _opened(path: Path) -> BufferedReader:
    """Open a file to read its bytes, unpacked if it is compressed."""
    if path.suffix.lower() == ".gz":
        return BufferedReader(Unpacking(gzip.GzipFile(path), path.stat().st_size))
    if path.suffix.lower() != ".zip":
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    names = files_in_archive(archive)
    if len(names) != 1:
        raise DataError(f"{path}: expected an archive with one table, got {some(names) or 'an empty one'}")
    return BufferedReader(Unpacking(archive.open(names[0]), path.stat().st_size))


def _of_rows(path: Path, rows: list[list[str]], marks: str) -> dict[str, Sequence[Any]]:
    if not rows:
        raise DataError(f"{path}: is empty; expected a header line with path,label")
    header = [name.strip() for name in rows[0]]
    if len(header) == 1 and marks and {";", "\t", ","} & set(header[0]):
        advice = f"save it as {'TSV' if marks == 'tabs' else 'CSV'} with {marks}"
        raise DataError(f"{path}: its columns are not separated by {marks}: {quoted(header[0])}; {advice}")
    _check_names(path, header, rows[1:])
    times = Counter(header)
    twice = next((name for name in header if name and times[name] > 1), None)
    if twice is not None:
        raise DataError(f"{path}: column {quoted(twice)} occurs {times[twice]} times{header_advice(header)}")
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            count = f"{count_of(len(row), 'value')} for {count_of(len(header), 'column')}"
            advice = "; remove the lines above the header that begin with #" if header[0].startswith("#") else ""
            if not advice and len(header) == 1:
                advice = ABOVE
            raise DataError(
                f"{path}: row {number} after the header has {count}{advice}: {shorten(','.join(row), PATH)}"
            )
    table: dict[str, Sequence[Any]] = {}
    images = any(name.lower() in ("path", "file_name") for name in header)
    body = rows[1:]
    for i, name in enumerate(header):
        column = [unescaped(row[i].strip()) for row in body]
        if images:
            table[name] = column
        else:
            table |= _listed_features(path, name, column)
    return table


def _check_names(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raise a DataError if most columns have no name, as below a title, and warn if a column with cells has none.

    The first column may lack one, because pandas writes its index so.
    """
    unnamed = [
        at for at, name in enumerate(header) if at and not name and any(row[at : at + 1] != [""] for row in rows)
    ]
    if not unnamed:
        return
    named = [name for name in header if name]
    if len(named) <= len(unnamed):
        only = f"its first line names only {len(named)} of {len(header)} columns ({some(named, 3) or 'none'})"
        raise DataError(f"{path}: {only}{ABOVE}")
    which = f"column {unnamed[0] + 1} has no name, and is not used"
    if len(unnamed) > 1:
        which = f"columns {some([str(at + 1) for at in unnamed], 3)} have no names, and are not used"
    warnings.warn(f"{path}: {which}", stacklevel=2)


def header_advice(names: Sequence[str]) -> str:
    """Return what to do if the first line of a table is data; "" if few of the names of its columns are numbers.

    >>> header_advice(["width", "label"]), header_advice(["M", "0.45", "0.36", "15"])
    ('', '; if its first line is data, put a line with the names of the columns above it')
    """
    if 2 * sum(NUMBER.fullmatch(name) is not None for name in names) < len(names):
        return ""
    return "; if its first line is data, put a line with the names of the columns above it"


def _listed_features(path: Path, name: str, column: list[str]) -> dict[str, Sequence[Any]]:
    """Return a column, or one column per number if all cells are lists of d numbers, as Python or NumPy prints them."""
    full = [cell for cell in column if cell]
    if name.lower() == "label" or not full or not all(cell[:1] == "[" and cell[-1:] == "]" for cell in full):
        return {name: column}
    cells = [PRINTED.sub(r"\1", cell) for cell in column]
    cut = [row for row, cell in enumerate(cells, start=1) if CUT.fullmatch(cell)]
    if cut:
        where = f"{count_of(len(cut), 'row')}, first in row {cut[0]} after the header"
        raise DataError(
            f"{path}: column {quoted(name)} has lists with '...' in {where}: NumPy left out numbers when the file was "
            "written; write it again with whole lists (.tolist()), or as .parquet or .npz"
        )
    return _numbered(path, name, column, [cell[1:-1].replace(",", " ").split() if cell else None for cell in cells])


def _numbered(path: Path, name: str, column: list[Any], lists: list[list[Any] | None]) -> dict[str, Sequence[Any]]:
    """Return one column per number of lists of one length, with NaN where there is none; else the column itself."""
    lengths = {len(numbers) for numbers in lists if numbers is not None}
    if len(lengths) != 1:
        return {name: column}
    given = sum(numbers is not None for numbers in lists)
    # a file may have one long list, and many rows without one; a number takes two characters or more
    check_expansion(CELL * len(lists) * max(lengths), 2 * given * max(lengths))
    missing = [np.nan] * lengths.pop()
    try:
        numbers = np.array([missing if one is None else one for one in lists], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # text, lists in lists, or huge integers
        return {name: column}
    if numbers.ndim != 2:
        return {name: column}
    return {f"{name}[{i}]": feature for i, feature in enumerate(np.ascontiguousarray(numbers.T))}


def _objects(path: Path, lines: Sequence[str], kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a file, with a place for messages: one per line, or those of one list or of columns."""
    first = next((line.lstrip()[:1] for line in lines if line.strip()), "")
    if kind != ".json" and first != "[":
        yield from _by_line(path, lines)
        return
    try:
        content = parse_json("".join(lines))
    except ValueError as error:
        raise DataError(f"{path}: is not JSON ({error}); a file with one object per line ends in .jsonl") from error
    for number, row in enumerate(_records_of(path, content), start=1):
        yield f"item {number}", row


def _records_of(path: Path, content: Any) -> list[Any]:
    """Return the rows of a JSON file: a list of objects, an object of columns of one length, or one object.

    A column is a list, or an object with the same keys in all columns. An object may also hold rows by their numbers,
    or beside the names of their columns. pandas writes all of these.
    """
    if not isinstance(content, dict) or not content:
        return content if isinstance(content, list) else [content]
    if content.keys() in ({"columns", "data"}, {"columns", "index", "data"}, {"schema", "data"}):
        return _rows_beside_names(path, content)
    if all(isinstance(cells, dict) for cells in content.values()):
        keys = next(iter(content.values())).keys()
        if all(map(str.isdecimal, content)) and not all(map(str.isdecimal, keys)):
            return [*content.values()]
        if all(cells.keys() == keys for cells in content.values()):
            content = {name: [cells[key] for key in keys] for name, cells in content.items()}
    lengths = {name: len(cells) for name, cells in content.items() if isinstance(cells, list)}
    if len(lengths) == len(content) and len({*lengths.values()}) == 1:
        return [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
    inner = next((name for name in lengths if any(isinstance(cell, dict) for cell in content[name])), None)
    if inner is not None:
        what = f"is one object, whose {quoted(inner)} is a list of {count_of(lengths[inner], 'object')}"
        raise DataError(f"{path}: {what}; save this list alone")
    if len(lengths) == len(content):
        shown = some([f"{name}: {length}" for name, length in lengths.items()], 3)
        raise DataError(f"{path}: its columns have different lengths ({shown}); expected as many cells in each")
    return [content]


def _rows_beside_names(path: Path, content: dict[str, Any]) -> list[Any]:
    """Return the rows of an object that has them as `data`, as objects or as lists in the order of `columns`."""
    rows = content["data"]
    names = content.get("columns")
    if not isinstance(rows, list):
        return [content]
    if names is None:
        return rows
    if not isinstance(names, list) or not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        raise DataError(f"{path}: expected rows in 'data' with one cell for each of the 'columns'")
    return [dict(zip(map(str, names), row, strict=True)) for row in rows]


def _by_line(path: Path, lines: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", parse_json(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not JSON ({error})") from error


def _of_objects(path: Path, objects: Iterable[tuple[str, Any]], size: int) -> dict[str, Sequence[Any]]:
    rows: list[dict[str, Any]] = []
    for place, row in objects:
        if not isinstance(row, dict):
            raise DataError(f'{path}: {place}: expected an object such as {{"path": ..., "label": ...}}')
        rows.append(row)
    if not rows:
        raise DataError(f'{path}: is empty; expected lines such as {{"path": ..., "label": ...}}')
    table: dict[str, Sequence[Any]] = {}
    keys = dict.fromkeys(name for row in rows for name in row)
    check_expansion(CELL * len(rows) * len(keys), size)  # every row may have other keys
    images = any(name.lower() in ("path", "file_name") for name in keys)
    for name in keys:
        column = [row.get(name) for row in rows]
        if images:
            table[name] = column
        else:
            table |= _features(path, name, column)
    return table


def _features(path: Path, name: str, column: list[Any]) -> dict[str, Sequence[Any]]:
    """Return a column, or one column per number if all cells are lists of d numbers, as embeddings are stored."""
    given = [cell for cell in column if cell is not None]
    if name.lower() == "label" or not given or not all(isinstance(cell, list) for cell in given):
        return {name: column}
    return _numbered(path, name, column, [cell or None if isinstance(cell, list) else None for cell in column])
