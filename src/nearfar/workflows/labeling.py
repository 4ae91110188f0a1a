"""Which items to label next: those that are near to many others, in a table with an empty column for their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..io.cells import read_by_name
from ..labels import text_array
from ..neighbors.coverage import representatives
from ..neighbors.nearest import nearest
from ..quoting import count_of, quoted
from .collected import Collected, collect
from .search_results import ignore

if TYPE_CHECKING:
    from ..data.items import NamedReader
    from ..data.located import Named
    from ..models.embedded import Selection
    from ..numerics.types import Array, Ints

Texts: TypeAlias = NDArray[np.str_]


def label_next(
    source: str | Path,
    data: Named | None = None,
    out: Path | None = None,
    selection: Selection | None = None,
    *,
    k: int = 20,
    by: Literal["representative", "doubtful"] = "representative",
    labeled: Sequence[Path] = (),
    distance: str | None = None,
    on_outside: Callable[[NamedReader], None] = ignore,
) -> str:
    """Choose items to label; return their names, or a line on the file that has them.

    Parameters
    ----------
    source, data, selection, distance, on_outside
        As for `groups`.
    out : Path, optional
        A .csv with an empty column `label`, or an .html page to write.
    k, by, labeled
        As for `nearfar label-next`.
    """
    collected = collect(source, data, selection, distance=distance)
    labels = known_labels(collected, labeled)
    known = np.flatnonzero(labels != "")
    n = len(labels)
    if len(known) == n:
        raise ValueError(f"{source}: all {n:,} items have a label; there is nothing to label")
    nearest, margins = nearest_labels(collected, labels)
    weights = None
    if by == "doubtful":
        if len(np.unique(labels[known])) < 2:
            raise ValueError("by: doubtful needs items of two classes with a label; begin with representative items")
        weights = doubts(margins)
    chosen = representatives(collected.rows, k, chosen=known, weights=weights, distance=collected.distance)
    count = f"{count_of(len(chosen), 'item')} to label next, of {n - len(known):,} without a label"
    if out is None:
        names = collected.dataset.names
        return "\n".join([*(line_of(names[at], nearest[at]) for at in chosen), count])
    if out.suffix == ".html":
        write_page(out, collected, chosen, nearest, count, on_outside)
    else:
        collected.write_rows(out, chosen.tolist(), ("label", "nearest"), [("", nearest[at]) for at in chosen])
    return f"{out}: {count}"


def known_labels(collected: Collected, tables: Sequence[Path]) -> Texts:
    """Return the label of every item (n,), "" for none: those in tables; without tables, the classes of the items.

    If all items have a class, such as the folders of photos by month, these are not labels: nothing would be left.
    """
    dataset = collected.dataset
    if not tables:
        classes = text_array(collected.classes)
        return np.full_like(classes, "") if len(classes) and (classes != "").all() else classes
    found = np.full(len(dataset), "", dtype=object)
    places = {name: at for at, name in enumerate(dataset.names)}
    for table in tables:
        for name, label in read_by_name(table, "label", "labeled"):
            if name not in places:
                raise ValueError(f"labeled: {table}: no item is named {quoted(name)}")
            if label:
                found[places[name]] = label
    return text_array(found)


def nearest_labels(collected: Collected, labels: Texts) -> tuple[list[str], Array]:
    """Return the label of the nearest labeled item of each item, and how much farther that of another label is, (n,).

    Labels are "" if no item is labeled. Margins are 0 if there are no two labels.
    """
    n = len(labels)
    known = np.flatnonzero(labels != "")
    if len(known) == 0:
        return [""] * n, np.zeros(n)
    rows = collected.rows
    gallery = rows[known]
    names, codes = np.unique(labels[known], return_inverse=True)
    first, near = nearest(rows, gallery, 1, distance=collected.distance)
    first_codes = codes[near[:, 0]]
    if len(names) == 1:
        return [str(names[0])] * n, np.zeros(n)

    def same_label(queries: Ints) -> tuple[Ints, Ints]:
        """Return the position in `queries` and the labeled item of every pair of one label."""
        at, row = np.nonzero(first_codes[queries, None] == codes)
        return at, row

    second, _ = nearest(rows, gallery, 1, distance=collected.distance, hidden=same_label)
    return [str(names[code]) for code in first_codes], second[:, 0] - first[:, 0]


def doubts(margins: Array) -> Array:
    """Return 1 / (1 + margin / median margin), (n,): 1 between two classes, and near 0 deep inside one."""
    middle = float(np.median(margins))
    return 1 / (1 + margins / middle) if middle > 0 else np.ones(len(margins))


def line_of(name: str, nearest: str) -> str:
    """Return the line on an item."""
    return f"{name}  (nearest: {nearest})" if nearest else name


def write_page(
    out: Path,
    collected: Collected,
    chosen: Ints,
    nearest: Sequence[str],
    count: str,
    on_outside: Callable[[NamedReader], None],
) -> None:
    """Write a page with the items, the most useful first."""
    from ..report.search_page import Line, Near

    lines = [Line(Near(int(at), nearest[at]), []) for at in chosen]
    note = f"{count}. Below each is the label of the nearest labeled item, if there is one."
    collected.write_page(out, lines, "Items to label next", note, on_outside)
