"""FastAP (Cakir, He, Xia, Kulis & Sclaroff, 2019).

    L = 1 - mean_i 1/|P(i)| sum_l h+_l H+_l / H_l
    h_l = sum_j [1 - |d_ij - c_l| / width]_+,  H_l = h_0 + ... + h_l

h+, H+: of similar samples only; h, H: of all others of known relation; d: squared distance of unit vectors, whose range
[0, 4] the centers c_l = l width divide into L bins. The formula is the average precision of a ranking whose places are
the bins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.row_loss import RowLoss
from ..pairwise.soft_histograms import soft_histogram

MAX_SQUARED_DISTANCE = 4.0  # squared distance of opposite unit vectors


def fast_ap(rows: Rows, bins: int) -> tuple[Tensor, Tensor]:
    """Return per anchor one minus its average precision over the bins, and 1 if it has a positive."""
    columns, keep = positives(rows)
    # h+ and h-, (b, L + 1) each
    near = soft_histogram(rows.d.gather(1, columns), keep, bins, MAX_SQUARED_DISTANCE)
    far = soft_histogram(rows.d, rows.neg, bins, MAX_SQUARED_DISTANCE)
    before = near.cumsum(1)  # H+
    every = before + far.cumsum(1)  # H
    number = count(keep)
    # the inner `where` keeps 0 / 0, in bins that nothing precedes, out of the gradient
    precision = torch.where(every > 0, before / torch.where(every > 0, every, 1.0), 0.0)
    # sum_l h+_l H+_l / H_l over the number of positives
    average = (near * precision).sum(1) / number.clamp_min(1)
    return torch.where(number > 0, 1 - average, 0.0), number > 0


class FastAPLoss(RowLoss):
    """One minus the average precision of the batch ranked for each anchor, from histograms of distances.

    Parameters
    ----------
    num_bins : int
        Number L of bins of the squared distances in [0, 4], at least 1. The fewer there are, the coarser the ranking
        is, and the more pairs have a gradient.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `num_bins` is below 1.

    Notes
    -----
    The mean is over the anchors that have a positive. The loss takes no miner, because the average precision of a part
    of the ranking is a different quantity. The paper trains with large batches of few classes.
    """

    def __init__(self, num_bins: int = 10, *, block: int | None = None) -> None:
        super().__init__(distance="sq_euclidean", normalize=True, block=block)
        if num_bins < 1:
            raise ValueError(f"FastAPLoss: num_bins must be at least 1, got {num_bins}")
        self.num_bins = num_bins

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return fast_ap(rows, self.num_bins)
