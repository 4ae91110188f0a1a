"""Random transforms of the colors and the sharpness of images.

Each is a callable of (images, draw), where draw(low, high, *shape) returns uniform values on the images' device. Images
are floats in [0, 1]. If they do not have three channels, only brightness and contrast are changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional

from .geometry import Chance, Draw, NotNegative

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the brightness of a pixel (ITU-R BT.601)."""


@dataclass(frozen=True)
class Color:
    """Change brightness, contrast, saturation and hue, in this order.

    Parameters
    ----------
    brightness : float
        Maximum relative change b of the brightness: pixels are multiplied by a factor in [1 - b, 1 + b].
    contrast : float
        Maximum relative change of the contrast, the distance of pixels from the mean brightness of the image.
    saturation : float
        Maximum relative change of the saturation, the distance of pixels from their own gray.
    hue : float
        Maximum rotation of the colors in either direction, as a fraction of the full circle, at most 0.5.
    p : float
        Probability of the transform for each image.

    Notes
    -----
    Hue rotates the colors around the axis of grays, which preserves their saturation exactly and their brightness
    nearly; other libraries rotate them in HSV coordinates. The defaults are mild, for classes that differ in color. For
    two views of an image without labels, 0.4, 0.4, 0.4 and 0.1 are customary (Chen et al., 2020).
    """

    brightness: NotNegative = 0.2
    contrast: NotNegative = 0.2
    saturation: NotNegative = 0.2
    hue: Annotated[float, Meta(ge=0, le=0.5)] = 0.02
    p: Chance = 0.8

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n = len(images)
        light, contrast, saturation = (
            draw(-share, share, n, 1, 1, 1) + 1 for share in (self.brightness, self.contrast, self.saturation)
        )
        turn = draw(-self.hue, self.hue, n) * (2 * math.pi)
        chosen = draw(0, 1, n, 1, 1, 1) < self.p
        changed = (images * light.clamp(min=0)).clamp(0, 1)
        mean = _gray(changed).mean(dim=(1, 2, 3), keepdim=True)
        changed = (mean + contrast.clamp(min=0) * (changed - mean)).clamp(0, 1)
        if images.shape[1] == 3:
            gray = _gray(changed)
            changed = (gray + saturation.clamp(min=0) * (changed - gray)).clamp(0, 1)
            changed = torch.einsum("nij,njhw->nihw", _turned(turn).to(images.dtype), changed).clamp(0, 1)
        return torch.where(chosen, changed, images)


@dataclass(frozen=True)
class Gray:
    """Convert images to gray with probability `p`."""

    p: Chance = 0.2

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        return torch.where(draw(0, 1, len(images), 1, 1, 1) < self.p, _gray(images).expand_as(images), images)


@dataclass(frozen=True)
class Blur:
    """Blur images by a Gaussian.

    Parameters
    ----------
    sigma : (float, float)
        Minimum and maximum standard deviation in pixels.
    p : float
        Probability of the transform for each image.
    """

    sigma: tuple[NotNegative, NotNegative] = (0.1, 2.0)
    p: Chance = 0.5

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, channels, height, width = images.shape
        sigma = draw(*self.sigma, n).clamp(min=1e-3)
        chosen = draw(0, 1, n, 1, 1, 1) < self.p
        reach = math.ceil(3 * max(self.sigma))
        offset = torch.arange(-reach, reach + 1, device=images.device)
        weights = torch.softmax(-0.5 * (offset / sigma[:, None]) ** 2, dim=1).to(images.dtype)  # (n, 2 reach + 1)
        weights = weights.repeat_interleave(channels, dim=0)
        rows = functional.pad(images, [reach, reach, reach, reach], mode="replicate").flatten(0, 1)[None]
        rows = functional.conv2d(rows, weights[:, None, None, :], groups=n * channels)
        blurred = functional.conv2d(rows, weights[:, None, :, None], groups=n * channels)
        return torch.where(chosen, blurred.view(n, channels, height, width), images)


def _gray(images: Tensor) -> Tensor:
    """Return the (n, 1, H, W) brightness."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    return torch.einsum("nchw,c->nhw", images, images.new_tensor(LUMA))[:, None]


def _turned(angle: Tensor) -> Tensor:
    """Return (n, 3, 3) rotations by angles about the axis (1, 1, 1) of grays."""
    cos = torch.cos(angle)[:, None, None]
    sin = torch.sin(angle)[:, None, None] / math.sqrt(3)
    axis = angle.new_tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    return cos * torch.eye(3, device=angle.device) + sin * axis + (1 - cos) / 3
