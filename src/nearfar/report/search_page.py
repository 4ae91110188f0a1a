"""The results of a search, or groups of duplicates, as one self-contained HTML page of pictures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..evaluation import PlaceMatches
from .content import Items
from .matching import Seen, outlined
from .page import script_of, shrink_to_limit, template, write
from .pictures import Thumbnails

SHOWN_LINES = 200  # maximum number of lines of pictures
PICTURES_PER_LINE = 48  # maximum number of pictures in a line


class Near(NamedTuple):
    """An item by its number, the text below it, such as its distance, and the places that match those of the query."""

    at: int
    remark: str
    matches: PlaceMatches | None = None


class Line(NamedTuple):
    """A query or the first item of a group, and its results, nearest first."""

    first: Near
    found: Sequence[Near]


def write_search_page(
    path: str | Path,
    lines: Sequence[Line],
    items: Items,
    *,
    title: str,
    note: str,
    queries: Items | None = None,
    removed: Collection[int] | None = None,
    seen: Seen | None = None,
) -> Path:
    """Write a page of search results.

    Parameters
    ----------
    path : str or Path
        File to write, completely or not at all.
    lines : sequence of Line
        Results to show: the first 200 lines, with up to 48 results each.
    items : Items
        Items that were searched. The class "" means that the class is unknown. Items that cannot be read are shown by
        name.
    title : str
        Heading.
    note : str
        Sentence below the heading.
    queries : Items, optional
        Items to which the first of each line belongs. By default, `items`.
    removed : collection of int, optional
        Items that are proposed for removal: each item then has a box to mark it, and a button saves a table of the
        decisions, for `decided` of `nearfar.workflows.suspects`.
    seen : callable, optional
        Part of an image that its places cover, for results with `matches`: `DeepMetric.seen_part`.

    Returns
    -------
    Path
        The file.
    """

    def render(side: int) -> str:
        results = Thumbnails(items, side)
        if queries is None:
            first = results
        else:
            first = Thumbnails(queries, side, like=results)
        rows = [line_values(line, first, results, seen) for line in lines[:SHOWN_LINES]]
        marked = any(item["kind"] for row in rows for item in row["found"])
        if removed is None:
            script = script_of("tables", "lines")
        else:
            script = script_of("tables", "lines", "removals")
        return template("found").render(
            title=title, note=note, rows=rows, marked=marked, total=len(lines), removed=removed, **script
        )

    return write(Path(path), shrink_to_limit(render))


def line_values(line: Line, first: Thumbnails, results: Thumbnails, seen: Seen | None = None) -> dict[str, Any]:
    """Return the template's values for a line."""
    query_item = shown(line.first, first)
    near = [shown(item, results) for item in line.found[:PICTURES_PER_LINE]]
    for item, values in zip(line.found, near, strict=False):  # the first ones
        if seen is not None and item.matches is not None:
            values["matching"] = outlined(item.matches, seen, query_item["picture"], values["picture"])
    marks = [{"kind": kind(query_item["class"], item["class"])} for item in near]
    more = max(0, len(line.found) - PICTURES_PER_LINE)
    return query_item | {"found": [item | mark for item, mark in zip(near, marks, strict=True)], "more": more}


def shown(item: Near, pictures: Thumbnails) -> dict[str, Any]:
    """Return the template's values for an item."""
    name = pictures.items.name(item.at)
    label = pictures.items.class_name(item.at)
    values = {"picture": pictures(item.at), "name": name, "class": label, "remark": item.remark, "at": item.at}
    return values | {"matching": None}


def kind(label: str, other: str) -> str:
    """Return "right" or "wrong" if both classes are known, otherwise ""."""
    if not label or not other:
        return ""
    return "right" if label == other else "wrong"
