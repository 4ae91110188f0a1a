"""Devices and processes of a run."""

from __future__ import annotations

import atexit
import os

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, DistributedType
from accelerate.state import AcceleratorState, GradientState

from ...deep import distributed
from ..config import TrainConfig

PLAIN = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.MULTI_XPU)
"""Distributed types in which each process has all parameters of the network."""


def make_accelerator(config: TrainConfig) -> Accelerator:
    """Return a new accelerator, because a process may train several times with different settings."""
    AcceleratorState._reset_state(reset_partial_state=distributed.world() == 1)
    GradientState._reset_state()
    alone = distributed.world() == 1
    on_cpu = trains_on_cpu(config)
    # a trunk that is frozen for some epochs has no gradients to wait for
    several = DistributedDataParallelKwargs(find_unused_parameters=config.freeze_epochs is not None)
    accelerator = Accelerator(mixed_precision=precision_of(config), cpu=on_cpu, kwargs_handlers=[several])
    if alone and distributed.world() > 1:
        atexit.register(distributed.leave)
    return accelerator


def precision_of(config: TrainConfig) -> str:
    """Return the precision of a config; "auto" is the fastest of the device that is as good as float32."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if _has_native_bf16(trains_on_cpu(config)) else "no"


def trains_on_cpu(config: TrainConfig) -> bool:
    """Return whether a config trains on the processor, though there may be an accelerator."""
    return config.device == "cpu" or _many_without_gpu()


def _has_native_bf16(on_cpu: bool) -> bool:
    """Return whether the device multiplies in bfloat16 faster than in float32.

    Among CPUs, these are the ones with AMX. CPUs with AVX-512 only may have instructions for bfloat16, but a network
    is slower with them than in float32.
    """
    if torch.cuda.is_available() and not on_cpu:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    has_amx = getattr(torch.cpu, "_is_amx_tile_supported", None)  # PyTorch 2.6 has no public function for this
    return has_amx is not None and bool(has_amx())


def _many_without_gpu() -> bool:
    """Return whether this is one of several processes on CPUs, which accelerate uses only if it is set to."""
    if "LOCAL_RANK" not in os.environ:
        return False
    return not (torch.cuda.is_available() or (hasattr(torch, "xpu") and torch.xpu.is_available()))
