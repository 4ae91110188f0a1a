"""Verification: whether two items are of one class, decided by their distance, for all pairs or for given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from ..labels import check_lengths, class_numbers
from ..neighbors.blocks import on_grid
from ..numerics.distances import as_rows, check_distance, distance_blocks, pair_distances, unit_rows
from ..numerics.types import AnyArray, Bools, Ints
from .groups import count_in_gallery, kinds_of, warn_of_queries_in_gallery
from .retrieval import protocol_of
from .threshold_curves import Verification, checked_rates, scored

FARS = (0.1, 0.01, 0.001)
DISTANCE_BINS = 2**20 + 1  # one more than a power of 2, so that simple fractions of the range are not bin edges
VERIFICATION_BLOCK_CELLS = 2**22  # number of distances that are computed at a time


def verify(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
    ids: Any = None,
    gallery_ids: Any = None,
    distance: str = "cosine",
    fars: Sequence[float] | float = FARS,
    most: int = 20_000,
    seed: int = 0,
) -> Verification:
    """Compute verification scores over all pairs of embeddings.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    gallery : array-like of shape (m, d), optional
        Embeddings with which the pairs are made: every pair is an embedding and a gallery item. By default, all pairs
        of two different embeddings are used.
    gallery_labels : array-like of shape (m,), optional
        Class of each gallery item.
    groups : array-like of shape (n,), optional
        Camera, video or the like of each embedding. Pairs of one class in one group are left out, as in
        re-identification; pairs of two classes all count.
    gallery_groups : array-like of shape (m,), optional
        Group of each gallery item.
    ids, gallery_ids : array-like of shape (n,) and (m,), optional
        Name or number of each embedding and of each gallery item: an item is not compared with itself.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    fars : float or sequence of float
        False accept rates, in (0, 1), at which to report the true accept rate.
    most : int
        Maximum number of embeddings that are paired with all others. If there are more, a random sample is drawn.
    seed : int
        Seed of the generator that draws the sample.

    Returns
    -------
    Verification
        The scores and their thresholds.

    Raises
    ------
    ValueError
        If rows, labels, groups, rates or the distance are not valid, or there is no pair of one class or none of two.

    Notes
    -----
    Distances are counted in 2^20 bins over their range and not stored: thresholds are exact to a millionth of the
    range, and memory is bounded. Time: n m d products and a few passes over n x m distances, half of both without a
    gallery; a second for n = 10,000.

    Examples
    --------
    >>> found = verify([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], ["a", "a", "b", "b"])
    >>> found.auc, found.eer, found.tar_at[0.01]
    (1.0, 0.0, 1.0)
    """
    x, y, kind, gallery_kind, own = protocol_of(embeddings, labels, gallery, gallery_labels)
    kinds = kinds_of(kind, gallery_kind, groups, gallery_groups, own is not None, ids, gallery_ids)
    if kinds is None and own is None:
        warn_of_queries_in_gallery(count_in_gallery(x, y, kind, gallery_kind), len(x))
    check_distance(distance)
    rates = checked_rates(fars)
    if not isinstance(most, Integral) or most < 1:
        raise ValueError(f"most: expected at least 1, got {most}")
    rows = np.arange(len(x))
    if len(x) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))
    whole = own is not None and len(rows) == len(x)
    # width of a bin: the largest possible distance falls into the last one
    edge = _reach(x, y, distance) / (DISTANCE_BINS - 1)
    similar = np.zeros(DISTANCE_BINS + 1, dtype=np.int64)
    all_pairs = np.zeros(DISTANCE_BINS + 1, dtype=np.int64)
    for part, table in distance_blocks(
        x[rows], y, distance, block=max(1, VERIFICATION_BLOCK_CELLS // len(y)), ahead=whole
    ):
        table /= edge
        bins = np.minimum(np.rint(table, out=table), DISTANCE_BINS - 1, out=table).astype(np.intp)
        if whole:
            bins[:, : len(bins)][np.tri(len(bins), dtype=np.bool_)] = DISTANCE_BINS  # count every pair once
        elif own is not None:
            bins[np.arange(len(bins)), rows[part]] = DISTANCE_BINS  # an item and itself are not a pair
        first = len(y) - bins.shape[1]
        if kinds is not None:
            bins[kinds[0][rows[part]][:, None] == kinds[1][first:]] = DISTANCE_BINS
        others = gallery_kind[first:]
        # the extra bin holds the cells that are no pair
        similar += np.bincount(bins[kind[rows[part]][:, None] == others], minlength=DISTANCE_BINS + 1)
        all_pairs += np.bincount(bins.ravel(), minlength=DISTANCE_BINS + 1)
    counts = np.stack([similar, all_pairs - similar])[:, :DISTANCE_BINS]
    return scored((np.arange(DISTANCE_BINS, dtype=np.float64) + 0.5) * edge, counts, rates, distance, kinds is not None)


def verify_pairs(
    embeddings: Any,
    pairs: Any,
    same: Any,
    *,
    folds: Any = None,
    distance: str = "cosine",
    fars: Sequence[float] | float = FARS,
) -> Verification:
    """Compute verification scores over given pairs, such as those of a published protocol.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    pairs : array-like of int, shape (m, 2)
        Pairs of row numbers.
    same : array-like of shape (m,)
        Whether each pair is of one class: booleans, 1 and 0, or +1 and -1.
    folds : array-like of shape (m,), optional
        Fold of each pair: at least two folds, each with pairs of both kinds. The protocol of LFW has ten.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    fars : float or sequence of float
        False accept rates, in (0, 1), at which to report the true accept rate.

    Returns
    -------
    Verification
        The scores; thresholds are distances of pairs.

    Raises
    ------
    ValueError
        If rows, pairs or folds are not valid, or there is no pair of one class or none of two.
    """
    x = as_rows(embeddings)
    rates = checked_rates(fars)
    ij = np.asarray(pairs)
    kinds = np.asarray(same).ravel()
    if ij.ndim != 2 or ij.shape[1] != 2 or ij.dtype.kind not in "iu":
        raise ValueError(f"pairs: expected row numbers of shape (m, 2), got {ij.dtype} of shape {ij.shape}")
    if ij.size and not 0 <= ij.min() <= ij.max() < len(x):
        raise ValueError(f"pairs: expected row numbers from 0 to {len(x) - 1}, got {ij.min()} to {ij.max()}")
    alike = _alike(kinds, len(ij))
    return _of_distances(pair_distances(x, x, ij[:, 0], ij[:, 1], distance), alike, folds, distance, rates)


def verify_distances(
    distances: Any, same: Any, *, folds: Any = None, fars: Sequence[float] | float = FARS
) -> Verification:
    """Compute verification scores of distances that are computed already, such as normalized scores of a recognizer.

    Parameters
    ----------
    distances : array-like of shape (m,)
        Distance of each pair, of any sign: of similarities, pass their negatives.
    same : array-like of shape (m,)
        Whether each pair is of one class: booleans, 1 and 0, or +1 and -1.
    folds, fars
        As for `verify_pairs`.

    Returns
    -------
    Verification
        The scores; thresholds are distances of pairs.

    Raises
    ------
    ValueError
        If distances are not finite numbers, their number is not that of `same`, or there is no pair of one class or
        none of two.

    Examples
    --------
    >>> found = verify_distances([0.1, 0.3, 0.2, 0.9], [True, True, False, False], fars=0.5)
    >>> found.auc, found.threshold_at[0.5]
    (0.75, 0.3)
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 1 or not np.isfinite(d).all():
        raise ValueError(f"distances: expected one finite number for each pair, got {_shown(d)}")
    return _of_distances(d, _alike(np.asarray(same).ravel(), len(d)), folds, "precomputed", checked_rates(fars))


def _shown(d: AnyArray) -> str:
    """Return what is wrong with an array of distances."""
    if d.ndim != 1:
        return f"an array of shape {d.shape}"
    first = int(np.flatnonzero(~np.isfinite(d))[0])
    return f"{d[first]} for pair {first}"


def _alike(kinds: AnyArray, m: int) -> Bools:
    """Return whether each of m pairs is of one class."""
    if len(kinds) != m:
        raise ValueError(f"same: expected {m} values, one per pair, got {len(kinds)}")
    strange = kinds[~np.isin(kinds, (-1, 0, 1))]
    if len(strange):
        raise ValueError(f"same: expected true or false, 1 or 0, or +1 or -1 for each pair; got {strange[0]!s:.40}")
    found: Bools = kinds == 1
    return found


def _of_distances(d: AnyArray, alike: Bools, folds: Any, distance: str, rates: Sequence[float]) -> Verification:
    """Return the scores of m pairs with the distances d."""
    # so that rounding does not separate ties
    steps, at = np.unique(on_grid(d) if distance == "cosine" else d, return_inverse=True)
    thresholds = np.full(len(steps), -np.inf)
    np.maximum.at(thresholds, at, d)
    counts = [np.bincount(at[kind], minlength=len(thresholds)) for kind in (alike, ~alike)]
    found = scored(thresholds, np.stack(counts), rates, distance)
    if folds is None:
        return found
    return replace(found, fold_accuracies=_by_folds(at, alike, class_numbers(folds, names=("folds",))[0]))


def _by_folds(at: Ints, same: Bools, folds: Ints) -> list[float]:
    """Return the balanced accuracy of the pairs of each fold at the best threshold of all other folds."""
    check_lengths(len(at), folds, "folds")
    count = 1 + int(folds.max(initial=-1))
    pairs = np.array([np.bincount(folds[kind], minlength=count) for kind in (same, ~same)])
    if count < 2 or not pairs.all():
        raise ValueError(f"folds: expected two or more, each with pairs of both kinds; got {count}")
    whole = [np.bincount(at[kind], minlength=1 + at.max()) for kind in (same, ~same)]
    accuracies = []
    for fold in range(count):
        inside = [np.bincount(at[kind & (folds == fold)], minlength=len(whole[0])) for kind in (same, ~same)]
        here = [np.cumsum(own) / own.sum() for own in inside]
        tar, far = (np.cumsum(every - own) / (every - own).sum() for every, own in zip(whole, inside, strict=True))
        best = int(np.argmax(tar - far))
        accuracies.append(float(1 + here[0][best] - here[1][best]) / 2)
    return accuracies


def _reach(x: AnyArray, y: AnyArray, distance: str) -> float:
    """Return an upper bound of the distances of all pairs."""
    if distance == "cosine":
        x = unit_rows(x)
        y = unit_rows(y)
        if not (x.any(axis=1).all() and y.any(axis=1).all()):
            return 2.0  # a row of zeros has the distance 1 to all rows, and other distances are at most 2
    center = y.mean(axis=0, dtype=np.float64)
    across = sum(float(np.sqrt(np.square(rows - center).sum(axis=1).max())) for rows in (x, y))
    far = {"cosine": min(2.0, across**2 / 2), "euclidean": across, "sqeuclidean": across**2}[distance]
    return far or 1.0
