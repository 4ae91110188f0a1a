"""The exact gradient of a large batch through a large network, a chunk of items at a time.

A batch that does not fit into memory cannot be replaced by several smaller ones, because pairs across two of them would
be missing. But the gradient of its objective passes through the embeddings only, which are small:

    Z = f(X)                 chunk by chunk, without a graph
    G = dL(Z)/dZ             the objective once, on the whole batch
    dL/dw = sum_k G_k dZ_k/dw        chunk by chunk again, each with a graph that the next one does not keep

(Gao, Zhang, Han & Callan, 2021: GradCache.) The network runs twice, with the memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from . import distributed
from .precision import PreciseBuffers
from .rng import Generators, drawn_again, generators


def backward_in_chunks(
    network: Callable[[Any], Any],
    items: Any,
    objective: Callable[[Any], Tensor],
    *,
    chunk: int,
    backward: Callable[[Tensor], Any] = torch.Tensor.backward,
) -> Tensor:
    """Add the gradient of an objective of a whole batch to all parameters, with the graph of one chunk at a time.

    Parameters
    ----------
    network : callable
        Function that maps items to a tensor, or to a tuple of tensors, with a row for each item.
    items : tensor, or a tuple, list or mapping of tensors
        Items of the batch, one row of each tensor per item.
    objective : callable
        Function that maps the output of `network` for the whole batch to a scalar.
    chunk : int
        Number of items processed at a time, from 1 to the size of the batch.
    backward : callable
        Function that is called on the value instead of ``value.backward()``, such as ``accelerator.backward``.

    Returns
    -------
    Tensor
        Value of the objective, a scalar without a graph.

    Raises
    ------
    ValueError
        If `chunk` is below 1 or larger than the batch, or the tensors have different numbers of rows.
    TypeError
        If the network is wrapped in DistributedDataParallel, which would average the gradients of each chunk.

    Notes
    -----
    The result equals that of the whole batch if the network treats every item on its own. Both passes of a chunk draw
    the same numbers from PyTorch's generators, for example in dropout; for a given seed, these differ from the numbers
    of the whole batch. Batch normalization in training mode uses the statistics of each chunk, and its running
    statistics are updated in the second pass only.

    With several processes, pass the network that DistributedDataParallel wraps, and call `average_gradients` with all
    parameters afterwards.

    Examples
    --------
    >>> from nearfar import TripletLoss
    >>> network = torch.nn.Linear(16, 8)
    >>> loss = TripletLoss()
    >>> images = torch.randn(512, 16)
    >>> labels = torch.arange(512) // 4
    >>> value = backward_in_chunks(network, images, lambda z: loss(z, labels), chunk=64)
    >>> network.weight.grad.shape
    torch.Size([8, 16])
    """
    if isinstance(network, nn.parallel.DistributedDataParallel):
        advice = "pass its .module, then call average_gradients of all parameters"
        raise TypeError(f"network: DistributedDataParallel would average the gradients of each chunk; {advice}")
    # Z = f(X)
    spans = _spans(_rows(items), chunk)
    devices = _devices(network, items)
    starts: list[list[Generators]] = []
    found: list[tuple[Tensor, ...]] = []
    kind: Any = None
    with torch.no_grad(), _kept_buffers(network):
        for lo, hi in spans:
            part = _part(items, lo, hi)
            starts.append([generators(device) for device in devices])
            kind, tensors = _outputs(network(part), hi - lo)
            found.append(tensors)
    torch.clear_autocast_cache()  # weights that were cast without a graph would have none in the second pass
    whole = [torch.cat(parts) for parts in zip(*found, strict=True)]
    del found
    whole = [tensor.requires_grad_(tensor.is_floating_point()) for tensor in whole]
    # G = dL(Z) / dZ
    value = objective(kind(whole))
    backward(value)
    # dL/dw = sum_k G_k dZ_k/dw
    for (lo, hi), start in zip(spans, starts, strict=True):
        with ExitStack() as drawn:
            for state in start:
                drawn.enter_context(drawn_again(state))
            _, tensors = _outputs(network(_part(items, lo, hi)), hi - lo)
        pairs = [
            (tensor, total.grad[lo:hi].to(tensor.dtype))
            for tensor, total in zip(tensors, whole, strict=True)
            if total.grad is not None and tensor.requires_grad
        ]
        if pairs:
            torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])
    return value.detach()


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average the gradients over the processes that share a batch, as DistributedDataParallel does.

    A parameter that has no gradient in any process keeps none. If only some processes have one, the others count as 0.
    """
    world = distributed.world()
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    if world == 1 or not wanted:
        return
    has = torch.tensor([float(parameter.grad is not None) for parameter in wanted], device=wanted[0].device)
    somewhere = distributed.total(has).tolist()
    with torch.no_grad():
        for parameter, count in zip(wanted, somewhere, strict=True):
            if count:
                own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = distributed.total(own).div_(world)


def _spans(n: int, chunk: int) -> list[tuple[int, int]]:
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk: must be a whole number of items, at least 1, got {chunk!r}")
    if chunk > n:
        raise ValueError(f"chunk: {chunk} items at a time are more than the batch of {n}; take at most {n}")
    return [(lo, min(lo + chunk, n)) for lo in range(0, n, chunk)]


def _tensors(items: Any) -> list[Tensor]:
    """Return the tensors that items consist of."""
    if isinstance(items, Tensor):
        return [items]
    parts = items
    if isinstance(items, Mapping):
        parts = list(items.values())
    if isinstance(parts, Sequence) and parts and all(isinstance(part, Tensor) for part in parts):
        return list(parts)
    raise TypeError(f"items: expected a tensor, or a tuple, list or mapping of tensors, got {type(items).__name__}")


def _devices(network: object, items: Any) -> list[torch.device]:
    """Return the devices on which a network may draw random numbers: those of the items, and of its parameters.

    Items may be on the host, and the network may move them itself.
    """
    devices = {tensor.device for tensor in _tensors(items)}
    if isinstance(network, nn.Module):
        devices |= {parameter.device for parameter in network.parameters()}
    if torch.cuda.is_available():
        devices.add(torch.device("cuda", torch.cuda.current_device()))
    return sorted(devices, key=str)


def _rows(items: Any) -> int:
    sizes = [len(part) for part in _tensors(items)]
    if len(set(sizes)) > 1:
        raise ValueError(f"items: every tensor needs the same number of rows, got {sizes}")
    return sizes[0]


def _part(items: Any, lo: int, hi: int) -> Any:
    if isinstance(items, Tensor):
        return items[lo:hi]
    if isinstance(items, Mapping):
        return {name: part[lo:hi] for name, part in items.items()}
    parts = [part[lo:hi] for part in items]
    if hasattr(items, "_make"):  # a named tuple
        return type(items)._make(parts)
    return type(items)(parts)


def _outputs(found: Any, rows: int) -> tuple[Callable[[list[Tensor]], Any], tuple[Tensor, ...]]:
    """Return the tensors that a network returned, and a function that makes the same kind of output of tensors."""
    if isinstance(found, Tensor):
        tensors: tuple[Tensor, ...] = (found,)
        kind: Callable[[list[Tensor]], Any] = _only
    elif isinstance(found, tuple) and found and all(isinstance(part, Tensor) for part in found):
        tensors = found
        kind = getattr(type(found), "_make", tuple)
    else:
        raise TypeError(f"network: expected a tensor or a tuple of tensors from it, got {type(found).__name__}")
    for tensor in tensors:
        if not tensor.ndim or len(tensor) != rows:
            raise ValueError(f"network: expected a row for each of {rows} items, got shape {tuple(tensor.shape)}")
    return kind, tensors


def _only(tensors: list[Tensor]) -> Tensor:
    return tensors[0]


@contextmanager
def _kept_buffers(network: object) -> Iterator[None]:
    """Restore the buffers of a network at the end, so that running statistics do not count a batch twice.

    The buffers of terms, which may be large memories, do not change when items are embedded, and are left out.
    """
    modules = network.modules() if isinstance(network, nn.Module) else ()
    buffers = [buffer for m in modules if not isinstance(m, PreciseBuffers) for buffer in m.buffers(recurse=False)]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, kept in zip(buffers, before, strict=True):
            buffer.copy_(kept)
