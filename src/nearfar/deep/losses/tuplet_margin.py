"""Tuplet margin loss (Yu & Tao, 2019).

    L = 1/|P| sum_{(i,p) in P} log(1 + sum_{n in N(i)} exp(s (cos theta_in - cos(theta_ip - beta))))

P: pairs of similar samples; N(i): samples dissimilar to i; theta: angle. The slack beta makes easy positives count as
harder than they are; a pair that is nearer than beta is pushed apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss
from ..proxies.angular_margins import check_margin, turned


def tuplet_margin(rows: Rows, scale: float, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of the losses of its positive pairs, and their number."""
    columns, keep = positives(rows)
    # near: 1 - cos theta_ip, (b, K); rivals: log sum_n e^{s (cos theta_in - 1)}, (b,)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -scale)
    # log sum_n e^{s (cos theta_in - cos(theta_ip - beta))}
    gap = rivals[:, None] + scale * (1 - turned(1 - near, -margin))
    return torch.where(keep, softplus(gap, threshold=40), 0.0).sum(1), count(keep)


class TupletMarginLoss(RowLoss):
    """Compare each positive pair with all negatives of its anchor at once, with a slack on the angle of the pair.

    Parameters
    ----------
    scale : float
        Scale s that multiplies the cosines, positive.
    margin : float
        Slack beta on the angle, in radians, from 0 to pi. The paper's 0.1 is 5.73 degrees.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If the margin is outside 0 to pi.

    Notes
    -----
    The mean is over all positive pairs. An anchor without a negative contributes 0.
    """

    def __init__(
        self, scale: float = 64.0, margin: float = 0.1, *, miner: Any = None, block: int | None = None
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        check_margin("TupletMarginLoss", margin)
        self.scale = scale
        self.margin = margin

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return tuplet_margin(rows, self.scale, self.margin)
