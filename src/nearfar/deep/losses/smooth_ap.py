"""Smooth-AP (Brown, Xie, Kalogeiton & Zisserman, 2020).

    L = 1 - mean_i 1/|P(i)| sum_{j in P(i)} (1 + sum_{k in P(i), k != j} G_ijk) / (1 + sum_{k in S(i), k != j} G_ijk)
    G_ijk = sigmoid((s_ik - s_ij) / T)

P(i): samples similar to i; S(i): all others of known relation to i; s: cosine. A rank is one plus the soft count of the
samples that come before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import soft_counts
from ..pairwise.row_loss import RowLoss


def smooth_ap(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor one minus its smooth average precision, and 1 if it has a positive."""
    columns, keep = positives(rows, one_by_one=True)
    # s_ij by 1 - s_ij, (b, K), and the soft count of negatives that rank before j, (b, K)
    near, rivals = soft_counts(rows.d, columns, rows.neg, temperature)
    every = torch.arange(near.shape[1], device=near.device).expand_as(near)
    # the rank of j among the positives: the count includes sigmoid(0) = 1/2 of j itself, and 1/2 more makes it 1
    mates = soft_counts(near, every, keep, temperature)[1] + 0.5
    # precision at the rank of j: positives up to j over everything up to j
    precision = mates / (mates + rivals)
    number = count(keep)
    average = torch.where(keep, precision, 0.0).sum(1) / number.clamp_min(1)
    return torch.where(number > 0, 1 - average, 0.0), number > 0


class SmoothAPLoss(RowLoss):
    """One minus the average precision of the batch ranked for each anchor, with sigmoids instead of steps.

    Parameters
    ----------
    temperature : float
        Temperature T of the sigmoids, positive. The smaller it is, the closer the value is to the average precision,
        and the fewer pairs have a gradient.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The mean is over the anchors that have a positive; classes may have any sizes, in any order. The anchor itself is
    not part of its ranking; the published code counts it as a positive of rank about one. The loss takes no miner,
    because the average precision of a part of the ranking is a different quantity.
    """

    def __init__(self, temperature: float = 0.01, *, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, block=block)
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return smooth_ap(rows, self.temperature)
