"""Target neighbors and impostors, the rows of other classes that come too near, found exactly in blocks.

    N_i = the k nearest rows of i's class;  l is an impostor of i where |z_i - z_l|^2 < 1 + max_{j in N_i} |z_i - z_j|^2

Impostors are proposed by blocks of float32 products, whose bounds include the rounding error, so that none is missed;
the caller measures the pairs in float64. Labels must be sorted, so that each class is one range of rows;
`rows_by_class` sorts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...fit_warnings import warn
from ...numerics.checks import class_sizes
from ...numerics.constraints import distinct
from ...numerics.pair_differences import squared_distances
from ...numerics.types import AnyArray, Array, Bools, Ints

IMPOSTOR_BLOCK_CELLS = 1 << 21  # cells in one block of products
GROUP = 512  # rows of small classes that share a block
MAX_IMPOSTORS = 10_000_000  # most impostors kept at a time


class Impostors(NamedTuple):
    """Pairs (i, l) in order of i; each is compared with all k targets of i, or with the listed ones.

    Attributes
    ----------
    i, l : ndarray of shape (m,)
        Rows and their impostors. `find` lists them in 4 bytes each, because there may be millions.
    target : ndarray of shape (m,) or None
        The pull with which each pair is compared. If None, the pulls k i, ..., k i + k - 1.
    complete : bool
        Whether the list holds all impostors.
    """

    i: AnyArray
    l: AnyArray
    target: Ints | None = None
    complete: bool = True

    def joined(self, other: Impostors) -> Impostors:
        """Return the impostors of both lists, each once."""
        n = 1 + max(int(part.max(initial=0)) for part in (self.l, other.l))
        keys = np.concatenate([part.i * np.int64(n) + part.l for part in (self, other)])
        both = distinct(keys)
        i = (both // n).astype(np.int32)
        l = (both % n).astype(np.int32)
        return Impostors(i, l, None, self.complete and other.complete)


def rows_by_class(X: Array, labels: Ints) -> tuple[Array, Ints]:
    """Return the rows of known class and their labels, sorted by class."""
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]  # -1 sorts first
    return X[order], labels[order]


def class_groups(labels: Ints) -> Iterator[slice]:
    """Yield ranges of whole classes of sorted labels: one large class, or small ones of up to about `GROUP` rows."""
    ends = np.flatnonzero(np.diff(labels, append=labels[-1] + 1)) + 1
    start = 0
    for end, following in zip(ends, np.append(ends[1:], np.inf), strict=True):
        if following - start > GROUP:
            yield slice(start, int(end))
            start = int(end)


def target_neighbors(X: Array, labels: Ints, k: int, wanted_rows: Ints | None = None) -> Ints:
    """Return the k nearest rows of the same class, nearest first, shape (n, k); labels must be sorted.

    If the class of a row has fewer other rows, the row itself fills the remaining places. A row that is not in
    `wanted_rows` (sorted; by default, all rows) fills all its places. k is at most the size of the largest class
    minus 1.
    """
    if wanted_rows is None:
        wanted_rows = np.arange(len(X))
    sizes = class_sizes(labels)
    k = max(1, min(k, int(sizes.max()) - 1))
    out = np.repeat(np.arange(len(X))[:, None], k, axis=1)
    for group in class_groups(labels):
        size = group.stop - group.start
        step = max(1, IMPOSTOR_BLOCK_CELLS // size)
        width = min(k, size)
        first, last = np.searchsorted(wanted_rows, (group.start, group.stop))
        for a in range(first, last, step):
            rows = wanted_rows[a : min(a + step, last)]
            D = squared_distances(X[rows], X[group])  # (b, size)
            # small classes share a block; neither rows of other classes nor the row itself are its targets
            D[labels[rows, None] != labels[group]] = np.inf
            D[np.arange(len(D)), rows - group.start] = np.inf
            near = smallest(D, width)
            there = np.isfinite(np.take_along_axis(D, near, axis=1))
            out[rows, :width] = np.where(there, group.start + near, rows[:, None])
    return out


def smallest(D: AnyArray, k: int) -> Ints:
    """Return the columns of the k smallest values of each row, in increasing order."""
    # by column first, so that the stable sort below breaks ties by column
    at = np.sort(np.argpartition(D, k - 1, axis=1)[:, :k], axis=1)
    return np.take_along_axis(at, np.argsort(np.take_along_axis(D, at, 1), axis=1, kind="stable"), 1)


def find(Z: Array, labels: Ints, radius: Array, most: int = MAX_IMPOSTORS, pushers: Ints | None = None) -> Impostors:
    """Return all pairs (i, l) of different classes with |z_i - z_l|^2 < radius_i, and some within rounding of it.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Rows.
    labels : ndarray of shape (n,)
        Sorted class codes.
    radius : ndarray of shape (n,)
        Squared radius of each row; rows whose radius is not positive have no impostors.
    most : int
        Approximate maximum number of pairs. If there are more, only the nearest impostors of each row are kept, with a
        warning.
    pushers : ndarray of int, optional
        Rows l that are searched, in increasing order. By default, all rows.
    """
    if pushers is None:
        pushers = np.arange(len(Z))
    n = len(pushers)
    wanted_rows = np.flatnonzero(radius > 0)
    # end of each class among the rows that push
    stops = np.cumsum(np.bincount(labels[pushers], minlength=int(labels[-1]) + 1))
    left, right, bound = factors(Z, radius)
    if n < len(Z):
        right = right[pushers]
    per_row = max(1, most // max(len(wanted_rows), 1))
    complete = True
    total = 0
    column_rows = pushers.astype(np.int32)
    found: list[tuple[AnyArray, AnyArray]] = [(column_rows[:0], column_rows[:0])]
    step = max(1, IMPOSTOR_BLOCK_CELLS // n)
    for start in range(0, len(wanted_rows), step):
        rows = wanted_rows[start : start + step]
        D = left[rows] @ right.T
        hit = np.less(D, bound[rows, None])
        hide_own_class(hit, labels[rows], stops)
        total += int(np.count_nonzero(hit))
        # rows may differ in their numbers of impostors: the limit applies to the mean so far, plus a quarter
        if total > per_row * (start + len(D)) + most // 4:
            complete = False
            total = per_row * (start + len(D))
            keep_nearest(hit, D, per_row)
        i, l = np.divmod(np.flatnonzero(hit), n)
        found.append((rows.astype(np.int32)[i], column_rows[l]))
    if not complete:
        warn(f"there are more than {most} impostors; each row keeps its {per_row} nearest: scale the features up")
    i, l = (np.concatenate(part) for part in zip(*found, strict=True))
    return Impostors(i, l, None, complete)


def factors(Z: Array, radius: Array) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return float32 factors and bounds with ``left @ right.T < bound`` wherever the distance is below the radius."""
    # |z_i - z_l|^2 < r_i  <=>  -2 z_i'z_l + |z_l|^2 < r_i - |z_i|^2
    C = Z - Z.mean(axis=0)
    square = np.einsum("np,np->n", C, C)
    # p + 1 products, each off by at most one unit of roundoff of |z_i|^2 + |z_l|^2, and the three conversions
    error = 2.0**-24 * (C.shape[1] + 8) * 2 * (square + square.max(initial=0.0))
    left = np.column_stack([-2 * C, np.ones(len(C))]).astype(np.float32)
    right = np.column_stack([C, square]).astype(np.float32)
    bound = radius - square + error
    return left, right, np.nextafter(bound.astype(np.float32), np.float32(np.inf))


def hide_own_class(hit: Bools, labels: Ints, stops: Ints) -> None:
    """Clear the entries of rows of the same class, one rectangle for each class of the block."""
    cuts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    for cut, stop in zip(cuts, np.append(cuts[1:], len(labels)), strict=True):
        c = labels[cut]
        first = 0 if c == 0 else stops[c - 1]
        hit[cut:stop, first : stops[c]] = False


def keep_nearest(hit: Bools, D: AnyArray, k: int) -> None:
    """Keep at most about k hits in each row, the nearest ones."""
    allowed = np.where(hit, D, np.inf)
    limit = np.partition(allowed, min(k, D.shape[1] - 1), axis=1)[:, min(k, D.shape[1] - 1)]
    hit &= np.less_equal(D, limit[:, None])
