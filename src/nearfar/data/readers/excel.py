"""The first sheet of an Excel file, with openpyxl."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...io.other_formats import mistaken
from ...io.untrusted import check_expansion, check_regular
from ...quoting import PATH, count_of, quoted, shorten
from ..dataset import DataError, some


def read_excel(path: Path) -> list[list[str]]:
    """Return the cells of the first sheet as text, without empty rows and without empty columns at the end.

    Raises
    ------
    DataError
        If openpyxl is missing, or the file cannot be read.
    """
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise DataError(f"{path}: Excel files need openpyxl; pip install 'nearfar[tables]'") from error
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            check_expansion(sum(entry.file_size for entry in archive.infolist()), path.stat().st_size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on parts of the file that are no cells, such as styles
            book = load_workbook(path, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            rows = [[_text(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    except Exception as error:  # openpyxl raises nearly anything on a damaged file
        if what := mistaken(path):
            raise DataError(f"{path}: {what}") from error
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not a readable Excel file ({shorten(why, PATH)})") from error
    if len(book.worksheets) > 1 and sum(map(any, rows)) > 1:
        others = count_of(len(book.worksheets) - 1, "other sheet")
        warnings.warn(f"{path}: only its first sheet, {quoted(sheet.title)}, is read, not {others}", stacklevel=2)
    rows = [row for row in rows if any(row)]
    if len(rows) < 2 and len(book.worksheets) > 1:
        titles = some([quoted(one.title) for one in book.worksheets[1:]], 3)
        raise DataError(f"{path}: its first sheet holds no table; move the one to read ({titles}) to the front")
    width = max((at + 1 for row in rows for at, cell in enumerate(row) if cell), default=0)
    rows = [(row + [""] * width)[:width] for row in rows]
    _warn_of_formulas(path, rows)
    return rows


def _warn_of_formulas(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Warn of columns without cells that have formulas, whose results only a spreadsheet program stores."""
    empty = {at for at in range(len(rows[0]) if rows else 0) if rows[0][at] and not any(row[at] for row in rows[1:])}
    if not empty:
        return
    from openpyxl import load_workbook

    book = load_workbook(path, read_only=True)
    written = {
        at
        for row in book.worksheets[0].iter_rows(values_only=True)
        for at, cell in enumerate(row)
        if at in empty and str(cell).startswith("=")
    }
    if written:
        named = some([quoted(rows[0][at]) for at in sorted(written)], 3)
        warnings.warn(
            f"{path}: {named} holds formulas without results, so it is empty; open and save the file in a spreadsheet "
            "program",
            stacklevel=3,
        )


def _text(cell: Any) -> str:
    """Return a cell as it would be in a CSV: whole numbers without a point."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
