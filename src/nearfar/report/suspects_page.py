"""Items whose label is doubtful, as one self-contained HTML page on which to decide what they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .content import Items
from .page import small_enough, template, write
from .pictures import Thumbnails
from .search_page import SHOWN_LINES, Line, seen


def write_suspects(
    path: str | Path, lines: Sequence[Line], items: Items, suggested: Sequence[str], *, title: str
) -> Path:
    """Write the page; its button saves a table of the decisions, which `nearfar suspects --decided` reads.

    Parameters
    ----------
    path : str or Path
        The file; it appears whole or not at all.
    lines : sequence of Line
        Every suspect with its nearest items, most doubtful first; the first 200 are shown.
    items : Items
        What they are of.
    suggested : sequence of str
        The likeliest other class of each suspect.
    title : str
        What the items are called.

    Returns
    -------
    Path
        The file.
    """

    def render(side: int) -> str:
        pictures = Thumbnails(items, side)
        shown = zip(lines[:SHOWN_LINES], suggested, strict=False)
        rows = [seen(line, pictures, pictures) | {"suggested": other} for line, other in shown]
        return template("suspects").render(title=f"Doubtful labels in {title}", rows=rows, total=len(lines))

    return write(Path(path), small_enough(render))
