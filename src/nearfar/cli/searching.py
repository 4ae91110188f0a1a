"""``nearfar search`` and ``duplicates``: neighbors and near duplicates in an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..io.uris import shown
from ..quoting import count_of, quoted
from ..trust import trusting
from .encoding import say
from .image_paths import base_folder_of, pictures_of, remark_outside
from .index_files import first_dims, names_of, open_embedded, open_index, weights_of
from .indexing import has_same_content, names_relative_to_index
from .options import NEIGHBORS, QUERIES, RUN, Trust
from .outputs import check_out
from .search_results import (
    classes_of,
    distance_text,
    group_lines,
    neighbor_lines,
    neighbors_of_queries,
    write_groups,
    write_hits,
    write_table,
)

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Hits, Index, Store
    from ..numerics.types import AnyArray, Ints

GROWTH_OF_PAIRS = 8  # factor by which more pairs are listed until enough of them are of two groups
MOST_PAIRS = 1_000_000  # maximum number of listed pairs
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


def search_in(  # noqa: C901, PLR0912, PLR0915 - it is the whole command in the order in which things happen
    file: Path,
    query: str,
    *,
    k: int,
    within: float | None,
    where: str,
    group_by: str,
    exclude_self: bool,
    run: Path | None,
    adapter: Path | None,
    out: Path | None,
    label: str | None,
    name: str | None,
    skip_bad: bool,
    rerank: str | None,
) -> str:
    """Search an index; returns the lines to print. See `search` for the parameters."""
    from .embedding import left_out

    # embedding takes seconds, so all options are checked first
    check_neighbors(query, k, within)
    if rerank is not None:
        check_reranking(rerank, within, where, group_by)
    if out is not None:
        check_page_or_table(out)
    store = open_index(file)
    store.count(where)  # refuses a wrong condition
    check_group_column(store, group_by)

    items, rows = embed_query(store.about, file, query, run, adapter, skip_bad=skip_bad, label=label, name=name)
    queries = first_dims(rows, store.about)
    names = names_of(items, query)

    limit = within
    wanted = k + int(exclude_self)
    if rerank is None:
        hits = store.search(queries, wanted, where=where, group_by=group_by)
        if limit is None:
            limit = threshold_of(store.about)
    else:
        # the threshold of an index does not apply to the distances of a re-ranking method
        hits = rerank_index(store, queries, wanted, rerank)
    if exclude_self:
        as_items = queries if adapter is not None else embed_as_items(store.about, file, items, run, queries)
        in_index = names_in_index(store, file, items, query, as_items)
        values = values_of(store, group_by, in_index) if group_by else ()
        hits = hits.without_self(in_index, k, column=group_by, values=values)
    all_counts = neighbor_counts(hits)
    if limit is not None and limit != inf:
        hits = drop_beyond(hits, limit)
    counts = neighbor_counts(hits)

    if out is None:
        found = [*neighbors_of_queries(hits)]
        lines = [*neighbor_lines(names, found, [*hits.records.columns])]
        if within is None and limit is not None and (counts < all_counts).any():
            lines.append(f"only neighbors within {limit:g}, the threshold of the index; --within inf shows all")
        if where and not all_counts.any() and store.count(where) == 0:
            lines.append("no item of the index meets the condition of --where")
        if skipped := left_out(items):
            lines.append(skipped.removeprefix("; "))
        return "\n".join(lines)

    if out.suffix == ".html":
        pictures = pictures_of(hits.records.names.tolist(), store.about, file)
        write_hits(out, store, items, queries, hits, pictures)
        remark_outside(pictures)
    else:
        rows_of_table = [
            (name, near.rank, near.distance, near.label, near.name, *near.values)
            for name, neighbors in zip(names, neighbors_of_queries(hits), strict=True)
            for near in neighbors
        ]
        write_table(out, (*HEADING, *hits.records.columns), rows_of_table)
    count = f"{count_of(int(all_counts.max(initial=0)), 'neighbor')} of {count_of(len(names), 'query', 'queries')}"
    if limit is not None and limit != inf:
        without = int((counts == 0).sum())
        count = f"up to {count} within {limit:g}; {without:,} {'has' if without == 1 else 'have'} none"
    elif (few := int((all_counts < k).sum())) and few < len(names):  # else the number says it
        count += f"; {few:,} {'has' if few == 1 else 'have'} fewer, at least {all_counts.min()}"
    return f"{out}: {count}{left_out(items)}"


def embed_as_items(
    about: Mapping[str, str], file: Path, items: Dataset, run: Path | None, queries: AnyArray
) -> AnyArray:
    """Return the embeddings that queries would have as items: others than as `queries` if the model has two prompts."""
    from .embedding import embed_with

    source = embedder_of(about, file, run)
    if items.kind != "text" or not items.unnamed or source is None:
        return queries
    return first_dims(embed_with(source, items, "document"), about)


def names_in_index(store: Store, file: Path, items: Dataset, query: str, rows: AnyArray) -> list[str]:
    """Return the names of queries as an index has them; "" for a position in a file at which the index has another."""
    names = names_relative_to_index(store.column("name").tolist(), base_folder_of(store.about, file), items, query)
    if not items.unnamed:
        return names
    same = has_same_content(store, names, rows)
    return [name if is_same else "" for name, is_same in zip(names, same, strict=True)]


def check_neighbors(query: str, k: int, within: float | None) -> None:
    """Refuse an empty query, and invalid numbers of neighbors and distances."""
    if not query.strip():
        raise ValueError("QUERY: expected an image, a folder, rows or a text, got an empty text")
    if k < 1:
        raise ValueError(f"-k: expected 1 or more, got {k}")
    if within is not None and not within >= 0:  # `not >=` also refuses NaN
        raise ValueError(f"--within: expected a distance of at least 0, got {within}")


def check_group_column(store: Store, group_by: str) -> None:
    """Refuse to group by a column that an index does not have."""
    columns = store.columns()
    if group_by and group_by not in columns:
        raise ValueError(f"--group-by: there is no column {quoted(group_by)}; there are {', '.join(columns)}")


def values_of(store: Store, column: str, names: Sequence[str]) -> list[float | str]:
    """Return the values of items in one column of an index; empty text for names that are no items."""
    there = store.get([*dict.fromkeys(names)])
    values = dict(zip(there.names.tolist(), there.column(column).tolist(), strict=True)) if len(there) else {}
    missing = nan if store.columns()[column] == "number" else ""
    return [values.get(name, missing) for name in names]


def embed_query(
    about: Mapping[str, str],
    file: Path,
    query: str,
    run: Path | None,
    adapter: Path | None,
    *,
    skip_bad: bool,
    label: str | None,
    name: str | None,
) -> tuple[Dataset, AnyArray]:
    """Open queries and embed them, with `run` and the adapter or with the model that made the index.

    A query that is not a file is a text, if the network embeds texts.
    """
    check_file_exists(query)
    if adapter is not None:
        from ..index import QueryAdapter

        items, rows = open_embedded(run, query, skip_bad, label, name)
        return items, QueryAdapter.load(adapter).transform(rows)
    source = embedder_of(about, file, run)
    if source is None or not source.is_dir() or Path(query).exists():
        return open_embedded(source, query, skip_bad, label, name)

    from ..models import embed_as, load

    model = load(source)
    if "text" in model.takes:
        items = text_query(query)
        return items, embed_as(model, items, "query")
    try:
        return open_embedded(source, query, skip_bad, label, name)
    except FileNotFoundError as error:
        no_texts = f"it cannot be searched as a text, because {source} has no text tower; train one with --text-trunk"
        raise FileNotFoundError(f"{error}; {no_texts}") from error


def check_file_exists(query: str) -> None:
    """Refuse the name of a file that does not exist, which would otherwise be searched as words."""
    from ..data.image_formats import KNOWN

    if query.lower().endswith((*KNOWN, ".npy", ".npz")) and not Path(query).exists():
        raise FileNotFoundError(f"QUERY: {query}: no such file")


def text_query(text: str) -> Dataset:
    """Return one text as a data set."""
    from ..data.readers.texts import text_items

    return text_items("query", [text], [""])


def check_reranking(rerank: str, within: float | None, where: str, group_by: str) -> None:
    """Refuse an unknown re-ranking method, and options that do not work with re-ranking."""
    from ..evaluation.reranking import read_reranking

    read_reranking(rerank)
    if within is not None:
        raise ValueError("--within: does not work with --rerank, whose distances have another scale; give only one")
    for option, value in {"--where": where, "--group-by": group_by}.items():
        if value:
            raise ValueError(f"{option}: does not work with --rerank, which uses all items; give only one")


def rerank_index(store: Store, queries: AnyArray, k: int, rerank: str) -> Hits:
    """Return the k nearest items of each query after re-ranking."""
    from ..evaluation import search_reranked
    from ..index import Hits

    index = store.in_memory()
    if len(index) == 0:
        return store.search(queries, k)
    found = search_reranked(queries, index.embeddings, min(k, len(index)), rerank, distance=index.distance)
    return Hits(index.records(), found.distances, found.indices)


def embedder_of(about: Mapping[str, str], file: Path, run: Path | None) -> Path | None:
    """Return the run or the learner that embeds the queries of an index; None if queries are embeddings.

    Raises
    ------
    FileNotFoundError
        If what made the index no longer exists.
    ValueError
        If its weights have changed since.
    """
    made_by = about.get("source", "")
    if run is not None:
        source = run
    elif made_by:
        source = Path(made_by)
    else:
        return None
    if not source.exists():
        raise FileNotFoundError(f"{source}, which made {shown(file)}, does not exist; give its new path with --run")
    weights = about.get("weights")  # an index of embeddings from a file has none
    if weights and weights_of(source) != weights:
        raise ValueError(f"{source} has other weights than those that made {shown(file)}; make the index again")
    return source


def threshold_of(about: Mapping[str, str]) -> float | None:
    """Return the maximum distance of a match, if it is stored with the index."""
    from ..index.stores import THRESHOLD

    text = about.get(THRESHOLD, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        advice = "set it again with `nearfar index --threshold`"
        raise ValueError(f"the index is damaged: its threshold is {quoted(text)}; {advice}") from None


def neighbor_counts(hits: Hits) -> Ints:
    """Return the number of neighbors of each query, of shape (queries,)."""
    return (hits.positions >= 0).sum(axis=1)


def drop_beyond(hits: Hits, within: float) -> Hits:
    """Replace the positions of neighbors beyond a distance by -1."""
    import numpy as np

    return hits._replace(positions=np.where(hits.distances <= within, hits.positions, -1))


def numbers_of_groups(store: Store, index: Index, group_by: str) -> Ints | None:
    """Return the number of each item's group in a column of an index, or None without a column."""
    from ..index.groups import numbered

    if not group_by:
        return None
    check_group_column(store, group_by)
    return numbered(index.all_columns()[group_by])


def closest_pairs(index: Index, k: int, groups: Ints | None) -> list[tuple[int, int, float]]:
    """Return the k nearest pairs of an index, of items of different groups if there are groups."""
    count = k
    most = len(index) * (len(index) - 1) // 2
    while True:
        pairs = index.closest(count)
        apart = [
            (int(i), int(j), float(distance))
            for i, j, distance in zip(*pairs, strict=True)
            if groups is None or groups[i] != groups[j]
        ]
        if len(apart) >= k or count >= min(most, MOST_PAIRS):
            return apart[:k]
        count = min(GROWTH_OF_PAIRS * count, most, MOST_PAIRS)


def describe_nearest(file: Path, k: int, group_by: str = "") -> str:
    """Return lines on the k nearest pairs of an index, of items of different groups with `group_by`."""
    from ..evaluation.collapse import collapse

    store = open_index(file)
    index = store.in_memory()
    labels = classes_of(index)
    lines = []
    for i, j, distance in closest_pairs(index, k, numbers_of_groups(store, index, group_by)):
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
    import numpy as np

    if out is not None:
        check_page_or_table(out)
    store = open_index(file)
    index = store.in_memory()
    labels = classes_of(index)
    check_group_column(store, group_by)
    numbers, distances = index.duplicates(within, group_by=group_by)

    # (group, distance to the nearest other, class, name) of each item in a group, sorted by group
    order = np.flatnonzero(numbers >= 0)
    order = order[np.argsort(numbers[order], kind="stable")]
    rows = [(int(numbers[at]), float(distances[at]), labels[at], str(index.names[at])) for at in order]
    groups = [(number, list(part)) for number, part in groupby(rows, key=lambda row: row[0])]
    summary = summary_of_groups(index, groups, within)

    if out is None:
        width = max((len(row[2]) for row in rows), default=0)
        lines = [line for number, part in groups for line in group_lines(number, part, width)]
        return "\n".join([*lines, summary])
    if out.suffix == ".html":
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
