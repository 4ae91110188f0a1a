"""The first hits of a search ranked again by the places of their images, which are read and embedded once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data import Dataset
from ..io.uris import shown
from ..models import Model
from .paths import pictures_of
from .records import Hits
from .stores import Store

if TYPE_CHECKING:
    from ..evaluation import PlaceMatches
    from ..evaluation.reranking import Places

METHOD = "places"
QUERIES_OF_A_BLOCK = 16  # with 50 hits each, 800 images: 160 MB of descriptors for 7 x 7 places of 1,024
BEHIND = -4.0  # similarity of a missing hit, below every one that is there


class Matched(NamedTuple):
    """Which places of the queries and of their neighbors match.

    Attributes
    ----------
    of_hits : mapping
        Matches by the number of the query and the position of its neighbor, as in `Hits`.
    seen : callable
        Function from the width and the height of an image to the part that the places cover: left, top, right and
        bottom, in pixels of the image.
    """

    of_hits: Mapping[tuple[int, int], PlaceMatches]
    seen: Callable[[int, int], tuple[float, float, float, float]]


def places_in(rerank: str | None) -> Places | None:
    """Return the settings of the re-ranking by places, if `rerank` names this method."""
    if rerank is None or not rerank.strip().startswith(METHOD):
        return None
    from ..evaluation.reranking import SEARCHES, places, read_reranking  # for start-up time

    return places(**read_reranking(rerank, SEARCHES).settings)


def ranked_by_places(
    store: Store, hits: Hits, k: int, how: Places, model: Model | None, items: Dataset
) -> tuple[Hits, Matched]:
    """Return the k nearest of the first hits of each query by their cosine and the places of their images, which match.

    Raises
    ------
    ValueError
        If the index has another distance, or the queries are no images, or no network with places embeds them.
    DataError
        If the image of a hit is gone.
    """
    from ..evaluation import local_scores, matched_places, rerank_by_places  # for start-up time

    if store.distance != "cosine":
        raise ValueError(f"rerank: places needs distance='cosine', got {store.distance!r}")
    network: Any = model
    if items.kind != "image" or model is None or "layer" not in signature(model.embed).parameters:
        raise ValueError(f"rerank: places needs images as queries and a network that embeds them, got {items.kind}s")
    gallery = _images_of(store, hits)
    distances = np.full((len(items), min(k, hits.positions.shape[1])), np.inf)
    positions = np.full(distances.shape, -1)
    matches: dict[tuple[int, int], PlaceMatches] = {}
    for start in range(0, len(items), QUERIES_OF_A_BLOCK):
        asked = np.arange(start, min(start + QUERIES_OF_A_BLOCK, len(items)))
        at = hits.positions[asked]
        there = at >= 0
        known, numbers = np.unique(at[there], return_inverse=True)
        if len(known) == 0:
            continue
        candidates = np.zeros(at.shape, np.intp)
        candidates[there] = numbers
        of_queries = _places(network, items.subset(asked))
        of_items = _places(network, gallery.subset(known))
        local = local_scores(of_queries, of_items, candidates, tolerance=how.tolerance)
        similarities = np.where(there, 1 - hits.distances[asked], BEHIND)
        found = rerank_by_places(similarities, local, np.arange(at.size).reshape(at.shape), k=k, weight=how.weight)
        positions[asked] = at.ravel()[found.indices]
        distances[asked] = np.where(positions[asked] >= 0, found.distances, np.inf)
        for of_query, query in zip(of_queries, asked, strict=True):
            for position in positions[query][positions[query] >= 0]:
                item = of_items[np.searchsorted(known, position)]
                matches[int(query), int(position)] = matched_places(of_query, item, tolerance=how.tolerance)
    return Hits(hits.records, distances, positions), Matched(matches, network.seen_part)


def _places(network: Any, images: Dataset) -> Any:
    try:
        return network.embed(images, layer="places")
    except NotImplementedError as error:
        raise ValueError(f"rerank: places: {error}") from error


def _images_of(store: Store, hits: Hits) -> Dataset:
    """Return the items of an index as images, which are read from where the index was made."""
    names = hits.records.names.tolist()
    return Dataset(
        name=shown(store.uri),
        labels=np.zeros(len(names), np.int64),
        classes=("",),
        kind="image",
        read=pictures_of(names, store.about, Path(store.uri)),
        names=tuple(names),
    )
