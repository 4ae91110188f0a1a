"""Random geometric transforms of whole batches of images, and erasing, for `nearfar.data.augment`.

Each is a callable of (images, draw), where draw(low, high, *shape) returns uniform values on the images' device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..dataset import DataError

TRIES = 10  # as in torchvision
Draw = Callable[..., Tensor]
"""draw(low, high, *shape) returns uniform values on the images' device."""

Chance = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Acute = Annotated[float, Meta(ge=0, lt=90)]  # degrees
AtLeastOne = Annotated[int, Meta(ge=1)]
PartOfArea = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True)
class Affine:
    """Rotate, shift, scale and shear images about their center, with bilinear sampling.

    Parameters
    ----------
    degrees : float
        Maximum rotation in degrees, in either direction.
    translate : float
        Maximum shift as a fraction of the side, in either direction.
    scale : (float, float)
        Minimum and maximum scale factor.
    shear : float
        Maximum shear along the rows in degrees, in either direction.
    fill : float
        Value of pixels from outside of the image.
    """

    degrees: NotNegative = 10.0
    translate: NotNegative = 0.1
    scale: tuple[Positive, Positive] = (0.9, 1.1)
    shear: Acute = 10.0
    fill: float = 0.0

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, _, height, width = images.shape
        angle = draw(-self.degrees, self.degrees, n) * (math.pi / 180)
        shear = torch.tan(draw(-self.shear, self.shear, n) * (math.pi / 180))
        zoom = 1 / draw(*self.scale, n)
        shift = draw(-2 * self.translate, 2 * self.translate, 2, n)
        cos = torch.cos(angle) * zoom
        sin = torch.sin(angle) * zoom
        aspect = height / width  # grid coordinates are relative to the sides, but a rotation is in pixels
        rows = [cos, (shear * cos - sin) * aspect, shift[0], sin / aspect, shear * sin + cos, shift[1]]
        return _sample(images, torch.stack(rows, dim=1).view(n, 2, 3), (height, width), self.fill)


@dataclass(frozen=True)
class ResizedCrop:
    """Crop a random rectangle and resize it to `size`, with bilinear sampling (no antialiasing).

    Parameters
    ----------
    size : int, optional
        Side of the result in pixels. By default, that of the input.
    area : (float, float)
        Minimum and maximum fraction of the area of the image.
    ratio : (float, float)
        Minimum and maximum aspect ratio (width over height), drawn on a logarithmic scale.
    whole : bool
        In training runs, crop from each original photograph when it is read, with antialiasing, as torchvision's
        RandomResizedCrop does, instead of from the square to which all images were resized.
    """

    size: AtLeastOne | None = None
    area: tuple[PartOfArea, PartOfArea] = (0.2, 1.0)
    ratio: tuple[Positive, Positive] = (3 / 4, 4 / 3)
    whole: bool = False

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, _, height, width = images.shape
        area = draw(*self.area, n)
        ratio = torch.exp(draw(math.log(self.ratio[0]), math.log(self.ratio[1]), n))
        wide = torch.sqrt(area * ratio * height / width).clamp(max=1)  # shares of the sides
        high = torch.sqrt(area / ratio * width / height).clamp(max=1)
        left = draw(-1, 1, n) * (1 - wide)
        top = draw(-1, 1, n) * (1 - high)
        none = torch.zeros_like(wide)
        rows = torch.stack([wide, none, left, none, high, top], dim=1).view(n, 2, 3)
        return _sample(images, rows, (self.size or height, self.size or width), 0.0)

    def cut(self, pixels: NDArray[np.uint8], size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return a random rectangle of one photograph (H, W, C), resized to (size, size, C)."""
        from PIL import Image

        height, width = pixels.shape[:2]
        left, top, wide, high = self.box(width, height, rng)
        piece = pixels[top : top + high, left : left + wide]
        image = Image.fromarray(piece[..., 0] if pixels.shape[2] == 1 else piece)
        resized = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
        return resized.reshape(size, size, pixels.shape[2])

    def box(self, width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Return left, top, width and height of a random rectangle in pixels.

        Area and ratio are drawn until the rectangle fits, at most ten times. If none fits, the result is the largest
        central rectangle with an allowed ratio.
        """
        for _ in range(TRIES):
            area = rng.uniform(*self.area) * width * height
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            wide = round(math.sqrt(area * ratio))
            high = round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < high <= height:
                left = int(rng.integers(width - wide + 1))
                top = int(rng.integers(height - high + 1))
                return left, top, wide, high
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        wide = min(width, max(1, round(height * ratio)))
        high = min(height, max(1, round(width / ratio)))
        return (width - wide) // 2, (height - high) // 2, wide, high


@dataclass(frozen=True)
class Crop:
    """Crop a square at a random position, after padding.

    Parameters
    ----------
    size : int, optional
        Side of the result in pixels. By default, that of the input.
    padding : int, optional
        Number of pixels to add on every side first. By default, an eighth of the side if `size` is not given either,
        else 0.
    fill : float
        Value of the padding.
    """

    size: AtLeastOne | None = None
    padding: Annotated[int, Meta(ge=0)] | None = None
    fill: float = 0.0

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, channels, height, width = images.shape
        padding = self.padding
        if padding is None:
            padding = 0 if self.size else min(height, width) // 8
        high = self.size or height
        wide = self.size or width
        padded = functional.pad(images, [padding] * 4, value=self.fill)
        spare = (padded.shape[2] - high, padded.shape[3] - wide)
        if min(spare) < 0:
            raise DataError(
                f"crop: size {self.size} is larger than the padded {padded.shape[2]}x{padded.shape[3]} images"
            )
        top, left = ((draw(0, s + 1, n).long().clamp(max=s))[:, None] for s in spare)
        rows = top + torch.arange(high, device=images.device)
        columns = left + torch.arange(wide, device=images.device)
        item = torch.arange(n, device=images.device)[:, None, None, None]
        channel = torch.arange(channels, device=images.device)[:, None, None]
        return padded[item, channel, rows[:, None, :, None], columns[:, None, None, :]]


@dataclass(frozen=True)
class Mirror:
    """Flip images horizontally with probability `p`."""

    p: Chance = 0.5

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        return torch.where(draw(0, 1, len(images), 1, 1, 1) < self.p, images.flip(3), images)


@dataclass(frozen=True)
class Erasing:
    """Fill a random rectangle.

    Parameters
    ----------
    p : float
        Probability of the transform for each image.
    area : (float, float)
        Minimum and maximum fraction of the area of the image.
    aspect : (float, float)
        Minimum and maximum aspect ratio (height over width).
    fill : float
        Value of the rectangle.

    Notes
    -----
    Zhong, Zheng, Kang, Li & Yang, "Random erasing data augmentation", AAAI 2020. The paper draws again if a rectangle
    does not fit; here its longer side is cropped. The paper fills with random values, here with one value.
    """

    p: Chance = 0.5
    area: tuple[PartOfArea, PartOfArea] = (0.02, 0.4)
    aspect: tuple[Positive, Positive] = (0.3, 1 / 0.3)
    fill: float = 0.0

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, _, height, width = images.shape
        pixels = draw(*self.area, n) * (height * width)
        aspect = draw(*self.aspect, n)
        high = torch.sqrt(pixels * aspect).round().clamp(1, height)
        wide = torch.sqrt(pixels / aspect).round().clamp(1, width)
        top = (draw(0, 1, n) * (height - high)).round()
        left = (draw(0, 1, n) * (width - wide)).round()
        inside = _between(top, high, height)[:, None, :, None] & _between(left, wide, width)[:, None, None, :]
        chosen = draw(0, 1, n, 1, 1, 1) < self.p
        return torch.where(inside & chosen, images.new_tensor(self.fill), images)


def _between(start: Tensor, length: Tensor, side: int) -> Tensor:
    position = torch.arange(side, device=start.device)
    return (position >= start[:, None]) & (position < (start + length)[:, None])  # (n, side)


def _sample(images: Tensor, rows: Tensor, size: tuple[int, int], fill: float) -> Tensor:
    """Return bilinear values at affinely mapped positions; `rows` (n, 2, 3) maps result to image, both in [-1, 1]."""
    shape = [len(images), images.shape[1], *size]
    grid = functional.affine_grid(rows.to(images.dtype), shape, align_corners=False)
    return functional.grid_sample(images - fill, grid, mode="bilinear", align_corners=False) + fill
