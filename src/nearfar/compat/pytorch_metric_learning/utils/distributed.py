"""Several processes: every loss here sees the batches of all, so the wrapper only passes calls on."""

from __future__ import annotations

from typing import Any

from torch import nn


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

    def forward(self, *args: Any, **settings: Any) -> Any:
        return self.loss(*args, **settings)
