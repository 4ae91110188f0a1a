"""`Index`: a collection of embeddings with names, labels and columns, in memory and in one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..io.uris import is_folder
from ..neighbors.near_pairs import Groups, NearPairs, groups_apart, groups_within, nearest_pairs
from ..neighbors.nearest import Gallery
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Array, Ints
from ..quoting import quoted
from .approximate import Approximate, check_recipe
from .blob_file import naming, parsing, reading
from .collection_file import Snapshot, new_file, read_snapshot
from .filtered import Filtered
from .filters import mask, parse_filter
from .groups import first_of_groups, numbered
from .index_lock import WAIT, holds_lock, index_lock
from .records import (
    Columns,
    Hits,
    Records,
    check_different,
    check_known,
    checked_about,
    checked_columns,
    checked_embeddings,
    checked_labels,
    checked_names,
    checked_queries,
    column_kinds,
    isin_few,
    joined_columns,
    joined_labels,
    names_in,
    picked_columns,
    those_of,
)

MAX_FILTERED = 2  # filters that are kept for the next search, perhaps with a copy of the items that meet them


class Index:
    """A collection of embeddings with names and labels, which you can search, change and save.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors; they are stored as float32. An array of shape (0, d) makes an empty index.
    names : sequence of str, optional
        Name of each item; all must be different. By default, "0", "1", and so on.
    labels : sequence of int or str, optional
        Class of each item.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which items are compared: cosine for networks, Euclidean for learners on tables.
    engine : str
        "exact", or a faiss index factory string with its search parameters, such as "HNSW32;efSearch=64" or
        "IVF256,Flat;nprobe=16" (needs the extra `ann`). An approximate index is built at the first search, and again
        after a change.
    about : dict of str, optional
        Text that is saved with the index.
    columns : dict of str to sequence, optional
        Values for filters and groups, such as a price or a product, one per item: numbers (NaN if missing) or text.

    Attributes
    ----------
    embeddings : ndarray of float32, shape (n, d)
        The embeddings.
    names : ndarray of str, shape (n,)
        Name of each item.
    labels : ndarray of int64 or str, shape (n,), or None
        Class of each item.
    columns : dict of str to ndarray of float64 or str, shape (n,)
        Values for filters and groups.

    Raises
    ------
    ValueError
        If lengths differ, a name occurs twice, rows are not finite, or the distance or engine is unknown.

    Notes
    -----
    Memory of the exact engine: twice the embeddings, and at most 256 MB during a search (1 GB of a large collection).
    If a filter is used often, the items that meet it are copied, so that they take as much memory again; the index
    keeps copies for two filters.

    Examples
    --------
    >>> index = Index([[1.0, 0.0], [0.0, 1.0]], names=["east", "north"], labels=["x", "y"])
    >>> found = index.search([[0.2, 0.9]], k=1)
    >>> str(index.labels[found.positions[0, 0]])
    'y'
    >>> index.add([[-1.0, 0.0]], names=["west"], labels=["x"])
    >>> len(index)
    3
    """

    def __init__(
        self,
        embeddings: Any,
        *,
        names: Any = None,
        labels: Any = None,
        distance: str = "cosine",
        engine: str = "exact",
        about: dict[str, str] | None = None,
        columns: Columns | None = None,
    ) -> None:
        rows = checked_embeddings(embeddings).copy()
        metadata = checked_metadata(
            len(rows), names=names, labels=labels, distance=distance, engine=engine, about=about, columns=columns
        )
        self._hold(rows, metadata)

    def _hold(self, rows: AnyArray, metadata: Metadata) -> None:
        """Store everything, which is checked; `rows` are not copied, so that nobody else may change them."""
        self.embeddings = rows
        self.names = metadata.names
        self.labels = metadata.labels
        self.columns = metadata.columns
        self.distance = metadata.distance
        self.engine = metadata.engine
        self.about = metadata.about
        self._engine: Gallery | Approximate | None = None
        self._filters: dict[str, Filtered] = {}

    def _metadata(self) -> Metadata:
        return Metadata(self.names, self.labels, self.columns, self.distance, self.engine, self.about)

    def __len__(self) -> int:
        return len(self.embeddings)

    def __repr__(self) -> str:
        n, d = self.embeddings.shape
        return f"Index of {n:,} x {d}, {self.distance}, engine {self.engine}"

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        """Find the k nearest items of each query, or all items if there are fewer.

        Parameters
        ----------
        queries : array-like of shape (n, d)
            Embeddings of the queries.
        k : int
            Number of neighbors, at least 1.
        where : str
            Filter, such as ``price < 10 and shop == "a"``: only items for which it holds are searched. It can use the
            columns of the index, ``name`` and ``label``. A search with a filter is exact with every engine.
        group_by : str
            Column by which items are grouped, such as a product: only the nearest item of each value is returned. Items
            without a value are groups of their own.

        Returns
        -------
        Hits
            Names, distances and positions, nearest first. An approximate engine, or groups, may give some queries fewer
            than k: their last positions are then -1, their names empty, and `counts` is their number.

        Raises
        ------
        ValueError
            If the queries do not have as many columns as the index or are not finite, k is below 1, or a column does
            not exist.

        Examples
        --------
        >>> index = Index([[1, 0], [1, 1], [0, 1]], columns={"price": [5, 20, 7]}, names=["a", "b", "c"])
        >>> index.search([[1, 1]], k=2, where="price < 10").names.tolist()
        [['a', 'c']]
        """
        x = checked_queries(queries, self.embeddings.shape[1], k)
        nearest: Callable[[AnyArray, int], tuple[Array, Ints]]
        if where:
            filtered = self._filtered(where)
            most = len(filtered)
            everything = self._engine if isinstance(self._engine, Gallery) else None
            nearest = partial(filtered.nearest, everything=everything)
        else:
            most = len(self)
        columns = self.all_columns()
        if group_by and group_by not in columns:
            raise ValueError(f"group_by: there is no column {quoted(group_by)}; there are {', '.join(columns)}")
        if most == 0:
            return Hits(self.records(), np.empty((len(x), 0)), np.empty((len(x), 0), dtype=np.intp))
        if not where:
            nearest = self._engine_of_all().nearest

        def found(count: int) -> Hits:
            return Hits(self.records(), *nearest(x, count))

        if not group_by:
            return found(min(int(k), most))
        grouped: Hits = first_of_groups(found, lambda: columns[group_by], k=int(k), most=most)
        return grouped

    def records(self) -> Records:
        """Return all items as records, which share the memory of the index."""
        return Records(self.names, self.embeddings, self.labels, self.columns)

    def all_columns(self) -> dict[str, AnyArray]:
        """Return the columns that filters and groups can use: those of the index, the names and the labels."""
        return self._metadata().all_columns()

    def duplicates(self, within: float, *, group_by: str = "") -> Groups:
        """Group items that are within a distance of each other, directly or through a chain; exact with every engine.

        Parameters
        ----------
        within : float
            Maximum distance, at least 0, in the distance of the index. `closest` helps to choose it.
        group_by : str
            Column whose equal values mark items that are alike anyway, such as photos of one object: pairs of these are
            left out.

        Returns
        -------
        Groups
            ``numbers`` (n,), the group of each item, -1 for items that are close to no other, and ``distances`` (n,) to
            the nearest other item.

        Raises
        ------
        ValueError
            If the distance is negative, or joins more than two million pairs, or there is no such column.
        """
        if len(self) == 0:
            return Groups(np.empty(0, dtype=np.intp), np.empty(0))
        if not group_by:
            return groups_within(self.embeddings, within, distance=self.distance)
        columns = self.all_columns()
        if group_by not in columns:
            raise ValueError(f"group_by: there is no column {quoted(group_by)}; there are {', '.join(columns)}")
        return groups_apart(self.embeddings, within, numbered(columns[group_by]), distance=self.distance)

    def closest(self, k: int = 20) -> NearPairs:
        """Find the k closest pairs of items, exactly.

        Parameters
        ----------
        k : int
            Number of pairs.

        Returns
        -------
        NearPairs
            ``i``, ``j`` and ``distances`` of shape (k,), closest first.
        """
        if len(self) == 0:
            return NearPairs(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0))
        return nearest_pairs(self.embeddings, k, distance=self.distance)

    def add(self, embeddings: Any, *, names: Any = None, labels: Any = None, columns: Columns | None = None) -> None:
        """Append items.

        Parameters
        ----------
        embeddings : array-like of shape (m, d)
            Embeddings of the new items.
        names : sequence of str, optional
            Their names. By default, they are numbered.
        labels : sequence of int or str, optional
            Their classes; needed if the index has labels, and refused if it has none. The first items of an empty
            index decide.
        columns : dict of str to sequence, optional
            Their columns. Columns that the index or the new items lack are filled with NaN or empty text.

        Raises
        ------
        ValueError
            As on construction; the index is then unchanged.
        """
        rows = checked_embeddings(embeddings)
        if rows.shape[1] != self.embeddings.shape[1]:
            expected = self.embeddings.shape[1]
            raise ValueError(f"embeddings: expected {expected} columns as in the index, got {rows.shape[1]}")
        if len(rows) == 0:
            return
        first = len(self) == 0
        if labels is None and self.labels is not None and not first:
            raise ValueError("labels: the index has labels, the new items have none")
        if labels is not None and self.labels is None and not first:
            raise ValueError("labels: the index has no labels, the new items have some")
        called = checked_names(names, len(rows), self.names)
        check_different(np.concatenate([those_of(self.names, called), called]))
        new = checked_labels(labels, len(rows))
        more = checked_columns(columns, len(rows))
        old = {name: values for name, values in self.columns.items() if not (first and name in more)}
        all_columns = joined_columns(old, len(self), more, len(rows))
        if first:
            self.labels = new
        elif self.labels is not None and new is not None:
            self.labels = joined_labels(self.labels, new)
        self.columns = all_columns
        self.embeddings = np.concatenate([self.embeddings, rows])
        self.names = np.concatenate([self.names, called])
        self._forget()

    def remove(self, names: Any) -> None:
        """Remove items.

        Parameters
        ----------
        names : str or collection of str
            Names of the items to remove.

        Raises
        ------
        ValueError
            If a name is not in the index.
        """
        gone = np.asarray(names_in(names), dtype=np.str_)
        check_known(gone.tolist(), self.names)
        keep = ~isin_few(self.names, gone)
        self.embeddings = self.embeddings[keep]
        self.names = self.names[keep]
        self.labels = None if self.labels is None else self.labels[keep]
        self.columns = picked_columns(self.columns, keep)
        self._forget()

    def save(self, path: str | os.PathLike[str], *, wait: float = WAIT) -> None:
        """Write the index to one file in the safetensors format, completely or not at all.

        Changes that others have written to the file since it was loaded are replaced: use `updating` to prevent that.

        Parameters
        ----------
        path : path
            File to write.
        wait : float
            Number of seconds to wait for another process, or another thread, that changes the same index.

        Raises
        ------
        TimeoutError
            If another one still changes it.
        ValueError
            If the path is not that of a regular file.
        OSError
            If the file cannot be written.
        """
        with ExitStack() as held:
            if not holds_lock(Path(path)):  # as it does in the block of `updating`
                held.enter_context(index_lock(Path(path), wait=wait))
            self._write(path)

    def _write(self, path: str | os.PathLike[str]) -> None:
        """Write the file; the caller holds the lock."""
        records = Records(self.names, self.embeddings, self.labels, checked_columns(self.columns, len(self)))
        about = checked_about(self.about)
        new_file(Path(path), records, distance=self.distance, engine=self.engine, about=about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Index:
        """Read an index that `save` wrote; nothing in the file is executed.

        Parameters
        ----------
        path : path
            File to read.

        Returns
        -------
        Index

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If the file is not an index, or is damaged.
        """
        if is_folder(path):
            raise ValueError(f"{os.fspath(path)} is a folder of LanceDB; nearfar.index.open opens it")
        with reading(Path(path)) as blobs:
            snapshot = read_snapshot(blobs)
        return cls._of(snapshot, path)

    @classmethod
    def _of(cls, snapshot: Snapshot, path: str | os.PathLike[str]) -> Index:
        """Return the index with the items of a file."""
        with naming(Path(path)), parsing():
            metadata = metadata_of(snapshot)
            check_different(metadata.names)
            rows = checked_embeddings(snapshot.vectors)
        index = cls.__new__(cls)
        index._hold(rows, metadata)
        return index

    @classmethod
    @contextmanager
    def updating(cls, path: str | os.PathLike[str], *, wait: float = WAIT) -> Iterator[Index]:
        """Load an index, and save it at the end of the block, while other processes wait that want to change it.

        ``nearfar index`` waits too. Nothing is saved if the block raises.

        Parameters
        ----------
        path : path
            File of the index.
        wait : float
            Number of seconds to wait for another process that changes the same index.

        Yields
        ------
        Index

        Raises
        ------
        TimeoutError
            If another process still changes it.
        FileNotFoundError, ValueError, OSError
            As for `load` and `save`.

        Examples
        --------
        >>> with Index.updating("photos.index") as index:  # doctest: +SKIP
        ...     index.remove(["blurred.jpg"])
        """
        with index_lock(Path(path), wait=wait):
            index = cls.load(path)
            yield index
            index._write(path)

    def _engine_of_all(self) -> Gallery | Approximate:
        """Return what searches all items, and build it at the first search."""
        engine = self._engine  # a local name: another thread may set the attribute to None meanwhile
        if engine is None:
            if self.engine == "exact":
                engine = Gallery(self.embeddings, self.distance)
            else:
                engine = Approximate(self.embeddings, self.distance, self.engine)
            self._engine = engine
        return engine

    def _filtered(self, where: str) -> Filtered:
        """Return the items that meet a filter."""
        ready = self._filters
        if where in ready:
            return ready[where]
        columns = self.all_columns()
        meets = mask(parse_filter(where, column_kinds(columns)), columns)
        filtered = Filtered(self.embeddings, meets, self.distance)
        # the latest filters are kept in a new dict, because other threads may be reading the old one
        kept = list(ready.items())[-MAX_FILTERED + 1 :]
        self._filters = {**dict(kept), where: filtered}
        return filtered

    def _forget(self) -> None:
        """Drop what was built for searching, because the items have changed."""
        self._engine = None
        self._filters = {}


@dataclass
class Metadata:
    """Everything in an index except its embeddings; see `Index`."""

    names: AnyArray
    labels: AnyArray | None
    columns: dict[str, AnyArray]
    distance: str
    engine: str
    about: dict[str, str]

    def all_columns(self) -> dict[str, AnyArray]:
        """Return the columns that filters and groups can use: those of the index, the names and the labels."""
        columns = {**self.columns, "name": self.names}
        if self.labels is not None:
            columns["label"] = self.labels
        return columns


def checked_metadata(
    n: int,
    *,
    names: Any,
    labels: Any,
    distance: str,
    engine: str,
    about: dict[str, str] | None,
    columns: Columns | None,
) -> Metadata:
    """Check everything of an index of n items except its embeddings; raise a ValueError for what does not fit."""
    metadata = Metadata(
        names=checked_names(names, n),
        labels=checked_labels(labels, n),
        columns=checked_columns(columns, n),
        distance=check_distance(distance),
        engine=engine,
        about=checked_about(about),
    )
    if engine != "exact":
        check_recipe(engine)
    check_different(metadata.names)
    return metadata


def metadata_of(snapshot: Snapshot) -> Metadata:
    """Return everything that was read of a collection except the embeddings."""
    root = snapshot.root
    return Metadata(
        names=snapshot.names.array(),
        labels=None if snapshot.labels is None else snapshot.labels.array(),
        columns=checked_columns({name: values.array() for name, values in snapshot.columns.items()}, len(snapshot)),
        distance=root.distance,
        engine=root.engine,
        about=dict(root.about),
    )
