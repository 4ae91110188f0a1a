"""The columns of a Parquet table. A column of lists of numbers, as embeddings are stored, becomes several columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...io.untrusted import check_expansion, parse_json
from ...quoting import PATH, quoted, shorten
from ..dataset import DataError, some
from .parquet_images import ParquetImages

WITHOUT = "write the table again without the metadata `huggingface`"


def read_parquet(path: Path, labels: Sequence[str]) -> tuple[dict[str, Sequence[Any]], ParquetImages | None]:
    """Return the columns by their names, and the images if a column contains them; the column `path` has their names.

    Lists of d numbers in a column `e` become e[0], ..., e[d - 1], unless the table has images or paths of images. In
    the columns `labels`, class numbers of Hugging Face become the names of the classes, and -1 becomes a missing label.

    Raises
    ------
    DataError
        If pyarrow is missing, the file cannot be read, or lists differ in length.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema, read_table
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'nearfar[tables]'") from error
    try:
        fields = list(read_schema(path)) if path.is_file() else []
        if path.is_file():
            _check_size(path)
        listed = any(field.name.lower() in ("path", "file_name") for field in fields)
        if listed:
            pictures = []
        else:
            pictures = [field for field in fields if _holds_bytes(field.type)]
        stored = _images(path, pictures) if pictures else None
        table = read_table(path, columns=[f.name for f in fields if f not in pictures] if pictures else None)
        names = class_names(path, table.schema)
        columns: dict[str, Sequence[Any]] = {} if stored is None else {"path": stored.names()}
        columns |= columns_of(path, table, names, labels, beside_images=listed or stored is not None)
        return columns, stored
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({shorten(str(error).splitlines()[0], PATH)})") from error


def columns_of(
    path: Path, table: Any, names: Mapping[str, Sequence[str]], labels: Sequence[str], *, beside_images: bool
) -> dict[str, Sequence[Any]]:
    """Return the columns of an Arrow table: class numbers become their `names`, and lists of numbers become columns.

    In a table with images, lists remain unchanged.
    """
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not beside_images and _holds_numbers(column.type):
            columns |= _numbers_of(path, name, column)
        elif name.lower() in labels and name in names:
            columns[name] = _called(path, name, column.to_pylist(), names[name])
        else:
            columns[name] = column.to_pylist()
    return columns


def pictures_in(path: Path, schema: Any) -> str | None:
    """Return the name of the column that contains images; None if there is none."""
    found = [field for field in schema if _holds_bytes(field.type)]
    if not found:
        return None
    return str(_chosen(path, found).name)


def _check_size(path: Path) -> None:
    """Raise an OSError for a table that would fill the memory: a few bytes may encode a million equal cells."""
    from pyarrow.parquet import read_metadata

    about = read_metadata(path)
    check_expansion(8 * about.num_rows * about.num_columns, path.stat().st_size)


def _holds_bytes(kind: Any) -> bool:
    """Return whether the cells of a column are bytes, or Hugging Face's pairs of bytes and path."""
    from pyarrow import types

    if types.is_struct(kind):
        return any(part.name == "bytes" and _holds_bytes(part.type) for part in kind)
    return types.is_binary(kind) or types.is_large_binary(kind)


def _images(path: Path, fields: Sequence[Any]) -> ParquetImages:
    """Return the images of the only column of bytes, or of the column named image."""
    from pyarrow import types

    chosen = _chosen(path, fields)
    return ParquetImages.of(path, chosen.name, paired=types.is_struct(chosen.type))


def _chosen(path: Path, fields: Sequence[Any]) -> Any:
    """Return the only column of bytes, or the column named image."""
    if len(fields) == 1:
        chosen = list(fields)
    else:
        chosen = [field for field in fields if field.name == "image"]
    if not chosen:
        several = some([field.name for field in fields])
        raise DataError(f"{path}: {len(fields)} columns contain bytes ({several}); name that of the images 'image'")
    return chosen[0]


def class_names(path: Path, schema: Any) -> dict[str, list[str]]:
    """Return the class names of columns of numbers from the metadata of Hugging Face, if any."""
    try:
        metadata = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata.get("info", {}).get("features", {})
        found = {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and "names" in kind}
    except (ValueError, AttributeError) as error:
        raise DataError(f"{path}: its metadata of Hugging Face are damaged ({error}); {WITHOUT}") from error
    for name, names in found.items():
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            wrong = f"expected a list of text as names of the classes of {quoted(name)}, got {quoted(names)}"
            raise DataError(f"{path}: its metadata of Hugging Face are damaged ({wrong}); {WITHOUT}")
    return found


def _called(path: Path, name: str, numbers: Sequence[Any], names: Sequence[str]) -> list[str | None]:
    """Return the names of classes by their numbers; None for -1, which means no label."""
    other = next((number for number in numbers if number is not None and type(number) is not int), None)
    if other is not None:
        detail = f"its metadata of Hugging Face name classes by numbers, but column {quoted(name)} has {quoted(other)}"
        raise DataError(f"{path}: {detail}; {WITHOUT}")
    far = next((number for number in numbers if number is not None and not -1 <= number < len(names)), None)
    if far is not None:
        raise DataError(f"{path}: column {quoted(name)} has {far}, but there are {len(names)} classes")
    return [None if number in (None, -1) else names[number] for number in numbers]


def _holds_numbers(kind: Any) -> bool:
    """Return whether the cells of a column are lists of numbers."""
    from pyarrow import types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _numbers_of(path: Path, name: str, column: Any) -> dict[str, Sequence[Any]]:
    from pyarrow import float64, list_
    from pyarrow.compute import list_flatten, list_value_length

    lengths = set(list_value_length(column).to_pylist())
    if len(lengths - {None}) > 1:
        first_two = " and ".join(str(length) for length in sorted(lengths - {None})[:2])
        raise DataError(
            f"{path}: column {quoted(name)} has lists of {first_two} numbers; expected lists of one length in all rows"
        )
    if None in lengths:  # NaN instead of the missing lists
        from pyarrow import array, chunked_array

        missing = [np.nan] * next(iter(lengths - {None}), 0)
        filled = [missing if numbers is None else numbers for numbers in column.to_pylist()]
        column = chunked_array([array(filled, list_(float64()))])
        lengths -= {None}
    numbers = list_flatten(column).to_numpy()  # a missing number is NaN
    if numbers.dtype.kind == "f":
        numbers = numbers
    else:
        numbers = numbers.astype(np.float64)
    features = np.ascontiguousarray(numbers.reshape(len(column), *lengths or {0}).T)
    return {f"{name}[{i}]": feature for i, feature in enumerate(features)}
