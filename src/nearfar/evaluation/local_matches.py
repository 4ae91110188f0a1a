"""Re-ranking of the first hits by local descriptors: places of two images that match, and in one arrangement.

    s_pq = cos(a_p, b_q)        p, q: places of the last maps, or patches, of query a and candidate b
    M = {(p, q): q = argmax s_p., p = argmax s_.q}                              mutual nearest neighbors
    local(a, b) = max_o sum_{(p, q) in M, |q - p - o| <= tolerance} max(s_pq, 0) / P
    value(a, b) = (1 - weight) cos(a, b) + weight local(a, b)

The offset o is that by which most matches agree: the object may have moved, but its parts have moved together. P is the
number of places, so that an image has 1 with itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import as_rows
from ..numerics.types import AnyArray, Array, Bools, Ints
from .rerank import Ranking

BLOCK_CELLS = 2**23  # numbers in the similarities of the places of one block of pairs, and in the places themselves


class PlaceMatches(NamedTuple):
    """Places of two images that match, in one arrangement.

    Attributes
    ----------
    shape : (int, int)
        Number of rows and columns of the places of an image.
    query, item : ndarray of int, shape (m, 2)
        Row and column of each match in the two images, from the top left.
    """

    shape: tuple[int, int]
    query: Ints
    item: Ints


def local_scores(queries: Any, items: Any, candidates: Any, *, tolerance: int = 1) -> Array:
    """Score how well the places of each query match those of its candidates, in one arrangement.

    Parameters
    ----------
    queries : array-like of shape (n, h, w, c)
        Local descriptors of the queries at h x w places, compared by cosine.
    items : array-like of shape (m, h, w, c)
        Local descriptors of the items.
    candidates : array-like of int, shape (n, k)
        Row numbers of the items that each query is compared with.
    tolerance : int
        Number of places by which a match may differ from the common offset, along each axis.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Scores in [0, 1], up to rounding; 1 for an image and itself.

    Raises
    ------
    ValueError
        If the shapes do not belong together, a descriptor is not finite, or a candidate is no row of `items`.

    Examples
    --------
    >>> import numpy as np
    >>> parts = np.eye(9).reshape(3, 3, 9)  # nine places, all different
    >>> moved = np.roll(parts, 1, axis=1)  # of which six move along, and three appear at the other side
    >>> local_scores([parts], [parts, moved], [[0, 1]], tolerance=0).round(2).tolist()
    [[1.0, 0.67]]
    """
    a = _unit_places("queries", queries)
    b = _unit_places("items", items)
    if a.shape[1:] != b.shape[1:]:
        raise ValueError(f"items: expected maps of {a.shape[1:]} as the queries, got {b.shape[1:]}")
    at = np.asarray(candidates)
    if at.ndim != 2 or len(at) != len(a) or at.dtype.kind not in "iu":
        raise ValueError(f"candidates: expected ({len(a)}, k) row numbers, got {at.dtype} of shape {at.shape}")
    if at.size and not 0 <= at.min() <= at.max() < len(b):
        raise ValueError(f"candidates: expected row numbers in 0..{len(b) - 1}, got {at.min()}..{at.max()}")
    check_tolerance("tolerance", tolerance)
    _, h, w, c = a.shape
    P = h * w
    a = a.reshape(len(a), P, c)
    b = b.reshape(len(b), P, c)
    of = np.repeat(np.arange(len(a)), at.shape[1])  # the query of each pair
    scores = np.empty(at.size)
    for pairs in _blocks(at.size, P * max(P, 2 * c)):
        s = a[of[pairs]] @ b[at.ravel()[pairs]].transpose(0, 2, 1)  # (b, P, P)
        scores[pairs] = _agreeing(s, (h, w), int(tolerance)) / P
    return scores.reshape(at.shape)


def matched_places(query: Any, item: Any, *, tolerance: int = 1) -> PlaceMatches:
    """Find the places of two images that `local_scores` counts.

    Parameters
    ----------
    query, item : array-like of shape (h, w, c)
        Local descriptors of the two images.
    tolerance : int
        As for `local_scores`.

    Returns
    -------
    PlaceMatches
        Mutual nearest places with a positive cosine that agree in how far they have moved.

    Raises
    ------
    ValueError
        If the shapes differ, or a descriptor is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> parts = np.eye(9).reshape(3, 3, 9)  # nine places, all different
    >>> moved = np.roll(parts, 1, axis=1)  # of which six move along
    >>> found = matched_places(parts, moved, tolerance=0)
    >>> found.query.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    >>> (found.item - found.query).tolist()[0]
    [0, 1]
    """
    a = _unit_places("query", [query])[0]
    b = _unit_places("item", [item])[0]
    if a.shape != b.shape:
        raise ValueError(f"item: expected a map of {a.shape} as the query, got {b.shape}")
    check_tolerance("tolerance", tolerance)
    h, w, c = a.shape
    s = a.reshape(1, h * w, c) @ b.reshape(1, h * w, c).transpose(0, 2, 1)  # (1, P, P)
    there, votes = _mutual(s)
    moves = _moves(there, (h, w))
    by_offset = _votes_by_offset(moves, votes, (h, w), int(tolerance))[0]
    offset = np.array(np.unravel_index(by_offset.argmax(), by_offset.shape)) - (h - 1, w - 1)
    near = np.abs(moves[:, 0] - offset[:, None]) <= tolerance  # (2, P)
    counted = near.all(axis=0) & (votes[0] > 0)
    at = np.flatnonzero(counted)
    return PlaceMatches((h, w), _rows_and_columns(at, w), _rows_and_columns(there[0, at], w))


def rerank_by_places(
    similarities: Any, local: Any, candidates: Any, *, k: int | None = None, weight: float = 0.5
) -> Ranking:
    """Rank the candidates of each query by their cosine and the score of their places together.

    Parameters
    ----------
    similarities : array-like of shape (n, k)
        Cosines of the embeddings of each query and its candidates.
    local : array-like of shape (n, k)
        Scores of `local_scores`.
    candidates : array-like of int, shape (n, k)
        Row numbers of the candidates.
    k : int, optional
        Number of candidates to return. By default, all.
    weight : float
        Weight of `local`, in [0, 1].

    Returns
    -------
    Ranking
        Its distances are one minus the mixed similarities.

    Raises
    ------
    ValueError
        If the shapes differ, or a setting is out of range.

    Examples
    --------
    >>> rerank_by_places([[0.9, 0.8]], [[0.1, 0.6]], [[7, 4]]).indices.tolist()
    [[4, 7]]
    """
    s = as_rows(similarities, "similarities").astype(np.float64)
    t = as_rows(local, "local").astype(np.float64)
    at = np.asarray(candidates)
    if not s.shape == t.shape == at.shape:
        raise ValueError(f"local, candidates: expected the shape of similarities, {s.shape}; got {t.shape}, {at.shape}")
    check_weight("weight", weight)
    values = 1 - ((1 - weight) * s + weight * t)
    order = np.argsort(values, axis=1, kind="stable")[:, :k]
    return Ranking(np.take_along_axis(values, order, axis=1), np.take_along_axis(at, order, axis=1))


def check_tolerance(name: str, tolerance: Any) -> None:
    """Raise unless it is a whole number of places."""
    if not isinstance(tolerance, Integral) or tolerance < 0:
        raise ValueError(f"{name}: expected a whole number of at least 0, got {tolerance!r:.40}")


def check_weight(name: str, weight: Any) -> None:
    """Raise unless it is a share."""
    if not isinstance(weight, Real) or not 0 <= float(weight) <= 1:
        raise ValueError(f"{name}: expected a number in 0..1, got {weight!r:.40}")


def _agreeing(s: AnyArray, shape: tuple[int, int], tolerance: int) -> Array:
    """Return the sum of the mutual matches in (b, P, P) similarities that agree in an offset, for the best offset."""
    there, votes = _mutual(s)
    found: Array = _votes_by_offset(_moves(there, shape), votes, shape, tolerance).max(axis=(1, 2))
    return found


def _mutual(s: AnyArray) -> tuple[Ints, Array]:
    """Return the nearest place q of each p, and its similarity where p is also that of q, or else 0; both (b, P)."""
    there = s.argmax(axis=2)
    back = np.take_along_axis(s.argmax(axis=1), there, axis=1)
    mutual: Bools = back == np.arange(s.shape[1])
    best = np.take_along_axis(s, there[:, :, None], axis=2)[:, :, 0]
    return there, np.where(mutual, np.maximum(best, 0), 0).astype(np.float64)


def _moves(there: Ints, shape: tuple[int, int]) -> Ints:
    """Return how far places have moved, (2, b, P): rows down, and columns to the right."""
    h, w = shape
    rows, columns = np.divmod(np.arange(h * w), w)
    return np.stack([there // w - rows, there % w - columns])


def _votes_by_offset(moves: Ints, votes: Array, shape: tuple[int, int], tolerance: int) -> Array:
    """Return the sum of the votes near each offset, from -(h - 1) to h - 1 rows and -(w - 1) to w - 1 columns."""
    h, w = shape
    b = len(votes)
    height = 2 * h - 1
    width = 2 * w - 1
    down, right = moves
    cell = (np.arange(b)[:, None] * height + down + h - 1) * width + right + w - 1
    sums: Array = np.bincount(cell.ravel(), votes.ravel(), b * height * width).astype(np.float64)
    histogram = sums.reshape(b, height, width)
    for axis, size in ((1, height), (2, width)):  # sums over boxes, one axis at a time
        reach = min(tolerance, size - 1)
        edges = [(0, 0), (0, 0), (0, 0)]
        edges[axis] = (reach, reach)
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(histogram, edges), 2 * reach + 1, axis)
        histogram = np.sum(windows, axis=3)
    return histogram


def _rows_and_columns(places: Ints, w: int) -> Ints:
    """Return the row and the column of each place, (m, 2)."""
    return np.stack(np.divmod(places, w), axis=1)


def _unit_places(name: str, given: Any) -> AnyArray:
    """Return maps (n, h, w, c) whose descriptors have unit length; zeros stay zeros."""
    maps = np.asarray(given)
    if maps.dtype != np.float32:
        maps = maps.astype(np.float64)
    if maps.ndim != 4 or not all(maps.shape[1:]):
        raise ValueError(f"{name}: expected maps of shape (n, h, w, c), got {maps.shape}")
    if not np.isfinite(maps).all():
        raise ValueError(f"{name}: expected finite numbers")
    lengths = np.linalg.norm(maps, axis=3, keepdims=True)
    found: AnyArray = maps / np.where(lengths > 0, lengths, 1)
    return found


def _blocks(pairs: int, cells: int) -> Iterator[slice]:
    """Yield blocks of pairs, each of which takes so many numbers."""
    step = max(1, BLOCK_CELLS // cells)
    for start in range(0, pairs, step):
        yield slice(start, start + step)
