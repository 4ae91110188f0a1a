"""What collections in databases have in common: their state, search by groups, exact order of neighbors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..numerics.distances import pair_distances, unit_rows
from ..numerics.types import AnyArray, Array, Ints
from ..quoting import quoted
from .filters import Kind
from .groups import first_of_groups
from .index import Index
from .index_lock import Opened, index_lock
from .records import (
    PLURAL,
    Hits,
    Records,
    check_column,
    check_new,
    checked_about,
    checked_queries,
    counts_of_classes,
    no_records,
)

APPROXIMATE_FROM = 100_000
"""Items from which on a search is approximate; below, comparing a query with all of them takes less than 10 ms."""
T = TypeVar("T")


def retried(read: Callable[..., T]) -> Callable[..., T]:
    """Let a method that reads see the last change, and try once more if a writer replaces the items meanwhile."""

    @wraps(read)
    def reading(store: DatabaseStore, *args: Any, **options: Any) -> T:
        with store.turn:
            if store.writes:
                return read(store, *args, **options)
            store.refresh()
            try:
                return read(store, *args, **options)
            except OSError:
                if not _replaced(store):
                    raise
                return read(store, *args, **options)

    return reading


def _replaced(store: DatabaseStore) -> bool:
    """Return whether the items were changed; they were not where nothing is left to be read."""
    try:
        return store.refresh()
    except (OSError, ValueError):
        return False


class DatabaseStore(Opened, ABC):
    """A collection in a database. `Store` describes the methods; a database implements the abstract ones."""

    engines: Collection[str]
    """Its engines, beside the empty name, which lets it choose one."""
    owner: str
    """What the database is, for messages."""
    searches_words = False
    turn: AbstractContextManager[Any] = nullcontext()
    """What a thread holds while it reads, if another one must not read at the same time."""
    most_neighbors: int | None = None
    """Neighbors that the database returns for one query, if it has a limit."""

    _state: dict[str, Any]
    """What is stored beside the items: distance, engine, kind of labels, and `about`, what made the items."""

    def __init__(self, uri: str, *, writes: bool, lock: bool) -> None:
        self.uri = uri
        self.writes = writes
        self._held = ExitStack()
        try:
            if writes and lock:
                self._held.enter_context(index_lock(Path(uri), wait=0))
            self._open()
        except BaseException:
            self._held.close()
            raise

    @abstractmethod
    def _open(self) -> None:
        """Connect to the database, and read what the collection is."""

    @property
    def distance(self) -> str:
        return str(self._state["distance"])

    @property
    def about(self) -> dict[str, str]:
        return dict(self._state["about"])

    @property
    @abstractmethod
    def dimensions(self) -> int: ...

    @abstractmethod
    def engine(self) -> str: ...

    @abstractmethod
    def columns(self) -> dict[str, Kind]: ...

    @retried
    def count(self, where: str = "") -> int:
        return self._count(self._condition(where))

    @abstractmethod
    def column(self, name: str, where: str = "", *, start: int = 0, count: int | None = None) -> AnyArray: ...

    def classes(self) -> dict[str, int]:
        if "label" not in self.columns():
            return {}
        return counts_of_classes(self.column("label"))

    @abstractmethod
    def _count(self, condition: Any) -> int:
        """Return the number of items for which a condition holds."""

    @abstractmethod
    def _condition(self, where: str) -> Any:
        """Return a filter in the language of the database."""

    @abstractmethod
    def _nearest(self, x: AnyArray, condition: Any, k: int) -> Hits:
        """Return the k nearest items of each query for which the condition holds, with exact distances."""

    @abstractmethod
    def _everything(self) -> Records:
        """Return all items."""

    @abstractmethod
    def refresh(self) -> bool:
        """Read again what the last change has left; return whether that is another one than before."""

    @abstractmethod
    def _change(self) -> AbstractContextManager[dict[str, Any]]:
        """Make all of a block one change: yield the new state, and write it at the end of the block.

        If anything fails, the collection stays as it was.
        """

    @abstractmethod
    def _set_engine(self, state: dict[str, Any], engine: str) -> None:
        """Change the engine, unless it is empty, and build or remove what is due."""

    @classmethod
    def check_engine(cls, engine: str) -> None:
        """Raise a ValueError unless the database has this engine."""
        if engine not in ("", *cls.engines):
            raise ValueError(f"engine: expected {' or '.join(cls.engines)} for {cls.owner}, got {quoted(engine)}")

    def change(self, *, about: Mapping[str, str] | None = None, engine: str = "") -> None:
        new_about = self._checked(about, engine)
        with self._change() as state:
            state["about"] = {**state["about"], **new_about}
            self._set_engine(state, engine)

    def _checked(self, about: Mapping[str, str] | None, engine: str) -> dict[str, str]:
        """Return the new entries of `about`; raise a ValueError if the collection cannot be changed so."""
        self._check_writes()
        self.check_engine(engine)
        return checked_about(about)

    @retried
    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        x = checked_queries(queries, self.dimensions, k)
        condition = self._condition(where)
        most = self._count(condition)
        if not group_by:
            return self._nearest(x, condition, min(int(k), most))
        check_column(group_by, self.columns())
        if most == 0:
            return self._nearest(x, condition, 0)
        return self._nearest_groups(x, condition, group_by, int(k), most)

    def search_words(self, words: str, k: int = 10, *, where: str = "") -> Records:
        raise ValueError(f"words: {self.uri} cannot be searched by words; a file and PostgreSQL can")

    def _nearest_groups(self, x: AnyArray, condition: Any, group_by: str, k: int, most: int) -> Hits:
        """Search for more and more items until they belong to k groups."""
        # the database returns the columns of what it finds, so that no column is read for all items
        found: list[Hits] = []

        def search(count: int) -> Hits:
            found.append(self._nearest(x, condition, count))
            return found[-1]

        def column_found() -> AnyArray:
            return found[-1].records.column(group_by)

        if self.most_neighbors is not None:
            most = min(most, self.most_neighbors)
        hits: Hits = first_of_groups(search, column_found, k=k, most=most)
        return hits

    def in_memory(self) -> Index:
        records = self._everything()
        return Index(
            records.embeddings,
            names=records.names,
            labels=records.labels,
            distance=self.distance,
            about=self.about,
            columns=records.columns,
        )

    def __repr__(self) -> str:
        n, d = self.count(), self.dimensions
        return f"{type(self).__name__} {self.uri}: {n:,} x {d}, {self.distance}, engine {self.engine()}"

    def _check_new(self, records: Records, is_empty: bool) -> None:
        """Raise unless the records fit what the collection holds."""
        if is_empty:  # the first items decide on labels and columns
            check_new(records, dimensions=self.dimensions, labels=records.labels, columns={})
            return
        kind = self._state["labels"]
        check_new(records, dimensions=self.dimensions, labels=kind or None, columns=self.columns())
        if records.labels is not None and kind_of_labels(records) != kind:
            raise ValueError(f"labels: expected {PLURAL[kind]} as in the index")


def kind_of_labels(records: Records) -> str:
    """Return "number" or "text", or "" where the items have no labels."""
    if records.labels is None:
        return ""
    if records.labels.dtype.kind == "i":
        return "number"
    return "text"


def first_line(message: str) -> str:
    """Return the first line of a message of a database."""
    return next(iter(message.splitlines()), "no reason given")


def in_parts(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield values in parts of at most so many."""
    for start in range(0, len(values), most):
        yield values[start : start + most]


def as_compared(queries: AnyArray, distance: str) -> AnyArray:
    """Return queries as a database compares them: of unit length under the cosine, so that float32 holds squares."""
    if distance != "cosine":
        return queries
    return unit_rows(queries).astype(np.float32)


def ranked(x: AnyArray, records: Records, query_rows: Ints, k: int, distance: str) -> Hits:
    """Order what a database found by exact distances; ties keep the order of the database.

    Databases compare in float32, and some of them compressed rows, so that their own distances are approximate.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Queries.
    records : Records
        The m items that were found for all queries together.
    query_rows : ndarray of int, shape (m,)
        The query for which each item was found.
    k : int
        Number of neighbors of each query.
    distance : {"cosine", "euclidean", "sqeuclidean"}
    """
    distances: Array = np.full((len(x), k), np.inf)
    positions: Ints = np.full((len(x), k), -1, dtype=np.intp)
    if len(records):
        rows = np.arange(len(records))
        exact = pair_distances(x, records.embeddings, query_rows[:, None], rows[:, None], distance)[:, 0]
        # by query, then by distance; the place of an item is its position among those of its query
        order = np.lexsort((rows, exact, query_rows))
        place = np.arange(len(order)) - np.searchsorted(query_rows[order], query_rows[order])
        kept = place < k
        distances[query_rows[order][kept], place[kept]] = exact[order][kept]
        positions[query_rows[order][kept], place[kept]] = order[kept]
    return Hits(records, distances, positions)


def no_hits(queries: AnyArray, dimensions: int) -> Hits:
    """Return the result of a search in an empty collection."""
    empty = np.empty((len(queries), 0))
    return Hits(no_records(dimensions), empty, empty.astype(np.intp))
