"""Soft ranks: sums of sigmoids over a row, for a few thresholds of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CACHED = 1 << 17  # entries of a part whose temporaries stay in a processor's cache


def cache_parts(x: Tensor) -> list[slice]:
    """Cut the rows of a matrix into parts that stay in a processor's cache; on a device, one part."""
    n, m = x.shape
    size = max(1, CACHED // max(m, 1)) if x.device.type == "cpu" else max(n, 1)
    return [slice(lo, min(lo + size, n)) for lo in range(0, n, size)]


class _SoftCounts(torch.autograd.Function):
    """See `soft_counts`; the sigmoids are computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, v: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward(t, v)
        ctx.temperature = temperature
        counts = torch.empty_like(t)
        for part in cache_parts(v):
            room = torch.empty_like(v[part])
            for k in range(t.shape[1]):
                counts[part, k] = _sigmoids(t[part, k : k + 1], v[part], temperature, room).sum(1)
        return counts

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        t, v = ctx.saved_tensors
        g = grads[0] / ctx.temperature
        to_t, to_v = torch.empty_like(t), torch.zeros_like(v)
        for part in cache_parts(v):
            room = torch.empty_like(v[part])
            for k in range(t.shape[1]):
                near = _sigmoids(t[part, k : k + 1], v[part], ctx.temperature, room)
                slope = near.addcmul_(near, near, value=-1).mul_(g[part, k : k + 1])
                to_t[part, k] = slope.sum(1)
                to_v[part] -= slope
        return to_t, to_v, None


def _sigmoids(t: Tensor, v: Tensor, temperature: float, out: Tensor) -> Tensor:
    return torch.sub(t, v, out=out).div_(temperature).sigmoid_()


def finite(x: Tensor, otherwise: float = 0.0) -> Tensor:
    """Return x with its infinities, which carry no gradient, at another value."""
    return torch.where(x.isfinite(), x, otherwise)


def soft_counts(t: Tensor, v: Tensor, temperature: float) -> Tensor:
    """Count, softly, how many values of a row lie below each of its thresholds.

    Parameters
    ----------
    t : (b, K) finite thresholds
    v : (b, m) values; +inf is below nothing
    temperature : float
        Of the sigmoid that replaces the step.

    Returns
    -------
    (b, K) sums over v of 1 / (1 + exp((v - t) / temperature)).
    """
    value: Tensor = _SoftCounts.apply(t, v, temperature)
    return value
