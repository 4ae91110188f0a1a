"""Selection of the pairs to ask about next: candidates, and the best pairs of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....neighbors.nearest import nearest
from ....numerics import checks
from ....numerics.constraints import generator, sample, unrank_same
from ....numerics.types import Array, Ints, Seed


def candidates(X: Array, n_random: int, n_neighbors: int, seed: Seed = None) -> Ints:
    """Return distinct pairs of rows, shape (m, 2): random ones, and every row with each of its nearest neighbors.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Mapped rows: neighbors are found by Euclidean distance.
    """
    checks.counts(0, n_random=n_random, n_neighbors=n_neighbors)
    n = len(X)
    i, j = unrank_same(sample(n * (n - 1) // 2, n_random, generator(seed)), np.array([n]))
    k = min(n_neighbors, n - 1)
    if k:
        near = nearest(X, X, k, exclude_self=True)[1]
    else:
        near = np.zeros((n, 0), dtype=np.intp)
    edges = np.stack([np.repeat(np.arange(n), k), near.ravel()], axis=1)
    return np.unique(np.sort(np.r_[np.stack([i, j], axis=1), edges], axis=1), axis=0)


def answers(oracle: Callable[[Ints], Any], queried: Ints) -> Ints:
    """Ask the oracle about pairs (n, 2); raise a ValueError unless it answers each with +1 or -1."""
    given = np.asarray(oracle(queried))
    if given.shape != (len(queried),) or not np.isin(given, (-1, 1)).all():
        got = f"shape {given.shape}, {given.ravel()[:5].tolist()}"
        raise ValueError(f"oracle must answer each of {len(queried)} pairs with +1 or -1; got {got}")
    return given


def best(scores: Array, n: int, pool: Ints | None = None) -> Ints:
    """Return the positions of the n largest scores, ties in order; with `pool`, no two chosen pairs share a point."""
    order = np.argsort(-scores, kind="stable")
    if pool is None:
        return order[:n]
    chosen: list[int] = []
    ranked = pool[order]
    free = np.ones(len(order), dtype=bool)
    while len(chosen) < n and free.any():
        k = int(free.argmax())
        chosen.append(k)
        free &= ~np.isin(ranked, ranked[k]).any(axis=1)
    return order[chosen]
