"""Triplet loss (Schroff, Kalenichenko & Philbin, 2015).

    L = sum over triplets (a, p, n) of [d_ap - d_an + m]_+  /  number of triplets with a positive term

Over all triplets of a row it costs a sort, O(m log m), never O(m^2): the negatives nearer than d_ap + m are a prefix
of the sorted negatives, and prefix sums give their total.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from ..rows import Rows
from ..terms import RowLoss

REDUCTIONS = ("active", "valid", "sum")


class _AllTriplets(torch.autograd.Function):
    """Per anchor: the sum of the hinges over all its triplets, and how many are active."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, pos: Tensor, neg: Tensor, margin: float) -> tuple[Tensor, Tensor]:
        near = d.masked_fill(~neg, torch.inf).sort(1).values  # (b, m) negatives, nearest first
        sums = pad(near.masked_fill(near.isinf(), 0).double().cumsum(1), (1, 0))  # total of the k nearest
        reach = d + margin
        k = torch.searchsorted(near, reach).masked_fill(~pos, 0)  # active negatives of each positive
        hinge = k * reach.double() - sums.gather(1, k)
        far = reach.masked_fill(~pos, -torch.inf).sort(1).values
        c = (d.shape[1] - torch.searchsorted(far, d, right=True)).masked_fill(~neg, 0)  # and the other way round
        ctx.save_for_backward(k - c)  # dL/dd_ap = k, dL/dd_an = -c
        active = k.sum(1)
        ctx.mark_non_differentiable(active)
        return hinge.masked_fill(~pos, 0).sum(1).to(d.dtype), active

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (counts,) = ctx.saved_tensors
        return grads[0][:, None] * counts, None, None, None


def all_triplets(rows: Rows, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over all its triplets of [d_ap - d_an + m]_+ and the number of active ones."""
    return _AllTriplets.apply(rows.d, rows.pos, rows.neg, margin)


def mined_triplets(rows: Rows, margin: float, soft: bool) -> tuple[Tensor, Tensor]:
    """Return the same over the triplets of each positive with its partner; soft: log(1 + exp(d_ap - d_an))."""
    assert rows.partner is not None
    gap = rows.d - rows.d.gather(1, rows.partner)
    value = softplus(gap) if soft else (gap + margin).clamp_min(0)
    value = value.masked_fill(~rows.pos, 0)
    return value.sum(1), (value > 0).sum(1)


def soft_triplets(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over all its triplets of log(1 + exp(d_ap - d_an)), one positive of each row a time."""
    most = int(rows.pos.sum(1).max()) if rows.pos.numel() else 0
    order = rows.pos.int().argsort(dim=1, descending=True, stable=True)[:, :most]  # the positives' columns first
    value = rows.d.sum(1) * 0
    for column in order.T:
        d_ap, real = rows.d.gather(1, column[:, None]), rows.pos.gather(1, column[:, None])
        value = value + softplus(d_ap - rows.d).masked_fill(~(rows.neg & real), 0).sum(1)
    return value, rows.pos.sum(1) * rows.neg.sum(1)


class TripletLoss(RowLoss):
    """Triplet loss over all, or the mined, triplets of the batch.

    Parameters
    ----------
    margin : float
        m, in the unit of the distance (0.2 on squared distances of unit vectors is the paper's).
    soft : bool
        log(1 + exp(d_ap - d_an)) in place of the hinge, without margin (Hermans, Beyer & Leibe, 2017).
    distance : str
        "sq_euclidean" (the paper's), "euclidean", "cosine", "dot".
    normalize : bool
        Scale embeddings to unit length first, as the paper does.
    mine : callable, optional
        A miner such as ``BatchHard()`` or ``BatchSemiHard()``; None takes all triplets.
    reduction : str
        Divide by the number of triplets with a positive loss ("active"), of all chosen triplets ("valid"), or by
        nothing ("sum").
    block : int, optional
        Anchors at a time.

    Notes
    -----
    Equal embeddings give the loss m with zero gradient on squared distances: a collapsed batch stays collapsed.
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        soft: bool = False,
        distance: str = "sq_euclidean",
        normalize: bool = True,
        mine: Any = None,
        reduction: str = "active",
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, mine=mine, block=block)
        if reduction not in REDUCTIONS:
            raise ValueError(f"TripletLoss: reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        self.margin, self.soft, self.reduction = margin, soft, reduction

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        if rows.partner is not None:
            value, active = mined_triplets(rows, self.margin, self.soft)
            valid = rows.pos.sum(1)
        else:
            value, active = soft_triplets(rows) if self.soft else all_triplets(rows, self.margin)
            valid = rows.pos.sum(1) * rows.neg.sum(1)
        return value, active if self.reduction == "active" else valid
