"""Scores of every class, and intervals of mean scores over classes.

    var m = C / (C - 1) sum_c (S_c - n_c m)^2 / n^2      m: mean of a score over n queries,
                                                         S_c: its sum over the n_c queries of class c of C

The queries of one class are not independent, because a hard class makes all of them hard. So the sample consists of
classes, and the 95% interval of a mean is Student's with C - 1 degrees of freedom.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..evaluation.by_class import share_interval
from ..numerics.types import Array
from .retrieval import QueryNeighbors


class ClassRow(NamedTuple):
    """Scores of the queries of one class.

    Attributes
    ----------
    name : str
        Name of the class.
    queries : int
        Number of its queries that have something to find.
    recall : float
        Their Recall@1.
    low, high : float
        95% interval of the Recall@1.
    map_at_r : float or None
        Their MAP@R; None if there are more relevant items than neighbors were sought.
    taken_for : str
        Class of most wrong nearest neighbors; "" if all are right.
    taken : int
        Number of these neighbors.
    """

    name: str
    queries: int
    recall: float
    low: float
    high: float
    map_at_r: float | None
    taken_for: str
    taken: int


def class_rows(retrieved: QueryNeighbors) -> list[ClassRow]:
    """Return the scores of every class with queries, the hardest first."""
    labels = retrieved.query_labels()
    names = retrieved.queries.classes
    counts = np.bincount(labels, minlength=len(names))
    hits = np.bincount(labels, weights=retrieved.right[:, 0], minlength=len(names))
    precision = average_precision(retrieved)
    sums = None if precision is None else np.bincount(labels, weights=precision, minlength=len(names))
    present = np.flatnonzero(counts)
    low, high = share_interval(hits[present], counts[present])
    wrong = most_wrong(labels, retrieved.gallery.labels[retrieved.index[:, 0]])
    rows = [
        ClassRow(
            name=str(names[c]),
            queries=int(counts[c]),
            recall=float(hits[c] / counts[c]),
            low=float(low[place]),
            high=float(high[place]),
            map_at_r=None if sums is None else float(sums[c] / counts[c]),
            taken_for=str(names[wrong[c][0]]) if c in wrong else "",
            taken=wrong[c][1] if c in wrong else 0,
        )
        for place, c in enumerate(present.tolist())
    ]
    return sorted(rows, key=lambda row: (row.recall, -row.queries))


def most_wrong(labels: NDArray[np.int64], found: NDArray[np.int64]) -> dict[int, tuple[int, int]]:
    """Return the most frequent other class among the `found` of each class, and how often it was found."""
    wrong = np.flatnonzero(labels != found)
    pairs, counts = np.unique(np.stack([labels[wrong], found[wrong]], axis=1), axis=0, return_counts=True)
    order = np.argsort(counts, kind="stable")  # later ones replace earlier ones
    return {int(pairs[k, 0]): (int(pairs[k, 1]), int(counts[k])) for k in order}


def average_precision(retrieved: QueryNeighbors) -> Array | None:
    """Return the average precision over the R nearest of each query (q,); None if some were not computed."""
    R = retrieved.relevant
    if R.max() > retrieved.depth:
        return None
    right = retrieved.right[:, : R.max()] & (np.arange(R.max()) < R[:, None])
    precision = np.cumsum(right, axis=1) / np.arange(1, R.max() + 1)
    means: Array = (precision * right).sum(axis=1) / R
    return means


def interval_over_classes(values: Array, labels: NDArray[np.int64]) -> tuple[float, float] | None:
    """Return the 95% interval of the mean of a value of each query (n,); None for a single class."""
    from scipy.special import stdtrit

    members = np.bincount(labels)
    by_class = np.bincount(labels, weights=values)[members > 0]
    members = members[members > 0]
    c = len(members)
    if c < 2:
        return None
    mean = float(values.mean())
    half = stdtrit(c - 1, 0.975) * np.sqrt(c / (c - 1) * np.square(by_class - mean * members).sum()) / len(labels)
    return mean - float(half), mean + float(half)


def score_intervals(retrieved: QueryNeighbors, scores: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Return the intervals of the scores that are means over these queries, by the names of the scores."""
    right = retrieved.right
    ks = range(1, retrieved.depth + 1)
    values = {f"recall_at_{k}": right[:, :k].any(axis=1).astype(float) for k in ks if f"recall_at_{k}" in scores}
    values |= {f"precision_at_{k}": right[:, :k].mean(axis=1) for k in ks if f"precision_at_{k}" in scores}
    precision = average_precision(retrieved)
    if precision is not None:
        values["map_at_r"] = precision
    intervals = {}
    for name in values.keys() & scores.keys():
        interval = interval_over_classes(values[name], retrieved.query_labels())
        # another protocol, such as a score that counts lone queries, has another mean
        if interval is not None and abs(values[name].mean() - scores[name]) < 1e-6:
            intervals[name] = (max(interval[0], 0.0), min(interval[1], 1.0))
    return intervals
