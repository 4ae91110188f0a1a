"""A collection in one file of SQLite, searched in memory, or by a graph beside it. A change writes a few blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Bools, Ints
from .approximate import Approximate
from .blob_file import changing, reading
from .collection_file import (
    Change,
    Root,
    check_engine,
    check_fits,
    checked_change,
    graph_of,
    make_change,
    new_file,
    numbers_of,
    read_snapshot,
    records_at,
    removed_share,
)
from .filters import Kind, mask, parse_filter
from .graph_file import build_graph, open_graph
from .index import Index, Metadata, metadata_of
from .index_lock import Opened, index_lock
from .mapped_search import MappedSearch
from .records import Hits, Records, check_column, check_k, counts_of_classes, names_in

if TYPE_CHECKING:
    from .words import WordIndex

COMPACTED_FROM = 0.1  # share of removed items from which on a file is written again without them


class FileStore(Opened):
    """A collection in one file; see `Store`. A reader sees the file as it was when it was opened."""

    searches_words = True

    def __init__(self, path: Path, *, writes: bool = False, lock: bool = True) -> None:
        self.uri = str(path)
        self.path = path
        self.writes = writes
        self._held = ExitStack()
        try:
            if writes and lock:
                self._held.enter_context(index_lock(path, wait=0))
            self._open()
        except BaseException:
            self._held.close()
            raise

    def _open(self) -> None:
        self._metadata: Metadata | None = None
        self._words: WordIndex | None = None
        self._index: Index | None = None
        self._mapped: MappedSearch | None = None
        self._places: dict[str, int] = {}
        with reading(self.path) as blobs:
            self._root: Root | None = Root.read(blobs)
            if self.writes:  # it reads few parts, each of which is checked; a reader checks that all are there
                return
            graph = open_graph(self.path, self._root) if self._has_graph(self._root) else None
            snapshot = read_snapshot(blobs, since=0 if graph is None else graph.next)
        if graph is not None:
            self._mapped = MappedSearch(self.path, snapshot, graph)
            return
        self._index = Index._of(snapshot, self.path)
        self._places = {name: row for row, name in enumerate(self._index.names.tolist())}

    @classmethod
    def create(
        cls, path: Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> FileStore:
        """Write a new file, and open it to be changed."""
        check_distance(distance)
        engine = engine or "exact"
        records = checked_change(Change(records=records, about=about, engine=engine)).records or records
        if engine != "exact" and len(records):
            Approximate(records.embeddings, distance, engine)  # raises before the file is written
        with ExitStack() as held:
            if lock:
                held.enter_context(index_lock(path, wait=0))
            new_file(path, records, distance=distance, engine=engine, about=about)
            store = cls(path, writes=True, lock=False)
            store._held.push(held.pop_all())
        return store

    @staticmethod
    def check_engine(engine: str) -> None:
        """Raise a ValueError unless a file can have this engine."""
        check_engine(engine)

    @property
    def distance(self) -> str:
        return self._state().distance

    @property
    def about(self) -> dict[str, str]:
        return dict(self._state().about)

    @property
    def dimensions(self) -> int:
        return self._state().dimensions

    def engine(self) -> str:
        engine = self._state().engine
        if self._has_graph(self._state()):
            graph = self._mapped.graph if self._mapped is not None else open_graph(self.path, self._state())
            return "exact" if graph is None else "graph"
        return engine

    def columns(self) -> dict[str, Kind]:
        root = self._state()
        kinds: dict[str, Kind] = {**root.kinds, "name": "text"}
        if root.labels is not None:
            kinds["label"] = root.labels
        return kinds

    def count(self, where: str = "") -> int:
        if not where:
            return self._state().count
        return int(self._mask(where).sum())

    def column(self, name: str, where: str = "", *, start: int = 0, count: int | None = None) -> AnyArray:
        check_column(name, self.columns())
        part = slice(start, None if count is None else start + count)
        if self._mapped is not None:
            values = self._mapped.column(name)
        else:
            values = self._described().all_columns()[name]
        if not where:
            return values[part]
        return values[np.flatnonzero(self._mask(where))[part]]

    def classes(self) -> dict[str, int]:
        if "label" not in self.columns():
            return {}
        return counts_of_classes(self.column("label"))

    def get(self, names: Sequence[str]) -> Records:
        wanted = names_in(names)
        if self._mapped is not None:
            return self._mapped.records(self._rows_of(self._mapped, wanted))
        if self._index is not None and not self.writes:
            return self._index.records().pick([self._places[name] for name in wanted if name in self._places])
        with reading(self.path) as blobs:
            root = Root.read(blobs)
            blobs.check_sum()
            numbers = numbers_of(blobs, root, wanted)
            return records_at(blobs, root, [numbers[name] for name in wanted if name in numbers])

    def _rows_of(self, mapped: MappedSearch, names: Sequence[str]) -> Ints:
        """Return the rows of the items with these names; names that do not exist are skipped."""
        snapshot = mapped.snapshot
        if not self._places:
            # the file finds a few names by few of its parts, as long as it is what was opened
            with suppress(OSError, ValueError), reading(self.path) as blobs:
                if Root.read(blobs) == snapshot.root:
                    found = numbers_of(blobs, snapshot.root, names)
                    return np.searchsorted(snapshot.numbers, [found[name] for name in names if name in found])
            self._places = {name: row for row, name in enumerate(mapped.column("name").tolist())}
        return np.array([self._places[name] for name in names if name in self._places], dtype=np.int64)

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        if self._mapped is not None:
            return self._mapped.search(queries, k, where=where, group_by=group_by)
        return self.in_memory().search(queries, k, where=where, group_by=group_by)

    def search_words(self, words: str, k: int = 10, *, where: str = "") -> Records:
        from .words import WordIndex, words_in  # only a search by words needs it

        words_in(words)  # refuses what has no words before all texts are read
        check_k(k)
        kept = self._mask(where) if where else None
        if self._words is None:
            kinds = self.columns()
            texts = [self.column(name).tolist() for name in ["name", *kinds] if kinds[name] == "text"]
            self._words = WordIndex(map(" ".join, zip(*texts, strict=True)))
        rows = self._words.search(words)
        if kept is not None:
            rows = rows[kept[rows]]
        if self._mapped is not None:
            return self._mapped.records(rows[:k])
        return self.in_memory().records().pick(rows[:k])

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        self._change(Change(names_in(gone), records, dict(about or {}), engine))

    def remove(self, names: Sequence[str]) -> None:
        self._change(Change(gone=names_in(names), known=True))

    def change(self, *, about: Mapping[str, str] | None = None, engine: str = "") -> None:
        self._change(Change(about=dict(about or {}), engine=engine))

    def in_memory(self) -> Index:
        if self._index is None and self._mapped is not None:
            snapshot = replace(self._mapped.snapshot, vectors=self._mapped.rows(np.arange(len(self._mapped))))
            return Index._of(snapshot, self.path)  # not kept: it takes much memory
        if self._index is None:
            self._index = Index.load(self.path)
        return self._index

    def build(self) -> int:
        """Build the graph by which the file is searched from then on, and return how many items it has.

        If much of the file is of removed items, it is written again without them before.
        """
        self._check_writes()
        with reading(self.path) as blobs:
            wasteful = removed_share(blobs) > COMPACTED_FROM
        if wasteful:
            index = Index.load(self.path)
            new_file(self.path, index.records(), distance=self.distance, engine=self._state().engine, about=self.about)
            self._forget()
        return build_graph(self.path)

    def check(self) -> int:
        """Read all of the file, and return how many parts it has; raise a ValueError if one is damaged."""
        with reading(self.path) as blobs:
            metadata_of(read_snapshot(blobs))
            return blobs.check_all()

    def __repr__(self) -> str:
        size = f"{self.count():,} x {self.dimensions}"
        return f"FileStore {self.uri}: {size}, {self.distance}, engine {self.engine()}"

    def _state(self) -> Root:
        """Return what the collection has beside its items; it is read when it is needed after a change."""
        if self._root is None:
            with reading(self.path) as blobs:
                self._root = Root.read(blobs)
        return self._root

    def _described(self) -> Metadata:
        """Return names, labels and columns of all items."""
        if self._index is not None:
            return self._index._metadata()
        if self._metadata is None:
            root = self._state()
            with reading(self.path) as blobs:
                self._metadata = metadata_of(read_snapshot(blobs, since=root.next))  # without vectors
        return self._metadata

    def _mask(self, where: str) -> Bools:
        if self._mapped is not None:
            return self._mapped.mask(where)
        return mask(parse_filter(where, self.columns()), self._described().all_columns())

    def _has_graph(self, root: Root) -> bool:
        """Return whether a graph may be searched, which is beside the file."""
        return root.engine == "exact" and graph_of(self.path).exists()

    def _change(self, change: Change) -> None:
        """Write a change."""
        self._check_writes()
        check_fits(self._state(), change)  # first, because its messages say what the collection has
        change = checked_change(change)
        try:
            with changing(self.path) as blobs:
                make_change(blobs, change)
        finally:  # also after an error: an interrupt may have come after the change was written
            self._forget()

    def _forget(self) -> None:
        """Let what was read be read again when it is needed."""
        self._root = None
        self._metadata = None
        self._words = None
        self._index = None
