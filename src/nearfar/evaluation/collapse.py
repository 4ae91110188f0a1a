"""Whether embeddings have collapsed: all items are at nearly one point, so that distances carry no information."""

from __future__ import annotations

import numpy as np

from ..numerics.distances import unit_rows
from ..numerics.types import AnyArray

COLLAPSED_DIRECTIONS = 1e-3  # spread of unit vectors below which they have collapsed
COLLAPSED_POINTS = 1e-10  # the same for raw rows, which may be far from the origin


def relative_spread(rows: AnyArray, distance: str) -> float:
    """Return the variance of the rows over their mean squared norm: 0 at one point, up to 1 around the origin.

    For cosine distances, rows are scaled to unit length first, so the spread is their mean cosine distance.

    Examples
    --------
    >>> relative_spread(np.array([[1.0, 0.0], [-2.0, 0.0]]), "cosine")
    1.0
    """
    x = np.asarray(rows, dtype=np.float64)
    if distance == "cosine":
        mean = unit_rows(x).mean(axis=0)
        # mean_ij (1 - x_i . x_j) = 1 - |mean x|^2 for unit vectors
        return 1.0 - float(mean @ mean)
    total = float(np.mean(np.sum(x * x, axis=1)))
    if total == 0:
        return 0.0
    variance = float(np.sum(np.mean((x - x.mean(axis=0)) ** 2, axis=0)))
    return variance / total


def collapse(rows: AnyArray, distance: str) -> str:
    """Return a sentence if embeddings have collapsed; "" if they have not, or there are fewer than two."""
    least = COLLAPSED_DIRECTIONS if distance == "cosine" else COLLAPSED_POINTS
    if len(rows) < 2 or relative_spread(rows, distance) > least:
        return ""
    return "The embeddings have collapsed: all items are at nearly the same point, so near items are not duplicates."
