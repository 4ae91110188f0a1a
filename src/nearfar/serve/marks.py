"""Labels that users marked as wrong, in a table for spreadsheets."""

from __future__ import annotations

import csv
import os
import threading
import time
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import IO

from ..io.atomic_files import locked
from ..io.cells import unescaped, write_rows
from ..quoting import quoted

HEADING = ("name", "class", "right", "time")
READ_EVERY = 1.0  # seconds between checks whether another worker has written a mark
LOCK_WAIT = 5.0
MAX_MARKS = 100_000  # maximum number of lines of the table, so that requests cannot fill the disk


class WrongLabels:
    """Table of wrong labels: item, class, correct class if known, and time.

    Parameters
    ----------
    path : Path
        A .csv file, which is created with the first mark. The last mark of an item counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen = (-1, 0, 0)
        self._lines = 0
        self._marks: dict[str, str] = {}
        self._load()

    def add(self, name: str, label: str, right: str) -> None:
        """Append a mark, and wait until it is on disk.

        Raises
        ------
        ValueError
            If the table is full, or a text cannot be written as UTF-8.
        OSError
            If the table cannot be written.
        """
        with self._lock, locked(self.path.with_name(f".{self.path.name}.lock"), wait=LOCK_WAIT):
            self._load()  # with the marks of other workers
            if self._lines >= MAX_MARKS:
                raise ValueError(f"{self.path.name} is full with {MAX_MARKS:,} marks; correct the labels and remove it")
            text = StringIO()
            moment = datetime.now(UTC).isoformat(timespec="seconds")
            rows = [(name, label, right, moment)]
            if not self.path.exists() or self.path.stat().st_size == 0:
                rows.insert(0, HEADING)
            write_rows(text, rows)
            try:
                line = text.getvalue().encode("utf-8", errors="surrogateescape")
            except UnicodeEncodeError:
                raise ValueError(f"expected a text, got half of a surrogate pair: {quoted(right)}") from None
            with self.path.open("a+b") as file:
                if self._ends_within_a_line(file):  # of a process that was killed; the line is lost, the next is not
                    file.write(b"\r\n")
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._load()

    @staticmethod
    def _ends_within_a_line(file: IO[bytes]) -> bool:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"

    def right(self, name: str) -> str | None:
        """Return the correct class of an item by its last mark, "" if the mark has none, or None without a mark."""
        if time.monotonic() - self._looked >= READ_EVERY:
            with self._lock:
                self._load()
        return self._marks.get(name)

    def __len__(self) -> int:
        return len(self._marks)

    def _load(self) -> None:
        """Read the table, if it has changed since it was read."""
        self._looked = time.monotonic()
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            stamp = (0, 0, 0)
        if stamp != self._seen:
            marks = self._read()
            self._lines = len(marks)
            self._marks = dict(marks)  # the last mark of an item counts
            self._seen = stamp

    def _read(self) -> list[tuple[str, str]]:
        """Return the item and its correct class for each line of the table."""
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = [[unescaped(cell) for cell in row] for row in csv.reader(file)]
        if not rows:
            return []
        if tuple(rows[0]) != HEADING:
            raise ValueError(
                f"{self.path}: expected a table with the columns {', '.join(HEADING)}; choose another table with wrong="
            )
        return [(row[0], row[2]) for row in rows[1:] if len(row) == len(HEADING)]
