"""Embeddings in a folder: Parquet files with equally many items each, and a manifest.

====================  =============================================================================================
embeddings.json       the manifest: which model, which data, how many items and parts
part-00000.parquet    the first items: columns name, label, group (if there are groups) and embedding
part-00001.parquet    the next ones, and so on
====================  =============================================================================================

A part is written under a temporary name, synchronized to disk and renamed, so that it exists completely or not at all.
Which items are in it follows from its number alone: any number of processes write into one folder without knowing of
each other. Each part has the key of its manifest, and is not taken for one of a folder with another key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..quoting import PATH, count_of, quoted, shorten
from .atomic_files import PARTIAL, atomic_write
from .hidden_files import hidden
from .untrusted import check_expansion, check_regular, further_folders, path_below, read_json

MANIFEST = "embeddings.json"
FORMAT = "nearfar embeddings 1"
PART = re.compile(r"part-(\d{5,12})\.parquet")
KEY = b"nearfar"
"""Entry in the metadata of a Parquet file: the key of its manifest and the number of the part."""
LARGEST_COUNT = 2**40
LONGEST_EMBEDDING = 2**20
ROWS_CHECKED = 1_000  # that are unpacked at a time
SHOWN_PARTS = 3  # missing ones that a message names
TEXTS = ("name", "label", "group")


@dataclass(frozen=True)
class Manifest:
    """What a folder of embeddings holds once it is complete.

    Attributes
    ----------
    model, data : str
        What embedded which items, as they were given.
    fingerprint, listing : str
        Digests of the model, and of the items with their names, labels and groups.
    distance : str
        Distance by which embeddings are compared.
    count, part_size, dimensions : int
        Number of items, of items in each part but the last, and of dimensions.
    folder : str
        Folder to which the names of images are relative; "" if items are not named by paths.
    unnamed, grouped : bool
        Whether names are only positions, and whether items have groups.
    utf8 : bool
        Whether names, labels and groups are text. Otherwise, some are names of files that are not, and all are bytes.
    """

    model: str
    data: str
    fingerprint: str
    listing: str
    distance: str
    count: int
    part_size: int
    dimensions: int
    folder: str = ""
    unnamed: bool = False
    grouped: bool = False
    utf8: bool = True

    @property
    def parts(self) -> int:
        """Number of parts."""
        return ceil(self.count / self.part_size)

    @property
    def key(self) -> str:
        """Digest of all that determines the content of the parts."""
        content = (self.fingerprint, self.listing, self.count, self.part_size, self.dimensions, self.utf8)
        return sha256(json.dumps(content).encode()).hexdigest()[:32]

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first item of a part, and the first one after it."""
        start = number * self.part_size
        return start, min(self.count, start + self.part_size)

    def check_same(self, begun: Manifest, folder: Path) -> None:
        """Raise a ValueError if a folder was begun with another model, other data or other settings."""
        if begun.key == self.key:
            return
        if begun.fingerprint != self.fingerprint:
            what = f"another model ({quoted(begun.model, PATH)})"
        elif (begun.listing, begun.count) != (self.listing, self.count):
            now = "as many now" if begun.count == self.count else f"now {self.count:,}"
            what = f"other data, names or classes ({quoted(begun.data, PATH)}, {count_of(begun.count, 'item')}, {now})"
        elif begun.part_size != self.part_size:
            what = f"part_size={begun.part_size}, not {self.part_size}"
        else:
            what = f"embeddings of {begun.dimensions} dimensions, not {self.dimensions}"
        raise ValueError(f"out: {folder} was begun with {what}; give another folder, or replace it with overwrite=True")


class EmbeddedPart(NamedTuple):
    """The items of one part.

    Attributes
    ----------
    names, labels : list of str
        Name and class of each item; the class is "" if it has none.
    groups : list of str or None
        Group of each item, if there are groups.
    rows : ndarray of float32, shape (n, d)
        Their embeddings.
    """

    names: list[str]
    labels: list[str]
    groups: list[str] | None
    rows: NDArray[np.float32]


def holds_parts(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder of embeddings, complete or not."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def part_name(number: int) -> str:
    """Return the name of the file of a part, counted from 0.

    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{number:05}.parquet"


def check_place(folder: Path, manifest: Manifest, *, overwrite: bool = False) -> None:
    """Check that embeddings can be written into a folder, without changing anything.

    Raises
    ------
    ValueError
        If something else is there: other files, a file of this name, or embeddings of another model or other data.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out: {folder} is a file; expected a folder, or a file that ends in .npz")
    if holds_parts(folder) and not overwrite:
        manifest.check_same(read_manifest(folder), folder)
        return
    names = os.listdir(folder) if folder.exists() else []
    others = [name for name in names if not (hidden(name) or is_ours(name))]
    if others:
        expected = "expected a new or an empty folder, or one with embeddings that are continued"
        raise ValueError(f"out: {folder} has other files ({quoted(min(others))}); {expected}")


def begin(folder: Path, manifest: Manifest, *, overwrite: bool = False) -> None:
    """Write the manifest of a folder, unless it is there.

    With `overwrite`, embeddings that are there are removed if their manifest is another one. Raises as `check_place`.
    """
    check_place(folder, manifest, overwrite=overwrite)
    if holds_parts(folder) and not overwrite:
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **asdict(manifest), "parts": manifest.parts}, indent=2)
    with atomic_write(folder / MANIFEST) as file:  # before parts are removed: those with another key do not count
        file.write(text.encode() + b"\n")
    if overwrite:
        for number in set(parts_in(folder)) - set(written(folder, manifest)):
            (folder / part_name(number)).unlink()


def is_ours(name: str) -> bool:
    """Return whether a file is the manifest or a part, also one that a process is writing or has left half-written."""
    partial = PARTIAL.fullmatch(name)
    whole = name if partial is None else partial[1]
    return whole == MANIFEST or PART.fullmatch(whole) is not None


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of embeddings.

    Raises
    ------
    ValueError
        If it is damaged, or of another version.
    """
    try:
        found = read_json(path_below(folder, MANIFEST, further_folders()))
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"expected a manifest of the format {FORMAT!r}")
        kinds = {field.name: {"int": int, "bool": bool}.get(str(field.type), str) for field in fields(Manifest)}
        wrong = [name for name, kind in kinds.items() if type(found.get(name)) is not kind]
        if wrong:
            raise ValueError(f"expected an entry {wrong[0]}, got {quoted(found.get(wrong[0]))}")
        manifest = Manifest(**{name: found[name] for name in kinds})
        sizes = (manifest.count, manifest.part_size, manifest.dimensions)
        if min(sizes) < 1 or max(sizes) > LARGEST_COUNT or manifest.dimensions > LONGEST_EMBEDDING:
            raise ValueError(f"expected numbers of items and dimensions, got {quoted(sizes)}")
        return manifest
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / MANIFEST}: not a readable manifest of embeddings ({error})") from error


def parts_in(folder: Path) -> list[int]:
    """Return the numbers of the parts in a folder, also of those that are not of its manifest."""
    found = (PART.fullmatch(name) for name in (os.listdir(folder) if folder.exists() else ()))
    numbers = {int(part[1]) for part in found if part is not None}
    return sorted(number for number in numbers if (folder / part_name(number)).exists())


def written(folder: Path, manifest: Manifest, among: Collection[int] | None = None) -> list[int]:
    """Return the numbers of the parts that are written completely, for this manifest; by default, of all of them."""
    wanted = range(manifest.parts) if among is None else among
    there = set(parts_in(folder))
    return [number for number in wanted if number in there and _is_whole(folder, manifest, number)]


def _is_whole(folder: Path, manifest: Manifest, number: int) -> bool:
    """Return whether the end of a file, where Parquet describes it, is that of a part of this manifest."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(_path(folder, number)) as file:
            start, stop = manifest.bounds(number)
            right = _mark(manifest, number) == (file.schema_arrow.metadata or {}).get(KEY)
            return right and file.metadata.num_rows == stop - start
    except (ArrowException, OSError):
        return False


def missing_note(missing: Sequence[int], parts: int, count: int | None = None) -> str:
    """Return a clause that names the parts that are missing, or the first of `count` such parts.

    >>> missing_note([1], 3)
    '1 of 3 parts is missing (part-00001.parquet)'
    """
    count = len(missing) if count is None else count
    names = ", ".join(part_name(number) for number in missing[:SHOWN_PARTS])
    if count > SHOWN_PARTS:
        names += ", ..."
    verb = "is" if count == 1 else "are"
    return f"{count:,} of {count_of(parts, 'part')} {verb} missing ({names})"


def check_complete(folder: Path, manifest: Manifest) -> None:
    """Raise a ValueError that names the parts that are missing, or if they are too small for what they should hold."""
    there = {number for number in parts_in(folder) if number < manifest.parts}
    if len(there) < manifest.parts:
        # a manifest of a stranger may have any number of parts, so that no list of them is made
        first = [*islice((number for number in range(manifest.parts) if number not in there), SHOWN_PARTS + 1)]
        again = "`nearfar embed` with the same arguments writes them"
        raise ValueError(f"{folder}: {missing_note(first, manifest.parts, manifest.parts - len(there))}; {again}")
    try:
        size = sum(os.stat(folder / part_name(number)).st_size for number in there)
        check_expansion(4 * manifest.count * manifest.dimensions, size)
    except OSError as error:
        raise ValueError(f"{folder}: not a readable folder of embeddings ({error})") from error


def write_part(folder: Path, manifest: Manifest, number: int, part: EmbeddedPart) -> None:
    """Write a part, completely or not at all.

    Raises
    ------
    OSError
        If it cannot be written, for example because the disk is full; then no part of it is left.
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table

    kind = pa.string() if manifest.utf8 else pa.binary()
    texts: dict[str, Sequence[str | None]] = {"name": part.names, "label": [label or None for label in part.labels]}
    if part.groups is not None:
        texts["group"] = part.groups
    encoded = {name: pa.array(_encoded(values, manifest.utf8), kind) for name, values in texts.items()}
    d = manifest.dimensions
    numbers = pa.array(np.ascontiguousarray(part.rows, dtype=np.float32).ravel())
    table = pa.table({**encoded, "embedding": pa.FixedSizeListArray.from_arrays(numbers, d)})
    buffer = pa.BufferOutputStream()
    write_table(
        table.replace_schema_metadata({KEY: _mark(manifest, number)}),
        buffer,
        row_group_size=manifest.part_size,
        use_dictionary=[name for name in encoded if name != "name"],
        compression={**dict.fromkeys(encoded, "zstd"), "embedding.list.element": "none"},
        write_statistics=[*encoded],
        write_page_checksum=True,
    )
    with atomic_write(folder / part_name(number)) as file:
        file.write(buffer.getvalue())


def read_part(folder: Path, manifest: Manifest, number: int) -> EmbeddedPart:
    """Read a part.

    Raises
    ------
    ValueError
        If it is missing, damaged, or belongs to another manifest.
    """
    from pyarrow import ArrowException, Table
    from pyarrow.parquet import ParquetFile

    path = folder / part_name(number)
    start, stop = manifest.bounds(number)
    try:
        place = _path(folder, number)
        with ParquetFile(place, page_checksum_verification=True) as file:
            if (file.schema_arrow.metadata or {}).get(KEY) != _mark(manifest, number):
                raise ValueError("it belongs to other embeddings; `nearfar embed` with the same arguments replaces it")
            _check_schema(file.schema_arrow, manifest)
            about = file.metadata
            if about.num_rows != stop - start:
                raise ValueError(f"expected {stop - start:,} rows, got {about.num_rows:,}")
            unpacked = [about.row_group(at).total_byte_size for at in range(about.num_row_groups)]
            size = os.stat(place).st_size
            check_expansion(max(sum(unpacked), 4 * about.num_rows * manifest.dimensions), size)
            batches = []
            seen = 0
            for batch in file.iter_batches(ROWS_CHECKED):  # of which a dictionary may repeat a long text in every row
                seen += batch.nbytes
                check_expansion(seen, size)
                batches.append(batch)
            table = Table.from_batches(batches, file.schema_arrow)
        table.validate(full=True)
        texts = {name: _decoded(table.column(name), manifest.utf8) for name in TEXTS if name in table.column_names}
        numbers = table.column("embedding").combine_chunks()
        rows = numbers.flatten().to_numpy(zero_copy_only=False).reshape(-1, manifest.dimensions)
        if numbers.null_count or len(rows) != stop - start:
            raise ValueError("some of its embeddings are missing")
    except FileNotFoundError as error:
        raise ValueError(f"{folder}: {missing_note([number], manifest.parts)}") from error
    except (ArrowException, OSError, ValueError) as error:
        why = shorten((str(error).splitlines() or [type(error).__name__])[0], PATH)
        raise ValueError(f"{path}: not a readable part of embeddings ({why})") from error
    return EmbeddedPart(texts["name"], texts["label"], texts.get("group"), rows)


def _check_schema(schema: Any, manifest: Manifest) -> None:
    """Raise a ValueError if a file does not have the columns of a part."""
    import pyarrow as pa

    kind = pa.string() if manifest.utf8 else pa.binary()
    wanted = {name: kind for name in TEXTS if name != "group" or manifest.grouped}
    wanted["embedding"] = pa.list_(pa.float32(), manifest.dimensions)
    found = {field.name: field.type for field in schema}
    for name, kind in wanted.items():
        got = found.get(name)
        if got is None or (got != kind and not (name == "embedding" and _are_lists(got, manifest.dimensions))):
            raise ValueError(f"expected a column {name} of {kind}, got {got}")


def _are_lists(kind: Any, d: int) -> bool:
    """Return whether the cells of a column are d numbers each; the name of what is in a list does not matter."""
    from pyarrow import types

    return types.is_fixed_size_list(kind) and kind.list_size == d and types.is_float32(kind.value_type)


def _path(folder: Path, number: int) -> str:
    """Return the path of a part, after all links; raise an OSError if it leads out of the folder."""
    place = path_below(folder, part_name(number), further_folders())
    check_regular(place)
    return place


def _mark(manifest: Manifest, number: int) -> bytes:
    return f"{manifest.key} {number}".encode()


def is_utf8(*texts: Sequence[str]) -> bool:
    """Return whether texts can be encoded, unlike names of files that are not UTF-8."""
    try:
        for text in texts:
            "\n".join(text).encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoded(texts: Sequence[str | None], utf8: bool) -> Sequence[str | bytes | None]:
    if utf8:
        return texts
    return [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]


def _decoded(column: Any, utf8: bool) -> list[str]:
    found = column.to_pylist()
    if utf8:
        return [text or "" for text in found]
    return [(text or b"").decode("utf-8", "surrogatepass") for text in found]
