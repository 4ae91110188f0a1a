"""Buffers that keep their precision when a module is cast.

A count in bfloat16 stops at 256, because 256 + 1 rounds to 256, and a sum in half precision soon stops growing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Self = TypeVar("Self", bound="PreciseBuffers")


class PreciseBuffers(nn.Module):
    """A module whose buffers are never cast to half precision; only its parameters are.

    Buffers hold statistics, counts, memories and constants. Buffers of integers remain integers, and those of
    floating-point numbers remain in float32 or float64, even if the module is part of a larger one that is cast.

    Examples
    --------
    >>> class Seen(PreciseBuffers):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("count", torch.zeros(()))
    >>> nn.Sequential(Seen()).bfloat16()[0].count.dtype
    torch.float32
    """

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast or move: `to`, `half`, `cuda` and all others of the kind call this."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch declares no types for it
        for name, now in self._buffers.items():
            old = before[name]
            if old is None or now is None:
                continue
            dtype = kept(old.dtype, now.dtype)
            if now.dtype != dtype:
                self._buffers[name] = old.to(now.device, dtype)  # from the old values: `now` is rounded already
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        before = dict(self._buffers)
        super()._load_from_state_dict(*args)
        for name, now in self._buffers.items():  # ``load_state_dict(assign=True)`` takes the dtype of what was saved
            old = before[name]
            if old is not None and now is not None:
                self._buffers[name] = now.to(kept(old.dtype, now.dtype))


WITHOUT_FLOAT64 = frozenset({"mps"})
"""Devices that know no float64."""


def precise(device: torch.device) -> torch.dtype:
    """Return the dtype of long sums on a device: float64 where there is one."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def under_autocast(device: torch.device) -> bool:
    """Return whether autocast is on for a device; the device "meta", which only knows shapes, has none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Compute in the precision of the inputs inside the context."""
    if under_autocast(device):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def outside_inference_mode() -> Iterator[None]:
    """Compute without gradients inside the context, but with tensors that a later training step may use.

    What a term keeps of a batch, such as a memory, would otherwise be a tensor that PyTorch never differentiates with.
    """
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextmanager
def matmul_precision(level: str | None) -> Iterator[None]:
    """Let products of float32 matrices lose precision for speed inside the context; None changes nothing.

    `level` is "highest", "high" (TF32) or "medium" (bfloat16), as in `torch.set_float32_matmul_precision`.
    """
    before = torch.get_float32_matmul_precision()
    if level is not None:
        torch.set_float32_matmul_precision(level)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def kept(own: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    """Return the dtype of a buffer that has the dtype `own` and is to be cast to `wanted`."""
    if own.is_floating_point and wanted in (torch.float32, torch.float64):
        return wanted
    return own
