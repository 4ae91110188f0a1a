"""Softmax triplet loss (Ye, Zhang, Yuen & Chang, 2019).

    p_ij = exp(s_ij / T) / sum_{k != i} exp(s_ik / T)
    L    = - mean_i ( sum_{j in P(i)} log p_ij + sum_{j in N(i)} log(1 - p_ij) )

s: cosine; or minus the squared distance, or the inner product. k: all samples of known relation to i.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..batch import Batch
from ..rows import Comparison, Rows, masked_logsumexp
from ..terms import RowLoss

LEAST = 1e-7  # 1 - p is never taken to be smaller


def softmax_triplet(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor minus the log-likelihood of its row, and 1 where it has a known relation."""
    logits = -rows.d / temperature  # a constant in d cancels
    known = rows.pos | rows.neg
    some = known.any(1)
    log_p = logits - torch.where(some, masked_logsumexp(logits, known), 0.0)[:, None]
    attract = torch.where(rows.pos, log_p, 0.0).sum(1)
    repel = torch.where(rows.neg, log_one_minus_exp(torch.where(rows.neg, log_p, -1.0)), 0.0).sum(1)
    return -attract - repel, some


def log_one_minus_exp(x: Tensor) -> Tensor:
    """Return log(1 - exp(x)) of x <= 0 without cancellation on either side."""
    x = x.clamp_max(-LEAST)
    small = x < -0.6931
    return torch.where(
        small, torch.log1p(-torch.where(small, x, -1.0).exp()), torch.log(-torch.expm1(torch.where(small, -0.5, x)))
    )


class SoftmaxTripletLoss(RowLoss):
    """Log-likelihood of finding the similar and of not finding the dissimilar samples.

    Parameters
    ----------
    temperature : float
        T.
    distance : str
        "cosine" (the paper's), "dot", "sq_euclidean", "euclidean".
    normalize : bool
        Scale embeddings to unit length first; "cosine" always does.
    stop_grad_keys : bool
        Let the gradient flow through the anchors only, as the published code does; needs "cosine" or "dot".
    mine : callable, optional
        A miner that narrows positives and negatives.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The survey prints minus before the sum over N(i), which would reward finding dissimilar samples; here it is plus.
    Neither sum contains i itself.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        distance: str = "cosine",
        normalize: bool = False,
        stop_grad_keys: bool = False,
        mine: Any = None,
        block: int | None = None,
    ) -> None:
        if temperature <= 0:
            raise ValueError(f"SoftmaxTripletLoss: temperature must be positive, got {temperature}")
        if stop_grad_keys and (distance not in ("cosine", "dot") or normalize):
            raise ValueError('SoftmaxTripletLoss: stop_grad_keys needs distance="cosine" or "dot", normalize=False')
        super().__init__(distance=distance, normalize=normalize, mine=mine, block=block)
        self.temperature, self.stop_grad_keys = temperature, stop_grad_keys

    def comparison(self, batch: Batch) -> Comparison:
        comparison = super().comparison(batch)
        return comparison._replace(ref=comparison.ref.detach()) if self.stop_grad_keys else comparison

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return softmax_triplet(rows, self.temperature)
