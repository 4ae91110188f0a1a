"""Classes with several centers: the similarity to the best of them, soft or hard, and how far apart they lie.

The inner products with all centers of all classes are the largest matrix here and are never held at once: the functions
process a few classes at a time, or one center of each class, and have the gradient of the formula.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..autograd import applied
from ..unit_vectors import normalized, tangent, unit

COSINES_IN_CACHE = 1 << 18  # numbers of a part whose temporaries stay in a processor's cache
MAX_COSINES = 1 << 22  # cosines that are held at once


class _Similarity(torch.autograd.Function):
    """See `similarity`; keeps dS/ds, s_ick = x_i.w_ck, and nothing else of its size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, gamma: float) -> Tensor:
        S = x.new_empty(w.shape[1], len(x))
        slopes = []
        parts = _parts(w, len(x))
        x_t = (x / gamma).T
        for part in parts:
            # with t = s / gamma and a = softmax_k t: S = gamma sum_k a_k t_k, dS/ds_k = a_k (1 + t_k - S / gamma)
            t = _rows(normalized(w[:, part])[0]) @ x_t
            t = t.view(len(w), -1, len(x))  # s / gamma
            a = torch.softmax(t, 0)
            t.mul_(a)
            torch.sum(t, 0, out=S[part])
            slopes.append(t.addcmul_(a, 1 - S[part]))  # a (1 + t - S / gamma)
        ctx.gamma = gamma
        ctx.parts = parts
        ctx.save_for_backward(x, w, *slopes)
        return S.mul_(gamma).T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            s = unit(w) @ x.T
            S = (torch.softmax(s / ctx.gamma, 0) * s).sum(0).T
            wanted = [part for part, needed in zip((x, w), ctx.needs_input_grad, strict=False) if needed]
            found = iter(torch.autograd.grad(S, wanted, grads[0], create_graph=True))
            return *(next(found) if needed else None for needed in ctx.needs_input_grad[:2]), None
        to_x = torch.zeros_like(x)
        to_w = torch.empty_like(w)
        for part, slope in zip(ctx.parts, slopes, strict=True):
            u, norm = normalized(w[:, part])
            g = _rows(slope * grads[0].T[part])
            # the gradient in a weight of any length: that in its direction, less its part along it, over the length
            to_w[:, part] = tangent((g @ x).view_as(u), u, norm)
            to_x.addmm_(g.T, _rows(u))
        return to_x, to_w, None


def _rows(w: Tensor) -> Tensor:
    return w.flatten(0, 1)


def _parts(w: Tensor, width: int) -> list[slice]:
    """Cut the classes of centers w (K, C, d) so that K x width numbers of each class stay in a processor's cache."""
    K, C, _ = w.shape
    if w.device.type == "cpu" and not torch.compiler.is_compiling():  # a graph would hold for one size of batches only
        size = max(1, COSINES_IN_CACHE // (K * max(1, width)))
    else:
        size = C
    return [slice(lo, min(lo + size, C)) for lo in range(0, C, size)]


def similarity(x: Tensor, w: Tensor, gamma: float) -> Tensor:
    """Return the (n, C) similarities S of unit embeddings x (n, d) to the classes with centers w (K, C, d)."""
    if len(w) == 1:
        return x @ unit(w[0]).T
    S: Tensor = applied(_Similarity, x, w, gamma)
    return S


class _NearestCosine(torch.autograd.Function):
    """See `nearest_cosine`; keeps which center is the nearest, one byte for each class of a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        best = x @ w[0].T
        which = torch.zeros_like(best, dtype=torch.uint8)
        # d max_k x . w_k goes to the nearest center alone: g (n, C) is 0 where another one is nearest
        for k in range(1, len(w)):
            s = x @ w[k].T
            # of equal cosines, the first center is the nearest
            which.masked_fill_(s > best, k)
            torch.maximum(best, s, out=best)
        ctx.save_for_backward(x, w, which)
        return best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w, which = ctx.saved_tensors
        to_x = torch.zeros_like(x)
        to_w = []
        for k in range(len(w)):
            g = torch.where(which == k, grads[0], 0.0)
            to_x = to_x + g @ w[k]
            to_w.append(g.T @ x)
        return to_x, torch.stack(to_w)


def nearest_cosine(x: Tensor, w: Tensor, scale: float = 1.0) -> Tensor:
    """Return the (n, C) cosines, times a scale, of x (n, d) to the nearest center of each class, w (K, C, d)."""
    x = unit(x, scale)
    u = unit(w)
    if len(x) * u.shape[0] * u.shape[1] <= MAX_COSINES:  # one product takes less time than several
        return (x @ _rows(u).T).unflatten(1, u.shape[:2]).amax(1)
    best: Tensor = applied(_NearestCosine, x, u)
    return best


class _Spread(torch.autograd.Function):
    """See `spread`; keeps the (C, K, K) slopes."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        ctx.parts = _parts(w, w.shape[2])
        slopes = []
        total = w.new_zeros(())
        # w is (K, C, d): a few classes at a time, whose K x K gaps between centers fit into the cache
        for part in ctx.parts:
            gap, slope = _gaps(normalized(w[:, part])[0].transpose(0, 1))
            # each pair of centers is in the matrix twice
            total += gap.sum() / 2
            slopes.append(slope)
        ctx.save_for_backward(w, *slopes)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        w, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # as in `_Similarity`
            total = _gaps(unit(w).transpose(0, 1))[0].sum() / 2
            return torch.autograd.grad(total, w, grads[0], create_graph=True)[0]
        to_w = torch.empty_like(w)
        for part, slope in zip(ctx.parts, slopes, strict=True):
            u, norm = normalized(w[:, part])
            to_w[:, part] = tangent((slope @ u.transpose(0, 1)).mul_(grads[0]).transpose(0, 1), u, norm)
        return to_w


def _gaps(v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (C, K, K) distances of unit centers v (C, K, d), 0 from each to itself, and their slopes in v.v."""
    # |v_j - v_k|^2 = 2 - 2 v_j.v_k of unit vectors; (C, K, K)
    square = (2 - 2 * v @ v.mT).clamp_min(0)
    same = torch.eye(v.shape[1], dtype=torch.bool, device=v.device)
    gap = (square + 1e-5).sqrt()
    return gap.masked_fill(same, 0), torch.where(same | (square <= 0), 0.0, -1 / gap)


def spread(w: Tensor) -> Tensor:
    """Return the distances between the directions of the centers w (K, C, d) of each class, summed over its pairs."""
    total: Tensor = applied(_Spread, w)
    return total
