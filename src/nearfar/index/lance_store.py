"""A collection in a folder of LanceDB: its approximate index stays on disk, and grows and shrinks with the items.

The folder holds the table of the items, and ``collection.json``, which says what made them, and names the table and its
version that count. A change may take several commits of LanceDB, which make new versions of the table. All of them
count once ``collection.json`` is renamed into its place. If that does not happen, readers stay with the version before,
which the next writer restores.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.atomic_files import atomic_write
from ..io.untrusted import Unreadable, read_file
from ..io.uris import COLLECTION
from ..labels import holds_texts, text_array
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Bools, Ints
from ..quoting import PATH, shorten
from .database_state import FORMAT, Fields, is_count, is_identifier, is_switch, one_of, parsed_state
from .database_store import (
    APPROXIMATE_FROM,
    DatabaseStore,
    as_compared,
    first_line,
    in_parts,
    kind_of_labels,
    no_hits,
    ranked,
    retried,
)
from .filters import Kind, parse_filter, sql, sql_value
from .index_lock import index_lock
from .records import (
    Hits,
    Records,
    check_column,
    check_known,
    checked_about,
    names_in,
    no_records,
    with_columns,
)

MAX_ABOUT = 2**24  # bytes of collection.json
METRICS: dict[str, Any] = {"cosine": "cosine", "euclidean": "l2", "sqeuclidean": "l2"}
ENGINES = ("exact", "ivf")
FIELDS: Fields = {
    "table": is_identifier,
    "version": is_count,
    "extreme": is_switch,
    "engine": one_of("", *ENGINES),
    "probes": is_count,
    "recall": lambda value: value is None or type(value) in (int, float),
}

RECALL = 0.95  # recall@10 that an approximate index must reach on items drawn from the collection
DRAWN = 100  # number of these items
REFRESHED_SHARE = 0.1
"""Share of the items that may be outside the approximate index, which LanceDB then searches one by one."""
MAX_FRAGMENTS = 30  # files of a table, each of which a search opens, before small ones are merged
KEPT_VERSIONS = timedelta(days=1)  # for readers that are using an older version of the table
QUERIES = 64  # queries in one request
NAMES = 2000  # names in one condition
EXTREME = "extreme length"
"""Field of collections that are compared by cosine: whether the float32 cosine of LanceDB is wrong for an item, or does
not exist. We compare such items ourselves. A column that users name has no space."""
ORDINARY_LENGTHS = (1e-15, 1e15)  # of rows; their squares, and products of these, are far from the limits of float32


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


class LanceStore(DatabaseStore):
    """A collection in a folder of LanceDB; see `Store`. A reader sees every change that is complete."""

    engines = ENGINES
    owner = "a folder of LanceDB"

    def __init__(self, path: Path, *, writes: bool = False, lock: bool = True) -> None:
        self.path = path
        super().__init__(str(path), writes=writes, lock=lock)

    def _open(self) -> None:
        self._seen = status_of(self.path / COLLECTION)
        self._state = _read_about(self.path)
        self._db = _connected(self.path)
        self._table = self._opened(self._state)
        if self.writes:
            self._remove_old_tables()

    @classmethod
    def create(
        cls, path: Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> LanceStore:
        """Write a new table, replace an existing one with it, and open it for writing."""
        check_distance(distance)
        cls.check_engine(engine)
        about = checked_about(about)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path}: expected a folder of LanceDB, got a file; choose another name")
        if path.is_dir() and any(path.iterdir()) and not (path / COLLECTION).is_file():
            raise ValueError(f"{path}: holds something else than a collection of nearfar; choose another name")
        with ExitStack() as held:
            if lock:
                held.enter_context(index_lock(path, wait=0))
            with removed_on_failure(path):
                state = {
                    "format": FORMAT,
                    "distance": distance,
                    "engine": engine,
                    "probes": 0,
                    "recall": None,
                    "about": about,
                }
                with lance_errors(str(path)):
                    table = _make_table(_connected(path), state, records)
                    _build(table, state)
                    state["version"] = table.version
                _write_about(path, state)
            store = cls(path, writes=True, lock=False)
            store._held.push(held.pop_all())
        return store

    def refresh(self) -> bool:
        seen = status_of(self.path / COLLECTION)
        if seen is None:
            raise FileNotFoundError(f"{self.uri}: the collection that was opened is gone")
        if seen == self._seen:
            return False
        state = _read_about(self.path)
        self._table = self._opened(state)
        self._state = state
        self._seen = seen
        return True

    def _opened(self, state: Mapping[str, Any]) -> Any:
        """Open the version of the table that a state names."""
        with lance_errors(self.uri):
            table = self._db.open_table(state["table"])
            table.checkout(state["version"])
        return table

    @contextmanager
    def _change(self) -> Iterator[dict[str, Any]]:
        state = dict(self._state)
        try:
            with lance_errors(self.uri):
                self._table.checkout_latest()
                if self._table.version != state["version"]:  # a change before this one was not completed
                    self._table.checkout(state["version"])
                    self._table.restore()
                yield state
                state["version"] = self._table.version
            _write_about(self.path, state)
            self._state = state
        except BaseException:
            with suppress(OSError, ValueError):
                self._state = _read_about(self.path)  # the new one, if an interrupt came after it was written
                self._table = self._opened(self._state)
            raise

    @property
    @retried
    def dimensions(self) -> int:
        with lance_errors(self.uri):
            return int(self._table.schema.field("embedding").type.list_size)

    def engine(self) -> str:
        probes = self._state["probes"]
        if not probes:
            return "exact"
        recall = self._state["recall"]
        return f"approximate (ivf, {probes} lists looked into; recall@10 {recall:.3f} when it was built)"

    @retried
    def columns(self) -> dict[str, Kind]:
        with lance_errors(self.uri):
            fields = [field for field in self._table.schema if field.name not in ("embedding", EXTREME)]
        return {field.name: "text" if str(field.type).endswith("string") else "number" for field in fields}

    def _count(self, condition: str | None) -> int:
        with lance_errors(self.uri):
            return int(self._table.count_rows(condition))

    @retried
    def column(self, name: str, where: str = "", *, start: int = 0, count: int | None = None) -> AnyArray:
        check_column(name, self.columns())
        condition = self._condition(where)
        with lance_errors(self.uri):
            rest = max(0, self._table.count_rows() - start)
            wanted = rest if count is None else min(count, rest)
            query = self._table.search().select([name]).limit(max(1, wanted)).offset(start)  # 0 is no limit
            if condition:
                query = query.where(condition)
            rows = query.to_arrow().slice(0, wanted)
        return _from_arrow(rows, name)

    @retried
    def get(self, names: Sequence[str]) -> Records:
        wanted = names_in(names)
        with lance_errors(self.uri):
            parts = [
                self._table.search().where(_named(part)).limit(len(part)).to_arrow() for part in in_parts(wanted, NAMES)
            ]
        if not any(len(part) for part in parts):
            return no_records(self.dimensions)
        import pyarrow

        return self._records(pyarrow.concat_tables(parts)).named(wanted)

    def _nearest(self, x: AnyArray, condition: str | None, k: int) -> Hits:
        """Ask LanceDB for neighbors, and give them their exact distances."""
        if k == 0:
            return no_hits(x, self.dimensions)
        import pyarrow

        found = [*self._found(as_compared(x, self.distance), condition, k)]
        records = self._records(pyarrow.concat_tables([rows for rows, _ in found]))
        query_rows = np.concatenate([numbers for _, numbers in found])
        return ranked(x, records, query_rows, k, self.distance)

    def _found(self, x: AnyArray, condition: str | None, k: int) -> Iterator[tuple[Any, Ints]]:
        """Yield rows that LanceDB finds, and the query (m,) for which each of them was found.

        Under the cosine, `x` are unit rows. It is then undefined in LanceDB for queries and items of length zero, and
        wrong for items whose squares float32 cannot hold.
        """
        every = np.arange(len(x))
        if self.distance == "cosine":
            zero = ~x.any(axis=1)
            if zero.any():  # their distance is 1 to all items, so that any k of them are the nearest
                rows = self._rows(condition, k)
                yield _for_each(rows, every[zero])
            every = every[~zero]
            if self._state["extreme"]:
                yield _for_each(self._rows(_both(f"`{EXTREME}`", condition)), every)
                condition = _both(f"NOT `{EXTREME}`", condition)
        for start in range(0, len(every), QUERIES):
            queries = every[start : start + QUERIES]
            rows = self._query(x[queries], condition, k)
            # LanceDB says which query found a row only if there are several
            at = rows["query_index"].to_numpy() if "query_index" in rows.column_names else np.zeros(len(rows), np.intp)
            yield rows.select(self._table.schema.names), queries[at]

    def _rows(self, condition: str | None, limit: int | None = None) -> Any:
        """Return rows for which a condition holds, all or some, without comparing them."""
        with lance_errors(self.uri):
            query = self._table.search().limit(self._table.count_rows() if limit is None else limit)
            if condition:
                query = query.where(condition)
            return query.to_arrow().select(self._table.schema.names)

    def _query(self, x: AnyArray, condition: str | None, k: int) -> Any:
        """Return a table of the rows that LanceDB finds, with `query_index` if there are several queries."""
        vectors = list(x) if len(x) > 1 else x[0]
        with lance_errors(self.uri):
            query = self._table.search(vectors, vector_column_name="embedding").distance_type(METRICS[self.distance])
            if self._state["probes"]:
                query = query.nprobes(self._state["probes"])
            else:
                query = query.bypass_vector_index()
            if condition:
                query = query.where(condition, prefilter=True)
            return query.limit(k).to_arrow()

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        new_about = self._checked(about, engine)
        is_empty = self.count() == 0
        self._check_new(records, is_empty)
        with self._change() as state:
            state["about"] = {**state["about"], **new_about}
            if is_empty and len(records):
                self._table = _make_table(self._db, state, with_columns(records, self._kinds()))
            else:
                extreme = _extreme_of(records, self.distance)
                self._replace(records, gone, extreme)
                state["extreme"] |= extreme is not None and bool(extreme.any())
            self._set_engine(state, engine)
        self._keep_in_shape()

    def _replace(self, records: Records, gone: Sequence[str], extreme: Bools | None) -> None:
        """Delete some items, and add others or replace those of the same names."""
        added = set(records.names.tolist())
        self._delete([name for name in names_in(gone) if name not in added])
        if not added:
            return
        self._add_columns(records)
        rows = _arrow(with_columns(records, self._kinds()), extreme)
        # appending is much faster than merging, which has to look for every name
        if self._known(records.names.tolist()):
            every = self._table.merge_insert("name").when_matched_update_all().when_not_matched_insert_all()
            every.execute(rows)
        else:
            self._table.add(rows)

    def remove(self, names: Sequence[str]) -> None:
        self._check_writes()
        gone = names_in(names)
        check_known(gone, text_array(sorted(self._known(gone))))
        with self._change():
            self._delete(gone)
        self._keep_in_shape()

    @retried
    def _everything(self) -> Records:
        with lance_errors(self.uri):
            return self._records(self._table.to_arrow())

    def _condition(self, where: str) -> str | None:
        if not where:
            return None
        return sql(parse_filter(where, self.columns()))

    def _known(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that the collection has."""
        found = set[str]()
        for part in in_parts(names, NAMES):
            with lance_errors(self.uri):
                rows = self._table.search().where(_named(part)).select(["name"]).limit(len(part)).to_arrow()
            found.update(rows["name"].to_pylist())
        return found

    def _delete(self, names: Sequence[str]) -> None:
        for part in in_parts(names, NAMES):
            self._table.delete(_named(part))

    def _add_columns(self, records: Records) -> None:
        """Add the columns of new items to the table; the old items have no value there."""
        there = self.columns()
        for name, values in records.columns.items():
            if name not in there:
                default = "''" if holds_texts(values) else "cast(NULL AS double)"
                self._table.add_columns({name: default})

    def _kinds(self) -> dict[str, Kind]:
        """Return the kinds of all columns but the names and the labels."""
        return {name: kind for name, kind in self.columns().items() if name not in ("name", "label")}

    def _set_engine(self, state: dict[str, Any], engine: str) -> None:
        """Change the engine, and build the approximate index if it is due."""
        changes = engine not in ("", state["engine"])
        state["engine"] = engine or state["engine"]
        due = state["engine"] != "exact" and not state["probes"] and self._table.count_rows() >= APPROXIMATE_FROM
        if changes or due:
            _build(self._table, state)

    def _keep_in_shape(self) -> None:
        """Take new items into the approximate index, and merge many small files, when it is due.

        It removes versions of more than a day ago. The one that counts was made just now.
        """
        with suppress(OSError):  # the change before is complete, and must not seem to have failed
            with lance_errors(self.uri):
                outside = 0
                if self._state["probes"]:
                    statistics = self._table.index_stats("embedding_idx")
                    if statistics is not None:
                        outside = statistics.num_unindexed_rows
                fragments = self._table.stats()["fragment_stats"]["num_fragments"]
                due = outside > REFRESHED_SHARE * self._table.count_rows() or fragments > MAX_FRAGMENTS
            if due:
                with self._change():
                    self._table.optimize(cleanup_older_than=KEPT_VERSIONS)

    def _remove_old_tables(self) -> None:
        """Remove tables that are not in use: of killed processes, and of collections that were replaced."""
        for name in self._db.list_tables(limit=1000).tables:
            if name.startswith("items_") and name != self._state["table"]:
                self._db.drop_table(name)

    def _records(self, rows: Any) -> Records:
        standard = ("name", "label", "embedding", EXTREME)
        columns = {name: _from_arrow(rows, name) for name in rows.column_names if name not in standard}
        labels = _from_arrow(rows, "label") if "label" in rows.column_names else None
        values = np.empty(0, dtype=np.float32)
        if len(rows):
            values = rows["embedding"].combine_chunks().flatten().to_numpy()
        embeddings = values.reshape(-1, self.dimensions)
        return Records(_from_arrow(rows, "name"), embeddings, labels, columns)


def _connected(path: Path) -> Any:
    os.environ.setdefault("LANCE_LOG", "error")  # otherwise it writes warnings about every new table
    import lancedb

    with lance_errors(str(path)):
        return lancedb.connect(path, read_consistency_interval=timedelta(0))


@contextmanager
def removed_on_failure(path: Path) -> Iterator[None]:
    """Remove a folder that did not exist before, if an error occurs, for example on a full disk."""
    is_new = not path.exists()
    try:
        yield
    except BaseException:
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        raise


@contextmanager
def lance_errors(uri: str) -> Iterator[None]:
    """Translate an exception of LanceDB into an error of one line."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        if str(error).startswith(f"{uri}: "):  # it says all already
            raise
        raise OSError(f"{uri}: LanceDB: {shorten(_first_line(error), PATH)}") from error
    except ValueError as error:
        if "LanceError" not in str(error) and "lance error" not in str(error) and "was not found" not in str(error):
            raise
        raise ValueError(f"{uri}: LanceDB: {shorten(_first_line(error), PATH)}") from error


def _first_line(error: Exception) -> str:
    """Return the first line of a message of LanceDB, without the place in its source code."""
    return re.sub(r", /\S+\.rs:\d+:\d+", "", first_line(str(error)))


def _read_about(path: Path) -> dict[str, Any]:
    """Read the state of a collection; raise a ValueError if it is damaged, or no collection of nearfar."""
    file = path / COLLECTION
    if not path.is_dir() or not file.is_file():
        raise ValueError(f"{path} is not a collection of nearfar (it has no {COLLECTION}); `nearfar index` makes one")
    try:
        text = read_file(file, most=MAX_ABOUT)
    except Unreadable as error:
        raise ValueError(f"{file}: damaged ({shorten(str(error), PATH)}); make the index again") from None
    return parsed_state(text, str(path), FIELDS)


def _write_about(path: Path, state: Mapping[str, Any]) -> None:
    with atomic_write(path / COLLECTION, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)


def _build(table: Any, state: dict[str, Any]) -> None:
    """Build the approximate index if the engine asks for it, and note in `state` how it is searched."""
    n = table.count_rows()
    wanted = state["engine"] == "ivf" or (state["engine"] == "" and n >= APPROXIMATE_FROM)
    if not wanted:
        state["probes"] = 0
        return
    from lancedb.index import IvfFlat

    # a search compares a query with the centers of all lists, and then with the rows of some: about sqrt(n) each
    lists = max(1, int(2 * np.sqrt(n)))
    table.create_index(
        "embedding",
        config=IvfFlat(distance_type=METRICS[state["distance"]], num_partitions=lists),
        name="embedding_idx",
    )
    state["probes"], state["recall"] = _lists_needed(table, state, lists)


def _lists_needed(table: Any, state: Mapping[str, Any], lists: int) -> tuple[int, float]:
    """Return how many lists a search has to read for a recall@10 of `RECALL`, and the recall on items drawn.

    Noise is added to these items, because a query is seldom an item of the collection.
    """
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(table.count_rows(), size=min(DRAWN, table.count_rows()), replace=False))
    drawn = table.take_offsets(rows.tolist()).select(["embedding"]).to_arrow()["embedding"].combine_chunks()
    x = drawn.flatten().to_numpy().reshape(len(rows), -1)
    x = x + 0.3 * np.abs(x).mean() * rng.normal(size=x.shape).astype(np.float32)

    def names_found(probes: int) -> list[set[str]]:
        found = []
        for query in x:
            search = table.search(query, vector_column_name="embedding").distance_type(METRICS[state["distance"]])
            if probes:
                search = search.nprobes(probes)
            else:
                search = search.bypass_vector_index()  # exact
            found.append(set(search.select(["name", "_distance"]).limit(10).to_arrow()["name"].to_pylist()))
        return found

    true = names_found(0)
    total = sum(map(len, true))
    probes = 8
    while True:
        probes = min(probes, lists)
        recall = sum(len(near & found) for near, found in zip(true, names_found(probes), strict=True)) / total
        # 0.02 more than needed, because 100 queries measure the recall to about that accuracy
        if recall >= RECALL + 0.02 or probes == lists:
            return probes, float(recall)
        probes *= 2


def _make_table(db: Any, state: dict[str, Any], records: Records) -> Any:
    """Write items to a new table, and note in `state` what is in it; it has no approximate index yet."""
    from lancedb.index import BTree

    state["table"] = f"items_{secrets.token_hex(4)}"
    state["labels"] = kind_of_labels(records)
    state["probes"] = 0
    extreme = _extreme_of(records, state["distance"])
    state["extreme"] = extreme is not None and bool(extreme.any())
    table = db.create_table(state["table"], _arrow(records, extreme))
    table.create_index("name", config=BTree())
    return table


def _extreme_of(records: Records, distance: str) -> Bools | None:
    """Return for each item whether LanceDB cannot compare it; None for a distance with which it can compare all."""
    if distance != "cosine":
        return None
    return extreme_lengths(records.embeddings)


def extreme_lengths(rows: AnyArray) -> Bools:
    """Return for each row (n,) whether it is so short or so long that float32 cannot hold the squares of its values.

    >>> extreme_lengths(np.array([[3.0, 4.0], [0.0, 0.0], [1e-20, 0.0], [1e20, 0.0]]))
    array([False,  True,  True,  True])
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    shortest, longest = ORDINARY_LENGTHS
    return (lengths < shortest) | (lengths > longest)


def _for_each(rows: Any, queries: Ints) -> tuple[Any, Ints]:
    """Return the same m rows for each of some queries, (m * queries), and the query of each of them."""
    m = len(rows)
    return rows.take(np.tile(np.arange(m), len(queries))), np.repeat(queries, m)


def _both(first: str, second: str | None) -> str:
    return f"({first}) AND ({second})" if second else first


def _named(names: Sequence[str]) -> str:
    return f"name IN ({', '.join(map(sql_value, names))})"


def _arrow(records: Records, extreme: Bools | None) -> Any:
    """Return items as a table of Arrow; `extreme` marks those that LanceDB cannot compare, if there may be any."""
    import pyarrow

    d = records.embeddings.shape[1]
    flat = np.ascontiguousarray(records.embeddings, dtype=np.float32).ravel()
    arrays: dict[str, Any] = {
        "name": pyarrow.array(records.names.tolist(), type=pyarrow.string()),
        "embedding": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat), d),
    }
    if extreme is not None:
        arrays[EXTREME] = pyarrow.array(extreme, type=pyarrow.bool_())
    if records.labels is not None:
        of_numbers = records.labels.dtype.kind == "i"
        arrays["label"] = pyarrow.array(
            records.labels.tolist(), type=pyarrow.int64() if of_numbers else pyarrow.string()
        )
    for name, values in records.columns.items():
        arrays[name] = _arrow_column(values)
    return pyarrow.table(arrays)


def _arrow_column(values: AnyArray) -> Any:
    import pyarrow

    if holds_texts(values):
        return pyarrow.array(values.tolist(), type=pyarrow.string())
    return pyarrow.array(values, type=pyarrow.float64(), from_pandas=True)  # NaN becomes null


def _from_arrow(rows: Any, name: str) -> AnyArray:
    column = rows[name]
    if str(column.type).endswith("string"):
        return text_array(["" if value is None else value for value in column.to_pylist()])
    found = column.to_numpy()
    if found.dtype.kind == "i":  # labels
        return found
    return found.astype(np.float64)
