"""Searches of an index by photos, texts, rows or data sets, embedded by the model that the index names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..data import Dataset
from ..data.items import as_items, embedding_rows, named_by_paths, names_file, names_from
from ..data.located import local_source
from ..data.open import queries_of
from ..data.readers.texts import text_items
from ..io.remote import is_remote
from ..io.sources import MODELS, SourceKind, kind_by_name, kind_of
from ..io.uris import shown
from ..models import Model, load
from ..models.model import read_by
from ..numerics.types import AnyArray, Bools, Ints
from ..quoting import quoted
from .adapter import QueryAdapter
from .paths import base_folder_of, from_home
from .places import Matched, places_in, ranked_by_places
from .records import Hits, check_k
from .stores import DIMS, THRESHOLD, Store, check_open
from .words import search_fused, words_hits, words_in

SAME_CONTENT = 1e-4
"""Embeddings of one item in other batches, or read from a store, differ by at most this share of their length."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found.

    Attributes
    ----------
    items : Dataset
        The queries.
    names : list of str
        Their names, such as paths.
    queries : ndarray of shape (n, d)
        Their embeddings.
    hits : Hits
        The neighbors of each query that are near enough.
    counts : ndarray of shape (n,)
        Number of neighbors of each query, however far.
    within : float
        Distance beyond which neighbors are left out; inf for none.
    matched : Matched, or None
        Which places of the images match, if they were ranked by these: ``matched.of_hits[query, position]``, with the
        number of the query and the position of the neighbor in ``hits.records``.
    """

    items: Dataset
    names: list[str]
    queries: AnyArray
    hits: Hits
    counts: Ints
    within: float = inf
    matched: Matched | None = None

    @property
    def counts_within(self) -> Ints:
        """Number of neighbors of each query that are near enough, (n,)."""
        return self.hits.counts


def search(
    store: Store,
    query: str = "",
    k: int = 5,
    *,
    words: str = "",
    within: float | None = None,
    where: str = "",
    group_by: str = "",
    exclude_self: bool = False,
    run: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    rerank: str | None = None,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
) -> Found:
    """Search an index for the items nearest to an image, a text, rows, or every item of a data set.

    Parameters
    ----------
    store : Store
        The index, as `nearfar.index.open` opens it.
    query : str
        A source that `nearfar.data.open_items` opens, or a text if the model embeds texts. With `words`, it may be left
        out.
    k : int
        Number of neighbors of each query.
    words : str
        Words that items must have in their names, classes or columns, as for `Store.search_words`. Without a query,
        they alone are searched, and distances are NaN; with one, both rankings are fused, see `search_fused`.
    within : float, optional
        Only neighbors within this distance. By default the threshold of the index, if there is one; inf disables it.
    where, group_by : str
        As for `Store.search`.
    exclude_self : bool
        Leave out the query itself, where it is an item of the index, and with `group_by` also its group.
    run : path, optional
        The model that embeds the queries, as for `nearfar.load`. By default, the one that made the index.
    adapter : path, optional
        A `QueryAdapter` that maps embeddings of `run`, a new model, into the space of the index.
    rerank : str, optional
        Method that re-ranks neighbors with the help of the other items, such as "csls"; or "places", which compares the
        first hits with an image part by part. The distances are then its own.
    label, name, skip_bad
        As for `nearfar.data.open_items`.

    Returns
    -------
    Found
        The queries and their neighbors.

    Raises
    ------
    FileNotFoundError
        If the query is a file that does not exist, or what made the index no longer exists.
    ValueError
        If the query cannot be compared with the index, or its model has changed since.
    """
    check_open(store, "store")
    check_search(query, k, within=within, where=where, group_by=group_by, rerank=rerank, words=words)
    query = local_source(query)
    store.count(where)  # refuses a wrong condition, before the embedding takes seconds
    check_group_column(store, group_by)
    if not query:
        return found_by_words(store, words, k, where)

    # the queries
    if adapter is None:
        model = model_of(store, run)
    else:
        model = None if run is None else load(run)
    made_by = store.about.get("source", "") if run is None else str(run)
    items = open_query(query, model, made_by, label=label, name=name, skip_bad=skip_bad)
    embeddings = embedded_by(model, items, query, "query")
    if adapter is not None:
        embeddings = QueryAdapter.load(adapter).transform(embeddings)
    queries = first_dims(embeddings, store.about)

    # their neighbors, however far
    wanted = k + int(exclude_self)
    matched = None
    if words:
        hits = search_fused(store, queries, words, wanted, where=where)
    elif rerank is None:
        hits = store.search(queries, wanted, where=where, group_by=group_by)
    else:
        how: dict[str, Any] = {"where": where, "group_by": group_by, "model": model, "items": items}
        hits, matched = search_again(store, queries, wanted, rerank, **how)
    if exclude_self:
        content = queries
        if adapter is None and model is not None and items.kind == "text" and items.unnamed:
            content = first_dims(embedded_by(model, items, query), store.about)  # with the prompt of documents
        in_index = names_in_index(store, items, query, content)
        values = values_of(store, group_by, in_index) if group_by else ()
        hits = hits.without_self(in_index, k, column=group_by, values=values)
    found = Found(items, names_from(items, query), queries, hits, hits.counts, matched=matched)

    # those that are near enough
    limit = within
    if limit is None and not words and rerank is None:
        # an item that has the words is found however far it is, and a re-ranking method has other distances
        limit = threshold_of(store.about)
    return found if limit is None else found_within(found, limit)


def found_by_words(store: Store, words: str, k: int, where: str) -> Found:
    """Return what `search` finds by words alone, which is one query without an embedding."""
    hits = words_hits(store.search_words(words, k, where=where))
    no_embedding = np.zeros((1, store.dimensions), np.float32)
    return Found(text_items("words", [words], [""]), [words], no_embedding, hits, hits.counts)


def found_within(found: Found, limit: float) -> Found:
    """Return what was found without the neighbors beyond a distance."""
    hits = found.hits
    near = np.where(hits.distances <= limit, hits.positions, -1)
    return replace(found, hits=hits._replace(positions=near), within=limit)


def model_of(store: Store, run: str | os.PathLike[str] | None = None) -> Model | None:
    """Load the model that embeds the queries of an index: the one that made it, or the one in `run`.

    Returns
    -------
    Model or None
        None if queries are embeddings, because the index was made of these.

    Raises
    ------
    FileNotFoundError
        If what made the index no longer exists.
    ValueError
        If its weights have changed since.
    """
    source = os.fspath(run) if run is not None else store.about.get("source", "")
    if not source:
        return None
    if is_remote(source):
        kind_of(source, *MODELS)  # raises the error
    if kind_by_name(source) is not SourceKind.ENCODER and not Path(source).exists():
        made = f"{source}, which made {shown(store.uri)}"
        raise FileNotFoundError(f"{made}, does not exist; give its new path with run=")
    model = load(source)
    fingerprint = store.about.get("weights")  # an index of embeddings from a file has none
    if fingerprint and model.fingerprint != fingerprint:
        raise ValueError(f"{source} has other weights than those that made {shown(store.uri)}; make the index again")
    return model


def open_query(
    query: str,
    model: Model | None,
    made_by: str,
    *,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
) -> Dataset:
    """Open the queries of `search` for a model, which is named by its source in messages; None takes embeddings."""
    if names_file(query) and not Path(query).exists():
        raise FileNotFoundError(f"QUERY: {query}: no such file")
    if model is None:
        return as_items(query, ("row",), label=label, name=name, skip_bad=skip_bad)
    try:
        items = as_items(query, model.takes, **read_by(model, query, label, name), skip_bad=skip_bad)
        return items if items.listed is None else queries_of(items)
    except FileNotFoundError as error:
        if Path(query).exists() or "image" not in model.takes:
            raise
        no_texts = f"because {made_by} has no text tower; train one with `nearfar train --text-trunk`"
        raise FileNotFoundError(f"{error}; it cannot be searched as a text, {no_texts}") from error


def embedded_by(
    model: Model | None, items: Dataset, data: str, prompt: Literal["query", "document"] = "document"
) -> AnyArray:
    """Embed items; without a model, they are embeddings already."""
    return embedding_rows(items, Path(data)) if model is None else np.asarray(model.embed(items, prompt=prompt))


def first_dims(rows: AnyArray, about: Mapping[str, str]) -> AnyArray:
    """Return the leading dimensions of rows that an index keeps; all of them if it has no such record.

    Raises
    ------
    ValueError
        If the record is not a number of dimensions of these rows.
    """
    kept = about.get(DIMS, "")
    if not kept:
        return rows
    width = rows.shape[1]
    if not (kept.isascii() and kept.isdecimal() and 1 <= int(kept) <= width):
        raise ValueError(f"dims: expected 1 to {width}, the number of dimensions, got {quoted(kept)}")
    return rows[:, : int(kept)]


def threshold_of(about: Mapping[str, str]) -> float | None:
    """Return the maximum distance of a match, if it is stored with the index."""
    text = about.get(THRESHOLD, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        advice = "set it again with `nearfar index --threshold`"
        raise ValueError(f"the index is damaged: its threshold is {quoted(text)}; {advice}") from None


def search_again(
    store: Store,
    queries: AnyArray,
    k: int,
    rerank: str,
    *,
    where: str,
    group_by: str,
    model: Model | None,
    items: Dataset,
) -> tuple[Hits, Matched | None]:
    """Return the k nearest items of each query after re-ranking; only `places` needs a model and finds what matches."""
    from ..evaluation import search_reranked  # for start-up time

    places = places_in(rerank)
    if places is not None:
        first = store.search(queries, max(k, places.first), where=where, group_by=group_by)
        return ranked_by_places(store, first, k, places, model, items)
    index = store.in_memory()
    if len(index) == 0:
        return store.search(queries, k), None
    found = search_reranked(queries, index.embeddings, min(k, len(index)), rerank, distance=index.distance)
    return Hits(index.records(), found.distances, found.indices), None


def names_in_index(store: Store, items: Dataset, data: str, rows: AnyArray) -> list[str]:
    """Return the names of items as an index has them; "" for a position in a file at which the index has another."""
    home = base_folder_of(store.about, Path(store.uri))
    names = names_relative_to_index(store.column("name").tolist(), home, items, data)
    if not items.unnamed:
        return names
    same = has_same_content(store, names, rows)
    return [name if is_same else "" for name, is_same in zip(names, same, strict=True)]


def names_relative_to_index(known: Sequence[str] | None, home: Path, items: Dataset, data: str) -> list[str]:
    """Return the names of items; paths are relative to the folder of the index, in the form that it has, if any."""
    names = names_from(items, data)
    if known is None or not named_by_paths(items, data):
        return names
    return from_home(names, home, known)


def has_same_content(store: Store, names: Sequence[str], rows: AnyArray) -> Bools:
    """Return whether the items of an index with these names have the embeddings (n, d), up to rounding; (n,)."""
    there = store.get([*dict.fromkeys(names)])
    if len(there) == 0:
        return np.zeros(len(rows), dtype=bool)
    places = {name: place for place, name in enumerate(there.names.tolist())}
    found = np.array([places.get(name, -1) for name in names])  # (n,)
    difference = np.linalg.norm(rows - there.embeddings[found], axis=1)
    return (found >= 0) & (difference <= SAME_CONTENT * np.linalg.norm(rows, axis=1))


def values_of(store: Store, column: str, names: Sequence[str]) -> list[float | str]:
    """Return the values of items in one column of an index; empty text for names that are no items."""
    there = store.get([*dict.fromkeys(names)])
    values = dict(zip(there.names.tolist(), there.column(column).tolist(), strict=True)) if len(there) else {}
    missing = nan if store.columns()[column] == "number" else ""
    return [values.get(name, missing) for name in names]


def check_search(
    query: str,
    k: int,
    *,
    within: float | None,
    where: str,
    group_by: str,
    rerank: str | None,
    words: str,
) -> None:
    """Refuse an empty query, invalid numbers of neighbors and distances, and what does not work together."""
    if words:
        check_words(words, query, within, {"group_by": group_by, "rerank": rerank})
    elif not query.strip():
        raise ValueError("QUERY: expected an image, a folder, rows or a text, got an empty text; or give words=TEXT")
    check_k(k)
    if within is not None and not within >= 0:  # `not >=` also refuses NaN
        raise ValueError(f"within: expected a distance of at least 0, got {within}")
    if rerank is None:
        return
    from ..evaluation.reranking import SEARCHES, read_reranking  # for start-up time

    read_reranking(rerank, SEARCHES)
    if within is not None:
        raise ValueError("within: does not work with rerank=, whose distances have another scale; give only one")
    if places_in(rerank) is not None:  # ranks what a search has found, and so works with its conditions
        return
    for name, value in {"where": where, "group_by": group_by}.items():
        if value:
            raise ValueError(f"{name}: does not work with rerank=, which uses all items; give only one")


def check_words(words: str, query: str, within: float | None, others: Mapping[str, str | None]) -> None:
    """Refuse to search by words together with what does not work with it."""
    words_in(words)
    for name, value in others.items():
        if value:
            raise ValueError(f"words: does not work with {name}=; give only one")
    if not query and within is not None:
        raise ValueError("within: words alone have no distances; leave it out, or give a query, too")


def check_group_column(store: Store, group_by: str) -> None:
    """Refuse to group by a column that an index does not have."""
    columns = store.columns()
    if group_by and group_by not in columns:
        raise ValueError(f"group_by: there is no column {quoted(group_by)}; there are {', '.join(columns)}")
