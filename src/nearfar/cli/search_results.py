"""Output of neighbors and duplicates of an index: as lines, as a table, or as a page of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..data import Dataset
    from ..data.items import NamedReader
    from ..index import Hits, Index, Records, Store
    from ..numerics.types import AnyArray
    from ..report.content import Items

Neighbors = list[tuple[str, int, float, str, str]]  # neighbors of one query
ZERO_DISTANCE = 1e-9
"""Smaller distances are shown as 0. Embeddings of one image in different batches differ by rounding, which gives cosine
distances of up to 1e-11."""


def classes_of(items: Index | Records) -> list[str]:
    """Return the class of every item, "" if the index has no classes."""
    if items.labels is None:
        return [""] * len(items)
    return [str(label) for label in items.labels]


def neighbor_rows(names: Sequence[str], hits: Hits) -> Iterator[Neighbors]:
    """Yield, for each query, its name and the rank, distance, class and name of its neighbors."""
    items = hits.records
    for query, distances, positions in zip(names, hits.distances, hits.positions, strict=True):
        rows: Neighbors = []
        for rank, (distance, at) in enumerate(zip(distances, positions, strict=True), start=1):
            if at >= 0:
                label = "" if items.labels is None else str(items.labels[at])
                rows.append((query, rank, float(distance), label, str(items.names[at])))
        yield rows


def distance_text(distance: float) -> str:
    """Return a distance as text; 0 if it may be due to rounding."""
    if distance < ZERO_DISTANCE:
        return "0"
    return f"{distance:.4g}"


def neighbor_lines(names: Sequence[str], found: Sequence[Neighbors]) -> Iterator[str]:
    """Yield a heading for each query, followed by its neighbors."""
    wide = max((len(label) for rows in found for _, _, _, label, _ in rows), default=0)
    for query, rows in zip(names, found, strict=True):
        yield query if rows else f"{query}: none"
        for _, rank, distance, label, name in rows:
            yield f"  {rank:>3}  {distance_text(distance):>10}  {label:<{wide}}  {name}"


def group_lines(number: int, rows: Sequence[tuple[int, float, str, str]], wide: int) -> Iterator[str]:
    """Yield a heading for a group, followed by its items."""
    kinds = len({row[2] for row in rows})
    yield f"group {number}: {len(rows)} items" + (f" of {kinds} classes" if kinds > 1 else "")
    yield from (f"  {distance_text(distance):>10}  {label:<{wide}}  {name}" for _, distance, label, name in rows)


def write_table(out: Path, heading: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a .csv, completely or not at all."""
    from ..io.atomic_files import atomic_write
    from ..io.cells import write_rows

    with atomic_write(out, "w", newline="", encoding="utf-8", errors="surrogateescape") as handle:
        write_rows(handle, [heading, *rows])


def write_hits(
    out: Path,
    store: Store,
    queries: Dataset,
    rows: AnyArray,
    names: Sequence[str],
    hits: Hits,
    pictures: NamedReader,
) -> None:
    """Write a page with every query and its neighbors; `pictures` reads the images."""
    from ..report.content import Items
    from ..report.search_page import Line, Near, write_found

    lines = []
    for q, (distances, positions) in enumerate(zip(hits.distances, hits.positions, strict=True)):
        near = [Near(int(at), distance_text(d)) for d, at in zip(distances, positions, strict=True) if at >= 0]
        lines.append(Line(Near(q, ""), near))
    note = f"Each query and its nearest neighbors among {store.count():,} items, with the {store.distance} distance."
    query_items = Items(embeddings=rows, labels=queries.labels, classes=queries.classes, names=names, read=queries.read)
    write_found(
        out, lines, items_in(hits.records, pictures), title=f"Nearest to {queries.name}", note=note, queries=query_items
    )


def write_groups(out: Path, index: Index, numbers: Any, distances: Any, about: str, pictures: NamedReader) -> None:
    """Write a page with every group of near items, those of several classes first."""
    import numpy as np

    from ..report.search_page import Line, Near, write_found

    order = np.flatnonzero(numbers >= 0)
    order = order[np.argsort(numbers[order], kind="stable")]
    groups = filter(len, np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1))
    labels = np.array(classes_of(index))
    lines = []
    for group in sorted(groups, key=lambda group: (labels[group] == labels[group[0]]).all()):
        first, *others = (Near(int(at), distance_text(distances[at])) for at in group)
        lines.append(Line(first, others))
    note = f"{about}. Below each item is its distance to the nearest other item. Groups of several classes come first."
    write_found(out, lines, items_in(index, pictures), title="Near duplicates", note=note)


def items_in(index: Index | Records, pictures: NamedReader) -> Items:
    """Return the items of an index, with a reader of their pictures."""
    import numpy as np

    from ..report.content import Items

    classes, labels = np.unique(classes_of(index), return_inverse=True)
    return Items(
        embeddings=index.embeddings, labels=labels, classes=classes.tolist(), names=index.names.tolist(), read=pictures
    )
