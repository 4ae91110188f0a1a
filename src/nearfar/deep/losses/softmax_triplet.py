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


class _Likelihood(torch.autograd.Function):
    """Per anchor: minus sum_P log p + sum_N log(1 - p), where p is the softmax of the logits in P and N."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        known = pos | neg
        log_p = logits - masked_logsumexp(logits, known).clamp_min(torch.finfo(logits.dtype).min)[:, None]
        log_p = torch.where(known, log_p, -torch.inf).clamp_max_(0)
        less = torch.expm1(torch.where(neg, log_p.clamp_max(-LEAST), log_p))  # p - 1, without cancellation
        ctx.save_for_backward(less, pos, neg)
        return -torch.where(pos, log_p, torch.where(neg, less.neg().log(), 0.0)).sum(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        less, pos, neg = ctx.saved_tensors
        p = less + 1
        to_log_p = torch.where(neg & (less < -LEAST), -p / less, 0.0).sub_(pos.to(p.dtype))
        return grads[0][:, None] * (to_log_p - p * to_log_p.sum(1, keepdim=True)), None, None


def softmax_triplet(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor minus the log-likelihood of its row, and 1 where it has a known relation."""
    logits = -rows.d / temperature  # a constant in d cancels
    return _Likelihood.apply(logits, rows.pos, rows.neg), (rows.pos | rows.neg).any(1)


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
