"""Decoupled contrastive loss, DCL (Yeh et al., 2022).

    L = 1/|P| sum_{(i,p) in P} [-s_ip / T + log sum_{n in N(i)} e^{s_in / T}]

P: pairs of similar samples whose anchor has a negative; N(i): samples dissimilar to i; s: cosine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss


def decoupled_contrastive(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of -s_p / T + log sum_n e^{s_n / T}, and their number."""
    columns, keep = near_columns(rows)
    # near: 1 - s_p, (b, k); rivals: log sum_n e^{(s_n - 1) / T}, (b,), -inf without negatives
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1 / temperature)
    keep = keep & (rivals > -torch.inf)[:, None]
    return torch.where(keep, rivals[:, None] + near / temperature, 0.0).sum(1), count(keep)


class DecoupledContrastiveLoss(RowLoss):
    """NT-Xent without the positive pair in the denominator, so that easy pairs keep their gradient in small batches.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the cosines, positive.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The loss has no lower bound. The paper has two views of each image; with several positives, each pair has its own
    term, as in `NTXentLoss`.
    """

    def __init__(self, temperature: float = 0.1, *, miner: Any = None, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return decoupled_contrastive(rows, self.temperature)
