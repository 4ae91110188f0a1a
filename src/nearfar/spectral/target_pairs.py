"""Validation of pairs with target distances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..numerics import checks, constraints
from ..numerics.types import AnyArray, Array, Ints


class TargetPairs(NamedTuple):
    """Pairs with squared target distances."""

    i: Ints
    j: Ints
    squares: Array


def check(
    pairs: AnyArray | None, distances: AnyArray | None, n: int, rows: AnyArray | None = None, prefix: str = ""
) -> TargetPairs:
    """Validate pairs and target distances of the user.

    With `rows`, the numbers that pairs use for rows, only the pairs of existing rows are kept.

    Raises
    ------
    ValueError
        One argument was given without the other, indices are invalid, or distances are not finite numbers of at least
        0. Messages put `prefix` before the names of both arguments.
    """
    if pairs is None or distances is None:
        raise ValueError(f"{prefix}pairs and {prefix}distances must be given together")
    m = len(np.atleast_1d(checks.table(pairs, f"{prefix}pairs must be an integer array of shape (m, 2)", None)))
    needs = f"{prefix}distances must be {m} finite numbers >= 0, one per pair"
    t = checks.table(distances, needs)
    if t.shape != (m,) or not np.isfinite(t).all() or (t < 0).any():
        raise ValueError(f"{needs}; got shape {t.shape}, {t.ravel()[:5].tolist()}")
    if rows is not None:
        pairs, t = constraints.present(pairs, rows, n, f"{prefix}pairs", t)
    ij = constraints.check_indices(pairs, 2, n, f"{prefix}pairs")
    return TargetPairs(ij[:, 0], ij[:, 1], t**2)
