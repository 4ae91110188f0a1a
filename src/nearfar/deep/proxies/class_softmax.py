"""What a softmax over many classes needs of each sample, without the matrix of its logits.

    own_i = z_i,y_i        others_i = log sum_{c != y_i} e^{z_ic}        z_ic = x_i . w_c (+ b_c)

The classes are processed in parts that stay in a processor's cache. With very many classes, the backward pass computes
each part again and adds it to the gradient at once (as FlashAttention does with keys in the place of classes; Dao et
al., 2022):

    p_ic = e^{z_ic - others_i}, 0 at c = y_i        dx = diag(g) p w,    dw = p' diag(g) x        g_i: slope of others_i

So a step holds no (n, C) matrix and, for cosines, no copy of the weights of unit length. That takes one more product
with the weights, but less time: a matrix that is larger than the caches is slow to write and to read.

A class may have several weights. Its logit is then the largest of theirs, which the backward pass finds again, too.
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
    w : (C, d) or (K, C, d) tensor
        Weights of the classes. If each has K of them, its logit is the largest of theirs.
    y : (n,) integers
        Class of each sample, or -1 if it has none of these classes. All of them are then others.
    bias : (C,) tensor, optional
        Number that is added to the logits of each class. It needs one weight per class.
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
    own, others, _ = applied(_ClassSoftmax, x, w, bias, y, cosines, False)
    return own, others


def own_others_and_sums_of(
    x: Tensor, w: Tensor, y: Tensor, *, bias: Tensor | None = None, cosines: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `own_and_others_of` does for weights (C, d), and the sum of each sample's logits, (n,).

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0]])
    >>> own_others_and_sums_of(x, torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([0]))[2].tolist()
    [4.0]
    """
    own, others, sums = applied(_ClassSoftmax, x, w, bias, y, cosines, True)
    return own, others, sums


class _ClassSoftmax(torch.autograd.Function):
    """See `own_and_others_of` and `own_others_and_sums_of`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, cosines: bool, sums: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.cosines = cosines
        ctx.sums = sums
        centers = _centers(w)
        lowest = torch.finfo(x.dtype).min
        keep = len(centers) == 1 and len(x) * len(w) <= LOGITS_KEPT
        kept: list[Tensor] = []
        tops: list[Tensor] = []
        totals = [x.new_zeros(len(x))]
        sum_of_weights = x.new_zeros(x.shape[1])
        for part, own in _parts(x, centers, y, cosines):
            v, _ = _directions(centers[:, part], cosines)
            z, _ = _logits_of_others(x, v, None if bias is None else bias[part], own)
            # the maximum of a part is finite even if all of it is the own class, whose logit is -inf here
            top = z.amax(1).clamp_min_(lowest)
            weights = _exponentials_(z.sub_(top[:, None]))
            tops.append(top)
            totals.append(weights.sum(1))
            if keep:
                kept.append(weights)
            if sums:
                sum_of_weights += v[0].sum(0)
        # others = log sum_parts e^top sum_c e^{z_c - top}; the first row is for batches without classes
        peaks = torch.stack([torch.full_like(totals[0], lowest), *tops])  # (parts + 1, n)
        others = (peaks + torch.stack(totals).log_()).logsumexp(0)
        # nothing but the lowest numbers were added: there are no others
        others = torch.where(others > lowest / 2, others, -torch.inf)
        own_rows = _rows_of_own(x, centers, y, cosines)
        ctx.save_for_backward(x, w, bias, y, own_rows, others, peaks[1:], sum_of_weights, *kept)
        z_own = _logits_of_own(x, centers, bias, (y, own_rows), cosines)
        z_sum = x @ sum_of_weights  # 0 if not asked for
        if sums and bias is not None:
            z_sum = z_sum + bias.sum()
        return z_own, others, z_sum

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w, bias, y, own_rows, others, peaks, sum_of_weights, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            return _differentiable(ctx, (x, w, bias), y, grads)
        some = others.isfinite()
        others = torch.where(some, others, 0.0)[:, None]
        g = torch.where(some, grads[1], 0.0)[:, None]
        centers = _centers(w)
        to_x = torch.zeros_like(x)
        to_w = torch.empty_like(centers)
        to_bias = None if bias is None else torch.empty_like(bias)
        for number, (part, own) in enumerate(_parts(x, centers, y, ctx.cosines)):
            v, shrink = _directions(centers[:, part], ctx.cosines)
            nearest: list[Tensor] = []
            if kept:
                weights = kept[number]
                # the kept weights are e^{z - top}; times e^{top - others}, they are p
                slope = g * (peaks[number][:, None] - others).clamp_max_(0).exp_()
            else:
                z, nearest = _logits_of_others(x, v, None if bias is None else bias[part], own)
                weights = _exponentials_(z.sub_(others))
                slope = g
            scaled = slope * x
            for k in range(len(v)):
                p = weights * nearest[k] if nearest else weights
                # dx = diag(g) p w and dw = p' diag(g) x; with several weights of a class, p is that of the nearest,
                # else 0
                to_x.addcmul_(slope, p @ v[k])
                torch.mm(p.T, scaled, out=to_w[k, part])
            if ctx.sums:
                to_w[0, part] += grads[2] @ x
            if shrink is not None:
                to_w[:, part] = tangent(to_w[:, part], v, shrink)
            if to_bias is not None:
                to_bias[part] = slope.squeeze(1) @ weights
        if ctx.sums:
            # sum_c z_c = x . sum_c w_c
            to_x.addr_(grads[2], sum_of_weights)
            to_bias = None if to_bias is None else to_bias.add_(grads[2].sum())
        _add_own_(to_x, to_w, to_bias, (x, centers, y, own_rows), grads[0], ctx.cosines)
        return to_x, to_w.view_as(w), to_bias, None, None, None


def own_and_far_of(x: Tensor, w: Tensor, y: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return each sample's logit at its own class, and for each class the log-sum-exp over samples of others.

    Parameters
    ----------
    x : (n, d) tensor
        Samples, scaled as the logits are to be.
    w : (C, d) tensor
        Weights of the classes, which are scaled to length 1.
    y : (n,) integers
        Class of each sample, or -1 if it has none of these classes.
    known : (n,) bool tensor
        Which samples count at all.

    Returns
    -------
    tuple of Tensor
        (n,) own logits, 0 where `y` is -1, and the (C,) log-sum-exp, -inf with zero gradient if no sample counts.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> own, far = own_and_far_of(x, torch.eye(2), torch.tensor([0, 1]), torch.tensor([True, True]))
    >>> own.tolist(), far.tolist()
    ([1.0, 2.0], [0.0, 0.0])
    """
    absent = torch.zeros_like(x[:, :1]).masked_fill_(~known[:, None], -torch.inf)
    own, far = applied(_ClassColumns, x, w, y, absent)
    return own, far


class _ClassColumns(torch.autograd.Function):
    """See `own_and_far_of`; `absent` (n, 1) is added to the logits: 0, or -inf if the sample does not count."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, y: Tensor, absent: Tensor) -> tuple[Tensor, Tensor]:
        centers = _centers(w)
        lowest = torch.finfo(x.dtype).min
        far = x.new_full((len(w),), -torch.inf)
        for part, own in _parts(x, centers, y, True) if len(x) else ():
            v, _ = normalized(centers[:, part])
            z, _ = _logits_of_others(x, v, absent, own)
            # per class: log sum_i e^{z_ic} over the samples i of other classes, with the largest taken out
            top = z.amax(0).clamp_min_(lowest)
            far[part] = _exponentials_(z.sub_(top)).sum(0).log_().add_(top)
        # sums of nothing came out near the lowest float: they are the logarithm of 0
        far = torch.where(far > lowest / 2, far, -torch.inf)
        own_rows = y.clamp_min(0)
        ctx.save_for_backward(x, w, y, absent, own_rows, far)
        return _logits_of_own(x, centers, None, (y, own_rows), True), far

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y, absent, own_rows, far = ctx.saved_tensors
        if torch.is_grad_enabled():  # as in `_ClassSoftmax`
            return _differentiable_columns(ctx, (x, w), (y, absent), grads)
        some = far.isfinite()
        far = torch.where(some, far, 0.0)
        g = torch.where(some, grads[1], 0.0)
        centers = _centers(w)
        to_x = torch.zeros_like(x)
        to_w = torch.zeros_like(centers)
        for part, own in _parts(x, centers, y, True) if len(x) else ():
            v, shrink = normalized(centers[:, part])
            z, _ = _logits_of_others(x, v, absent, own)
            p = _exponentials_(z.sub_(far[part])).mul_(g[part])
            to_x.addmm_(p, v[0])
            to_w[:, part] = tangent((p.T @ x)[None], v, shrink)
        _add_own_(to_x, to_w, None, (x, centers, y, own_rows), grads[0], True)
        return to_x, to_w[0], None, None


def _in_caches(device: torch.device) -> bool:
    return device.type == "cpu" and not torch.compiler.is_compiling()


def _centers(w: Tensor) -> Tensor:
    """Return weights (C, d) or (K, C, d) as (K, C, d)."""
    return w if w.ndim == 3 else w[None]


def _parts(x: Tensor, w: Tensor, y: Tensor, cosines: bool) -> Iterator[tuple[slice, tuple[Tensor, Tensor]]]:
    """Cut the classes of w (K, C, d) into parts, and mark the samples' own classes in each for `_logits_of_others`."""
    K, C, d = w.shape
    numbers = (PART if _in_caches(x.device) else FULL) // max(1, len(x) + (K * d if cosines else 0))
    size = max(1, numbers)
    parts = [slice(lo, min(lo + size, C)) for lo in range(0, C, size)]
    starts = torch.arange(0, C, size, device=y.device)[:, None]  # on the device, which a list would make wait
    inside = (y >= starts) & (y < starts + size)
    columns = torch.where(inside, y - starts, 0)[:, :, None]
    marks = torch.zeros_like(columns, dtype=x.dtype).masked_fill_(inside[:, :, None], -torch.inf)
    return zip(parts, zip(columns.unbind(), marks.unbind(), strict=True), strict=True)


def _directions(w: Tensor, cosines: bool) -> tuple[Tensor, Tensor | None]:
    """Return what samples are multiplied with, and the lengths by which it was divided."""
    return normalized(w) if cosines else (w, None)


def _logits_of_others(
    x: Tensor, v: Tensor, added: Tensor | None, own: tuple[Tensor, Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Return the (n, c) logits of a part of the classes, -inf at the samples' own, and which of their weights is it.

    v (K, c, d) are the weights, and `added`, (c,) or (n, 1), is added to the logits. `own` has a column of each sample,
    (n, 1), and what is added there: -inf, or 0 if its class is in another part. The second result has K matrices
    (n, c), 1 where the k-th weight of a class is nearest and 0 elsewhere; it is empty with one weight per class.
    """
    z = x @ v[0].T if added is None else torch.addmm(added, x, v[0].T)
    nearest = [] if len(v) == 1 else [torch.ones_like(z)]
    for k in range(1, len(v)):
        s = x @ v[k].T
        nearer = (s - z).sign_().clamp_min_(0)  # 1 where s > z; several times as fast as a comparison and `where`
        for earlier in nearest:
            earlier.mul_(1 - nearer)
        nearest.append(nearer)
        # the largest logit of the first k + 1 weights of each class
        z = torch.maximum(z, s, out=z)
    return z.scatter_add_(1, *own), nearest


def _exponentials_(z: Tensor) -> Tensor:
    """Overwrite z, at most 0, by its exponentials; those too small to count are not left to become denormal numbers."""
    floor = EXPONENT_FLOOR if z.dtype == torch.float64 else EXPONENT_FLOOR * 2 / 3
    return z.clamp_min_(floor).exp_()


def _rows_of_own(x: Tensor, w: Tensor, y: Tensor, cosines: bool) -> Tensor:
    """Return the rows of the own classes in w (K, C, d), flattened to (K * C, d): of K weights, the nearest."""
    K, C, _ = w.shape
    at = y.clamp_min(0)
    if K == 1 or not C:
        return at
    # the K centers of the own class of each sample, (K, n, d)
    v, _ = _directions(w[:, at], cosines)
    return at + C * (x * v).sum(2).argmax(0)


def _logits_of_own(x: Tensor, w: Tensor, bias: Tensor | None, own: tuple[Tensor, Tensor], cosines: bool) -> Tensor:
    """Return the logits of samples at their own classes, (n,), 0 where they have none of these.

    `own` has the samples' classes and the rows of these in the flattened weights, (n,) each.
    """
    y, rows = own
    if not w.shape[1]:
        return x.new_zeros(len(x))
    v, _ = _directions(w.flatten(0, 1)[rows], cosines)
    # from (n, d) rows, not from the (n, C) matrix of all logits
    z = (x * v).sum(1)
    z = z if bias is None else z + bias[rows]
    return torch.where(y >= 0, z, 0.0)


def _add_own_(
    to_x: Tensor,
    to_w: Tensor,
    to_bias: Tensor | None,
    saved: tuple[Tensor, Tensor, Tensor, Tensor],
    slope: Tensor,
    cosines: bool,
) -> None:
    """Add the gradients of the own logits, whose slopes are (n,), to those of the inputs."""
    x, w, y, rows = saved
    if not w.shape[1]:
        return
    slope = torch.where(y >= 0, slope, 0.0)
    v, shrink = _directions(w.flatten(0, 1)[rows], cosines)
    # z = x . v: dz/dx = v and dz/dv = x; for cosines, v = w / |w| and the slope of w is tangent to the sphere
    to_v = slope[:, None] * x
    to_x.addcmul_(slope[:, None], v)
    to_w.flatten(0, 1).index_add_(0, rows, to_v if shrink is None else tangent(to_v, v, shrink))
    if to_bias is not None:
        to_bias.index_add_(0, rows, slope)


def _differentiable(
    ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], y: Tensor, grads: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients with a graph of their own."""
    x, w, bias = inputs
    # the whole (n, C) matrix: second derivatives are rare, and memory does not count there
    z = (x @ _centers(unit(w) if ctx.cosines else w).mT).amax(0)
    z = z if bias is None else z + bias
    here = torch.arange(z.shape[1], device=y.device) == y[:, None]
    own = torch.where(here, z, 0.0).sum(1)
    others = z.masked_fill(here, -torch.inf).logsumexp(1)
    outputs = (own, others, z.sum(1)) if ctx.sums else (own, others)
    found = [part for part, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed and part is not None]
    slopes = iter(torch.autograd.grad(outputs, found, grads[: len(outputs)], create_graph=True))
    return *(next(slopes) if needed else None for needed in ctx.needs_input_grad[:3]), None, None, None


def _differentiable_columns(
    ctx: Any, inputs: tuple[Tensor, Tensor], labels: tuple[Tensor, Tensor], grads: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `_ClassColumns` with a graph of their own."""
    x, w = inputs
    y, absent = labels
    # own_i = z_iy, far_c = log sum of e^{z_ic} over the samples of other classes; the whole (n, C) matrix, as above
    z = x @ unit(w).T
    here = torch.arange(len(w), device=y.device) == y[:, None]
    own = torch.where(here, z, 0.0).sum(1)
    far = (z + absent).masked_fill(here, -torch.inf).logsumexp(0)
    found = [part for part, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    slopes = iter(torch.autograd.grad((own, far), found, grads, create_graph=True))
    return *(next(slopes) if needed else None for needed in ctx.needs_input_grad[:2]), None, None
