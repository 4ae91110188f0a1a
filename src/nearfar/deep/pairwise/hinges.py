"""Positives against negatives without triplets: hinges and searches in O(K m) or O(m log m) per row.

A row has K positives and m references. If K is small and known (on a CPU), one pass over the row for each positive is
faster than sorting the row; otherwise, the row is sorted once. Both give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..autograd import applied, recomputed, traced
from ..precision import precise
from .comparison import FULL, Rows, Triplets, count, is_small, masked_fill, on_host

MAX_HINGES_AT_ONCE = 1 << 16  # up to so many hinges, the number of calls determines the time
MAX_POSITIVES_WITHOUT_SORT = 12  # up to so many positives per row, one pass for each is faster than a sort


def positives(rows: Rows, *, one_by_one: bool = False) -> tuple[Tensor, Tensor]:
    """Return the (b, k) columns of each anchor's positives, and which of the k places hold one.

    On a CPU, k is the largest number of positives in a row. On a device, or in a compiled graph, reading that number
    would wait for the device, so k is the width of the row. A caller that visits the columns `one_by_one` would rather
    wait once than visit all m.
    """
    b, m = rows.pos.shape
    if one_by_one and not on_host(rows.pos) and not traced():
        most = int(rows.pos.sum(1).max()) if b else 0
        return _first_columns(rows.pos, most)
    if not on_host(rows.pos):
        return torch.arange(m, device=rows.d.device).expand(b, m), rows.pos
    if is_small(rows.pos):
        most = max(count(rows.pos).tolist(), default=0)
        return _first_columns(rows.pos, most)
    # row and column of every positive, in the order of the rows
    row, column = np.divmod(rows.pos.numpy().reshape(-1).nonzero()[0], m)
    most = len(row) // b
    if most and row[::most].tolist() == row[most - 1 :: most].tolist() == list(range(b)):
        # every row has the same number, and needs no padding
        return torch.from_numpy(column.reshape(b, most)), torch.ones(b, most, dtype=torch.bool)
    number = np.bincount(row, minlength=b)
    keep = np.arange(number.max()) < number[:, None]  # (b, k)
    padded = np.zeros(keep.shape, dtype=np.int64)
    padded[keep] = column
    return torch.from_numpy(padded), torch.from_numpy(keep)


def _first_columns(mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return k columns of each row, (b, k), those where the mask is True first, and whether it is True there."""
    values, columns = mask.byte().topk(k, 1)
    return columns, values.bool()


def near_columns(rows: Rows) -> tuple[Tensor | None, Tensor]:
    """Return what `positives` does, for losses in which each positive's distance counts for itself.

    For a small block, the columns are None, which means all of them, and the mask is that of the block: it takes
    longer to find the few positives than to compute with every entry.
    """
    if is_small(rows.pos):
        return None, rows.pos
    return positives(rows)


def near_distances(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return (b, k) distances, which include those of all positives, and a (b, k) mask of these.

    The other entries are finite, and may be any distances of the row: k is m in a small block (see `near_columns`), and
    otherwise the largest number of positives of an anchor.
    """
    columns, keep = near_columns(rows)
    if columns is None:
        return rows.d, keep
    return rows.d.gather(1, columns), keep


def sum_over_positives(rows: Rows, one: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Sum ``one(column, real)``, two (b,) tensors, over the places of the positives, one after the other.

    `column`, (b,), holds one positive of each anchor, where `real`, (b,), is True. If the graphs of all places together
    would take much memory, the backward pass computes each again.
    """
    columns, keep = positives(rows, one_by_one=True)
    value = rows.d.sum(1) * 0  # part of the graph even without positives
    number = torch.zeros_like(count(rows.pos))
    again = columns.shape[1] * rows.pos.numel() > FULL and not traced()
    for column, real in zip(columns.T, keep.T, strict=True):
        if again:
            more_value, more_number = recomputed(one, column, real)
        else:
            more_value, more_number = one(column, real)
        value = value + more_value
        number = number + more_number
    return value, number


def negatives(rows: Rows) -> Tensor:
    """Return the (b, m) dissimilarities of the negatives, and infinity everywhere else.

    A gradient at the infinite entries would be passed on, too, but no finite value has one there.
    """
    if is_small(rows.d):
        return torch.where(rows.neg, rows.d, torch.inf)
    value: Tensor = applied(_Negatives, rows.d, rows.neg)
    return value


class _Negatives(torch.autograd.Function):
    """See `negatives`."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, neg: Tensor) -> Tensor:
        return masked_fill(d, neg, torch.inf)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def narrowed(rows: Rows, triplets: Triplets) -> Rows:
    """Return a block with mined triplets only: as triplets, and as masks for losses of pairs."""
    pos = marks(rows.pos, triplets.positive, triplets.keep)
    neg = marks(rows.neg, triplets.negative, triplets.keep)
    return rows._replace(pos=pos, neg=neg, triplets=triplets)


def marks(mask: Tensor, columns: Tensor, keep: Tensor) -> Tensor:
    """Return a mask, of the shape of another, that is True at the kept columns, (b, k), of each row."""
    marked = torch.zeros_like(mask, dtype=torch.uint8)
    return marked.scatter_reduce_(1, columns, keep.to(torch.uint8), "amax").view(torch.bool)


class _Hinges(torch.autograd.Function):
    """See `hinges`; the gradient needs only the counts.

    For the sum S = sum_kj [t_k - v_j]_+ of a row, dS/dt_k is the number k of values below t_k, and -dS/dv_j the number
    c of thresholds above v_j.
    """

    @staticmethod
    def forward(ctx: Any, t: Tensor, v: Tensor, beyond: Tensor | None) -> tuple[Tensor, Tensor]:
        if is_small(v) and t.shape[1] * v.numel() <= MAX_HINGES_AT_ONCE:
            value, k, c = _at_once(t, v, beyond)
        elif few(t):
            value, k, c = _by_columns(t, v, beyond)
        else:
            value, k, c = _by_sorting(t, v, beyond)
        ctx.save_for_backward(k, c)
        ctx.mark_non_differentiable(k)
        return value, k

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        k, c = ctx.saved_tensors
        return grads[0][:, None] * k, -grads[0][:, None] * c, None


def few(t: Tensor) -> bool:
    """Return whether one pass over the row for each of its K thresholds or positives, (b, K), is faster than a sort.

    In a compiled graph, K is the size of the batch (see `positives`): a loop over it would hold for one size only.
    """
    if torch.compiler.is_compiling():
        return t.shape[1] == 1
    return t.shape[1] <= MAX_POSITIVES_WITHOUT_SORT


def hinges(t: Tensor, v: Tensor, beyond: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum the hinges of every threshold of a row with every value of the row.

    Parameters
    ----------
    t : (b, K) tensor
        Thresholds. A threshold of -inf is above no value.
    v : (b, m) tensor
        Values. A value of +inf is below no threshold.
    beyond : (b, K) tensor, optional
        Lower bounds, each at most its threshold; only values above them count.

    Returns
    -------
    tuple of Tensor
        (b,) sums over thresholds and values of [t - v]_+, and (b, K) numbers of values that count below each threshold.
    """
    return applied(_Hinges, t, v, beyond)


def _at_once(t: Tensor, v: Tensor, beyond: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sums (b,), the counts k (b, K) of the thresholds, and the counts c (b, m) of the values."""
    hinge = (t[:, :, None] - v[:, None]).clamp_min_(0)  # (b, K, m)
    if beyond is not None:
        hinge.masked_fill_(v[:, None] <= beyond[:, :, None], 0)
    active = hinge > 0
    return hinge.sum((1, 2)), active.sum(2, dtype=torch.int32), active.sum(1, dtype=v.dtype)


def _by_columns(t: Tensor, v: Tensor, beyond: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `_at_once` does, one threshold of each row after the other; no (b, K, m) array."""
    value = v.new_zeros(len(v))
    k = torch.zeros_like(t, dtype=torch.int32)
    if t.shape[1]:
        c = torch.empty_like(v)
    else:
        c = torch.zeros_like(v)
    for column in range(t.shape[1]):
        # the first threshold's hinges are computed where its counts will be: in c
        out = torch.empty_like(v) if column else c
        hinge = torch.sub(t[:, column : column + 1], v, out=out)
        hinge.clamp_min_(0)
        if beyond is not None:
            hinge.masked_fill_(v <= beyond[:, column : column + 1], 0)
        value += hinge.sum(1)
        active = hinge.sign_()  # 1 where positive; on a CPU several times as fast as a comparison
        k[:, column] = active.sum(1)
        if column:
            c += active
    return value, k, c


def _by_sorting(t: Tensor, v: Tensor, beyond: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `_at_once` does, in O((K + m) log m) per row.

    Of the k values below a threshold t, the hinges add up to k t - (sum of the k smallest values).
    """
    # the k values below t: a binary search in the sorted row
    near = v.sort(1).values
    finite = near.masked_fill(near.isinf(), 0).to(precise(v.device))
    totals = pad(finite.cumsum(1), (1, 0))  # (b, m + 1): entry k is the sum of the k smallest
    k = torch.searchsorted(near, t)
    total = totals.gather(1, k)
    # thresholds above a value, found in the sorted thresholds
    c = t.shape[1] - torch.searchsorted(t.sort(1).values, v, right=True)
    if beyond is not None:
        # the values up to `beyond` do not count
        least = torch.searchsorted(near, beyond, right=True)
        k = k - least
        total = total - totals.gather(1, least)
        c = c - t.shape[1] + torch.searchsorted(beyond.sort(1).values, v)
    sums = (k * t.to(total.dtype) - total).masked_fill(k == 0, 0)  # a threshold of -inf has k = 0: -inf * 0 is NaN
    return sums.sum(1).to(v.dtype), k, c


def next_above(t: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Find for every threshold the smallest value of its row that is strictly above it.

    Parameters
    ----------
    t : (b, K) tensor
        Thresholds.
    v : (b, m) tensor
        Values. A value of +inf is never found.

    Returns
    -------
    tuple of Tensor
        (b, K) columns of v, arbitrary if no value is above, and (b, K) whether there is one.
    """
    if not t.shape[1]:
        return t.long(), t.bool()
    if few(t):
        above = [torch.where(v > column[:, None], v, torch.inf).min(1) for column in t.T]
        least = torch.stack([found.values for found in above], 1)
        columns = torch.stack([found.indices for found in above], 1)
        return columns, least < torch.inf
    near, order = v.sort(1)
    # the place of the first value above t in the sorted row; the last place, if there is none
    k = torch.searchsorted(near, t, right=True).clamp_max(max(v.shape[1] - 1, 0))
    least = near.gather(1, k)
    return order.gather(1, k), (least > t) & least.isfinite()
