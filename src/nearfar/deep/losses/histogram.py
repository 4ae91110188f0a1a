"""Histogram loss (Ustinova & Lempitsky, 2016).

    L = sum_r h-_r (h+_0 + ... + h+_r)
    h_r = 1/|S| sum_{(i,j) in S} [1 - |s_ij - t_r| / width]_+,    t_r = -1 + r width,  r = 0..R

h+, h-: over the pairs of similar and of dissimilar samples; s: cosine. The formula is the probability that a similar
pair is less similar than a dissimilar one, estimated from histograms. The code counts the distances 1 - s, so its bins
are in reverse order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import distributed
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.row_loss import RowLoss
from ..pairwise.soft_histograms import soft_histogram

MAX_COSINE_DISTANCE = 2.0  # one minus the least cosine


def histogram(near: Tensor, far: Tensor) -> Tensor:
    """Return the probability that a distance of `near` is at least one of `far`, from their densities over bins."""
    return (near * far.cumsum(0)).sum()


class HistogramLoss(RowLoss):
    """Probability that a similar pair lies farther apart than a dissimilar one, without a margin or a scale to tune.

    Parameters
    ----------
    num_bins : int
        Number R of bins of the cosines from -1 to 1, at least 1. With 100, each bin is 0.02 wide.
    miner : callable, optional
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `num_bins` is below 1.

    Attributes
    ----------
    stats_ : dict of str to float
        Statistics as in `RowLoss`, without "active", because the loss is not a sum over anchors.

    Notes
    -----
    The histograms count all pairs of the batch. If there are no similar or no dissimilar pairs, the loss is 0. A pair
    has no gradient if the other kind has no pairs in the bins on either side.
    """

    def __init__(self, num_bins: int = 100, *, miner: Any = None, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if num_bins < 1:
            raise ValueError(f"HistogramLoss: num_bins must be at least 1, got {num_bins}")
        self.num_bins = num_bins

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the (b, 2 (R + 1)) counts of each anchor's pairs, and their (b, 2) numbers."""
        columns, keep = positives(rows)
        near = soft_histogram(rows.d.gather(1, columns), keep, self.num_bins, MAX_COSINE_DISTANCE)
        far = soft_histogram(rows.d, rows.neg, self.num_bins, MAX_COSINE_DISTANCE)
        return torch.cat([near, far], 1), torch.stack([count(keep), count(rows.neg)], 1)

    @property
    def stats_(self) -> dict[str, float]:
        return {name: value for name, value in super().stats_.items() if name != "active"}

    def divided(self, num: Tensor, den: Tensor) -> Tensor:
        # the loss is not linear in the counts, so they are added up over all processes first: (2, R + 1)
        counts = distributed.gather(num.expand(2 * self.num_bins + 2)[None]).sum(0).view(2, -1)
        numbers = distributed.total(den.detach()).expand(2).clamp_min(1)
        near, far = counts / numbers[:, None]
        return histogram(near, far) / distributed.world()
