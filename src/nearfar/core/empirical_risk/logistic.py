"""The logistic loss of squared distances against a threshold b, over listed pairs or over all pairs of labelled rows.

E = sum_p w_p log(1 + exp(beta s_p (d_p - b))) / beta,  s_p = +1 for similar, -1 for dissimilar pairs
dE/dd_p = w_p s_p sigma(beta s_p (d_p - b)),  dE/db = -sum_p dE/dd_p
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..neighborhoods.softmax import Block, SortedRows, cut, height
from ..pairs import PairList
from ..types import AnyArray, Array, Bools

FAR = -300.0  # an exponent that counts as nothing
CHUNK = 512  # factors 1 + e^-|t| <= 2 whose product stays finite


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
        """E of mapped rows Z."""
        t = beta * self.s * (self.pairs.squared_distances(Z) - b)
        value, sigma = softplus(t)
        weight = self.w * self.s * sigma
        return Loss(float(self.w @ value) / beta, -float(weight.sum()), self.pairs.laplacian_times(weight, moments))


def softplus(t: Array) -> tuple[Array, Array]:
    """log(1 + exp t) and its derivative, without overflow."""
    e = np.exp(-np.abs(t))
    return np.maximum(t, 0.0) + np.log1p(e), np.where(t > 0, 1.0, e) / (1.0 + e)


class LabelledPairs(NamedTuple):
    """All pairs of rows sorted by class, with one weight for similar and one for dissimilar pairs."""

    rows: SortedRows
    similar: float
    dissimilar: float

    def loss(
        self, Z: AnyArray, moments: AnyArray, b: float, beta: float = 1.0, blocks: Iterable[Block] | None = None
    ) -> Loss:
        """E of mapped rows Z over the pairs i < j, in blocks of rows i; or over some of these blocks."""
        n, q = len(Z), moments.shape[1]
        square = np.einsum("nk,nk->n", Z, Z)
        Y1 = np.hstack([moments, np.ones((n, 1))])
        S1, value, slope = np.zeros((n, q + 1)), 0.0, 0.0
        for block in cut(self.rows.sizes, height(n)) if blocks is None else blocks:
            rows, columns = slice(block.start, block.stop), slice(block.start, n)
            T = -2 * Z[rows] @ Z[columns].T
            T += square[rows, None]
            T += square[columns]
            np.maximum(T, 0.0, out=T)
            T -= b
            T *= beta
            value += self.weigh(T, block)
            slope -= float(T.sum())
            S1[rows] += T @ Y1[columns]
            S1[columns] += T.T @ Y1[rows]
        return Loss(value / beta, slope, S1[:, -1:] * moments - S1[:, :-1])

    def weigh(self, T: Array, block: Block) -> float:
        """Losses of beta (d - b) in T, whose columns start at the block's rows; T becomes the weights dE/dd."""
        own = block.last - block.start
        later = np.triu(np.ones((len(T), own), dtype=bool), 1)
        if block.same is None:
            value = part(T[:, :own], 1.0, self.similar, later)
        else:
            others = T[:, :own].copy()
            value = part(T[:, :own], 1.0, self.similar, later & block.same)
            value += part(others, -1.0, self.dissimilar, later & ~block.same)
            T[:, :own] += others
        return value + part(T[:, own:], -1.0, self.dissimilar)


def part(T: Array, s: float, w: float, counted: Bools | None = None) -> float:
    """Losses of one sign; T becomes its weights."""
    T *= s
    if counted is not None:
        T[~counted] = FAR
    value, sigma = summed_softplus(T)
    np.multiply(sigma, w * s, out=T)
    if counted is not None:
        T[~counted] = 0.0
    return w * value


def summed_softplus(T: Array) -> tuple[float, Array]:
    """sum log(1 + exp T) and sigma(T): logarithms of products instead of one logarithm per pair."""
    if T.size == 0:
        return 0.0, T
    positive = float(np.maximum(T, 0.0).sum())
    e = np.abs(T)
    np.negative(e, out=e)
    np.exp(e, out=e)
    top = np.where(T > 0, 1.0, e)
    e += 1.0
    starts = np.arange(0, T.shape[1], CHUNK)
    logs = float(np.log(np.multiply.reduceat(e, starts, axis=1)).sum())
    return positive + logs, np.divide(top, e, out=top)
