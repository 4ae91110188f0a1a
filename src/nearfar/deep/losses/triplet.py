"""Triplet loss (Schroff, Kalenichenko & Philbin, 2015).

    L = sum over triplets (a, p, n) of [d_ap - d_an + m]_+  /  number of triplets with a positive term

Over all triplets of a row it costs a sort, O(m log m), never O(m^2): the negatives nearer than d_ap + m are a prefix
of the sorted negatives, and prefix sums give their total.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..rows import Rows
from ..terms import RowLoss


class _AllTriplets(torch.autograd.Function):
    """Per anchor: the sum of the hinges over all its triplets, and how many are active."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, pos: Tensor, neg: Tensor, margin: float) -> tuple[Tensor, Tensor]:
        near = d.masked_fill(~neg, torch.inf).sort(1).values  # (b, m) negatives, nearest first
        sums = near.masked_fill(near.isinf(), 0).double().cumsum(1)
        before = torch.nn.functional.pad(sums, (1, 0))  # (b, m + 1) total of the k nearest
        reach = d + margin
        k = torch.searchsorted(near, reach).masked_fill(~pos, 0)  # active negatives of each positive
        hinge = k * reach.double() - before.gather(1, k)
        far = reach.masked_fill(~pos, -torch.inf).sort(1).values
        c = (d.shape[1] - torch.searchsorted(far, d, right=True)).masked_fill(
            ~neg, 0
        )  # active positives of each negative
        ctx.save_for_backward(k - c)  # dL/dd_ap = k, dL/dd_an = -c
        active = k.sum(1)
        ctx.mark_non_differentiable(active)
        return hinge.masked_fill(~pos, 0).sum(1).to(d.dtype), active

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (counts,) = ctx.saved_tensors
        return grads[0][:, None] * counts, None, None, None


def triplet(rows: Rows, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its triplets of [d_ap - d_an + m]_+ and the number of active ones."""
    return _AllTriplets.apply(rows.d, rows.pos, rows.neg, margin)  # type: ignore[no-any-return]


class TripletLoss(RowLoss):
    """All-triplets loss with a margin, averaged over the triplets with a positive loss.

    Parameters
    ----------
    margin : float
        m, in the unit of the distance (0.2 on squared distances of unit vectors is the paper's).
    distance : str
        "sq_euclidean" (the paper's), "euclidean", "cosine", "dot".
    normalize : bool
        Scale embeddings to unit length first, as the paper does.
    mine : callable, optional
        A miner such as ``BatchHard()`` or ``BatchSemiHard()``; None takes all triplets.
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
        distance: str = "sq_euclidean",
        normalize: bool = True,
        mine: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, mine=mine, block=block)
        self.margin = margin

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return triplet(rows, self.margin)
