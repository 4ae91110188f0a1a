"""Turn labels, functions or tables of targets into the problem of fitting them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....numerics import checks, scatter
from ....numerics.constraints import generator, sample, unrank_same
from ....numerics.distances import pair_distances
from ....numerics.types import AnyArray, Array, Ints, Seed
from ...target_pairs import Told
from .target_fit import ClassTargets, ListedTargets

MAX_TARGET_PAIRS = 2_000_000


def listed(n: int, n_pairs: int | None, seed: Seed) -> tuple[Ints, Ints]:
    """Return all pairs i < j of n rows, or a sample of them."""
    total = n * (n - 1) // 2
    chosen = sample(total, min(total, MAX_TARGET_PAIRS) if n_pairs is None else n_pairs, generator(seed))
    return unrank_same(chosen, np.array([n]))


def pose(
    X: Array,
    labels: Ints | Told,
    targets: Any = "label",
    a: float = 0.25,
    b: float = 2.25,
    loss: str = "sstress",
    weighting: str = "equal",
    n_pairs: int | None = None,
    random_state: Seed = None,
) -> ClassTargets | ListedTargets:
    """Return the problem for `target_fit`; the settings are those of `MDSMetric`."""
    if isinstance(labels, Told):
        return weighed(X, *labels, loss, weighting)
    by_label = isinstance(targets, str) and targets == "label"
    if by_label and loss == "sstress" and weighting == "equal" and n_pairs is None:
        return ClassTargets(*scatter.known(X, labels), a, b)
    if isinstance(targets, str) or callable(targets):
        table = None
    else:
        table = square_table(targets, len(X))
    if by_label or callable(targets):
        X, labels = scatter.known(X, labels)
    if n_pairs is not None:
        checks.counts(1, n_pairs=n_pairs)
    i, j = listed(len(X), n_pairs, random_state)
    before = pair_distances(X, X, i, j, "sqeuclidean")
    if table is not None:
        t = table[i, j] ** 2
    elif callable(targets):
        t = np.asarray(targets(before, labels[i] == labels[j]), dtype=np.float64)
    else:
        t = before * (np.where(labels[i] == labels[j], a, b) if by_label else 1.0)
    if t.shape != i.shape or not np.isfinite(t).all() or (t < 0).any():
        got = f"shape {t.shape}, {t.ravel()[:5].tolist()}"
        raise ValueError(f"targets must give {len(i)} finite numbers >= 0, one per pair; got {got}")
    return weighed(X, i, j, t, loss, weighting)


def square_table(targets: AnyArray, n: int) -> Array:
    """Check a symmetric table of target distances and return it."""
    needs = f"targets must be a table of {n} x {n} finite distances >= 0"
    table = checks.table(targets, needs)
    if table.shape != (n, n) or not np.isfinite(table).all() or (table < 0).any():
        raise ValueError(f"{needs}; got shape {table.shape}")
    if np.abs(table - table.T).max() > 1e-8 * max(float(table.max()), 1e-300):
        raise ValueError("targets must be a symmetric table of distances")
    return table


def weighed(X: Array, i: Ints, j: Ints, t: Array, loss: str, weighting: str) -> ListedTargets:
    """Return listed targets with weight 1, or with smaller weights for larger targets."""
    if weighting == "equal":
        return ListedTargets(X, i, j, t)
    bounded = np.maximum(t, max(float(np.quantile(t, 0.05)), 1e-12 * float(t.max()), 1e-300))
    return ListedTargets(X, i, j, t, bounded**-2 if loss == "sstress" else 1 / bounded)
