"""Binomial deviance (Yi, Lei & Li, 2014).

    L = mean_P log(1 + e^{-alpha (s - beta)}) + mean_N log(1 + e^{alpha eta (s - beta)})

s: cosine of a pair; P, N: pairs of similar and of dissimilar samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...settings import check_options
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import near_distances, negatives
from ..pairwise.reductions import softplus_sums
from ..pairwise.row_loss import RowLoss

REDUCTIONS = ("balanced", "anchor", "sum")


def binomial_deviance(rows: Rows, alpha: float, beta: float, eta: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the summed deviance of its similar and of its dissimilar pairs."""
    # beta - s = d - (1 - beta), as d = 1 - s
    d_ip, keep = near_distances(rows)
    pull = softplus(alpha * (d_ip - (1 - beta)), threshold=40)
    push = softplus_sums(negatives(rows), 1 - beta, alpha * eta)
    return torch.where(keep, pull, 0.0).sum(1), push


class BinomialDevianceLoss(RowLoss):
    """Binomial deviance of the cosines of all pairs of the batch.

    Parameters
    ----------
    alpha : float
        Steepness of the deviance, positive.
    beta : float
        Cosine that separates similar from dissimilar pairs. A pair with this cosine has a loss of log 2.
    eta : float
        Factor on the steepness for dissimilar pairs, their cost; positive.
    miner : callable, optional
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    reduction : {"balanced", "anchor", "sum"}
        How the losses of the pairs are combined:

        - "balanced": average similar and dissimilar pairs separately and add both means, as in the published code of
          Chen & Deng;
        - "anchor": do so for each anchor, and average over the anchors;
        - "sum": add up all pairs, as the formula in the papers does.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `alpha` or `eta` is not positive.

    Notes
    -----
    The defaults are those of confusion-based metric learning (Chen et al., 2022). A sample is not paired with itself;
    in the formula's sum over i and j, such pairs only add a constant.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 0.5,
        eta: float = 25.0,
        *,
        miner: Any = None,
        reduction: str = "balanced",
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        check_options(self, REDUCTIONS, reduction=reduction)
        if min(alpha, eta) <= 0:
            raise ValueError(f"BinomialDevianceLoss: alpha and eta must be positive, got {alpha} and {eta}")
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.reduction = reduction

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        sums = torch.stack(binomial_deviance(rows, alpha=self.alpha, beta=self.beta, eta=self.eta), 1)  # (b, 2)
        counts = torch.stack([count(rows.pos), count(rows.neg)], 1)
        if self.reduction == "anchor":
            return (sums / counts.clamp_min(1)).sum(1), counts.any(1)
        return sums, counts
