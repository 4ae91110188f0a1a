"""Verification: are two items of one class? Decided by their distance alone.

TAR(t)    share of pairs of one class that lie within the distance t (true accept rate)
FAR(t)    share of pairs of two classes that lie within t (false accept rate)
EER       the rate at which FAR(t) = 1 - TAR(t)
AUC       probability that a pair of one class is nearer than a pair of two, ties counting one half
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.distances import as_rows, check_distance, distance_blocks, pair_distances, unit_rows
from ..core.nearness import on_grid
from ..core.types import AnyArray, Array, Bools, Ints
from .labels import check_lengths
from .retrieval import protocol_of

FARS = (0.1, 0.01, 0.001)
BINS = 2**20 + 1  # distances are known to a millionth of their range; simple fractions of it lie inside bins
CELLS = 2**22  # distances at a time
POINTS = 201  # points of the curve


@dataclass(frozen=True)
class Verification:
    """How well one threshold on the distance tells pairs of one class from pairs of two.

    Attributes
    ----------
    auc, eer : float
    eer_threshold : float
        The distance at which both errors are the EER.
    accuracy, threshold : float
        Share of right answers at the best threshold, both kinds of pairs weighing the same; and that distance.
    tar_at, threshold_at : dict of float to float
        By FAR: the TAR that it allows, and the largest distance that keeps it; None where even the least does not.
    n_similar, n_dissimilar : int
        Pairs of one class and of two.
    distance : str
    curve : tuple of two lists of float
        FAR, evenly spaced on a logarithmic scale, and the TAR at each.
    fold_accuracies : list of float
        Accuracy of each fold of listed pairs at the best threshold of the other folds; empty without folds.
    """

    auc: float
    eer: float
    eer_threshold: float
    accuracy: float
    threshold: float
    tar_at: dict[float, float]
    threshold_at: dict[float, float | None]
    n_similar: int
    n_dissimilar: int
    distance: str
    curve: tuple[list[float], list[float]] = field(repr=False)
    fold_accuracies: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold; the rates become strings."""
        plain = asdict(self)
        return plain | {name: {f"{far:g}": v for far, v in plain[name].items()} for name in ("tar_at", "threshold_at")}

    def __str__(self) -> str:
        rows: list[tuple[str, float, float | None]] = [("AUC", self.auc, None), ("EER", self.eer, self.eer_threshold)]
        rows += [("Accuracy, balanced", self.accuracy, self.threshold)]
        rows += [(f"TAR at FAR {far:g}", self.tar_at[far], self.threshold_at[far]) for far in self.tar_at]
        lines = [f"{'score':<18}{'value':>8}{'threshold':>11}"]
        lines += [f"{name:<18}{value:>8.4f}" + ("" if at is None else f"{at:>11.4g}") for name, value, at in rows]
        lines += [f"{self.n_similar:,} pairs of one class, {self.n_dissimilar:,} of two; {self.distance} distance"]
        if self.fold_accuracies:
            mean, k = np.mean(self.fold_accuracies), len(self.fold_accuracies)
            error = np.std(self.fold_accuracies, ddof=1) / np.sqrt(k)
            lines += [
                f"accuracy of {k} folds by the best threshold of the others: {mean:.4f} ± {error:.4f} (std. error)"
            ]
        if self.rare:
            few = f"none of the {self.n_dissimilar:,} pairs of two classes may pass: too few to measure such a rate"
            lines += [f"at FAR {' and '.join(f'{far:g}' for far in self.rare)} {few}"]
        return "\n".join(lines)

    @property
    def rare(self) -> list[float]:
        """The FARs that are less than one of the pairs of two classes: too few to measure them."""
        return [far for far in self.tar_at if not _allowed(far, self.n_dissimilar)]


def verify(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    distance: str = "cosine",
    fars: Sequence[float] | float = FARS,
    most: int = 20_000,
    seed: int = 0,
) -> Verification:
    """Verification scores over all pairs of embeddings.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Arrays or tensors.
    labels : array-like of shape (n,)
        Their classes, of any hashable kind.
    gallery, gallery_labels : array-like of shape (m, d), (m,), optional
        Pairs are (embedding, gallery item); without it two different embeddings.
    distance : {"cosine", "euclidean", "sqeuclidean"}
    fars : float or sequence of float
        False accept rates, in (0, 1), at which the true accept rate is told.
    most : int
        Of more embeddings than this a seeded draw meets all others.
    seed : int

    Returns
    -------
    Verification

    Raises
    ------
    ValueError
        Bad rows, labels, rates or distance; no pair of one class, or none of two.

    Notes
    -----
    Distances are counted in 2^20 bins over their range and not stored: thresholds are known to a millionth of it, and
    memory is bounded. Time: n m d products and a few passes over n x m distances, half of both without a gallery: a
    second for n = 10,000.

    Examples
    --------
    >>> found = verify([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], ["a", "a", "b", "b"])
    >>> found.auc, found.eer, found.tar_at[0.01]
    (1.0, 0.0, 1.0)
    """
    x, y, kind, gallery_kind, own = protocol_of(embeddings, labels, gallery, gallery_labels)
    check_distance(distance)
    rates = _rates(fars)
    rows = np.arange(len(x))
    if len(x) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))
    whole = own is not None and len(rows) == len(x)
    edge = _reach(x, y, distance) / (BINS - 1)
    similar, all_pairs = np.zeros(BINS + 1, dtype=np.int64), np.zeros(BINS + 1, dtype=np.int64)
    for part, table in distance_blocks(x[rows], y, distance, block=max(1, CELLS // len(y)), ahead=whole):
        table /= edge
        bins = np.minimum(np.rint(table, out=table), BINS - 1, out=table).astype(np.intp)
        if whole:
            bins[:, : len(bins)][np.tri(len(bins), dtype=np.bool_)] = BINS  # every pair once
        elif own is not None:
            bins[np.arange(len(bins)), rows[part]] = BINS  # an item and itself are no pair
        others = gallery_kind[len(y) - bins.shape[1] :]
        similar += np.bincount(bins[kind[rows[part]][:, None] == others], minlength=BINS + 1)
        all_pairs += np.bincount(bins.ravel(), minlength=BINS + 1)
    counts = np.stack([similar, all_pairs - similar])[:, :BINS]
    return _scored((np.arange(BINS, dtype=np.float64) + 0.5) * edge, counts, rates, distance)


def verify_pairs(
    embeddings: Any,
    pairs: Any,
    same: Any,
    *,
    folds: Any = None,
    distance: str = "cosine",
    fars: Sequence[float] | float = FARS,
) -> Verification:
    """Verification scores over listed pairs, such as those of a published protocol.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
    pairs : array-like of int, shape (m, 2)
        Row numbers.
    same : array-like of shape (m,)
        Whether each pair is of one class: booleans, 1 and 0, or +1 and -1.
    folds : array-like of shape (m,), optional
        The fold of each pair: two or more, each with pairs of both kinds. The protocol of LFW has ten.
    distance, fars
        As for `verify`.

    Returns
    -------
    Verification
        Thresholds are distances of pairs.

    Raises
    ------
    ValueError
        Bad rows, pairs or folds; no pair of one class, or none of two.
    """
    x, rates = as_rows(embeddings), _rates(fars)
    ij, kinds = np.asarray(pairs), np.asarray(same).ravel()
    if ij.ndim != 2 or ij.shape[1] != 2 or ij.dtype.kind not in "iu":
        raise ValueError(f"pairs: expected row numbers of shape (m, 2), got {ij.dtype} of shape {ij.shape}")
    if ij.size and not 0 <= ij.min() <= ij.max() < len(x):
        raise ValueError(f"pairs: expected row numbers from 0 to {len(x) - 1}, got {ij.min()} to {ij.max()}")
    if len(kinds) != len(ij) or not np.isin(kinds, (-1, 0, 1)).all():
        raise ValueError(f"same: expected {len(ij)} values, each true or false, or +1 or -1; got {len(kinds)} values")
    d = pair_distances(x, x, ij[:, 0], ij[:, 1], distance)
    steps, at = np.unique(on_grid(d) if distance == "cosine" else d, return_inverse=True)  # rounding separates no ties
    thresholds = np.full(len(steps), -np.inf)
    np.maximum.at(thresholds, at, d)
    counts = [np.bincount(at[alike], minlength=len(thresholds)) for alike in (kinds == 1, kinds != 1)]
    found = _scored(thresholds, np.stack(counts), rates, distance)
    return found if folds is None else replace(found, fold_accuracies=_by_folds(at, kinds == 1, np.asarray(folds)))


def _by_folds(at: Ints, same: Bools, folds: NDArray[Any]) -> list[float]:
    """Accuracy, both kinds weighing the same, of the pairs of each fold at the best threshold of all others."""
    check_lengths(len(at), folds, "folds")
    names, number = np.unique(folds, return_inverse=True)
    pairs = np.array([np.bincount(number[kind], minlength=len(names)) for kind in (same, ~same)])
    if len(names) < 2 or not pairs.all():
        raise ValueError(f"folds: expected two or more, each with pairs of both kinds; got {len(names)}")
    whole = [np.bincount(at[kind], minlength=1 + at.max()) for kind in (same, ~same)]
    accuracies = []
    for fold in range(len(names)):
        inside = [np.bincount(at[kind & (number == fold)], minlength=len(whole[0])) for kind in (same, ~same)]
        here = [np.cumsum(own) / own.sum() for own in inside]
        tar, far = (np.cumsum(every - own) / (every - own).sum() for every, own in zip(whole, inside, strict=True))
        best = int(np.argmax(tar - far))
        accuracies.append(float(1 + here[0][best] - here[1][best]) / 2)
    return accuracies


def _reach(x: AnyArray, y: AnyArray, distance: str) -> float:
    """A distance that no pair exceeds."""
    if distance == "cosine":
        x, y = unit_rows(x), unit_rows(y)
        if not (x.any(axis=1).all() and y.any(axis=1).all()):
            return 2.0  # a row of zeros has the distance 1 to all, and 2 bounds every other
    centre = y.mean(axis=0, dtype=np.float64)
    across = sum(float(np.sqrt(np.square(rows - centre).sum(axis=1).max())) for rows in (x, y))
    far = {"cosine": min(2.0, across**2 / 2), "euclidean": across, "sqeuclidean": across**2}[distance]
    return far or 1.0


def _rates(fars: Sequence[float] | float) -> list[float]:
    """One rate or several, checked before anything is counted."""
    rates: list[float] = np.atleast_1d(fars).tolist()
    if not all(0 < far < 1 for far in rates):
        raise ValueError(f"fars: expected rates between 0 and 1, got {tuple(rates)}")
    return rates


def _scored(thresholds: Array, counts: NDArray[np.int64], rates: Sequence[float], distance: str) -> Verification:
    """Scores from how many pairs of each kind (2, t) lie at each threshold and beyond the one before."""
    P, N = (int(n) for n in counts.sum(axis=1))
    if not P or not N:
        missing = "one class" if not P else "two classes"
        raise ValueError(f"verification needs pairs of both kinds; there is no pair of {missing}")
    accepted = counts.cumsum(axis=1)
    tar, far = accepted[0] / P, accepted[1] / N
    auc = float(np.sum(counts[0] * (N - accepted[1] + counts[1] / 2))) / P / N
    best = int(np.argmax(tar - far))
    eer, at = _equal_errors(tar, far)
    allowed = {rate: _last(accepted[1], _allowed(rate, N)) for rate in rates}
    grid = np.geomspace(1 / N, 1.0, POINTS)
    places = [_last(accepted[1], _allowed(rate, N)) for rate in grid]
    return Verification(
        auc=auc,
        eer=eer,
        eer_threshold=float(thresholds[at]),
        accuracy=float((1 + tar[best] - far[best]) / 2),
        threshold=float(thresholds[best]),
        tar_at={rate: float(tar[k]) if k >= 0 else 0.0 for rate, k in allowed.items()},
        threshold_at={rate: float(thresholds[k]) if k >= 0 else None for rate, k in allowed.items()},
        n_similar=P,
        n_dissimilar=N,
        distance=distance,
        curve=(grid.tolist(), [float(tar[k]) if k >= 0 else 0.0 for k in places]),
    )


def _last(accepted: NDArray[np.int64], most: int) -> int:
    """The last threshold that accepts so many pairs at most; -1 if none does. A float would convert all counts."""
    return int(np.searchsorted(accepted, most, side="right")) - 1


def _allowed(rate: float, pairs: int) -> int:
    """How many pairs a rate allows; rounding takes none away."""
    return int(rate * pairs * (1 + 1e-12))


def _equal_errors(tar: Array, far: Array) -> tuple[float, int]:
    """The rate at which both errors are equal, on the line between two thresholds, and the latter of them."""
    surplus = far - (1 - tar)
    k = int(np.argmax(surplus >= 0))
    before, rate = (surplus[k - 1], far[k - 1]) if k else (-1.0, 0.0)
    share = -before / (surplus[k] - before)
    return float(rate + share * (far[k] - rate)), k
