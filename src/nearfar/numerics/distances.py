"""Distances between rows: exact values for listed pairs, and blocks for whole tables.

Three distances: ``euclidean`` |x - y|, ``sqeuclidean`` |x - y|^2, ``cosine`` 1 - x.y / (|x| |y|). A zero row has the
cosine distance 1 to every row.

The module also offers Mahalanobis distances of points to sets and between sets: `point_to_set`, `set_to_set`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..progress import counted
from ..quoting import quoted
from .checks import require_plain
from .mahalanobis import point_to_set as point_to_set
from .mahalanobis import set_to_set as set_to_set
from .types import AnyArray, Array, Ints

DISTANCES = ("cosine", "euclidean", "sqeuclidean")
MAX_MAGNITUDE = 1e70  # products of squares of larger values overflow float64
PAIR_VALUES = 2**20  # float64 values gathered at a time for listed pairs


def as_rows(x: Any, name: str = "embeddings") -> AnyArray:
    """Return rows, given as an array, list or tensor, as a finite float32 or float64 array.

    Parameters
    ----------
    x : array-like of shape (n, d)
        Anything that NumPy reads, or a tensor with ``detach``. Half precision becomes float32, and integers float64.
    name : str
        Name of the argument for error messages.

    Returns
    -------
    ndarray of shape (n, d)
        Rows, which share the memory of `x` if the type allows it.

    Raises
    ------
    ValueError
        The rows are not two-dimensional, not numeric, have no rows or columns, or hold NaN, infinity or values above
        1e70 (the message counts such rows).

    Examples
    --------
    >>> as_rows([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    if type(x) is not np.ndarray or x.dtype.kind not in "fiub":
        require_plain(x, name)
    if hasattr(x, "toarray"):
        raise ValueError(f"{name}: expected a dense table, got a sparse one of shape {x.shape}; pass {name}.toarray()")
    rows = np.asarray(_detached(x))
    if rows.dtype == object and rows.ndim == 2:  # as those of nullable columns of pandas
        rows = _as_floats(rows, name)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name}: expected a table of shape (rows, columns), got shape {rows.shape}")
    if rows.dtype.kind not in "fiub":
        raise ValueError(f"{name}: expected real numbers, got dtype {rows.dtype}")
    if rows.dtype not in (np.float32, np.float64):
        wider = np.float32 if rows.dtype == np.float16 else np.float64
        rows = rows.astype(wider)
    _check_finite(rows, name)
    return rows


def _as_floats(cells: AnyArray, name: str) -> Array:
    """Return cells of objects as numbers."""
    try:
        return cells.astype(np.float64)
    except (TypeError, ValueError) as error:
        first = next((cell for cell in cells.flat if not isinstance(cell, (int, float))), None)
        raise ValueError(f"{name}: expected real numbers, got {type(first).__name__}, {quoted(first)}") from error


def _detached(x: Any) -> Any:
    if not hasattr(x, "detach"):
        return x
    x = x.detach().cpu()
    if "bfloat16" in str(x.dtype):  # a type that NumPy does not have
        x = x.float()
    return x.numpy()


def _check_finite(rows: AnyArray, name: str) -> None:
    largest = np.maximum(np.abs(rows.max(axis=1)), np.abs(rows.min(axis=1)))
    # negated, so that rows with NaN are bad, too
    bad = np.flatnonzero(~(largest.astype(np.float64) <= MAX_MAGNITUDE))
    if bad.size == 0:
        return
    first = ", ".join(map(str, bad[:5]))
    if np.isfinite(largest[bad]).all():
        what = "values above 1e70"
    else:
        what = "NaN or infinite values"
    raise ValueError(f"{name}: {bad.size} of {len(rows)} rows hold {what} (first rows: {first})")


def check_distance(distance: str) -> str:
    """Return the name of a known distance; raise a ValueError that lists them for any other."""
    if distance not in DISTANCES:
        raise ValueError(f"distance: expected one of {', '.join(DISTANCES)}, got {quoted(distance)}")
    return distance


def row_squares(x: AnyArray) -> Array:
    """Return the squared Euclidean norms of the rows in float64, (n,); equal rows have equal values."""
    parts = (part.astype(np.float64, copy=False) for part in chunks(x))
    return np.concatenate([_dots(part, part) for part in parts])


def unit_rows(x: AnyArray) -> Array:
    """Return the rows scaled to unit length in float64, (n, d); rows of zeros are left unchanged."""
    norms = np.sqrt(row_squares(x))
    return x / np.where(norms > 0, norms, 1.0)[:, None]


def pair_distances(x: AnyArray, y: AnyArray, i: Ints, j: Ints, distance: str = "euclidean") -> Array:
    """Return the distances of the listed pairs ``x[i], y[j]``, in float64 and without cancellation.

    Parameters
    ----------
    x, y : ndarray of shape (n, d), (m, d)
        Rows.
    i, j : ndarray of int, equal shapes
        Pairs of row numbers.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance to compute.

    Returns
    -------
    ndarray of float64, shape of ``i``
        Distances. Each depends only on its two rows, so equal rows give equal values. The computation takes about 16
        MB of memory.

    Examples
    --------
    >>> pair_distances(np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([0]), np.array([0]))
    array([5.])
    """
    check_distance(distance)
    if distance == "cosine":
        # rounding can leave the cosine of parallel rows just above 1
        return np.maximum(1.0 - pair_cosines(x, y, i, j), 0.0)
    squares = _by_pairs(x, y, i, j, _squares)
    if distance == "euclidean":
        return np.sqrt(squares)
    return squares


def pair_cosines(
    x: AnyArray,
    y: AnyArray,
    i: Ints,
    j: Ints,
    squares: tuple[Array, Array] | None = None,
) -> Array:
    """Return the cosines of the listed pairs ``x[i], y[j]`` in float64; 0 if a row is zero.

    ``squares``, the `row_squares` of x and of y, saves time over many calls.
    """
    if squares is None:
        xx = _squares_of(x, i)
        yy = _squares_of(y, j)
    else:
        xx = squares[0][i]
        yy = squares[1][j]
    length = np.sqrt(xx * yy)  # exactly |x|^2 where both rows are equal
    return _by_pairs(x, y, i, j, _dots) / np.where(length > 0, length, 1.0)


def _squares_of(x: AnyArray, i: Ints) -> Array:
    """Return the squared lengths of the listed rows, shape of ``i``; if they are few, without reading all rows."""
    if np.size(i) >= len(x):
        return row_squares(x)[i]
    return _by_pairs(x, x, i, i, _dots)


def _by_pairs(x: Any, y: Any, i: Any, j: Any, value: Any) -> Array:
    """Return ``value(a, b)``, for rows a and b of the listed pairs in float64, with the shape of i."""
    out = np.empty(np.size(i))
    shape = np.shape(i)
    i = np.ravel(i)
    j = np.ravel(j)
    step = max(1, PAIR_VALUES // x.shape[1])
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        a = x[i[part]].astype(np.float64, copy=False)
        b = y[j[part]].astype(np.float64, copy=False)
        out[part] = value(a, b)
    return out.reshape(shape)


def _squares(a: Array, b: Array) -> Array:
    difference = a - b
    return np.einsum("ij,ij->i", difference, difference)


def _dots(a: Array, b: Array) -> Array:
    return np.einsum("ij,ij->i", a, b)


def distance_blocks(
    x: AnyArray, y: AnyArray, distance: str = "euclidean", block: int = 1024, *, ahead: bool = False
) -> Iterator[tuple[slice, Array]]:
    """Yield all distances of ``x`` to ``y``, one block of rows at a time: (rows of x, table of shape (block, m)).

    With ``ahead``, a block is compared only with the rows of ``y`` from its first row number on, which covers every
    pair if x is y.
    """
    cosine = check_distance(distance) == "cosine"
    if cosine:
        a = unit_rows(x)
        b = unit_rows(y)
    else:
        # centered, because |a|^2 + |b|^2 - 2 a.b loses the digits of rows that are far from 0
        center = y.mean(axis=0, dtype=np.float64)
        a = x - center
        b = y - center
    aa = np.einsum("ij,ij->i", a, a)
    bb = np.einsum("ij,ij->i", b, b)
    firsts = range(0, len(x), block)
    for start in counted(firsts, "comparing", len(firsts)):
        rows = slice(start, min(start + block, len(x)))
        others = slice(start if ahead else 0, None)
        table = a[rows] @ b[others].T
        if cosine:
            np.subtract(1.0, table, out=table)
        else:
            # |a|^2 - 2 a.b + |b|^2
            table *= -2.0
            table += aa[rows][:, None]
            table += bb[others]
        np.maximum(table, 0.0, out=table)
        if distance == "euclidean":
            np.sqrt(table, out=table)
        yield rows, table


def starts(rows: AnyArray) -> range:
    """Return the first row number of each of the `chunks`."""
    return range(0, len(rows), max(1, PAIR_VALUES // rows.shape[1]))


def chunks(rows: AnyArray) -> Iterator[AnyArray]:
    """Yield the rows in pieces of about a million values."""
    firsts = starts(rows)
    return (rows[first : first + firsts.step] for first in firsts)
