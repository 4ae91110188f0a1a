"""Items that are opened a block at a time, so that their number does not matter.

Rows of an `.npy` and folders of embeddings are read block by block. Of everything else, names and labels stay in
memory, and so do rows, texts and small images; photos and sounds are read from their files when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..io.part_files import EmbeddedPart, holds_parts, is_utf8, read_part
from .dataset import UNKNOWN_CLASS, DataError, Dataset
from .items import named_by_paths, open_items, root_of
from .readers.arrays import finite_singles, mapped_rows
from .readers.embedding_folder import complete_manifest, dataset_of

SAMPLED_ROWS = 1_000
"""Rows of an array by which its content is recognized, because reading all of a large one takes minutes."""


@dataclass(frozen=True)
class Blocks:
    """Items that are read a block at a time.

    Attributes
    ----------
    count : int
        Number of items.
    read : callable
        Function from the first item, and the first one after the last, to these items as a `Dataset`.
    listing : str
        Digest of the items, their names, labels and groups; of files, it has their sizes instead of their content, and
        of an array some of its rows.
    root : str
        Folder to which the names of images are relative; "" if items are not named by paths.
    unnamed, grouped, utf8 : bool
        As in `nearfar.io.part_files.Manifest`.
    items : Dataset or None
        All of them, if they are opened already.
    """

    count: int
    read: Callable[[int, int], Dataset]
    listing: str
    root: str = ""
    unnamed: bool = False
    grouped: bool = False
    utf8: bool = True
    items: Dataset | None = None


def open_blocks(data: str, *, label: str | None = None, name: str | None = None, skip_bad: bool = False) -> Blocks:
    """Open items of any source; arguments as for `nearfar.data.open_items`.

    Raises
    ------
    DataError
        If the data cannot be used; the message is one line.
    """
    path = Path(data)
    plain = label is None and name is None and not skip_bad  # otherwise, all items are looked through first
    if plain and path.suffix.lower() == ".npy" and path.is_file():
        return _rows_of_array(path)
    if plain and holds_parts(path):
        return _rows_of_folder(path)
    return blocks_of(open_items(data, label=label, name=name, skip_bad=skip_bad), data)


def blocks_of(items: Dataset, data: str) -> Blocks:
    """Return items that are opened already, which `data` names."""
    items = replace(items, listed=None)
    classes = [items.classes[number] for number in items.labels]
    groups = [] if items.groups is None else items.groups.tolist()
    by_paths = named_by_paths(items, data)

    def read(start: int, stop: int) -> Dataset:
        return items.subset(np.arange(start, stop))

    return Blocks(
        count=len(items),
        read=read,
        listing=_digest_of(items, classes, groups, data),
        root=str(root_of(data).absolute()) if by_paths else "",
        unnamed=items.unnamed,
        grouped=items.groups is not None,
        utf8=is_utf8(items.names, items.classes, groups),
        items=items,
    )


def _rows_of_array(path: Path) -> Blocks:
    """Return the rows of an `.npy`, of which each block is read when it is asked for."""
    shape, dtype = _checked_array(path)
    n = shape[0]
    places = np.unique(np.linspace(0, n - 1, SAMPLED_ROWS).astype(np.int64))
    digest = sha256(f"array {path.name} {shape} {dtype}".encode(errors="surrogateescape"))
    digest.update(np.ascontiguousarray(mapped_rows(path)[places]).tobytes())

    def read(start: int, stop: int) -> Dataset:
        rows = np.array(mapped_rows(path)[start:stop])  # mapped for each block, so that no page stays in memory
        names = [f"{path.stem}[{i}]" for i in range(start, stop)]
        try:
            singles = finite_singles(rows, "")
        except DataError as error:
            first = start + int((~np.isfinite(rows)).any(axis=1).argmax())
            raise DataError(f"{path}: holds NaN, infinity or values above 3.4e38, first in row {first}") from error
        items = Dataset.from_array(path.stem, singles, [UNKNOWN_CLASS] * len(rows), names=names)
        return replace(items, unnamed=True)

    return Blocks(n, read, digest.hexdigest(), unnamed=True, utf8=is_utf8([path.stem]))


def _checked_array(path: Path) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Return the shape and the type of an array of rows; raise a DataError if it is none."""
    rows = mapped_rows(path)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or 0 in rows.shape:
        raise DataError(f"{path}: expected (n, d) numbers, got shape {rows.shape} of type {rows.dtype}")
    return (rows.shape[0], rows.shape[1]), rows.dtype


def _rows_of_folder(folder: Path) -> Blocks:
    """Return the items of a folder of embeddings, of which each part is read when it is asked for."""
    manifest = complete_manifest(folder)

    def read(start: int, stop: int) -> Dataset:
        names: list[str] = []
        labels: list[str] = []
        groups: list[str] = []
        rows = []
        for number in range(start // manifest.part_size, -(-stop // manifest.part_size)):
            first, _ = manifest.bounds(number)
            here = slice(max(0, start - first), stop - first)
            try:
                part = read_part(folder, manifest, number)
            except ValueError as error:
                raise DataError(str(error)) from error
            names += part.names[here]
            labels += part.labels[here]
            groups += (part.groups or [])[here]
            rows.append(part.rows[here])
        joined = finite_singles(np.concatenate(rows), f"{folder}: items {start:,} to {stop:,}")
        return dataset_of(folder, manifest, EmbeddedPart(names, labels, groups if manifest.grouped else None, joined))

    return Blocks(
        count=manifest.count,
        read=read,
        listing=sha256(f"folder {manifest.key}".encode()).hexdigest(),
        root=manifest.folder,
        unnamed=manifest.unnamed,
        grouped=manifest.grouped,
        utf8=manifest.utf8,
    )


def _digest_of(items: Dataset, classes: list[str], groups: list[str], data: str) -> str:
    """Return a digest of items: of their content if it is in memory, otherwise of the sizes of their files."""
    digest = sha256(f"{items.kind} {len(items)} {items.name}".encode(errors="surrogatepass"))
    texts = [] if items.texts is None else items.texts.tolist()
    for part in (items.names, classes, groups, texts, items.columns):
        digest.update(sha256("\0".join(part).encode(errors="surrogatepass")).digest())
    if items.array is not None:
        digest.update(f"{items.array.shape} {items.array.dtype}".encode())
        digest.update(np.ascontiguousarray(items.array).data)
    elif named_by_paths(items, data):
        root = root_of(data)
        if not root.is_dir():
            sizes = [root.stat().st_size]
        else:
            sizes = [_size_of(root / name) for name in items.names]
        digest.update(np.array(sizes, dtype="<i8").tobytes())
    return digest.hexdigest()


def _size_of(path: Path) -> int:
    """Return the size of a file in bytes; -1 if there is none of this name, as for images inside a table."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
