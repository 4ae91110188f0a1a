"""Normalization of images to the units that a trunk was trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..precision import PreciseBuffers
from .standardize import HALF


class Normalize(PreciseBuffers):
    """Normalize images channel by channel: y = (x - mean) / std for images (n, C, H, W) in [0, 1].

    Parameters
    ----------
    mean, std : sequence of float
        Mean and standard deviation of each channel.

    Examples
    --------
    >>> Normalize([0.5], [0.25])(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return the images in these units."""
        units = (images - self.mean) / self.std
        return units.to(images.dtype) if images.dtype in HALF else units
