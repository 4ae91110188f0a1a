"""Folders of embeddings, as `nearfar embed` writes them for any number of items."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...io.part_files import EmbeddedPart, Manifest, check_complete, read_manifest, read_part
from ...labels import text_array
from ...progress import counted
from ...quoting import count_of
from ..dataset import DataError, Dataset, Source, some
from .arrays import finite_singles


def read_folder_of_embeddings(path: str | Path, *, skip_bad: bool = False) -> Source:
    """Read all items of a folder of embeddings into memory: 4 bytes for each number, and their names.

    Parameters
    ----------
    path : str or Path
        The folder.
    skip_bad : bool
        Leave out rows with NaN or infinity, instead of raising an error.

    Returns
    -------
    Source
        The items. Those without a class have the class "".

    Raises
    ------
    DataError
        If parts are missing, damaged, or belong to other embeddings.
    """
    folder = Path(path)
    manifest = complete_manifest(folder)
    rows = np.empty((manifest.count, manifest.dimensions), np.float32)
    names: list[str] = []
    labels: list[str] = []
    groups: list[str] = []
    for part in counted(parts_of(folder, manifest), "reading", manifest.parts):
        rows[len(names) : len(names) + len(part.rows)] = part.rows
        names += part.names
        labels += part.labels
        groups += part.groups or []
    items = dataset_of(folder, manifest, EmbeddedPart(names, labels, groups if manifest.grouped else None, rows))
    bad = ~np.isfinite(rows).all(axis=1) if skip_bad else np.zeros(1, dtype=bool)
    if bad.any() and not bad.all():
        which = some([names[i] for i in np.flatnonzero(bad)], 3)
        note = f"{count_of(int(bad.sum()), 'row')} with NaN or infinity left out ({which})"
        items = items.subset(~bad)
        items = replace(items, notes=(*items.notes, note))
    finite_singles(rows if items.array is None else items.array, f"{folder}: its embeddings")
    return Source(items)


def complete_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of embeddings; raise a DataError if it is damaged, or parts are missing."""
    try:
        manifest = read_manifest(folder)
        check_complete(folder, manifest)
    except ValueError as error:
        raise DataError(str(error)) from error
    return manifest


def parts_of(folder: Path, manifest: Manifest) -> Iterator[EmbeddedPart]:
    """Read the parts of a folder one after another; raise a DataError if one is damaged."""
    try:
        for number in range(manifest.parts):
            yield read_part(folder, manifest, number)
    except ImportError as error:
        raise DataError(f"{folder}: Parquet needs pyarrow; pip install 'nearfar[tables]'") from error
    except ValueError as error:
        raise DataError(str(error)) from error


def dataset_of(folder: Path, manifest: Manifest, part: EmbeddedPart) -> Dataset:
    """Return items of a folder of embeddings as a data set."""
    name = os.path.basename(os.path.abspath(folder))
    items = Dataset.from_array(name, part.rows, part.labels, names=part.names)
    groups = None if part.groups is None else text_array(part.groups)
    return replace(items, groups=groups, unnamed=manifest.unnamed)
