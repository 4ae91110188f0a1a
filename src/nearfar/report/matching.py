"""Places of two pictures that match: their outlines as SVG, and where they are in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..evaluation import PlaceMatches
from ..numerics.types import Bools, Ints
from .pictures import Picture

Seen = Callable[[int, int], tuple[float, float, float, float]]
"""Function from the width and the height of an image to the part that its places cover, as of a `DeepMetric`."""


class Outlined(NamedTuple):
    """The matching places of a query and of what was found.

    Attributes
    ----------
    summary : str
        How many places match.
    query, found : str
        Outlines of the matching places in the two pictures, as paths of SVG; "" if there are none, or no picture.
    query_text, found_text : str
        What the outlines show, in words.
    """

    summary: str
    query: str
    found: str
    query_text: str
    found_text: str


def outlined(matches: PlaceMatches, seen: Seen, query: Picture, found: Picture) -> Outlined:
    """Return the outlines of the matching places in the pictures of a query and of what was found."""
    h, w = matches.shape
    summary = f"{len(matches.query)} of {h * w} places match"
    return Outlined(
        summary=summary,
        query=outline(cells_of(matches.query, matches.shape), seen, query.size),
        found=outline(cells_of(matches.item, matches.shape), seen, found.size),
        query_text=f"Query: {summary}{where(matches.query, matches.shape)}",
        found_text=f"{summary}{where(matches.item, matches.shape)}",
    )


def cells_of(places: Ints, shape: tuple[int, int]) -> Bools:
    """Return which of the (h, w) places are among (m, 2) rows and columns."""
    cells = np.zeros(shape, dtype=bool)
    cells[places[:, 0], places[:, 1]] = True
    return cells


def outline(cells: Bools, seen: Seen, size: tuple[int, int]) -> str:
    """Return the border of the places (h, w) that are True in a picture of this width and height, as a path of SVG.

    >>> outline(np.array([[True, True], [False, False]]), lambda width, height: (0, 0, width, height), (20, 20))
    'M0 0H20M0 10H20M0 0V10M20 0V10'
    """
    if not all(size) or not cells.any():
        return ""
    left, top, right, bottom = seen(*size)
    h, w = cells.shape
    framed = np.pad(cells, 1)
    # a side of a place belongs to the border if the place on its other side differs
    across = np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1])  # row of the side, and column of the place
    down = np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1])  # row of the place, and column of the side
    x = [f"{value:.4g}" for value in np.linspace(left, right, w + 1)]
    y = [f"{value:.4g}" for value in np.linspace(top, bottom, h + 1)]
    horizontal = [f"M{x[begin]} {y[row]}H{x[end]}" for row, begin, end in _joined(across)]
    vertical = [f"M{x[column]} {y[begin]}V{y[end]}" for column, begin, end in _joined(down[:, ::-1])]
    return "".join([*horizontal, *vertical])


def _joined(sides: Ints) -> list[tuple[int, int, int]]:
    """Return the lines of sides (m, 2), which are neighbors on a line, as (line, begin, end)."""
    found: list[tuple[int, int, int]] = []
    for line, at in sorted(map(tuple, sides.tolist())):
        if found and found[-1][0] == line and found[-1][2] == at:
            found[-1] = (line, found[-1][1], at + 1)
        else:
            found.append((line, at, at + 1))
    return found


def where(places: Ints, shape: tuple[int, int]) -> str:
    """Return the rows and columns of places (m, 2), counted from the top left, in words.

    >>> where(np.array([[0, 2], [1, 2]]), (7, 7))
    ', in rows 1 to 2 and column 3 of 7 x 7'
    """
    if len(places) == 0:
        return ""
    h, w = shape
    rows = _range("row", places[:, 0])
    columns = _range("column", places[:, 1])
    return f", in {rows} and {columns} of {h} x {w}"


def _range(name: str, numbers: Ints) -> str:
    first = int(numbers.min()) + 1
    last = int(numbers.max()) + 1
    return f"{name} {first}" if first == last else f"{name}s {first} to {last}"
