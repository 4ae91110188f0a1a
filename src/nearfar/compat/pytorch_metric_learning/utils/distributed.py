"""Several processes: every loss here sees the batches of all; the wrapper keeps its parameters alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....deep import distributed


def is_distributed() -> bool:
    """Return whether there are several processes."""
    return distributed.world() > 1


class DistributedLossWrapper(nn.Module):
    """A loss under several processes, whose parameters, such as class weights, get the same gradient in all of them.

    A process computes its share of the loss. Without the wrapper, the gradients of the shares are averaged only if the
    network and the loss are one module in DistributedDataParallel.

    Parameters
    ----------
    loss : Module
        A loss of this library; it gathers the batches of all processes itself.
    efficient : bool
        Taken and ignored: each process compares its own samples with those of all, and the gradient is the whole one.
    """

    def __init__(self, loss: nn.Module, efficient: bool = False) -> None:
        super().__init__()
        self.loss = loss
        self.efficient = efficient

    def forward(self, *args: Any, **settings: Any) -> Any:
        parameters = {name: part for name, part in self.loss.named_parameters() if part.requires_grad}
        if not is_distributed() or not parameters:
            return self.loss(*args, **settings)
        shared = {name: distributed.averaged(part) for name, part in parameters.items()}
        value = functional_call(self.loss, shared, args, settings)
        if isinstance(value, Tensor):  # even of a process without samples, since the others wait for its gradient
            value = value + 0 * torch.stack([part.sum() for part in shared.values()]).sum()
        return value


class DistributedMinerWrapper(nn.Module):
    """A miner on one process; with several, a loss of nearfar with a miner mines in the batch of all.

    Parameters
    ----------
    miner : Module
    efficient : bool
        Taken and ignored.
    """

    def __init__(self, miner: nn.Module, efficient: bool = False) -> None:
        super().__init__()
        self.miner = miner
        self.efficient = efficient

    def forward(self, *args: Any, **settings: Any) -> Any:
        if is_distributed():
            detail = "indices of the batch of all processes are not here; nearfar's losses take miner= and mine in it"
            raise NotImplementedError(f"DistributedMinerWrapper: {detail}")
        return self.miner(*args, **settings)
