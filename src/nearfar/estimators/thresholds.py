"""Thresholds that divide distances into similar and dissimilar, by one sort and cumulative counts."""

from __future__ import annotations

import numpy as np

from ..numerics import checks
from ..numerics.types import AnyArray, Array, Bools

STRATEGIES = ("accuracy", "balanced", "f_beta", "max_tpr", "max_tnr")


def calibrate(
    distance: Array,
    similar: Bools,
    strategy: str = "accuracy",
    min_rate: float | None = None,
    beta: float = 1.0,
    weight: Array | None = None,
) -> float:
    """Return the threshold t for which the rule "similar if distance <= t" is best.

    Parameters
    ----------
    distance : ndarray of shape (m,)
        Distances of the pairs.
    similar : ndarray of shape (m,)
        Whether each pair is similar.
    strategy : str
        Score to maximize: "accuracy"; "balanced", the mean of the true positive and true negative rates; "f_beta" of
        the similar pairs; "max_tpr", the true positive rate subject to a true negative rate of at least `min_rate`; or
        "max_tnr", the reverse.
    min_rate : float or None
        Lower bound on the other rate, in [0, 1]. Required by "max_tpr" and "max_tnr".
    beta : float
        Weight of recall relative to precision in "f_beta", at least 0.
    weight : ndarray of shape (m,), optional
        Weights of the pairs, at least 0. By default, all weights are 1.

    Returns
    -------
    float
        Midpoint between two distances; the largest distance if accepting every pair is best, and a value below the
        smallest if accepting none is.

    Examples
    --------
    >>> calibrate(np.array([1.0, 2.0, 5.0]), np.array([True, True, False]))
    3.5
    """
    checks.one_of(STRATEGIES, strategy=strategy)
    if weight is not None:
        distance = distance[weight > 0]
        similar = similar[weight > 0]
        weight = weight[weight > 0]
    if similar.all() or not similar.any():
        raise ValueError(
            f"pairs must hold both similar and dissimilar ones; got {similar.sum()} of {len(similar)} similar"
        )
    if strategy.startswith("max") and (min_rate is None or not 0 <= min_rate <= 1):
        raise ValueError(f"min_rate must be in [0, 1] for strategy={strategy!r}; got {min_rate!r}")
    checks.at_least(0, beta=beta)
    order = np.argsort(distance, kind="stable")
    d = distance[order]
    truth = similar[order]
    counts: AnyArray
    if weight is None or np.ptp(weight) == 0:
        counts = np.ones(len(d), dtype=np.intp)  # rounding in sums of equal weights would break ties between scores
    else:
        counts = weight[order]
    # true and false positives if the k nearest pairs are accepted, k = 0..m; a cut needs a larger next distance
    tp = np.r_[0, np.cumsum(counts * truth)]
    fp = np.r_[0, np.cumsum(counts * ~truth)]
    cuts = np.r_[True, d[1:] > d[:-1], True]
    score = scores(tp, fp, strategy, min_rate or 0.0, beta)
    k = int(np.argmax(np.where(cuts, score, -np.inf)))
    if k == 0:
        return float(np.nextafter(d[0], d.dtype.type(-np.inf)))
    if k == len(d):
        return float(d[-1])
    middle = d.dtype.type(d[k - 1] + (d[k] - d[k - 1]) / 2)  # NumPy 1 halves a float32 to a float64
    if middle < d[k]:
        return float(middle)
    return float(d[k - 1])  # there is no float between the two, and d[k] would accept the next pair


def scores(tp: Array, fp: Array, strategy: str, min_rate: float, beta: float) -> Array:
    """Return the score that the strategy maximizes, for every number of accepted pairs."""
    tpr = tp / tp[-1]
    tnr = (fp[-1] - fp) / fp[-1]
    if strategy == "accuracy":
        return tp - fp
    if strategy == "balanced":
        return tpr + tnr
    if strategy == "f_beta":
        # F_beta = (1 + beta^2) tp / (beta^2 (tp + fn) + tp + fp), whose divisor is 0 if beta is 0 and nothing is
        # accepted
        wanted = beta**2 * tp[-1] + tp + fp
        return (1 + beta**2) * tp / np.maximum(wanted, np.finfo(np.float64).tiny)
    if strategy == "max_tpr":
        found = tpr
        kept = tnr
    else:
        found = tnr
        kept = tpr
    # among equal rates, the other rate decides
    return np.where(kept >= min_rate, found + 1e-9 * kept, -np.inf)
