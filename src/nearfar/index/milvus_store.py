"""A collection on a server or a cluster of Milvus, or in its managed service.

The collection NAME of the address holds one row, which says what made the items, in which collection they are, NAME_
and eight hexadecimal digits, and the number of the last change. Writing that row is the one step that makes a change
count. A row of an item has the numbers of the changes from which and until which it counts: a change adds rows that do
not count yet, and notes in others when they will not count any more. The next change removes what one has left that was
not completed.

Milvus has no nulls that all its versions compare alike. A missing number is therefore a number that no column has,
`MISSING`, which every condition leaves out; a missing text is empty.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..io.uris import Address, address_of, no_such_index
from ..labels import holds_texts, text_array
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray
from ..quoting import PATH, quoted, shorten
from .database_state import FORMAT, Fields, are_columns, is_count, is_identifier, one_of, parsed_state
from .database_store import DatabaseStore, as_compared, first_line, in_parts, kind_of_labels, no_hits, ranked, retried
from .filters import Condition, Either, Every, Filter, Kind, Not, parse_filter
from .index_lock import index_lock
from .records import (
    Hits,
    Records,
    check_column,
    check_known,
    checked_about,
    column_kinds,
    names_in,
    no_records,
    with_columns,
)

METRICS = {"cosine": "COSINE", "euclidean": "L2", "sqeuclidean": "L2"}
ENGINES = {"exact": "FLAT", "auto": "AUTOINDEX"}
FIELDS: Fields = {
    "items": is_identifier,
    "engine": one_of("", *ENGINES),
    "index": one_of(*ENGINES.values()),
    "dimensions": is_count,
    "change": is_count,
    "columns": are_columns,
}
TOKEN_VARIABLE = "MILVUS_TOKEN"
"""Environment variable with the credentials, such as "user:password": unlike the address, they are never printed."""

AUTO_FROM = 100_000  # items from which on Milvus chooses an index; below, comparing with all is fast enough
MISSING = float(np.finfo(np.float64).min)
"""Replaces NaN in columns of numbers, which Milvus does not store."""
ROWS_AT_ONCE = 1000  # rows that one request names, sends or returns
QUERIES_AT_ONCE = 64  # queries in one request
MOST_NEIGHBORS = 16_384  # neighbors that Milvus returns for one query
MAX_TEXT_BYTES = 65_535  # of a name, a class, a cell, and of the state of a collection: the limit of Milvus
SECONDS = 60.0  # for one request
SECONDS_TO_CONNECT = 5.0
ROW_KEY = "key"
"""Primary key of a row: a hash of its name, so that no name can break a condition, and 0 or 1, because a row and one
that will replace it are there together."""
SINCE = "since_change"  # number of the first change with which a row counts
UNTIL = "until_change"  # number of the first change with which it does not
NEVER = 2**62
RESERVED = (ROW_KEY, SINCE, UNTIL)


class MilvusStore(DatabaseStore):
    """A collection of a Milvus server; see `Store`.

    A reader sees every change that has returned. Writers on one machine wait for each other.
    """

    engines = tuple(ENGINES)
    owner = "a server of Milvus"
    most_neighbors = MOST_NEIGHBORS

    def __init__(self, uri: str | Path, *, writes: bool = False, lock: bool = True) -> None:
        self.address = address_of(uri)
        super().__init__(str(self.address), writes=writes, lock=lock)

    def _open(self) -> None:
        self._client = connected(self.address)
        self._held.callback(self._client.close)
        self._state = _read_about(self._client, self.address)
        self._is_clean = False  # whether no rows are left of a change that was not completed
        if self.writes:
            self._remove_old_items()

    @classmethod
    def create(
        cls, uri: str | Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> MilvusStore:
        """Write the items to a new collection, replace an existing one with it, and open it for writing."""
        check_distance(distance)
        cls.check_engine(engine)
        about = checked_about(about)
        address = address_of(uri)
        with ExitStack() as held:
            if lock:
                held.enter_context(index_lock(Path(str(address)), wait=0))
            client = connected(address)
            held.callback(client.close)
            with milvus_errors(str(address)):
                there = client.has_collection(address.collection)
            if there:
                _check_ours(client, address)
            else:
                _make_about(client, address)
            state: dict[str, Any] = {
                "format": FORMAT,
                "distance": distance,
                "engine": engine,
                "labels": kind_of_labels(records),
                "columns": column_kinds(records.columns),
                "dimensions": int(records.embeddings.shape[1]),
                "change": 0,
                "about": about,
            }
            state["items"] = _make_items(client, address, state, count=len(records))
            _send(client, address, state, records, {})
            _write_about(client, address, state)
            store = cls(str(address), writes=True, lock=False)
            store._held.push(held.pop_all())
        return store

    def refresh(self) -> bool:
        state = _read_state(self._client, self.address)
        changed = any(state[key] != self._state[key] for key in ("items", "change"))
        self._state = state
        return changed

    @property
    def dimensions(self) -> int:
        return int(self._state["dimensions"])

    def engine(self) -> str:
        if self._state["index"] == ENGINES["exact"]:
            return "exact"
        return "approximate (the index that Milvus chooses)"

    def columns(self) -> dict[str, Kind]:
        kinds: dict[str, Kind] = {"name": "text"}
        if self._state["labels"]:
            kinds["label"] = self._state["labels"]
        return kinds | self._state["columns"]

    def _count(self, condition: str | None) -> int:
        with self._request():
            rows = self._client.query(
                self._state["items"], filter=condition, output_fields=["count(*)"], timeout=SECONDS
            )
        return int(rows[0]["count(*)"])

    @retried
    def column(self, name: str, where: str = "", *, start: int = 0, count: int | None = None) -> AnyArray:
        check_column(name, self.columns())
        values: list[Any] = []
        skipped = 0  # a server of Milvus skips few rows by itself
        for rows in self._selected(self._condition(where), [name]):
            left_out = min(len(rows), start - skipped)
            skipped += left_out
            values += [row[name] for row in rows[left_out:]]
            if count is not None and len(values) >= count:
                break
        return self._array(name, values[:count])

    @retried
    def get(self, names: Sequence[str]) -> Records:
        wanted = names_in(names)
        found = {row["name"]: row for rows in self._rows_of(wanted) for row in rows}
        there = [found[name] for name in wanted if name in found]
        if not there:
            return no_records(self.dimensions)
        return self._records(there)

    def _nearest(self, x: AnyArray, condition: str | None, k: int) -> Hits:
        if k == 0:
            return no_hits(x, self.dimensions)
        if k > MOST_NEIGHBORS:
            raise ValueError(f"k: a server of Milvus returns up to {MOST_NEIGHBORS:,} neighbors, got {k:,}")
        compared = as_compared(x, self.distance)
        rows: list[Any] = []
        query_rows: list[int] = []
        for start in range(0, len(x), QUERIES_AT_ONCE):
            part = compared[start : start + QUERIES_AT_ONCE]
            with self._request():
                found = self._client.search(
                    self._state["items"],
                    data=[query.tolist() for query in part],
                    limit=k,
                    filter=condition or "",
                    output_fields=["*"],
                    anns_field="embedding",
                    timeout=SECONDS,
                )
            for place, hits in enumerate(found):
                rows += [hit["entity"] for hit in hits]
                query_rows += [start + place] * len(hits)
        records = no_records(self.dimensions)
        if rows:
            records = self._records(rows)
        return ranked(x, records, np.asarray(query_rows, dtype=np.intp), k, self.distance)

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        new_about = self._checked(about, engine)
        kinds = column_kinds(records.columns)
        is_empty = self.count() == 0
        self._check_new(records, is_empty)
        _check_lengths(records)
        with self._change() as state:
            state["about"] = {**state["about"], **new_about}
            state["columns"] = state["columns"] | kinds
            if is_empty and len(records):
                state["labels"] = kind_of_labels(records)
            self._replace(state, names_in(gone), records, engine)

    def remove(self, names: Sequence[str]) -> None:
        self._check_writes()
        gone = names_in(names)
        check_known(gone, self.get(gone).names)
        with self._change() as state:
            self._end(state, gone)

    def _set_engine(self, state: dict[str, Any], engine: str) -> None:
        self._replace(state, [], no_records(self.dimensions), engine)

    @contextmanager
    def _change(self) -> Iterator[dict[str, Any]]:
        self.refresh()
        if not self._is_clean:
            self._undo()
        self._is_clean = False
        state = {**self._state, "change": self._state["change"] + 1}
        try:
            with self._request():
                yield state
            _write_about(self._client, self.address, state)
            self._state = state
        except BaseException:
            with suppress(OSError, ValueError):
                self.refresh()  # the new one, if an interrupt came after it was written
            raise
        self._is_clean = True
        with suppress(OSError):  # the change is complete, and must not seem to have failed
            self._remove_old_items()
            with self._request():
                # a reader may still search as of the change before
                self._client.delete(state["items"], filter=f"{UNTIL} < {state['change']}", timeout=SECONDS)

    def _undo(self) -> None:
        """Remove what is left of a change that was not completed."""
        items = self._state["items"]
        change = self._state["change"]
        with self._request():
            self._client.delete(items, filter=f"{SINCE} > {change}", timeout=SECONDS)
        ended = [*self._selected(f"{UNTIL} > {change} and {UNTIL} < {NEVER}", ["*"])]
        for rows in ended:
            self._write([{**row, UNTIL: NEVER} for row in rows])

    def _replace(self, state: dict[str, Any], gone: Sequence[str], records: Records, engine: str) -> None:
        """Let some items count no longer, and add others or replace those of the same names.

        Other fields or another index need another collection.
        """
        touched = {*gone, *records.names.tolist()}
        state["engine"] = engine or state["engine"]
        if all(state[key] == self._state[key] for key in ("engine", "labels", "columns")):
            places = self._end(state, [*touched])
        else:
            self._copy(state, touched)
            places = {}
        _send(self._client, self.address, state, records, places)

    def _copy(self, state: dict[str, Any], without: Collection[str]) -> None:
        """Copy all items but some to a new collection, and note it in `state`."""
        state["items"] = _make_items(self._client, self.address, state, count=self._count(self._condition("")))
        for rows in self._selected(self._condition(""), ["*"]):
            left = [row for row in rows if row["name"] not in without]
            if left:
                _send(self._client, self.address, state, self._records(left), {})

    def _end(self, state: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
        """Let the rows of some items count until a change; return for each whether its key ends in 0 or 1."""
        places = {}
        for rows in self._rows_of(names):
            places.update({row["name"]: int(row[ROW_KEY][-1]) for row in rows})
            self._write([{**row, UNTIL: state["change"]} for row in rows])
        return places

    def _write(self, rows: list[Any]) -> None:
        if rows:
            with self._request():
                self._client.upsert(self._state["items"], rows, timeout=SECONDS)

    @retried
    def _everything(self) -> Records:
        rows = [row for part in self._selected(self._condition(""), ["*"]) for row in part]
        return self._records(rows)

    @contextmanager
    def _request(self) -> Iterator[None]:
        with milvus_errors(self.uri):
            yield

    def _condition(self, where: str) -> str:
        change = self._state["change"]
        counts = f"{SINCE} <= {change} and {UNTIL} > {change}"
        if not where:
            return counts
        return f"{counts} and {expression(parse_filter(where, self.columns()), self.columns())}"

    def _rows_of(self, names: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the rows of items with these names, in batches."""
        change = self._state["change"]
        for part in in_parts(names, ROWS_AT_ONCE):
            keys = [_key(name, place) for name in part for place in (0, 1)]
            with self._request():
                rows = self._client.get(self._state["items"], ids=keys, output_fields=["*"], timeout=SECONDS)
            yield [row for row in rows if row[SINCE] <= change < row[UNTIL]]

    def _selected(self, condition: str, fields: Sequence[str]) -> Iterator[list[Any]]:
        """Yield all rows that meet a condition, in batches."""
        with self._request():
            found = self._client.query_iterator(
                self._state["items"],
                batch_size=ROWS_AT_ONCE,
                filter=condition,
                output_fields=[*fields],
                timeout=SECONDS,
            )
        try:
            while True:
                with self._request():
                    rows = found.next()
                if not rows:
                    return
                yield [dict(row) for row in rows]
        finally:
            found.close()

    def _remove_old_items(self) -> None:
        """Remove collections that are not in use: of killed processes, and those that were replaced."""
        prefix = f"{self.address.collection}_"
        with self._request():
            for name in self._client.list_collections():
                digits = name.removeprefix(prefix)
                ours = name.startswith(prefix) and len(digits) == 8 and set(digits) <= set("0123456789abcdef")
                if ours and name != self._state["items"]:
                    self._client.drop_collection(name)

    def _records(self, rows: Sequence[Mapping[str, Any]]) -> Records:
        """Return rows of Milvus as records."""

        def values(name: str) -> AnyArray:
            return self._array(name, [row[name] for row in rows])

        embeddings = np.array([row["embedding"] for row in rows], dtype=np.float32)
        return Records(
            names=values("name"),
            embeddings=embeddings.reshape(-1, self.dimensions),
            labels=values("label") if self._state["labels"] else None,
            columns={name: values(name) for name in self._state["columns"]},
        )

    def _array(self, name: str, values: list[Any]) -> AnyArray:
        """Return the values of a field as text, as int64 for labels, or as float64 with NaN where one is missing."""
        if self.columns()[name] == "text":
            return text_array(values)
        if name == "label":
            return np.array(values, dtype=np.int64)
        numbers = np.array(values, dtype=np.float64)
        numbers[numbers == MISSING] = np.nan
        return numbers


def expression(tree: Filter, columns: Mapping[str, Kind]) -> str:
    """Return a filter in the language of Milvus.

    Examples
    --------
    >>> columns = {"shop": "text", "label": "text"}
    >>> expression(parse_filter("not shop in ['a', 'b']", columns), columns)
    '(not shop in ["a", "b"])'
    """
    if isinstance(tree, Not):
        return f"(not {expression(tree.part, columns)})"
    if isinstance(tree, (Every, Either)):
        word = " and " if isinstance(tree, Every) else " or "
        return "(" + word.join(expression(part, columns) for part in tree.parts) + ")"
    return _compared(tree, columns[tree.column])


def _compared(condition: Condition, kind: Kind) -> str:
    values = [_value(value) for value in condition.values]
    if condition.sign == "missing":
        if kind == "text":
            return f'{condition.column} == ""'
        return f"{condition.column} <= {MISSING!r}"
    if condition.sign == "contains":
        return f'{condition.column} like "%{_pattern(condition.values[0])}%"'
    if condition.sign == "in":
        text = f"{condition.column} in [{', '.join(values)}]"
    else:
        text = f"{condition.column} {condition.sign} {values[0]}"
    if kind == "number" and condition.column != "label":  # labels are never missing
        return f"({condition.column} > {MISSING!r} and {text})"
    return text


def _value(value: float | str) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{escaped}"'
    number = float(value)
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))  # integer labels are compared with integers
    return repr(number)


def _pattern(value: float | str) -> str:
    """Return a text as it is written within a pattern, in which % and _ match other characters."""
    escaped = str(value).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return _value(escaped)[1:-1]


def connected(address: Address) -> Any:
    """Return a client of the server of a collection."""
    from pymilvus import MilvusClient

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints tracebacks of what it also raises
    with milvus_errors(str(address)):
        return MilvusClient(address.server, token=os.environ.get(TOKEN_VARIABLE, ""), timeout=SECONDS_TO_CONNECT)


@contextmanager
def milvus_errors(uri: str) -> Iterator[None]:
    """Translate an exception of Milvus into an error of one line."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise OSError(f"{uri}: Milvus: {shorten(first_line(str(error.message)), PATH)}") from error


def _make_about(client: Any, address: Address) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(ROW_KEY, DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("told", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)  # a collection without vectors is refused
    searched = client.prepare_index_params()
    searched.add_index("nothing", index_type="FLAT", metric_type="L2")
    with milvus_errors(str(address)):
        client.create_collection(
            address.collection, schema=schema, index_params=searched, consistency_level="Strong", timeout=SECONDS
        )


def _write_about(client: Any, address: Address, state: Mapping[str, Any]) -> None:
    text = json.dumps(state)
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"about: expected at most {MAX_TEXT_BYTES:,} bytes, got {len(text.encode()):,}")
    with milvus_errors(str(address)):
        client.upsert(address.collection, [{ROW_KEY: "about", "told": text, "nothing": [0.0, 0.0]}], timeout=SECONDS)


def _read_about(client: Any, address: Address) -> dict[str, Any]:
    """Read the state of a collection; raise an error if there is none, or it is not a collection of nearfar."""
    with milvus_errors(str(address)):
        if not client.has_collection(address.collection):
            raise no_such_index(str(address))
    _check_ours(client, address)
    return _read_state(client, address)


def _read_state(client: Any, address: Address) -> dict[str, Any]:
    """Read the row of a collection of nearfar that holds its state."""
    with milvus_errors(str(address)):
        rows = client.get(address.collection, ids=["about"], output_fields=["told"], timeout=SECONDS)
    if not rows:
        raise FileNotFoundError(f"{address}: it was being made when the process was killed; make the index again")
    return parsed_state(rows[0]["told"], str(address), FIELDS)


def _check_ours(client: Any, address: Address) -> None:
    with milvus_errors(str(address)):
        fields = {field["name"] for field in client.describe_collection(address.collection)["fields"]}
    if not {ROW_KEY, "told", "nothing"} <= fields:
        raise ValueError(f"{address} is not a collection of nearfar; choose another name")


def _make_items(client: Any, address: Address, state: dict[str, Any], count: int) -> str:
    """Make an empty collection for items, note in `state` how it is searched, and return its name."""
    from pymilvus import DataType

    exact = state["engine"] == "exact" or (state["engine"] == "" and count < AUTO_FROM)
    state["index"] = ENGINES["exact" if exact else "auto"]
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(ROW_KEY, DataType.VARCHAR, is_primary=True, max_length=65)
    schema.add_field(SINCE, DataType.INT64)
    schema.add_field(UNTIL, DataType.INT64)
    schema.add_field("name", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=state["dimensions"])
    if state["labels"] == "number":
        schema.add_field("label", DataType.INT64)
    elif state["labels"]:
        schema.add_field("label", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    for name, kind in state["columns"].items():
        if name in RESERVED:
            raise ValueError(f"columns: {name!r} is reserved in a collection of a server; rename it")
        if kind == "number":
            schema.add_field(name, DataType.DOUBLE)
        else:
            schema.add_field(name, DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    searched = client.prepare_index_params()
    searched.add_index("embedding", index_type=state["index"], metric_type=METRICS[state["distance"]])
    name = f"{address.collection}_{secrets.token_hex(4)}"
    with milvus_errors(str(address)):
        client.create_collection(
            name, schema=schema, index_params=searched, consistency_level="Strong", timeout=SECONDS
        )
    return name


def _send(client: Any, address: Address, state: Mapping[str, Any], records: Records, places: Mapping[str, int]) -> None:
    """Send items, which count from the change of the state on; columns that they lack get missing values.

    `places` is for each item that they replace the 0 or 1 in which the key of the old row ends.
    """
    _check_lengths(records)
    n = len(records)
    columns = with_columns(records, state["columns"]).columns
    for start in range(0, n, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        values: dict[str, list[Any]] = {
            ROW_KEY: [_key(name, 1 - places.get(name, 1)) for name in records.names[part].tolist()],
            SINCE: [state["change"]] * len(records.names[part]),
            UNTIL: [NEVER] * len(records.names[part]),
            "name": records.names[part].tolist(),
            "embedding": np.asarray(records.embeddings[part], dtype=np.float32).tolist(),
        }
        if records.labels is not None:
            values["label"] = records.labels[part].tolist()
        for name in state["columns"]:
            cells = columns[name]
            batch = cells[part]
            if batch.dtype.kind == "f":
                batch = np.where(np.isnan(batch), MISSING, batch)
            values[name] = batch.tolist()
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        with milvus_errors(str(address)):
            client.upsert(state["items"], rows, timeout=SECONDS)


def _check_lengths(records: Records) -> None:
    texts = {"name": records.names, **records.columns}
    if records.labels is not None:
        texts["label"] = records.labels
    for column, values in texts.items():
        # NumPy takes 4 bytes for each character, and UTF-8 at most 4: such short texts need not be encoded
        if not holds_texts(values) or (values.dtype != object and values.dtype.itemsize <= MAX_TEXT_BYTES):
            continue
        long = next((text for text in values.tolist() if len(text.encode()) > MAX_TEXT_BYTES), None)
        if long is not None:
            shown = quoted(long)
            raise ValueError(f"{column}: Milvus keeps texts of up to {MAX_TEXT_BYTES:,} bytes, got {shown}; shorten it")


def _key(name: str, place: int) -> str:
    return f"{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}{place}"
