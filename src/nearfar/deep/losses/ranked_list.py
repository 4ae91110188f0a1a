"""Ranked list loss (Wang, Hua, Kodirov, Hu, Garnier & Robertson, 2019).

    L = mean_i (1 - lambda) sum_{p in P*(i)} w_ip [d_ip - (alpha - m)]  +  lambda sum_{n in N*(i)} w_in [alpha - d_in]
    w_ip = softmax_p(T_p d_ip),   w_in = softmax_n(-T_n d_in)

P*(i): similar samples farther than alpha - m; N*(i): dissimilar samples within alpha; d: unsquared distance of unit
vectors. The weights are constants of the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pairwise.comparison import Rows
from ..pairwise.hinges import negatives, positives
from ..pairwise.row_loss import RowLoss


def ranked_list(
    rows: Rows, alpha: float, margin: float, imbalance: float, t_pos: float, t_neg: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of each anchor, and 1 if it has any pair."""
    columns, keep = positives(rows)
    d_ip = rows.d.gather(1, columns)
    pull = weighted_excess(d_ip - (alpha - margin), keep, t_pos)
    push = weighted_excess(alpha - negatives(rows), rows.neg, t_neg)
    return (1 - imbalance) * pull + imbalance * push, (rows.pos | rows.neg).any(1)


def weighted_excess(excess: Tensor, keep: Tensor, temperature: float) -> Tensor:
    """Return per row the mean of the kept excesses above 0, weighted by e^{T excess}; 0 if there are none.

    For positives, T d and T (d - alpha + m) have the same softmax; so have -T d and T (alpha - d) for negatives.
    """
    rise = torch.where(keep, excess, 0.0).relu()
    # the weights are constants, and a softmax over nothing is finite: all entries at the lowest number are alike
    heights = torch.where(rise > 0, temperature * rise.detach(), torch.finfo(rise.dtype).min)
    return (heights.softmax(1) * rise).sum(1)


class RankedListLoss(RowLoss):
    """Keep similar samples within one distance and dissimilar ones beyond another, weighting the worst most.

    Parameters
    ----------
    alpha : float
        Distance beyond which dissimilar samples should lie.
    margin : float
        Margin m: similar samples should lie within the distance alpha - m.
    imbalance : float
        Weight lambda of the dissimilar samples, in [0, 1]; the similar ones have the weight 1 - lambda.
    t_pos, t_neg : float
        Temperatures T_p and T_n: how much the farthest similar samples and the nearest dissimilar samples are
        emphasized. With 0, all have the same weight.
    miner : callable, optional
        Miner that is applied before both ranges of distances. By default, none is.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `imbalance` is outside [0, 1].

    Notes
    -----
    The defaults are those of the simpler form in the paper. The mean is over the anchors that have any similar or
    dissimilar sample.
    """

    def __init__(
        self,
        alpha: float = 1.2,
        margin: float = 0.4,
        *,
        imbalance: float = 0.5,
        t_pos: float = 0.0,
        t_neg: float = 10.0,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="euclidean", normalize=True, miner=miner, block=block)
        if not 0 <= imbalance <= 1:
            raise ValueError(f"RankedListLoss: imbalance must be in [0, 1], got {imbalance}")
        self.alpha = alpha
        self.margin = margin
        self.imbalance = imbalance
        self.t_pos = t_pos
        self.t_neg = t_neg

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return ranked_list(
            rows, alpha=self.alpha, margin=self.margin, imbalance=self.imbalance, t_pos=self.t_pos, t_neg=self.t_neg
        )
