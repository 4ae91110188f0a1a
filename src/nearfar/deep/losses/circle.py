"""Circle loss (Sun et al., 2020).

    L = mean_i log(1 + sum_{n in N(i)} e^{g a_n (s_in - m)} sum_{p in P(i)} e^{-g a_p (s_ip - (1 - m))})
    a_p = [1 + m - s_ip]_+        a_n = [s_in + m]_+

P(i), N(i): samples similar and dissimilar to i; s: cosine; g: scale. The weights a carry no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..pairwise.comparison import Rows
from ..pairwise.hinges import near_distances
from ..pairwise.reductions import masked_logsumexp
from ..pairwise.row_loss import RowLoss


def circle(rows: Rows, margin: float, scale: float) -> tuple[Tensor, Tensor]:
    """Return the loss per anchor, and 1 if it has positives and negatives."""
    near, keep = near_distances(rows)  # 1 - s_ip
    far = rows.d  # 1 - s_in
    # a_p = [1 + m - s_ip]_+ = [(1 - s_ip) + m]_+, and g a_n = g [s_in + m]_+ = g [1 + m - (1 - s_in)]_+
    a_p = (near.detach() + margin).clamp_min(0)
    scaled_a_n = torch.rsub(far.detach(), 1 + margin).clamp_min_(0).mul_(scale)
    # the logs of both sums of the formula: (1 - m) - s_ip = (1 - s_ip) - m, and s_in - m = 1 - m - (1 - s_in)
    pull = masked_logsumexp(scale * a_p * (near - margin), keep)
    push = masked_logsumexp(scaled_a_n * (1 - margin - far), rows.neg)
    return softplus(pull + push, threshold=40), keep.any(1) & (push > -torch.inf)


class CircleLoss(RowLoss):
    """Circle loss, averaged over the anchors that have both a positive and a negative.

    Parameters
    ----------
    margin : float
        Relaxation m. Positives aim at a cosine of 1 + m and negatives at -m; the boundary between them is the circle
        s_in^2 + (1 - s_ip)^2 = 2 m^2. The paper uses 0.4 for fine-grained retrieval, and 0.25 for faces and people.
    scale : float
        Scale g, positive. The paper uses 80 for fine-grained retrieval, 256 for faces, and 128 for people.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.
    """

    def __init__(
        self, margin: float = 0.4, scale: float = 80.0, *, miner: Any = None, block: int | None = None
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.margin = margin
        self.scale = scale

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return circle(rows, self.margin, self.scale)
