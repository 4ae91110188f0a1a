"""What a random ranking scores on average, in closed form.

N items, one number or one for each query, R of them relevant, H_n = 1 + 1/2 + ... + 1/n:
Recall@K       1 - C(N - R, K) / C(N, K)
precision@K    R min(K, N) / (N K)
R-precision    R / N
MAP@R          (H_R + (R - H_R) (R - 1) / (N - 1)) / N
MRR            R (H_N - H_{R-1}) / (N - R + 1)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from ..numerics.types import AnyArray, Array


def random_recall(relevant: AnyArray, items: AnyArray | int, k: int) -> Array:
    """Expected Recall@k of a random ranking for queries with ``relevant`` (n,) of ``items`` relevant items.

    Examples
    --------
    >>> random_recall(np.array([1, 2]), 4, 2).round(4).tolist()
    [0.5, 0.8333]
    """
    r = np.asarray(relevant, dtype=np.float64)
    drawn = np.minimum(k, items)
    rest = np.maximum(items - r - drawn, 0.0)
    # log of C(items - r, k) / C(items, k), the probability that no relevant item is among k drawn ones
    none = gammaln(items - r + 1) - gammaln(rest + 1) - gammaln(items + 1) + gammaln(items - drawn + 1)
    return np.where(items - r < drawn, 1.0, -np.expm1(np.minimum(none, 0.0)))


def random_precision(relevant: AnyArray, items: AnyArray | int, k: int) -> Array:
    """Expected precision@k of a random ranking, (n,)."""
    return np.asarray(relevant) / items * (np.minimum(k, items) / k)


def random_map_at_r(relevant: AnyArray, items: AnyArray | int) -> Array:
    """Return the expected MAP@R of a random ranking, shape (n,); 0 for queries without a relevant item."""
    r = np.asarray(relevant, dtype=np.float64)
    h = _harmonic(r)
    # 1/R sum_{i <= R} P(i relevant) E[hits up to i] / i, with P = R / n and E = 1 + (i - 1)(R - 1)/(n - 1), where
    # sum_{i <= R} 1/i = h
    return (h + (r - h) * np.maximum(r - 1, 0) / np.maximum(items - 1, 1)) / items


def random_mrr(relevant: AnyArray, items: AnyArray | int) -> Array:
    """Expected reciprocal rank of the best relevant item in a random ranking, (n,)."""
    r = np.asarray(relevant, dtype=np.float64)
    return r * (_harmonic(np.asarray(items, dtype=np.float64)) - _harmonic(np.maximum(r - 1, 0))) / (items - r + 1)


def _harmonic(n: Any) -> Any:
    return digamma(n + 1.0) + np.euler_gamma
