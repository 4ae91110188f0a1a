"""Selectively contrastive triplet loss (Xuan et al., 2020).

    L = mean_i { w s_n                          if s_n > s_p, a hard triplet
               { log(1 + e^{(s_n - s_p) / T})   otherwise

s_p, s_n: cosine of sample i to its nearest positive and to its nearest negative.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from ..pairwise.comparison import Rows
from ..pairwise.hinges import near_distances
from ..pairwise.row_loss import RowLoss


def selectively_contrastive(rows: Rows, weight: float, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the loss per anchor, and 1 if it has a positive and a negative."""
    near, keep = near_distances(rows)
    has = keep.any(1) & rows.neg.any(1)
    # 1 - s_p and 1 - s_n, (b,); 0 for anchors that do not count
    d_p = _nearest(near, keep).where(has, 0.0)
    d_n = _nearest(rows.d, rows.neg).where(has, 0.0)
    hard = weight * (1 - d_n)
    easy = softplus((d_p - d_n) / temperature, threshold=40)
    return torch.where(d_n < d_p, hard, easy).where(has, 0.0), has


def _nearest(d: Tensor, keep: Tensor) -> Tensor:
    """Return the smallest of the kept entries of each row, (b,); infinity without any, also without a column."""
    return pad(torch.where(keep, d, torch.inf), (0, 1), value=torch.inf).amin(1)


class SelectivelyContrastiveLoss(RowLoss):
    """Triplet loss of the nearest positive and the nearest negative that only pushes if the negative is nearer.

    The triplet loss moves a hard negative together with its anchor and positive, which ends in one point. Here, a hard
    triplet does not pull its positive.

    Parameters
    ----------
    weight : float
        Weight w of hard triplets, positive.
    temperature : float
        Temperature T of the other triplets, positive.
    miner : callable, optional
        Miner that selects the positives and negatives among which the nearest are chosen. By default, all of them.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `weight` or `temperature` is not positive.

    Notes
    -----
    The value jumps where a triplet becomes hard. The paper also takes other positives than the nearest; give a miner
    for these. In the published code, a triplet whose negative has a cosine above 0.8 is hard, too, and a positive with
    a cosine above 0.9999 is left out as a duplicate; otherwise, both losses are the same.
    """

    def __init__(
        self, weight: float = 1.0, temperature: float = 0.1, *, miner: Any = None, block: int | None = None
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if weight <= 0 or temperature <= 0:
            raise ValueError(
                f"SelectivelyContrastiveLoss: weight and temperature must be positive, got {weight} and {temperature}"
            )
        self.weight = weight
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return selectively_contrastive(rows, self.weight, self.temperature)
