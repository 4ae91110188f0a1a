"""Normalized temperature-scaled cross-entropy, NT-Xent or InfoNCE (Chen et al., 2020).

    L = 1/|P| sum_{(i,p) in P} log(1 + sum_{n in N(i)} e^{(s_in - s_ip) / T})

P: pairs of similar samples; N(i): samples dissimilar to i; s: cosine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...deprecation import renamed_settings
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss


def nt_xent(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of log(1 + sum_n e^{(s_n - s_p) / T}), and their number."""
    columns, keep = near_columns(rows)
    # near: 1 - s_p, (b, k); rivals: log sum_n e^{(s_n - 1) / T}, (b,)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1 / temperature)
    gap = (
        rivals[:, None] + near / temperature
    )  # log sum_n e^{(s_n - s_p) / T}; -inf, a term of log 1, without negatives
    return torch.where(keep, softplus(gap, threshold=40), 0.0).sum(1), count(keep)


class NTXentLoss(RowLoss):
    """Cross-entropy of each positive pair against the negatives of its anchor, also known as InfoNCE.

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
    If an anchor has several positives, each is compared with the negatives only: the other positives are not in its
    denominator. One log-sum-exp per anchor serves all of its positives and does not saturate at low temperatures.
    """

    learned = ("temperature",)

    @renamed_settings(mine="miner")
    def __init__(self, temperature: float = 0.07, *, miner: Any = None, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return nt_xent(rows, self.temperature)
