"""The softmax over neighbors of the neighborhood methods, in blocks: never an n x n matrix.

    p_ij = exp(-d_ij) / sum_{k != i} exp(-d_ik),  d_ij = |z_i - z_j|^2,  p_i = sum of p_ij over the class of i

A sum F of p_i, log p_i or -log sum_k exp(-d_ik) over anchors i has W = -dF/dd and, with S = W + W',

    dF/dL = 2 U' X,  dF/dM = X' U,  U = S Y - diag(S 1) Y  (Y = Z for the first, X for the second).

Rows are sorted by class, so that the class of the rows of a block is one slice of its columns. A block takes a product
for its distances, one exponential per pair and two products for U. Exponents are relative to the nearest neighbor of
each row, and clipped at a floor far below the resolution of the float type, because denormal numbers are slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..numerics.checks import class_sizes
from ..numerics.types import AnyArray, Array, Bools, Ints

SOFTMAX_BLOCK_PAIRS = 1 << 18  # pairs of one block: 2 MB in float64
EXPONENT_FLOORS = {"float32": -40.0, "float64": -300.0}  # least exponents


class SortedRows(NamedTuple):
    """Labeled rows, sorted by class.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        The rows.
    sizes : ndarray of shape (c,)
        Number of rows of each class.
    order : ndarray of shape (n,)
        Position of each row before sorting.
    """

    X: AnyArray
    sizes: Ints
    order: Ints

    @property
    def weight(self) -> Array:
        """1.0 for anchors, 0.0 for rows that are alone in their class, which are only neighbors of others."""
        return np.repeat(np.where(self.sizes > 1, 1.0, 0.0), self.sizes)

    def astype(self, dtype: str) -> SortedRows:
        """Return the same rows in another float type."""
        return self._replace(X=self.X.astype(dtype, copy=False))


def sorted_rows(X: Array, labels: Ints) -> SortedRows:
    """Return the rows with a label, sorted by their labels (codes 0..c-1, or -1 for none)."""
    order = np.argsort(labels, kind="stable")[(labels < 0).sum() :]  # -1 sorts first
    return SortedRows(X[order], class_sizes(labels), order)


class AnchorBlock(NamedTuple):
    """Anchors `start:stop`, whose classes are the columns `first:last`; `same` is set if there are several classes."""

    start: int
    stop: int
    first: int
    last: int
    same: Bools | None


def cut(sizes: Ints, height: int) -> Iterator[AnchorBlock]:
    """Yield blocks of at most `height` rows: parts of one class, or several whole small classes."""
    ends = np.cumsum(sizes)
    c = 0
    while c < len(sizes):
        first = int(ends[c] - sizes[c])
        # classes c, ..., many - 1 fit into one block together
        many = int(np.searchsorted(ends, ends[c] - sizes[c] + height, side="right"))
        if many > c + 1:
            codes = np.repeat(np.arange(c, many), sizes[c:many])
            yield AnchorBlock(first, int(ends[many - 1]), first, int(ends[many - 1]), codes[:, None] == codes)
            c = many
            continue
        last = int(ends[c])
        for start in range(first, last, height):
            yield AnchorBlock(start, min(start + height, last), first, last, None)
        c += 1


def height(n: int) -> int:
    """Return the number of rows of a block over n columns."""
    return max(16, SOFTMAX_BLOCK_PAIRS // max(n, 1))


class Shares(NamedTuple):
    """For each anchor i, its term f_i of F, and its weights in W = -dF/dd = near_i e_ij [same class] - every_i e_ij.

    e_ij is the shifted exponential of pair (i, j).
    """

    value: AnyArray
    near: AnyArray
    every: AnyArray


def accuracy(same: AnyArray, total: AnyArray, same_shift: AnyArray, shift: AnyArray) -> Shares:
    """F = sum_i p_i,  p_i = same_i / total_i;  W_ij = e_ij [same] / total_i - p_i e_ij / total_i."""
    p = same / total
    return Shares(p, 1 / total, p / total)


def log_accuracy(same: AnyArray, total: AnyArray, same_shift: AnyArray, shift: AnyArray) -> Shares:
    """F = sum_i log p_i, with both sums relative to their largest term, so that neither underflows.

    log p_i = log same_i + same_shift_i - log total_i - shift_i.
    """
    return Shares(np.log(same) + same_shift - np.log(total) - shift, 1 / same, 1 / total)


def log_normalizer(same: AnyArray, total: AnyArray, same_shift: AnyArray, shift: AnyArray) -> Shares:
    """F = -sum_i log sum_k exp(-d_ik)."""
    return Shares(-np.log(total) - shift, np.zeros_like(total), 1 / total)


KINDS = {"accuracy": accuracy, "log": log_accuracy, "normalizer": log_normalizer}


def neighbor_sums(
    Z: AnyArray,
    sizes: Ints,
    kind: str,
    weight: Array,
    *,
    blocks: Iterable[AnchorBlock] | None = None,
) -> tuple[float, AnyArray]:
    """Return F and U of the module's formulas, for Y = Z.

    Parameters
    ----------
    Z : ndarray of shape (n, k)
        Mapped rows, sorted by class, in float32 or float64.
    sizes : ndarray of shape (c,)
        Number of rows of each class.
    kind : {"accuracy", "log", "normalizer"}
        Term of F to sum over anchors.
    weight : ndarray of shape (n,)
        Weight of each anchor's term; 0 for anchors that are alone in their class.
    blocks : iterable of AnchorBlock, optional
        Anchors to sum over, with all columns. By default, all anchors.

    Returns
    -------
    F : float
        The sum.
    U : ndarray of shape (n, k)
        Its derivative, as in the formulas.

    Notes
    -----
    O(n^2 k) time. Memory: one block of 2 MB (1 MB in float32) and a few (n, k) arrays.
    """
    Z1 = with_ones(Z)
    S1 = np.zeros((Z1.shape[1], len(Z)), Z.dtype)
    F = 0.0
    for block, P, square in exponents(Z, sizes, blocks):
        rows = slice(block.start, block.stop)
        columns = slice(block.first, block.last)
        part = weigh(P, block, kind, Z1, weight[rows], square)
        F += part.value
        # S1 = [Z, 1]' S with S = W + W': the rows of W add moments = W [Z, 1], its columns W' [Z, 1]
        S1[:, rows] += part.moments.T
        if kind != "normalizer":
            S1[:, columns] += (part.near * Z1[rows]).T @ part.Q
        S1 -= (part.every * Z1[rows]).T @ P
    # U = S Z - diag(S 1) Z
    return F, S1[:-1].T - S1[-1][:, None] * Z


def neighbor_metric(
    Z: AnyArray, X: AnyArray, sizes: Ints, kind: str, weight: Array, *, blocks: Iterable[AnchorBlock] | None = None
) -> tuple[float, Array]:
    """Return F and dF/dM = A + A' - X' diag(S 1) X with A = X' W X, (d, d).

    It takes two products per block where `neighbor_sums` takes three, so it is faster if d is at most about 2 k.
    """
    d = X.shape[1]
    # the column of ones makes the sums of weights, S 1, part of the same products
    X1 = with_ones(X)
    A = np.zeros((d, d))
    S1 = np.zeros(len(X), X.dtype)
    F = 0.0
    for block, P, square in exponents(Z, sizes, blocks):
        rows = slice(block.start, block.stop)
        columns = slice(block.first, block.last)
        part = weigh(P, block, kind, X1, weight[rows], square)
        F += part.value
        A += X[rows].T @ part.moments[:, :d]
        S1[rows] += part.moments[:, d]
        if kind != "normalizer":
            S1[columns] += part.near[:, 0] @ part.Q
        S1 -= part.every[:, 0] @ P
    # X' (W + W') X - X' diag(S 1) X
    return F, A + A.T - X.T @ (S1[:, None] * X)


def with_ones(Y: AnyArray) -> AnyArray:
    """Return [Y, 1], with which one product gives weighted rows and sums of weights."""
    return np.hstack([Y, np.ones((len(Y), 1), Y.dtype)])


def exponents(
    Z: AnyArray, sizes: Ints, blocks: Iterable[AnchorBlock] | None = None
) -> Iterator[tuple[AnchorBlock, AnyArray, AnyArray]]:
    """Yield blocks of |z_i|^2 - d_ij (-inf for i itself), all in one buffer, and the |z_i|^2 of their rows."""
    n = len(Z)
    square = np.einsum("nk,nk->n", Z, Z)
    # |z_i|^2 - d_ij = 2 z_i'z_j - |z_j|^2 = [2 z_i, 1]'[z_j, -|z_j|^2]
    left = with_ones(2 * Z)
    right = np.ascontiguousarray(np.hstack([Z, -square[:, None]]).T)
    buffer = np.empty((height(n), n), Z.dtype)
    if blocks is None:
        blocks = cut(sizes, height(n))
    for block in blocks:
        P = np.dot(left[block.start : block.stop], right, out=buffer[: block.stop - block.start])
        own = np.arange(len(P))
        P[own, block.start + own] = -np.inf
        yield block, P, square[block.start : block.stop]


class SoftmaxPart(NamedTuple):
    """Part of a block: its sum of F, its W = near Q - every P (Q padded with 0 to all columns), and W [Y, 1].

    Q (b, q) holds the exponentials of the rows' own classes, P (b, n) those of all rows; near and every are (b, 1).
    """

    value: float
    Q: AnyArray
    near: AnyArray
    every: AnyArray
    moments: AnyArray


def weigh(P: AnyArray, block: AnchorBlock, kind: str, Y1: AnyArray, weight: Array, square: AnyArray) -> SoftmaxPart:
    """Return the part of a block; the exponents in P are replaced by their exponentials."""
    columns = slice(block.first, block.last)
    if kind == "log":
        Q, same_shift = own_class(P[:, columns], block.same)
        shift = exponentiate(P)
    else:
        shift = exponentiate(P)
        same_shift = shift
        Q = P[:, columns]
        if block.same is not None:
            Q = Q * block.same
    near = Q @ Y1[columns]  # (b, k + 1), whose last column holds the sums over the own class
    every = P @ Y1  # (b, k + 1), whose last column holds the sums over all rows
    if kind == "normalizer":
        shift = shift - square  # log sum_k exp(-d_ik) = log total_i + shift_i - |z_i|^2
    shares = KINDS[kind](near[:, -1], every[:, -1], same_shift, shift)
    w = weight.astype(P.dtype)
    a = (w * shares.near)[:, None]
    b = (w * shares.every)[:, None]
    return SoftmaxPart(float(weight @ shares.value), Q, a, b, a * near - b * every)


def own_class(C: AnyArray, same: Bools | None) -> tuple[AnyArray, AnyArray]:
    """Return the exponentials of the rows' own classes, relative to the largest of each row, and this shift."""
    if same is None:
        Q = C.copy()
    else:
        Q = np.where(same, C, C.dtype.type(-np.inf))
    return Q, exponentiate(Q)


def exponentiate(P: AnyArray) -> AnyArray:
    """Replace P by exp(P - shift), where the shift is the largest exponent of each row, and return the shift."""
    shift = np.maximum(P.max(axis=1), np.finfo(P.dtype).min)
    P -= shift[:, None]
    np.maximum(P, EXPONENT_FLOORS[P.dtype.name], out=P)
    np.exp(P, out=P)
    return shift


def batches(blocks: list[AnchorBlock], size: int, rng: np.random.Generator) -> Iterator[list[AnchorBlock]]:
    """Yield the blocks in random order, in batches of at least `size` anchors except for the last one."""
    batch: list[AnchorBlock] = []
    for k in rng.permutation(len(blocks)):
        batch.append(blocks[k])
        if sum(block.stop - block.start for block in batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
