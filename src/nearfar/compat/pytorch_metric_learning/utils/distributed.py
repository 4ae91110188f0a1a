"""Several processes: every loss here sees the batches of all, so the wrapper of losses only passes calls on."""

from __future__ import annotations

from typing import Any

from torch import nn

from ....deep import distributed


def is_distributed() -> bool:
    """Return whether there are several processes."""
    return distributed.world() > 1


class DistributedLossWrapper(nn.Module):
    """A loss under several processes, as it is without the wrapper.

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
        return self.loss(*args, **settings)


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
