"""Running averages of the weights, which often generalize better than the weights themselves.

w' <- w' + (1 - b) (w - w')        b = min(decay, (1 + t) / (10 + t)) after t steps, which soon forgets the start

The update is that of PyTorch. Its `AveragedModel` is not used, because it holds a second network including frozen
weights, and copies the objective with its memories and generators. Here, only averages of trained tensors are held,
which replace the weights during an evaluation and are saved as a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Averages:
    """Exponential averages of what is trained, and of the statistics of batch normalization.

    Parameters
    ----------
    embedder, objective : Module
        Parameters of both and floating-point buffers of the embedder are averaged; memories of the objective are not.
    decay : float or None
        None averages nothing.
    """

    def __init__(self, embedder: nn.Module, objective: nn.Module, decay: float | None) -> None:
        self.embedder = embedder
        self.objective = objective
        self.decay = decay
        self.values: list[Tensor] = []

    @property
    def weights(self) -> list[Tensor]:
        """Return the tensors that are averaged; modules may have replaced their buffers by other tensors."""
        if self.decay is None:
            return []
        parameters = [p for module in (self.embedder, self.objective) for p in module.parameters() if p.requires_grad]
        return [*parameters, *(buffer for buffer in self.embedder.buffers() if buffer.is_floating_point())]

    def begin(self) -> None:
        """Start from the current weights, on their device."""
        self.values = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self, steps: int) -> None:
        """Update the averages with the weights after a number of steps."""
        if self.decay is None or not self.values:
            return
        b = min(self.decay, (1 + steps) / (10 + steps))
        weights = [weight.detach() for weight in self.weights]
        get_ema_multi_avg_fn(b)(self.values, weights, steps)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the weights by the averages within the context."""
        own = [weight.detach().clone() for weight in self.weights]
        _copy(self.values, self.weights)
        try:
            yield
        finally:
            _copy(own, self.weights)

    def load(self, values: Sequence[Tensor]) -> None:
        """Continue from saved averages."""
        _copy(values, self.values)


@torch.no_grad()
def _copy(values: Sequence[Tensor], to: Sequence[Tensor]) -> None:
    for value, weight in zip(values, to, strict=True):
        weight.copy_(value)
