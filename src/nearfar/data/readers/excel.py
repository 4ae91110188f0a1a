"""The first sheet of an Excel file, with openpyxl."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

from ...io.untrusted import check_expansion, check_regular
from ...quoting import PATH, count_of, quoted, shorten
from ..dataset import DataError


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
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not a readable Excel file ({shorten(why, PATH)})") from error
    if len(book.worksheets) > 1:
        others = count_of(len(book.worksheets) - 1, "other sheet")
        warnings.warn(f"{path}: only its first sheet, {quoted(sheet.title)}, is read, not {others}", stacklevel=2)
    rows = [row for row in rows if any(row)]
    width = max((at + 1 for row in rows for at, cell in enumerate(row) if cell), default=0)
    return [(row + [""] * width)[:width] for row in rows]


def _text(cell: Any) -> str:
    """Return a cell as it would be in a CSV: whole numbers without a point."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
