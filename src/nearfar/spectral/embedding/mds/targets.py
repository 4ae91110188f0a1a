"""The problem of fitting targets that are given by labels, by a function or by a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....numerics import checks, scatter
from ....numerics.constraints import generator, sample, unrank_same
from ....numerics.distances import pair_distances
from ....numerics.types import AnyArray, Array, Ints, Seed
from ...target_pairs import TargetPairs
from .target_fit import ClassTargets, ListedTargets

MAX_TARGET_PAIRS = 2_000_000  # most pairs that are listed unless the user sets their number


def listed(n: int, n_pairs: int | None, seed: Seed) -> tuple[Ints, Ints]:
    """Return all pairs i < j of n rows, or a sample of them."""
    total = n * (n - 1) // 2
    if n_pairs is None:
        n_pairs = min(total, MAX_TARGET_PAIRS)
    chosen = sample(total, n_pairs, generator(seed))
    return unrank_same(chosen, np.array([n]))


def pose(
    X: Array,
    labels: Ints | TargetPairs,
    targets: Any = "label",
    a: float = 0.25,
    b: float = 2.25,
    loss: str = "sstress",
    weighting: str = "equal",
    n_pairs: int | None = None,
    random_state: Seed = None,
) -> ClassTargets | ListedTargets:
    """Return the problem for `target_fit`; the settings are those of `MDSMetric`."""
    if isinstance(labels, TargetPairs):
        return weighed(X, labels.i, labels.j, labels.squares, loss, weighting)
    by_label = isinstance(targets, str) and targets == "label"
    if by_label and loss == "sstress" and weighting == "equal" and n_pairs is None:
        return ClassTargets(*scatter.known(X, labels), a, b)
    table = None
    if not (isinstance(targets, str) or callable(targets)):
        table = square_table(targets, len(X))
    if by_label or callable(targets):
        X, labels = scatter.known(X, labels)
    if n_pairs is not None:
        checks.counts(1, n_pairs=n_pairs)
    i, j = listed(len(X), n_pairs, random_state)
    before = pair_distances(X, X, i, j, "sqeuclidean")
    if table is not None:
        # tables hold distances, and t are squared
        t = table[i, j] ** 2
    elif callable(targets):
        t = np.asarray(targets(before, labels[i] == labels[j]), dtype=np.float64)
    elif by_label:
        t = before * np.where(labels[i] == labels[j], a, b)
    else:
        t = before
    if t.shape != i.shape or not np.isfinite(t).all() or (t < 0).any():
        got = f"shape {t.shape}, {t.ravel()[:5].tolist()}"
        raise ValueError(f"targets must give {len(i)} finite numbers >= 0, one per pair; got {got}")
    return weighed(X, i, j, t, loss, weighting)


def square_table(targets: AnyArray, n: int) -> Array:
    """Return a symmetric table of target distances, after validation."""
    needs = f"targets must be a table of {n} x {n} finite distances >= 0"
    table = checks.table(targets, needs)
    if table.shape != (n, n) or not np.isfinite(table).all() or (table < 0).any():
        raise ValueError(f"{needs}; got shape {table.shape}")
    if np.abs(table - table.T).max() > 1e-8 * max(float(table.max()), 1e-300):
        apart = float(np.abs(table - table.T).max())
        raise ValueError(f"targets must be a symmetric table; it differs from its transpose by {apart:.3g}")
    return table


def weighed(X: Array, i: Ints, j: Ints, t: Array, loss: str, weighting: str) -> ListedTargets:
    """Return listed targets with weight 1, or with smaller weights for larger targets."""
    if weighting == "equal":
        return ListedTargets(X, i, j, t)
    # targets near 0 would have weights without bound
    least = max(float(np.quantile(t, 0.05)), 1e-12 * float(t.max()), 1e-300)
    bounded = np.maximum(t, least)
    if loss == "sstress":
        # relative errors: (t - d)^2 / t^2 for squared distances, (sqrt t - d)^2 / t for distances
        weight = bounded**-2
    else:
        weight = 1 / bounded
    return ListedTargets(X, i, j, t, weight)
