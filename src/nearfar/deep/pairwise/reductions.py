"""Sums over the rows of a block: log-sum-exps, soft ranks, tilted means of exponentials, and plain sums.

Their gradients are written by hand, to keep few matrices and to work in a processor's cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..autograd import applied
from .comparison import EXPONENT_FLOOR, exponentials_, masked_fill

ENTRIES_IN_CACHE = 1 << 17  # a part of so many entries and its temporaries stay in a processor's cache


def finite(x: Tensor, otherwise: float = 0.0) -> Tensor:
    """Return x with infinite and NaN entries replaced by `otherwise`, which has no gradient."""
    return torch.where(x.isfinite(), x, otherwise)


def cache_parts(x: Tensor) -> list[slice]:
    """Cut the rows of a matrix into parts that stay in a processor's cache.

    On a device, and in a compiled graph, which is not to hold for one size of batches only, there is one part.
    """
    n, m = x.shape
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        size = max(1, ENTRIES_IN_CACHE // max(m, 1))
    else:
        size = max(n, 1)
    return [slice(lo, min(lo + size, n)) for lo in range(0, n, size)]


def _exponential_sums(d: Tensor, keep: Tensor, scale: float, reach: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parts of log sum_j e^{a d_j} over the kept entries of each row, for the scale a.

    They are the weights w_j = e^{a d_j - M}, (b, m), 0 for the other entries; their sums W, (b, 1); and the value
    log W + M, (b,), where M is the largest a d_j of the row.
    """
    weights = masked_fill(d, keep, -torch.inf, scale)
    if reach is not None:
        # a negative: d_j < reach means a d_j > a reach, and a threshold is several times as fast as a comparison
        limit = (scale * reach).clamp_max_(torch.finfo(d.dtype).max)
        weights = torch.threshold_(weights.sub_(limit), 0, -torch.inf)
    if d.shape[1]:
        most = weights.amax(1, keepdim=True)
    else:
        most = weights.new_zeros(len(d), 1)
    most = most.clamp_min_(torch.finfo(d.dtype).min)  # finite, even if nothing is kept
    weights = exponentials_(weights.sub_(most))
    total = weights.sum(1, keepdim=True)
    if reach is not None:
        most = most + limit
    value = total.log().add_(most).squeeze(1)
    return weights, total, value


def _exponential_slope(d: Tensor, keep: Tensor, scale: float, reach: Tensor | None, value: Tensor, g: Tensor) -> Tensor:
    """Return the gradient g e^{a d_j - value} of the log-sum-exp, (b, m), as a function of d with a graph.

    g, (b, 1), is the gradient in its values times the scale a.
    """
    if reach is not None:
        keep = keep & (d < reach)
    shift = torch.where(value.isinf(), 0.0, value)[:, None]
    low = torch.where(keep, scale * d - shift, 0.0)
    return g * torch.where(keep, low.exp(), 0.0)


class _NearAndRivals(torch.autograd.Function):
    """See `near_and_rivals`; one matrix, the weights, is kept for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, d: Tensor, columns: Tensor, keep: Tensor, scale: float, reach: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.scale = scale
        near = d.gather(1, columns)
        weights, total, value = _exponential_sums(d, keep, scale, reach)
        ctx.save_for_backward(d, columns, keep, value, weights, total, reach)
        return near, value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (d, columns, keep, value, weights, total, reach) = ctx.saved_tensors
        to_near, to_value = grads
        g = ctx.scale * to_value[:, None]
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            slope = _exponential_slope(d, keep, ctx.scale, reach, value, g)
            return slope.scatter_add(1, columns, to_near), None, None, None, None
        # d value / d d_j = a w_j / W
        slope = weights * (g / total.clamp_min(1))  # total is 0 if nothing is kept, else at least e^0 = 1
        return slope.scatter_add_(1, columns, to_near), None, None, None, None


class _LogSumExp(torch.autograd.Function):
    """See `masked_logsumexp`; one matrix, the weights, is kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, keep: Tensor, scale: float, reach: Tensor | None) -> Tensor:
        ctx.scale = scale
        weights, total, value = _exponential_sums(d, keep, scale, reach)
        ctx.save_for_backward(d, keep, value, weights, total, reach)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (d, keep, value, weights, total, reach) = ctx.saved_tensors
        g = ctx.scale * grads[0][:, None]
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            return _exponential_slope(d, keep, ctx.scale, reach, value, g), None, None, None
        return weights * (g / total.clamp_min(1)), None, None, None  # total: see `_NearAndRivals`


def near_and_rivals(
    d: Tensor, columns: Tensor | None, keep: Tensor, scale: float | Tensor, reach: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the entries of d in the given columns, (b, K), and log sum exp(scale d) over the kept entries, (b,).

    If the columns are None, which means all (see `hinges.near_columns`), the first is d itself. If a row keeps no
    entry, the second is -inf, with zero gradient. With `reach`, (b, 1), and a negative scale, only entries below it
    count.
    """
    if columns is None:
        return d, masked_logsumexp(d, keep, scale, reach)
    if isinstance(scale, Tensor):
        return d.gather(1, columns), masked_logsumexp(d, keep, scale, reach)
    near, value = applied(_NearAndRivals, d, columns, keep, scale, reach)
    return near, value


def masked_logsumexp(values: Tensor, keep: Tensor, scale: float | Tensor = 1.0, reach: Tensor | None = None) -> Tensor:
    """Return log sum exp(scale value) over the kept entries of each row, (b,).

    If a row keeps no entry, it is -inf, with zero gradient. With `reach`, (b, 1), and a negative scale, only entries
    below it count.
    """
    if isinstance(scale, Tensor):  # it is learned, and the function below would hold it constant
        if reach is not None:
            keep = keep & (values < reach)
        values = scale * values
        scale = 1.0
        reach = None
    value: Tensor = applied(_LogSumExp, values, keep, scale, reach)
    return value


class _SoftCounts(torch.autograd.Function):
    """See `soft_counts`; the sigmoids are computed again in the backward pass.

    With t = near / T and v = d / T, count_k = sum_j s(t_k - v_j) for the sigmoid s, whose derivative is s (1 - s).
    """

    @staticmethod
    def forward(ctx: Any, d: Tensor, columns: Tensor, keep: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        near = d.gather(1, columns)
        t = near / temperature
        # sigmoid(t - inf) = 0: entries that do not count need no mask
        v = masked_fill(d, keep, torch.inf, 1 / temperature)
        counts = torch.empty_like(near)
        if t.shape[1]:  # a sigmoid of less than the floor is negligible, and would be a slow denormal number
            v.clamp_max_(t.amax(1, keepdim=True) - EXPONENT_FLOOR)
        for part in cache_parts(v):
            gap = torch.empty_like(v[part])
            for k in range(t.shape[1]):
                torch.sub(t[part, k : k + 1], v[part], out=gap)
                counts[part, k] = gap.sigmoid_().sum(1)
        ctx.save_for_backward(d, keep, t, v, columns)
        ctx.temperature = temperature
        return near, counts

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        d, keep, t, v, columns = ctx.saved_tensors
        g = grads[1] / ctx.temperature
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            v = torch.where(keep, d / ctx.temperature, torch.inf)
            # (b, K, m), which only second derivatives hold
            near = ((d / ctx.temperature).gather(1, columns)[:, :, None] - v[:, None]).sigmoid()  # (b, K, m)
            slope = near * (1 - near) * g[:, :, None]
            return (-slope.sum(1)).scatter_add(1, columns, slope.sum(2) + grads[0]), None, None, None
        to_t = torch.empty_like(t)
        if t.shape[1]:
            to_v = torch.empty_like(v)
        else:
            to_v = torch.zeros_like(v)
        for part in cache_parts(v):
            gap = torch.empty_like(v[part])
            for k in range(t.shape[1]):
                near = torch.sub(t[part, k : k + 1], v[part], out=gap).sigmoid_()
                slope = near.addcmul_(near, near, value=-1)  # s - s^2
                to_t[part, k] = slope.sum(1)
                if k:
                    to_v[part].addcmul_(slope, g[part, k : k + 1], value=-1)
                else:
                    torch.mul(slope, -g[part, :1], out=to_v[part])
        return to_v.scatter_add_(1, columns, to_t.mul_(g).add_(grads[0])), None, None, None


def soft_counts(d: Tensor, columns: Tensor, keep: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Count, softly, the kept values of a row that lie below some of its values.

    Parameters
    ----------
    d : (b, m) tensor
        Values.
    columns : (b, K) int64 tensor
        Columns of the values t that the others are compared with.
    keep : (b, m) bool tensor
        Values that count.
    temperature : float
        Temperature of the sigmoid that replaces the step.

    Returns
    -------
    tuple of Tensor
        (b, K) values t at the columns, and (b, K) sums over the kept d of 1 / (1 + exp((d - t) / temperature)).
    """
    counted: tuple[Tensor, Tensor] = applied(_SoftCounts, d, columns, keep, temperature)
    return counted


class _Tilted(torch.autograd.Function):
    """See `tilted`; the exponentials are kept for the gradient.

    With a_n = e^{-(1 + beta) d_n / T} and b_n = e^{-beta d_n / T}, the value is log sum a - log sum b, and its gradient
    in d_n is -1/T ((1 + beta) a_n / sum a - beta b_n / sum b). All d_n are less the smallest one, which the value adds.
    """

    @staticmethod
    def forward(ctx: Any, d: Tensor, keep: Tensor, T: float, beta: float, detach: bool) -> Tensor:
        limits = torch.finfo(d.dtype)
        heights = masked_fill(d, keep, torch.inf)
        if d.shape[1]:
            least = heights.amin(1, keepdim=True)
        else:
            least = d.new_zeros(len(d), 1)
        heights = heights.sub_(least.clamp_max_(limits.max))  # a row that keeps nothing remains infinite
        if beta:
            below = _exponentials(heights, -beta / T)
        else:
            below = keep  # e^0
        above = _exponentials(heights, -(1 + beta) / T)
        total = above.sum(1, keepdim=True)
        count = below.sum(1, keepdim=True, dtype=d.dtype).clamp_min_(limits.tiny)
        ctx.save_for_backward(d, keep, below, above, count, total)
        ctx.T = T
        ctx.beta = beta
        ctx.detach = detach
        return total.log().sub_(least, alpha=1 / T).sub_(count.log()).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d, keep, below, above, count, total = ctx.saved_tensors
        g = grads[0][:, None] / -ctx.T
        beta = 0.0 if ctx.detach else ctx.beta
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            tilt = (d.detach() if ctx.detach else d) * ctx.beta
            high = _kept_softmax((d + tilt) / -ctx.T, keep)
            low = _kept_softmax(tilt / -ctx.T, keep)
            return g * ((1 + beta) * high - beta * low), None, None, None, None
        # g ((1 + beta) a / sum a - beta b / sum b), with g = -slope of the value / T
        slope = above * torch.where(total > 0, (1 + beta) * g / total, 0.0)
        if beta:
            slope.addcmul_(below, g / count, value=-beta)
        return slope, None, None, None, None


def _exponentials(heights: Tensor, scale: float) -> Tensor:
    """Return exp(scale heights) as a new matrix, with 0 where it is negligible beside 1."""
    result = torch.empty_like(heights)
    for part in cache_parts(heights):
        exponentials_(torch.mul(heights[part], scale, out=result[part]))
    return result


def _kept_softmax(values: Tensor, keep: Tensor) -> Tensor:
    """Return the softmax over the kept entries of each row, and 0 elsewhere; all 0 if a row keeps none."""
    some = keep.any(1, keepdim=True)
    logits = torch.where(some, torch.where(keep, values, -torch.inf), 0.0)
    return torch.where(keep, logits.softmax(1), 0.0)


def tilted(d: Tensor, keep: Tensor, temperature: float, beta: float, detach: bool = False) -> Tensor:
    """Return log sum_n w_n e^{-d_n / T} of each row, with w = softmax(-beta d / T), over its kept entries.

    Parameters
    ----------
    d : (b, m) tensor
        Dissimilarities.
    keep : (b, m) bool tensor
        Entries that count.
    temperature : float
        Temperature T.
    beta : float
        Tilt, at least 0. With 0, the value is the logarithm of the mean of e^{-d / T}.
    detach : bool
        Whether to hold w constant in the gradient.

    Returns
    -------
    (b,) tensor
        Values; -inf, with zero gradient, for rows in which no entry counts.

    Examples
    --------
    >>> d, every = torch.tensor([[0.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    >>> bool(tilted(d, every, 1.0, 1.0) > tilted(d, every, 1.0, 0.0))
    True
    """
    value: Tensor = applied(_Tilted, d, keep, temperature, beta, detach)
    return value


class _HingeSquares(torch.autograd.Function):
    """See `hinge_squares`; one matrix, the hinges h, is kept: the gradient is -2 h."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, margin: float) -> Tensor:
        hinge = torch.rsub(v, margin).clamp_min_(0)
        ctx.margin = margin
        ctx.save_for_backward(v, hinge)
        return torch.linalg.vector_norm(hinge, dim=1).square_()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        v, hinge = ctx.saved_tensors
        if torch.is_grad_enabled():
            hinge = (ctx.margin - v).clamp_min(0)
        return hinge * (-2 * grads[0][:, None]), None


def hinge_squares(v: Tensor, margin: float) -> Tensor:
    """Return the (b,) sums over the values v, (b, m), of [margin - v]_+^2; +inf adds nothing."""
    value: Tensor = applied(_HingeSquares, v, margin)
    return value


def softplus_sums(v: Tensor, at: float, scale: float) -> Tensor:
    """Return the (b,) sums over the values v, (b, m), of log(1 + exp(scale (at - v))); +inf adds nothing."""
    # log(1 + e^z) is z from z = 40 on, also in float64; PyTorch's own threshold, 20, would cost digits there
    return softplus(scale * (at - v), threshold=40).sum(1)


def pair_sums(d: Tensor, columns: Tensor, keep: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """Return two (b,) sums over each row: of the kept ones of its columns (b, K), and of its entries where `neg`."""
    near = torch.where(keep, d.gather(1, columns), 0.0).sum(1)
    far = torch.where(neg, d, 0.0).sum(1)
    return near, far
