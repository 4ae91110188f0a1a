"""What a search found, or groups of duplicates, as one self-contained HTML page of pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.storage import whole
from .content import Reader
from .pictures import Picture, image_picture, row_glyph

LARGEST = 4_800_000  # bytes of the page
SIDES = (128, 96, 64, 40)  # pixels of the pictures; the first that keeps the page small enough is taken
SHOWN = 200  # lines of pictures
WIDEST = 48  # pictures of a line


class Shown(NamedTuple):
    """An item on the page.

    Attributes
    ----------
    name, label : str
        Its name and its class, empty where it has none.
    remark : str
        What stands below it, such as its distance.
    at : int
        Its place among those that are read.
    """

    name: str
    label: str
    remark: str
    at: int


class Line(NamedTuple):
    """A query or the first of a group, and what was found for it, nearest first."""

    first: Shown
    found: Sequence[Shown]


class Pictures:
    """Pictures of items that `read` gives by their places, each made once; the names alone of those it cannot read."""

    def __init__(self, read: Reader | None, side: int) -> None:
        self.read, self.side = read, side
        self._made: dict[int, Picture] = {}

    def __call__(self, item: Shown) -> Picture:
        if item.at not in self._made:
            self._made[item.at] = self._make(item)
        return self._made[item.at]

    def _make(self, item: Shown) -> Picture:
        try:
            values = None if self.read is None else self.read(item.at)
        except (OSError, ValueError):
            values = None
        if values is None:
            return Picture("", item.name)
        if values.ndim > 1:
            return image_picture(values, item.name, self.side)
        return Picture(row_glyph(values, min(0.0, values.min()), max(0.0, values.max())), item.name)


def write_found(
    path: str | Path,
    lines: Sequence[Line],
    *,
    title: str,
    note: str,
    read: Reader | None = None,
    read_first: Reader | None = None,
) -> Path:
    """Write the page.

    Parameters
    ----------
    path : str or Path
        The file; it appears whole or not at all.
    lines : sequence of Line
        What to show: the first 200, and of each the 48 nearest.
    title, note : str
        The heading, and a sentence below it.
    read : callable, optional
        Place of an item that was found -> (H, W, C) uint8 image or (d,) row. What cannot be read is shown by its name.
    read_first : callable, optional
        The same for the first item of each line; `read` where not given.

    Returns
    -------
    Path
        The file.
    """
    for side in SIDES:
        page = render(lines[:SHOWN], side, title, note, len(lines), read, read_first).encode()
        if len(page) <= LARGEST:
            break
    path = Path(path)
    with whole(path) as file:
        file.write(page)
    return path


def render(
    lines: Sequence[Line], side: int, title: str, note: str, total: int, read: Reader | None, read_first: Reader | None
) -> str:
    """The page with pictures of at most `side` pixels."""
    from .page import template

    found = Pictures(read, side)
    first = found if read_first is None else Pictures(read_first, side)
    marked = any(line.first.label and item.label for line in lines for item in line.found)
    rows = [seen(line, first, found) for line in lines]
    return template("found").render(title=title, note=note, rows=rows, marked=marked, total=total)


def seen(line: Line, first: Callable[[Shown], Picture], found: Callable[[Shown], Picture]) -> dict[str, Any]:
    """A line as the template takes it."""
    asked = line.first
    return {
        "picture": first(asked),
        "name": asked.name,
        "class": asked.label,
        "remark": asked.remark,
        "found": [
            {
                "picture": found(item),
                "name": item.name,
                "class": item.label,
                "remark": item.remark,
                "kind": kind(asked.label, item.label),
            }
            for item in line.found[:WIDEST]
        ],
        "more": max(0, len(line.found) - WIDEST),
    }


def kind(label: str, other: str) -> str:
    """Whether two classes are one, "" where either is not known."""
    if not label or not other:
        return ""
    return "right" if label == other else "wrong"
