"""Embeddings with their names and labels in one file: .npz, .parquet or .faiss."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..data import Dataset
from ..data.dataset import UNKNOWN_CLASS
from ..data.items import named_by_paths, root_of
from ..data.readers.arrays import UNNAMED, arrays_of_class_labels
from ..extras import require
from ..io.atomic_files import atomic_write
from ..io.cells import write_table
from ..io.faiss_file import names_beside, read_flat, write_flat
from ..labels import narrow_texts
from ..numerics.types import AnyArray

FILES = (".npz", ".parquet", ".faiss")
DISTANCE = b"distance"
"""Key of the distance in the metadata of a Parquet table."""


def write_embeddings(
    out: str | os.PathLike[str], items: Dataset, rows: AnyArray, distance: str, *, data: str = ""
) -> None:
    """Write embeddings with names, labels and distance into a file, completely or not at all.

    Every file is read by `nearfar evaluate`, `index` and the other commands.

    Parameters
    ----------
    out : path
        An .npz, which also has the labels of classes that are sets of labels or belong to levels; a .parquet with the
        columns `name`, `label` (`labels` of sets), `group` (if there are groups) and `embedding`; or a .faiss, a flat
        index, with names and labels in a .csv next to it. For the cosine, its vectors have unit length.
    items : Dataset
        The items.
    rows : ndarray of shape (n, d)
        Their embeddings.
    distance : {"cosine", "euclidean"}
        Distance by which they are compared.
    data : str
        Where the items are from; an .npz keeps the folder of images for reports.

    Raises
    ------
    ValueError
        If the file has another ending.
    ModuleNotFoundError
        If pyarrow is missing, which a .parquet needs.
    """
    path = Path(out)
    if path.suffix == ".npz":
        _write_npz(path, items, rows, distance, data)
    elif path.suffix == ".parquet":
        _write_parquet(path, items, rows, distance)
    elif path.suffix == ".faiss":
        labels = _labels(items)
        header = ["name"] if labels is None else ["name", "label"]
        columns = [items.names] if labels is None else [items.names, labels]
        with atomic_write(path) as file:
            write_flat(file, rows, distance)
            file.flush()  # a full disk fails here, before the names of an earlier file are replaced
            write_table(names_beside(path), header, list(zip(*columns, strict=True)))
    else:
        raise ValueError(f"out: {path}: expected a file that ends in {', '.join(FILES[:-1])} or {FILES[-1]}")


def written_distance(path: Path) -> str:
    """Return the distance that a .parquet or a .faiss states; "" if it states none, or cannot be read."""
    try:
        if path.suffix == ".faiss":
            return read_flat(path)[2]
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema

        try:
            return bytes((read_schema(path).metadata or {}).get(DISTANCE, b"")).decode("ascii", "replace")
        except ArrowException:
            return ""
    except (ImportError, OSError, ValueError):  # reading the rows will raise the error
        return ""


def _labels(items: Dataset) -> list[str] | None:
    """Return the class of each item, or None if no item has one."""
    labels = [items.classes[number] for number in items.labels.tolist()]
    return labels if any(label != UNKNOWN_CLASS for label in labels) else None


def _write_npz(path: Path, items: Dataset, rows: AnyArray, distance: str, data: str) -> None:
    about = {
        "labels": items.labels,
        "classes": narrow_texts(items.classes, "classes"),
        "names": narrow_texts(items.names, "names"),
        "distance": np.asarray(distance),
    }
    if items.unnamed:
        about[UNNAMED] = np.asarray(True)
    if items.groups is not None:
        about["groups"] = narrow_texts(items.groups, "groups")
    about |= arrays_of_class_labels(items)
    if data and named_by_paths(items, data):  # for reports, which show the images
        about["folder"] = np.asarray(str(root_of(data).absolute()))
    with atomic_write(path) as file:
        np.savez_compressed(file, embeddings=rows, **about)  # type: ignore[arg-type]  # no key is a setting


def _write_parquet(path: Path, items: Dataset, rows: AnyArray, distance: str) -> None:
    require("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    singles = np.ascontiguousarray(rows, dtype=np.float32)
    labels = _labels(items)
    columns = {"name": pa.array(list(items.names))}
    if labels is not None:
        columns["labels" if items.has_label_sets else "label"] = pa.array(labels)
    if items.groups is not None:
        columns["group"] = pa.array(items.groups.tolist())
    # lists of any length have offsets of 32 bits, too few for three million embeddings of 768 dimensions
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(singles.ravel()), singles.shape[1])
    table = pa.table(columns).replace_schema_metadata({DISTANCE: distance.encode()})
    with atomic_write(path) as file:
        parquet.write_table(table, file)
