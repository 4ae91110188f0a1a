"""A collection on a server or a cluster of Milvus, or in its managed service.

The collection NAME of the address holds one row, which says what made the items and in which collection they are,
NAME_ and eight hexadecimal digits. A new collection of items is put in the place of the old one by writing that row.

Milvus has no nulls that all its versions compare alike. A missing number is therefore a number that no column has,
`MISSING`, which every condition leaves out; a missing text is empty.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..io.untrusted import Unreadable, parse_json
from ..io.uris import Address, address_of
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray
from ..quoting import PATH, in_brief, quoted
from .database_store import DatabaseStore, kind_of_labels, no_hits, ranked
from .filters import Condition, Either, Every, Filter, Kind, Not, parse_filter
from .one_at_a_time import one_at_a_time
from .records import Hits, Records, check_new, check_some_left, check_there, column_kinds, missing, nothing

FORMAT = "nearfar collection 1"
METRICS = {"cosine": "COSINE", "euclidean": "L2", "sqeuclidean": "L2"}
ENGINES = {"exact": "FLAT", "auto": "AUTOINDEX"}
TOKEN_VARIABLE = "MILVUS_TOKEN"
"""The environment variable of what the server asks for, such as "user:password"; addresses are printed, it is not."""

AUTO_FROM = 100_000  # items; below, comparing with all of them is fast enough
MISSING = float(np.finfo(np.float64).min)
ROWS_AT_ONCE = 1000  # rows that one request names, sends or returns
QUERIES_AT_ONCE = 64  # that are handed over at a time
MOST_NEIGHBORS = 16_384  # neighbors that Milvus returns for one query
MAX_TEXT_BYTES = 65_535  # of a name, a class, a cell, and of what a collection says of itself: Milvus's own limit
SECONDS = 60.0  # for one request
SECONDS_TO_CONNECT = 5.0
ROW_KEY = "key"  # of each row: a hash of its name, which needs no quotes in conditions
OWN = (ROW_KEY, "name", "label", "embedding")


class MilvusStore(DatabaseStore):
    """See `Store`. A reader sees every change that has returned; writers of one machine wait for one another."""

    most_neighbors = MOST_NEIGHBORS

    def __init__(self, uri: str | Path, *, writes: bool = False, lock: bool = True) -> None:
        self.address = address_of(uri)
        self.uri = str(self.address)
        self.writes = writes
        self._held = ExitStack()
        if writes and lock:
            self._held.enter_context(one_at_a_time(Path(self.uri), wait=0))
        try:
            self._client = connected(self.address)
            self._told = _read_about(self._client, self.address)
            if writes:
                self._remove_old_items()
        except BaseException:
            self._held.close()
            raise

    @classmethod
    def create(
        cls, uri: str | Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> MilvusStore:
        """Write the items to a new collection, replace an existing one with it, and open it for writing."""
        check_distance(distance)
        _check_engine(engine)
        address = address_of(uri)
        with ExitStack() as held:
            if lock:
                held.enter_context(one_at_a_time(Path(str(address)), wait=0))
            client = connected(address)
            with told_by_milvus(str(address)):
                there = client.has_collection(address.collection)
            if there:
                _check_ours(client, address)
            else:
                _make_about(client, address)
            told: dict[str, Any] = {
                "format": FORMAT,
                "distance": distance,
                "engine": engine,
                "labels": kind_of_labels(records),
                "columns": column_kinds(records.columns),
                "dimensions": int(records.embeddings.shape[1]),
                "about": dict(about),
            }
            told["items"] = _make_items(client, address, told, count=len(records))
            _send(client, address, told, records)
            _write_about(client, address, told)
            made = cls(str(address), writes=True, lock=False)
            made._held = held.pop_all()
        return made

    @property
    def dimensions(self) -> int:
        return int(self._told["dimensions"])

    def engine(self) -> str:
        if self._told["index"] == ENGINES["exact"]:
            return "exact"
        return "approximate (the index that Milvus chooses)"

    def columns(self) -> dict[str, Kind]:
        kinds: dict[str, Kind] = {"name": "text"}
        if self._told["labels"]:
            kinds["label"] = self._told["labels"]
        return kinds | self._told["columns"]

    def count(self, where: str = "") -> int:
        with self._asked():
            rows = self._client.query(
                self._told["items"], filter=self._condition(where), output_fields=["count(*)"], timeout=SECONDS
            )
        return int(rows[0]["count(*)"])

    def column(self, name: str, where: str = "") -> AnyArray:
        check_there(name, self.columns())
        values: list[Any] = []
        for rows in self._rows(where, [name]):
            values += [row[name] for row in rows]
        return self._array(name, values)

    def get(self, names: Sequence[str]) -> Records:
        wanted = [str(name) for name in names]
        found: dict[str, Any] = {}
        for start in range(0, len(wanted), ROWS_AT_ONCE):
            keys = [_key(name) for name in wanted[start : start + ROWS_AT_ONCE]]
            with self._asked():
                rows = self._client.get(self._told["items"], ids=keys, output_fields=["*"], timeout=SECONDS)
            found.update({row["name"]: row for row in rows})
        there = [found[name] for name in wanted if name in found]
        return self._records(there) if there else nothing(self.dimensions)

    def _nearest(self, x: AnyArray, condition: str | None, k: int) -> Hits:
        if k == 0:
            return no_hits(x, self.dimensions)
        if k > MOST_NEIGHBORS:
            raise ValueError(f"k: a server of Milvus returns up to {MOST_NEIGHBORS:,} neighbors, got {k:,}")
        rows: list[Any] = []
        asked: list[int] = []
        for start in range(0, len(x), QUERIES_AT_ONCE):
            part = x[start : start + QUERIES_AT_ONCE]
            with self._asked():
                found = self._client.search(
                    self._told["items"],
                    data=[query.tolist() for query in part],
                    limit=k,
                    filter=condition or "",
                    output_fields=["*"],
                    anns_field="embedding",
                    timeout=SECONDS,
                )
            for place, hits in enumerate(found):
                rows += [hit["entity"] for hit in hits]
                asked += [start + place] * len(hits)
        records = self._records(rows) if rows else nothing(self.dimensions)
        return ranked(x, records, np.asarray(asked, dtype=np.intp), k, self.distance)

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        self._check_writes()
        kind = self._told["labels"]
        check_new(records, dimensions=self.dimensions, labels=kind or None, columns=self.columns())
        self._check_kind_of_labels(records)
        _check_lengths(records)
        fresh = {name: of for name, of in column_kinds(records.columns).items() if name not in self._told["columns"]}
        if fresh:
            self._make_anew(columns=self._told["columns"] | fresh)
        come = set(records.names.tolist())
        left = [name for name in gone if name not in come]
        with self._asked():
            self._delete(left)
            _send(self._client, self.address, self._told, records)
        if about or engine:
            self.change(about=about, engine=engine)

    def remove(self, names: Sequence[str]) -> None:
        self._check_writes()
        known = self.get(names).names
        check_some_left(names, known, self.count() - len(set(known.tolist())))
        with self._asked():
            self._delete(list(names))

    def change(self, *, about: Mapping[str, str] | None = None, engine: str = "") -> None:
        self._check_writes()
        _check_engine(engine)
        if engine and engine != self._told["engine"]:
            self._make_anew(engine=engine)
        told = self._told_with(about)
        _write_about(self._client, self.address, told)
        self._told = told

    def _everything(self) -> Records:
        rows = [row for part in self._rows("", ["*"]) for row in part]
        return self._records(rows)

    def close(self) -> None:
        self._client.close()
        super().close()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        with told_by_milvus(self.uri):
            yield

    def _condition(self, where: str) -> str:
        return expression(parse_filter(where, self.columns()), self.columns()) if where else ""

    def _rows(self, where: str, fields: Sequence[str]) -> Iterator[list[Any]]:
        """Give all items for which a filter holds, some at a time."""
        with self._asked():
            found = self._client.query_iterator(
                self._told["items"],
                batch_size=ROWS_AT_ONCE,
                filter=self._condition(where),
                output_fields=[*fields],
                timeout=SECONDS,
            )
        try:
            while True:
                with self._asked():
                    rows = found.next()
                if not rows:
                    return
                yield list(rows)
        finally:
            found.close()

    def _delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), ROWS_AT_ONCE):
            keys = [_key(name) for name in names[start : start + ROWS_AT_ONCE]]
            self._client.delete(self._told["items"], ids=keys, timeout=SECONDS)

    def _make_anew(self, **changes: Any) -> None:
        """Copy the items into a collection with other columns or another index, which then takes their place."""
        told = {**self._told, **changes}
        told["items"] = _make_items(self._client, self.address, told, count=self.count())
        for rows in self._rows("", ["*"]):
            _send(self._client, self.address, told, self._records(rows))
        _write_about(self._client, self.address, told)
        self._told = told
        self._remove_old_items()

    def _remove_old_items(self) -> None:
        """Remove collections that nothing names: what a killed process began, and what a new one replaced."""
        prefix = f"{self.address.collection}_"
        with self._asked():
            for name in self._client.list_collections():
                digits = name.removeprefix(prefix)
                ours = name.startswith(prefix) and len(digits) == 8 and set(digits) <= set("0123456789abcdef")
                if ours and name != self._told["items"]:
                    self._client.drop_collection(name)

    def _records(self, rows: Sequence[Mapping[str, Any]]) -> Records:
        def values(name: str) -> AnyArray:
            return self._array(name, [row[name] for row in rows])

        embeddings = np.array([row["embedding"] for row in rows], dtype=np.float32).reshape(-1, self.dimensions)
        labels = values("label") if self._told["labels"] else None
        return Records(values("name"), embeddings, labels, {name: values(name) for name in self._told["columns"]})

    def _array(self, name: str, values: list[Any]) -> AnyArray:
        if self.columns()[name] == "text":
            return np.array(values, dtype=np.str_)
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
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def connected(address: Address) -> Any:
    """Return a client of the server of a collection."""
    from pymilvus import MilvusClient

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints tracebacks of what it also raises
    with told_by_milvus(str(address)):
        return MilvusClient(address.server, token=os.environ.get(TOKEN_VARIABLE, ""), timeout=SECONDS_TO_CONNECT)


@contextmanager
def told_by_milvus(uri: str) -> Iterator[None]:
    """Translate an exception of Milvus into an error of one line."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        first = next(iter(str(error.message).splitlines()), "no reason given")
        raise OSError(f"{uri}: Milvus: {in_brief(first, PATH)}") from error


def _make_about(client: Any, address: Address) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(ROW_KEY, DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("told", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)  # a collection without vectors is refused
    searched = client.prepare_index_params()
    searched.add_index("nothing", index_type="FLAT", metric_type="L2")
    with told_by_milvus(str(address)):
        client.create_collection(
            address.collection, schema=schema, index_params=searched, consistency_level="Strong", timeout=SECONDS
        )


def _write_about(client: Any, address: Address, told: Mapping[str, Any]) -> None:
    text = json.dumps(told)
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"about: expected at most {MAX_TEXT_BYTES:,} bytes, got {len(text.encode()):,}")
    with told_by_milvus(str(address)):
        client.upsert(address.collection, [{ROW_KEY: "about", "told": text, "nothing": [0.0, 0.0]}], timeout=SECONDS)


def _read_about(client: Any, address: Address) -> dict[str, Any]:
    """Read what a collection says of itself; raise an error where it is not there, or none of ours."""
    with told_by_milvus(str(address)):
        if not client.has_collection(address.collection):
            raise FileNotFoundError(f"{address}: no such collection; `nearfar index RUN DATA -o {address}` makes it")
    _check_ours(client, address)
    with told_by_milvus(str(address)):
        rows = client.get(address.collection, ids=["about"], output_fields=["told"], timeout=SECONDS)
    if not rows:
        raise FileNotFoundError(f"{address}: what made it was killed before there were items; index anew")
    try:
        told = parse_json(rows[0]["told"].encode())
    except (ValueError, Unreadable) as error:
        raise ValueError(f"{address}: damaged ({in_brief(str(error), PATH)}); index anew") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError(f"{address} is not a collection of this version of nearfar; index anew")
    if not _fits(told):
        raise ValueError(f"{address}: damaged (it lacks what a collection says); index anew")
    return told


def _check_ours(client: Any, address: Address) -> None:
    with told_by_milvus(str(address)):
        fields = {field["name"] for field in client.describe_collection(address.collection)["fields"]}
    if not {ROW_KEY, "told", "nothing"} <= fields:
        raise ValueError(f"{address} is not a collection of nearfar; choose another name")


def _fits(told: Mapping[str, Any]) -> bool:
    about = told.get("about")
    columns = told.get("columns")
    return (
        isinstance(told.get("items"), str)
        and told["items"].isidentifier()
        and told.get("distance") in METRICS
        and told.get("engine") in ("", *ENGINES)
        and told.get("index") in ENGINES.values()
        and told.get("labels") in ("", "number", "text")
        and isinstance(told.get("dimensions"), int)
        and isinstance(columns, dict)
        and all(name.isidentifier() and kind in ("number", "text") for name, kind in columns.items())
        and isinstance(about, dict)
        and all(isinstance(value, str) for value in about.values())
    )


def _make_items(client: Any, address: Address, told: dict[str, Any], count: int) -> str:
    """Make a collection for items, say in `told` how it is searched, and return its name."""
    from pymilvus import DataType

    exact = told["engine"] == "exact" or (told["engine"] == "" and count < AUTO_FROM)
    told["index"] = ENGINES["exact" if exact else "auto"]
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(ROW_KEY, DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("name", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=told["dimensions"])
    if told["labels"] == "number":
        schema.add_field("label", DataType.INT64)
    elif told["labels"]:
        schema.add_field("label", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    for name, kind in told["columns"].items():
        if name == ROW_KEY:
            raise ValueError(f"columns: {ROW_KEY!r} means something else in a collection of a server; rename it")
        if kind == "number":
            schema.add_field(name, DataType.DOUBLE)
        else:
            schema.add_field(name, DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    searched = client.prepare_index_params()
    searched.add_index("embedding", index_type=told["index"], metric_type=METRICS[told["distance"]])
    name = f"{address.collection}_{secrets.token_hex(4)}"
    with told_by_milvus(str(address)):
        client.create_collection(
            name, schema=schema, index_params=searched, consistency_level="Strong", timeout=SECONDS
        )
    return name


def _send(client: Any, address: Address, told: Mapping[str, Any], records: Records) -> None:
    """Send items; those that are there by the same names are replaced, columns that they lack are missing."""
    _check_lengths(records)
    n = len(records)
    columns = {
        name: records.columns[name] if name in records.columns else missing(kind, n)
        for name, kind in told["columns"].items()
    }
    for start in range(0, n, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        values: dict[str, list[Any]] = {
            ROW_KEY: [_key(name) for name in records.names[part].tolist()],
            "name": records.names[part].tolist(),
            "embedding": np.asarray(records.embeddings[part], dtype=np.float32).tolist(),
        }
        if records.labels is not None:
            values["label"] = records.labels[part].tolist()
        for name, cells in columns.items():
            some = cells[part]
            values[name] = (np.where(np.isnan(some), MISSING, some) if some.dtype.kind == "f" else some).tolist()
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        with told_by_milvus(str(address)):
            client.upsert(told["items"], rows, timeout=SECONDS)


def _check_lengths(records: Records) -> None:
    texts = {"name": records.names, **records.columns}
    if records.labels is not None:
        texts["label"] = records.labels
    for column, values in texts.items():
        if values.dtype.kind != "U" or values.dtype.itemsize <= MAX_TEXT_BYTES:  # 4 bytes for each character
            continue
        long = next((text for text in values.tolist() if len(text.encode()) > MAX_TEXT_BYTES), None)
        if long is not None:
            shown = quoted(long)
            raise ValueError(f"{column}: Milvus keeps texts of up to {MAX_TEXT_BYTES:,} bytes, got {shown}; shorten it")


def _check_engine(engine: str) -> None:
    if engine not in ("", *ENGINES):
        raise ValueError(f"engine: expected exact or auto for a server of Milvus, got {quoted(engine)}")


def _key(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
