"""The first hits of a search ranked again by the places of their images, which are read and embedded once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data import Dataset
from ..io.uris import shown
from ..models import Model
from ..numerics.types import AnyArray, Array, Ints
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
    check_places(store, model, items.kind)
    network: Any = model
    gallery = _images_of(store, hits)
    distances = np.full((len(items), min(k, hits.positions.shape[1])), np.inf)
    positions = np.full(distances.shape, -1)
    matches: dict[tuple[int, int], PlaceMatches] = {}
    for start in range(0, len(items), QUERIES_OF_A_BLOCK):
        asked = np.arange(start, min(start + QUERIES_OF_A_BLOCK, len(items)))
        of_block = Hits(hits.records, hits.distances[asked], hits.positions[asked])
        known = positions_in(of_block)
        if len(known) == 0:
            continue
        of_queries = described(network, items.subset(asked))
        of_items = described(network, gallery.subset(known))
        found, matched = ranked_by_descriptors(of_block, k, how, of_queries, of_items)
        distances[asked] = found.distances
        positions[asked] = found.positions
        matches |= {(start + query, position): pair for (query, position), pair in matched.items()}
    return Hits(hits.records, distances, positions), Matched(matches, network.seen_part)


def check_places(store: Store, model: Model | None, kind: str = "image") -> None:
    """Raise a ValueError if queries of this kind cannot be compared with the items of an index place by place."""
    if store.distance != "cosine":
        raise ValueError(f"rerank: places needs distance='cosine', got {store.distance!r}")
    if kind != "image":
        raise ValueError(f"rerank: places needs images as queries and a network that embeds them, got {kind}s")
    if model is None or "image" not in model.takes or "layer" not in signature(model.embed).parameters:
        raise ValueError("rerank: places needs a network that embeds images, and the model of the index is none")


def described(network: Any, images: Dataset) -> AnyArray:
    """Return the descriptors (n, h, w, c) of images; raise a ValueError if the network has none."""
    try:
        found: AnyArray = network.embed(images, layer="places")
    except NotImplementedError as error:
        raise ValueError(f"rerank: places: {error}") from error
    return found


def check_shapes(*descriptors: AnyArray) -> None:
    """Raise a ValueError if some images have other places (n, h, w, c) than others, because none was resized."""
    shapes = sorted({(found.shape[1], found.shape[2]) for found in descriptors})
    if len(shapes) > 1:
        sizes = " and ".join(f"{h} x {w}" for h, w in shapes[:2])
        raise ValueError(
            f"rerank: places needs images of one size for this network, which resizes none; got {sizes} places"
        )


def positions_in(hits: Hits) -> Ints:
    """Return the positions of all items among hits, each once and in order, (m,)."""
    found: Ints = np.unique(hits.positions[hits.positions >= 0])
    return found


def ranked_by_descriptors(
    hits: Hits, k: int, how: Places, of_queries: AnyArray, of_items: AnyArray
) -> tuple[Hits, dict[tuple[int, int], PlaceMatches]]:
    """Return the k nearest of the hits of each query by their cosine and their places, and which places match.

    Parameters
    ----------
    hits : Hits
        The first hits, with cosine distances.
    k : int
        Number of neighbors of each query.
    how : Places
        Settings.
    of_queries : ndarray of shape (n, h, w, c)
        Descriptors of the queries.
    of_items : ndarray of shape (m, h, w, c)
        Descriptors of the items at `positions_in(hits)`.

    Returns
    -------
    Hits
        The k nearest.
    dict
        Matches by the number of the query and the position of its neighbor.
    """
    from ..evaluation import local_scores, matched_places, rerank_by_places  # for start-up time

    check_shapes(of_queries, of_items)
    at = hits.positions
    there = at >= 0
    known = positions_in(hits)
    candidates = np.zeros(at.shape, np.intp)
    candidates[there] = np.searchsorted(known, at[there])
    local = local_scores(of_queries, of_items, candidates, tolerance=how.tolerance)
    similarities = np.where(there, 1 - hits.distances, BEHIND)
    found = rerank_by_places(similarities, local, np.arange(at.size).reshape(at.shape), k=k, weight=how.weight)
    positions = at.ravel()[found.indices]
    distances = np.where(positions >= 0, found.distances, np.inf)
    matches = {}
    for query, (of_query, of_hits) in enumerate(zip(of_queries, positions, strict=True)):
        for position in of_hits[of_hits >= 0]:
            item = of_items[np.searchsorted(known, position)]
            matches[query, int(position)] = matched_places(of_query, item, tolerance=how.tolerance)
    return Hits(hits.records, distances, positions), matches


def relative_boxes(places: Ints, shape: tuple[int, int], seen: Sequence[float], size: tuple[int, int]) -> Array:
    """Return where places are in an image: left, top, right and bottom as shares of its width and height, (m, 4).

    Parameters
    ----------
    places : ndarray of int, shape (m, 2)
        Row and column of each place.
    shape : (int, int)
        Number of rows and columns.
    seen : sequence of four floats
        The part of the image that the places cover: left, top, right and bottom, in pixels.
    size : (int, int)
        Width and height of the image in pixels.

    Examples
    --------
    >>> relative_boxes(np.array([[0, 1]]), (2, 2), (10, 0, 30, 20), (40, 20)).tolist()  # of its central square
    [[0.5, 0.0, 0.75, 0.5]]
    """
    left, top, right, bottom = seen
    h, w = shape
    width, height = size
    x = np.linspace(left, right, w + 1) / width
    y = np.linspace(top, bottom, h + 1) / height
    row, column = places.T
    return np.clip(np.stack([x[column], y[row], x[column + 1], y[row + 1]], axis=1), 0, 1)


def images_named(names: Sequence[str], read: Callable[[int], AnyArray], name: str) -> Dataset:
    """Return images without classes, such as items of an index."""
    return Dataset(
        name=name,
        labels=np.zeros(len(names), np.int64),
        classes=("",),
        kind="image",
        read=read,
        names=tuple(names),
    )


def _images_of(store: Store, hits: Hits) -> Dataset:
    """Return the items of an index as images, which are read from where the index was made."""
    names = hits.records.names.tolist()
    return images_named(names, pictures_of(names, store.about, Path(store.uri)), shown(store.uri))
