"""A collection in one file: searched in memory; every change writes a new file, completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..io.tensor_file import Stacked
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Bools
from .approximate import Approximate
from .filters import Kind, mask, parse_filter
from .index import Index, Kept, write_index
from .index_lock import index_lock
from .records import (
    Hits,
    Records,
    check_new,
    check_some_left,
    check_there,
    column_kinds,
    isin_few,
    joined_columns,
    joined_labels,
    names_in,
    picked_columns,
)

PART_BYTES = 2**24  # of embeddings that are copied from the old file to the new one at a time: 16 MB


class FileStore:
    """A collection in one file; see `Store`. A reader sees the file as it was when it was opened."""

    def __init__(self, path: Path, *, writes: bool = False, lock: bool = True) -> None:
        self.uri = str(path)
        self.path = path
        self.writes = writes
        self._rows: dict[int, dict[str, int]] = {}  # row of each name, under the id of the index that has these rows
        self._held = ExitStack()
        if writes and lock:
            self._held.enter_context(index_lock(path, wait=0))
        try:
            self._index = Index.load(path, mapped=writes)  # a writer reads few of the embeddings
        except BaseException:
            self._held.close()
            raise

    @classmethod
    def create(
        cls, path: Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> FileStore:
        """Write a new file, and open it to be changed."""
        check_distance(distance)
        rows = np.asarray(records.embeddings, dtype=np.float32)
        if engine != "exact":
            Approximate(rows, distance, engine)  # raises now, and not after the file is written, if it cannot be built
        with ExitStack() as held:
            if lock:
                held.enter_context(index_lock(path, wait=0))
            kept = Kept(
                names=records.names,
                labels=records.labels,
                columns=dict(records.columns),
                distance=distance,
                engine=engine,
                about=dict(about),
            )
            write_index(path, kept, rows)
            made = cls(path, writes=True, lock=False)
            made._held = held.pop_all()
        return made

    @property
    def distance(self) -> str:
        return self._index.distance

    @property
    def about(self) -> dict[str, str]:
        return dict(self._index.about)

    @property
    def dimensions(self) -> int:
        return int(self._index.embeddings.shape[1])

    def engine(self) -> str:
        return self._index.engine

    def columns(self) -> dict[str, Kind]:
        kinds = column_kinds(self._index.columns) | {"name": "text"}
        if self._index.labels is not None:
            kinds |= column_kinds({"label": self._index.labels})
        return kinds

    def count(self, where: str = "") -> int:
        if not where:
            return len(self._index)
        return int(self._mask(where).sum())

    def column(self, name: str, where: str = "") -> AnyArray:
        columns = self._index.all_columns()
        check_there(name, columns)
        if not where:
            return columns[name]
        return columns[name][self._mask(where)]

    def get(self, names: Sequence[str]) -> Records:
        places = self._places()
        return self._index.records().pick([places[name] for name in names_in(names) if name in places])

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        found = self._index.search(queries, k, where=where, group_by=group_by)
        return Hits(self._index.records(), found.distances, found.positions)

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        index = self._index
        check_new(records, dimensions=self.dimensions, labels=index.labels, columns=self.columns())
        # items whose names come again are replaced
        keep = ~isin_few(index.names, np.concatenate([np.asarray(names_in(gone), dtype=np.str_), records.names]))
        n = int(keep.sum())
        labels = None
        if index.labels is not None and records.labels is not None:
            labels = joined_labels(index.labels[keep], records.labels)
        self._write(
            Kept(
                names=np.concatenate([index.names[keep], records.names]),
                labels=labels,
                columns=joined_columns(picked_columns(index.columns, keep), n, records.columns, len(records)),
                distance=index.distance,
                engine=engine or index.engine,
                about=index.about | dict(about or {}),
            ),
            self._stacked(keep, records.embeddings),
        )

    def remove(self, names: Sequence[str]) -> None:
        index = self._index
        gone = names_in(names)
        keep = ~isin_few(index.names, np.asarray(gone, dtype=np.str_))
        check_some_left(gone, index.names, int(keep.sum()))
        self._write(
            Kept(
                names=index.names[keep],
                labels=None if index.labels is None else index.labels[keep],
                columns=picked_columns(index.columns, keep),
                distance=index.distance,
                engine=index.engine,
                about=index.about,
            ),
            self._stacked(keep, np.empty((0, self.dimensions), dtype=np.float32)),
        )

    def change(self, *, about: Mapping[str, str] | None = None, engine: str = "") -> None:
        index = self._index
        kept = Kept(
            names=index.names,
            labels=index.labels,
            columns=index.columns,
            distance=index.distance,
            engine=engine or index.engine,
            about=index.about | dict(about or {}),
        )
        self._write(kept, self._stacked(np.ones(len(index), dtype=bool), index.embeddings[:0]))

    def in_memory(self) -> Index:
        if self.writes:  # its embeddings are mapped from the file
            return Index.load(self.path)
        return self._index

    def __repr__(self) -> str:
        n, d = self._index.embeddings.shape
        return f"FileStore {self.uri}: {n:,} x {d}, {self.distance}, engine {self.engine()}"

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> FileStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _places(self) -> dict[str, int]:
        """Return the row of each name; the dictionary is made when it is first needed after a change."""
        index = self._index
        found = self._rows.get(id(index))
        if found is None:
            found = {name: row for row, name in enumerate(index.names.tolist())}
            self._rows = {id(index): found}
        return found

    def _mask(self, where: str) -> Bools:
        return mask(parse_filter(where, self.columns()), self._index.all_columns())

    def _stacked(self, keep: Bools, more: AnyArray) -> Stacked:
        """Return the rows to write: those of the old file that are kept, and new ones after them.

        The old ones are read while the new file is written, so that memory does not grow with the collection.
        """
        old = self._index.embeddings
        rows = max(1, PART_BYTES // (4 * old.shape[1]))

        def parts() -> Iterator[AnyArray]:
            for start in range(0, len(old), rows):
                yield old[start : start + rows][keep[start : start + rows]]
            yield more

        return Stacked((int(keep.sum()) + len(more), old.shape[1]), np.dtype(np.float32), parts())

    def _write(self, kept: Kept, embeddings: Stacked) -> None:
        if not self.writes:
            raise ValueError(f'{self.uri}: opened to be read; open it with mode="w" to change it')
        if kept.engine != "exact":
            rows = np.concatenate([*embeddings.parts])
            Approximate(rows, kept.distance, kept.engine)  # raises before anything is written, as in `create`
            embeddings = embeddings._replace(parts=[rows])
        write_index(self.path, kept, embeddings)
        self._index = Index.load(self.path, mapped=True)
