"""``nearfar search`` and ``duplicates``: neighbors and near duplicates in an index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..io.cells import write_table
from ..io.untrusted import images_from
from ..quoting import count_of
from ..trust import trusting
from .encoding import say
from .options import NEIGHBORS, QUERIES, RUN, Trust
from .outputs import check_out
from .search_results import (
    classes_of,
    distance_text,
    group_lines,
    neighbor_lines,
    neighbors_of_queries,
    remark_outside,
    write_groups,
    write_hits,
)

if TYPE_CHECKING:
    from ..index import Index, Store
    from ..index.searching import Found

HEADING = ("query", "rank", "distance", "class", "name")  # of a table of neighbors


def search(
    file: Path,
    query: str,
    *,
    k: Annotated[int, Parameter(name="-k", group=NEIGHBORS)] = 5,
    within: Annotated[float | None, Parameter(group=NEIGHBORS)] = None,
    where: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    group_by: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    exclude_self: Annotated[bool, Parameter(group=NEIGHBORS)] = False,
    run: Annotated[Path | None, Parameter(group=QUERIES)] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    label: Annotated[str | None, Parameter(group=QUERIES)] = None,
    name: Annotated[str | None, Parameter(group=QUERIES)] = None,
    images: Annotated[tuple[Path, ...], Parameter(name="--images", show_default=False, group=QUERIES)] = (),
    skip_bad: Annotated[bool, Parameter(group=QUERIES)] = False,
    rerank: Annotated[str | None, Parameter(group=NEIGHBORS)] = None,
    adapter: Annotated[Path | None, Parameter(group=QUERIES)] = None,
    trust: Trust = (),
) -> None:
    """Search an index for the items nearest to an image, a text, rows, or every item of a data set.

    Example: nearfar search photos.index query.jpg -k 5

    Parameters
    ----------
    file
        An index from `nearfar index`: a file, a folder such as photos.lance, or http://HOST:19530/photos.
    query
        An image, a folder of images, an .npy or .npz of rows, or any data that `nearfar train` takes. If the model
        embeds texts, also a text such as "red shoes".
    k
        Number of neighbors of each query.
    within
        Only neighbors within this distance; a query may then have none. By default the threshold of the index
        (`nearfar index --threshold`), if there is one; inf disables it.
    where
        Only items that meet this condition, such as 'price < 10 and shop == "a"', on name, label and the columns of the
        index.
    group_by
        Only the nearest item for each value of this column, such as product.
    exclude_self
        Leave out the query itself, where it is an item of the index: the one with the same name. With --group-by, also
        leave out its group, such as other photos of the product.
    run
        The run or learner that embeds the queries. It is needed if the one that made the index was moved, or if the
        index was made from a file of embeddings.
    out
        Write the result to a .csv (query, rank, distance, class, name, and the columns of the index) or to an .html
        page with pictures, instead of printing it.
    label
        Column of a table of queries that holds their classes; it is not used as a feature.
    name
        Column of a table of queries that holds the names of its rows. By default `name`, or a column such as id, sku,
        item_id or uid, if its cells are different.
    images
        Also read images from this folder, if the paths in a table, or links, lead out of the folder of QUERY, and show
        pictures of the index from it, which otherwise come from below the folder of the index. Repeat for several.
    skip_bad
        Skip queries that cannot be decoded; their number is reported.
    rerank
        Re-rank neighbors with the help of the other items of the index: expand_queries, augment_gallery, k_reciprocal
        or csls, with settings if needed, such as "expand_queries(k=10)". The distances are then those of the method.
    adapter
        An adapter made by `nearfar adapt`: queries are embedded by --run, the new model, and mapped into the space of
        the model that made the index.
    """
    with images_from(*images), trusting(*trust):
        lines = search_in(
            file,
            query,
            k=k,
            within=within,
            where=where,
            group_by=group_by,
            exclude_self=exclude_self,
            run=run,
            adapter=adapter,
            out=out,
            label=label,
            name=name,
            skip_bad=skip_bad,
            rerank=rerank,
        )
    say(lines)


def duplicates(
    file: Path,
    *,
    within: float | None = None,
    k: Annotated[int, Parameter(name="-k")] = 20,
    group_by: Annotated[str, Parameter(show_default=False)] = "",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    images: Annotated[tuple[Path, ...], Parameter(name="--images", show_default=False)] = (),
) -> None:
    """Find near duplicates in an index, and mark those with different classes.

    Example: nearfar duplicates photos.index --within 0.02 -o duplicates.csv

    Parameters
    ----------
    file
        An index from `nearfar index`.
    within
        Group items that are at most this far apart, directly or through a chain of others. Without it, the nearest
        pairs are printed, which shows what distances duplicates have in this index.
    k
        Number of pairs to print.
    group_by
        Leave out pairs of items that have the same value in this column, such as photos of one object or frames of one
        video, which are alike anyway.
    out
        Write the groups to a .csv (group, distance to the nearest other, class, name) or to an .html page with
        pictures, instead of printing them.
    images
        Also show pictures from this folder: without it, only those below the folder of the index. Repeat for several.
    """
    if within is None and out is not None:
        raise ValueError("--out: works only with --within DISTANCE, because only groups are written")
    if within is None:
        say(describe_nearest(file, k, group_by))
    else:
        with images_from(*images):
            say(describe_duplicates(file, within, out, group_by))


def search_in(file: Path, query: str, *, out: Path | None, **how: Any) -> str:
    """Search an index; returns the lines to print. See `search` for the parameters."""
    from ..data.items import left_out
    from ..index import open_store
    from ..index.paths import pictures_of
    from ..index.searching import check_search
    from ..index.searching import search as search_index

    # embedding takes seconds, so all options are checked first
    check_search(query, **{name: how[name] for name in ("k", "within", "where", "group_by", "rerank")})
    if out is not None:
        check_page_or_table(out)
    store = open_store(file, lock=False)
    found = search_index(store, query, **how)
    if out is None:
        return "\n".join(lines_of(found, store, within=how["within"], where=how["where"]))
    if out.suffix == ".html":
        pictures = pictures_of(found.hits.records.names.tolist(), store.about, file)
        write_hits(out, store, found.items, found.queries, found.hits, pictures)
        remark_outside(pictures)
    else:
        rows = [
            (name, near.rank, near.distance, near.label, near.name, *near.values)
            for name, neighbors in zip(found.names, neighbors_of_queries(found.hits), strict=True)
            for near in neighbors
        ]
        write_table(out, (*HEADING, *found.hits.records.columns), rows)
    return f"{out}: {count_text(found, how['k'])}{left_out(found.items)}"


def lines_of(found: Found, store: Store, *, within: float | None, where: str) -> list[str]:
    """Return the lines on the neighbors of each query."""
    from ..data.items import left_out

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
    if few and few < total:  # else the number says it
        count += f"; {few:,} {'has' if few == 1 else 'have'} fewer, at least {found.counts.min()}"
    return count


def describe_nearest(file: Path, k: int, group_by: str = "") -> str:
    """Return lines on the k nearest pairs of an index, of items of different groups with `group_by`."""
    from ..evaluation.collapse import collapse
    from ..index import open_store
    from ..index.searching import closest_pairs

    store = open_store(file, lock=False)
    index = store.in_memory()
    labels = classes_of(index)
    lines = []
    for i, j, distance in closest_pairs(store, index, k, group_by):
        mark = " " if labels[i] == labels[j] else "*"
        lines.append(f"{distance_text(distance):>10}  {mark}  {index.names[i]}  {index.names[j]}")
    lines.append(
        f"the {len(lines)} nearest pairs, * if the classes differ; --within DISTANCE groups items within that distance"
    )
    warning = collapse(index.embeddings, index.distance)
    if warning:
        lines.append(warning)
    return "\n".join(lines)


def describe_duplicates(file: Path, within: float, out: Path | None, group_by: str = "") -> str:
    """Return lines on the groups of an index, or write them to a file."""
    from ..index import open_store
    from ..index.searching import check_group_column

    if out is not None:
        check_page_or_table(out)
    store = open_store(file, lock=False)
    index = store.in_memory()
    labels = classes_of(index)
    check_group_column(store, group_by)
    numbers, distances = index.duplicates(within, group_by=group_by)

    # (group, distance to the nearest other, class, name) of each item in a group, sorted by group
    order = sorted((at for at, number in enumerate(numbers.tolist()) if number >= 0), key=numbers.__getitem__)
    rows = [(int(numbers[at]), float(distances[at]), labels[at], str(index.names[at])) for at in order]
    groups = [(number, list(part)) for number, part in groupby(rows, key=lambda row: row[0])]
    summary = summary_of_groups(index, groups, within)

    if out is None:
        width = max((len(row[2]) for row in rows), default=0)
        lines = [line for number, part in groups for line in group_lines(number, part, width)]
        return "\n".join([*lines, summary])
    if out.suffix == ".html":
        from ..index.paths import pictures_of

        pictures = pictures_of(index.names.tolist(), index.about, file)
        write_groups(out, index, numbers, distances, summary, pictures)
        remark_outside(pictures)
    else:
        write_table(out, ("group", "distance", "class", "name"), rows)
    return f"{out}: {summary}"


def summary_of_groups(
    index: Index, groups: Sequence[tuple[int, list[tuple[int, float, str, str]]]], within: float
) -> str:
    """Return one line on the groups, with a warning if the embeddings or the distance do not distinguish items."""
    from ..evaluation.collapse import collapse

    sizes = [len(part) for _, part in groups]
    mixed = sum(len({row[2] for row in part}) > 1 for _, part in groups)
    found = f"{count_of(len(groups), 'group')} of {sum(sizes):,} items within {within:g}"
    summary = f"{found}; {mixed:,} with several classes"
    warning = collapse(index.embeddings, index.distance)
    largest = max(sizes, default=0)
    if warning:
        summary += f". {warning}"
    elif largest > len(index) / 2 and mixed:
        summary += f". {largest:,} of {len(index):,} items are one group: the distance is too large"
    return summary


def check_page_or_table(out: Path) -> None:
    """Refuse a file that does not end in .csv or .html, or that cannot be written."""
    if out.suffix not in (".csv", ".html"):
        raise ValueError(f"--out: {out}: expected a .csv or an .html file")
    check_out(out)
