"""Old vectors in the space of a new model, until their items are embedded again.

With rows x of the old model and y of the new one of the same items, and their means:

    x -> (x - m_x) W + m_y

W is the rotation or the ridge regression of `adapter.py` that comes nearer to held-out rows. Rows that are compared by
cosine have length 1; others keep their lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..numerics.distances import chunks, starts, unit_rows
from ..numerics.types import AnyArray, Array, Bools
from .adapter import FEWEST_ROWS, HELD_OUT, procrustes, ridge


@dataclass(frozen=True)
class VectorMap:
    """A map from vectors of an old model to those of a new one.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    weight : ndarray of shape (d, e)
    target : ndarray of shape (e,)
    unit : bool
        Whether the old vectors are compared by cosine.
    similarity : float
        Mean cosine between mapped vectors and those of the new model, on a held-out tenth of the items.
    """

    mean: Array
    weight: Array
    target: Array
    unit: bool
    similarity: float

    def mapped(self, old: AnyArray) -> AnyArray:
        """Map vectors of the old model (n, d) to the space of the new one, (n, e) of float32."""
        found = np.empty((len(old), len(self.target)), dtype=np.float32)
        for start, part in zip(starts(old), chunks(old), strict=True):
            x = as_fitted(part, self.unit)
            found[start : start + len(part)] = (x - self.mean) @ self.weight + self.target
        return found


def as_fitted(rows: AnyArray, unit: bool) -> Array:
    """Return rows as they are mapped: in float64, and of length 1 if they are compared by cosine."""
    exact = np.asarray(rows, dtype=np.float64)
    return unit_rows(exact) if unit else exact


def fit_map(old: AnyArray, new: AnyArray, *, old_distance: str, new_distance: str) -> VectorMap:
    """Fit a map to items that both models have embedded.

    Parameters
    ----------
    old, new : ndarray of shape (n, d) and (n, e)
        Embeddings of the same items, at least 20.
    old_distance, new_distance : str
        Distances by which they are compared.
    """
    x = as_fitted(old, old_distance == "cosine")
    y = as_fitted(new, new_distance == "cosine")
    out: Bools = np.zeros(len(x), dtype=bool)
    out[np.random.default_rng(0).permutation(len(x))[: max(1, int(HELD_OUT * len(x)))]] = True
    mean = x[~out].mean(axis=0)
    target = y[~out].mean(axis=0)
    X = x - mean
    Y = y - target

    def missed(weight: Array) -> float:
        return float(((X[out] @ weight - Y[out]) ** 2).sum())

    weight = min(procrustes(X[~out], Y[~out]), ridge(X, Y, out), key=missed)
    found = unit_rows(X[out] @ weight + target)
    similarity = float(np.einsum("ij,ij->i", found, unit_rows(y[out])).mean())
    return VectorMap(mean, weight, target, old_distance == "cosine", similarity)


__all__ = ["FEWEST_ROWS", "VectorMap", "fit_map"]
