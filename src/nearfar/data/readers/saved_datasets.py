"""Data sets of Hugging Face's `datasets` in folders of `save_to_disk`, read with pyarrow only.

A folder contains tables in Arrow's stream format, and JSON files that list them. Nothing in it is run as code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from ...io.other_formats import mistaken
from ...io.untrusted import (
    Outside,
    check_regular,
    further_folders,
    path_below,
    read_json,
)
from ...quoting import PATH, quoted, shorten
from ..dataset import DataError, DataNotFoundError
from .parquet import Unpacked, class_names, columns_of, media_in

STATE = "state.json"
PARTS = "dataset_dict.json"
SAVE = "save it again with save_to_disk of a current version of datasets"


@dataclass(frozen=True)
class ArrowFiles:
    """The encoded images or sounds in an Arrow column, as files with the names in the table.

    Parameters
    ----------
    root : str
        Path of the folder or the file.
    opened : callable
        Opens the column, of bytes, or of pairs of bytes and path. Files are mapped into memory, of which only what is
        read takes room; each process opens them for itself.
    labels : sequence of str
        Names of the images or sounds.
    kind : {"image", "sound"}
    """

    root: str
    opened: Callable[[], Any]
    labels: Sequence[str]
    kind: Literal["image", "sound"] = "image"

    def names(self) -> list[str]:
        return list(self.labels)

    def folders(self) -> list[str]:
        return []

    def top_folders(self) -> list[str]:
        return []

    def read(self, name: str) -> bytes:
        if name not in self._places:
            raise DataNotFoundError(f"{self.root}: has no {self.kind} {quoted(name)}")
        value = self._column[self._places[name]].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if content is None:
            raise DataError(f"{self.root}: {name} has no bytes; {SAVE}, which stores {self.kind}s in the folder")
        return bytes(content)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_column"}

    @cached_property
    def newest(self) -> Path:
        """The file of the folder that was written last; its date changes if the data set is saved again."""
        files = [path for path in (Path(self.root), *Path(self.root).rglob("*")) if path.is_file()]
        return max(files, key=lambda path: path.stat().st_mtime_ns)

    @cached_property
    def _column(self) -> Any:
        return self.opened()

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.labels)}


def is_saved(path: Path) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return (path / STATE).is_file() or (path / PARTS).is_file()


def read_saved(path: Path, labels: Sequence[str]) -> tuple[dict[str, Sequence[Any]], ArrowFiles | None]:
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
        whole, size, split = _tables(path)
        whole.validate(full=True)  # of damaged files, lengths may be negative; the bytes of images are not read
        columns, stored = columns_and_files(path, whole, labels, _table_of_folder, size=size)
    except (pyarrow.ArrowException, OSError) as error:
        why = shorten(str(error).splitlines()[0], PATH)
        raise DataError(f"{path}: not a readable folder of datasets ({why})") from error
    if split and "split" not in columns:
        columns["split"] = split
    return columns, stored


def read_feather(path: Path, labels: Sequence[str]) -> tuple[dict[str, Sequence[Any]], ArrowFiles | None]:
    """Return the columns and the images of a feather file, as `read_parquet` does."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f"{path}: feather needs pyarrow; pip install 'nearfar[tables]'") from error
    try:
        table = _table_of_feather(path)
        table.validate(full=True)
        return columns_and_files(path, table, labels, _table_of_feather, size=path.stat().st_size)
    except (pyarrow.ArrowException, OSError) as error:
        if what := mistaken(path):
            raise DataError(f"{path}: {what}") from error
        why = shorten((str(error).splitlines() or [type(error).__name__])[0], PATH)
        raise DataError(f"{path}: not a readable feather file ({why})") from error


def columns_and_files(
    path: Path, table: Any, labels: Sequence[str], opener: Callable[[Path], Any], *, size: int
) -> tuple[dict[str, Sequence[Any]], ArrowFiles | None]:
    """Return the columns of an Arrow table, and the images or sounds in one of them, if any.

    For a table from files of `size` bytes, an `Unreadable` is raised if its cells would fill the memory. `opener`
    opens the table again.
    """
    media = media_in(path, table.schema)
    names = class_names(path, table.schema)
    stored = None
    columns: dict[str, Sequence[Any]] = {}
    if media is not None:
        column, kind = media
        called = [f"{path.stem}[{i}]" for i in range(table.num_rows)]
        stored = ArrowFiles(str(path), partial(_column_of, opener, path, column), called, kind)
        columns["path"] = called
        table = table.drop_columns([field.name for field in table.schema if _holds_media(field)])
    columns |= columns_of(path, table, names, labels, beside_images=stored is not None, size=size)
    return columns, stored


def _column_of(opener: Callable[[Path], Any], path: Path, column: str) -> Any:
    return opener(path).column(column)


def _table_of_feather(path: Path) -> Any:
    """Return the table in a feather file, which is mapped into memory."""
    import pyarrow

    check_regular(path)
    with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as file:
        return _whole(map(file.get_batch, range(file.num_record_batches)), file.schema, source.size())


def _table_of_folder(path: Path) -> Any:
    return _tables(path)[0]


def _tables(path: Path) -> tuple[Any, int, list[str]]:
    """Return the table of a folder, the number of bytes of its files, and the part of each row, if it has parts."""
    import pyarrow

    if not (path / PARTS).is_file():
        return *_table(path), []
    parts = _listed(path / PARTS, "splits")
    tables, of_files = zip(*[_table(path / part) for part in parts], strict=True)
    split = [part for part, table in zip(parts, tables, strict=True) for _ in range(table.num_rows)]
    return pyarrow.concat_tables(tables), sum(of_files), split


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
