"""Many processes, one batch: gathering with gradients, and values that add up to the single-process ones.

Each process holds a part of the global batch. Embeddings are gathered so that every process sees the whole batch;
a process computes its own anchors' share, and the shares add up to the loss. `whole` returns the sum of the shares
with the gradient of `world x share`, so that after DistributedDataParallel's mean over processes the gradient of
every parameter, network or proxy, equals the single-process one.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return this process's number."""
    return dist.get_rank() if world() > 1 else 0


def leave() -> None:
    """Leave the group when the program ends: a thread of the group that outlives the interpreter would abort it."""
    gc.collect()  # trained models hold the group in cycles
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = len(x)
        parts = [torch.empty_like(x) for _ in range(world())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        grad = grads[0].clone(memory_format=torch.contiguous_format)  # the reduction writes into it
        dist.all_reduce(grad)
        return grad[rank() * ctx.rows : (rank() + 1) * ctx.rows]


def gather(x: Tensor) -> Tensor:
    """Concatenate x over processes in rank order; gradients flow back to the process that gave each row."""
    return _Gather.apply(x) if world() > 1 else x


def check_equal_parts(n: int, device: torch.device) -> None:
    """Raise unless every process holds n samples."""
    sizes = [torch.empty(1, dtype=torch.int64, device=device) for _ in range(world())]
    dist.all_gather(sizes, torch.tensor([n], device=device))
    counts = [int(size) for size in sizes]
    if len(set(counts)) > 1:
        raise ValueError(f"embeddings: every process needs the same number of samples, got {counts}")


def total(x: Tensor) -> Tensor:
    """Sum a value without gradient over processes."""
    if world() == 1:
        return x
    x = x.detach().clone()
    dist.all_reduce(x)
    return x


def whole(share: Tensor) -> Tensor:
    """Turn this process's share into the loss: its value is the sum of shares, its gradient `world x share`'s."""
    if world() == 1:
        return share
    scaled = share * world()
    return scaled + (total(share) - scaled).detach()
