"""The graph beside the file of a collection: a cache for approximate search, which is mapped and may be deleted.

``photos.index.graph`` belongs to ``photos.index``. It has the vectors that the collection had when the graph was built,
the numbers of their items, a checksum of each vector, and a graph of usearch. It is never changed: items that are newer
are searched exactly, those that were removed are skipped, and a new graph takes the place of the old one.

A graph has places in memory that usearch follows without a check, so that a stranger's graph could end the process. A
graph is therefore only used by the user who built it, on the machine where that was: the private cache folder has a
note of it.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..io.atomic_files import atomic_path, atomic_write
from ..io.cache import private_folder
from ..io.untrusted import parse_json, read_file
from ..numerics.distances import chunks, unit_rows
from ..numerics.types import AnyArray, Ints
from ..progress import counted
from .blob_file import reading
from .collection_file import Root, graph_of, read_snapshot

FORMAT = "nearfar graph 1"
HEADER = 4096  # bytes of the JSON at the beginning, with spaces at its end
LINKS = 16  # of each point of the graph; twice as many at its lowest level
CANDIDATES = 128  # points that are compared with one item that is added, or with one query
BUILT_AT_A_TIME = 50_000  # items
BUILT_ALONE = 2_000  # items that one thread adds first: threads that fill an empty graph together miss neighbors
VALUE = np.dtype("<f4")
NUMBER = np.dtype("<i8")
SUM = np.dtype("<u8")


@dataclass
class MappedGraph:
    """The content of a file beside a collection, mapped read-only.

    Attributes
    ----------
    vectors : ndarray of float32, shape (m, d)
    numbers : ndarray of int64, shape (m,)
        Number of the item of each vector, increasing.
    sums : ndarray of uint64, shape (m,)
        Checksum of each vector.
    next : int
        Number that the next item got; items from there on are newer than the graph.
    found : Index of usearch
    scale : float
        By which vectors were divided, unless they are compared by cosine.
    """

    vectors: AnyArray
    numbers: Ints
    sums: AnyArray
    next: int
    found: Any
    scale: float
    distance: str
    lock: threading.Lock = field(default_factory=threading.Lock)  # one search of usearch at a time

    def candidates(self, queries: AnyArray, wanted: int) -> Ints:
        """Return places of vectors that are near each query, (n, up to `wanted`), the nearest first; -1 for none."""
        wanted = min(wanted, len(self.vectors))
        compared = as_compared(queries, self.distance, self.scale)
        places = np.full((len(queries), wanted), -1, dtype=np.int64)
        with self.lock:
            # usearch follows as many points as it keeps: fewer than wanted would return fewer
            self.found.expansion_search = max(CANDIDATES, wanted)
            found = self.found.search(compared, wanted, threads=1)
        if len(compared) == 1:
            places[0, : len(found.keys)] = found.keys
        else:
            there = np.arange(wanted) < found.counts[:, None]
            places[there] = found.keys[there]
        return places

    def rows(self, places: Ints) -> AnyArray:
        """Return the vectors at some places; raise a ValueError if one is not what was written."""
        rows = self.vectors[places]
        if (sums_of(rows) != self.sums[places]).any():
            raise ValueError("the graph beside the index is damaged; delete it, or build it again with --build")
        return rows


def sums_of(rows: AnyArray) -> AnyArray:
    """Return a checksum of each row, (m,), which is another one if a bit is another one."""
    words = np.ascontiguousarray(rows, dtype=VALUE).view("<u4")
    return words.sum(axis=1, dtype=np.uint64)


def as_compared(rows: AnyArray, distance: str, scale: float) -> AnyArray:
    """Return rows whose Euclidean distances have the order of the distances, and no square that overflows."""
    if distance != "cosine":
        return np.asarray(rows / np.float32(scale), dtype=np.float32)
    return unit_rows(rows).astype(np.float32)


def new_graph(dimensions: int, distance: str) -> Any:
    """Return an empty graph of usearch; it holds unit rows in half precision, because found rows are compared again."""
    try:
        from usearch.index import Index as UsearchIndex
    except ImportError as error:
        raise ImportError("a graph needs usearch: pip install 'nearfar[ann]'") from error
    return UsearchIndex(
        ndim=dimensions,
        metric="l2sq",
        dtype="f16" if distance == "cosine" else "f32",
        connectivity=LINKS,
        expansion_add=CANDIDATES,
        expansion_search=CANDIDATES,
    )


def build_graph(path: Path) -> int:
    """Build the graph of all items of a collection, in the place of one that may be there; return their number.

    Raises
    ------
    ImportError
        If usearch is not installed.
    ValueError
        If the collection is empty.
    """
    with reading(path) as blobs:
        snapshot = read_snapshot(blobs)
    root = snapshot.root
    rows = snapshot.vectors
    if len(rows) == 0:
        raise ValueError(f"graph: {path} has no items; add some first")
    # the largest entry becomes 1, so that no square overflows in float32; cosine compares unit rows
    scale = max(float(np.abs(rows).max()), float(np.finfo(np.float32).tiny))
    graph = new_graph(root.dimensions, root.distance)
    begins = [0, *range(BUILT_ALONE, len(rows), BUILT_AT_A_TIME)]
    for start, stop in counted(pairwise([*begins, len(rows)]), "graph", len(begins)):
        part = as_compared(rows[start:stop], root.distance, scale)
        graph.add(np.arange(start, stop, dtype=np.uint64), part, threads=0 if start else 1)
    about = {"format": FORMAT, "origin": root.origin, "next": root.next, "count": len(rows), "scale": scale}
    target = graph_of(path)
    with atomic_path(target) as partial, open(partial, "wb") as file:
        file.write(json.dumps(about).encode().ljust(HEADER))
        file.write(rows.astype(VALUE, copy=False).data)
        file.write(snapshot.numbers.astype(NUMBER).tobytes())
        for part in chunks(rows):
            file.write(sums_of(part).astype(SUM).tobytes())
        file.write(graph.save())
    with atomic_write(_note(target), "w") as note:
        note.write(_status(target))
    return len(rows)


def open_graph(path: Path, root: Root) -> MappedGraph | None:
    """Map the graph beside a collection; None if there is none, or it is another collection's or another user's."""
    target = graph_of(path)
    if root.count == 0:
        return None
    with suppress(ImportError, OSError, ValueError, KeyError, TypeError):
        if read_file(_note(target), most=HEADER).decode() != _status(target):
            return None
        with open(target, "rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        about = parse_json(bytes(mapped[:HEADER]).decode())
        if (about["format"], about["origin"]) != (FORMAT, root.origin) or about["next"] > root.next:
            return None
        m = about["count"]
        d = root.dimensions
        # where header, vectors, numbers and checksums end; the graph itself is the rest
        ends = np.cumsum([HEADER, m * d * VALUE.itemsize, m * NUMBER.itemsize, m * SUM.itemsize]).tolist()
        found = new_graph(d, root.distance)
        found.view(mapped[ends[3] :])
        return MappedGraph(
            vectors=np.frombuffer(mapped[ends[0] : ends[1]], dtype=VALUE).reshape(m, d),
            numbers=np.frombuffer(mapped[ends[1] : ends[2]], dtype=NUMBER),
            sums=np.frombuffer(mapped[ends[2] : ends[3]], dtype=SUM),
            next=about["next"],
            found=found,
            scale=about["scale"],
            distance=root.distance,
        )
    return None


def _note(target: Path) -> Path:
    """Return the private file that says which graph was built here."""
    return private_folder("graphs") / sha256(os.fsencode(target)).hexdigest()[:32]


def _status(target: Path) -> str:
    status = target.stat()
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
