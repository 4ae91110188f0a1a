"""Multi-similarity loss (Wang et al., 2019).

    L = mean_i 1/alpha log(1 + sum_{p in P(i)} e^{-alpha (s_ip - b)})
             + 1/beta log(1 + sum_{n in N(i)} e^{beta (s_in - b)})

P(i), N(i): samples similar and dissimilar to i; s: cosine; b: base. With mining, p counts where
s_ip - epsilon < max_n s_in, and n where s_in + epsilon > min_p s_ip.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..pairwise.comparison import Rows, masked_fill
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import masked_logsumexp, near_and_rivals
from ..pairwise.row_loss import RowLoss


def multi_similarity(
    rows: Rows, alpha: float, beta: float, base: float, epsilon: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss of each anchor, soft maxima over its positives and over its negatives, and 1 if it counts.

    In distances d = 1 - s, -alpha (s - b) = alpha d - alpha (1 - b), and beta (s - b) = -beta d + beta (1 - b).
    """
    columns, keep = near_columns(rows)
    some = keep.any(1)
    reach = None
    nearest = None
    if epsilon is not None and rows.d.shape[1]:
        keep, reach, nearest = informative(rows, columns, keep, epsilon)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -beta, reach)
    # log sum_p e^{-alpha (s_ip - b)} and log sum_n e^{beta (s_in - b)}, (b,) each, -inf without such pairs
    pull = masked_logsumexp(near, keep, alpha) - alpha * (1 - base)
    push = rivals + beta * (1 - base)
    if nearest is None:
        some = some | (rivals > -torch.inf)
    else:
        some = some | (nearest.squeeze(1) < torch.inf)
    # log(1 + e^z) is softplus(z)
    return softplus(pull, threshold=40) / alpha + softplus(push, threshold=40) / beta, some


def informative(rows: Rows, columns: Tensor | None, keep: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return which positives are farther than the nearest negative less epsilon, and the two bounds of the mining.

    The bounds, (b, 1) each, are the farthest positive's distance plus epsilon, below which negatives count, and the
    nearest negative's distance.
    """
    d = rows.d.detach()
    if columns is None:
        d_ip = d
    else:
        d_ip = d.gather(1, columns)
    # max_n s_in is 1 - min_n d_in, and min_p s_ip is 1 - max_p d_ip; infinite in rows without such pairs
    nearest = masked_fill(d, rows.neg, torch.inf).amin(1, keepdim=True)
    farthest = torch.cat([masked_fill(d_ip, keep, -torch.inf), torch.full_like(d[:, :1], -torch.inf)], 1)
    # s_ip - epsilon < max_n s_in, and s_in + epsilon > min_p s_ip
    return keep & (d_ip + epsilon > nearest), farthest.amax(1, keepdim=True) + epsilon, nearest


class MultiSimilarityLoss(RowLoss):
    """Multi-similarity loss, averaged over the anchors.

    Parameters
    ----------
    alpha, beta : float
        Sharpness of the soft maximum over the positives (`alpha`) and over the negatives (`beta`), both positive.
    base : float
        Cosine b that separates similar from dissimilar pairs.
    epsilon : float, optional
        Margin of the paper's pair mining, which uses 0.1. By default, all pairs count.
    miner : callable, optional
        Miner that is applied before the pair mining. By default, none is.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `alpha` or `beta` is not positive.

    Notes
    -----
    Without `epsilon`, an anchor that has only positives or only negatives contributes their part. With `epsilon`, it
    contributes neither part, because mining compares the two, but it still counts in the mean.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 0.5,
        *,
        epsilon: float | None = None,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if min(alpha, beta) <= 0:
            raise ValueError(f"MultiSimilarityLoss: alpha and beta must be positive, got {alpha} and {beta}")
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.epsilon = epsilon

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return multi_similarity(rows, alpha=self.alpha, beta=self.beta, base=self.base, epsilon=self.epsilon)
