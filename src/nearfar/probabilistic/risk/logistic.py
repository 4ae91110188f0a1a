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

ZERO_EXPONENT = -300.0  # exponent of pairs that do not count: its exponential is as good as 0
LINEAR_LOGIT = 36.0  # t from which on log(1 + e^t) equals t in float64, and its derivative 1
FACTORS_PER_PRODUCT = 16  # factors 1 + e^t with t up to LINEAR_LOGIT whose product is finite
LOGISTIC_BLOCK_PAIRS = 1 << 16  # pairs of one block, which stay in the cache


class Loss(NamedTuple):
    """Value E, slope dE/db, and pull = (diag(S 1) - S) Y for moments Y, where S is symmetric and holds dE/dd_p.

    With Y = Z, dE/dL = 2 pull' X; with Y = X, dE/dM = X' pull.
    """

    value: float
    slope: float
    pull: AnyArray


class ListedPairs(NamedTuple):
    """Listed pairs with signs s and weights w (m,), in the order of the list."""

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
    """Return log(1 + exp t) and its derivative, without overflow."""
    # log(1 + e^t) = max(t, 0) + log(1 + e^-|t|)
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
        """Return E of mapped rows Z over the pairs i < j, in blocks of rows i: all blocks, or the given `blocks`."""
        n = len(Z)
        q = moments.shape[1]
        square = np.einsum("nk,nk->n", Z, Z)[:, None]
        ones = np.ones((n, 1))
        # beta (d_ij - b) = beta [-2 z_i, |z_i|^2 - b, 1]'[z_j, 1, |z_j|^2]
        left = beta * np.hstack([-2 * Z, square - b, ones])
        right = np.hstack([Z, ones, square]).T
        Y1 = np.hstack([moments, ones])
        S1 = np.zeros((n, q + 1))
        value = 0.0
        slope = 0.0
        if blocks is None:
            blocks = cut(self.rows.sizes, self.height())
        for block in blocks:
            rows = slice(block.start, block.stop)
            for columns, kind in self.parts(block, n):
                T = left[rows] @ right[:, columns]
                # T becomes dE/dd, up to the factor `scale`
                if kind == 0:
                    loss, scale = self.weigh(T, block)
                else:
                    loss, scale = self.of_kind(T, kind)
                moved = scale * (T @ Y1[columns])
                value += loss
                slope -= float(moved[:, -1].sum())
                S1[rows] += moved
                S1[columns] += T.T @ (scale * Y1[rows])
        return Loss(value / beta, slope, S1[:, -1:] * moments - S1[:, :-1])

    def height(self) -> int:
        """Return the number of rows of a block."""
        return int(np.clip(LOGISTIC_BLOCK_PAIRS // max(self.rows.sizes), 16, 256))

    @staticmethod
    def parts(block: AnchorBlock, n: int) -> Iterator[tuple[slice, int]]:
        """Yield the columns from the first row of a block on, and their kind.

        The kind is 0 for the rows of the block, 1 for later rows of their class, and -1 for later rows of others.
        """
        yield slice(block.start, block.stop), 0
        step = max(16, LOGISTIC_BLOCK_PAIRS // (block.stop - block.start))
        for first, last, kind in ((block.stop, block.last, 1), (block.last, n, -1)):
            for a in range(first, last, step):
                yield slice(a, min(a + step, last)), kind

    def of_kind(self, T: Array, s: int) -> tuple[float, float]:
        """Return the loss of T = beta (d - b) for pairs of one sign s; T becomes dE/dd up to the factor returned."""
        w = self.similar if s > 0 else self.dissimilar
        if s < 0:
            np.negative(T, out=T)
        return w * summed_softplus(T), w * s

    def weigh(self, T: Array, block: AnchorBlock) -> tuple[float, float]:
        """Do the same for the pairs i < j of rows of the block."""
        # pairs j <= i were counted with an earlier row, or are a row with itself
        unseen = np.tri(len(T), dtype=bool)
        if block.same is None:
            T[unseen] = ZERO_EXPONENT
            found = self.of_kind(T, 1)
            T[unseen] = 0.0
            return found
        others = T.copy()
        T[unseen | ~block.same] = ZERO_EXPONENT
        others[unseen | block.same] = -ZERO_EXPONENT
        near, _ = self.of_kind(T, 1)
        far, _ = self.of_kind(others, -1)
        T *= self.similar
        T -= self.dissimilar * others
        T[unseen] = 0.0
        return near + far, 1.0


def summed_softplus(T: Array) -> float:
    """Return sum log(1 + exp T), by logarithms of products instead of one logarithm per pair; T becomes sigma(T)."""
    if T.size == 0:
        return 0.0
    beyond = 0.0
    if T.max() > LINEAR_LOGIT:
        beyond = float(np.maximum(T - LINEAR_LOGIT, 0.0).sum())
    np.minimum(T, LINEAR_LOGIT, out=T)
    np.exp(T, out=T)
    total = T + 1.0
    np.divide(T, total, out=T)
    first = np.arange(0, T.shape[1], FACTORS_PER_PRODUCT)
    factors = np.multiply.reduceat(total, first, axis=1)
    return beyond + float(np.log(factors).sum())
