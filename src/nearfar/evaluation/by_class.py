"""Scores of the queries of each class, with intervals.

interval of a share p of n    (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)      (Wilson, 1927)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..numerics.types import Array, Ints
from .retrieval import Retrieval

Z = 1.959963984540054  # 97.5% quantile of the normal distribution


def share_interval(count: Any, n: Any) -> tuple[Array, Array]:
    """Return the 95% intervals of shares, from the numbers of successes in n trials.

    They lie within [0, 1], and have a width also where all trials or none succeeded.

    Examples
    --------
    >>> low, high = share_interval([0, 5], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.237]), array([0.278, 0.763]))
    """
    trials = np.asarray(n, dtype=np.float64)
    share = np.asarray(count, dtype=np.float64) / trials
    middle = share + Z**2 / (2 * trials)
    half = Z * np.sqrt(share * (1 - share) / trials + Z**2 / (4 * trials**2))
    scale = 1 + Z**2 / trials
    return np.clip((middle - half) / scale, 0.0, 1.0), np.clip((middle + half) / scale, 0.0, 1.0)


def scores_by_class(found: Retrieval, classes: Ints, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the scores of the queries of each class, by its name.

    Parameters
    ----------
    found : Retrieval
        Scores of each query.
    classes : ndarray of int, shape (n,)
        Class of each query, as an index into `names`.
    names : sequence of str
        Names of the classes.

    Returns
    -------
    dict
        For each class: the number of queries that have something to find, their Recall@1, its interval, which takes
        them as independent, and their MAP@R. Classes without such queries are left out.
    """
    kept = found.relevant > 0
    numbers = classes[kept]
    counts = np.bincount(numbers, minlength=len(names))
    # sums over the queries of each class, (C,): divided by their number when the classes are listed
    hits = np.bincount(numbers, weights=found.found(1)[kept], minlength=len(names))
    precision = np.bincount(numbers, weights=found.map_at_r[kept], minlength=len(names))
    scores = {}
    for number in np.flatnonzero(counts).tolist():
        n = int(counts[number])
        low, high = share_interval(hits[number], n)
        scores[str(names[number])] = {
            "queries": n,
            "recall_at_1": float(hits[number]) / n,
            "recall_at_1_interval": [float(low), float(high)],
            "map_at_r": float(precision[number]) / n,
        }
    return scores
