"""Threshold-consistent margin loss (Zhang, Xu, Tang, Fang, Wu, Tighe & Xing, 2024).

    L = l_p mean_{P*} (m_p - s) + l_n mean_{N*} (s - m_n)
    P* = {similar pairs: s <= m_p},   N* = {dissimilar pairs: s >= m_n}

s: cosine of a pair. All classes have the same margins, so that one threshold separates similar from dissimilar pairs of
any class. The means are over the hard pairs only, so the loss does not fade as these become fewer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.row_loss import RowLoss


def threshold_consistent_margin(rows: Rows, pos_margin: float, neg_margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sums of m_p - s and s - m_n over its hard pairs of each kind, and their numbers: (b, 2)."""
    columns, keep = positives(rows)
    near = rows.d.gather(1, columns) - (1 - pos_margin)  # m_p - s, as d = 1 - s
    far = (1 - neg_margin) - rows.d  # s - m_n
    P = keep & (near >= 0)
    N = rows.neg & (far >= 0)
    # the numbers of hard pairs are divided by, so no pair that is easy weakens the others
    sums = [torch.where(P, near, 0.0).sum(1), torch.where(N, far, 0.0).sum(1)]
    return torch.stack(sums, 1), torch.stack([count(P), count(N)], 1)


class ThresholdConsistentMarginLoss(RowLoss):
    """Keep similar pairs above one cosine and dissimilar pairs below another, the same for all classes.

    Parameters
    ----------
    pos_margin, neg_margin : float
        Cosines m_p that similar pairs should reach and m_n that dissimilar pairs should not exceed.
    pos_weight, neg_weight : float
        Weights l_p of the similar and l_n of the dissimilar pairs.
    miner : callable, optional
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The paper adds this term to a ranking loss, for example ``SmoothAPLoss() + ThresholdConsistentMarginLoss()``.
    """

    def __init__(
        self,
        pos_margin: float = 0.9,
        neg_margin: float = 0.5,
        *,
        pos_weight: float = 1.0,
        neg_weight: float = 1.0,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin
        self.pos_weight = pos_weight
        self.neg_weight = neg_weight

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        sums, pairs = threshold_consistent_margin(rows, self.pos_margin, self.neg_margin)
        near, far = sums.unbind(1)
        return torch.stack([self.pos_weight * near, self.neg_weight * far], 1), pairs
