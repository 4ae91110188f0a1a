"""Supervised contrastive loss (Khosla et al., 2020).

    L = mean_i -1/|P(i)| sum_{p in P(i)} log( e^{s_ip / T} / sum_{k != i} e^{s_ik / T} )

P(i): samples similar to i; k: all samples of known relation to i; s: cosine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss


def sup_con(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor minus the mean log-probability of its positives, and 1 if it has any."""
    columns, keep = near_columns(rows)
    number = count(keep)
    # near: 1 - s_ip, (b, k); total: log sum_k e^{(s_ik - 1) / T}, (b,)
    near, total = near_and_rivals(rows.d, columns, rows.pos | rows.neg, -1 / temperature)
    mean = torch.where(keep, near, 0.0).sum(1) / number.clamp_min(1)  # mean_p (1 - s_ip), (b,)
    valid = number > 0
    # -mean_p (s_ip / T - log sum_k e^{s_ik / T}): the 1 of both distances cancels
    return torch.where(valid, total + mean / temperature, 0.0), valid


class SupConLoss(RowLoss):
    """Supervised contrastive loss, averaged over the anchors that have a positive.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the cosines, positive. It may be a tensor that requires a gradient.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The mean over the positives is outside the logarithm, the form that the paper recommends. The other positives remain
    in the denominator, so the loss of an anchor is at least the logarithm of the number of its positives.
    """

    learned = ("temperature",)

    def __init__(self, temperature: float = 0.1, *, miner: Any = None, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return sup_con(rows, self.temperature)
