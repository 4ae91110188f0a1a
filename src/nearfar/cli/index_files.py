"""Shared by the commands on an index: opening it, and embedding and naming items for it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..io.uris import shown
from ..quoting import quoted
from .encoding import say

DIMS = "dims"  # key in the metadata of an index: the number of leading dimensions that it keeps
GROUP = "group"  # column of an index: object, camera or video of each item

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Store
    from ..numerics.types import AnyArray


@contextmanager
def index_lock(file: Path) -> Iterator[None]:
    """Lock an index from before it is read until it is written; print a line if another process has the lock."""
    from ..index import index_lock as changes

    def tell() -> None:
        if sys.stderr is not None:
            say(f"nearfar: {shown(file)}: waiting for another process that is changing it", file=sys.stderr)

    with changes.index_lock(file, wait=changes.WAIT, waiting=tell):
        yield


def open_index(file: Path, mode: Literal["r", "w"] = "r") -> Store:
    """Open an index, or raise an error that names the command that makes one. Change it only in `index_lock`."""
    from ..index import open_store
    from ..io.uris import is_address
    from .embedding import is_embeddings

    if is_address(file):
        return open_store(file, mode, lock=False)
    if is_embeddings(file):
        raise ValueError(f"{file}: is a file of rows, not an index; `nearfar index {file} -o FILE` makes one")
    if not file.exists():
        raise FileNotFoundError(f"{file}: no such index; `nearfar index RUN DATA -o {file}` makes one")
    return open_store(file, mode, lock=False)


def is_index(source: Path) -> bool:
    """Return whether a source is an index by its name, and not a run, a learner or a file of embeddings."""
    from ..io.uris import is_address, is_folder

    return is_address(source) or is_folder(source) or source.suffix == ".index"


def items_of_index(file: Path) -> tuple[Dataset, AnyArray, str]:
    """Return the items of an index that have a class, their embeddings, and the distance of the index."""
    import numpy as np

    from ..data import Dataset
    from ..index.groups import numbered
    from .image_paths import pictures_of

    index = open_index(file).in_memory()
    labels = np.full(len(index), "") if index.labels is None else index.labels.astype(np.str_)
    kept = np.flatnonzero(labels != "")
    groups = None
    if GROUP in index.columns:
        group_of = numbered(index.columns[GROUP])[kept].astype(np.str_)
        groups = np.strings.zfill(group_of, group_of.itemsize)  # in the order of the numbers
    if len(kept) == 0:
        raise ValueError(f"{shown(file)}: its items have no classes; make the index from data with classes")
    classes, numbers = np.unique(labels[kept], return_inverse=True)
    names = index.names[kept].tolist()
    dataset = Dataset(
        name=file.stem,
        labels=numbers.astype(np.int64),
        classes=tuple(classes.tolist()),
        kind="image",
        read=pictures_of(names, index.about, file),
        names=tuple(names),
        groups=groups,
    )
    return dataset, index.embeddings[kept], index.distance


def has_collection(file: Path) -> bool:
    """Return whether something is stored under the name of an index, which a new index would replace."""
    from ..index import open_store
    from ..io.uris import is_address

    if not is_address(file):
        return file.exists()
    try:
        open_store(file, lock=False).close()
    except FileNotFoundError:
        return False
    return True


def store_summary(store: Store) -> str:
    """Return one line on how many items an index has, and how they are searched."""
    return f"Index of {store.count():,} x {store.dimensions}, {store.distance}, engine {store.engine()}"


def weights_of(source: Path) -> str:
    """Return a digest of the weights of a run or a learner: queries need the weights that made the index."""
    file = source / "best.safetensors" if source.is_dir() else source
    if not file.is_file():
        raise FileNotFoundError(f"{source}: does not exist; expected the folder of a run or a saved learner")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def open_embedded(
    source: Path | None,
    data: str | None,
    skip_bad: bool = False,
    label: str | None = None,
    name: str | None = None,
) -> tuple[Dataset, AnyArray]:
    """Open queries and embed them; without a source, they are embeddings already."""
    items = items_of(data, skip_bad, label, name)
    return items, embed_items(source, items, Path(str(data)), prompt="query")


def items_of(data: str | None, skip_bad: bool = False, label: str | None = None, name: str | None = None) -> Dataset:
    """Open the items to embed."""
    from ..data.items import open_items

    if not data:
        raise ValueError("DATA: expected the items to embed, for example a folder of images")
    return open_items(data, label=label, name=name, skip_bad=skip_bad)


def embed_items(
    source: Path | None, items: Dataset, data: Path, prompt: Literal["query", "document"] = "document"
) -> AnyArray:
    """Embed the items of DATA; without a source, the items are embeddings already."""
    from .embedding import embed_with, rows_of

    if source is None:
        return rows_of(items, data)
    return embed_with(source, items, prompt)


def names_of(items: Dataset, data: str) -> list[str]:
    """Return the names of items in an index: their paths, which for a table include its folder."""
    if not named_by_paths(items, data):
        return list(items.names)
    root = root_of(data)
    return [(root / name).as_posix() for name in items.names]


def root_of(data: str) -> Path:
    """Return the folder or the archive to which the names of items are relative."""
    from ..data.readers.files import is_archive

    path = Path(data)
    return path if path.is_dir() or is_archive(path) else path.parent


def named_by_paths(items: Dataset, data: str) -> bool:
    """Return whether items are named by their paths, unlike rows, texts and the items of built-in data sets."""
    return items.kind == "image" and Path(data).exists()


def first_dims(rows: AnyArray, about: Mapping[str, str]) -> AnyArray:
    """Return the leading dimensions of rows that an index keeps; all of them if it has no such record.

    Raises
    ------
    ValueError
        If the record is not a number of dimensions of these rows.
    """
    recorded = about.get(DIMS, "")
    if not recorded:
        return rows
    width = rows.shape[1]
    if not (recorded.isascii() and recorded.isdecimal() and 1 <= int(recorded) <= width):
        raise ValueError(f"--dims: expected 1 to {width}, the number of dimensions, got {quoted(recorded)}")
    return rows[:, : int(recorded)]
