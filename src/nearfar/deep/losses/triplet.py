"""Triplet loss (Schroff, Kalenichenko & Philbin, 2015).

    L = sum over triplets (a, p, n) of [d_ap - d_an + m]_+  /  number of triplets with a positive term
    swap:  min(d_an, d_pn) in place of d_an  (Balntas et al., 2016)

A row of m references with K positives costs O(K m) or a sort, O(m log m), never a list of triplets: what counts is
how many negatives are nearer than d_ap + m, and their sum. With swap it costs the rows of the K positives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...core.settings import check_options
from ..order import hinges, negatives, positives
from ..rows import Rows, count
from ..two_pass import SidedLoss, Sides, reference_pairs, reference_rows

REDUCTIONS = ("active", "valid", "sum")


def all_triplets(rows: Rows, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over all its triplets of [d_ap - d_an + m]_+ and the number of active ones."""
    columns, keep = positives(rows)
    reach = torch.where(keep, rows.d.gather(1, columns) + margin, -torch.inf)  # negatives nearer than this are active
    value, active = hinges(reach, negatives(rows))
    return value, count(active)


def mined_triplets(rows: Rows, margin: float, soft: bool, sides: Sides | None) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its mined triplets, and how many are active.

    soft: sum log(1 + exp(d_ap - d_an)) in place of the hinges; sides: given if the negative may be swapped.
    """
    assert rows.triplets is not None
    positive, negative, keep = rows.triplets
    rival = rows.d.gather(1, negative)
    if sides is not None:
        rival = torch.minimum(rival, reference_pairs(rows, sides, positive, negative))
    gap = rows.d.gather(1, positive) - rival
    value = softplus(gap) if soft else (gap + margin).clamp_min(0)
    value = torch.where(keep, value, 0.0)
    return value.sum(1), count(keep if soft else value > 0)  # soft terms are all positive, even those that underflow


def each_positive(rows: Rows, margin: float, soft: bool, sides: Sides | None) -> tuple[Tensor, Tensor]:
    """Return what `mined_triplets` does, over all triplets, one positive of each row after the other."""
    columns, keep = positives(rows)
    value, active = rows.d.sum(1) * 0, torch.zeros_like(count(rows.pos))
    for column, real in zip(columns.T, keep.T, strict=True):
        near, far = rows.d.gather(1, column[:, None]), rows.d
        if sides is not None:
            far = torch.minimum(far, reference_rows(rows, sides, column))
        if soft:
            value = value + torch.where(rows.neg & real[:, None], softplus(near - far), 0.0).sum(1)
        else:
            reach, rivals = torch.where(real[:, None], near + margin, -torch.inf), torch.where(rows.neg, far, torch.inf)
            some, number = hinges(reach, rivals)
            value, active = value + some, active + number[:, 0]
    return value, count(rows.pos) * count(rows.neg) if soft else active


class TripletLoss(SidedLoss):
    """Triplet loss over all, or the mined, triplets of the batch.

    Parameters
    ----------
    margin : float
        m, in the unit of the distance (0.2 on squared distances of unit vectors is the paper's).
    soft : bool
        log(1 + exp(d_ap - d_an)) in place of the hinge, without margin (Hermans, Beyer & Leibe, 2017).
    swap : bool
        Measure the negative from the nearer of anchor and positive: min(d_an, d_pn) in place of d_an. With a
        reference set, both the positive and the negative come from it.
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
        swap: bool = False,
        distance: str = "sq_euclidean",
        normalize: bool = True,
        mine: Any = None,
        reduction: str = "active",
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, mine=mine, block=block)
        check_options(self, REDUCTIONS, reduction=reduction)
        self.margin, self.soft, self.swap, self.reduction = margin, soft, swap, reduction
        self.whole = swap  # without swap, no row reads another

    def second_pass(self, rows: Rows, found: Sides) -> tuple[Tensor, Tensor]:
        how = (rows, self.margin, self.soft, found if self.swap else None)
        if rows.triplets is not None:
            value, active = mined_triplets(*how)
            valid = count(rows.triplets.keep)
        else:
            each = self.soft or self.swap
            value, active = each_positive(*how) if each else all_triplets(rows, self.margin)
            valid = count(rows.pos) * count(rows.neg)
        return value, active if self.reduction == "active" else valid
