"""What a softmax over many classes needs of each sample, without the matrix of its logits.

    own_i = z_i,y_i        others_i = log sum_{c != y_i} e^{z_ic}        z_ic = x_i . w_c (+ b_c)

The classes are processed in parts that stay in a processor's cache. With very many classes, the backward pass computes
each part again and adds it to the gradient at once (as FlashAttention does with keys in the place of classes; Dao et
al., 2022):

    p_ic = e^{z_ic - others_i}, 0 at c = y_i        dx = diag(g) p w,    dw = p' diag(g) x        g_i: slope of others_i

So a step holds no (n, C) matrix and, for cosines, no copy of the weights of unit length. That takes one more product
with the weights, but less time: a matrix that is larger than the caches is slow to write and to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..autograd import applied
from ..pairwise.comparison import EXPONENT_FLOOR, FULL
from ..unit_vectors import normalized, tangent, unit

FEW = 1 << 18  # logits of a batch that a processor's caches hold at once
PART = 1 << 18  # numbers of a part: its logits, and its directions
LOGITS_KEPT = 1 << 20  # logits whose exponentials are kept for the backward pass


def is_large(n: int, num_classes: int, device: torch.device) -> bool:
    """Return whether the logits of n samples are too many to hold at once; fewer take less time in one matrix."""
    return n * num_classes > (FEW if _in_caches(device) else FULL)


def own_and_others_of(
    x: Tensor, w: Tensor, y: Tensor, *, bias: Tensor | None = None, cosines: bool = False
) -> tuple[Tensor, Tensor]:
    """Return each sample's logit at its own class, and the log-sum-exp of the logits at other classes.

    Parameters
    ----------
    x : (n, d) tensor
        Samples, scaled as the logits are to be.
    w : (C, d) tensor
        Weights of the classes.
    y : (n,) integers
        Class of each sample, or -1 if it has none of these classes. All of them are then others.
    bias : (C,) tensor, optional
        Number that is added to the logits of each class.
    cosines : bool
        Whether to scale the weights to length 1.

    Returns
    -------
    tuple of Tensor
        (n,) own logits, 0 where `y` is -1, and the log-sum-exp, -inf with zero gradient if there are no others.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0]])
    >>> own, others = own_and_others_of(x, torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([0]))
    >>> own.tolist(), others.tolist()
    ([3.0], [1.0])
    """
    own, others = applied(_ClassSoftmax, x, w, bias, y, cosines)
    return own, others


class _ClassSoftmax(torch.autograd.Function):
    """See `own_and_others_of`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, cosines: bool) -> tuple[Tensor, Tensor]:
        ctx.cosines = cosines
        lowest = torch.finfo(x.dtype).min
        keep = len(x) * len(w) <= LOGITS_KEPT
        kept: list[Tensor] = []
        tops: list[Tensor] = []
        sums = [x.new_zeros(len(x))]
        for part, own in _parts(x, w, y, cosines):
            v, _ = _directions(w[part], cosines)
            z = _logits_of_others(x, v, bias, part, own)
            top = z.amax(1).clamp_min_(lowest)
            weights = _exponentials_(z.sub_(top[:, None]))
            tops.append(top)
            sums.append(weights.sum(1))
            if keep:
                kept.append(weights)
        peaks = torch.stack([torch.full_like(sums[0], lowest), *tops])  # (parts + 1, n)
        others = (peaks + torch.stack(sums).log_()).logsumexp(0)
        others = torch.where(others > lowest / 2, others, -torch.inf)
        ctx.save_for_backward(x, w, bias, y, others, peaks[1:], *kept)
        return _logits_of_own(x, w, bias, y, cosines), others

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w, bias, y, others, peaks, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            return _differentiable(ctx, (x, w, bias), y, grads)
        some = others.isfinite()
        others = torch.where(some, others, 0.0)[:, None]
        g = torch.where(some, grads[1], 0.0)[:, None]
        to_x = torch.zeros_like(x)
        to_w = torch.empty_like(w)
        to_bias = None if bias is None else torch.empty_like(bias)
        for number, (part, own) in enumerate(_parts(x, w, y, ctx.cosines)):
            v, shrink = _directions(w[part], ctx.cosines)
            if kept:
                weights = kept[number]
                slope = g * (peaks[number][:, None] - others).clamp_max_(0).exp_()
            else:
                weights = _exponentials_(_logits_of_others(x, v, bias, part, own).sub_(others))
                slope = g
            to_x.addcmul_(slope, weights @ v)
            torch.mm(weights.T, slope * x, out=to_w[part])
            if shrink is not None:
                to_w[part] = tangent(to_w[part], v, shrink)
            if to_bias is not None:
                to_bias[part] = slope.squeeze(1) @ weights
        _add_own_(to_x, to_w, to_bias, (x, w, y), grads[0], ctx.cosines)
        return to_x, to_w, to_bias, None, None


def _in_caches(device: torch.device) -> bool:
    return device.type == "cpu" and not torch.compiler.is_compiling()


def _parts(x: Tensor, w: Tensor, y: Tensor, cosines: bool) -> Iterator[tuple[slice, tuple[Tensor, Tensor]]]:
    """Cut the classes into parts, and mark the samples' own classes in each, as `_logits_of_others` takes them."""
    numbers = (PART if _in_caches(x.device) else FULL) // max(1, len(x) + (x.shape[1] if cosines else 0))
    size = max(1, numbers)
    parts = [slice(lo, min(lo + size, len(w))) for lo in range(0, len(w), size)]
    starts = torch.tensor([part.start for part in parts], device=y.device)[:, None]
    stops = torch.tensor([part.stop for part in parts], device=y.device)[:, None]
    inside = (y >= starts) & (y < stops)
    columns = torch.where(inside, y - starts, 0)[:, :, None]
    marks = torch.zeros_like(columns, dtype=x.dtype).masked_fill_(inside[:, :, None], -torch.inf)
    return zip(parts, zip(columns.unbind(), marks.unbind(), strict=True), strict=True)


def _directions(w: Tensor, cosines: bool) -> tuple[Tensor, Tensor | None]:
    """Return what samples are multiplied with, and the lengths by which it was divided."""
    return normalized(w) if cosines else (w, None)


def _logits_of_others(x: Tensor, v: Tensor, bias: Tensor | None, part: slice, own: tuple[Tensor, Tensor]) -> Tensor:
    """Return the (n, c) logits of a part of the classes, -inf at the samples' own.

    `own` has a column of each sample, (n, 1), and what is added there: -inf, or 0 if its class is in another part.
    """
    z = x @ v.T if bias is None else torch.addmm(bias[part], x, v.T)
    return z.scatter_add_(1, *own)


def _exponentials_(z: Tensor) -> Tensor:
    """Overwrite z, at most 0, by its exponentials; those too small to count are not left to become denormal numbers."""
    floor = EXPONENT_FLOOR if z.dtype == torch.float64 else EXPONENT_FLOOR * 2 / 3
    return z.clamp_min_(floor).exp_()


def _logits_of_own(x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, cosines: bool) -> Tensor:
    """Return the logits of samples at their own classes, (n,), 0 where they have none of these."""
    if not len(w):
        return x.new_zeros(len(x))
    at = y.clamp_min(0)
    v, _ = _directions(w[at], cosines)
    own = (x * v).sum(1)
    own = own if bias is None else own + bias[at]
    return torch.where(y >= 0, own, 0.0)


def _add_own_(
    to_x: Tensor,
    to_w: Tensor,
    to_bias: Tensor | None,
    saved: tuple[Tensor, Tensor, Tensor],
    slope: Tensor,
    cosines: bool,
) -> None:
    """Add the gradients of the own logits, whose slopes are (n,), to those of the inputs."""
    x, w, y = saved
    if not len(w):
        return
    at = y.clamp_min(0)
    slope = torch.where(y >= 0, slope, 0.0)
    v, shrink = _directions(w[at], cosines)
    to_v = slope[:, None] * x
    to_x.addcmul_(slope[:, None], v)
    to_w.index_add_(0, at, to_v if shrink is None else tangent(to_v, v, shrink))
    if to_bias is not None:
        to_bias.index_add_(0, at, slope)


def _differentiable(
    ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], y: Tensor, grads: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients with a graph of their own."""
    x, w, bias = inputs
    z = x @ (unit(w) if ctx.cosines else w).T
    z = z if bias is None else z + bias
    here = torch.arange(len(w), device=y.device) == y[:, None]
    own = torch.where(here, z, 0.0).sum(1)
    others = z.masked_fill(here, -torch.inf).logsumexp(1)
    found = [part for part, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed and part is not None]
    slopes = iter(torch.autograd.grad((own, others), found, grads, create_graph=True))
    return *(next(slopes) if needed else None for needed in ctx.needs_input_grad[:3]), None, None
