"""Collections of so many items that they are not held in memory at once, or that a kill must not embed again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..data import Dataset
from ..data.blocks import blocks_of, open_blocks
from ..data.items import flat_rows
from ..extras import is_installed
from ..io.part_files import check_place, holds_parts, is_ours
from ..io.sources import MODELS, kind_of
from ..io.uris import is_address, is_folder
from ..models import Model
from ..models.embedding_in_parts import PART_SIZE, manifest_of, rows_in_parts, write_missing_parts
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray
from ..quoting import count_of
from .blob_file import making
from .collection_file import Change, checked_change, make_change, write_new
from .file_store import FileStore
from .paths import GROUP
from .records import Records, records_of
from .searching import embedded_by, first_dims

ITEMS_READ = 2**16
"""Items that are read at a time: 32 MB of 128 dimensions."""


def is_read_in_blocks(source: Path, out: Path, engine: str | None) -> bool:
    """Return whether a new index is made of a folder of embeddings block by block: a file that is searched exactly."""
    return holds_parts(source) and not is_folder(out) and not is_address(out) and engine in (None, "", "exact")


def create_from_parts(folder: Path, out: Path, *, distance: str, about: Mapping[str, str]) -> FileStore:
    """Make an index of a folder of embeddings, completely or not at all, and open it to be changed.

    Raises
    ------
    ValueError
        If a name occurs twice, or parts are missing or damaged.
    """
    check_distance(distance)
    blocks = records_in(folder, about)
    count = 0
    with making(out) as blobs:
        for number, records in enumerate(blocks):
            change = checked_change(Change(records=records, about=about))
            count += len(records)
            if number == 0:
                write_new(blobs, change.records or records, distance=distance, engine="exact", about=about)
                there = count
            else:
                there = make_change(blobs, change).count
            if there < count:
                raise ValueError(f"names: {count_of(count - there, 'item')} of {folder} have the name of another one")
    return FileStore(out, writes=True, lock=False)


def records_in(folder: Path, about: Mapping[str, str]) -> Iterator[Records]:
    """Read the items of a folder of embeddings, with the leading dimensions that an index keeps."""
    blocks = open_blocks(str(folder))
    for start in range(0, blocks.count, ITEMS_READ):
        items = blocks.read(start, min(blocks.count, start + ITEMS_READ))
        columns = {} if items.groups is None else {GROUP: items.groups}
        labels = [items.classes[number] for number in items.labels]
        yield records_of(first_dims(flat_rows(items), about), items.names, labels=labels, columns=columns)


def embedded_beside(out: Path, model: Model | None, source: Path, items: Dataset, data: str) -> AnyArray:
    """Embed items as `embedded_by` does. Of many, what is embedded is kept beside the index until that is written.

    After a kill, the same call continues with it. Indexes of a server have no folder beside them.
    """
    if model is None or len(items) <= PART_SIZE or is_address(out) or not is_installed("pyarrow"):
        return embedded_by(model, items, data)
    folder = kept_beside(out)
    blocks = blocks_of(items, data)
    manifest = manifest_of(source, model, data, blocks, dims=None, part_size=PART_SIZE)

    def embed(part: Dataset) -> AnyArray:
        return embedded_by(model, part, data)

    check_place(folder, manifest, overwrite=True)
    write_missing_parts(folder, manifest, embed, blocks, range(manifest.parts), overwrite=True)
    return rows_in_parts(folder, manifest)


def remove_kept(source: Path, out: Path) -> None:
    """Remove what `embedded_beside` has kept, after the index of a model was written; other files stay."""
    folder = kept_beside(out)
    if kind_of(source) not in MODELS or not holds_parts(folder) or folder.is_symlink():
        return
    with suppress(OSError):
        for name in filter(is_ours, os.listdir(folder)):
            (folder / name).unlink()
        folder.rmdir()


def kept_beside(out: Path) -> Path:
    """Return the folder that keeps what was embedded for an index.

    >>> kept_beside(Path("photos.index")).name
    'photos.index.embedded'
    """
    return out.with_name(f"{out.name}.embedded")
