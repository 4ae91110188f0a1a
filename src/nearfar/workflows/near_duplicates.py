"""Near duplicates in a collection, as lines, as a table to decide on, or as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..data.decode import read_shape
from ..evaluation.collapse import collapse
from ..io.cells import write_table
from ..neighbors.near_pairs import (
    MAX_LISTED_PAIRS,
    Links,
    NearPairs,
    count_by_class,
    duplicate_distance,
    linked,
    links_within,
    nearest_pairs,
)
from ..quoting import count_of
from .collected import Collected, collect
from .search_results import cell_text, distance_text, ignore
from .suspecting import KEEP, REMOVE

if TYPE_CHECKING:
    from ..data import Dataset
    from ..data.items import NamedReader
    from ..data.located import Named
    from ..models.embedded import Selection
    from ..numerics.types import AnyArray

COLUMNS_OF_GROUPS = ("group", "distance", "class", "name", "decision")
"""Columns of a table of groups; those of an index follow, except for one of the same name."""
GROWTH_OF_PAIRS = 4  # factor by which more pairs are searched, until enough are of two groups


class Duplicate(NamedTuple):
    """An item of a group of near duplicates."""

    group: int
    at: int
    distance: float  # to the nearest other item
    label: str
    name: str


def duplicates(
    source: str | Path,
    data: Named | None = None,
    out: Path | None = None,
    selection: Selection | None = None,
    *,
    within: float | None = None,
    k: int = 20,
    group_by: str = "",
    distance: str | None = None,
    on_outside: Callable[[NamedReader], None] = ignore,
) -> str:
    """Find near duplicates; return lines on the nearest pairs or on groups, or on the file that has the groups.

    Parameters
    ----------
    source : str or Path
        An index, a file of embeddings, or what `nearfar.load` loads, such as ``"pixels"``.
    data : str, optional
        The items, for a model.
    out : Path, optional
        A .csv or an .html page to write.
    selection : Selection, optional
        Which items are embedded; an index has all of its items.
    within, k, group_by, distance
        As for `nearfar duplicates`.
    on_outside : callable
        Function that is called with the reader of pictures, some of which may be outside of their folder.
    """
    if within is not None and not within >= 0:
        raise ValueError(f"within: expected a distance of at least 0, got {within}")
    collected = collect(source, data, selection, distance=distance, group_by=group_by)
    if within is None and out is None:
        return nearest_lines(collected, k)
    if within is None:
        within = suggested(collected)
        if within is None:
            raise ValueError(
                "within: give a distance, because no pair is so much nearer than others that one can be suggested; "
                "without out=, the nearest pairs are printed"
            )
    groups: list[list[Duplicate]] = []
    fit: list[str] = []
    if len(collected.rows):
        links = links_within(collected.rows, within, distance=collected.distance, apart=collected.apart)
        groups = groups_of(collected, links)
        fit = fit_to_classes(collected, links, within)
    summary = summary_of(collected, groups, within)
    if out is None:
        width = max((len(item.label) for group in groups for item in group), default=0)
        return "\n".join([*(line for group in groups for line in lines_of_group(group, width)), summary, *fit])
    if out.suffix == ".html":
        write_groups(out, collected, groups, ". ".join([summary, *fit]), on_outside)
    else:
        columns = {name: values for name, values in collected.columns.items() if name not in COLUMNS_OF_GROUPS}
        rows = [row for group in groups for row in decided_rows(group, [*columns.values()])]
        write_table(out, (*COLUMNS_OF_GROUPS, *columns), rows)
    return "\n".join([f"{out}: {summary}", *fit])


def suggested(collected: Collected) -> float | None:
    """Return a distance within which items are near duplicates; None if no pair stands out."""
    if len(collected.rows) == 0:
        return None
    return duplicate_distance(collected.rows, distance=collected.distance)


def nearest_lines(collected: Collected, k: int) -> str:
    """Return lines on the k nearest pairs, and the distance that is suggested."""
    labels = collected.classes
    names = collected.dataset.names
    lines = []
    for i, j, apart in zip(*closest(collected, k), strict=True):
        mark = " " if labels[i] == labels[j] else "*"
        lines.append(f"{distance_text(apart):>10}  {mark}  {names[i]}  {names[j]}")
    within = suggested(collected)
    if within is None:
        advice = "--within DISTANCE groups items within that distance"
    else:
        advice = f"suggested: --within {within:g}, up to which pairs are much nearer than other items"
    marks = ", * if the classes differ" if any(labels) else ""
    lines.append(f"the {len(lines)} nearest pairs{marks}; {advice}")
    warning = collapsed(collected)
    if warning:
        lines.append(warning)
    return "\n".join(lines)


def closest(collected: Collected, k: int) -> NearPairs:
    """Return the k nearest pairs, of items of two groups if items have groups."""
    n = len(collected.rows)
    most = min(n * (n - 1) // 2, MAX_LISTED_PAIRS)
    if most == 0:
        return NearPairs(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0))
    count = min(k, most)
    while True:
        pairs = nearest_pairs(collected.rows, count, distance=collected.distance)
        if collected.apart is not None:
            kept = np.flatnonzero(collected.apart[pairs.i] != collected.apart[pairs.j])
            pairs = NearPairs(pairs.i[kept], pairs.j[kept], pairs.distances[kept])
        if len(pairs.i) >= k or count == most:
            return NearPairs(pairs.i[:k], pairs.j[:k], pairs.distances[:k])
        count = min(GROWTH_OF_PAIRS * count, most)


def groups_of(collected: Collected, links: Links) -> list[list[Duplicate]]:
    """Return the groups of near duplicates, the largest image of each first."""
    numbers, distances = linked(links)
    labels = collected.classes
    found = [
        Duplicate(number, at, float(distances[at]), labels[at], collected.dataset.names[at])
        for at, number in enumerate(numbers.tolist())
        if number >= 0
    ]
    found.sort(key=lambda item: (item.group, -area(collected.dataset, item.at)))
    return [list(group) for _, group in groupby(found, key=lambda item: item.group)]


def area(dataset: Dataset, at: int) -> int:
    """Return the number of pixels of an image; 0 if it cannot be read, or is no image."""
    if dataset.kind != "image":
        return 0
    try:
        shape = read_shape(dataset.read, at)
    except (OSError, ValueError):
        return 0
    return shape[0] * shape[1] if len(shape) == 2 else 0


def has_classes(group: Sequence[Duplicate]) -> bool:
    """Return whether the items of a group are of several classes."""
    return len({item.label for item in group}) > 1


def decided_rows(group: Sequence[Duplicate], columns: Sequence[AnyArray] = ()) -> list[tuple[object, ...]]:
    """Return the rows of a table: the first item is kept and the others removed, unless they are of several classes.

    The values of the `columns` (n,) follow.
    """
    removed = proposed_removals(group)
    rows: list[tuple[object, ...]] = []
    for item in group:
        decision = ""
        if not has_classes(group):
            decision = REMOVE if item.at in removed else KEEP
        values = [cell_text(column[item.at].item()) for column in columns]
        rows.append((item.group, item.distance, item.label, item.name, decision, *values))
    return rows


def proposed_removals(group: Sequence[Duplicate]) -> set[int]:
    """Return the items of a group without its first; none if they are of several classes.

    >>> proposed_removals([Duplicate(0, 3, 0.1, "cat", "a.jpg"), Duplicate(0, 5, 0.1, "cat", "b.jpg")])
    {5}
    """
    return set() if has_classes(group) else {item.at for item in group[1:]}


def lines_of_group(group: Sequence[Duplicate], width: int) -> list[str]:
    """Return a heading for a group, followed by its items."""
    kinds = len({item.label for item in group})
    heading = f"group {group[0].group}: {len(group)} items" + (f" of {kinds} classes" if kinds > 1 else "")
    return [heading, *(f"  {distance_text(item.distance):>10}  {item.label:<{width}}  {item.name}" for item in group)]


def write_groups(
    out: Path,
    collected: Collected,
    groups: Sequence[Sequence[Duplicate]],
    summary: str,
    on_outside: Callable[[NamedReader], None],
) -> None:
    """Write a page with the items of every group side by side, groups of several classes first."""
    from ..report.search_page import Line, Near

    lines = []
    for group in sorted(groups, key=has_classes, reverse=True):
        first, *others = (Near(item.at, distance_text(item.distance)) for item in group)
        lines.append(Line(first, others))
    note = f"{summary}. Below each item is its distance to the nearest other item."
    if any(map(has_classes, groups)):
        note += " Groups of several classes come first."
    removed = {at for group in groups for at in proposed_removals(group)}
    collected.write_page(out, lines, "Near duplicates", note, on_outside, removed=removed)


def summary_of(collected: Collected, groups: Sequence[Sequence[Duplicate]], within: float) -> str:
    """Return one line on the groups, with a warning if the embeddings or the distance do not distinguish items."""
    sizes = [len(group) for group in groups]
    mixed = sum(map(has_classes, groups))
    summary = f"{count_of(len(groups), 'group')} of {sum(sizes):,} items within {within:g}"
    if any(collected.classes):
        summary += f"; {mixed:,} with several classes"
    largest = max(sizes, default=0)
    warning = collapsed(collected)
    if warning:
        summary += f". {warning}"
    elif largest > len(collected.rows) / 2 and (mixed or not any(collected.classes)):
        summary += f". {largest:,} of {len(collected.rows):,} items are one group: the distance is too large"
    return summary


def fit_to_classes(collected: Collected, links: Links, within: float) -> list[str]:
    """Return a line on how well a distance tells pairs of one class from others; none if no two items are of one."""
    classes = np.array(collected.classes, dtype=object)
    labels = np.where(classes == "", -1, collected.dataset.labels)
    found = count_by_class(links, labels)
    if found.of_class == 0:
        return []
    if found.within:
        precision = f"{found.right:,} are of one class (precision {found.right / found.within:.3f})"
        parts = [f"of {count_of(found.within, 'pair')} within {within:g}, {precision}"]
    else:
        parts = [f"no pair of items with a class is within {within:g}"]
    recall = f"{found.right:,} are within it (recall {found.right / found.of_class:.3f})"
    parts.append(f"of {count_of(found.of_class, 'pair')} of one class, {recall}")
    return ["; ".join(parts)]


def collapsed(collected: Collected) -> str:
    """Return a warning if the embeddings do not distinguish items, or else ""."""
    return collapse(collected.rows, collected.distance)
