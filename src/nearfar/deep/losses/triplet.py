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

from ...settings import check_options
from ..pairwise.comparison import Distance, Rows, count
from ..pairwise.contextual import BilateralRowLoss, Sides, reference_pairs, reference_rows
from ..pairwise.hinges import hinges, negatives, positives, sum_over_positives

REDUCTIONS = ("active", "valid", "sum")
MARGIN = 0.2  # the paper's
KINDS = ("all", "semihard", "hard")


def all_triplets(rows: Rows, margin: float, kind: str) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its triplets of a kind of [d_ap - d_an + m]_+, and the number of active ones."""
    columns, keep = positives(rows)
    near = rows.d.gather(1, columns)  # d_ap, (b, K)
    far = negatives(rows)  # d_an, (b, m)
    if kind == "hard":
        # d_ap - d_an + m over the negatives with d_an <= d_ap: hinges at d_ap, and m for each. The threshold is the
        # next number above d_ap, so that a negative at exactly d_ap counts
        place = near.detach()
        step = torch.nextafter(place, torch.full_like(place, torch.inf)) - place
        value, active = hinges(torch.where(keep, near + step, -torch.inf), far)
        return value + margin * count(active).to(value.dtype), count(active)
    beyond = None
    if kind == "semihard":
        # d_ap < d_an < d_ap + m, an empty interval if rounding makes both ends equal
        keep = keep & (near + margin > near)
        beyond = torch.where(keep, near.detach(), -torch.inf)
    reach = torch.where(keep, near + margin, -torch.inf)  # d_ap + m: negatives nearer than this are active
    value, active = hinges(reach, far, beyond)
    return value, count(active)


def of_kind(near: Tensor, far: Tensor, margin: float, kind: str) -> Tensor | bool:
    """Return which triplets with distances d_ap (near) and d_an (far) are of a kind."""
    if kind == "all":
        return True
    if kind == "hard":
        return far <= near
    return (far > near) & (far < near + margin)


def mined_triplets(
    rows: Rows, margin: float, kind: str, soft: float | None, sides: Sides | None
) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its mined triplets, and the number of active ones.

    With `soft`, a margin, the terms are log(1 + exp(d_ap - d_an + soft)) instead of hinges. With `sides`, the negative
    is measured from the nearer of anchor and positive.
    """
    assert rows.triplets is not None
    positive, negative, keep = rows.triplets
    near = rows.d.gather(1, positive)  # d_ap, (b, k)
    far = rows.d.gather(1, negative)  # d_an, (b, k)
    if sides is not None:
        far = torch.minimum(far, reference_pairs(rows, sides, positive, negative))  # min(d_an, d_pn)
    gap = near - far
    keep = keep & of_kind(near, far, margin, kind)
    if soft is not None:
        # every term is positive, even one that underflows to 0
        return torch.where(keep, softplus(gap + soft), 0.0).sum(1), count(keep)
    value = torch.where(keep, (gap + margin).clamp_min(0), 0.0)
    return value.sum(1), count(value > 0)


def each_positive(
    rows: Rows, margin: float, kind: str, soft: float | None, sides: Sides | None
) -> tuple[Tensor, Tensor]:
    """Return what `mined_triplets` does, over all triplets, one positive of each anchor after the other."""

    def one_positive(column: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        near = rows.d.gather(1, column[:, None])  # d_ap, (b, 1)
        far = rows.d  # d_an, (b, m)
        if sides is not None:
            far = torch.minimum(far, reference_rows(rows, sides, column))  # min(d_an, d_pn)
        neg = rows.neg & real[:, None] & of_kind(near, far, margin, kind)
        if soft is not None:
            return torch.where(neg, softplus(near - far + soft), 0.0).sum(1), count(neg)
        value, below = hinges(near + margin, torch.where(neg, far, torch.inf))
        return value, below[:, 0]

    return sum_over_positives(rows, one_positive)


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
        soft_margin = None
        if soft:
            soft_margin = 0.0 if margin is None else margin
        if margin is None:
            margin = MARGIN
        if triplets != "all" and margin <= 0:
            raise ValueError(f"TripletLoss: margin must be positive for {triplets} triplets, got {margin}")
        self.margin = margin
        self.soft = soft
        self.soft_margin = soft_margin
        self.swap = swap
        self.reduction = reduction
        self.triplets = triplets
        self.single_block = swap  # without swap, no row reads another

    def second_pass(self, rows: Rows, found: Sides) -> tuple[Tensor, Tensor]:
        sides = found if self.swap else None
        if rows.triplets is not None:
            value, active = mined_triplets(
                rows, margin=self.margin, kind=self.triplets, soft=self.soft_margin, sides=sides
            )
            valid = count(rows.triplets.keep)
        elif self.soft or self.swap:
            value, active = each_positive(
                rows, margin=self.margin, kind=self.triplets, soft=self.soft_margin, sides=sides
            )
            valid = count(rows.pos) * count(rows.neg)
        else:
            value, active = all_triplets(rows, self.margin, self.triplets)
            valid = count(rows.pos) * count(rows.neg)
        if self.reduction == "active" or self.triplets != "all":
            return value, active
        return value, valid
