"""Labels that somebody marked as wrong, in a table that spreadsheets open."""

from __future__ import annotations

import csv
import os
import threading
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from ..io.cells import unescaped, write_rows

HEADING = ("name", "class", "right", "time")
MAX_MARKS = 100_000  # lines of the table, so that nobody fills the disk


class WrongLabels:
    """The table of wrong labels: an item, its class, what it should be (or nothing), when it was said.

    Parameters
    ----------
    path : Path
        A .csv, made with the first mark; later marks of an item count.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._one = threading.Lock()
        self._marks = self._read()
        self._lines = len(self._marks)

    def add(self, name: str, label: str, right: str) -> None:
        """Append one mark; it is on the disk when this returns.

        Raises
        ------
        ValueError
            There are too many already.
        OSError
            The table cannot be written.
        """
        with self._one:
            if self._lines >= MAX_MARKS:
                raise ValueError(f"{self.path.name} holds {MAX_MARKS:,} marks; take them in, and remove it")
            text = StringIO()
            moment = datetime.now(UTC).isoformat(timespec="seconds")
            rows = [(name, label, right, moment)]
            if not self.path.exists():
                rows.insert(0, HEADING)
            write_rows(text, rows)
            with self.path.open("ab") as file:
                file.write(text.getvalue().encode("utf-8", errors="surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
            self._marks[name] = right
            self._lines += 1

    def right(self, name: str) -> str | None:
        """Return what an item should be by its last mark, "" where that is not known, or None for no mark."""
        return self._marks.get(name)

    def __len__(self) -> int:
        return len(self._marks)

    def _read(self) -> dict[str, str]:
        if not self.path.exists():
            return {}
        with self.path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = [[unescaped(cell) for cell in row] for row in csv.reader(file)]
        if not rows or tuple(rows[0]) != HEADING:
            raise ValueError(
                f"{self.path}: expected a table with the columns {', '.join(HEADING)}; choose another --wrong"
            )
        return {row[0]: row[2] for row in rows[1:] if len(row) == len(HEADING)}
