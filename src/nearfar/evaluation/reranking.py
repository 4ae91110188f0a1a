"""Re-ranking by a text with the name of a method, for the argument `rerank`.

    expand_queries       queries are expanded
    augment_gallery      queries and the items of the gallery are expanded
    k_reciprocal, csls   items are ranked by values of the method instead of distances
    places               the first hits are ranked by the places of their images, in searches only

Settings follow in parentheses, with the names of the functions: ``"k_reciprocal(k1=30, weight=0.5)"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, NamedTuple

from ..expressions import Call, ExpressionError, parse, settings_of
from ..neighbors.nearest import nearest
from ..numerics.distances import as_rows
from ..numerics.types import AnyArray
from ..quoting import quoted
from .local_matches import check_tolerance, check_weight
from .rerank import (
    LocalScaling,
    RankedByValues,
    Ranking,
    Reciprocal,
    augment_gallery,
    csls,
    expand_queries,
    k_reciprocal,
)

METHODS: dict[str, Callable[..., Any]] = {
    "expand_queries": expand_queries,
    "augment_gallery": augment_gallery,
    "k_reciprocal": k_reciprocal,
    "csls": csls,
}
BY_COSINE = ("expand_queries", "augment_gallery", "csls")
OWN_OF_CALLS = ("queries", "gallery", "depth", "distance")  # arguments that are not settings of a method


class Reranking(NamedTuple):
    """A method and its settings."""

    method: str
    settings: dict[str, Any]

    def __str__(self) -> str:
        if not self.settings:
            return self.method
        return f"{self.method}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


class Reranked(NamedTuple):
    """What replaces the queries and the gallery in the search.

    Attributes
    ----------
    queries, gallery : ndarray
        Embeddings, which are compared by their distance if `by` is None.
    by : RankedByValues, or None
        Method that ranks by other values than distances.
    """

    queries: AnyArray
    gallery: AnyArray
    by: RankedByValues | None = None


class Places(NamedTuple):
    """Settings of the re-ranking by places: how many first hits, and those of `rerank_by_places` and `local_scores`."""

    first: int
    weight: float
    tolerance: int


def places(*, first: int = 50, weight: float = 0.5, tolerance: int = 1) -> Places:
    """Return the settings of the method, which reads images and therefore belongs to `nearfar.index.search`."""
    if not isinstance(first, int) or first < 1:
        raise ValueError(f"rerank: places: first must be a whole number of at least 1, got {first!r:.40}")
    check_weight("rerank: places: weight", weight)
    check_tolerance("rerank: places: tolerance", tolerance)
    return Places(first, weight, tolerance)


PLACES = "places"
SEARCHES: dict[str, Callable[..., Any]] = {**METHODS, PLACES: places}
"""Methods of a search, which has the images."""


def read_reranking(text: str, methods: Mapping[str, Callable[..., Any]] = METHODS) -> Reranking:
    """Parse the text of a method.

    Parameters
    ----------
    text : str
        ``"expand_queries"``, ``"augment_gallery"``, ``"k_reciprocal"`` or ``"csls"``, optionally with settings.
    methods : mapping
        Functions of the methods by name.

    Raises
    ------
    ValueError
        If the method or a setting is unknown.

    Examples
    --------
    >>> str(read_reranking("k_reciprocal( k1 = 30 )"))
    'k_reciprocal(k1=30)'
    """
    expected = f"one of {', '.join(methods)}, optionally with settings such as k_reciprocal(k1=20)"
    if not isinstance(text, str):
        raise ValueError(f"rerank: expected {expected}, got {quoted(text)}")
    try:
        call = parse(text, expected)
        if not isinstance(call, Call) or call.name not in methods:
            raise ValueError(f"rerank: expected {expected}, got {quoted(text)}")
        return Reranking(call.name, settings_of(call, _settings(methods[call.name])))
    except ExpressionError as error:
        raise ValueError(f"rerank: {error}") from error


def _settings(function: Callable[..., Any]) -> dict[str, Parameter]:
    parameters = signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in OWN_OF_CALLS}


def compared(
    text: str | RankedByValues, queries: AnyArray, gallery: AnyArray, *, leave_one_out: bool, distance: str
) -> Reranked:
    """Return what replaces queries and gallery in the search; these are the same if each query searches all others.

    The method is a text, or an object that ranks by its own values.

    Raises
    ------
    ValueError
        If the method is unknown, a setting is out of range, or the method does not support the distance.
    """
    if isinstance(text, RankedByValues):
        return Reranked(queries, gallery, text)
    method, settings = read_reranking(text)
    if method in BY_COSINE and distance != "cosine":
        raise ValueError(f"rerank: {method} needs distance='cosine', got {distance!r}; k_reciprocal supports any")
    searched = None if leave_one_out else gallery
    _check_number_of_neighbors(method, settings, len(gallery), leave_one_out=leave_one_out)
    if method == "k_reciprocal":
        return Reranked(queries, gallery, Reciprocal(queries, searched, distance=distance, **settings))
    if method == "csls":
        return Reranked(queries, gallery, LocalScaling(queries, searched, **settings))
    expanded = expand_queries(queries, searched, **settings)
    if method == "expand_queries":
        return Reranked(expanded, gallery)
    if leave_one_out:
        return Reranked(expanded, expanded)
    return Reranked(expanded, augment_gallery(gallery, **settings))


def _check_number_of_neighbors(method: str, settings: dict[str, Any], m: int, *, leave_one_out: bool) -> None:
    """Raise a ValueError that names the method if its k is larger than the number of items that can be found.

    The search has a k of its own, to which the error of the function itself would seem to refer. `k_reciprocal` has no
    k, and works with any number of items.
    """
    parameters = _settings(METHODS[method])
    if "k" not in parameters:
        return
    most = m - 1 if leave_one_out or method == "augment_gallery" else m
    k = settings.get("k", parameters["k"].default)
    if isinstance(k, int) and 1 <= most < k:
        found = f"needs {k} other items to find, and there are {most}"
        raise ValueError(f"rerank: {method} {found}; set a smaller number, as in {method}(k={most})")


def search_reranked(queries: Any, gallery: Any, k: int, rerank: str, *, distance: str = "cosine") -> Ranking:
    """Find the k nearest items of every query after re-ranking.

    Parameters
    ----------
    queries : array-like of shape (n, d)
        Embeddings.
    gallery : array-like of shape (m, d)
        Embeddings to search.
    k : int
        Number of neighbors of each query, at most m.
    rerank : str
        Method, as in `evaluate`.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared. Only k_reciprocal supports others than "cosine".

    Returns
    -------
    Ranking
        Its distances are those of the method: distances to the expanded queries, or other values.

    Raises
    ------
    ValueError
        If an argument is not valid, as in `evaluate`, or k is larger than the gallery.

    Examples
    --------
    >>> gallery = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]
    >>> search_reranked([[0.8, 0.6]], gallery, 2, "expand_queries(k=2)").indices.tolist()
    [[1, 0]]
    """
    x = as_rows(queries, "queries")
    y = as_rows(gallery, "gallery")
    found = compared(rerank, x, y, leave_one_out=False, distance=distance)
    if found.by is not None:
        return found.by.ranking(k)
    return Ranking(*nearest(found.queries, found.gallery, k, distance=distance))
