"""What the commands on an index share: it is read, and items are embedded and named for it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Index
    from ..numerics.types import AnyArray


WAIT = 600.0
"""Seconds for which a command waits for another one that changes the same index."""


@contextmanager
def one_at_a_time(file: Path) -> Iterator[None]:
    """Keep other commands from changing an index from before it is read until it is written: a change would be lost.

    Raises
    ------
    TimeoutError
        Another command still changes it after `WAIT` seconds.
    OSError
        Its folder cannot be written in.
    """
    from ..io.atomic_files import locked

    def tell() -> None:
        if sys.stderr is not None:
            print(f"nearfar: {file}: another command is changing it; waiting for it to end", file=sys.stderr)

    target = Path(os.path.realpath(file))  # of all names of one file there is one lock
    if target.exists() and not target.is_file():
        raise ValueError(f"{file}: cannot be written (it is no regular file)")
    with ExitStack() as held:
        if target.parent.is_dir():  # else there is no index either, as is told soon
            try:
                held.enter_context(locked(target.with_name(f".{target.name}.lock"), wait=WAIT, waiting=tell))
            except TimeoutError as error:
                still = f"another command is still changing it after {WAIT:g} s; try again when that has ended"
                raise TimeoutError(f"{file}: {still}") from error
            except OSError as error:
                raise OSError(f"{file}: cannot be written ({error.strerror or error})") from error
        yield


def load_index(file: Path) -> Index:
    """Read an index, or say which command makes one."""
    from ..index import Index
    from .embedding import is_embeddings

    if is_embeddings(file):
        raise ValueError(f"{file}: holds rows and is no index; `nearfar index {file} -o FILE` makes one of them")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such index; `nearfar index RUN DATA -o {file}` makes it")
    return Index.load(file)


def weights_of(source: Path) -> str:
    """Say which weights a run or a learner has: queries must be embedded by those that made the index."""
    file = source / "best.safetensors" if source.is_dir() else source
    if not file.is_file():
        raise FileNotFoundError(f"{source}: neither a run nor a learner")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def open_embedded(
    source: Path | None, data: str | None, skip_bad: bool = False, label: str | None = None
) -> tuple[Dataset, AnyArray]:
    """Open items and embed them; without a source they are rows, and embeddings already."""
    items = items_of(data, skip_bad, label)
    return items, embedded_by(source, items, Path(str(data)))


def items_of(data: str | None, skip_bad: bool = False, label: str | None = None) -> Dataset:
    """Open the items to embed."""
    from ..data.items import open_items

    if data is None:
        raise ValueError("DATA: say what to embed, for example a folder of images")
    return open_items(data, label=label, skip_bad=skip_bad)


def embedded_by(source: Path | None, items: Dataset, data: Path) -> AnyArray:
    """Embed the items of DATA; without a source they are rows, and embeddings already."""
    from .embedding import embed_with, rows_of

    if source is None:
        return rows_of(items, data)
    return embed_with(source, items)


def names_of(items: Dataset, data: str) -> list[str]:
    """Return the names of items in an index: the paths that lead to them, those of a table from its folder."""
    if not named_by_paths(items, data):
        return list(items.names)
    root = root_of(data)
    return [(root / name).as_posix() for name in items.names]


def root_of(data: str) -> Path:
    """Return the folder or the archive from which the names of items lead."""
    from ..data.readers.files import is_archive

    path = Path(data)
    return path if path.is_dir() or is_archive(path) else path.parent


def named_by_paths(items: Dataset, data: str) -> bool:
    """Return whether items are named by the paths that lead to them: not rows, nor the items of built-in sets."""
    return items.kind != "row" and Path(data).exists()
