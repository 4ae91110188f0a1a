"""Find the point of a geodesic that classifies best: cross-validated neighbors, one decomposition per fold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ....neighbors.nearest import nearest
from ....numerics import psd
from ....numerics.types import Array, Ints

CV_FOLDS = 5
COARSE = (0.1, 0.3, 0.5, 0.7, 0.9)
FINE_STEP = 0.02  # step of the finer grid, which extends halfway to the next points of the coarse grid

Spectrum = tuple[Array, Array, Array]
LabeledRows = tuple[Array, Ints]


def best_on_geodesic(X: Array, labels: Ints, scatters: Callable[[Array, Ints], tuple[Array, Array]]) -> float:
    """Return the t of a coarse grid, then of a finer one, for which S^-1 #_t D has the best five-fold 3-NN accuracy.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes. Rows with code -1 are left out.
    scatters : callable
        Function that takes rows and their labels and returns the regularized scatters (S, D).

    Notes
    -----
    Zadeh et al. (2016) tune t in the same way. The folds are stratified and need no seed. Among equally good values of
    t, the one nearest to 1/2 is selected.
    """
    X = X[labels >= 0]
    labels = labels[labels >= 0]
    fold = folds(labels)
    parts = []
    for k in range(CV_FOLDS):
        fit = (X[fold != k], labels[fold != k])
        rest = (X[fold == k], labels[fold == k])
        if enough(fit[1]) and len(rest[1]):
            parts.append((psd.sharp_spectrum(*scatters(*fit)), fit, rest))
    if not parts:
        raise ValueError('t="auto" needs two classes, one of them with at least 2 rows, in four of its five folds')
    # the ends of the geodesic are computed once for each fold; every t is then one power
    middle = best(COARSE, parts)
    steps = np.arange(1, round(0.1 / FINE_STEP) + 1) * FINE_STEP
    return best([middle, *(middle - steps), *(middle + steps)], parts)


def folds(labels: Ints) -> Ints:
    """Return a fold 0..4 for each row, assigned in turn within each class.

    Each class continues with the fold after the last one of the previous class.
    """
    fold = np.empty(len(labels), dtype=np.intp)
    fold[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % CV_FOLDS
    return fold


def enough(labels: Ints) -> bool:
    """Return whether the labels imply both similar and dissimilar pairs."""
    sizes = np.unique(labels, return_counts=True)[1]
    return bool(len(sizes) > 1 and sizes.max() > 1)


def best(ts: Iterable[float], parts: list[tuple[Spectrum, LabeledRows, LabeledRows]]) -> float:
    """Return the t with the most hits over all parts."""
    tried = [round(float(t), 12) for t in ts]
    ranks = [(sum(hits(t, *part) for part in parts), -abs(t - 0.5), -t) for t in tried]
    return -max(ranks)[2]


def hits(t: float, spectrum: Spectrum, fit: LabeledRows, rest: LabeledRows) -> int:
    """Return the number of held-out rows that are classified correctly by their three nearest rows."""
    L = psd.sharp_from_spectrum(*spectrum, t)
    near = nearest(rest[0] @ L.T, fit[0] @ L.T, min(3, len(fit[0])))[1]
    votes = fit[1][near]
    # the majority of three votes, or the nearest row if all three differ
    if votes.shape[1] < 3:
        predicted = votes[:, 0]
    else:
        predicted = np.where(votes[:, 1] == votes[:, 2], votes[:, 1], votes[:, 0])
    return int((predicted == rest[1]).sum())
