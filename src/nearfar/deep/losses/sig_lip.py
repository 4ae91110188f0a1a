"""SigLIP's sigmoid loss for pairs of images and texts (Zhai et al., 2023).

    L = 1/n sum_i [ sum_{p in P(i)} log(1 + e^{-(t s_ip + b)}) + sum_{m in N(i)} log(1 + e^{t s_im + b}) ]

s: cosine; P(i), N(i): samples similar and dissimilar to i; t: scale; b: bias, both learned. The logarithm of t is
learned, so that t remains positive.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..pairwise.comparison import Rows
from ..pairwise.row_loss import RowLoss


def sig_lip(rows: Rows, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of its pairs' losses, and whether it has any."""
    z = scale * (1 - rows.d) + bias  # (b, m)
    pairs = rows.pos | rows.neg
    signed = torch.where(rows.pos, -z, z)
    return torch.where(pairs, softplus(signed, threshold=40), 0.0).sum(1), pairs.any(1)


class SigLIPLoss(RowLoss):
    """Logistic regression of whether two samples are similar on their cosine, with a learned scale and bias.

    Parameters
    ----------
    scale : float
        Scale t of the cosines at the start, positive.
    bias : float
        Bias b at the start. It is strongly negative because most pairs of a batch are dissimilar.
    learn : bool
        Whether scale and bias are learned.
    miner : callable, optional
        Miner that selects the pairs that count. By default, all pairs count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Attributes
    ----------
    log_factor : Parameter of shape (1,)
        Logarithm of t / `scale`, 0 at the start.
    bias : Parameter of shape (1,)
        Bias b.

    Raises
    ------
    ValueError
        If `scale` is not positive.

    Notes
    -----
    The defaults are the paper's. Unlike in a softmax over the batch (``NTXentLoss``), no pair affects the loss of
    another. A training with a `text_trunk` compares images with texts; the mean over both directions is the paper's
    loss. The bias has the sign of the paper's code; in its formula, the sign is the opposite.

    Examples
    --------
    >>> images, texts, n = torch.eye(4), torch.eye(4), torch.arange(4)
    >>> loss = SigLIPLoss()
    >>> round(loss(images, n, ref=texts, ref_labels=n).item(), 4)  # log 2 for its own text, hardly more for the others
    0.6933
    """

    def __init__(
        self,
        scale: float = 10.0,
        bias: float = -10.0,
        *,
        learn: bool = True,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if scale <= 0:
            raise ValueError(f"SigLIPLoss: scale must be positive, got {scale}")
        self.scale = scale
        self.log_factor = nn.Parameter(torch.zeros(1), requires_grad=bool(learn))
        self.bias = nn.Parameter(torch.tensor([float(bias)]), requires_grad=bool(learn))

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        scale = self.scale * self.log_factor.to(rows.d.dtype).exp()
        return sig_lip(rows, scale, self.bias.to(rows.d.dtype))

    def learned_values(self) -> dict[str, float]:
        if not self.bias.requires_grad:
            return {}
        return {"scale": self.scale * float(self.log_factor.detach().exp()), "bias": float(self.bias.detach())}
