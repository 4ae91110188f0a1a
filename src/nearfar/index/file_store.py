"""A collection in one file, searched in memory. A change rewrites the file, or appends to its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Bools
from .approximate import Approximate
from .filters import Kind, mask, parse_filter
from .index import Content, Index, Metadata, Stored, merged, read_content, write_index
from .index_lock import index_lock
from .journal import AROUND, BEGINNING, Change, append, can_grow, checked_change, packed_change, remove_stale, size_of
from .records import Hits, Records, check_column, check_known, column_kinds, names_in, picked_columns

LARGEST_PART = 0.1
"""Size of a journal relative to its file, beyond which the file is rewritten: readers read both."""


class FileStore:
    """A collection in one file; see `Store`. A reader sees the file as it was when it was opened."""

    def __init__(self, path: Path, *, writes: bool = False, lock: bool = True) -> None:
        self.uri = str(path)
        self.path = path
        self.writes = writes
        self._held = ExitStack()
        if writes and lock:
            self._held.enter_context(index_lock(path, wait=0))
        try:
            self._open()
        except BaseException:
            self._held.close()
            raise

    def _open(self) -> None:
        self._seen = status_of(self.path)
        # a writer reads few of the embeddings
        self._stored, content = read_content(self.path, mapped=self.writes)
        if not self.writes:
            self._stored = Stored(content.metadata, content.rows, identity="")
        self._hold(content)
        if not self.writes:
            self._searched()  # made now, because many threads may search it later

    def _hold(self, content: Content | None) -> None:
        """Keep what the collection holds now; None after a change, so that it is found when it is needed."""
        self._content = content
        self._index: Index | None = None
        self._places: dict[str, int] | None = None

    @classmethod
    def create(
        cls, path: Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> FileStore:
        """Write a new file, and open it to be changed."""
        check_distance(distance)
        rows = np.asarray(records.embeddings, dtype=np.float32)
        if engine != "exact" and len(rows):
            Approximate(rows, distance, engine)  # raises now, and not after the file is written, if it cannot be built
        with ExitStack() as held:
            if lock:
                held.enter_context(index_lock(path, wait=0))
            metadata = Metadata(
                names=records.names,
                labels=records.labels,
                columns=dict(records.columns),
                distance=distance,
                engine=engine,
                about=dict(about),
            )
            identity = write_index(path, metadata, rows)
            remove_stale(path, identity)
            store = cls(path, writes=True, lock=False)
            store._held = held.pop_all()
        return store

    @property
    def distance(self) -> str:
        return self._stored.metadata.distance

    @property
    def about(self) -> dict[str, str]:
        return dict(self._stored.about)

    @property
    def dimensions(self) -> int:
        return int(self._stored.rows.shape[1])

    def engine(self) -> str:
        return self._stored.engine

    def columns(self) -> dict[str, Kind]:
        labels = self._stored.metadata.labels
        kinds = self._stored.kinds | {"name": "text"}
        if labels is not None:
            kinds |= column_kinds({"label": labels})
        return kinds

    def count(self, where: str = "") -> int:
        if not where:
            return len(self._merged())
        return int(self._mask(where).sum())

    def column(self, name: str, where: str = "") -> AnyArray:
        columns = self._merged().metadata.all_columns()
        check_column(name, columns)
        if not where:
            return columns[name]
        return columns[name][self._mask(where)]

    def get(self, names: Sequence[str]) -> Records:
        content = self._merged()
        if self._places is None:
            self._places = {name: row for row, name in enumerate(content.metadata.names.tolist())}
        places = [self._places[name] for name in names_in(names) if name in self._places]
        metadata = content.metadata
        return Records(
            names=metadata.names[places],
            embeddings=content.pick(places),
            labels=None if metadata.labels is None else metadata.labels[places],
            columns=picked_columns(metadata.columns, places),
        )

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        return self._searched().search(queries, k, where=where, group_by=group_by)

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        names = np.asarray(names_in(gone), dtype=np.str_)
        self._change(Change(names, records, dict(about or {}), engine))

    def remove(self, names: Sequence[str]) -> None:
        gone = np.asarray(names_in(names), dtype=np.str_)
        check_known(gone.tolist(), self._merged().metadata.names)
        self._change(Change(gone, None, {}, ""))

    def change(self, *, about: Mapping[str, str] | None = None, engine: str = "") -> None:
        self._change(Change(np.empty(0, dtype=np.str_), None, dict(about or {}), engine))

    def in_memory(self) -> Index:
        if self.writes:  # its embeddings are mapped from the file
            return Index.load(self.path)
        return self._searched()

    def __repr__(self) -> str:
        size = f"{self.count():,} x {self.dimensions}"
        return f"FileStore {self.uri}: {size}, {self.distance}, engine {self.engine()}"

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> FileStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _merged(self) -> Content:
        """Return what the collection holds now; it is found when it is first needed after a change."""
        content = self._content
        if content is None:
            content = merged(self._stored)
            self._content = content
        return content

    def _searched(self) -> Index:
        """Return the index that is searched; a writer needs it rarely."""
        if self._index is None:
            self._index = Index._of(self._merged())
        return self._index

    def _mask(self, where: str) -> Bools:
        return mask(parse_filter(where, self.columns()), self._merged().metadata.all_columns())

    def _change(self, change: Change) -> None:
        """Append a change to the journal, or rewrite the file with it."""
        if not self.writes:
            raise ValueError(f'{self.uri}: opened to be read; open it with mode="w" to change it')
        stored = self._stored
        stored.check(change)  # first, because its messages say what the collection has
        change = checked_change(change)
        after = stored.followed_by(change)
        content = None
        if change.records is None or len(change.records) == 0 or after.engine != "exact":
            content = merged(after)
            if after.engine != "exact" and len(content):
                Approximate(content.embeddings(), self.distance, after.engine)  # raises before anything is written
        room = self._room()
        if content is not None and len(content) == 0:
            room = 0
        data = b""
        if room >= size_of(change):  # else it would take memory for nothing
            data = packed_change(change)
        try:
            if 0 < len(data) <= room:
                after.end = append(self.path, stored.identity, stored.end, data)
                self._stored = after
                self._hold(content)
            else:
                if content is None:
                    content = merged(after)
                identity = write_index(self.path, content.metadata, content.stacked())
                remove_stale(self.path, identity)
                self._open()
        except BaseException:
            with suppress(OSError, ValueError):
                self._open()  # an interrupt may have come after the change was written
            raise

    def _room(self) -> float:
        """Return how many bytes the journal still takes before the file is rewritten; 0 if it has no journal."""
        stored = self._stored
        if not stored.journaled or stored.is_empty or self.path.is_symlink():
            return 0
        if self._seen is None or self._seen != status_of(self.path):  # others have replaced it
            return 0
        if stored.end and not can_grow(self.path, stored.end):
            return 0
        return LARGEST_PART * self._seen.size - max(stored.end, BEGINNING) - AROUND


class Status(NamedTuple):
    """What tells whether a file was replaced."""

    size: int
    changed: int
    inode: int


def status_of(path: Path) -> Status | None:
    """Return the status of a file; None if it cannot be had."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Status(status.st_size, status.st_mtime_ns, status.st_ino)
