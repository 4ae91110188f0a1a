"""Random columns of masked rows, without a list of the columns: inverse transform on running sums.

The draws of this library's miners depend only on a seed, the number of the anchor in the global batch, and what is
drawn, so that blocks, processes and a second pass do not change them. The seed comes from PyTorch's global generator.

A user's own miner may draw from that generator itself. A block that is computed twice then draws the same numbers
twice: `generators` returns the states of PyTorch's global generators, and `drawn_again` restores them temporarily.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import distributed
from .precision import precise

# Constants of SplitMix64 (Steele, Lea & Flood, 2014), as signed numbers
SPLITMIX_STEP = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
SECOND_FACTOR = 0x94D049BB133111EB - 2**64


class Generators(NamedTuple):
    """States of PyTorch's global generators: the host's, and that of the device in use."""

    host: Tensor
    device: torch.device
    state: Tensor | None


@contextmanager
def drawn_again(start: Generators) -> Iterator[None]:
    """Set the generators to given states inside the context, and restore their present states at the end."""
    now = generators(start.device)
    _put_back(start)
    try:
        yield
    finally:
        _put_back(now)


def generators(device: torch.device) -> Generators:
    """Return the states of the generators that random numbers on a device come from."""
    own = _module(device)
    state = None
    if own is not None:
        state = own.get_rng_state(*_which(device))
    return Generators(torch.get_rng_state(), device, state)


def _put_back(start: Generators) -> None:
    torch.set_rng_state(start.host)
    own = _module(start.device)
    if own is not None:
        own.set_rng_state(start.state, *_which(start.device))


def _module(device: torch.device) -> Any:
    """Return PyTorch's module for a kind of device, such as torch.cuda, or None if it has no generator."""
    if device.type == "cpu":  # its generator is torch's own, which is always saved
        return None
    module = getattr(torch, device.type, None)
    return module if hasattr(module, "get_rng_state") else None


def _which(device: torch.device) -> tuple[torch.device, ...]:
    """Return the arguments that select a device among those of its type; for "mps" there are none."""
    return () if device.type == "mps" else (device,)


def preserve_rng(miner: Any, like: Tensor) -> AbstractContextManager[None]:
    """Restore the generators at the end, so that a miner draws the same numbers in the next pass."""
    if miner is None or torch.compiler.is_compiling():
        return nullcontext()
    return drawn_again(generators(like.device))


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """Return numbers that were drawn on the host on a device; a GPU takes them in turn, and the host does not wait.

    They are drawn on the host so that they do not depend on the device.
    """
    if device.type != "cuda":
        return drawn.to(device)
    return drawn.pin_memory().to(device, non_blocking=True)


def own_draws(generator: torch.Generator, training: bool) -> torch.Generator:
    """Return a term's own generator, or outside training a copy: a validation pass must not change training's draws."""
    if training:
        return generator
    return torch.Generator().set_state(generator.get_state())


class SavedDraws:
    """A term that draws from its own generator, `_draws`, whose state is saved and restored with the term."""

    _draws: torch.Generator

    def get_extra_state(self) -> Tensor:
        """Return the generator's state, which `state_dict` saves."""
        return self._draws.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Set what `get_extra_state` returned."""
        self._draws.set_state(state.cpu())


def fresh_seed(miner: Any, like: Tensor) -> Tensor | None:
    """Return a new seed, (), for a miner that draws, the same in all processes; None for one that does not."""
    if not getattr(miner, "draws", False):
        return None
    seed = torch.randint(2**62, ())
    if distributed.world() == 1:
        return seed
    return distributed.of_first(seed.to(like.device))


def uniform(seed: Tensor, anchors: Tensor, numbers: Tensor, stream: int = 0) -> Tensor:
    """Return uniform random numbers in [0, 1), a function of the seed, the anchor, and what is drawn.

    Parameters
    ----------
    seed : () integer
        Seed of the call, from `fresh_seed`.
    anchors : (b,) integers
        Numbers of the anchors in the global batch.
    numbers : (k,) or (b, k) integers
        What is drawn, such as the number of the draw, or the column of the positive that it is for.
    stream : int
        Number that distinguishes draws of several kinds.

    Returns
    -------
    (b, k) tensor
        Random numbers in float64, or in float32 on a device that supports no other.
    """
    key = _mixed(seed + stream + SPLITMIX_STEP * (anchors + 1))
    bits = _mixed(key[:, None] + SPLITMIX_STEP * (numbers + 1))
    if precise(bits.device) == torch.float32:
        return _shifted(bits, 40).float() * 2.0**-24
    return _shifted(bits, 11).double() * 2.0**-53


def _mixed(bits: Tensor) -> Tensor:
    """Return the finalizer of SplitMix64 of int64 numbers, whose products wrap around."""
    bits = (bits ^ _shifted(bits, 30)) * FIRST_FACTOR
    bits = (bits ^ _shifted(bits, 27)) * SECOND_FACTOR
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shift int64 numbers to the right and fill with zeros, not with the sign."""
    return (bits >> places) & (2 ** (64 - places) - 1)


def draw(weights: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Draw columns of each row with replacement, with probabilities proportional to the weights.

    Parameters
    ----------
    weights : (b, m) float tensor
        Weights, at least 0. A column of weight 0 is never drawn.
    level : (b, k) tensor
        Uniform random numbers in [0, 1), one per draw.

    Returns
    -------
    tuple of Tensor
        (b, k) columns, and (b, k) whether there was a column to draw.
    """
    if not weights.shape[1]:
        return torch.zeros_like(level, dtype=torch.int64), torch.zeros_like(level, dtype=torch.bool)
    # inverse transform: the first column whose running sum exceeds level times the total
    upto = weights.to(level.dtype).cumsum(1)
    columns = torch.searchsorted(upto, level * upto[:, -1:], right=True).clamp_max(weights.shape[1] - 1)
    return columns, weights.gather(1, columns) > 0
