"""Collections as data frames of pandas or polars, or tables of Arrow, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..io.atomic_files import atomic_path
from ..quoting import quoted
from .filters import mask, parse_filter
from .index import Index
from .records import Records, column_kinds, records_of
from .stores import Store, check_open

Library = Literal["pandas", "polars", "arrow"]
EMBEDDING = "embedding"


def to_frame(
    collection: Store | Index, *, where: str = "", embeddings: bool = False, library: Library = "pandas"
) -> Any:
    """Return the items of a collection as a data frame.

    Parameters
    ----------
    collection : Store or Index
        What `nearfar.index.open` returns, or an index in memory.
    where : str
        Filter, as for `Index.search`; by default, all items.
    embeddings : bool
        Whether the column `embedding` has the embedding of each item, a list of numbers.
    library : {"pandas", "polars", "arrow"}
        Kind of frame. In pandas, the names are the index of the frame; otherwise, they are the column `name`.

    Returns
    -------
    DataFrame or Table
        The names, the classes in the column `label`, if there are any, and all other columns.

    Raises
    ------
    ValueError
        If the filter is not valid, or the library is none of these.

    Examples
    --------
    >>> index = Index([[1.0, 0.0], [0.0, 1.0]], names=["east", "north"], columns={"price": [3, 5]})
    >>> to_frame(index, where="price > 4").to_dict()
    {'price': {'north': 5.0}}
    """
    check_open(collection, "collection")
    if library not in ("pandas", "polars", "arrow"):
        raise ValueError(f"library: expected pandas, polars or arrow, got {quoted(library)}")
    records = _records(collection, where, embeddings=embeddings)
    columns: dict[str, Any] = {"name": records.names}
    if records.labels is not None:
        columns["label"] = records.labels
    columns |= records.columns
    if library == "pandas":
        import pandas as pd

        frame = pd.DataFrame(columns).set_index("name")
        return frame.assign(**{EMBEDDING: list(records.embeddings)}) if embeddings else frame
    if embeddings:
        columns[EMBEDDING] = records.embeddings
    if library == "polars":
        import polars as pl

        return pl.DataFrame(columns)
    import pyarrow as pa

    if embeddings:
        flat = pa.array(records.embeddings.ravel())
        columns[EMBEDDING] = pa.FixedSizeListArray.from_arrays(flat, records.embeddings.shape[1])
    return pa.table({name: column if name == EMBEDDING else column.tolist() for name, column in columns.items()})


def write_table(collection: Store, path: Path) -> int:
    """Write all items of a collection into a Parquet file, wholly or not at all; return how many there are."""
    table = to_frame(collection, embeddings=True, library="arrow")
    import pyarrow.parquet as pq

    with atomic_path(path) as partial:
        pq.write_table(table, partial)
    return int(table.num_rows)


def _records(collection: Store | Index, where: str, *, embeddings: bool) -> Records:
    """Return the items for which a filter holds; without their embeddings, unless these are wanted."""
    if isinstance(collection, Index):
        records = collection.records()
        columns = collection.all_columns()
        return records.pick(mask(parse_filter(where, column_kinds(columns)), columns)) if where else records
    names = collection.column("name", where)
    if embeddings:
        return collection.get(names.tolist())
    columns = {name: collection.column(name, where) for name in collection.columns() if name != "name"}
    labels = columns.pop("label", None)
    return Records(names, np.empty((len(names), 0), dtype=np.float32), labels, columns)


def from_frame(frame: Any, embeddings: Any = EMBEDDING) -> Records:
    """Return the rows of a data frame as items, for `Store.add` and `Index`.

    Parameters
    ----------
    frame : DataFrame or Table
        A frame of pandas or polars, or a table of Arrow. The column `name`, or else the index of a frame of pandas, has
        the names; `label` the classes, if it is there; all others are columns for filters.
    embeddings : str or array of shape (n, d)
        The column of lists of numbers, or the embeddings themselves, in the order of the rows.

    Returns
    -------
    Records
        The items.

    Raises
    ------
    ValueError
        If there are no names or embeddings, or a value is not valid.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"price": [3.0, 5.0]}, index=["east", "north"])
    >>> from_frame(frame, [[1.0, 0.0], [0.0, 1.0]])
    Records of 2 x 2 with price
    """
    columns = _columns_of(frame)
    if isinstance(embeddings, str):
        if embeddings not in columns:
            raise ValueError(f"embeddings: the frame has no column {quoted(embeddings)}; it has {', '.join(columns)}")
        embeddings = np.array([np.asarray(row) for row in columns.pop(embeddings)])
    names = columns.pop("name", None)
    if names is None:
        raise ValueError(f"frame: has no column 'name' and no index with names; it has {', '.join(columns)}")
    return records_of(embeddings, names, labels=columns.pop("label", None), columns=columns)


def _columns_of(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a frame as lists; the index of pandas becomes the names, unless it only counts rows."""
    if hasattr(frame, "to_pydict"):  # Arrow
        found: dict[str, list[Any]] = frame.to_pydict()
        return found
    columns = {str(name): frame[name].to_list() for name in frame.columns}
    index = getattr(frame, "index", None)
    if index is not None and "name" not in columns and type(index).__name__ != "RangeIndex":
        columns["name"] = index.to_list()
    return columns
