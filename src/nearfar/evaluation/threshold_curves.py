"""How well a threshold on the distance separates two kinds of pairs, from the numbers of pairs within it.

TAR(t)    share of pairs of one class that lie within the distance t (true accept rate)
FAR(t)    share of pairs of two classes that lie within t (false accept rate)
EER       the rate at which FAR(t) = 1 - TAR(t)
AUC       probability that a pair of one class is nearer than a pair of two, ties counting one half
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.types import Array
from ..quoting import significant

CURVE_POINTS = 201  # points of the curve


@dataclass(frozen=True)
class Verification:
    """How well a threshold on the distance separates same-class pairs from different-class pairs.

    Attributes
    ----------
    auc : float
        Area under the ROC curve.
    eer : float
        Equal error rate.
    eer_threshold : float
        Distance threshold at which both error rates equal the EER.
    accuracy : float
        Balanced accuracy at the best threshold: both kinds of pairs have the same weight.
    threshold : float
        The best threshold.
    tar_at : dict of float to float
        True accept rate (TAR) at each false accept rate (FAR).
    threshold_at : dict of float to float
        Largest distance threshold that keeps each FAR; None if even the smallest threshold exceeds it.
    n_similar : int
        Number of pairs of one class; with groups, only those of two groups.
    n_dissimilar : int
        Number of pairs of two classes.
    distance : str
        Distance by which embeddings were compared.
    curve : tuple of two lists of float
        FAR, evenly spaced on a logarithmic scale, and the TAR at each.
    fold_accuracies : list of float
        Accuracy of each fold at the best threshold of the other folds; empty without folds.
    grouped : bool
        Whether pairs of one class within one group were left out.
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
    grouped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with each rate as a string."""
        plain = asdict(self)
        return plain | {name: {f"{far:g}": v for far, v in plain[name].items()} for name in ("tar_at", "threshold_at")}

    def __str__(self) -> str:
        rows: list[tuple[str, float, float | None]] = [("AUC", self.auc, None), ("EER", self.eer, self.eer_threshold)]
        rows += [("Accuracy, balanced", self.accuracy, self.threshold)]
        rows += [(f"TAR at FAR {far:g}", self.tar_at[far], self.threshold_at[far]) for far in self.tar_at]
        lines = [f"{'score':<18}{'value':>8}{'threshold':>11}"]
        for name, value, threshold in rows:
            line = f"{name:<18}{value:>8.4f}"
            if threshold is not None:
                line += f"{significant(threshold, 4):>11}"
            lines.append(line)
        if self.grouped:
            counts = f"{self.n_similar:,} pairs of one class in two groups, {self.n_dissimilar:,} of two classes"
        else:
            counts = f"{self.n_similar:,} pairs of one class, {self.n_dissimilar:,} of two"
        lines += [f"{counts}; {self.distance} distance"]
        if self.fold_accuracies:
            mean = np.mean(self.fold_accuracies)
            k = len(self.fold_accuracies)
            error = np.std(self.fold_accuracies, ddof=1) / np.sqrt(k)
            lines += [
                f"accuracy of {k} folds by the best threshold of the others: {mean:.4f} ± {error:.4f} (std. error)"
            ]
        if self.rare:
            few = f"no pair of two classes may be accepted: {self.n_dissimilar:,} are too few to measure such a rate"
            lines += [f"at FAR {' and '.join(f'{far:g}' for far in self.rare)}, {few}"]
        return "\n".join(lines)

    @property
    def rare(self) -> list[float]:
        """False accept rates that allow less than one pair of two classes, and so cannot be measured."""
        return unmeasurable_rates(self.tar_at, self.n_dissimilar)


def unmeasurable_rates(rates: Iterable[float], wrong: int) -> list[float]:
    """Return the rates that allow less than one of `wrong` cases, which are too few to measure these rates."""
    return [rate for rate in rates if not _allowed(rate, wrong)]


def checked_rates(fars: Sequence[float] | float) -> list[float]:
    """Return one rate or several as a list; raise a ValueError unless all are in (0, 1)."""
    rates: list[float] = np.atleast_1d(fars).tolist()
    if not all(0 < far < 1 for far in rates):
        raise ValueError(f"fars: expected rates between 0 and 1, got {tuple(rates)}")
    return rates


def scored(
    thresholds: Array, counts: NDArray[np.int64], rates: Sequence[float], distance: str, grouped: bool = False
) -> Verification:
    """Return the scores of verification.

    Parameters
    ----------
    thresholds : ndarray of shape (t,)
        Distances, increasing.
    counts : ndarray of int, shape (2, t)
        Number of pairs of one class, and of two classes, with distances above the previous and up to this threshold.
    rates : sequence of float
        False accept rates to report.
    distance : str
        Distance by which embeddings were compared.
    grouped : bool
        Whether only pairs of one class in two groups were counted.
    """
    P, N = (int(n) for n in counts.sum(axis=1))
    if P == 0:
        lacking = "one class in two groups" if grouped else "one class"
        raise ValueError(f"verification: expected pairs of both kinds; there is no pair of {lacking}")
    if N == 0:
        raise ValueError("verification: expected pairs of both kinds; there is no pair of two classes")
    accepted = counts.cumsum(axis=1)
    tar = accepted[0] / P
    far = accepted[1] / N
    # AUC: the share of combinations of a similar and a dissimilar pair in which the similar one is nearer, ties half
    auc = float(np.sum(counts[0] * (N - accepted[1] + counts[1] / 2))) / P / N
    # (TAR + 1 - FAR) / 2 is the accuracy if both kinds are equally frequent
    best = int(np.argmax(tar - far))
    eer, at = _equal_errors(tar, far)
    tar_at, threshold_at = operating_points(rates, thresholds, tar, accepted[1])
    # no rate below that of one pair can be measured
    grid = np.geomspace(1 / N, 1.0, CURVE_POINTS)
    places = [_last(accepted[1], _allowed(rate, N)) for rate in grid]
    return Verification(
        auc=auc,
        eer=eer,
        eer_threshold=float(thresholds[at]),
        accuracy=float((1 + tar[best] - far[best]) / 2),
        threshold=float(thresholds[best]),
        tar_at=tar_at,
        threshold_at=threshold_at,
        n_similar=P,
        n_dissimilar=N,
        distance=distance,
        curve=(grid.tolist(), [float(tar[k]) if k >= 0 else 0.0 for k in places]),
        grouped=grouped,
    )


def operating_points(
    rates: Sequence[float], thresholds: Array, right: Array, wrong: NDArray[np.int64]
) -> tuple[dict[float, float], dict[float, float | None]]:
    """Return the share of right answers and the largest threshold at each rate of wrong answers.

    Each threshold (t,) accepts the share `right` of right answers and the number `wrong` of wrong ones.
    """
    shares: dict[float, float] = {}
    largest: dict[float, float | None] = {}
    for rate in rates:
        k = _last(wrong, _allowed(rate, int(wrong[-1])))
        if k < 0:  # even the smallest threshold accepts too many
            shares[rate] = 0.0
            largest[rate] = None
        else:
            shares[rate] = float(right[k])
            largest[rate] = float(thresholds[k])
    return shares, largest


def _last(accepted: NDArray[np.int64], most: int) -> int:
    """Return the number of the last threshold that accepts at most `most` pairs; -1 if none does."""
    # `most` is an integer, because NumPy would convert all counts to compare them with a float
    return int(np.searchsorted(accepted, most, side="right")) - 1


def _allowed(rate: float, pairs: int) -> int:
    """Return how many pairs a rate allows; the factor corrects rounding: int(0.29 * 100) is 28."""
    return int(rate * pairs * (1 + 1e-12))


def _equal_errors(tar: Array, far: Array) -> tuple[float, int]:
    """Return the rate at which both errors are equal, and the first threshold at which FAR is not below FRR."""
    surplus = far - (1 - tar)  # FAR - FRR, increasing
    k = int(np.argmax(surplus >= 0))
    if k == 0:  # before the first threshold, nothing is accepted: FAR is 0, FRR is 1
        before = -1.0
        rate = 0.0
    else:
        before = surplus[k - 1]
        rate = far[k - 1]
    # interpolate linearly between the two thresholds
    share = -before / (surplus[k] - before)
    return float(rate + share * (far[k] - rate)), k
