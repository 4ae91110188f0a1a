"""Images inside a Parquet table, as in data sets of Hugging Face, which are read when they are needed."""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ...io.untrusted import check_expansion
from ..dataset import DataError

KEPT = 2**29  # bytes of row groups that a process keeps, besides the last one; only whole groups can be read
OFTEN = 100  # warn after this many repeated reads of groups for fewer than ten times as many images (shuffled order)
SMALL_GROUP = 100  # images in a group that is cheap to read
Group: TypeAlias = tuple[str, str, int, int]


@dataclass(frozen=True)
class ParquetImages:
    """The encoded images in a column of a table, as files with the names in the table.

    Parameters
    ----------
    root : str
        Path of the table.
    column : str
        Name of the column, which has bytes, or Hugging Face's pairs of bytes and path.
    places : mapping of str to int
        Row of each name.
    written : int
        Date of the file in nanoseconds. If the table is written again, groups of the old one are not used.
    kind : {"image", "sound"}
    """

    root: str
    column: str
    places: Mapping[str, int]
    written: int
    kind: Literal["image", "sound"] = "image"

    @classmethod
    def of(cls, path: Path, column: str, paired: bool) -> ParquetImages:
        """Name the images by their paths if these are distinct, else by their rows."""
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            n = file.metadata.num_rows
            names = list[Any]()
            leaf = f"{column}.path"
            if paired and any(file.metadata.schema.column(i).path == leaf for i in range(file.metadata.num_columns)):
                cells = read_batches(file, path, [leaf], rows=1000).column(0).to_pylist()
                names = [(cell or {}).get("path") for cell in cells]
        if None in names or len(set(names)) < n:
            names = [f"{path.stem}[{i}]" for i in range(n)]
        leaf = f"{column}.bytes" if paired else column
        places = {name: i for i, name in enumerate(names)}
        return cls(str(path), leaf, places, path.stat().st_mtime_ns)

    def names(self) -> list[str]:
        return list(self.places)

    def folders(self) -> list[str]:
        return []

    def top_folders(self) -> list[str]:
        return []

    def read(self, name: str) -> bytes:
        i = self.places[name]
        group = bisect_right(self._starts, i) - 1
        try:
            value = _group(self.root, self.column, group, self.written)[i - self._starts[group]].as_py()
        except OSError as error:
            raise DataError(f"{self.root}: {name} cannot be read ({error})") from error
        value = value["bytes"] if isinstance(value, dict) else value
        if value is None:
            raise DataError(f"{self.root}: {name} has no bytes; expected an encoded image")
        return bytes(value)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    @cached_property
    def _starts(self) -> list[int]:
        """Return the first row of each group."""
        from pyarrow.parquet import read_metadata

        about = read_metadata(self.root)
        starts = [0]
        for i in range(about.num_row_groups - 1):
            starts.append(starts[-1] + about.row_group(i).num_rows)
        return starts


def read_batches(
    file: Any, path: str | Path, columns: Sequence[str], *, rows: int, row_groups: Sequence[int] | None = None
) -> Any:
    """Return columns of an opened file, of all groups by default, as a table of Arrow.

    Raises
    ------
    Unreadable
        If they would fill the memory: a few bytes may encode the same long cell in every row. Batches of this many
        `rows` are read before their size is known.
    """
    from pyarrow import Table

    size = os.stat(path).st_size
    seen = 0
    batches = []
    for batch in file.iter_batches(rows, columns=columns, row_groups=row_groups):
        seen += batch.nbytes
        check_expansion(seen, size)
        batches.append(batch)
    return Table.from_batches(batches) if batches else file.read(columns=columns)


class RowGroups:
    """Cache of the row groups that were read last, up to KEPT bytes."""

    def __init__(self) -> None:
        self.columns: dict[Group, Any] = {}
        self.dropped: set[Group] = set()
        self.reads = Counter[str]()
        self.repeated = Counter[str]()

    def __call__(self, root: str, column: str, number: int, written: int) -> Any:
        """Return the column of a group of the table with this date."""
        from pyarrow.parquet import ParquetFile

        group = root, column, number, written
        self.reads[root] += 1
        found = self.columns.pop(group, None)
        if found is None:
            with ParquetFile(root) as file:  # opened each time, because processes and threads cannot share a file
                found = read_batches(file, root, [column], rows=10, row_groups=[number]).column(0)
            self._make_room(found.nbytes)
            if group in self.dropped and len(found) > SMALL_GROUP:
                self._warn_if_slow(root, found.nbytes)
        self.columns[group] = found  # moves it to the end
        return found

    def _make_room(self, size: int) -> None:
        for group in list(self.columns):
            if size + sum(column.nbytes for column in list(self.columns.values())) <= KEPT:
                return
            self.columns.pop(group, None)
            self.dropped.add(group)

    def _warn_if_slow(self, root: str, size: int) -> None:
        """Warn once if a whole group is read for nearly every image."""
        self.repeated[root] += 1
        if self.repeated[root] == OFTEN > self.reads[root] / 10:
            warnings.warn(
                f"{root}: because images are read in random order, a group of {size / 2**20:.0f} MB is read for nearly "
                f"every image ({KEPT >> 20} MB are cached); write the table again in small groups, with "
                f"pyarrow.parquet.write_table(table, path, row_group_size={SMALL_GROUP})",
                stacklevel=4,
            )


_group = RowGroups()
