"""The logistic loss of squared distances against a threshold b, over listed pairs or over all pairs of labeled rows.

E = sum_p w_p log(1 + exp(beta s_p (d_p - b))) / beta,  s_p = +1 for similar, -1 for dissimilar pairs
dE/dd_p = w_p s_p sigma(beta s_p (d_p - b)),  dE/db = -sum_p dE/dd_p
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ...numerics.pair_differences import PairList
from ...numerics.types import AnyArray, Array
from ..neighbor_softmax import AnchorBlock, SortedRows, cut

ZERO_EXPONENT = -300.0  # an exponent whose exponential counts as 0
LINEAR_LOGIT = 36.0  # from this t on, log(1 + e^t) is t and its derivative 1
FACTORS_PER_PRODUCT = 16  # so many factors 1 + e^t, t below LINEAR_LOGIT, have a finite product
LOGISTIC_BLOCK_PAIRS = 1 << 16  # pairs looked at together: they stay in the cache


class Loss(NamedTuple):
    """Value, dE/db, and Y = (diag(S 1) - S) times the moments: dE/dL = 2 Y' X with moments Z."""

    value: float
    slope: float
    pull: AnyArray


class ListedPairs(NamedTuple):
    """Listed pairs with signs s and weights w, in the list's order."""

    pairs: PairList
    s: Array
    w: Array

    def loss(self, Z: AnyArray, moments: AnyArray, b: float, beta: float = 1.0) -> Loss:
        """Return E of mapped rows Z."""
        t = beta * self.s * (self.pairs.squared_distances(Z) - b)
        value, sigma = softplus(t)
        weight = self.w * self.s * sigma
        return Loss(float(self.w @ value) / beta, -float(weight.sum()), self.pairs.laplacian_times(weight, moments))


def softplus(t: Array) -> tuple[Array, Array]:
    """log(1 + exp t) and its derivative, without overflow."""
    e = np.exp(-np.abs(t))
    return np.maximum(t, 0.0) + np.log1p(e), np.where(t > 0, 1.0, e) / (1.0 + e)


class LabeledPairs(NamedTuple):
    """All pairs of rows sorted by class, with one weight for similar and one for dissimilar pairs."""

    rows: SortedRows
    similar: float
    dissimilar: float

    def loss(
        self, Z: AnyArray, moments: AnyArray, b: float, beta: float = 1.0, blocks: Iterable[AnchorBlock] | None = None
    ) -> Loss:
        """Return E of mapped rows Z over the pairs i < j, in blocks of rows i; with `blocks`, over these alone."""
        n = len(Z)
        q = moments.shape[1]
        square = np.einsum("nk,nk->n", Z, Z)[:, None]
        ones = np.ones((n, 1))
        left = beta * np.hstack([-2 * Z, square - b, ones])
        right = np.hstack([Z, ones, square]).T
        Y1 = np.hstack([moments, ones])
        S1 = np.zeros((n, q + 1))
        value = 0.0
        slope = 0.0
        for block in cut(self.rows.sizes, self.height()) if blocks is None else blocks:
            rows = slice(block.start, block.stop)
            for columns, kind in self.parts(block, n):
                T = left[rows] @ right[:, columns]
                loss, scale = self.weigh(T, block) if kind == 0 else self.of_kind(T, kind)
                moved = scale * (T @ Y1[columns])
                value += loss
                slope -= float(moved[:, -1].sum())
                S1[rows] += moved
                S1[columns] += T.T @ (scale * Y1[rows])
        return Loss(value / beta, slope, S1[:, -1:] * moments - S1[:, :-1])

    def height(self) -> int:
        """Rows of a block."""
        return int(np.clip(LOGISTIC_BLOCK_PAIRS // max(self.rows.sizes), 16, 256))

    @staticmethod
    def parts(block: AnchorBlock, n: int) -> Iterator[tuple[slice, int]]:
        """Yield columns from the block's first row on, in parts: its rows (0), their class (1), other classes (-1)."""
        yield slice(block.start, block.stop), 0
        step = max(16, LOGISTIC_BLOCK_PAIRS // (block.stop - block.start))
        for first, last, kind in ((block.stop, block.last, 1), (block.last, n, -1)):
            for a in range(first, last, step):
                yield slice(a, min(a + step, last)), kind

    def of_kind(self, T: Array, s: int) -> tuple[float, float]:
        """Return the losses of T = beta (d - b), all of one sign s, and the factor of T that then gives dE/dd."""
        w = self.similar if s > 0 else self.dissimilar
        if s < 0:
            np.negative(T, out=T)
        return w * summed_softplus(T), w * s

    def weigh(self, T: Array, block: AnchorBlock) -> tuple[float, float]:
        """Do the same for the block's rows among themselves, of which only pairs i < j count."""
        unseen = np.tri(len(T), dtype=bool)
        if block.same is None:
            T[unseen] = ZERO_EXPONENT
            found = self.of_kind(T, 1)
            T[unseen] = 0.0
            return found
        others = T.copy()
        T[unseen | ~block.same] = ZERO_EXPONENT
        others[unseen | block.same] = -ZERO_EXPONENT
        (near, _) = self.of_kind(T, 1)
        (far, _) = self.of_kind(others, -1)
        T *= self.similar
        T -= self.dissimilar * others
        T[unseen] = 0.0
        return near + far, 1.0


def summed_softplus(T: Array) -> float:
    """Return sum log(1 + exp T), by logarithms of products instead of one per pair; T becomes sigma(T)."""
    if T.size == 0:
        return 0.0
    beyond = float(np.maximum(T - LINEAR_LOGIT, 0.0).sum()) if T.max() > LINEAR_LOGIT else 0.0
    np.minimum(T, LINEAR_LOGIT, out=T)
    np.exp(T, out=T)
    total = T + 1.0
    np.divide(T, total, out=T)
    return beyond + float(
        np.log(np.multiply.reduceat(total, np.arange(0, T.shape[1], FACTORS_PER_PRODUCT), axis=1)).sum()
    )
