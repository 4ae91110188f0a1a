"""Groups of near items that may be classes, as lines, as a table to edit and train on, or as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..neighbors.mutual import ProposedGroups, propose_groups
from ..numerics.distances import unit_rows
from ..quoting import count_of
from .collected import Collected, collect
from .search_results import ignore

if TYPE_CHECKING:
    from ..data.items import NamedReader
    from ..data.located import Named
    from ..models.embedded import Selection
    from ..numerics.types import Ints

SHOWN_NAMES = 3  # names of each group on its line


def groups(
    source: str | Path,
    data: Named | None = None,
    out: Path | None = None,
    selection: Selection | None = None,
    *,
    within: float | None = None,
    most: int | None = None,
    k: int = 20,
    distance: str | None = None,
    on_outside: Callable[[NamedReader], None] = ignore,
) -> str:
    """Propose groups of near items as classes; return lines on the largest, or on the file that has all.

    Parameters
    ----------
    source : str or Path
        An index, a file of embeddings, or what `nearfar.load` loads.
    data : str, optional
        The items, for a model.
    out : Path, optional
        A .csv, in which the label of each item is its group, or an .html page to write.
    selection : Selection, optional
        Which items are embedded; an index has all of its items.
    within, most, k, distance
        As for `nearfar groups`.
    on_outside : callable
        Function that is called with the reader of pictures, some of which may be outside of their folder.
    """
    collected = collect(source, data, selection, distance=distance)
    if len(collected.rows) == 0:
        found = ProposedGroups(np.empty(0, dtype=np.intp), within or 0.0)
    else:
        found = propose_groups(collected.rows, within=within, most=most, distance=collected.distance)
    parts = [central_first(collected, part) for part in parts_of(found.numbers)]
    summary = summary_of(len(collected.rows), parts, found.within) + remark_on(found)
    titles = titles_of(len(parts))
    if out is None:
        lines = [line_of(collected, title, part) for title, part in zip(titles[:k], parts, strict=False)]
        return "\n".join([*lines, summary])
    if out.suffix == ".html":
        write_page(out, collected, titles, parts, summary, on_outside)
    else:
        order = np.concatenate([np.empty(0, dtype=np.intp), *parts])
        labels = [(title,) for title, part in zip(titles, parts, strict=True) for _ in part]
        collected.write_rows(out, order.tolist(), ("label",), labels)
    return f"{out}: {summary}"


def parts_of(numbers: Ints) -> list[Ints]:
    """Return the items of each group.

    >>> parts_of(np.array([1, -1, 0, 1]))
    [array([2]), array([0, 3])]
    """
    order = np.argsort(numbers, kind="stable")[int((numbers < 0).sum()) :]  # -1 sorts first
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []


def central_first(collected: Collected, part: Ints) -> Ints:
    """Return the items of a group, those nearest to its mean first."""
    rows = collected.rows[part].astype(np.float64)
    if collected.distance == "cosine":
        rows = unit_rows(rows)
    apart = np.square(rows - rows.mean(axis=0)).sum(axis=1)
    ordered: Ints = part[np.argsort(apart, kind="stable")]
    return ordered


def titles_of(count: int) -> list[str]:
    """Return the names of groups, in the order of their numbers.

    >>> titles_of(2), titles_of(10)[0]
    (['group 1', 'group 2'], 'group 01')
    """
    digits = len(str(count))
    return [f"group {number:0{digits}}" for number in range(1, count + 1)]


def line_of(collected: Collected, title: str, part: Ints) -> str:
    """Return a line on a group: its size, and its most central items."""
    names = [collected.dataset.names[at] for at in part[:SHOWN_NAMES]]
    rest = ", ..." if len(part) > SHOWN_NAMES else ""
    return f"{title}: {count_of(len(part), 'item')}: {', '.join(names)}{rest}"


def write_page(
    out: Path,
    collected: Collected,
    titles: Sequence[str],
    parts: Sequence[Ints],
    summary: str,
    on_outside: Callable[[NamedReader], None],
) -> None:
    """Write a page with the items of every group, the largest group first."""
    from ..report.search_page import Line, Near

    lines = [
        Line(Near(int(part[0]), title), [Near(int(at), "") for at in part[1:]])
        for title, part in zip(titles, parts, strict=True)
    ]
    note = f"{summary.removesuffix('.')}. The first item of each group is nearest to its mean."
    collected.write_page(out, lines, "Proposed groups", note, on_outside)


def summary_of(n: int, parts: Sequence[Ints], within: float) -> str:
    """Return one line on the groups."""
    sizes = [len(part) for part in parts]
    alone = n - sum(sizes)
    largest = f", the largest of {sizes[0]:,}" if sizes else ""
    found = f"{count_of(len(parts), 'group')} of {sum(sizes):,} items{largest}"
    return f"{found}, at a mean distance of at most {within:.4g}; {count_of(alone, 'item')} in no group"


def remark_on(found: ProposedGroups) -> str:
    """Return a remark on groups that are hardly clearer than those of random rows, after a line break; "" if none is.

    >>> remark_on(ProposedGroups(np.zeros(0, dtype=np.intp), 1.0, silhouette=0.6123, by_chance=0.57))
    '\\nNo clear groups were found: their mean silhouette is 0.61, and 0.57 for random rows of the same covariance.'
    """
    if not found.unclear:
        return ""
    besides = " but near duplicates (`nearfar duplicates`)" if found.duplicates else ""
    scores = f"their mean silhouette is {found.silhouette:.2f}, and {found.by_chance:.2f} for random rows"
    return f"\nNo clear groups{besides} were found: {scores} of the same covariance."
