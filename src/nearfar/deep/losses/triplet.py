"""Triplet loss (Schroff, Kalenichenko & Philbin, 2015).

    L = sum over triplets (a, p, n) of [d_ap - d_an + m]_+  /  number of triplets with a positive term

A row of m references with K positives costs O(K m) or a sort, O(m log m), never a list of triplets: what counts is
how many negatives are nearer than d_ap + m, and their sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..order import hinges, negatives, positives
from ..rows import Rows, count
from ..terms import RowLoss

REDUCTIONS = ("active", "valid", "sum")


def all_triplets(rows: Rows, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over all its triplets of [d_ap - d_an + m]_+ and the number of active ones."""
    columns, keep = positives(rows)
    reach = torch.where(keep, rows.d.gather(1, columns) + margin, -torch.inf)  # nearer negatives are active
    value, active = hinges(reach, negatives(rows))
    return value, count(active)


def mined_triplets(rows: Rows, margin: float, soft: bool) -> tuple[Tensor, Tensor]:
    """Return the same over the mined triplets; soft: log(1 + exp(d_ap - d_an))."""
    assert rows.triplets is not None
    positive, negative, keep = rows.triplets
    gap = rows.d.gather(1, positive) - rows.d.gather(1, negative)
    value = softplus(gap) if soft else (gap + margin).clamp_min(0)
    value = torch.where(keep, value, 0.0)
    return value.sum(1), count(value > 0)


def soft_triplets(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over all its triplets of log(1 + exp(d_ap - d_an)), positive by positive."""
    columns, keep = positives(rows)
    value = rows.d.sum(1) * 0
    for column, real in zip(columns.T, keep.T, strict=True):
        gap = softplus(rows.d.gather(1, column[:, None]) - rows.d)
        value = value + torch.where(rows.neg & real[:, None], gap, 0.0).sum(1)
    return value, count(rows.pos) * count(rows.neg)


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
        if rows.triplets is not None:
            value, active = mined_triplets(rows, self.margin, self.soft)
            valid = count(rows.triplets.keep)
        else:
            value, active = soft_triplets(rows) if self.soft else all_triplets(rows, self.margin)
            valid = count(rows.pos) * count(rows.neg)
        return value, active if self.reduction == "active" else valid
