"""Files of faiss that hold their vectors as they are: flat indexes, also with ids. faiss itself is not needed.

    "IxFI", "IxF2" or "IxFl" | d: int32 | n: int64 | two unused int64 | trained: 1 byte | metric: int32
    [argument of the metric: float32] | n d: uint64 | the vectors, n d float32
    "IxMp" or "IxM2" | the same fields | a flat index | n: uint64 | the ids, n int64

All numbers are little-endian. The files may come from strangers: each size is checked against that of the file, and
faiss, which reads much more than that in C++, is not called. Names and labels are in a .csv next to the file.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..numerics.types import AnyArray, Ints
from .untrusted import read_file

HEAD = struct.Struct("<4siqqq?i")
FLAT = (b"IxFI", b"IxF2", b"IxFl")
WITH_IDS = (b"IxMp", b"IxM2")
METRICS = {0: "cosine", 1: "euclidean"}
"""Inner product, which is the cosine of vectors of unit length, and squared Euclidean distance."""
SIZE = struct.Struct("<Q")
ARGUMENT = 4  # bytes of the argument of other metrics
UNUSED = 1 << 20  # what faiss writes into unused fields


def names_beside(path: str | os.PathLike[str]) -> Path:
    """Return the table with names and labels of the vectors in a file.

    >>> names_beside("photos.faiss").name
    'photos.names.csv'
    """
    return Path(path).with_suffix(".names.csv")


def read_flat(path: Path) -> tuple[AnyArray, Ints | None, str]:
    """Return the vectors (n, d) of a flat index, their ids, if any, and the distance that it ranks by.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is damaged, or an index of another kind, which does not hold the vectors themselves.
    """
    content = read_file(path)
    kind, _, _, place = _head(content, 0)
    if kind not in WITH_IDS:
        rows, metric, end = _flat(content, 0)
        ids = None
    else:
        rows, metric, end = _flat(content, place)
        (count,) = _unpacked(SIZE, content, end)
        ids = _array(content, end + SIZE.size, count, np.dtype("<i8")).astype(np.int64)
        end += SIZE.size + 8 * count
        if count != len(rows):
            raise ValueError(f"it has {count:,} ids for {len(rows):,} vectors; it is damaged")
    if end != len(content):
        raise ValueError("it is longer than its vectors; it is damaged")
    return rows, ids, METRICS[metric]


def _head(content: bytes, place: int) -> tuple[bytes, int, int, int]:
    """Return kind, number of dimensions, metric, and the place after the head of an index."""
    kind, d, _, _, _, _, metric = _unpacked(HEAD, content, place)
    if kind not in (*FLAT, *WITH_IDS):
        expected = "expected a flat index of faiss, such as IndexFlatIP or IndexIDMap of one"
        if not kind.isalnum():
            raise ValueError(f"{expected}, got no index")
        advice = "add index.reconstruct_n(0, index.ntotal) to an IndexFlatIP or IndexFlatL2"
        raise ValueError(f"{expected}, got {kind.decode('ascii', 'replace')}; {advice}")
    if metric not in METRICS:
        raise ValueError(f"expected inner product or L2 as the metric, got number {metric}")
    return kind, d, metric, place + HEAD.size


def _flat(content: bytes, place: int) -> tuple[AnyArray, int, int]:
    """Return the vectors and the metric of the flat index at a place, and the place after it."""
    kind, d, metric, place = _head(content, place)
    if kind not in FLAT:
        raise ValueError("expected a flat index below its ids")
    (count,) = _unpacked(SIZE, content, place)
    if d < 1 or count % d:
        raise ValueError(f"it has {count:,} numbers for vectors of {d:,} dimensions; it is damaged")
    rows = _array(content, place + SIZE.size, count, np.dtype("<f4")).astype(np.float32).reshape(-1, d)
    return rows, metric, place + SIZE.size + 4 * count


def _unpacked(fields: struct.Struct, content: bytes, place: int) -> tuple[Any, ...]:
    if place + fields.size > len(content):
        raise ValueError("it ends too early; it is damaged")
    return fields.unpack_from(content, place)


def _array(content: bytes, place: int, count: int, kind: np.dtype[np.generic]) -> AnyArray:
    if count * kind.itemsize > len(content) - place:
        raise ValueError("it ends too early; it is damaged")
    return np.frombuffer(content, kind, count, place)


def write_flat(file: IO[bytes], rows: AnyArray, distance: str) -> None:
    """Write vectors as an index that `faiss.read_index` opens, IndexFlatIP for the cosine, otherwise IndexFlatL2.

    Vectors that are compared by their cosine are scaled to unit length.
    """
    vectors = np.ascontiguousarray(rows, dtype="<f4")
    cosine = distance == "cosine"
    if cosine:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-30))
    kind = FLAT[0] if cosine else FLAT[1]
    n, d = vectors.shape
    file.write(HEAD.pack(kind, d, n, UNUSED, UNUSED, True, 0 if cosine else 1))
    file.write(SIZE.pack(vectors.size))
    file.write(vectors.astype("<f4", copy=False).tobytes())
