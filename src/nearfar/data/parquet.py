"""The columns of a Parquet table; a list of numbers in every row, as embeddings are stored, is as many columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .dataset import DataError


def read_parquet(path: Path) -> dict[str, Sequence[Any]]:
    """Return the columns by their names; lists of d numbers in a column `e` become e[0], ..., e[d - 1].

    Beside paths of images, which are read in place of numbers, lists stay as they are.

    Raises
    ------
    DataError
        Where pyarrow is missing, the file cannot be read, or lists differ in length.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'nearfar[tables]'") from error
    try:
        table = read_table(path)
        rows = "path" not in map(str.lower, table.column_names)
        columns: dict[str, Sequence[Any]] = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            lists = rows and _holds_numbers(column.type)
            columns |= _numbers_of(path, name, column) if lists else {name: column.to_pylist()}
        return columns
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def _holds_numbers(kind: Any) -> bool:
    """Whether the cells of a column are lists of numbers."""
    from pyarrow import types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _numbers_of(path: Path, name: str, column: Any) -> dict[str, Sequence[Any]]:
    from pyarrow.compute import list_flatten, list_value_length

    lengths = set(list_value_length(column).to_pylist())
    if len(lengths - {None}) > 1:
        some = " and ".join(str(length) for length in sorted(lengths - {None})[:2])
        raise DataError(
            f"{path}: column {name!r} holds lists of {some} numbers; features are equally many in every row"
        )
    if None in lengths:
        raise DataError(f"{path}: column {name!r} has no list in {column.null_count} of {len(column)} rows")
    numbers = list_flatten(column).to_numpy().astype(np.float64)  # a missing number is NaN
    features = np.ascontiguousarray(numbers.reshape(len(column), *lengths or {0}).T)
    return {f"{name}[{i}]": feature for i, feature in enumerate(features)}
