"""Global loss of a batch of triplets (Kumar, Carneiro & Reid, 2016).

    L = var_p + var_n + lambda [mu_p - mu_n + m]_+

mu_p, var_p: mean and variance of the distances of positive pairs; mu_n, var_n: of negative pairs. A distance is the
squared one, divided by 4 so that it lies in [0, 1] for unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..order import positives
from ..rows import Comparison, Rows, count
from ..two_pass import TwoPassLoss

OVER = ("pairs", "triplets")


class Found(NamedTuple):
    """Of the whole batch, without gradient: both means, 1 if both groups exist, lambda where the hinge is active."""

    mu: Tensor
    some: Tensor
    hinge: Tensor


def sums(rows: Rows, term: Callable[[Tensor, int], Tensor], over: str) -> tuple[Tensor, Tensor]:
    """Return per anchor the (b, 2) sums of term(distance, group) over positives (0) and negatives (1), and numbers.

    Over triplets a positive counts once for each negative of its anchor, and a negative for each positive.
    """
    if rows.triplets is not None and over == "triplets":
        p, n, keep = rows.triplets
        near, far = (torch.where(keep, term(rows.d.gather(1, i) / 4, g), 0.0).sum(1) for g, i in enumerate((p, n)))
        return torch.stack([near, far], 1), torch.stack([count(keep)] * 2, 1)
    columns, keep = positives(rows)
    near = torch.where(keep, term(rows.d.gather(1, columns) / 4, 0), 0.0).sum(1)
    far = torch.where(rows.neg, term(rows.d / 4, 1), 0.0).sum(1)
    numbers = torch.stack([count(rows.pos), count(rows.neg)], 1)
    if over == "pairs":
        return torch.stack([near, far], 1), numbers
    return torch.stack([near, far], 1) * numbers.flip(1), numbers.prod(1, keepdim=True).expand(-1, 2)


def triplet_global(rows: Rows, found: Found, margin: float, over: str) -> tuple[Tensor, Tensor]:
    """Return per anchor (b, 4) sums whose means over all anchors add up to the loss, and their (b, 4) numbers.

    With its mean held constant a variance is a mean, of the same value and the same gradient.
    """
    spread, numbers = sums(rows, lambda d, g: (d - found.mu[g]).square(), over)
    sign = (1.0, -1.0)
    gap, _ = sums(rows, lambda d, g: sign[g] * d + (margin if g == 0 else 0.0), over)
    return torch.cat([found.some * spread, found.hinge * gap], 1), torch.cat([numbers, numbers], 1)


class TripletGlobalLoss(TwoPassLoss):
    """Variances of the distances of positive and of negative pairs, and one hinge between their means.

    Parameters
    ----------
    margin : float
        m, between the means of the distances divided by 4.
    weight : float
        lambda.
    over : str
        "pairs": all positive and all negative pairs of the batch; "triplets": the pairs of all, or the mined,
        triplets, so that a pair counts once for each of its triplets.
    normalize : bool
        Scale embeddings to unit length first.
    mine : callable, optional
        A miner; "pairs" reads the pairs it keeps.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The variances divide by the number of pairs, not by one less, and are taken around the mean (no difference of
    large sums). A batch without positive or without negative pairs has the loss 0. Margin and weight are recalled,
    not read, from the paper. The paper also adds it to a triplet loss: ``TripletLoss() + TripletGlobalLoss()``.
    """

    def __init__(
        self,
        margin: float = 0.4,
        *,
        weight: float = 0.8,
        over: str = "pairs",
        normalize: bool = True,
        mine: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="sq_euclidean", normalize=normalize, mine=mine, block=block)
        if over not in OVER:
            raise ValueError(f"TripletGlobalLoss: over must be one of {', '.join(OVER)}, got {over!r}")
        self.margin, self.weight, self.over = margin, weight, over

    def first_pass(self, c: Comparison) -> Found:
        total, numbers = self.totals(lambda rows: sums(rows, lambda d, g: d, self.over), c)
        mu = (total / numbers.clamp_min(1)).expand(2)  # an empty batch sums to a number
        some = (numbers > 0).all().to(mu.dtype)
        return Found(mu, some, some * self.weight * (mu[0] - mu[1] + self.margin > 0))

    def second_pass(self, rows: Rows, found: Found) -> tuple[Tensor, Tensor]:
        return triplet_global(rows, found, self.margin, self.over)
