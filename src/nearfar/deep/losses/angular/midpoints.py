"""Sums over the negatives of a pair (a, p) of functions of s_an + s_pn, for the few positives p of each anchor a.

The row of p is a row of the given matrix, or is computed again from the reference vectors. Positives are taken one
after the other, so that memory remains that of one block of rows. Distances here are minus inner products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...autograd import applied, exact, recomputed
from ...pairwise.comparison import EXPONENT_FLOOR, count
from ...pairwise.reductions import cache_parts, masked_logsumexp


class Rule(NamedTuple):
    """How sums are formed.

    Attributes
    ----------
    scale : float
        Scale f.
    hinge : bool
        Whether terms are hinges; otherwise, their log-sum-exp is formed.
    square : bool
        Whether the rows of positives are those of a square matrix; otherwise, they are computed from vectors.
    """

    scale: float
    hinge: bool
    square: bool


class _Sums(torch.autograd.Function):
    """See `midpoint_sums`; everything but the result is computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, far: Tensor, source: Tensor, columns: Tensor, offset: Tensor, rule: Rule
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(far, source, columns, offset)
        ctx.rule = rule
        sums = torch.empty_like(offset)
        active = torch.zeros_like(columns, dtype=torch.int32)
        for part in cache_parts(far):
            for k in range(columns.shape[1]):
                f = _exponents(far[part], source, columns[part, k], rule)
                if rule.hinge:
                    # [offset + f (s_an + s_pn)]_+; -inf of samples that are no negatives becomes 0
                    f = f.add_(offset[part, k : k + 1]).clamp_min_(0)
                    sums[part, k] = f.sum(1)
                    active[part, k] = count(f > 0)
                else:
                    sums[part, k] = offset[part, k] + f.logsumexp(1)
        ctx.mark_non_differentiable(active)
        return sums, active

    @staticmethod
    @exact
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        far, source, columns, offset = ctx.saved_tensors
        rule: Rule = ctx.rule
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it with a graph
            apart = [part.view_as(part) for part in (far, source, offset)]  # one may be computed from another
            sums = _plain(apart[0], apart[1], columns, apart[2], rule)
            inputs = [part for part in apart if part.requires_grad]
            gradients = iter(torch.autograd.grad(sums, inputs, grads[0], create_graph=True, allow_unused=True))
            far_, source_, offset_ = (next(gradients) if part.requires_grad else None for part in apart)
            return far_, source_, None, offset_, None
        to_far = torch.zeros_like(far)
        to_source = torch.zeros_like(source)
        to_offset = torch.zeros_like(offset)
        for part in cache_parts(far):
            for k in range(columns.shape[1]):
                p = columns[part, k]
                slope = _slopes(_exponents(far[part], source, p, rule), offset[part, k : k + 1], rule)
                slope = slope.mul_(grads[0][part, k : k + 1])
                if rule.hinge:
                    to_offset[part, k] = slope.sum(1)
                else:
                    to_offset[part, k] = grads[0][part, k]  # the slopes of a log-sum-exp add up to 1
                # f (s_an + s_pn) = -f (d_an + d_pn): the slope in both distances
                slope = slope.mul_(-rule.scale)
                to_far[part] += slope
                if rule.square:
                    # d_pn is entry n of row p of the square matrix
                    to_source.index_add_(0, p, slope)
                else:
                    # d_pn = -r_p . r_n: the gradient reaches both vectors
                    to_source.index_add_(0, p, slope @ source, alpha=-1)
                    to_source.sub_(slope.T @ source[p])
        return to_far, to_source, None, to_offset, None


def _exponents(far: Tensor, source: Tensor, p: Tensor, rule: Rule) -> Tensor:
    """Return f (s_an + s_pn), (b, m), -inf for samples that are not negatives."""
    if rule.square:
        row = source[p]
    else:
        row = (source[p] @ source.T).neg_()
    return row.add_(far).mul_(-rule.scale)


def _plain(far: Tensor, source: Tensor, columns: Tensor, offset: Tensor, rule: Rule) -> Tensor:
    """Return the sums of `midpoint_sums`, with a graph."""
    sums = []
    # one positive of each anchor at a time: p (b,), row and f (b, m)
    for k, p in enumerate(columns.T):
        if rule.square:
            row = source[p]
        else:
            row = -(source[p] @ source.T)
        # distances are minus inner products, so f = scale (s_an + s_pn); -inf where n is no negative of a
        f = (row + far) * -rule.scale
        more = offset[:, k]
        if rule.hinge:
            sums.append((f + more[:, None]).clamp_min(0).sum(1))
        else:
            sums.append(more + masked_logsumexp(f, f.isfinite()))
    if not sums:
        return offset
    return torch.stack(sums, 1)


def _slopes(f: Tensor, offset: Tensor, rule: Rule) -> Tensor:
    """Return the derivative of a sum in its exponents f, (b, m): 1 where a hinge is active, or their softmax."""
    if rule.hinge:
        return (f > -offset).to(f.dtype)
    most = f.amax(1, keepdim=True)
    f = torch.threshold_(f.sub_(torch.where(most.isfinite(), most, 0.0)), EXPONENT_FLOOR, -torch.inf).exp_()
    return f.div_(f.sum(1, keepdim=True).clamp_min(torch.finfo(f.dtype).tiny))


def midpoint_sums(far: Tensor, source: Tensor, columns: Tensor, offset: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Sum over the negatives n of each anchor and each of its positives p.

    Parameters
    ----------
    far : (b, m) tensor
        Minus the inner products of anchors and references; +inf for all but the negatives.
    source : (m, m) or (m, d) tensor
        Minus the inner products of the references if `rule.square`, else their vectors.
    columns : (b, K) tensor
        Columns of the positives.
    offset : (b, K) tensor
        Offset of each pair.
    rule : Rule
        How the sums are formed.

    Returns
    -------
    tuple of Tensor
        (b, K) sum_n [offset + f (s_an + s_pn)]_+ and the number of its positive terms, or offset + log sum_n exp(f
        (s_an + s_pn)), -inf without negatives, and zeros.
    """
    sums, active = applied(_Sums, far, source, columns, offset, rule)
    return sums, active


def midpoint_products(far: Tensor, source: Tensor, rule: Rule) -> Tensor:
    """Return log sum_n exp(f (s_an + s_pn)) for every reference p, (b, m), as one matrix product.

    For unit vectors only, where no exponent leaves [-4f, 0]: exact while 4f < 80.
    """
    # sum_n e^{f (s_an - 1)} e^{f (s_pn - 1)} = e^{-2 f} sum_n e^{f (s_an + s_pn)}
    near = torch.exp(-rule.scale * (far + 1))
    if rule.square:
        totals = near @ torch.exp(-rule.scale * (source + 1)).T
    else:
        size = max(len(far), 1)
        # rows of the reference against itself, (size, m), of which a block is recomputed in the backward pass
        spans = [(lo, min(lo + size, len(source))) for lo in range(0, len(source), size)]
        parts = [recomputed(_part_product, near, source, lo, hi, rule.scale) for lo, hi in spans]
        totals = near
        if parts:
            totals = torch.cat(parts, 1)
    # a sum of 0 has no negatives; its logarithm would give the gradient NaN also where it is masked
    some = totals > 0
    return torch.where(some, torch.where(some, totals, 1.0).log() + 2 * rule.scale, -torch.inf)


def _part_product(near: Tensor, ref: Tensor, lo: int, hi: int, scale: float) -> Tensor:
    """Return the totals of the positives lo to hi - 1, (b, hi - lo)."""
    return near @ torch.exp(scale * (ref[lo:hi] @ ref.T - 1)).T
