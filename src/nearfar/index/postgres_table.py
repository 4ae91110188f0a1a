"""How the items of a collection lie in a table of PostgreSQL: one of its own, or one that a team has already."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg import Connection
from psycopg.sql import SQL, Composable, Identifier, Placeholder

from ..data.dataset import some
from ..io.uris import DatabaseAddress
from ..labels import text_array
from ..numerics.types import AnyArray
from ..quoting import quoted
from .filters import Condition, Every, Filter, Kind, Not
from .records import COLUMN_NAME, RESERVED, Records, no_records

KEYS: Mapping[str, str] = {"text": "", "varchar": "", "int2": r"-?\d{1,5}", "int4": r"-?\d{1,9}", "int8": r"-?\d{1,18}"}
"""Types of a column that can name items, and what such a name looks like."""
NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric")
TEXTS = (
    "text",
    "varchar",
    "bpchar",
    "uuid",
    "date",
    "timestamp",
    "timestamptz",
)  # dates as text have the order of time
VECTORS = ("vector", "halfvec")
MOST_DIMENSIONS = 2000  # of vectors that HNSW can index
OPERATORS = {"cosine": "<=>", "euclidean": "<->", "sqeuclidean": "<->"}
OPERATOR_CLASSES = {"cosine": "cosine_ops", "euclidean": "l2_ops", "sqeuclidean": "l2_ops"}
SIGNS = string.punctuation.replace("%", "")  # PostgreSQL divides words there by itself
NAMED_COLUMNS = 20  # names of columns in a message
LONGEST_IDENTIFIER = 63  # characters; PostgreSQL cuts what is longer
SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


@dataclass(frozen=True)
class Query:
    """A part of a statement, and the values of its placeholders: they are sent beside it, and never written into it."""

    sql: Composable
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: its name and type in the database, and what it holds for filters."""

    name: str
    type: str
    kind: Kind

    @property
    def sql(self) -> Composable:
        """The column as text, in which a missing one is empty, or as a number."""
        column = Identifier(self.name)
        if self.kind == "number":
            return column if self.type == "int8" else SQL("{}::float8").format(column)
        return SQL("coalesce({}::text, '') COLLATE \"C\"").format(column)

    @property
    def plain(self) -> Composable:
        """The type in which its values are sent."""
        if self.kind == "text":
            return SQL("text")
        return SQL("int8" if self.type == "int8" else "float8")

    def array(self, values: Sequence[Any]) -> AnyArray:
        """Return values as text, whole numbers, or float64 with NaN where one is missing."""
        if self.kind == "text":
            return text_array(values)
        if self.type == "int8":
            return np.array(values, dtype=np.int64)
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


@dataclass(frozen=True)
class StoredTable:
    """Where the items of a collection are.

    Attributes
    ----------
    name : Identifier
        The table.
    own : bool
        Whether nearfar made it. Of another table, no rows are removed, and no columns added.
    id, vector : TableColumn
        The columns of the names and of the embeddings.
    dimensions : int
        Number of dimensions of the embeddings.
    label : TableColumn or None
        The column of the classes.
    columns : dict of str to TableColumn
        The columns for filters and groups.
    """

    name: Identifier
    own: bool
    id: TableColumn
    vector: TableColumn
    dimensions: int
    label: TableColumn | None
    columns: Mapping[str, TableColumn]

    @property
    def fields(self) -> dict[str, TableColumn]:
        """The columns that filters and groups can use, by their names there."""
        labels = {} if self.label is None else {"label": self.label}
        return {"name": self.id, **labels, **self.columns}

    @property
    def items(self) -> Composable:
        """Condition of the rows that are items."""
        if self.own:
            return SQL("true")
        return SQL("{} IS NOT NULL AND {} IS NOT NULL").format(Identifier(self.id.name), Identifier(self.vector.name))

    @property
    def words(self) -> Composable:
        """The words of the name, the class and the columns of text; signs such as slashes of paths divide words."""
        texts = [field.sql for field in self.fields.values() if field.type in ("text", "varchar")]
        joined = SQL(" || ' ' || ").join(texts) if texts else SQL("''")
        return SQL("to_tsvector('simple', translate({}, {}, {}))").format(joined, SIGNS, " " * len(SIGNS))

    @property
    def selected(self) -> Composable:
        """What `records` expects of every row."""
        name, *others = (field.sql for field in self.fields.values())
        return SQL(", ").join([name, SQL("{}::vector").format(Identifier(self.vector.name)), *others])

    def records(self, rows: Sequence[tuple[Any, ...]]) -> Records:
        """Return rows as records."""
        if not rows:
            return no_records(self.dimensions)
        names, vectors, *others = zip(*rows, strict=True)
        fields = [*self.fields.items()][1:]
        columns = {name: field.array(values) for (name, field), values in zip(fields, others, strict=True)}
        labels = columns.pop("label", None)
        return Records(text_array(names), np.stack([vector.to_numpy() for vector in vectors]), labels, columns)

    def named(self, names: Sequence[str]) -> Query:
        """Return the condition that an item has one of these names; they have the type of the column, for its index."""
        pattern = KEYS[self.id.type]
        if pattern:
            possible = [name for name in names if re.fullmatch(pattern, name)]
        else:
            possible = [name for name in names if "\0" not in name]
        condition = SQL("{} AND {} = ANY({}::text[]::{})").format(
            self.items, Identifier(self.id.name), Placeholder(), SQL(f"{self.id.type}[]")
        )
        return Query(condition, (possible,))

    def indexed(self, distance: str) -> Composable:
        """Return what an index orders by for a query.

        In a table of ours, the cosine is the negative product of unit rows, -q.x / |x|: pgvector's own has no value for
        rows of zeros, and overflows for squares that float32 cannot hold. `l2_normalize` computes in float64.
        """
        if self.own and distance == "cosine":
            return SQL("({}) <#> {}::vector").format(self.unit, Placeholder())
        column = Identifier(self.vector.name)
        return SQL("{} {} {}::{}").format(column, SQL(OPERATORS[distance]), Placeholder(), SQL(self.vector.type))

    @property
    def unit(self) -> Composable:
        """The embedding with length one, in the form that is indexed."""
        column = SQL("l2_normalize({}::vector)").format(Identifier(self.vector.name))
        return SQL("{}::vector({})").format(column, SQL(str(self.dimensions)))

    def exact(self, distance: str) -> Composable:
        """Return the same order in a form that no index has, so that every row is compared."""
        if distance == "cosine":
            return SQL("0 + (({}) <#> {}::vector)").format(self.unit, Placeholder())
        return SQL("0 + ({}::vector {} {}::vector)").format(
            Identifier(self.vector.name), SQL(OPERATORS[distance]), Placeholder()
        )


def own_table(name: Identifier, dimensions: int, labels: str, columns: Mapping[str, Kind]) -> StoredTable:
    """Return the table that nearfar makes for a collection."""
    types: Mapping[Kind, str] = {"text": "text", "number": "float8"}
    label = {"text": TableColumn("label", "text", "text"), "number": TableColumn("label", "int8", "number")}.get(labels)
    return StoredTable(
        name=name,
        own=True,
        id=TableColumn("name", "text", "text"),
        vector=TableColumn("embedding", "vector", "text"),
        dimensions=dimensions,
        label=label,
        columns={column: TableColumn(column, types[kind], kind) for column, kind in columns.items()},
    )


def check_names(columns: Mapping[str, Any]) -> None:
    """Refuse names of columns that PostgreSQL cuts, or has in every table."""
    for name in columns:
        if len(name) > LONGEST_IDENTIFIER:
            raise ValueError(f"columns: PostgreSQL takes names of up to 63 characters, got {quoted(name)}; rename it")
        if name in SYSTEM_COLUMNS:
            raise ValueError(f"columns: {quoted(name)} is reserved in PostgreSQL; rename it")


def make_table(connection: Connection[Any], table: StoredTable) -> None:
    """Make an empty table for items."""
    fields = [field for name, field in table.fields.items() if name != "name"]
    columns = [
        SQL('{} text COLLATE "C" PRIMARY KEY').format(Identifier(table.id.name)),
        SQL("{} vector({}) NOT NULL").format(Identifier(table.vector.name), SQL(str(table.dimensions))),
        *[column_sql(field) for field in fields],
    ]
    connection.execute(SQL("CREATE TABLE {} ({})").format(table.name, SQL(", ").join(columns)))


def column_sql(field: TableColumn) -> Composable:
    """Return the definition of a column."""
    collation = SQL(' COLLATE "C"' if field.kind == "text" else "")
    return SQL("{} {}{}").format(Identifier(field.name), SQL(field.type), collation)


def existing_table(connection: Connection[Any], address: DatabaseAddress, chosen: Mapping[str, str]) -> StoredTable:
    """Return how items lie in a table that nearfar did not make.

    Parameters
    ----------
    connection : psycopg.Connection
        Where the table is.
    address : DatabaseAddress
        Its address, for messages and its name.
    chosen : mapping of str to str
        The columns of `id`, `vector` and `label`; by default the primary key, the only column of vectors, and a column
        that is called label.

    Raises
    ------
    ValueError
        If there is no such column, or it cannot be used.
    """
    name = identifier(address)
    types = _types(connection, address)
    vectors = [column for column, (kind, _) in types.items() if kind in VECTORS]
    vector = chosen.get("vector") or (vectors[0] if len(vectors) == 1 else "")
    if not vectors:
        raise ValueError(f"{address} is not a collection of nearfar: its table has no column of vectors")
    if vector not in vectors:
        there = f"its columns of vectors are {shown_names(vectors)}"
        raise ValueError(f"{address}: name the column of the embeddings, as in #{address.collection}?vector=; {there}")
    key = chosen.get("id") or _primary_key(connection, address)
    if types.get(key, ("", 0))[0] not in KEYS:
        raise ValueError(
            f"{address}: name a column of different texts or whole numbers, as in #{address.collection}?id="
        )
    label = chosen.get("label") or ("label" if types.get("label", ("", 0))[0] in (*TEXTS, *NUMBERS) else "")
    if label and label not in types:
        raise ValueError(f"{address}: there is no column {quoted(label)} of classes; there are {shown_names(types)}")
    columns = {}
    for column, (kind, _) in types.items():
        plain = COLUMN_NAME.fullmatch(column) and column not in (*RESERVED, key, vector, label)
        if plain and kind in (*NUMBERS, *TEXTS):
            # whole numbers may be missing here, which float8 has a value for
            number = kind in NUMBERS
            columns[column] = TableColumn(column, "numeric" if number else kind, "number" if number else "text")
    return StoredTable(
        name=name,
        own=False,
        id=TableColumn(key, types[key][0], "text"),
        vector=TableColumn(vector, types[vector][0], "text"),
        dimensions=_dimensions(connection, address, vector, types[vector][1]),
        label=TableColumn(label, types[label][0], "text") if label else None,
        columns=columns,
    )


def shown_names(columns: Iterable[str]) -> str:
    """Return names of columns of a table that others made for a message: some of them, on one line."""
    return some([name if name.isprintable() else quoted(name) for name in columns], NAMED_COLUMNS)


def identifier(address: DatabaseAddress, table: str = "") -> Identifier:
    """Return the table of an address, or another one in its schema."""
    schema, _, name = address.collection.rpartition(".")
    return Identifier(*filter(None, [schema, table or name]))


def _types(connection: Connection[Any], address: DatabaseAddress) -> dict[str, tuple[str, int]]:
    """Return the type of each column of a table, and what limits it, such as the dimensions of vectors."""
    rows = connection.execute(
        "SELECT attname, typname, atttypmod FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [identifier(address).as_string()],
    ).fetchall()
    return {column: (kind, limit) for column, kind, limit in rows}


def _primary_key(connection: Connection[Any], address: DatabaseAddress) -> str:
    """Return the column that is the primary key of a table; "" if it has none, or of several columns."""
    found = connection.execute(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] "
        "WHERE indrelid = %s::regclass AND indisprimary AND indnkeyatts = 1",
        [identifier(address).as_string()],
    ).fetchone()
    return "" if found is None else str(found[0])


def _dimensions(connection: Connection[Any], address: DatabaseAddress, vector: str, limit: int) -> int:
    """Return the dimensions of a column of vectors, as it is declared, or else those of its first one."""
    if limit > 0:
        return limit
    column = Identifier(vector)
    first = SQL("SELECT vector_dims({}) FROM {} WHERE {} IS NOT NULL LIMIT 1")
    found = connection.execute(first.format(column, identifier(address), column)).fetchone()
    if found is None:
        raise ValueError(f"{address}: declare the dimensions of the column {quoted(vector)}, such as vector(128)")
    return int(found[0])


def index_distance(connection: Connection[Any], address: DatabaseAddress, vector: str) -> str:
    """Return the distance of the HNSW index that a column of vectors has; "" if it has none."""
    rows = connection.execute(
        "SELECT opcname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam "
        "JOIN pg_opclass ON pg_opclass.oid = indclass[0] JOIN pg_attribute ON attrelid = indrelid "
        "AND attnum = indkey[0] WHERE indrelid = %s::regclass AND amname = 'hnsw' AND attname = %s AND indisvalid "
        "AND indpred IS NULL ORDER BY opcname",
        [identifier(address).as_string(), vector],
    ).fetchall()
    distances = {"cosine_ops": "cosine", "l2_ops": "euclidean"}
    found = [distances[name.partition("_")[2]] for (name,) in rows if name.partition("_")[2] in distances]
    return found[0] if found else ""


def condition_of(tree: Filter, fields: Mapping[str, TableColumn]) -> Query:
    """Return a filter as a condition. A comparison with NULL has no truth in SQL, which counts as false.

    >>> from .filters import parse_filter
    >>> price = TableColumn("price", "float8", "number")
    >>> found = condition_of(parse_filter("not price < 10", {"price": "number"}), {"price": price})
    >>> found.sql.as_string(), found.values
    ('("price"::float8 < %s::float8) IS NOT TRUE', (10.0,))
    """
    if isinstance(tree, Not):
        part = condition_of(tree.part, fields)
        return Query(SQL("({}) IS NOT TRUE").format(part.sql), part.values)
    if isinstance(tree, Condition):
        return _compared(tree, fields[tree.column])
    parts = [condition_of(part, fields) for part in tree.parts]
    word = SQL(" AND " if isinstance(tree, Every) else " OR ")
    joined = word.join([SQL("({})").format(part.sql) for part in parts])
    return Query(joined, tuple(value for part in parts for value in part.values))


def _compared(condition: Condition, field: TableColumn) -> Query:
    values: tuple[Any, ...] = condition.values
    if field.kind == "number":
        values = tuple(map(float, values))
    if condition.sign == "missing":
        return Query(SQL("{} = ''" if field.kind == "text" else "{} IS NULL").format(field.sql))
    if condition.sign == "contains":
        return Query(SQL("strpos({}, {}) > 0").format(field.sql, Placeholder()), values)
    sent = SQL("text" if field.kind == "text" else "float8")
    if condition.sign == "in":
        return Query(SQL("{} = ANY({}::{}[])").format(field.sql, Placeholder(), sent), ([*values],))
    sign = SQL({"==": "=", "!=": "<>"}.get(condition.sign, condition.sign))
    column = field.sql
    if condition.sign == "==" and field.type in ("text", "varchar") and values != ("",):
        column = Identifier(field.name)  # as an index of it has it
    return Query(SQL("{} {} {}::{}").format(column, sign, Placeholder(), sent), values)
