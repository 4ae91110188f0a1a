"""Search of a large collection by a graph, whose file has the vectors; they are not copied into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..neighbors.nearest import Gallery, nearest
from ..numerics.distances import pair_distances
from ..numerics.types import AnyArray, Array, Bools, Ints
from .blob_file import naming
from .collection_file import Snapshot
from .filters import Kind, mask, parse_filter
from .graph_file import MappedGraph
from .groups import first_of_groups
from .records import Hits, Records, check_column, checked_queries

PER_NEIGHBOR = 2  # candidates of the graph for each neighbor that is wanted; exact distances order them
EXACT_SHARE = 0.1
"""Share of the items below which those that meet a filter are searched exactly: a graph finds few of them."""
KEPT_BYTES = 2**26  # of vectors that meet a filter, which are kept for the next search: 64 MB
COMPARED_BYTES = 2**25  # of vectors that are compared at a time: 32 MB
MOST_ROUNDS = 3  # in which a graph is asked for four times as many candidates, before all items are searched


class MappedSearch:
    """The items of a collection as they were when it was opened, searched by a graph.

    Parameters
    ----------
    path : Path
        File of the collection, which messages name.
    snapshot : Snapshot
        All items, with the vectors of those that are newer than the graph.
    graph : MappedGraph
        The graph.
    """

    def __init__(self, path: Path, snapshot: Snapshot, graph: MappedGraph) -> None:
        self.path = path
        self.snapshot = snapshot
        self.graph = graph
        n = len(snapshot)
        self.old = n - len(snapshot.vectors)  # items that the graph has
        # numbers of items increase in both: where the vector of each old item is in the graph, (old,)
        if np.array_equal(graph.numbers, snapshot.numbers[: self.old]):  # none was removed: no search of a million
            self.places = np.arange(self.old)
        else:
            self.places = np.searchsorted(graph.numbers, snapshot.numbers[: self.old])
        # searchsorted finds a place also for a number that is missing there
        if not np.array_equal(graph.numbers[self.places], snapshot.numbers[: self.old]):
            raise ValueError("the graph beside the index is of another one; delete it, or build it again with --build")
        self.row_of = np.full(len(graph.numbers), -1, dtype=np.int64)  # of each vector of the graph; -1 if it is gone
        self.row_of[self.places] = np.arange(self.old)
        self._nothing = self.records(np.empty(0, dtype=np.int64))
        self._columns: dict[str, AnyArray] = {}
        self._filtered: tuple[str, Ints, Gallery | None] | None = None

    def __len__(self) -> int:
        return len(self.snapshot)

    def kinds(self) -> dict[str, Kind]:
        """Return the kinds of all columns that filters and groups can use."""
        root = self.snapshot.root
        kinds: dict[str, Kind] = {**root.kinds, "name": "text"}
        if root.labels is not None:
            kinds["label"] = root.labels
        return kinds

    def column(self, name: str) -> AnyArray:
        """Return one column of all items; that of names is not kept, because it is large."""
        check_column(name, self.kinds())
        if name in self._columns:
            return self._columns[name]
        stored = {**self.snapshot.columns, "name": self.snapshot.names, "label": self.snapshot.labels}[name]
        assert stored is not None  # since `kinds` has the column
        with naming(self.path):
            found = stored.array()
        if name != "name":
            self._columns = {**self._columns, name: found}
        return found

    def mask(self, where: str) -> Bools:
        """Return whether each item meets a filter."""
        tree = parse_filter(where, self.kinds())
        return mask(tree, _Lazily(self))

    def rows(self, items: Ints) -> AnyArray:
        """Return the vectors of some items."""
        old = items < self.old
        found = np.empty((len(items), self.snapshot.root.dimensions), dtype=np.float32)
        found[old] = self.graph.rows(self.places[items[old]])
        found[~old] = self.snapshot.vectors[items[~old] - self.old]
        return found

    def records(self, items: Ints, rows: AnyArray | None = None) -> Records:
        """Return some items, whose vectors may be known already."""
        snapshot = self.snapshot
        labels = snapshot.labels
        with naming(self.path):
            return Records(
                names=snapshot.names[items],
                embeddings=self.rows(items) if rows is None else rows,
                labels=None if labels is None else labels[items],
                columns={name: values[items] for name, values in snapshot.columns.items()},
            )

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        """Find the k nearest items of each query; see `Index.search`."""
        x = checked_queries(queries, self.snapshot.root.dimensions, k)
        if group_by:
            check_column(group_by, self.kinds())
        if len(x) == 1 and not (where or group_by):
            one = self._one(x, int(k))
            if one is not None:
                return one
        kept = self._kept(where) if where else None
        most = len(self) if kept is None else len(kept)
        nothing = self._nothing
        if most == 0:
            return Hits(nothing, np.empty((len(x), 0)), np.empty((len(x), 0), dtype=np.intp))

        def found(count: int) -> Hits:
            return Hits(nothing, *self._nearest(x, count, kept, where))  # the records follow when all are found

        if group_by:
            hits: Hits = first_of_groups(found, lambda: self.column(group_by), k=int(k), most=most)
        else:
            hits = found(min(int(k), most))
        # each found item is read once, however many queries it answers
        items, positions = np.unique(hits.positions, return_inverse=True)
        positions = positions.reshape(hits.positions.shape)
        if len(items) and items[0] < 0:  # where nothing was found
            items = items[1:]
            positions = positions - 1
        return Hits(self.records(items), hits.distances, positions)

    def _one(self, x: AnyArray, k: int) -> Hits | None:
        """Return what `search` does for one query, in half of its time; None if the graph alone does not answer it."""
        wanted = PER_NEIGHBOR * k
        if self.old < len(self) or wanted * 4 > len(self.graph.vectors):
            return None
        places = self.graph.candidates(x, wanted)[0]
        items = self.row_of[places[places >= 0]]
        items = items[items >= 0]
        if len(items) < min(k, len(self)):
            return None
        rows = self.graph.rows(self.places[items])
        distances = pair_distances(
            x, rows, np.zeros(len(items), dtype=np.int64), np.arange(len(items)), self.snapshot.root.distance
        )
        nearest_first = np.lexsort((items, distances))[:k]
        records = self.records(items[nearest_first], rows[nearest_first])
        return Hits(records, distances[None, nearest_first], np.arange(len(nearest_first))[None])

    def _kept(self, where: str) -> Ints:
        """Return the items that meet a filter; those of the last one are known."""
        last = self._filtered
        if last is not None and last[0] == where:
            return last[1]
        kept = np.flatnonzero(self.mask(where))
        self._filtered = (where, kept, None)
        return kept

    def _nearest(self, x: AnyArray, k: int, kept: Ints | None, where: str) -> tuple[Array, Ints]:
        """Return distances and items, (n, k) each."""
        if kept is None:
            return self._by_graph(x, k, None)
        if len(kept) > EXACT_SHARE * len(self):
            return self._by_graph(x, k, kept)
        if 4 * len(kept) * x.shape[1] > KEPT_BYTES:
            return self._exactly(x, k, kept)
        last = self._filtered
        gallery = last[2] if last is not None and last[0] == where else None
        if gallery is None:
            gallery = Gallery(self.rows(kept), self.snapshot.root.distance)
            self._filtered = (where, kept, gallery)
        distances, positions = gallery.nearest(x, k)
        return distances, kept[positions]

    def _by_graph(self, x: AnyArray, k: int, kept: Ints | None) -> tuple[Array, Ints]:
        """Search by the graph, and compare what it finds, and the items that are newer, exactly."""
        meets = None
        share = 1.0
        newer = np.arange(self.old, len(self))
        if kept is not None:
            meets = np.zeros(len(self), dtype=bool)
            meets[kept] = True
            share = len(kept) / len(self)
            newer = newer[meets[self.old :]]
        # of the candidates, only a share meets the filter: more are asked for, so that k are left
        wanted = int(PER_NEIGHBOR * k / share)
        for _ in range(MOST_ROUNDS):
            # a quarter of all vectors: comparing all of them is as quick, and exact
            if wanted * 4 > len(self.graph.vectors):
                break
            places = self.graph.candidates(x, wanted)
            items = np.where(places >= 0, self.row_of[places], -1)  # (n, wanted)
            if meets is not None:
                items[~meets[items]] = -1
            # enough of them for every query, or all that there are
            if ((items >= 0).sum(axis=1) >= min(k, self.old)).all():
                return self._ordered(x, k, items, newer)
            wanted *= 4
        return self._exactly(x, k, np.arange(len(self)) if kept is None else kept)

    def _ordered(self, x: AnyArray, k: int, items: Ints, newer: Ints) -> tuple[Array, Ints]:
        """Return the k nearest among some items for each query, (n, m), and items for all of them."""
        distance = self.snapshot.root.distance
        different, at = np.unique(items, return_inverse=True)
        # the graph has rounded vectors: distances are computed again from exact ones, (u, d) for u different items
        rows = self.rows(np.maximum(different, 0))
        queries = np.broadcast_to(np.arange(len(x))[:, None], items.shape)
        distances = pair_distances(x, rows, queries, at.reshape(items.shape), distance)
        distances[items < 0] = np.inf
        if len(newer):
            near, places = nearest(x, self.rows(newer), min(k, len(newer)), distance=distance)
            distances = np.concatenate([distances, near], axis=1)
            items = np.concatenate([items, newer[places]], axis=1)
        return _first(distances, items, k)

    def _exactly(self, x: AnyArray, k: int, kept: Ints) -> tuple[Array, Ints]:
        """Compare the queries with all of some items, block by block."""
        distance = self.snapshot.root.distance
        distances = np.empty((len(x), 0))
        items = np.empty((len(x), 0), dtype=np.int64)
        for part in _blocks(kept, max(k, COMPARED_BYTES // (4 * x.shape[1]))):
            near, places = nearest(x, self.rows(part), min(k, len(part)), distance=distance)
            # the k nearest so far, (n, k), and those of the next block
            distances, items = _first(
                np.concatenate([distances, near], axis=1), np.concatenate([items, part[places]], axis=1), k
            )
        return distances, items


class _Lazily(dict[str, AnyArray]):
    """The columns of a collection, each of which is made when a filter reads it."""

    def __init__(self, items: MappedSearch) -> None:
        super().__init__()
        self.items_of = items

    def __missing__(self, name: str) -> AnyArray:
        return self.items_of.column(name)


def _blocks(items: Ints, size: int) -> Iterator[Ints]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _first(distances: Array, items: Ints, k: int) -> tuple[Array, Ints]:
    """Return the k smallest distances of each row and their items; equal ones in the order of the items."""
    # lexsort sorts by its last key first: by distance, then by item
    order = np.lexsort((items, distances))[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(items, order, axis=1)
