"""Samples against classes: what every softmax, proxy and center loss needs from its (n, C) logits.

A loss needs two things: each sample's logit at its own class, and the log-sum-exp of the others, along its row or down
the column of a class. `own_and_others` computes both, with the gradient of the formula; the rest of a loss operates on
vectors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..autograd import applied
from ..objective.relations import UNKNOWN
from ..pairwise.comparison import EXPONENT_FLOOR, exponentials_
from ..unit_vectors import unit


def cosines(x: Tensor, w: Tensor, scale: float = 1.0) -> Tensor:
    """Return the (n, C) cosines between the rows of x (n, d) and of w (C, d), times a scale."""
    return unit(x, scale) @ unit(w).T


class _OwnAndOthers(torch.autograd.Function):
    """See `own_and_others`; one matrix, the exponentials, is kept beside the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        own = y.clamp_min(0)[:, None]
        weights, total, most = _exponentials(logits, y, own, dim)
        ctx.save_for_backward(logits, y, own, weights, total)
        ctx.dim = dim
        return logits.gather(1, own).squeeze(1), total.log().add_(most).squeeze(dim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, y, own, weights, total = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            weights, total, _ = _exponentials(logits, y, own, ctx.dim)
        slope = weights * (grads[1].unsqueeze(ctx.dim) / total.clamp_min(1))  # total is 0, or at least e^0 = 1
        return slope.scatter_(1, own, grads[0][:, None]), None, None


def _exponentials(logits: Tensor, y: Tensor, own: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return e^{logits - most}, 0 at own classes and unknown samples, its sums along dim, and most, the maxima."""
    # the own class and unknown samples are -inf before the exponential: masks by multiplication would make inf * 0
    heights = logits.masked_fill((y == UNKNOWN)[:, None], -torch.inf).scatter_(1, own, -torch.inf)
    most = heights.detach().amax(dim, keepdim=True).clamp_min_(torch.finfo(logits.dtype).min)
    weights = _exp(heights.sub_(most))
    return weights, weights.sum(dim, keepdim=True), most


def _exp(x: Tensor) -> Tensor:
    """Return the exponentials of x, at most 0, in its place where no graph needs it; 0 below `FLOOR`."""
    if torch.is_grad_enabled():
        return torch.where(x > EXPONENT_FLOOR, x.clamp_min(EXPONENT_FLOOR).exp(), 0.0)
    return exponentials_(x)


def own_and_others(logits: Tensor, y: Tensor, dim: int = 1) -> tuple[Tensor, Tensor]:
    """Return each sample's logit at its own class, and the log-sum-exp of the logits at other classes.

    Parameters
    ----------
    logits : (n, C) tensor
        Logits of the samples.
    y : (n,) integers
        Class of each sample. A sample of unknown class (-1) adds nothing to a log-sum-exp, and its own logit is
        arbitrary.
    dim : int
        With 1, the log-sum-exp of each sample is over the other classes, (n,). With 0, that of each class is over the
        samples of other classes, (C,).

    Returns
    -------
    tuple of Tensor
        (n,) own logits, and the log-sum-exp, which is -inf, with zero gradient, if there are no others.

    Examples
    --------
    >>> own, others = own_and_others(torch.tensor([[3.0, 1.0, -torch.inf]]), torch.tensor([0]))
    >>> own.tolist(), others.tolist()
    ([3.0], [1.0])
    """
    own, others = applied(_OwnAndOthers, logits, y, dim)
    return own, others


def softmax_loss(own: Tensor, others: Tensor) -> Tensor:
    """Return minus the log-softmax at the own class, log(1 + e^{others - own})."""
    return softplus(others - own, threshold=40)


class _ClassLogSumExp(torch.autograd.Function):
    """See `class_log_sum_exp`; dL_c / dv_i = e^{v_i - L_c} where i is of class c."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, y: Tensor, num_classes: int) -> Tensor:
        known = values.masked_fill(y == UNKNOWN, -torch.inf)
        own = y.clamp_min(0)
        least = torch.finfo(values.dtype).min
        # the largest value of each class, which keeps its exponentials at most 1
        most = values.new_full((num_classes,), least).scatter_reduce_(0, own, known, "amax")
        total = torch.zeros_like(most).scatter_add_(0, own, (known - most[own]).exp_())
        found = total.log_().add_(most)
        ctx.save_for_backward(values, y, own, found)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        values, y, own, found = ctx.saved_tensors
        slope = (values - found[own]).masked_fill(y == UNKNOWN, -torch.inf).exp()
        return grads[0][own] * slope, None, None


def class_log_sum_exp(values: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Return the (C,) log-sum-exp over the samples of each class of their values (n,); -inf if it has none."""
    found: Tensor = applied(_ClassLogSumExp, values, y, num_classes)
    return found
