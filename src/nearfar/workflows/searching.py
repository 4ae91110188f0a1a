"""Neighbors and near duplicates in an index, in lines or in a file."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.items import left_out
from ..index import open_store
from ..index.paths import pictures_of
from ..index.searching import check_search
from ..index.searching import search as search_index
from ..io.cells import write_table
from ..quoting import count_of
from .search_results import (
    ignore,
    neighbor_lines,
    neighbors_of_queries,
    write_hits,
)

if TYPE_CHECKING:
    from ..data.items import NamedReader
    from ..index import Store
    from ..index.searching import Found

HEADING = ("query", "rank", "distance", "class", "name")  # of a table of neighbors


def search_lines(
    file: Path, query: str, *, out: Path | None, on_outside: Callable[[NamedReader], None] = ignore, **how: Any
) -> str:
    """Search an index; return the lines on what was found, or on the file that has it.

    Parameters
    ----------
    file, query
        An index, and what is searched for, as for `nearfar search`.
    out : Path, optional
        A .csv or an .html page to write.
    on_outside : callable
        Function that is called with the reader of pictures, some of which may be outside of their folder.
    **how
        Keywords of `nearfar.index.search`.
    """
    # embedding takes seconds, so all options are checked first
    check_search(query, **{name: how[name] for name in ("k", "within", "where", "group_by", "rerank", "words")})
    store = open_store(file, lock=False)
    found = search_index(store, query, **how)
    if out is None:
        return "\n".join(lines_of(found, store, within=how["within"], where=how["where"]))
    if out.suffix == ".html":
        pictures = pictures_of(found.hits.records.names.tolist(), store.about, file)
        write_hits(out, store, found.items, found.queries, found.hits, pictures, found.matched)
        on_outside(pictures)
    else:
        rows = [
            (name, near.rank, "" if isnan(near.distance) else near.distance, near.label, near.name, *near.values)
            for name, neighbors in zip(found.names, neighbors_of_queries(found.hits), strict=True)
            for near in neighbors
        ]
        write_table(out, (*HEADING, *found.hits.records.columns), rows)
    return f"{out}: {count_text(found, how['k'])}{left_out(found.items)}"


def lines_of(found: Found, store: Store, *, within: float | None, where: str) -> list[str]:
    """Return the lines on the neighbors of each query."""
    lines = [*neighbor_lines(found.names, [*neighbors_of_queries(found.hits)], [*found.hits.records.columns])]
    if within is None and (found.counts_within < found.counts).any():
        lines.append(f"only neighbors within {found.within:g}, the threshold of the index; --within inf shows all")
    if where and not found.counts.any() and store.count(where) == 0:
        lines.append("no item of the index meets the condition of --where")
    if skipped := left_out(found.items):
        lines.append(skipped.removeprefix("; "))
    return lines


def count_text(found: Found, k: int) -> str:
    """Return how many neighbors the queries have."""
    total = len(found.names)
    count = f"{count_of(int(found.counts.max(initial=0)), 'neighbor')} of {count_of(total, 'query', 'queries')}"
    if found.within != inf:
        without = int((found.counts_within == 0).sum())
        return f"up to {count} within {found.within:g}; {without:,} {'has' if without == 1 else 'have'} none"
    few = int((found.counts < k).sum())
    if few and few < total:  # else the first number does
        count += f"; {few:,} {'has' if few == 1 else 'have'} fewer, at least {found.counts.min()}"
    return count
