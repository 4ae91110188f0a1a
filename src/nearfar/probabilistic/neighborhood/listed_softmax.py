"""The softmax over a few listed neighbors per row; `probabilistic.neighbor_softmax` sums over all pairs.

p_ij = exp(-d_ij) / sum_{k in N_i} exp(-d_ik),  j in N_i;  p_i = sum of p_ij over the neighbors of the class of i
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...fit_warnings import warn
from ...neighbors import by_class
from ...numerics.pair_differences import PairList
from ...numerics.types import AnyArray, Array, Bools, Ints
from ..neighbor_softmax import KINDS


class Lists(NamedTuple):
    """Neighbors of rows, and whether each is of the class of its row.

    Attributes
    ----------
    pairs : PairList
        Pairs (anchor, neighbor), sorted by anchor.
    same : ndarray of shape (m,)
        Whether both rows of each pair are of the same class, in the order of `pairs`.
    anchors : ndarray of shape (a,)
        Rows that have neighbors.
    weight : ndarray of shape (a,)
        1.0, or 0.0 for rows without a neighbor of their class, which do not count as anchors.
    """

    pairs: PairList
    same: Bools
    anchors: Ints
    weight: Array


def lists(i: Ints, j: Ints, same: Bools, n: int) -> Lists:
    """Return the lists of neighbors j of anchors i among n rows."""
    pairs = PairList(i, j, n)
    same = same[pairs.order]
    anchors = np.unique(i)
    mates = np.bincount(pairs.i, same, n)[anchors]
    return Lists(pairs, same, anchors, np.where(mates > 0, 1.0, 0.0))


def nearest_lists(X: Array, labels: Ints, k: int, name: str = "k") -> Lists:
    """Return the k nearest rows of the same class (hits) and of other classes (misses), or fewer if there are fewer.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes of at least 0.
    k : int
        Number of hits and of misses.
    name : str
        Name of the user's setting for k, for the warning that there are fewer neighbors.
    """
    hits = by_class.nearest_of_class(X, labels, k)  # (n, k), -1 where there are fewer
    misses = by_class.nearest_of_others(X, labels, k)
    few = []
    for near, kind in ((hits, "its class"), (misses, "other classes")):
        most = int((near >= 0).sum(axis=1).max())
        if most < k:
            few.append(f"{most} neighbors of {kind}")
    if few:
        warn(f"{name}={k} is more than there are; each row has at most {' and '.join(few)}")
    near = np.hstack([hits, misses])
    i, place = np.nonzero(near >= 0)
    return lists(i, near[i, place], place < k, len(X))


def neighbor_table(lists: Lists, k: int) -> Ints:
    """Return the neighbors of each row (n, 2 k): up to k of its class, then up to k others; -1 if there are fewer."""
    pairs = lists.pairs
    n = lists.pairs.n
    # position of each neighbor in the list of its row, which begins with the hits
    place = np.arange(len(pairs)) - pairs.bounds[pairs.i]
    hits = np.bincount(pairs.i, lists.same, n).astype(np.intp)
    found = np.full((n, 2 * k), -1)
    found[pairs.i, np.where(lists.same, place, place - hits[pairs.i] + k)] = pairs.j
    return found


def neighbor_sums(Z: AnyArray, lists: Lists, kind: str, moments: AnyArray | None = None) -> tuple[float, AnyArray]:
    """Return F and U as in `probabilistic.neighbor_softmax`, over lists.

    Parameters
    ----------
    Z : ndarray of shape (n, k)
        Mapped rows.
    lists : Lists
        Neighbors of the rows.
    kind : {"accuracy", "log", "normalizer"}
        Term of F to sum over anchors.
    moments : ndarray of shape (n, q), optional
        Rows Y of U. By default, Z.

    Notes
    -----
    O(m (k + q)) time, O(m + n (k + q)) memory for m listed neighbors.
    """
    starts = lists.pairs.bounds[lists.anchors]
    counts = np.diff(lists.pairs.bounds)[lists.anchors]
    exponents = -lists.pairs.squared_distances(Z)  # (m,), sorted by anchor
    shift = np.maximum.reduceat(exponents, starts)
    e = np.exp(exponents - np.repeat(shift, counts))
    if kind == "log":
        near_shift = np.maximum.reduceat(np.where(lists.same, exponents, -np.inf), starts)
        near_shift = np.where(lists.weight > 0, near_shift, 0.0)
        q = np.exp(np.where(lists.same, exponents - np.repeat(near_shift, counts), -np.inf))
    else:
        near_shift = shift
        q = np.where(lists.same, e, 0.0)
    near = np.where(lists.weight > 0, np.add.reduceat(q, starts), 1.0)
    shares = KINDS[kind](near, np.add.reduceat(e, starts), near_shift, shift)
    # W = near q - every e, for each listed pair
    w = q * np.repeat(lists.weight * shares.near, counts) - e * np.repeat(lists.weight * shares.every, counts)
    if moments is None:
        moments = Z
    return float(lists.weight @ shares.value), -lists.pairs.laplacian_times(w, moments)
