"""``nearfar search`` and ``duplicates``: neighbors and near-identical items in what ``nearfar index`` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..io.uris import shown
from ..quoting import quoted
from ..trust import trusting
from .image_paths import pictures_of
from .index_files import first_dims, names_of, open_embedded, open_index, weights_of
from .options import NEIGHBORS, QUERIES, RUN, Trust, check_out
from .search_results import (
    classes_of,
    distance_text,
    group_lines,
    neighbor_lines,
    neighbor_rows,
    write_groups,
    write_hits,
    write_table,
)

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Hits, Index, Store
    from ..numerics.types import AnyArray

HEADING = ("query", "rank", "distance", "class", "name")  # of a table of neighbors


def search(
    file: Path,
    query: str,
    *,
    k: Annotated[int, Parameter(name="-k", group=NEIGHBORS)] = 5,
    within: Annotated[float | None, Parameter(group=NEIGHBORS)] = None,
    where: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    group_by: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    run: Annotated[Path | None, Parameter(group=QUERIES)] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    label: Annotated[str | None, Parameter(group=QUERIES)] = None,
    skip_bad: Annotated[bool, Parameter(group=QUERIES)] = False,
    rerank: Annotated[str | None, Parameter(group=NEIGHBORS)] = None,
    adapter: Annotated[Path | None, Parameter(group=QUERIES)] = None,
    trust: Trust = (),
) -> None:
    """Find the nearest items of an index to an image, to rows, or to every item of a data set.

    Example: nearfar search photos.index query.jpg -k 5

    Parameters
    ----------
    file
        What `nearfar index` wrote: a file, a folder such as photos.lance, or http://HOST:19530/photos.
    query
        An image, a folder of images, an .npy or .npz of rows, or any data that `nearfar train` takes; for a model of
        texts also a text, such as "red shoes".
    k
        Number of neighbors of each query.
    within
        Only neighbors within this distance; a query may then have none. By default the threshold stored with the index
        (`nearfar index --threshold`), if there is one; inf switches it off.
    where
        Only items that meet this condition, such as 'price < 10 and shop == "a"', on name, label and the columns of the
        index.
    group_by
        Only the nearest item for each value of this column, such as product.
    run
        The run or learner that embeds the queries: needed if the one that made the index was moved, or if the index was
        made from a file of embeddings.
    out
        Write the result to a .csv (query, rank, distance, class, name) or to an .html page with pictures, instead of
        printing it.
    label
        Column of a table of queries that holds their classes, and is not a feature.
    skip_bad
        Skip queries that cannot be decoded; their number is reported.
    rerank
        Re-rank neighbors with the help of the other items of the index: expand_queries, augment_gallery, k_reciprocal
        or csls, with settings if needed, such as "expand_queries(k=10)". The distances are then those of the method.
    adapter
        An adapter made by `nearfar adapt`: queries are embedded by --run, the new model, and mapped into the space of
        the model that made the index.
    trust
        Allow the run that made the index to import this module of yours, such as mynets; its code is executed. Repeat
        for several modules.
    """
    with trusting(*trust):
        lines = search_in(
            file,
            query,
            k=k,
            within=within,
            where=where,
            group_by=group_by,
            run=run,
            adapter=adapter,
            out=out,
            label=label,
            skip_bad=skip_bad,
            rerank=rerank,
        )
    print(lines)


def duplicates(
    file: Path,
    *,
    within: float | None = None,
    k: Annotated[int, Parameter(name="-k")] = 20,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> None:
    """Find items of an index that are nearly the same, and those among them whose classes differ.

    Example: nearfar duplicates photos.index --within 0.02 -o duplicates.csv

    Parameters
    ----------
    file
        What `nearfar index` wrote.
    within
        Group items that are at most this far apart, directly or through a chain of others. Without it, the nearest
        pairs are printed, which shows the distances that duplicates have in these data.
    k
        Number of pairs to print.
    out
        Write the groups to a .csv (group, distance to the nearest other, class, name) or to an .html page with
        pictures, instead of printing them.
    """
    if within is None and out is not None:
        raise ValueError("--out: only groups are written, and these need --within DISTANCE")
    if within is None:
        print(nearest_in(file, k))
    else:
        print(duplicates_in(file, within, out))


def search_in(  # noqa: C901 - it is the whole command in the order in which things happen
    file: Path,
    query: str,
    *,
    k: int,
    within: float | None,
    where: str,
    group_by: str,
    run: Path | None,
    adapter: Path | None,
    out: Path | None,
    label: str | None,
    skip_bad: bool,
    rerank: str | None,
) -> str:
    """Search an index; returns the lines to print. See `search` for the parameters."""
    from .embedding import left_out

    # embedding takes seconds: whatever is wrong with the options is said before it
    check_neighbors(k, within)
    if rerank is not None:
        check_reranking(rerank, within, where, group_by)
    if out is not None:
        check_page_or_table(out)
    store = open_index(file)
    most = min(k, store.count(where))
    check_group_column(store, group_by)

    items, rows = embedded_query(store.about, file, query, run, adapter, skip_bad=skip_bad, label=label)
    queries = first_dims(rows, store.about)
    names = names_of(items, query)

    limit = within
    if rerank is None:
        hits = store.search(queries, k, where=where, group_by=group_by)
        if limit is None:
            limit = threshold_of(store.about)
    else:
        # the threshold of an index is one of plain distances, and re-ranking has distances of its own
        hits = reranked(store, queries, k, rerank)
    without = 0
    if limit is not None and limit != inf:
        hits, without = near_enough(hits, limit)

    if out is None:
        found = [*neighbor_rows(names, hits)]
        lines = [*neighbor_lines(names, found)]
        if within is None and limit is not None and any(len(neighbors) < most for neighbors in found):
            lines.append(f"only neighbors within {limit:g}, the threshold of the index; --within inf shows the others")
        if skipped := left_out(items):
            lines.append(skipped.removeprefix("; "))
        return "\n".join(lines)

    if out.suffix == ".html":
        pictures = pictures_of(hits.records.names.tolist(), store.about, file)
        write_hits(out, store, items, queries, names, hits, pictures)
    else:
        write_table(out, HEADING, [*chain.from_iterable(neighbor_rows(names, hits))])
    count = f"{most} neighbors of {len(names):,} queries"
    if limit is not None and limit != inf:
        count = f"up to {count} within {limit:g}; {without:,} have none"
    return f"{out}: {count}{left_out(items)}"


def check_neighbors(k: int, within: float | None) -> None:
    """Refuse numbers of neighbors and distances that no search can have."""
    if k < 1:
        raise ValueError(f"-k: expected 1 or more, got {k}")
    if within is not None and not within >= 0:  # NaN, too
        raise ValueError(f"--within: expected a distance of at least 0, got {within}")


def check_group_column(store: Store, group_by: str) -> None:
    """Refuse to group by a column that an index does not have."""
    columns = store.columns()
    if group_by and group_by not in columns:
        raise ValueError(f"--group-by: there is no column {quoted(group_by)}; there are {', '.join(columns)}")


def embedded_query(
    about: Mapping[str, str],
    file: Path,
    query: str,
    run: Path | None,
    adapter: Path | None,
    *,
    skip_bad: bool,
    label: str | None,
) -> tuple[Dataset, AnyArray]:
    """Open queries and embed them: with `run` and the adapter, or with what made the index.

    A query that is no file is a text, if the network embeds texts.
    """
    if adapter is not None:
        from ..index import QueryAdapter

        items, rows = open_embedded(run, query, skip_bad, label)
        return items, QueryAdapter.load(adapter).transform(rows)
    source = embedder_of(about, file, run)
    if source is None or not source.is_dir() or Path(query).exists():
        return open_embedded(source, query, skip_bad, label)

    from ..train.scoring import takes_texts
    from .embedding import embed_with

    if takes_texts(source):
        items = text_query(query)
        return items, embed_with(source, items)
    try:
        return open_embedded(source, query, skip_bad, label)
    except FileNotFoundError as error:
        words = f"words cannot be searched, because {source} has no text tower (train it with --text-trunk)"
        raise FileNotFoundError(f"{error}; {words}") from error


def text_query(text: str) -> Dataset:
    """Return one text as a data set."""
    from ..data.readers.texts import text_items

    return text_items("query", [text], [""])


def check_reranking(rerank: str, within: float | None, where: str, group_by: str) -> None:
    """Refuse a re-ranking method that does not exist, and options that do not go with re-ranking."""
    from ..evaluation.reranking import read_reranking

    read_reranking(rerank)
    if within is not None:
        raise ValueError("--within: not with --rerank, whose distances are of another kind")
    for option, value in {"--where": where, "--group-by": group_by}.items():
        if value:
            raise ValueError(f"{option}: not with --rerank, which looks at all items together")


def reranked(store: Store, queries: AnyArray, k: int, rerank: str) -> Hits:
    """Return the k nearest items of each query after re-ranking."""
    from ..evaluation import search_reranked
    from ..index import Hits

    index = store.in_memory()
    found = search_reranked(queries, index.embeddings, min(k, len(index)), rerank, distance=index.distance)
    return Hits(index.records(), found.distances, found.indices)


def embedder_of(about: Mapping[str, str], file: Path, run: Path | None) -> Path | None:
    """Return the run or the learner that embeds the queries of an index; None where they are rows.

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
        raise FileNotFoundError(f"{source}, which made {shown(file)}, does not exist; --run says where it is now")
    weights = about.get("weights")  # an index of given embeddings has none
    if weights and weights_of(source) != weights:
        raise ValueError(f"{source} has other weights than those that made {shown(file)}; make the index again")
    return source


def threshold_of(about: Mapping[str, str]) -> float | None:
    """Return the distance beyond which nothing is a match, if it is stored with the index."""
    from ..index.stores import THRESHOLD

    text = about.get(THRESHOLD, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        advice = "set another with nearfar index --threshold"
        raise ValueError(f"the index is damaged: its threshold is {quoted(text)}; {advice}") from None


def near_enough(found: Hits, within: float) -> tuple[Hits, int]:
    """Return the neighbors within a distance, -1 in place of the others, and how many queries have none."""
    import numpy as np

    positions = np.where(found.distances <= within, found.positions, -1)
    return found._replace(positions=positions), int((positions < 0).all(axis=1).sum())


def nearest_in(file: Path, k: int) -> str:
    """Return lines on the k nearest pairs of an index."""
    from ..evaluation.collapse import collapse

    index = open_index(file).in_memory()
    labels = classes_of(index)
    lines = []
    for i, j, distance in zip(*index.closest(k), strict=True):
        mark = " " if labels[i] == labels[j] else "*"
        lines.append(f"{distance_text(distance):>10}  {mark}  {index.names[i]}  {index.names[j]}")
    lines.append(
        f"the {len(lines)} nearest pairs, two classes marked by *; --within DISTANCE groups items that are that near"
    )
    warning = collapse(index.embeddings, index.distance)
    if warning:
        lines.append(warning)
    return "\n".join(lines)


def duplicates_in(file: Path, within: float, out: Path | None) -> str:
    """Return lines on the groups of an index, or write them to a file."""
    import numpy as np

    if out is not None:
        check_page_or_table(out)
    index = open_index(file).in_memory()
    labels = classes_of(index)
    numbers, distances = index.duplicates(within)

    # (group, distance to the nearest other, class, name) of each item that has a near one, group by group
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
        write_groups(out, index, numbers, distances, summary, pictures_of(index.names.tolist(), index.about, file))
    else:
        write_table(out, ("group", "distance", "class", "name"), rows)
    return f"{out}: {summary}"


def summary_of_groups(
    index: Index, groups: Sequence[tuple[int, list[tuple[int, float, str, str]]]], within: float
) -> str:
    """Say how many groups there are, and warn if the embeddings or the distance cannot tell items apart."""
    from ..evaluation.collapse import collapse

    sizes = [len(part) for _, part in groups]
    mixed = sum(len({row[2] for row in part}) > 1 for _, part in groups)
    noun = "group" if len(groups) == 1 else "groups"
    summary = f"{len(groups):,} {noun} of {sum(sizes):,} items within {within:g}; {mixed:,} with several classes"
    warning = collapse(index.embeddings, index.distance)
    largest = max(sizes, default=0)
    if warning:
        summary += f". {warning}"
    elif largest > len(index) / 2 and mixed:
        summary += f". {largest:,} of {len(index):,} items are one group: the distance is too large"
    return summary


def check_page_or_table(out: Path) -> None:
    """Refuse a file that is neither a table nor a page by its name, or that cannot be written."""
    if out.suffix not in (".csv", ".html"):
        raise ValueError(f"--out: {out}: expected a .csv, or an .html page of pictures")
    check_out(out)
