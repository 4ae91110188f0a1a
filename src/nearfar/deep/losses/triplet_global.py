"""Global loss of a batch of triplets (Kumar, Carneiro & Reid, 2016).

    L = var_p + var_n + lambda [mu_p - mu_n + m]_+

mu_p, var_p: mean and variance of the distances of positive pairs; mu_n, var_n: of negative pairs. A distance is the
squared Euclidean one divided by 4, so that it lies in [0, 1] for unit vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...settings import check_options
from ..pairwise.comparison import Rows, count
from ..pairwise.contextual import TwoPassLoss
from ..pairwise.hinges import positives

OVER = ("pairs", "triplets")


class DistanceMoments(NamedTuple):
    """What the rows need of the whole batch: both means, 1 if both groups exist, lambda where the hinge is active."""

    mu: Tensor
    some: Tensor
    hinge: Tensor


class PairGroups(NamedTuple):
    """Distances of the positives and of the negatives of each anchor, which of them count, and how often, (b, 2)."""

    near: Tensor
    is_near: Tensor
    far: Tensor
    is_far: Tensor
    times: Tensor

    def sums(self, near: Tensor, far: Tensor) -> Tensor:
        """Return the (b, 2) sums of two functions of the distances."""
        near = torch.where(self.is_near, near, 0.0).sum(1)
        far = torch.where(self.is_far, far, 0.0).sum(1)
        return torch.stack([near, far], 1) * self.times

    def numbers(self) -> Tensor:
        return torch.stack([count(self.is_near), count(self.is_far)], 1) * self.times


def groups(rows: Rows, over: str) -> PairGroups:
    """Read the two groups; over triplets a positive counts once per negative of its anchor, and the reverse."""
    if rows.triplets is not None and over == "triplets":
        p, n, keep = rows.triplets
        once = torch.ones(len(keep), 2, dtype=torch.int32, device=keep.device)
        return PairGroups(rows.d.gather(1, p) / 4, keep, rows.d.gather(1, n) / 4, keep, once)
    columns, keep = positives(rows)
    # a pair (a, p) is in |N(a)| triplets, and (a, n) in |P(a)|: weights instead of triplets, (b, 2)
    times = torch.stack([count(rows.neg), count(rows.pos)], 1)
    times = times if over == "triplets" else torch.ones_like(times)
    return PairGroups(rows.d.gather(1, columns) / 4, keep, rows.d / 4, rows.neg, times)


def triplet_global(group: PairGroups, sums: Tensor, moments: DistanceMoments, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor (b, 4) sums whose means over all anchors add up to the loss, and their (b, 4) numbers.

    With its mean held constant a variance is a mean, of the same value and the same gradient.
    """
    numbers = group.numbers()
    spread = group.sums((group.near - moments.mu[0]).square(), (group.far - moments.mu[1]).square())
    gap = torch.stack([sums[:, 0] + margin * numbers[:, 0].to(sums.dtype), -sums[:, 1]], 1)
    return torch.cat([moments.some * spread, moments.hinge * gap], 1), torch.cat([numbers, numbers], 1)


class TripletGlobalLoss(TwoPassLoss):
    """Shrink the variances of positive and negative distances, and keep their means apart by a margin.

    Parameters
    ----------
    margin : float
        Margin m between the mean distances, where a distance is the squared one divided by 4.
    weight : float
        Weight lambda of the hinge between the means.
    over : {"pairs", "triplets"}
        Pairs that the means and variances are taken over. "pairs": all positive and all negative pairs of the batch,
        each once. "triplets": the pairs of all triplets, or of those that the miner selects, each once for every
        triplet that it is in.
    normalize : bool
        Whether to scale the embeddings to unit length first.
    miner : callable, optional
        Miner that selects the triplets that count or, if `over` is "pairs", the pairs. By default, all of them count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The variances divide by the number of pairs, not by one less, and are computed around the mean, which avoids
    differences of large sums. Second derivatives are exact if one process holds all pairs in one block; otherwise, they
    treat the means as constants, which is valid for the gradient only. For a batch without positive or without negative
    pairs, the loss is 0.

    The defaults of `margin` and `weight` were not checked against the paper. The paper also adds this term to a triplet
    loss: ``TripletLoss() + TripletGlobalLoss()``.
    """

    def __init__(
        self,
        margin: float = 0.4,
        *,
        weight: float = 0.8,
        over: str = "pairs",
        normalize: bool = True,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="sq_euclidean", normalize=normalize, miner=miner, block=block)
        check_options(self, OVER, over=over)
        self.margin = margin
        self.weight = weight
        self.over = over

    def sums(self, rows: Rows) -> tuple[Tensor, Tensor]:
        group = groups(rows, self.over)
        return group.sums(group.near, group.far), group.numbers()

    def conclude(self, total: Tensor, number: Tensor) -> DistanceMoments:
        mu = (total / number.clamp_min(1)).expand(2)  # an empty batch sums to a number
        some = (number > 0).all().to(mu.dtype)
        return DistanceMoments(mu, some, some * self.weight * (mu[0] - mu[1] + self.margin > 0))

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], moments: DistanceMoments) -> tuple[Tensor, Tensor]:
        return triplet_global(groups(rows, self.over), sums[0], moments, self.margin)
