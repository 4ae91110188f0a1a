"""Compressed embeddings: half precision, 8-bit integers, and signs; search results are reordered by the full rows.

float16   2 d bytes
int8      d bytes: q = round((x - center) / step), clipped to -127..127, per dimension
binary    d / 8 bytes: the signs of x - center; nearness is the number of equal signs
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import as_rows, check_distance, pair_distances
from ..numerics.types import AnyArray, Array, Ints
from .nearest import nearest

LARGEST_CODE = 127  # the largest signed 8-bit code; -128 is not used, so that codes are symmetric about 0
COVERED = 0.999  # share of the calibration rows whose numbers are not clipped


class Calibration(NamedTuple):
    """Scale of 8-bit codes: x is approximately center + step * code.

    Attributes
    ----------
    center, step : ndarray of float32, shape (d,)
        Center and step of each dimension.
    """

    center: AnyArray
    step: AnyArray


def calibrate(rows: Any, *, covered: float = COVERED) -> Calibration:
    """Choose the range of the codes of every dimension from sample rows, such as the training items.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Sample rows.
    covered : float
        Share of the rows that the range covers in each dimension, in (0, 1]. Values outside the range are clipped.

    Raises
    ------
    ValueError
        If the rows are not finite, or the share is out of range.

    Examples
    --------
    >>> calibrate([[0.0, 5.0], [254.0, 5.0]], covered=1).step.tolist()
    [1.0, 1.0]
    """
    if not 0 < covered <= 1:
        raise ValueError(f"covered: expected a share above 0 and up to 1, got {covered!r:.40}")
    x = as_rows(rows, "rows")
    low, high = np.quantile(x, [(1 - covered) / 2, (1 + covered) / 2], axis=0)
    step = (high - low) / (2 * LARGEST_CODE)
    step = np.where(step > 0, step, 1.0)  # a constant dimension has the code 0
    return Calibration(((low + high) / 2).astype(np.float32), step.astype(np.float32))


def to_int8(rows: Any, calibration: Calibration) -> AnyArray:
    """Return the 8-bit codes of rows, int8 of shape (n, d).

    Examples
    --------
    >>> to_int8([[0.0, 9.0], [127.4, 5.0]], Calibration(np.zeros(2), np.ones(2))).tolist()
    [[0, 9], [127, 5]]
    """
    x = as_rows(rows, "rows")
    codes = np.rint((x - calibration.center) / calibration.step)
    return np.clip(codes, -LARGEST_CODE, LARGEST_CODE).astype(np.int8)


def from_int8(codes: AnyArray, calibration: Calibration) -> AnyArray:
    """Return the rows that 8-bit codes represent, float32 of shape (n, d)."""
    return np.asarray(calibration.center + calibration.step * codes.astype(np.float32), dtype=np.float32)


def to_binary(rows: Any, center: Any = 0.0) -> AnyArray:
    """Return the signs of centered rows as packed bits: uint8 of shape (n, ceil(d / 8)).

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Rows.
    center : array-like of shape (d,) or float
        Values to subtract, such as the mean of the collection. Without centering, dimensions that are always positive
        carry no information.

    Examples
    --------
    >>> to_binary([[1.0, -1.0, 2.0]]).tolist()
    [[160]]
    """
    return np.packbits(as_rows(rows, "rows") > np.asarray(center), axis=1)


def signs_of(codes: AnyArray, d: int) -> AnyArray:
    """Return the signs, -1 and 1, stored in binary codes, float32 of shape (n, d)."""
    return 2.0 * np.unpackbits(codes, axis=1, count=d).astype(np.float32) - 1.0


def search_binary(
    queries: AnyArray,
    codes: AnyArray,
    rows: AnyArray,
    k: int,
    *,
    d: int,
    oversample: int = 8,
    distance: str = "cosine",
    center: Any = 0.0,
) -> tuple[Array, Ints]:
    """Find the k nearest rows of each query among the candidates that binary codes propose.

    Parameters
    ----------
    queries : ndarray of shape (n, d)
        Queries.
    codes : ndarray of uint8, shape (m, ceil(d / 8))
        Codes of the rows to search, from `to_binary` with the same center.
    rows : ndarray of shape (m, d)
        Rows that determine the order of the candidates: the rows themselves, which may be a memory map on disk, or
        rows from `from_int8`. Only the candidates are read.
    k : int
        Number of neighbors of each query.
    d : int
        Number of dimensions.
    oversample : int
        Number of candidates, as a multiple of k.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance that orders the candidates.
    center : array-like of shape (d,) or float
        Center of the codes.

    Returns
    -------
    distances : ndarray of float64, shape (n, k)
        Distances to the neighbors.
    indices : ndarray of int, shape (n, k)
        Row numbers of the neighbors, nearest first.

    Raises
    ------
    ValueError
        If k is out of range.
    """
    check_distance(distance)
    wanted = min(len(codes), oversample * k)
    if not 1 <= k <= len(codes):
        raise ValueError(f"k: expected 1 to {len(codes)} (the rows that are searched), got {k!r}")
    # |s - t|^2 of signs is four times the number of unequal ones: the order of the Hamming distance, exact in float32
    query_signs = signs_of(to_binary(queries, center), d)
    candidates = nearest(query_signs, signs_of(codes, d), wanted, distance="sqeuclidean")[1]
    return rescored(queries, rows, candidates, k, distance=distance)


def rescored(
    queries: AnyArray, rows: AnyArray, candidates: Ints, k: int, *, distance: str = "cosine"
) -> tuple[Array, Ints]:
    """Keep the k nearest of the candidates (n, c) of each query by their exact distances; ties are broken by row."""
    pairs = np.broadcast_to(np.arange(len(queries))[:, None], candidates.shape)
    distances = pair_distances(queries, rows, pairs, candidates, distance)
    # by distance, ties by row; the codes proposed the candidates, and have no say in their order
    order = np.lexsort((candidates, distances))[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(candidates, order, axis=1)
