"""Differences of paired scores with 95% intervals, and p-values after Holm's correction, for other benchmarks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nearfar.evaluation.intervals import interval


def difference(gains: NDArray[np.float64]) -> str:
    """Return the mean of paired differences with the half-width of its 95% t-interval.

    >>> difference(np.array([0.01, 0.02, 0.03]))
    '+0.020 ± 0.025'
    """
    found = interval(gains)
    return f"{found.mean:+.3f} ± {found.half:.3f}"


def p_value(gains: NDArray[np.float64]) -> float:
    """Return the p-value of the t-test that the mean of paired differences is 0."""
    return float(stats.ttest_1samp(gains, 0.0).pvalue)


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Return p-values corrected for their number: the k-th smallest of m is multiplied by m - k + 1.

    >>> holm({"a": 0.5, "b": 0.01, "c": 0.02})
    {'b': 0.03, 'c': 0.04, 'a': 0.5}
    """
    corrected = {}
    largest = 0.0
    for place, name in enumerate(sorted(p, key=lambda one: p[one])):
        largest = max(largest, min(1.0, p[name] * (len(p) - place)))
        corrected[name] = largest
    return corrected
