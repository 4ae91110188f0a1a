"""Softmax triplet loss (Ye, Zhang, Yuen & Chang, 2019).

    p_ij = exp(s_ij / T) / sum_{k != i} exp(s_ik / T)
    L    = - mean_i ( sum_{j in P(i)} log p_ij + sum_{j in N(i)} log(1 - p_ij) )

s: cosine; or minus the squared distance, or the inner product. k: all samples of known relation to i.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..autograd import applied
from ..objective.batch import Batch
from ..objective.terms import needs_embeddings
from ..pairwise.comparison import Comparison, Distance, Rows, count, exponentials_, masked_fill
from ..pairwise.hinges import positives
from ..pairwise.reductions import finite, masked_logsumexp
from ..pairwise.row_loss import RowLoss

MIN_COMPLEMENT = 1e-7  # 1 - p is never taken to be smaller


class _Likelihood(torch.autograd.Function):
    """Per anchor -(sum_P log p + sum_N log(1 - p)); one matrix, its gradient in the logits -d / T, is kept.

    With the ratios r_n = p_n / (1 - p_n) of the negatives, that gradient is, in the logit of entry j,

        [j in N] r_j - [j in P] - p_j (sum_n r_n - |P|).
    """

    @staticmethod
    def forward(ctx: Any, rows: Rows, d: Tensor, T: float) -> Tensor:
        ctx.T = T
        columns, keep = positives(rows)
        p, log_total = _softmax(d, rows.pos | rows.neg, T)
        rival = masked_fill(p, rows.neg, 0.0)  # p of the negatives, else 0
        minus = rival.neg()
        # r = p / (1 - p), and 0 where 1 - p is below MIN_COMPLEMENT, since there the loss is constant
        complement = torch.threshold_(minus + 1, MIN_COMPLEMENT, torch.inf)
        ratio = rival.div_(complement)
        # sum_N log(1 - p)
        far = minus.clamp_min_(MIN_COMPLEMENT - 1).log1p_().sum(1)
        # sum_P log p, from logits: the logarithm of a p that underflows would be -inf
        near = torch.where(keep, d.gather(1, columns) / -T - log_total[:, None], 0.0).sum(1)
        slope = ratio.addcmul_(p, ratio.sum(1, keepdim=True) - count(keep)[:, None], value=-1)
        ctx.save_for_backward(slope.scatter_add_(1, columns, -keep.to(d.dtype)), d, rows.pos, rows.neg)
        return -(near + far)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        slope, d, pos, neg = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            return None, *torch.autograd.grad(_plain(d, pos, neg, ctx.T), d, grads[0], create_graph=True), None
        return None, slope * (grads[0] / -ctx.T)[:, None], None


def _plain(d: Tensor, pos: Tensor, neg: Tensor, T: float) -> Tensor:
    """Return what `_Likelihood` returns, with a graph."""
    known = pos | neg
    log_p = d / -T - finite(masked_logsumexp(d, known, -1 / T))[:, None]
    p = torch.where(known, log_p, -torch.inf).exp()
    far = torch.where(neg, (1 - p).clamp_min(MIN_COMPLEMENT).log(), 0.0)
    return -(torch.where(pos, log_p, 0.0) + far).sum(1)


def _softmax(d: Tensor, known: Tensor, T: float) -> tuple[Tensor, Tensor]:
    """Return the (b, m) probabilities, 0 where not known, and the (b,) logarithms of their denominators."""
    if not d.shape[1]:
        return torch.zeros_like(d), d.new_zeros(len(d))
    logits = masked_fill(d, known, torch.inf).mul_(-1 / T)
    # the largest logit is subtracted, so that no exponential overflows; a row without known pairs has none
    most = logits.amax(1, keepdim=True).clamp_min_(torch.finfo(d.dtype).min)
    e = exponentials_(logits.sub_(most))
    # at least the smallest positive number: a row without known pairs gets p = 0, and no division by 0
    total = e.sum(1, keepdim=True).clamp_min_(torch.finfo(d.dtype).tiny)
    return e.div_(total), (total.log() + most).squeeze(1)


def softmax_triplet(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor minus the log-likelihood of its row, and 1 if it has a known relation."""
    value: Tensor = applied(_Likelihood, rows, rows.d, temperature)
    return value, (rows.pos | rows.neg).any(1)


class SoftmaxTripletLoss(RowLoss):
    """Log-likelihood of retrieving the similar and not the dissimilar samples.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the similarities, positive.
    distance : str or callable
        Dissimilarity of two embeddings: "cosine" (the paper's), "dot", "sq_euclidean" or "euclidean", or a callable
        that takes anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape
        (b, m), such as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first; "cosine" always does.
    stop_grad_keys : bool
        Whether the gradient flows through the anchors only, as in the published code. It needs "cosine" or "dot".
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `stop_grad_keys` is True and `distance` is neither "cosine" nor "dot", or `normalize` is True.

    Notes
    -----
    The survey of Ghojogh et al. (2022) prints a minus before the sum over N(i), which would reward retrieving
    dissimilar samples; here, it is a plus. Neither sum contains i itself.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        distance: Distance = "cosine",
        normalize: bool = False,
        stop_grad_keys: bool = False,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        if stop_grad_keys and (distance not in ("cosine", "dot") or normalize):
            raise ValueError('SoftmaxTripletLoss: stop_grad_keys needs distance="cosine" or "dot", normalize=False')
        super().__init__(distance=distance, normalize=normalize, miner=miner, block=block)
        self.temperature = temperature
        self.stop_grad_keys = stop_grad_keys

    def distances_refused(self) -> str | None:
        if self.stop_grad_keys:
            return needs_embeddings("SoftmaxTripletLoss(stop_grad_keys=True)")
        return super().distances_refused()

    def comparison(self, batch: Batch) -> Comparison:
        comparison = super().comparison(batch)
        if self.stop_grad_keys:
            return comparison._replace(ref=comparison.ref.detach())
        return comparison

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return softmax_triplet(rows, self.temperature)
