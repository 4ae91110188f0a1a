"""The distance by which labeled rows are compared best, chosen before anything is learned from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..labels import check_lengths, class_numbers
from ..numerics.distances import as_rows
from .protocol import map_at_r

CHOICES = ("cosine", "euclidean")


def best_distance(embeddings: Any, labels: Any, *, groups: Any = None, most: int = 2000, seed: int = 0) -> str:
    """Return the distance, cosine or Euclidean, by which rows rank the items of their class higher.

    Choose it on training rows: a distance that is chosen on the rows that are scored makes their score too good.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Rows, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each row, of any hashable type.
    groups : array-like of shape (n,), optional
        Camera, video or the like of each row, as in `evaluate`.
    most : int
        Maximum number of rows that search all rows. If there are more, a random sample is drawn.
    seed : int
        Seed of the generator that draws the sample.

    Returns
    -------
    str
        "cosine" or "euclidean": the one with the higher MAP@R, or "cosine" if no row has another of its class.

    Examples
    --------
    >>> best_distance([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0], [1.0, 8.0]], ["a", "a", "b", "b"])
    'cosine'
    """
    rows = as_rows(embeddings, "embeddings")
    how: dict[str, Any] = {"groups": groups}
    queries = rows
    query_labels = labels
    if len(rows) > most:
        drawn = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
        codes = class_numbers(labels)[0]
        check_lengths(len(rows), codes)
        queries = rows[drawn]
        query_labels = codes[drawn]
        how = {"gallery": rows, "gallery_labels": codes}
        if groups is None:
            how |= {"ids": drawn, "gallery_ids": np.arange(len(rows))}
        else:
            codes_of_groups = class_numbers(groups, names=("groups",))[0]
            how |= {"groups": codes_of_groups[drawn], "gallery_groups": codes_of_groups}
    scores = [map_at_r(queries, query_labels, distance=distance, **how) for distance in CHOICES]
    return CHOICES[int(scores[1] > scores[0])]  # NaN is not greater
