"""Scale vectors to one length, with the gradient in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .autograd import applied

LEAST_NORM = 1e-12  # shorter vectors are divided by this, as in `torch.nn.functional.normalize`


class _Unit(torch.autograd.Function):
    """See `unit`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, length: float) -> Tensor:
        u, shrink = normalized(x, length)
        ctx.save_for_backward(x, u, shrink)
        ctx.length = length
        return u

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, u, shrink = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            u, shrink = normalized(x, ctx.length)
        return tangent(grads[0], u, shrink, ctx.length), None


def normalized(x: Tensor, length: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return x scaled to a length along its last dimension, and the divisor |x| / length."""
    shrink = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(LEAST_NORM)
    if length != 1:
        shrink = shrink / length
    return x / shrink, shrink


def tangent(grad: Tensor, u: Tensor, shrink: Tensor, length: float = 1.0) -> Tensor:
    """Return (g - u (u.g) / length^2) / shrink, the gradient in x, from g, the gradient in u = x / shrink."""
    along = (grad * u).sum(-1, keepdim=True)
    return torch.addcmul(grad, u, along, value=-(length**-2)).div_(shrink)


def unit(x: Tensor, length: float = 1.0) -> Tensor:
    """Return x scaled to a length along its last dimension."""
    u: Tensor = applied(_Unit, x, length)
    return u
