"""Images that a Parquet table holds itself, as the sets of Hugging Face do: read when they are needed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from .dataset import DataError

GROUPS = 4  # groups of rows that are kept in memory; a group is the least that can be read


@dataclass(frozen=True)
class ParquetImages:
    """The encoded images in a column of a table, as files of the names that they have there.

    Parameters
    ----------
    root : str
        The table.
    column : str
        Of bytes, or of Hugging Face's pairs of bytes and path.
    places : mapping of str to int
        The row of each name.
    written : int
        When the table was written, in nanoseconds: groups of an older one of its name are no longer its own.
    """

    root: str
    column: str
    places: Mapping[str, int]
    written: int

    @classmethod
    def of(cls, path: Path, column: str, paired: bool) -> ParquetImages:
        """Name the images by their paths where these tell them apart, else by their rows."""
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            n, names = file.metadata.num_rows, list[Any]()
            leaf = f"{column}.path"
            if paired and any(file.metadata.schema.column(i).path == leaf for i in range(file.metadata.num_columns)):
                names = [(cell or {}).get("path") for cell in file.read(columns=[leaf]).column(0).to_pylist()]
        if None in names or len(set(names)) < n:
            names = [f"{path.stem}[{i}]" for i in range(n)]
        leaf, places = f"{column}.bytes" if paired else column, {name: i for i, name in enumerate(names)}
        return cls(str(path), leaf, places, path.stat().st_mtime_ns)

    def names(self) -> list[str]:
        return list(self.places)

    def tops(self) -> list[str]:
        return []

    def read(self, name: str) -> bytes:
        i = self.places[name]
        group = bisect_right(self._starts, i) - 1
        value = _group(self.root, self.column, group, self.written)[i - self._starts[group]].as_py()
        value = value["bytes"] if isinstance(value, dict) else value
        if value is None:
            raise DataError(f"{self.root}: {name} holds no bytes")
        return bytes(value)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    @cached_property
    def _starts(self) -> list[int]:
        """The first row of each group."""
        from pyarrow.parquet import read_metadata

        about, starts = read_metadata(self.root), [0]
        for i in range(about.num_row_groups - 1):
            starts.append(starts[-1] + about.row_group(i).num_rows)
        return starts


@lru_cache(maxsize=GROUPS)
def _group(root: str, column: str, group: int, written: int) -> Any:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(root) as file:  # opened anew: a file is shared neither by processes nor by threads
        return file.read_row_group(group, columns=[column]).column(0)
