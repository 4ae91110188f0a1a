"""Embedding into a folder, part by part: with kills at any moment, and any number of processes, the same result."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data import Dataset
from ..data.blocks import Blocks, blocks_of, open_blocks
from ..extras import require
from ..io.part_files import EmbeddedPart, Manifest, begin, check_place, read_part, write_part, written
from ..io.remote import refuse_writing
from ..io.sources import MODELS, absolute, kind_of
from ..numerics.types import AnyArray
from ..progress import Portion, listening, stage
from ..quoting import quoted
from .embedded import texts_of_pairs
from .loading import load
from .model import Model, open_for

PART_SIZE = 10_000
"""Items in a part: 5 MB of 128 dimensions, and what a kill loses at most."""
SHARD = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class PartsWritten:
    """What a call has written into a folder of embeddings.

    Attributes
    ----------
    folder : Path
        The folder.
    manifest : Manifest
        What it holds once it is complete.
    mine : list of int
        Numbers of the parts that the call had to write.
    found : list of int
        Those of them that an earlier call had written.
    missing : list of int
        Numbers of all parts that are missing still, which other processes write.
    items : Dataset or None
        All items, if they were opened as a whole.
    """

    folder: Path
    manifest: Manifest
    mine: list[int]
    found: list[int]
    missing: list[int]
    items: Dataset | None


def shard_of(shard: str) -> tuple[int, int]:
    """Return which of how many shards a text names, counted from 1; "" is the only one.

    Raises
    ------
    ValueError
        If it names none.

    Examples
    --------
    >>> shard_of("3/16"), shard_of("")
    ((3, 16), (1, 1))
    """
    found = SHARD.fullmatch(shard or "1/1")
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"shard: expected a number of how many, such as 3/16, from 1/16 to 16/16, got {quoted(shard)}")
    return int(found[1]), int(found[2])


def embed_in_parts(
    source: str | os.PathLike[str],
    data: str,
    folder: str | os.PathLike[str],
    *,
    shard: str = "",
    part_size: int = PART_SIZE,
    overwrite: bool = False,
    label: str | None = None,
    name: str | None = None,
    dims: int | None = None,
    texts: bool = False,
    skip_bad: bool = False,
) -> PartsWritten:
    """Embed data into a folder; arguments as for `nearfar.workflows.embed`."""
    number, of = shard_of(shard)
    if part_size < 1:
        raise ValueError(f"part_size: expected 1 or more, got {part_size}")
    if overwrite and of > 1:
        raise ValueError(f"overwrite: not with shard={shard}, which would remove what others write; remove {folder}")
    refuse_writing(folder, "out")
    require("pyarrow")
    kind_of(source, *MODELS)
    model = load(source)
    if texts:
        blocks = blocks_of(texts_of_pairs(data, model.table_columns.read(data, label)["label"], skip_bad), data)
    elif "table" in model.takes:
        blocks = blocks_of(open_for(model, data, label=label, name=name, skip_bad=skip_bad), data)
    else:
        blocks = open_blocks(data, **model.table_columns.read(data, label, name), skip_bad=skip_bad)
    manifest = manifest_of(source, model, data, blocks, dims=dims, part_size=part_size)
    path = Path(folder)
    check_place(path, manifest, overwrite=overwrite)
    mine = [*range(number - 1, manifest.parts, of)]
    found = write_missing_parts(path, manifest, model.embed, blocks, mine, overwrite=overwrite)
    missing = sorted(set(range(manifest.parts)) - set(written(path, manifest)))
    return PartsWritten(path, manifest, mine, found, missing, blocks.items)


def manifest_of(
    source: str | os.PathLike[str], model: Model, data: str, blocks: Blocks, *, dims: int | None, part_size: int
) -> Manifest:
    """Return the manifest of the embeddings of items, or of their leading dimensions."""
    d = model.dimensions
    if dims is not None and not 1 <= dims <= d:
        raise ValueError(f"dims: expected 1 to {d}, the number of dimensions, got {dims}")
    return Manifest(
        model=absolute(os.fspath(source)),
        data=data,
        fingerprint=model.fingerprint,
        listing=blocks.listing,
        distance=model.distance,
        count=blocks.count,
        part_size=part_size,
        dimensions=dims or d,
        folder=blocks.root,
        unnamed=blocks.unnamed,
        grouped=blocks.grouped,
        utf8=blocks.utf8,
    )


def write_missing_parts(
    folder: Path,
    manifest: Manifest,
    embed: Callable[[Dataset], AnyArray],
    blocks: Blocks,
    mine: Sequence[int],
    *,
    overwrite: bool = False,
) -> list[int]:
    """Embed the items of those of some parts that are missing, and write each part as soon as it is embedded.

    The folder is made, or replaced, when the first part is embedded: data that cannot be embedded leave nothing.
    Returns the numbers of those that were there.
    """
    found = written(folder, manifest, mine)
    numbers = sorted(set(mine) - set(found))
    sizes = {number: stop - start for number in numbers for start, stop in [manifest.bounds(number)]}
    with stage("embedding", sum(sizes.values())) as done:
        for number, size in sizes.items():
            with Portion(done, size) as portion, listening(portion):
                part = embedded_part(manifest, embed, blocks, number)
                begin(folder, manifest, overwrite=overwrite)  # refuses if another process has replaced the folder
                overwrite = False
                write_part(folder, manifest, number, part)
    return found


def embedded_part(
    manifest: Manifest, embed: Callable[[Dataset], AnyArray], blocks: Blocks, number: int
) -> EmbeddedPart:
    """Embed the items of one part."""
    items = blocks.read(*manifest.bounds(number))
    rows = np.asarray(embed(items))[:, : manifest.dimensions].astype(np.float32, copy=False)
    if rows.shape != (len(items), manifest.dimensions):
        raise ValueError(f"{manifest.model}: expected embeddings of {manifest.dimensions} dimensions, got {rows.shape}")
    groups = None if items.groups is None else items.groups.tolist()
    labels = [items.classes[number] for number in items.labels]
    return EmbeddedPart([*items.names], labels, groups, rows)


def rows_in_parts(folder: Path, manifest: Manifest) -> AnyArray:
    """Read the embeddings of all parts (n, d)."""
    rows = np.empty((manifest.count, manifest.dimensions), np.float32)
    for number in range(manifest.parts):
        start, stop = manifest.bounds(number)
        rows[start:stop] = read_part(folder, manifest, number).rows
    return rows
