"""Angles between unit vectors that are known by their cosines, moved or multiplied by a margin."""

from __future__ import annotations

from math import cos, pi, sin

import torch
from torch import Tensor

SMALLEST = 1e-20  # squared sine whose root has a finite slope


def check_margin(name: str, margin: float) -> None:
    """Raise unless a margin is an angle in radians; most likely it was given in degrees."""
    if not 0 <= margin <= 3.1416:
        raise ValueError(f"{name}: margin is in radians, from 0 to pi, got {margin}")


def sine(c: Tensor) -> Tensor:
    """Return sin theta from c = cos theta, theta in [0, pi]."""
    return torch.rsub(c.square(), 1).clamp_min(SMALLEST).sqrt()


def turned(c: Tensor, angle: float) -> Tensor:
    """Return cos(theta + angle) from c = cos theta, theta in [0, pi]."""
    # cos(theta + m) = cos theta cos m - sin theta sin m
    return torch.sub(c * cos(angle), sine(c), alpha=sin(angle))


def add_angle(c: Tensor, margin: float) -> Tensor:
    """Return cos(theta + margin) from c = cos theta, continued so that it falls over all of [0, pi]."""
    # beyond theta = pi - m, cos(theta + m) would rise again: cos theta, lowered by m sin m, continues it
    return torch.where(c >= -cos(margin), turned(c, margin), c - margin * sin(margin))


def multiplied(c: Tensor, times: int) -> Tensor:
    """Return cos(times theta) from c = cos theta, continued so that it falls over all of [0, pi].

    From k pi / times to (k + 1) pi / times it is (-1)^k cos(times theta) - 2 k.
    """
    before = torch.ones_like(c)
    value = c
    turns = torch.zeros_like(c)
    for k in range(1, times):
        # Chebyshev: cos((k + 1) theta) = 2 cos theta cos(k theta) - cos((k - 1) theta)
        before, value = value, 2 * c * value - before
        turns = turns + (c < cos(k * pi / times))
    return (1 - 2 * turns.remainder(2)) * value - 2 * turns
