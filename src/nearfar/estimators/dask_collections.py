"""Dask arrays and data frames: each part is summed where it is stored, and only the sums are transferred."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

PARTS_JOINED_AT_ONCE = 8  # number of sums that one task joins


def is_collection(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    return hasattr(X, "__dask_graph__")


def sample(X: Any) -> Any:
    """Return two rows of zeros with the features of X, with the column names of a data frame."""
    if not hasattr(X, "columns"):
        if X.ndim != 2:
            raise ValueError(f"X must have shape (n, d); got a Dask array of {X.ndim} dimensions")
        return np.zeros((2, X.shape[1]))
    import pandas as pd

    return pd.DataFrame(np.zeros((2, len(X.columns))), columns=list(X.columns))


def summed(learner: Any, X: Any, y: Any, sample_weight: Any, unlabeled: Any) -> Any:
    """Return the `RowSums` over all parts of X, computed by the current scheduler."""
    from dask.base import compute
    from dask.delayed import delayed

    parts = parts_of(X)
    labels = beside(y, X, len(parts), "y")
    weights = beside(sample_weight, X, len(parts), "sample_weight")
    plain = clone(learner)
    found = []
    for rows, own, weight in zip(parts, labels, weights, strict=True):
        found.append(delayed(part_sums)(plain, rows, own, weight, unlabeled))
    # join the sums in a tree, so that no task waits for all parts
    while len(found) > 1:
        starts = range(0, len(found), PARTS_JOINED_AT_ONCE)
        found = [delayed(joined)(found[k : k + PARTS_JOINED_AT_ONCE]) for k in starts]
    (whole,) = compute(found[0])
    if whole is None:
        raise ValueError("X must hold at least one row; got none")
    return whole


def part_sums(learner: Any, X: Any, y: Any, sample_weight: Any, unlabeled: Any) -> Any:
    """Return the sums over one part, or None if it is empty. This runs on a worker."""
    if len(X) == 0:
        return None
    return learner._summed(X, y, sample_weight, unlabeled, reset=True)


def joined(parts: list[Any]) -> Any:
    """Return the sums over several parts; None if all are empty."""
    found = None
    for part in parts:
        if found is None:
            found = part
        elif part is not None:
            found = found.joined(part)
    return found


def parts_of(X: Any) -> list[Any]:
    """Return the parts of X by rows, not yet computed."""
    if not hasattr(X, "columns") and X.ndim == 2 and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed()))


def beside(values: Any, X: Any, count: int, name: str) -> list[Any]:
    """Return the parts of the labels or weights that match the parts of X."""
    if values is None:
        return [None] * count
    if not is_collection(values):
        sizes = getattr(X, "chunks", [[np.nan]])[0]
        if np.isnan(sizes).any():
            cause = "because the lengths of its parts are unknown"
            raise ValueError(f"{name} must be a Dask collection, divided like X, {cause}; got {type(values).__name__}")
        values = np.asarray(values)
        if len(values) != sum(sizes):
            raise ValueError(f"{name} must hold one value per row of X, {sum(sizes)}; got {len(values)}")
        return np.split(values, np.cumsum(sizes)[:-1])
    own = getattr(values, "chunks", [[np.nan]])[0]
    rows = getattr(X, "chunks", [[np.nan]])[0]
    if sum(own) == sum(rows):  # False if some lengths are unknown, NaN
        values = values.rechunk({0: rows})
    parts = list(np.ravel(values.to_delayed()))
    if len(parts) != count:
        raise ValueError(f"{name} must have {count} parts, like X; got {len(parts)}: repartition {name}")
    return parts
