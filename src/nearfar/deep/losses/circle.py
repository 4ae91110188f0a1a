"""Circle loss (Sun et al., 2020).

    L = mean_i log(1 + sum_{n in N(i)} e^{g a_n (s_in - m)} sum_{p in P(i)} e^{-g a_p (s_ip - (1 - m))})
    a_p = [1 + m - s_ip]_+        a_n = [s_in + m]_+

P(i), N(i): samples similar and dissimilar to i; s: cosine; g: scale; the weights a carry no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..rows import Rows, masked_logsumexp
from ..terms import RowLoss


def circle(rows: Rows, margin: float, scale: float) -> tuple[Tensor, Tensor]:
    """Return the loss per anchor, and 1 where it has positives and negatives."""
    s = 1 - rows.d
    short, over = (1 + margin - s).detach().clamp_min(0), (s + margin).detach().clamp_min(0)
    logits = scale * torch.where(rows.pos, -short * (s - 1 + margin), over * (s - margin))
    total = masked_logsumexp(logits, rows.pos) + masked_logsumexp(logits, rows.neg)
    return softplus(total, threshold=40), rows.pos.any(1) & rows.neg.any(1)


class CircleLoss(RowLoss):
    """Circle loss, averaged over the anchors that have both a positive and a negative.

    Parameters
    ----------
    margin : float
        m: positives aim at the cosine 1 + m, negatives at -m, and the boundary is a circle around them. The paper
        takes 0.4 for fine-grained retrieval, 0.25 for faces and persons.
    scale : float
        g: 80 for fine-grained retrieval, 256 for faces, 128 for persons.
    mine : callable, optional
        A miner that narrows positives and negatives.
    block : int, optional
        Anchors at a time.
    """

    def __init__(self, margin: float = 0.4, scale: float = 80.0, *, mine: Any = None, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, mine=mine, block=block)
        self.margin, self.scale = margin, scale

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return circle(rows, self.margin, self.scale)
