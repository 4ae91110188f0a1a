"""Several processes, one batch: gathering with gradients, and values that add up to those of a single process.

Each process holds a part of the global batch. Embeddings are gathered so that every process sees the whole batch; a
process computes its own anchors' share, and the shares add up to the loss. `all_reduce_loss` returns the sum of the
shares with the gradient of `world x share`, so that after DistributedDataParallel's mean over processes the gradient of
every parameter, network or proxy, equals the single-process one.

By default, all processes share a batch; `use_group` selects some of them, and `local` only this one.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

AVAILABLE = dist.is_available()  # whether this PyTorch was built with it
ALONE = "alone"  # the group of this process only, which needs no communication


class _Current(threading.local):
    """The group of a thread; None are all processes."""

    group: Any = None


_current = _Current()
_compiled: Any = None  # the same for compiled code, which checks a global again, but not the variable of a thread


def _group() -> Any:
    return _compiled if torch.compiler.is_compiling() else _current.group


@contextmanager
def use_group(group: Any) -> Iterator[None]:
    """Let the processes of a group, and no others, share their batches.

    While the context is open, objectives and everything inside them, samplers and the training engine count and gather
    over these processes. With tensor or pipeline parallelism, the group must contain the processes with different data,
    because those that hold the same data must not be counted twice.

    Parameters
    ----------
    group : ProcessGroup or None
        Group that this process is in, such as ``mesh["dp"].get_group()``. None means all processes.

    Raises
    ------
    TypeError
        If `group` is not a process group.
    ValueError
        If this process is not in the group.

    Examples
    --------
    >>> import torch
    >>> from nearfar import TripletLoss
    >>> with use_group(None):
    ...     value = TripletLoss()(torch.eye(4), [0, 0, 1, 1])
    """
    _check(group)
    with _set(group):
        yield


def local() -> AbstractContextManager[None]:
    """Compute on this process alone: inside the context, nothing waits for other processes.

    Use it for what only some processes compute, such as a validation loss on the first one:

    >>> import torch
    >>> from nearfar import TripletLoss
    >>> with local():
    ...     value = TripletLoss()(torch.eye(4), [0, 0, 1, 1])
    """
    return _set(ALONE)


@contextmanager
def _set(group: Any) -> Iterator[None]:
    global _compiled
    before = _current.group
    _current.group = group
    _compiled = group
    try:
        yield
    finally:
        _current.group = before
        _compiled = before


def _check(group: Any) -> None:
    if group is None:
        return
    member = dist.GroupMember if dist.is_available() else None
    outside = member is not None and group is member.NON_GROUP_MEMBER  # what `new_group` returns to other processes
    if not outside and not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
        got = f"expected a process group of torch.distributed, got {type(group).__name__}"
        raise TypeError(f'group: {got}; of a device mesh take mesh["dp"].get_group()')
    if outside or dist.get_rank(group) < 0:
        got = f"this process, number {dist.get_rank()}, is not in it"
        raise ValueError(f"group: {got}; call objectives in its processes only, or inside distributed.local()")


def is_shard(x: Tensor) -> bool:
    """Return whether a parameter is a shard of FSDP2, which it is unless a forward pass has gathered it."""
    return hasattr(x, "full_tensor")


def whole(x: Tensor) -> Tensor:
    """Return a parameter as one tensor. If FSDP2 has sharded it over processes, all of them must call this function."""
    if not is_shard(x):
        return x
    sharded: Any = x
    gathered: Tensor = sharded.full_tensor()
    return gathered


def world() -> int:
    """Return the number of processes that share a batch: those of the group."""
    if not (AVAILABLE and dist.is_initialized()):
        return 1
    group = _group()
    if group is ALONE:
        return 1
    return dist.get_world_size(group)


def rank() -> int:
    """Return this process's number in the group."""
    if world() == 1:
        return 0
    return dist.get_rank(_group())


def device() -> torch.device:
    """Return a device whose tensors the group can exchange."""
    backends = dist.get_backend_config(_group())
    return torch.device("cpu" if "cpu:" in backends else torch.cuda.current_device())


def leave() -> None:
    """Leave all groups of processes, as the last thing that a program does.

    A group that something still holds keeps its threads, and a thread that outlives the interpreter aborts the program.
    `destroy_process_group` alone does not end those that a network in DistributedDataParallel holds.

    Examples
    --------
    >>> leave()  # does nothing where no group was joined
    """
    gc.collect()  # networks in DistributedDataParallel hold groups in cycles
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _concatenated(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the rows of all processes in rank order, given the number of rows of each."""
    # `all_gather` needs parts of one length: shorter ones are padded, and cut again afterwards
    most = max(sizes)
    if len(x) < most:
        x = torch.cat([x, x.new_zeros(most - len(x), *x.shape[1:])])
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in sizes]
    dist.all_gather(parts, x.contiguous(), group=_group())
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class _Gather(torch.autograd.Function):
    """Gather several tensors in one function, so that its backward pass runs in every process, whatever it reads."""

    @staticmethod
    def forward(ctx: Any, sizes: Sequence[Sequence[int]], *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.group = _group()  # backward may run outside the context, and in another thread
        ctx.own = [part_of(size) for size in sizes]
        return tuple(_concatenated(part, size) for part, size in zip(parts, sizes, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = []
        for grad, own, needed in zip(grads, ctx.own, ctx.needs_input_grad[1:], strict=True):
            if not needed:
                found.append(None)
                continue
            # the gradient of a part is the sum over the processes, all of which read it
            total = grad.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=ctx.group)
            found.append(total[own])
        return None, *found


class _Averaged(torch.autograd.Function):
    """See `averaged`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.group = _group()
        ctx.world = world()
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total / ctx.world


def averaged(x: Tensor) -> Tensor:
    """Return x, whose gradient is the mean over the processes, as DistributedDataParallel gives it to parameters.

    Every process must use the result in a value that it differentiates.
    """
    if world() == 1:
        return x
    same: Tensor = _Averaged.apply(x)  # type: ignore[no-untyped-call]  # torch declares no types for apply
    return same


def part_of(sizes: Sequence[int]) -> slice:
    """Return the slice of this process's rows among those of all processes, given the number of rows of each."""
    first = sum(sizes[: rank()])
    return slice(first, first + sizes[rank()])


def gather(x: Tensor) -> Tensor:
    """Concatenate x, of one shape in all processes, in rank order; gradients flow back to the process of each row."""
    return gather_parts([x], [[len(x)] * world()])[0]


def gather_rows(x: Tensor) -> Tensor:
    """Concatenate x as `gather` does, of which each process may have another number of rows."""
    if world() == 1:
        return x
    return gather_parts([x], [numbers_of_rows(len(x), x.device)])[0]


def numbers_of_rows(number: int, device: torch.device) -> list[int]:
    """Return the numbers of rows of all processes, given that of this one; they travel by way of a device."""
    found: list[int] = gather_numbers(torch.tensor([number], device=device)).tolist()
    return found


def gather_parts(parts: Sequence[Tensor], sizes: Sequence[Sequence[int]]) -> Sequence[Tensor]:
    """Concatenate each of several tensors over processes in rank order, with gradients.

    Parameters
    ----------
    parts : sequence of tensors
        Tensors, each of which needs a gradient in all processes or in none.
    sizes : sequence of sequences of int
        Number of rows of each tensor in each process.
    """
    if world() == 1:
        return parts
    gathered: tuple[Tensor, ...] = _Gather.apply(sizes, *parts)  # type: ignore[no-untyped-call]  # torch declares no types for apply
    return gathered


def gather_numbers(x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
    """Concatenate x over processes in rank order, without gradient; without sizes, x has one shape in all."""
    if world() == 1:
        return x
    return _concatenated(x.detach(), sizes or [len(x)] * world())


def gather_to_first(x: Tensor, sizes: Sequence[int]) -> Tensor | None:
    """Concatenate x over processes in rank order in the first process; the others, which send theirs, get None."""
    if world() == 1:
        return x.detach()
    padded = x.new_zeros(max(sizes), *x.shape[1:])
    padded[: len(x)] = x.detach()
    parts = [torch.empty_like(padded) for _ in sizes] if rank() == 0 else None
    group = _group()
    dist.gather(padded, parts, dst=0 if group is None else dist.get_global_rank(group, 0), group=group)
    if parts is None:
        return None
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def of_first(x: Tensor) -> Tensor:
    """Return the value that the first process of the group passes."""
    if world() == 1:
        return x
    x = x.clone()
    group = _group()
    dist.broadcast(x, src=0 if group is None else dist.get_global_rank(group, 0), group=group)
    return x


def total(x: Tensor) -> Tensor:
    """Sum a value without gradient over processes."""
    if world() == 1:
        return x
    x = x.detach().clone()
    dist.all_reduce(x, group=_group())
    return x


def all_reduce_loss(share: Tensor) -> Tensor:
    """Return the loss from this process's share: its value is the sum of shares, its gradient that of world x share.

    DistributedDataParallel then averages the gradients of world x share, which gives the gradient of the sum.
    """
    if world() == 1:
        return share
    # forward: total(share); backward: the gradient of `scaled`, as the rest has none
    scaled = share * world()
    return scaled + (total(share) - scaled).detach()
