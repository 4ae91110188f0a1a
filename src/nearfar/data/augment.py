"""Random changes to a batch of images: affine map, crop, mirror, erasing.

Plain tensor code on whole batches. Every random number is drawn on the CPU, from the generator that was given or
else from torch's global one, so that restoring that generator's state repeats the images, on any device.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from .dataset import DataError, some

Draw = Callable[..., Tensor]
"""draw(low, high, *shape): uniform values on the images' device."""
Span = tuple[float, float]


@dataclass(frozen=True)
class Affine:
    """Rotate, shift, scale and shear about the centre, with bilinear sampling.

    Parameters
    ----------
    degrees : float
        Greatest rotation, either way.
    translate : float
        Greatest shift as a share of the side, either way.
    scale : (float, float)
        Least and greatest enlargement.
    shear : float
        Greatest shear along the rows in degrees, either way.
    fill : float
        Value of what comes from outside.
    """

    degrees: float = 10.0
    translate: float = 0.1
    scale: Span = (0.9, 1.1)
    shear: float = 10.0
    fill: float = 0.0

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, _, height, width = images.shape
        angle = draw(-self.degrees, self.degrees, n) * (math.pi / 180)
        shear = torch.tan(draw(-self.shear, self.shear, n) * (math.pi / 180))
        zoom = 1 / draw(*self.scale, n)
        shift = draw(-2 * self.translate, 2 * self.translate, 2, n)
        cos, sin = torch.cos(angle) * zoom, torch.sin(angle) * zoom
        aspect = height / width  # grid coordinates are shares of the sides, a rotation is in pixels
        rows = [cos, (shear * cos - sin) * aspect, shift[0], sin / aspect, shear * sin + cos, shift[1]]
        return _sample(images, torch.stack(rows, dim=1).view(n, 2, 3), (height, width), self.fill)


@dataclass(frozen=True)
class ResizedCrop:
    """Cut a random rectangle and bring it to `size`, with bilinear sampling (no antialiasing).

    Parameters
    ----------
    size : int, optional
        Side of the result; that of the input where not given.
    area : (float, float)
        Least and greatest share of the image's area.
    ratio : (float, float)
        Least and greatest width over height, drawn on a logarithmic scale.
    """

    size: int | None = None
    area: Span = (0.2, 1.0)
    ratio: Span = (3 / 4, 4 / 3)

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, _, height, width = images.shape
        area = draw(*self.area, n)
        ratio = torch.exp(draw(math.log(self.ratio[0]), math.log(self.ratio[1]), n))
        wide = torch.sqrt(area * ratio * height / width).clamp(max=1)  # shares of the sides
        high = torch.sqrt(area / ratio * width / height).clamp(max=1)
        left, top = draw(-1, 1, n) * (1 - wide), draw(-1, 1, n) * (1 - high)
        none = torch.zeros_like(wide)
        rows = torch.stack([wide, none, left, none, high, top], dim=1).view(n, 2, 3)
        return _sample(images, rows, (self.size or height, self.size or width), 0.0)


@dataclass(frozen=True)
class Crop:
    """Cut a square at a random place, after padding.

    Parameters
    ----------
    size : int, optional
        Side of the result; that of the input where not given.
    padding : int, optional
        Pixels added on every side before; an eighth of the side where neither is given, else 0.
    fill : float
        Value of the padding.
    """

    size: int | None = None
    padding: int | None = None
    fill: float = 0.0

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, channels, height, width = images.shape
        padding = self.padding
        if padding is None:
            padding = 0 if self.size else min(height, width) // 8
        high, wide = self.size or height, self.size or width
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
    """Swap left and right with probability `p`."""

    p: float = 0.5

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        return torch.where(draw(0, 1, len(images), 1, 1, 1) < self.p, images.flip(3), images)


@dataclass(frozen=True)
class Erasing:
    """Fill a random rectangle (Zhong et al., 2020).

    Parameters
    ----------
    p : float
        Probability for every image.
    area : (float, float)
        Least and greatest share of the image's area.
    aspect : (float, float)
        Least and greatest height over width.
    fill : float
        Value of the rectangle.

    Notes
    -----
    The paper draws again when a rectangle does not fit, here its longer side is cut; the paper fills with random
    values, here with one value.
    """

    p: float = 0.5
    area: Span = (0.02, 0.4)
    aspect: Span = (0.3, 1 / 0.3)
    fill: float = 0.0

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        n, _, height, width = images.shape
        pixels = draw(*self.area, n) * (height * width)
        aspect = draw(*self.aspect, n)
        high = torch.sqrt(pixels * aspect).round().clamp(1, height)
        wide = torch.sqrt(pixels / aspect).round().clamp(1, width)
        top, left = (draw(0, 1, n) * (height - high)).round(), (draw(0, 1, n) * (width - wide)).round()
        inside = _between(top, high, height)[:, None, :, None] & _between(left, wide, width)[:, None, None, :]
        chosen = draw(0, 1, n, 1, 1, 1) < self.p
        return torch.where(inside & chosen, images.new_tensor(self.fill), images)


def _between(start: Tensor, length: Tensor, side: int) -> Tensor:
    position = torch.arange(side, device=start.device)
    return (position >= start[:, None]) & (position < (start + length)[:, None])  # (n, side)


def _sample(images: Tensor, rows: Tensor, size: tuple[int, int], fill: float) -> Tensor:
    """Bilinear values at affinely mapped positions; `rows` (n, 2, 3) maps result to image, both in [-1, 1]."""
    shape = [len(images), images.shape[1], *size]
    grid = functional.affine_grid(rows.to(images.dtype), shape, align_corners=False)
    return functional.grid_sample(images - fill, grid, mode="bilinear", align_corners=False) + fill


Part = Affine | ResizedCrop | Crop | Mirror | Erasing


class Augment(nn.Module):
    """Change a batch of images at random while training; in evaluation they pass unchanged.

    Parameters
    ----------
    affine, resized_crop, crop, mirror, erasing : bool, dict or part
        Which parts to apply, in this order: True for the defaults, a dict of settings, or a part such as
        `Erasing(p=0.3)`.
    generator : torch.Generator, optional
        A CPU generator to draw from; torch's global one where not given.

    Raises
    ------
    DataError
        For settings that a part does not have.

    Examples
    --------
    >>> import torch
    >>> augment = Augment(mirror=True, erasing={"p": 1.0})
    >>> augment(torch.ones(4, 1, 28, 28)).shape
    torch.Size([4, 1, 28, 28])
    """

    PARTS: ClassVar[dict[str, type[Any]]] = {
        "affine": Affine,
        "resized_crop": ResizedCrop,
        "crop": Crop,
        "mirror": Mirror,
        "erasing": Erasing,
    }

    def __init__(
        self,
        *,
        affine: bool | Mapping[str, Any] | Affine = False,
        resized_crop: bool | Mapping[str, Any] | ResizedCrop = False,
        crop: bool | Mapping[str, Any] | Crop = False,
        mirror: bool | Mapping[str, Any] | Mirror = False,
        erasing: bool | Mapping[str, Any] | Erasing = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        given = (affine, resized_crop, crop, mirror, erasing)
        settings = dict(zip(self.PARTS, given, strict=True))
        self.parts: list[Part] = [_part(name, value) for name, value in settings.items() if value is not False]
        self.generator = generator

    @classmethod
    def parse(cls, text: str | Mapping[str, Any], generator: torch.Generator | None = None) -> Augment:
        """Read the parts from text such as "affine(degrees=15), erasing", or from a dict of settings.

        The text is parsed, never evaluated. An empty text or dict changes nothing.
        """
        settings = _parse(text) if isinstance(text, str) else dict(text)
        unknown = [name for name in settings if name not in cls.PARTS]
        if unknown:
            raise DataError(f"augmentation: unknown part {unknown[0]!r}; expected some of {', '.join(cls.PARTS)}")
        return cls(**settings, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        """Change images (b, C, H, W), floats of any range."""
        if images.ndim != 4 or not images.is_floating_point():
            raise DataError(f"augmentation: expected (b, C, H, W) floats, got {tuple(images.shape)} {images.dtype}")
        if self.training:
            draw = partial(_uniform, self.generator, images.device)
            for part in self.parts:
                images = part(images, draw)
        return images

    def extra_repr(self) -> str:
        """List the parts and their settings."""
        return ", ".join(map(str, self.parts))


def _uniform(generator: torch.Generator | None, device: torch.device, low: float, high: float, *shape: int) -> Tensor:
    return (torch.rand(shape, generator=generator) * (high - low) + low).to(device)


def _part(name: str, value: Any) -> Any:
    kind = Augment.PARTS[name]
    if isinstance(value, kind):
        return value
    if value is True:
        return kind()
    if not isinstance(value, Mapping):
        raise DataError(f"augmentation: {name}={value!r}; expected true, false or settings of {name}")
    known = [field.name for field in fields(kind)]
    unknown = [key for key in value if key not in known]
    if unknown:
        raise DataError(f"augmentation: {name} has no setting {unknown[0]!r}; it has {some(known, 9)}")
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in value.items()})


def _parse(text: str) -> dict[str, Any]:
    """Read "name, name(key=literal)" into settings by name."""
    try:
        tree = ast.parse(f"[{text}]", mode="eval").body
    except SyntaxError:
        raise DataError(f"augmentation: cannot read {text!r}; expected such as affine(degrees=15), erasing") from None
    return dict(_entry(entry) for entry in tree.elts) if isinstance(tree, ast.List) else {}


def _entry(entry: ast.expr) -> tuple[str, Any]:
    if isinstance(entry, ast.Name):
        return entry.id, True
    if isinstance(entry, ast.Call) and isinstance(entry.func, ast.Name) and not entry.args:
        return entry.func.id, {str(k.arg): _literal(k) for k in entry.keywords} or True
    raise DataError(f"augmentation: cannot read {ast.unparse(entry)!r}; expected a name or name(setting=value)")


def _literal(keyword: ast.keyword) -> Any:
    try:
        return ast.literal_eval(keyword.value)
    except ValueError:
        raise DataError(f"augmentation: {ast.unparse(keyword)!r} is not a plain number, tuple or name=value") from None


def to_float(images: Tensor) -> Tensor:
    """Bring uint8 images to float32 in [0, 1]; floats pass unchanged."""
    return images if images.is_floating_point() else images.to(torch.float32) / 255
