"""What a collection in a database shares, whichever database it is: what it says of itself, groups, exact order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from ..numerics.distances import pair_distances
from ..numerics.types import AnyArray, Array, Ints
from .filters import Kind
from .groups import first_of_groups
from .index import Index
from .records import Hits, Records, check_there, checked_queries, nothing


class DatabaseStore(ABC):
    """A collection in a database. `Store` describes the methods; a database implements the abstract ones."""

    uri: str
    writes: bool
    most_neighbors: int | None = None
    """Neighbors that the database returns for one query, if it has a limit."""

    _told: dict[str, Any]
    """What the collection says of itself: its distance, engine, kind of labels, and what made its items."""

    _held: ExitStack
    """The lock of a writer."""

    @property
    def distance(self) -> str:
        return str(self._told["distance"])

    @property
    def about(self) -> dict[str, str]:
        return dict(self._told["about"])

    @property
    @abstractmethod
    def dimensions(self) -> int: ...

    @abstractmethod
    def columns(self) -> dict[str, Kind]: ...

    @abstractmethod
    def count(self, where: str = "") -> int: ...

    @abstractmethod
    def _condition(self, where: str) -> str | None:
        """Return a filter in the language of the database."""

    @abstractmethod
    def _nearest(self, x: AnyArray, condition: str | None, k: int) -> Hits:
        """Return the k nearest items of each query for which the condition holds, with exact distances."""

    @abstractmethod
    def _everything(self) -> Records:
        """Return all items."""

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        x = checked_queries(queries, self.dimensions, k)
        condition = self._condition(where)
        most = self.count(where)
        if not group_by:
            return self._nearest(x, condition, min(int(k), most))
        check_there(group_by, self.columns())
        if most == 0:
            return self._nearest(x, condition, 0)
        return self._nearest_groups(x, condition, group_by, int(k), most)

    def _nearest_groups(self, x: AnyArray, condition: str | None, group_by: str, k: int, most: int) -> Hits:
        """Search items until they are of k groups, whose column comes with them."""
        found: list[Hits] = []

        def search(count: int) -> Hits:
            found.append(self._nearest(x, condition, count))
            return found[-1]

        def column_found() -> AnyArray:
            records = found[-1].records
            if group_by == "name":
                return records.names
            if group_by == "label" and records.labels is not None:
                return records.labels
            return records.columns[group_by]

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

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_writes(self) -> None:
        if not self.writes:
            raise ValueError(f'{self.uri}: opened to be read; open it with mode="w" to change it')

    def _check_kind_of_labels(self, records: Records) -> None:
        expected = self._told["labels"]
        if records.labels is not None and kind_of_labels(records) != expected:
            raise ValueError(f"labels: expected {'numbers' if expected == 'number' else 'text'} as in the index")

    def _told_with(self, about: Mapping[str, str] | None) -> dict[str, Any]:
        """Return what the collection says of itself, with more or other words about what made its items."""
        return {**self._told, "about": {**self._told["about"], **(about or {})}}


def kind_of_labels(records: Records) -> str:
    """Return "number" or "text", or "" where the items have no labels."""
    if records.labels is None:
        return ""
    return "number" if records.labels.dtype.kind == "i" else "text"


def ranked(x: AnyArray, records: Records, asked: Ints, k: int, distance: str) -> Hits:
    """Order what was found by exact distances, ties as it came.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Queries.
    records : Records
        What was found for all of them, m items.
    asked : ndarray of int, shape (m,)
        By which query each was found.
    k : int
        Places for each query.
    distance : {"cosine", "euclidean", "sqeuclidean"}
    """
    distances: Array = np.full((len(x), k), np.inf)
    positions: Ints = np.full((len(x), k), -1, dtype=np.intp)
    if len(records):
        rows = np.arange(len(records))
        exact = pair_distances(x, records.embeddings, asked[:, None], rows[:, None], distance)[:, 0]
        order = np.lexsort((rows, exact, asked))
        place = np.arange(len(order)) - np.searchsorted(asked[order], asked[order])
        kept = place < k
        distances[asked[order][kept], place[kept]] = exact[order][kept]
        positions[asked[order][kept], place[kept]] = order[kept]
    return Hits(records, distances, positions)


def no_hits(queries: AnyArray, dimensions: int) -> Hits:
    """Return the result of a search in an empty collection."""
    empty = np.empty((len(queries), 0))
    return Hits(nothing(dimensions), empty, empty.astype(np.intp))
