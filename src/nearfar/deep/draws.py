"""Random columns of masked rows, without a list of the columns: inverse transform on running sums.

What is computed twice draws the same twice: `generators` notes where PyTorch's global generators are, `drawn_again`
goes back there for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states


class Generators(NamedTuple):
    """States of PyTorch's global generators: the host's, and those of the devices in use."""

    host: Tensor
    kind: str
    devices: list[int]
    states: list[Tensor]


def generators(like: Tensor) -> Generators:
    """Return the states of the generators that draws beside a tensor come from."""
    return Generators(torch.get_rng_state(), like.device.type, *get_device_states(like))


@contextmanager
def drawn_again(start: Generators) -> Iterator[None]:
    """Draw from a noted state on, and leave the generators as they were before."""
    with torch.random.fork_rng(start.devices, device_type=start.kind):
        torch.set_rng_state(start.host)
        set_device_states(start.devices, start.states, device_type=start.kind)
        yield


def rehearsal(mine: Any, like: Tensor) -> AbstractContextManager[None]:
    """Let a miner draw now what it draws in the next pass."""
    return nullcontext() if mine is None or torch.compiler.is_compiling() else drawn_again(generators(like))


def own_draws(generator: torch.Generator, training: bool) -> torch.Generator:
    """Return a term's own generator to draw from, or a copy: a validation pass does not move the draws of training."""
    return generator if training else torch.Generator().set_state(generator.get_state())


def draw(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Draw k columns of each row with replacement, with probability in proportion to the weights.

    Parameters
    ----------
    weights : (b, m) float tensor
        Not negative; 0 is never drawn.
    k : int
        Draws per row, from PyTorch's global generator.

    Returns
    -------
    (b, k) columns, and (b, k) whether there was something to draw.
    """
    b, m = weights.shape
    if not m:
        return weights.new_zeros(b, k, dtype=torch.int64), weights.new_zeros(b, k, dtype=torch.bool)
    upto = weights.double().cumsum(1)
    level = torch.rand(b, k, dtype=torch.float64, device=weights.device) * upto[:, -1:]
    columns = torch.searchsorted(upto, level, right=True).clamp_max(m - 1)
    return columns, weights.gather(1, columns) > 0
