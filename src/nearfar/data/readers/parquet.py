"""The columns of a Parquet table. A column of lists of numbers, as embeddings are stored, becomes several columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...io.other_formats import mistaken
from ...io.untrusted import check_expansion, check_regular, parse_json
from ...quoting import PATH, quoted, shorten
from ..cells import CELL
from ..dataset import DataError, some
from .parquet_images import ParquetImages, read_batches

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
        from pyarrow.parquet import read_schema
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'nearfar[tables]'") from error
    try:
        check_regular(path)
        schema = read_schema(path)
        fields = list(schema)
        size = path.stat().st_size
        _check_size(path, size)
        listed = any(field.name.lower() in ("path", "file_name") for field in fields)
        if listed:
            pictures = []
        else:
            pictures = [field for field in fields if _holds_bytes(field.type)]
        stored = _images(path, pictures, schema) if pictures else None
        table = _table(path, [field for field in fields if field not in pictures], size)
        names = class_names(path, schema)
        columns: dict[str, Sequence[Any]] = {} if stored is None else {"path": stored.names()}
        columns |= columns_of(path, table, names, labels, beside_images=listed or stored is not None, size=size)
        return columns, stored
    except (ArrowException, OSError) as error:
        if what := mistaken(path):
            raise DataError(f"{path}: {what}") from error
        raise DataError(f"{path}: not a readable Parquet file ({shorten(str(error).splitlines()[0], PATH)})") from error


def columns_of(
    path: Path,
    table: Any,
    names: Mapping[str, Sequence[str]],
    labels: Sequence[str],
    *,
    beside_images: bool,
    size: int | None = None,
) -> dict[str, Sequence[Any]]:
    """Return the columns of an Arrow table: class numbers become their `names`, and lists of numbers become columns.

    In a table with images, lists remain unchanged. Equal texts of a dictionary are one object.

    Raises
    ------
    Unreadable
        If the cells would fill the memory, for a file of `size` bytes.
    """
    unpacked = Unpacked(size)
    unpacked.add(CELL * table.num_rows * table.num_columns)
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not beside_images and _holds_numbers(column.type):
            columns |= _numbers_of(path, name, column, unpacked)
        elif name.lower() in labels and name in names:
            columns[name] = _called(path, name, _cells(column, unpacked), names[name])
        else:
            columns[name] = _cells(column, unpacked)
    return columns


class Unpacked:
    """The bytes that the cells of a table take in memory.

    Parameters
    ----------
    size : int or None
        Number of bytes of the file; None if there is none, and the cells may take any memory.
    """

    def __init__(self, size: int | None) -> None:
        self._size = size
        self._seen = 0

    def add(self, more: int) -> None:
        """Raise an `Unreadable` if this many bytes more would fill the memory."""
        self._seen += more
        if self._size is not None:
            check_expansion(self._seen, self._size)


def _cells(column: Any, unpacked: Unpacked) -> list[Any]:
    """Return the cells of a column."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) and not types.is_nested(kind.value_type):
        cells = list[Any]()
        for part in column.chunks:
            words = part.dictionary.to_pylist()
            cells += [None if at is None else words[at] for at in part.indices.to_pylist()]
        return cells
    if types.is_primitive(kind) or types.is_string(kind) or types.is_large_string(kind):
        return list(column.to_pylist())
    # lists, and texts in views or in lists of dictionaries, may have the same bytes in every row
    cells = []
    for cell in column:
        cells.append(cell.as_py())
        unpacked.add(_weight(cells[-1]))
    return cells


def _weight(cell: Any) -> int:
    """Return about how many bytes a cell takes, besides the place in its list."""
    if isinstance(cell, (str, bytes)):
        return len(cell)
    if isinstance(cell, dict):
        return CELL * len(cell) + sum(map(_weight, cell.values()))
    if isinstance(cell, list):
        return CELL * len(cell) + sum(map(_weight, cell))
    return 0


def media_in(path: Path, schema: Any) -> tuple[str, Literal["image", "sound"]] | None:
    """Return the name of the column that contains images or sounds, and what they are; None if there is none."""
    found = [field for field in schema if _holds_bytes(field.type)]
    if not found:
        return None
    name = str(_chosen(path, found).name)
    return name, "sound" if _features(path, schema).get(name, {}).get("_type") == "Audio" else "image"


def _check_size(path: Path, size: int) -> None:
    """Raise an OSError for a table that would fill the memory: a few bytes may encode a million equal cells."""
    from pyarrow.parquet import read_metadata

    about = read_metadata(path)
    groups = [about.row_group(at) for at in range(about.num_row_groups)]
    numbers = [group.column(at).num_values for group in groups for at in range(group.num_columns)]
    check_expansion(CELL * max(sum(numbers), about.num_rows * about.num_columns), size)
    check_expansion(sum(group.total_byte_size for group in groups), size)


def _table(path: Path, fields: Sequence[Any], size: int) -> Any:
    """Return columns of a file; those of text as dictionaries: a few bytes may repeat a long text in every row."""
    from pyarrow import Table, concat_tables
    from pyarrow.parquet import ParquetFile

    names = [field.name for field in fields]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{path}: several columns are called {quoted(twice)}; rename them")
    texts = [field.name for field in fields if _holds_text(field.type)]
    others = [name for name in names if name not in texts]
    found: dict[str, Any] = {}
    if texts:
        with ParquetFile(path, read_dictionary=texts) as file:
            parts = []
            unpacked = Unpacked(size)
            for number in range(file.num_row_groups):
                parts.append(file.read_row_group(number, columns=texts))
                unpacked.add(parts[-1].nbytes)
            whole = concat_tables(parts) if parts else file.read(columns=texts)
        found |= zip(whole.column_names, whole.columns, strict=True)
    if others:
        with ParquetFile(path) as file:
            whole = read_batches(file, path, others, rows=1000)
        found |= zip(whole.column_names, whole.columns, strict=True)
    return Table.from_arrays([found[name] for name in names], names)


def _holds_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind)


def _holds_bytes(kind: Any) -> bool:
    """Return whether the cells of a column are bytes, or Hugging Face's pairs of bytes and path."""
    from pyarrow import types

    if types.is_struct(kind):
        return any(part.name == "bytes" and _holds_bytes(part.type) for part in kind)
    return types.is_binary(kind) or types.is_large_binary(kind)


def _images(path: Path, fields: Sequence[Any], schema: Any) -> ParquetImages:
    """Return the images or sounds of the only column of bytes, or of the column named image or audio."""
    from pyarrow import types

    chosen = _chosen(path, fields)
    _, kind = media_in(path, schema) or ("", "image")
    return replace(ParquetImages.of(path, chosen.name, paired=types.is_struct(chosen.type)), kind=kind)


def _chosen(path: Path, fields: Sequence[Any]) -> Any:
    """Return the only column of bytes, or else the column named image or audio."""
    if len(fields) == 1:
        chosen = list(fields)
    else:
        chosen = [field for name in ("image", "audio") for field in fields if field.name == name]
    if not chosen:
        several = some([field.name for field in fields])
        raise DataError(f"{path}: {len(fields)} columns contain bytes ({several}); name that of the images 'image'")
    return chosen[0]


def class_names(path: Path, schema: Any) -> dict[str, list[str]]:
    """Return the class names of columns of numbers from the metadata of Hugging Face, if any."""
    found = {name: kind["names"] for name, kind in _features(path, schema).items() if "names" in kind}
    for name, names in found.items():
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            wrong = f"expected a list of text as names of the classes of {quoted(name)}, got {quoted(names)}"
            raise DataError(f"{path}: its metadata of Hugging Face are damaged ({wrong}); {WITHOUT}")
    return found


def _features(path: Path, schema: Any) -> dict[str, dict[str, Any]]:
    """Return what the metadata of Hugging Face state about each column, if there are any."""
    try:
        metadata = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata.get("info", {}).get("features", {})
        return {name: kind for name, kind in features.items() if isinstance(kind, dict)}
    except (ValueError, AttributeError) as error:
        raise DataError(f"{path}: its metadata of Hugging Face are damaged ({error}); {WITHOUT}") from error


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


def _numbers_of(path: Path, name: str, column: Any, unpacked: Unpacked) -> dict[str, Sequence[Any]]:
    from pyarrow import float64, list_
    from pyarrow.compute import list_flatten, list_value_length

    lengths = set(list_value_length(column).to_pylist())
    if len(lengths - {None}) > 1:
        first_two = " and ".join(str(length) for length in sorted(lengths - {None})[:2])
        raise DataError(
            f"{path}: column {quoted(name)} has lists of {first_two} numbers; expected lists of one length in all rows"
        )
    unpacked.add(CELL * len(column) * max(lengths - {None}, default=0))
    if None in lengths:  # NaN instead of the missing lists
        from pyarrow import array, chunked_array

        missing = [np.nan] * next(iter(lengths - {None}), 0)
        filled = [missing if numbers is None else numbers for numbers in column.to_pylist()]
        column = chunked_array([array(filled, list_(float64()))])
        lengths -= {None}
    numbers = list_flatten(column).to_numpy()  # a missing number is NaN
    if numbers.dtype.kind != "f":
        numbers = numbers.astype(np.float64)
    features = np.ascontiguousarray(numbers.reshape(len(column), *lengths or {0}).T)
    return {f"{name}[{i}]": feature for i, feature in enumerate(features)}
