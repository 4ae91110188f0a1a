"""Triplet loss (Schroff, Kalenichenko & Philbin, 2015).

    L = sum over triplets (a, p, n) of [d_ap - d_an + m]_+  /  number of triplets with a positive term
    swap:  min(d_an, d_pn) instead of d_an  (Balntas et al., 2016)
    hard:  only d_an <= d_ap;  semi-hard:  only d_ap < d_an < d_ap + m

A row of m references with K positives costs O(K m), or O(m log m) for a sort, and no list of triplets is formed: the
loss depends only on the number of negatives that are nearer than d_ap + m, and on the sum of their distances. With
swap, it also needs the rows of the K positives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...deprecation import renamed_settings
from ...settings import check_options
from ..pairwise.comparison import Distance, Rows, count
from ..pairwise.contextual import BilateralRowLoss, Sides, reference_pairs, reference_rows
from ..pairwise.hinges import hinges, negatives, positives, sum_over_positives

REDUCTIONS = ("active", "valid", "sum")
MARGIN = 0.2  # the paper's
KINDS = ("all", "semihard", "hard")


def all_triplets(rows: Rows, margin: float, kind: str) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its triplets of a kind of [d_ap - d_an + m]_+ and the number of active ones."""
    columns, keep = positives(rows)
    near = rows.d.gather(1, columns)
    far = negatives(rows)
    if kind == "hard":
        place = near.detach()
        step = torch.nextafter(place, torch.full_like(place, torch.inf)) - place  # a negative as near counts as hard
        value, active = hinges(torch.where(keep, near + step, -torch.inf), far)
        return value + margin * count(active).to(value.dtype), count(active)
    beyond = None
    if kind == "semihard":
        keep = keep & (near + margin > near)  # not where rounding leaves nothing between
        beyond = torch.where(keep, near.detach(), -torch.inf)
    reach = torch.where(keep, near + margin, -torch.inf)  # negatives nearer than this are active
    value, active = hinges(reach, far, beyond)
    return value, count(active)


def chosen(near: Tensor, far: Tensor, margin: float, kind: str) -> Tensor | bool:
    """Return which triplets are of a kind."""
    return kind == "all" or (far <= near if kind == "hard" else (far > near) & (far < near + margin))


def mined_triplets(
    rows: Rows, margin: float, kind: str, soft: float | None, sides: Sides | None
) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its mined triplets, and the number of active ones.

    soft: sum log(1 + exp(d_ap - d_an + soft)) instead of the hinges; sides: given if the negative may be swapped.
    """
    assert rows.triplets is not None
    positive, negative, keep = rows.triplets
    rival = rows.d.gather(1, negative)
    if sides is not None:
        rival = torch.minimum(rival, reference_pairs(rows, sides, positive, negative))
    near = rows.d.gather(1, positive)
    gap = near - rival
    keep = keep & chosen(near, rival, margin, kind)
    value = (gap + margin).clamp_min(0) if soft is None else softplus(gap + soft)
    value = torch.where(keep, value, 0.0)
    return value.sum(1), count(
        value > 0 if soft is None else keep
    )  # soft terms are all positive, even those that underflow


def each_positive(
    rows: Rows, margin: float, kind: str, soft: float | None, sides: Sides | None
) -> tuple[Tensor, Tensor]:
    """Return what `mined_triplets` does, over all triplets, one positive of each row after the other."""

    def one(column: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        near = rows.d.gather(1, column[:, None])
        far = rows.d
        if sides is not None:
            far = torch.minimum(far, reference_rows(rows, sides, column))
        neg = rows.neg & real[:, None] & chosen(near, far, margin, kind)
        if soft is not None:
            return torch.where(neg, softplus(near - far + soft), 0.0).sum(1), count(neg)
        value, below = hinges(near + margin, torch.where(neg, far, torch.inf))
        return value, below[:, 0]

    return sum_over_positives(rows, one)


class TripletLoss(BilateralRowLoss):
    """Triplet loss over all triplets of the batch, or over those that a miner selects.

    Parameters
    ----------
    margin : float, optional
        Margin m by which negatives should be farther from the anchor than positives, in the unit of the distance. By
        default, 0.2, the paper's value for squared distances of unit vectors, or 0 if `soft` is True.
    soft : bool
        Whether to replace the hinge by the softplus log(1 + exp(d_ap - d_an + m)), as Hermans, Beyer & Leibe (2017) do
        without m.
    swap : bool
        Whether to measure the negative from the nearer of anchor and positive, which replaces d_an by min(d_an, d_pn).
        If a reference set is given, both the positive and the negative come from it.
    distance : str or callable
        Dissimilarity of two embeddings: "sq_euclidean" (the paper's), "euclidean", "cosine" or "dot", or a callable
        that takes anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape
        (b, m), such as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first, as the paper does.
    triplets : {"all", "semihard", "hard"}
        Triplets that contribute to the loss:

        - "all": every triplet;
        - "hard": triplets whose negative is no farther than the positive;
        - "semihard": triplets whose negative is farther than the positive, but by less than the margin (0.2 if none is
          given).
    miner : callable, optional
        Miner that selects the triplets that count, such as ``BatchHard()``. By default, all triplets of the batch
        count.
    reduction : {"active", "valid", "sum"}
        What the sum of the losses is divided by: the number of triplets with a positive loss ("active"), the number of
        all selected triplets ("valid"), or nothing ("sum").
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `triplets` is "hard" or "semihard" and the margin is not positive.

    Notes
    -----
    If all embeddings are equal, the loss is m, and its gradient with squared distances is zero: a batch that has
    collapsed to one point does not recover.
    """

    @renamed_settings(mine="miner")
    def __init__(
        self,
        margin: float | None = None,
        *,
        soft: bool = False,
        swap: bool = False,
        distance: Distance = "sq_euclidean",
        normalize: bool = True,
        triplets: str = "all",
        miner: Any = None,
        reduction: str = "active",
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, miner=miner, block=block)
        check_options(self, REDUCTIONS, reduction=reduction)
        check_options(self, KINDS, triplets=triplets)
        if margin is None:
            softness = 0.0
            margin = MARGIN
        else:
            softness = margin
        if triplets != "all" and margin <= 0:
            raise ValueError(f"TripletLoss: margin must be positive for {triplets} triplets, got {margin}")
        self.margin = margin
        self.soft = soft
        self.softness = softness if soft else None
        self.swap = swap
        self.reduction = reduction
        self.triplets = triplets
        self.single_block = swap  # without swap, no row reads another

    def second_pass(self, rows: Rows, found: Sides) -> tuple[Tensor, Tensor]:
        how = (rows, self.margin, self.triplets, self.softness, found if self.swap else None)
        if rows.triplets is not None:
            value, active = mined_triplets(*how)
            valid = count(rows.triplets.keep)
        else:
            each = self.soft or self.swap
            if each:
                value, active = each_positive(*how)
            else:
                value, active = all_triplets(rows, self.margin, self.triplets)
            valid = count(rows.pos) * count(rows.neg)
        return value, active if self.reduction == "active" or self.triplets != "all" else valid
