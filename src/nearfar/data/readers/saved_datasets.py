"""Data sets of Hugging Face's `datasets`: folders of `save_to_disk`, and objects, both read with pyarrow only.

A folder contains tables in Arrow's stream format, and JSON files that list them. Nothing in it is run as code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...io.untrusted import (
    LARGEST_IMAGE,
    Outside,
    Unreadable,
    check_regular,
    further_folders,
    path_below,
    read_file,
    read_json,
)
from ...quoting import PATH, quoted, shorten
from ..dataset import DataError, DataNotFoundError
from .parquet import Unpacked, class_names, columns_of, pictures_in

STATE = "state.json"
PARTS = "dataset_dict.json"
SAVE = "save it again with save_to_disk of a current version of datasets"


@dataclass(frozen=True)
class ArrowImages:
    """The encoded images in an Arrow column, as files with the names in the table.

    Parameters
    ----------
    root : str
        Path of the folder.
    column : pyarrow.ChunkedArray
        Column of bytes, or of pairs of bytes and path.
    labels : sequence of str
        Names of the images.
    paths : bool
        Whether images with a path but without bytes are read from that path.
    """

    root: str
    column: Any
    labels: Sequence[str]
    paths: bool = False

    def names(self) -> list[str]:
        return list(self.labels)

    def folders(self) -> list[str]:
        return []

    def top_folders(self) -> list[str]:
        return []

    def read(self, name: str) -> bytes:
        if name not in self._places:
            raise DataNotFoundError(f"{self.root}: has no image {quoted(name)}")
        value = self.column[self._places[name]].as_py()
        content = value
        path = None
        if isinstance(value, dict):  # the form of images in datasets: bytes, a path, or both
            content = value.get("bytes")
            path = value.get("path")
        if content is not None:
            return bytes(content)
        if path is None or not self.paths:
            raise DataError(f"{self.root}: {name} has no bytes; {SAVE}, which stores images in the folder")
        try:
            return read_file(Path(path), LARGEST_IMAGE)
        except (Unreadable, OSError, ValueError) as error:
            raise DataNotFoundError(f"{shorten(str(path), PATH)}: cannot be read ({error})") from error

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @cached_property
    def newest(self) -> Path:
        """The file of the folder that was written last; its date changes if the data set is saved again.

        Raises
        ------
        FileNotFoundError
            If the images are those of an object, which has no folder.
        """
        files = [] if self.paths else [path for path in Path(self.root).rglob("*") if path.is_file()]
        if not files:
            raise FileNotFoundError(f"{self.root}: is not a folder of datasets")
        return max(files, key=lambda path: path.stat().st_mtime_ns)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.labels)}


def is_saved(path: Path) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return (path / STATE).is_file() or (path / PARTS).is_file()


def read_saved(path: Path, labels: Sequence[str]) -> tuple[dict[str, Sequence[Any]], ArrowImages | None]:
    """Return the columns of a folder and its images, as `read_parquet` does; the column `split` has the names of parts.

    Raises
    ------
    DataError
        If pyarrow is missing, or the folder is not readable.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f"{path}: data sets of Hugging Face need pyarrow; pip install 'nearfar[tables]'") from error
    try:
        if (path / PARTS).is_file():
            parts = _listed(path / PARTS, "splits")
            tables, of_files = zip(*[_table(path / part) for part in parts], strict=True)
            size = sum(of_files)
            sizes = [table.num_rows for table in tables]
            whole = pyarrow.concat_tables(tables)
            split = [part for part, size in zip(parts, sizes, strict=True) for _ in range(size)]
        else:
            whole, size = _table(path)
            split = []
        whole.validate(full=True)  # of damaged files, lengths may be negative; the bytes of images are not read
        columns, stored = columns_and_images(path, whole, labels, size=size)
    except (pyarrow.ArrowException, OSError) as error:
        why = shorten(str(error).splitlines()[0], PATH)
        raise DataError(f"{path}: not a readable folder of datasets ({why})") from error
    if split and "split" not in columns:
        columns["split"] = split
    return columns, stored


def read_feather(path: Path, labels: Sequence[str]) -> tuple[dict[str, Sequence[Any]], ArrowImages | None]:
    """Return the columns and the images of a feather file, as `read_parquet` does."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f"{path}: feather needs pyarrow; pip install 'nearfar[tables]'") from error
    try:
        check_regular(path)
        size = path.stat().st_size
        with pyarrow.OSFile(str(path)) as source, pyarrow.ipc.open_file(source) as file:
            table = _whole(map(file.get_batch, range(file.num_record_batches)), file.schema, size)
        table.validate(full=True)
        return columns_and_images(path, table, labels, size=size)
    except (pyarrow.ArrowException, OSError) as error:
        why = shorten((str(error).splitlines() or [type(error).__name__])[0], PATH)
        raise DataError(f"{path}: not a readable feather file ({why})") from error


def columns_and_images(
    path: Path,
    table: Any,
    labels: Sequence[str],
    *,
    paths: bool = False,
    names: Mapping[str, Sequence[str]] | None = None,
    size: int | None = None,
) -> tuple[dict[str, Sequence[Any]], ArrowImages | None]:
    """Return the columns of an Arrow table, and the images in one of them, if any.

    By default, the `names` of the classes are those in the metadata of the table. For a table from files of `size`
    bytes, an `Unreadable` is raised if its cells would fill the memory.
    """
    picture = pictures_in(path, table.schema)
    stored = None
    columns: dict[str, Sequence[Any]] = {}
    if picture is not None:
        called = [f"{path.stem}[{i}]" for i in range(table.num_rows)]
        stored = ArrowImages(str(path), table.column(picture), called, paths)
        columns["path"] = called
        table = table.drop_columns([field.name for field in table.schema if _holds_media(field)])
    if names is None:
        names = class_names(path, table.schema)
    columns |= columns_of(path, table, names, labels, beside_images=stored is not None, size=size)
    return columns, stored


def _holds_media(field: Any) -> bool:
    from pyarrow import types

    kind = field.type
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_struct(kind)


def _listed(file: Path, field: str) -> list[str]:
    """Return the names of folders or files that a JSON file lists in a field."""
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not readable ({error})") from error
    names = content.get(field) if isinstance(content, Mapping) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file}: expected a list of names as {field}; {SAVE}")
    for name in names:
        _check_inside(file, name)
    return names


def _check_inside(file: Path, name: Any) -> None:
    """Raise a DataError unless a name in a JSON file is that of a file or a folder beside it, and no link out."""
    if not isinstance(name, str) or Path(name).name != name:
        raise DataError(f"{file}: lists {quoted(name)}, which is not a file in the folder")
    try:
        path_below(file.parent, name, further_folders())
    except Outside as error:
        raise DataError(f"{file}: lists {quoted(name)}, which is not read, because {error}") from error


def _table(folder: Path) -> tuple[Any, int]:
    """Return the table of one part, memory-mapped, and the number of bytes of its files."""
    import pyarrow

    try:
        state = read_json(folder / STATE)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / STATE}: not readable ({error})") from error
    listed = state.get("_data_files") if isinstance(state, Mapping) else None
    names = []
    if isinstance(listed, list):
        names = [one.get("filename", "") for one in listed if isinstance(one, Mapping)]
    if not names or state.get("_indices_data_files"):
        raise DataError(f"{folder / STATE}: expected a list of files, and no separate order of their rows; {SAVE}")
    parts = []
    size = 0
    for name in names:
        _check_inside(folder / STATE, name)
        with pyarrow.memory_map(str(folder / name)) as source, pyarrow.ipc.open_stream(source) as stream:
            size += source.size()
            parts.append(_whole(stream, stream.schema, source.size()))
    return pyarrow.concat_tables(parts), size


def _whole(batches: Iterable[Any], schema: Any, size: int) -> Any:
    """Return a table from its batches, which may be compressed; `size` is that of their file, in bytes."""
    import pyarrow

    unpacked = Unpacked(size)
    read = []
    for batch in batches:
        unpacked.add(batch.nbytes)
        read.append(batch)
    return pyarrow.Table.from_batches(read, schema=schema)
