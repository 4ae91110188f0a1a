"""A collection in PostgreSQL with pgvector: in a table of its own, or in one that a team has already.

The table ``nearfar_collections`` has one row for each collection: its distance, the model that made it, its settings,
and a number that every change counts up. A change is one transaction of the server. In a table that nearfar did not
make, the items are the rows whose vector is not null; removing an item makes its vector null, and no row is deleted.

Values and vectors are bound to placeholders, and names of columns are quoted, so that no text becomes a part of SQL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg.sql import SQL, Composable, Identifier, Placeholder
from psycopg.types import TypeInfo

from ..io.uris import DatabaseAddress, database_of, no_such_index
from ..labels import text_array
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray
from ..quoting import PATH, quoted, shorten
from .database_state import (
    FORMAT,
    Fields,
    are_columns,
    are_texts,
    check_fields,
    is_count,
    is_switch,
    one_of,
    parsed_state,
)
from .database_store import (
    APPROXIMATE_FROM,
    DatabaseStore,
    as_compared,
    first_line,
    kind_of_labels,
    no_hits,
    ranked,
    retried,
)
from .filters import Kind, parse_filter
from .index_lock import WAIT, index_lock
from .mapped_search import EXACT_SHARE
from .postgres_table import (
    MOST_DIMENSIONS,
    OPERATOR_CLASSES,
    Query,
    StoredTable,
    check_names,
    column_sql,
    condition_of,
    existing_table,
    identifier,
    index_distance,
    make_table,
    own_table,
)
from .records import (
    Hits,
    Records,
    check_column,
    check_k,
    check_known,
    checked_about,
    column_kinds,
    names_in,
    with_columns,
)
from .words import joined_records, words_in

ENGINES = ("exact", "hnsw")
FIELDS: Fields = {
    "engine": one_of("", *ENGINES),
    "own": is_switch,
    "indexed": is_switch,
    "change": is_count,
    "chosen": lambda value: value is None or are_texts(value),
}
FIELDS_OF_OWN: Fields = {"dimensions": is_count, "count": is_count, "columns": are_columns}
"""What is kept beside a table that nearfar made; another one is asked."""
STATES = "nearfar_collections"
"""StoredTable with a row for each collection, in the schema of its table."""
EF_SEARCH = 100  # of the graph, for a query; more where more neighbors are wanted
MOST_EF_SEARCH = 1000  # that pgvector allows
ROWS_OF_A_PART = 10_000  # rows that become arrays at a time
CONNECT_TIMEOUT = 10


class PostgresStore(DatabaseStore):
    """A collection in PostgreSQL; see `Store`.

    A reader sees every change that has returned. Writers wait for each other, on several machines, too.
    """

    engines = ENGINES
    owner = "PostgreSQL"
    searches_words = True

    def __init__(self, uri: str | Path, *, writes: bool = False, lock: bool = True) -> None:
        self.address = database_of(uri)
        self._candidates = 0  # that the connection is set to
        self._kept = 0  # items that met the filter of the last search
        self.turn = threading.RLock()  # there is one connection, and what was read of the table belongs to the answer
        super().__init__(str(self.address), writes=writes, lock=lock)

    def _open(self) -> None:
        self._connection = connected(self.address)
        self._held.callback(lambda: self._connection.close())  # which may be another one then
        self._read()

    @classmethod
    def create(
        cls, uri: str | Path, records: Records, *, distance: str, engine: str, about: Mapping[str, str], lock: bool
    ) -> PostgresStore:
        """Make a table with the items, which replaces that of an older collection, and open it for writing."""
        check_distance(distance)
        cls.check_engine(engine)
        check_names(records.columns)
        address = database_of(uri)
        state: dict[str, Any] = {
            "format": FORMAT,
            "own": True,
            "distance": distance,
            "engine": engine,
            "change": 0,
            "about": checked_about(about),
        }
        with ExitStack() as held:
            if lock:
                held.enter_context(index_lock(Path(str(address)), wait=0))
            with connected(address, vectors=True) as connection, postgres_errors(str(address)), transaction(connection):
                _lock(connection, address)
                is_table, old = _state_of(connection, address)
                if is_table and not (old or {}).get("own"):
                    raise ValueError(
                        f"{address} is a table that nearfar did not make; add to it with --add, or choose another name"
                    )
                state["change"] = (old or state)["change"] + 1
                _make_items(connection, address, state, records)
                _write_state(connection, address, state)
            store = cls(uri, writes=True, lock=False)
            store._held.push(held.pop_all())
        return store

    def _read(self) -> None:
        """Read the state of the collection, and how its items lie in the table."""
        with self._errors():
            is_table, state = _state_of(self._connection, self.address)
            if not is_table:
                raise no_such_index(self.uri)
            if state is None or not state["own"]:
                state = self._read_existing(state)
            else:
                self._table = own_table(
                    identifier(self.address), state["dimensions"], state["labels"], state["columns"]
                )
        self._state = state

    def _read_existing(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read how items lie in a table that nearfar did not make; return the state, with what it has at first."""
        chosen = {**((state or {}).get("chosen") or {}), **self.address.columns}
        self._table = existing_table(self._connection, self.address, chosen)
        index = index_distance(self._connection, self.address, self._table.vector.name)
        first = {"format": FORMAT, "distance": index or "cosine", "engine": "", "change": 0, "about": {}}
        found = {**first, **(state or {}), "own": False, "chosen": chosen}
        found["indexed"] = OPERATOR_CLASSES.get(index) == OPERATOR_CLASSES[found["distance"]]
        found["labels"] = "" if self._table.label is None else "text"
        return found

    def refresh(self) -> bool:
        before = self._state["change"]
        lost = False
        try:
            self._read()
        except OSError:
            lost = self._connection.closed
            if not lost:
                raise
            self._connection = connected(self.address)
            self._candidates = 0
            self._read()
        return lost or self._state["change"] != before

    @property
    def dimensions(self) -> int:
        return self._table.dimensions

    def engine(self) -> str:
        if self._is_approximate():
            return "approximate (hnsw)"
        return "exact"

    def _is_approximate(self) -> bool:
        return bool(self._state["indexed"] and self._state["engine"] != "exact")

    def columns(self) -> dict[str, Kind]:
        return {name: field.kind for name, field in self._table.fields.items()}

    def _condition(self, where: str) -> Query:
        items = Query(self._table.items)
        if not where:
            return items
        found = condition_of(parse_filter(where, self.columns()), self._table.fields)
        return Query(SQL("{} AND ({})").format(items.sql, found.sql), found.values)

    def _count(self, condition: Query) -> int:
        if self._table.own and not self._is_filtered(condition):
            return int(self._state["count"])
        statement = SQL("SELECT count(*) FROM {} WHERE {}").format(self._table.name, condition.sql)
        count = int(self._rows(statement, condition.values)[0][0])
        if self._is_filtered(condition):
            self._kept = count
        return count

    @retried
    def column(self, name: str, where: str = "", *, start: int = 0, count: int | None = None) -> AnyArray:
        check_column(name, self.columns())
        field = self._table.fields[name]
        rows = self._selected(field.sql, self._condition(where), start=start, count=count)
        return field.array([value for (value,) in rows])

    @retried
    def classes(self) -> dict[str, int]:
        label = self._table.label
        if label is None:
            return {}
        statement = SQL("SELECT {}, count(*) FROM {} WHERE {} GROUP BY 1").format(
            label.sql, self._table.name, self._table.items
        )
        counted = {str(value): int(count) for value, count in self._rows(statement, ()) if value not in (None, "")}
        return dict(sorted(counted.items()))

    @retried
    def get(self, names: Sequence[str]) -> Records:
        wanted = names_in(names)
        return self._table.records(self._selected(self._table.selected, self._table.named(wanted))).named(wanted)

    @retried
    def _everything(self) -> Records:
        statement = SQL("COPY (SELECT {} FROM {} WHERE {} ORDER BY 1) TO STDOUT (FORMAT BINARY)").format(
            self._table.selected, self._table.name, self._table.items
        )
        types = [field.plain.as_string() for field in self._table.fields.values()]
        parts: list[Records] = []
        with self._errors(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([types[0], "vector", *types[1:]])
            rows = []
            for row in copy.rows():
                rows.append(row)
                if len(rows) == ROWS_OF_A_PART:
                    parts.append(self._table.records(rows))
                    rows = []
            parts.append(self._table.records(rows))
        return joined_records(parts)

    def _nearest(self, x: AnyArray, condition: Query, k: int) -> Hits:
        if k == 0:
            return no_hits(x, self.dimensions)
        approximate = self._is_approximate() and 2 * k <= MOST_EF_SEARCH
        if approximate and self._is_filtered(condition):
            approximate = self._kept >= EXACT_SHARE * self._count(Query(self._table.items))
        if approximate:
            self._set_candidates(max(EF_SEARCH, 2 * k))
        order = self._table.indexed(self.distance) if approximate else self._table.exact(self.distance)
        tie = SQL("") if approximate else SQL(", {}").format(Identifier(self._table.id.name))
        statement = SQL("SELECT {} FROM {} WHERE {} ORDER BY {}{} LIMIT {}").format(
            self._table.selected, self._table.name, condition.sql, order, tie, Placeholder()
        )
        rows: list[tuple[Any, ...]] = []
        query_rows: list[int] = []
        for number, query in enumerate(as_compared(x, self.distance)):
            found = self._rows(statement, (*condition.values, query, k))
            rows += found
            query_rows += [number] * len(found)
        return ranked(x, self._table.records(rows), np.asarray(query_rows, dtype=np.intp), k, self.distance)

    @retried
    def search_words(self, words: str, k: int = 10, *, where: str = "") -> Records:
        check_k(k)
        parts = [f"{word[:-1]}:*" if word.endswith("*") else word for word in words_in(words)]
        condition = self._condition(where)
        statement = SQL(
            "SELECT {} FROM {}, to_tsquery('simple', {}) AS words WHERE {} AND {} @@ words "
            "ORDER BY ts_rank({}, words) DESC, {} LIMIT {}"
        ).format(
            self._table.selected,
            self._table.name,
            Placeholder(),
            condition.sql,
            self._table.words,
            self._table.words,
            Identifier(self._table.id.name),
            Placeholder(),
        )
        return self._table.records(self._rows(statement, (" & ".join(parts), *condition.values, int(k))))

    def _is_filtered(self, condition: Query) -> bool:
        return condition.sql != self._table.items

    def _set_candidates(self, count: int) -> None:
        """Let pgvector keep more candidates, and go on where a filter leaves out some of them."""
        if count > self._candidates:
            self._rows(
                SQL(
                    "SELECT set_config('hnsw.ef_search', {}, false), set_config('hnsw.iterative_scan', {}, false)"
                ).format(Placeholder(), Placeholder()),
                (str(count), "relaxed_order"),
            )
            self._candidates = count

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        new_about = self._checked(about, engine)
        with self._change() as state:
            is_empty = self._count(Query(self._table.items)) == 0
            self._check_new(records, is_empty and self._table.own)
            state["about"] = {**state["about"], **new_about}
            if is_empty and self._table.own and len(records):
                kinds = {name: field.kind for name, field in self._table.columns.items()}
                _make_items(self._connection, self.address, state, with_columns(records, kinds))
            else:
                self._replace(state, names_in(gone), records)
            self._set_engine(state, engine)

    def remove(self, names: Sequence[str]) -> None:
        self._check_writes()
        gone = names_in(names)
        with self._change() as state:
            there = [name for (name,) in self._selected(self._table.id.sql, self._table.named(gone))]
            check_known(gone, text_array(there))
            self._remove(state, gone)

    @contextmanager
    def _change(self) -> Iterator[dict[str, Any]]:
        self.refresh()  # also connects again
        try:
            with self._errors(), transaction(self._connection):
                _lock(self._connection, self.address)
                self._read()  # as the last change of any writer has left it
                state = dict(self._state)
                yield state
                state["change"] += 1
                _write_state(self._connection, self.address, state)
        finally:
            with suppress(OSError, ValueError):
                self.refresh()  # the new one after an error, too, if it came after the change was written

    def _replace(self, state: dict[str, Any], gone: Sequence[str], records: Records) -> None:
        """Remove some items, and add others or replace those of the same names."""
        added = set(records.names.tolist())
        self._remove(state, [name for name in gone if name not in added])
        if not added:
            return
        self._add_columns(state, records)
        table = self._table
        if table.own:
            records = with_columns(records, {name: field.kind for name, field in table.columns.items()})
        fields = [table.id, *([] if table.label is None else [table.label])]
        fields += [table.columns[name] for name in records.columns]
        new = Identifier("nearfar new items")
        columns = [SQL("{} {}").format(Identifier(field.name), field.plain) for field in fields]
        columns.append(SQL("{} vector").format(Identifier(table.vector.name)))
        self._connection.execute(SQL("CREATE TEMP TABLE {} ({}) ON COMMIT DROP").format(new, SQL(", ").join(columns)))
        copy_in(self._connection, new, table, records)
        cells = [
            SQL("new.{}::{}").format(Identifier(field.name), Identifier(field.type))
            for field in [*fields, table.vector]
        ]
        places = [Identifier(field.name) for field in [*fields, table.vector]]
        same = SQL("old.{} = {}").format(Identifier(table.id.name), cells[0])
        changed = [SQL("{} = {}").format(place, cell) for place, cell in zip(places[1:], cells[1:], strict=True)]
        self._connection.execute(
            SQL("UPDATE {} AS old SET {} FROM {} AS new WHERE {}").format(
                table.name, SQL(", ").join(changed), new, same
            )
        )
        inserted = self._connection.execute(
            SQL(
                "INSERT INTO {} ({}) SELECT {} FROM {} AS new WHERE NOT EXISTS (SELECT FROM {} AS old WHERE {})"
            ).format(table.name, SQL(", ").join(places), SQL(", ").join(cells), new, table.name, same)
        )
        if table.own:
            state["count"] += inserted.rowcount

    def _remove(self, state: dict[str, Any], names: Sequence[str]) -> None:
        if not names:
            return
        named = self._table.named(names)
        if not self._table.own:
            clear = SQL("UPDATE {} SET {} = NULL WHERE {}")
            self._connection.execute(
                clear.format(self._table.name, Identifier(self._table.vector.name), named.sql), named.values
            )
            return
        removed = self._connection.execute(
            SQL("DELETE FROM {} WHERE {}").format(self._table.name, named.sql), named.values
        )
        state["count"] -= removed.rowcount

    def _add_columns(self, state: dict[str, Any], records: Records) -> None:
        """Add the columns of new items to a table of ours; the old items have no value there."""
        new = {name: kind for name, kind in column_kinds(records.columns).items() if name not in self._table.columns}
        if not new:
            return
        if not self._table.own:
            raise ValueError(f"columns: {self.uri} has no column {quoted(next(iter(new)))}; add it in the database")
        check_names(new)
        state["columns"] = {**state["columns"], **new}
        self._table = own_table(self._table.name, self.dimensions, state["labels"], state["columns"])
        for name in new:
            self._connection.execute(
                SQL("ALTER TABLE {} ADD COLUMN {}").format(self._table.name, column_sql(self._table.columns[name]))
            )
        _index_words(self._connection, self.address, self._table)

    def _set_engine(self, state: dict[str, Any], engine: str) -> None:
        state["engine"] = engine or state["engine"]
        if self._table.own:
            _set_index(self._connection, self.address, state)
        elif engine == "hnsw" and not state["indexed"]:
            raise ValueError(f"engine: {self.uri} has no HNSW index of its distance; make it in the database")

    def _selected(
        self, selected: Composable, condition: Query, *, start: int = 0, count: int | None = None
    ) -> list[tuple[Any, ...]]:
        statement = SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {} OFFSET {}").format(
            selected, self._table.name, condition.sql, Identifier(self._table.id.name), Placeholder(), Placeholder()
        )
        return self._rows(statement, (*condition.values, count, start))  # LIMIT NULL is no limit

    def _rows(self, statement: Composable, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._errors():
            return self._connection.execute(cast(Any, statement), values, binary=True).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with postgres_errors(self.uri):
            yield


def connected(address: DatabaseAddress, *, vectors: bool = False) -> psycopg.Connection[Any]:
    """Return a connection to the database of a collection; `vectors` makes the type of vectors if it is not there."""
    with postgres_errors(str(address)):
        # a pool between the two may not keep prepared statements
        settings: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT, **address.parameters}
        connection = psycopg.connect(**settings, autocommit=True, prepare_threshold=None)
        try:
            if vectors:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            # one round trip: `pgvector.psycopg.register_vector` makes twelve
            types = connection.execute(
                "SELECT typname, oid, typarray FROM pg_type WHERE oid IN (to_regtype('vector'), to_regtype('halfvec'))"
            )
            infos = {name: TypeInfo(name, oid, array) for name, oid, array in types}
            if "vector" not in infos:
                raise no_such_index(str(address))
            register_vector_info(connection, infos["vector"])
            if "halfvec" in infos:  # versions of pgvector before 0.7 have none
                register_halfvec_info(connection, infos["halfvec"])
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Make all statements in a block one transaction."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(psycopg.Error):
            connection.rollback()
        raise


@contextmanager
def postgres_errors(uri: str) -> Iterator[None]:
    """Translate an exception of PostgreSQL into an error of one line.

    >>> with postgres_errors("postgresql://host/shop#photos"):
    ...     raise psycopg.OperationalError("connection refused\\nIs the server running?")
    Traceback (most recent call last):
    OSError: postgresql://host/shop#photos: PostgreSQL: connection refused
    """
    try:
        yield
    except psycopg.Error as error:
        first = error.diag.message_primary or first_line(str(error))
        message = f"{uri}: PostgreSQL: {shorten(first, PATH)}"
        if isinstance(error, psycopg.errors.LockNotAvailable):
            raise TimeoutError(f"{uri}: another process is still changing it; try again when that has ended") from error
        if isinstance(error, (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)):
            raise ValueError(message) from error
        raise OSError(message) from error


def copy_in(connection: psycopg.Connection[Any], name: Identifier, table: StoredTable, records: Records) -> None:
    """Send items to a table with these columns, in one COPY; what is missing becomes NULL."""
    fields = {table.id: records.names}
    if table.label is not None and records.labels is not None:
        fields[table.label] = records.labels
    fields |= {table.columns[column]: values for column, values in records.columns.items()}
    places = [Identifier(field.name) for field in [*fields, table.vector]]
    statement = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(name, SQL(", ").join(places))
    cells = [_cells(values) for values in fields.values()]
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([*[field.plain.as_string() for field in fields], "vector"])
        for row in zip(*cells, records.embeddings, strict=True):
            copy.write_row(row)


def _cells(values: AnyArray) -> list[Any]:
    """Return the values of a column as Python has them, with None where one is missing."""
    if values.dtype.kind == "f":
        return [None if value != value else value for value in values.tolist()]  # NaN differs from itself
    return [None if value == "" else value for value in values.tolist()]


def _make_items(
    connection: psycopg.Connection[Any], address: DatabaseAddress, state: dict[str, Any], records: Records
) -> None:
    """Make the table of a collection again with these items, and note in `state` what is in it."""
    state["dimensions"] = int(records.embeddings.shape[1])
    state["labels"] = kind_of_labels(records)
    state["columns"] = column_kinds(records.columns)
    state["count"] = len(records)
    state["indexed"] = False
    table = own_table(identifier(address), state["dimensions"], state["labels"], state["columns"])
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(table.name))
    make_table(connection, table)
    copy_in(connection, table.name, table, records)
    _index_words(connection, address, table)
    _set_index(connection, address, state)


def _set_index(connection: psycopg.Connection[Any], address: DatabaseAddress, state: dict[str, Any]) -> None:
    """Make the index of a table of ours if it is due, or remove it."""
    possible = state["dimensions"] <= MOST_DIMENSIONS
    if state["engine"] == "hnsw" and not possible:
        got = f"{state['dimensions']:,}"
        raise ValueError(f"engine: hnsw takes up to {MOST_DIMENSIONS:,} dimensions, got {got}; use exact")
    wanted = state["engine"] == "hnsw" or (state["engine"] == "" and state["count"] >= APPROXIMATE_FROM and possible)
    if wanted == state["indexed"] or (wanted and state["count"] == 0):
        return
    table = own_table(identifier(address), state["dimensions"], state["labels"], state["columns"])
    index = _index_name(address, "hnsw")
    if not wanted:
        connection.execute(SQL("DROP INDEX IF EXISTS {}").format(identifier(address, index)))
    else:
        cosine = state["distance"] == "cosine"
        indexed = SQL("({})").format(table.unit) if cosine else Identifier(table.vector.name)
        connection.execute(
            SQL("CREATE INDEX {} ON {} USING hnsw ({} {})").format(
                Identifier(index),
                table.name,
                indexed,
                SQL("vector_ip_ops" if cosine else "vector_l2_ops"),
            )
        )
    state["indexed"] = wanted


def _index_words(connection: psycopg.Connection[Any], address: DatabaseAddress, table: StoredTable) -> None:
    """Make the index of the words in a table of ours, again if there is one."""
    index = _index_name(address, "words")
    connection.execute(SQL("DROP INDEX IF EXISTS {}").format(identifier(address, index)))
    connection.execute(SQL("CREATE INDEX {} ON {} USING gin ({})").format(Identifier(index), table.name, table.words))


def _index_name(address: DatabaseAddress, kind: str) -> str:
    """Return the name of an index of a table, which PostgreSQL would cut if it were longer."""
    return f"{address.collection.rpartition('.')[2][:50]}_{kind}"


def _lock(connection: psycopg.Connection[Any], address: DatabaseAddress) -> None:
    """Wait until no other transaction changes this collection, on any machine."""
    connection.execute(SQL("SET LOCAL lock_timeout = {}").format(SQL(f"'{WAIT:.0f}s'")))
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 42))", [address.collection])


def _are_tables(connection: psycopg.Connection[Any], *names: Identifier) -> list[bool]:
    """Return for each name whether a table has it, in one round trip."""
    asked = SQL(", ").join([SQL("to_regclass({})").format(Placeholder())] * len(names))
    found = connection.execute(SQL("SELECT {}").format(asked), [name.as_string() for name in names]).fetchone()
    return [one is not None for one in found or ()]


def _state_of(connection: psycopg.Connection[Any], address: DatabaseAddress) -> tuple[bool, dict[str, Any] | None]:
    """Return whether the table of a collection exists, and its state; None if there is none."""
    states = identifier(address, STATES)
    is_table, has_states = _are_tables(connection, identifier(address), states)
    if not has_states:
        return is_table, None
    found = connection.execute(
        SQL("SELECT state::text FROM {} WHERE name = %s").format(states), [address.collection.rpartition(".")[2]]
    ).fetchone()
    if found is None:
        return is_table, None
    state = parsed_state(found[0] or "", str(address), FIELDS)
    if state["own"]:
        check_fields(state, str(address), FIELDS_OF_OWN)
    return is_table, state


def _write_state(connection: psycopg.Connection[Any], address: DatabaseAddress, state: Mapping[str, Any]) -> None:
    states = identifier(address, STATES)
    if _are_tables(connection, states) == [False]:
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 42))", [STATES])
        connection.execute(
            SQL("CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, state text NOT NULL)").format(states)
        )
    connection.execute(
        SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET state = excluded.state").format(states),
        [address.collection.rpartition(".")[2], json.dumps(state)],
    )
