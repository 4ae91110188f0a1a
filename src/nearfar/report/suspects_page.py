"""Items with doubtful labels, as one self-contained HTML page on which a user decides on each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .content import Items
from .page import script_of, shrink_to_limit, template, write
from .pictures import Thumbnails
from .search_page import SHOWN_LINES, Line, line_values


def write_suspects(
    path: str | Path, lines: Sequence[Line], items: Items, suggested: Sequence[str], *, title: str
) -> Path:
    """Write the page. Its button saves a table of the decisions, for `decided` of `nearfar.workflows.suspects`.

    Parameters
    ----------
    path : str or Path
        File to write, completely or not at all.
    lines : sequence of Line
        Every suspect with its nearest items, most doubtful first; the first 200 are shown.
    items : Items
        Items to which the lines refer.
    suggested : sequence of str
        The most likely class of each suspect.
    title : str
        Name of the items.

    Returns
    -------
    Path
        The file.
    """

    def render(side: int) -> str:
        pictures = Thumbnails(items, side)
        shown = zip(lines[:SHOWN_LINES], suggested, strict=False)
        rows = [line_values(line, pictures, pictures) | {"suggested": other} for line, other in shown]
        return template("suspects").render(
            title=f"Doubtful labels in {title}",
            rows=rows,
            total=len(lines),
            classes=sorted({str(name) for name in items.classes} - {""}),
            **script_of("suspects"),
        )

    return write(Path(path), shrink_to_limit(render))
