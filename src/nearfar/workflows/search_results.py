"""Neighbors and duplicates of an index as lines, as a table, or as a page of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..quoting import shorten

if TYPE_CHECKING:
    from ..data import Dataset
    from ..data.items import NamedReader
    from ..index import Hits, Index, Records, Store
    from ..index.places import Matched
    from ..numerics.types import AnyArray
    from ..report.content import Items

VALUE_CHARACTERS = 40  # of a value of a column, on a line or below a picture; a table has all of it
ZERO_DISTANCE = 1e-9
"""Smaller distances are shown as 0. Embeddings of one image in different batches differ by rounding, which gives cosine
distances of up to 1e-11."""


class Neighbor(NamedTuple):
    """A neighbor of a query."""

    rank: int
    distance: float
    label: str
    name: str
    values: tuple[str, ...]
    """Values of the columns of the index, "" where one is missing."""


def ignore(pictures: NamedReader) -> None:
    """Do nothing about pictures that are not shown."""


def classes_of(items: Index | Records) -> list[str]:
    """Return the class of every item, "" if the index has no classes."""
    if items.labels is None:
        return [""] * len(items)
    return [str(label) for label in items.labels]


def neighbors_of_queries(hits: Hits) -> Iterator[list[Neighbor]]:
    """Yield the neighbors of each query, nearest first."""
    items = hits.records
    for distances, positions in zip(hits.distances, hits.positions, strict=True):
        found = []
        for rank, (distance, at) in enumerate(zip(distances, positions, strict=True), start=1):
            if at >= 0:
                label = "" if items.labels is None else str(items.labels[at])
                values = tuple(cell_text(column[at].item()) for column in items.columns.values())
                found.append(Neighbor(rank, float(distance), label, str(items.names[at]), values))
        yield found


def cell_text(value: float | str) -> str:
    """Return a value of a column as text: 3 for 3.0, and "" for a missing number.

    >>> cell_text(3.0), cell_text(0.25), cell_text(float("nan")), cell_text("mug")
    ('3', '0.25', '', 'mug')
    """
    if isinstance(value, str):
        return value
    if value != value:  # NaN
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def values_text(columns: Sequence[str], near: Neighbor) -> list[str]:
    """Return the values of a neighbor that say more than its class, each with its column, short enough for a line.

    >>> values_text(["price", "shop", "product"], Neighbor(1, 0.2, "mug", "mug/1.jpg", ("3", "", "mug")))
    ['price 3']
    """
    pairs = zip(columns, near.values, strict=True)
    return [f"{column} {shorten(value, VALUE_CHARACTERS)}" for column, value in pairs if value not in ("", near.label)]


def distance_text(distance: float) -> str:
    """Return a distance with four significant digits; 0 if it may be due to rounding.

    >>> distance_text(0.292), distance_text(0.29168), distance_text(1e-11)
    ('0.2920', '0.2917', '0')
    """
    if distance != distance:  # NaN, of items that words found
        return "-"
    if distance < ZERO_DISTANCE:
        return "0"
    return f"{distance:#.4g}".rstrip(".")  # "#" keeps zeros at the end


def neighbor_lines(names: Sequence[str], found: Sequence[Sequence[Neighbor]], columns: Sequence[str]) -> Iterator[str]:
    """Yield a heading for each query, followed by its neighbors with the columns of the index."""
    wide = max((len(near.label) for neighbors in found for near in neighbors), default=0)
    for query, neighbors in zip(names, found, strict=True):
        yield query if neighbors else f"{query}: none"
        for near in neighbors:
            line = f"  {near.rank:>3}  {distance_text(near.distance):>10}  {near.label:<{wide}}  {near.name}"
            values = values_text(columns, near)
            yield f"{line}  ({', '.join(values)})" if values else line


def write_hits(
    out: Path,
    store: Store,
    queries: Dataset,
    rows: AnyArray,
    hits: Hits,
    pictures: NamedReader,
    matched: Matched | None = None,
) -> None:
    """Write a page with every query and its neighbors; `pictures` reads the images, of which `matched` are outlined."""
    from ..report.content import Items
    from ..report.search_page import Line, Near, write_search_page

    columns = [*hits.records.columns]
    lines = []
    for q, (neighbors, positions) in enumerate(zip(neighbors_of_queries(hits), hits.positions, strict=True)):
        near = []
        for neighbor, at in zip(neighbors, positions[positions >= 0], strict=True):
            remark = [distance_text(neighbor.distance), *values_text(columns, neighbor)]
            matches = None if matched is None else matched.of_hits.get((q, int(at)))
            near.append(Near(int(at), ", ".join(remark), matches))
        lines.append(Line(Near(q, ""), near))
    note = f"Each query and its nearest neighbors among {store.count():,} items, with the {store.distance} distance"
    if matched is None:
        note += "."
    else:
        note += " and the places that match. Outlines show them in the query, on the left, and in the neighbor."
    # the title names the folder of the queries, so their names are relative to it
    query_items = Items(
        embeddings=rows, labels=queries.labels, classes=queries.classes, names=queries.names, read=queries.read
    )
    write_search_page(
        out,
        lines,
        items_in(hits.records, pictures),
        title=f"Nearest to {queries.name}",
        note=note,
        queries=query_items,
        seen=None if matched is None else matched.seen,
    )


def items_in(index: Index | Records, pictures: NamedReader) -> Items:
    """Return the items of an index, with a reader of their pictures."""

    from ..report.content import Items

    classes, labels = np.unique(classes_of(index), return_inverse=True)
    return Items(
        embeddings=index.embeddings, labels=labels, classes=classes.tolist(), names=index.names.tolist(), read=pictures
    )
