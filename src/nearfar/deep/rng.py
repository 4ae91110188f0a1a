"""Random columns of masked rows, without a list of the columns: inverse transform on running sums.

A block that is computed twice draws the same numbers twice: `generators` returns the states of PyTorch's global
generators, `drawn_again` sets them back for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Generators(NamedTuple):
    """States of PyTorch's global generators: the host's, and that of the device in use."""

    host: Tensor
    device: torch.device
    state: Tensor | None


def generators(like: Tensor) -> Generators:
    """Return the states of the generators that random numbers on a tensor's device come from."""
    return _noted(like.device)


@contextmanager
def drawn_again(start: Generators) -> Iterator[None]:
    """Draw from given states on, then set the generators back to where they were."""
    now = _noted(start.device)
    _put_back(start)
    try:
        yield
    finally:
        _put_back(now)


def _noted(device: torch.device) -> Generators:
    own = _module(device)
    state = None if own is None else own.get_rng_state(*_which(device))
    return Generators(torch.get_rng_state(), device, state)


def _put_back(start: Generators) -> None:
    torch.set_rng_state(start.host)
    own = _module(start.device)
    if own is not None:
        own.set_rng_state(start.state, *_which(start.device))


def _module(device: torch.device) -> Any:
    """Return PyTorch's module for a kind of device, or None if it has no generator of its own."""
    own = None if device.type == "cpu" else getattr(torch, device.type, None)
    return own if hasattr(own, "get_rng_state") else None


def _which(device: torch.device) -> tuple[torch.device, ...]:
    """Return the arguments that name a device of its kind; "mps" takes none, because there is only one."""
    return () if device.type == "mps" else (device,)


def rehearsal(mine: Any, like: Tensor) -> AbstractContextManager[None]:
    """Let a miner draw now the same numbers as in the next pass."""
    return nullcontext() if mine is None or torch.compiler.is_compiling() else drawn_again(generators(like))


def own_draws(generator: torch.Generator, training: bool) -> torch.Generator:
    """Return a term's own generator, or outside training a copy: a validation pass must not change training's draws."""
    return generator if training else torch.Generator().set_state(generator.get_state())


class SavedDraws:
    """A term that draws from a generator of its own, `_draws`, whose state goes on where a saved one stopped."""

    _draws: torch.Generator

    def get_extra_state(self) -> Tensor:
        """Return the generator's state, which `state_dict` saves."""
        return self._draws.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Set what `get_extra_state` returned."""
        self._draws.set_state(state.cpu())


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
