"""``nearfar search`` and ``duplicates``: what is near in the embeddings that ``nearfar index`` keeps in a file."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from ..index import Hits, Store
    from ..numerics.types import AnyArray


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
        how: dict[str, Any] = {"where": where, "group_by": group_by, "adapter": adapter}
        print(search_in(file, query, k, within, run, out, skip_bad, label, rerank, **how))


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
    print(nearest_in(file, k) if within is None else duplicates_in(file, within, out))


def search_in(
    file: Path,
    query: str,
    k: int,
    within: float | None,
    run: Path | None,
    out: Path | None,
    skip_bad: bool = False,
    label: str | None = None,
    rerank: str | None = None,
    *,
    where: str = "",
    group_by: str = "",
    adapter: Path | None = None,
) -> str:
    """Search an index; returns the lines to print."""
    from ..index import QueryAdapter
    from .embedding import left_out

    if rerank is not None:
        check_reranking(rerank, within, where, group_by)
    if within is not None and not within >= 0:
        raise ValueError(f"--within: expected a distance of at least 0, got {within}")
    if out is not None:
        check_page_or_table(out)
    store = open_index(file)
    within = threshold_of(store.about) if within is None else within
    if adapter is None:
        items, rows = embedded_query(embedder_of(store.about, file, run), query, skip_bad, label)
        queries = first_dims(rows, store.about)
    else:
        items, rows = open_embedded(run, query, skip_bad, label)
        queries = first_dims(QueryAdapter.load(adapter).transform(rows), store.about)
    names = names_of(items, query)
    if rerank is None:
        hits = store.search(queries, k, where=where, group_by=group_by)
    else:
        hits = reranked(store, queries, k, rerank)
        within = None  # a threshold that the index keeps is one of plain distances
    count = f"{min(k, store.count(where))} neighbors of {len(names):,} queries"
    if within is not None and within != inf:
        hits, lost = near_enough(hits, within)
        count = f"up to {count} within {within:g}; {lost:,} have none"
    told = f"{out}: {count}{left_out(items)}"
    if out is not None and out.suffix == ".html":
        pictures = pictures_of(hits.records.names.tolist(), store.about, file)
        write_hits(out, store, items, queries, names, hits, pictures)
        return told
    found = [*neighbor_rows(names, hits)]
    if out is not None:
        write_table(out, ("query", "rank", "distance", "class", "name"), [*chain.from_iterable(found)])
        return told
    lines = [*neighbor_lines(names, found)]
    lines += filter(None, [left_out(items).removeprefix("; ")])
    return "\n".join(lines)


def embedded_query(source: Path | None, query: str, skip_bad: bool, label: str | None) -> tuple[Dataset, AnyArray]:
    """Open queries and embed them; what leads to no file is a text, where the network embeds texts."""
    from .embedding import embed_with, is_run

    if source is not None and is_run(source) and not Path(query).exists():
        from ..train.scoring import takes_texts

        if takes_texts(source):
            items = text_query(query)
            return items, embed_with(source, items)
        try:
            return open_embedded(source, query, skip_bad, label)
        except FileNotFoundError as error:
            told = f"and as words it cannot be embedded: {source} has no text tower (train --text-trunk gives one)"
            raise FileNotFoundError(f"{error}; {told}") from error
    return open_embedded(source, query, skip_bad, label)


def text_query(text: str) -> Dataset:
    """Return one text as a data set."""
    from ..data.readers.texts import text_items

    return text_items("query", [text], [""])


def check_reranking(rerank: str, within: float | None, where: str, group_by: str) -> None:
    """Refuse, before anything is embedded, a text that names no method, and what re-ranking cannot do."""
    from ..evaluation.reranking import read_reranking

    read_reranking(rerank)
    if within is not None:
        raise ValueError("--within: not with --rerank, whose distances are its own")
    if where or group_by:
        option = "where" if where else "group-by"
        raise ValueError(f"--{option}: not with --rerank, which looks at all items together")


def reranked(store: Store, queries: AnyArray, k: int, rerank: str) -> Hits:
    """Return the k nearest items of each query after re-ranking."""
    from ..evaluation import search_reranked
    from ..index import Hits

    if k < 1:
        raise ValueError(f"-k: expected 1 or more, got {k}")
    index = store.in_memory()
    found = search_reranked(queries, index.embeddings, min(k, len(index)), rerank, distance=index.distance)
    return Hits(index.records(), found.distances, found.indices)


def embedder_of(about: Mapping[str, str], file: Path, run: Path | None) -> Path | None:
    """Return the run or the learner that embeds the queries of an index; None where they are rows.

    Raises
    ------
    FileNotFoundError
        What made the index is not there any more.
    ValueError
        It has other weights now.
    """
    made = about.get("source", "")
    source = run or (Path(made) if made else None)
    if source is not None and not source.exists():
        raise FileNotFoundError(f"{source}, which made {shown(file)}, is not there; say with --run where it is")
    weights = about.get("weights")  # none where it was made from embeddings
    if source is not None and weights and weights_of(source) != weights:
        raise ValueError(f"{source} has other weights than those that made {shown(file)}; index anew")
    return source


def threshold_of(about: Mapping[str, str]) -> float | None:
    """Return the distance beyond which nothing is a match, where an index keeps one."""
    from ..index.stores import THRESHOLD

    told = about.get(THRESHOLD, "")
    if not told:
        return None
    try:
        return float(told)
    except ValueError:
        raise ValueError(f"the index is damaged: its threshold is {quoted(told)}; set another") from None


def near_enough(found: Hits, within: float) -> tuple[Hits, int]:
    """Return the neighbors that are at most so far, and how many queries have none."""
    import numpy as np

    positions = np.where(found.distances <= within, found.positions, -1)
    return found._replace(positions=positions), int((positions < 0).all(axis=1).sum())


def nearest_in(file: Path, k: int) -> str:
    """Return lines on the k nearest pairs of an index."""
    from ..evaluation.collapse import collapse

    index = open_index(file).in_memory()
    labels = classes_of(index)
    lines = [
        f"{distance_text(d):>10}  {' ' if labels[i] == labels[j] else '*'}  {index.names[i]}  {index.names[j]}"
        for i, j, d in zip(*index.closest(k), strict=True)
    ]
    found = f"the {len(lines)} nearest pairs; * marks two classes; --within DISTANCE groups what is as near"
    told = collapse(index.embeddings, index.distance)
    return "\n".join([*lines, found, *([told] if told else [])])


def duplicates_in(file: Path, within: float, out: Path | None) -> str:
    """Return lines on the groups of an index, or write them to a file."""
    import numpy as np

    from ..evaluation.collapse import collapse

    if out is not None:
        check_page_or_table(out)
    index = open_index(file).in_memory()
    labels = classes_of(index)
    (numbers, distances) = index.duplicates(within)
    order = np.flatnonzero(numbers >= 0)
    order = order[np.argsort(numbers[order], kind="stable")]
    rows = [(int(numbers[at]), float(distances[at]), labels[at], str(index.names[at])) for at in order]
    groups = [(number, list(part)) for number, part in groupby(rows, key=lambda row: row[0])]
    mixed = sum(len({row[2] for row in part}) > 1 for _, part in groups)
    count = f"{len(groups):,} group{'' if len(groups) == 1 else 's'}"
    found = f"{count} of {len(rows):,} items within {within:g}; {mixed:,} with several classes"
    largest = max((len(part) for _, part in groups), default=0)
    told = collapse(index.embeddings, index.distance)
    if told:
        found += f". {told}"
    elif largest > len(index) / 2 and mixed:
        found += f". {largest:,} of {len(index):,} items are one group: the distance is too large"
    if out is None:
        wide = max((len(row[2]) for row in rows), default=0)
        lines = [line for number, part in groups for line in group_lines(number, part, wide)]
        return "\n".join([*lines, found])
    if out.suffix == ".html":
        write_groups(out, index, numbers, distances, found, pictures_of(index.names.tolist(), index.about, file))
    else:
        write_table(out, ("group", "distance", "class", "name"), rows)
    return f"{out}: {found}"


def check_page_or_table(out: Path) -> None:
    """Refuse a file that is neither a table nor a page by its name, or that cannot be written."""
    if out.suffix not in (".csv", ".html"):
        raise ValueError(f"--out: {out}: expected a .csv, or an .html page of pictures")
    check_out(out)
