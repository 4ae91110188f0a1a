"""Random changes to a batch of images: affine map, crop, mirror, colors, blur, erasing.

Plain tensor code on whole batches. All random numbers are drawn on the CPU, from the given generator or from torch's
global one. So restoring the state of that generator repeats the images on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor, nn

from ..expressions import Call, ExpressionError, Node, parse_list, settings_of, shown
from ..quoting import quoted
from .dataset import DataError, some
from .transforms.colors import Blur, Color, Gray
from .transforms.geometry import Affine, Crop, Draw, Erasing, Mirror, ResizedCrop

EXPECTED = "a list of changes such as affine(degrees=15), erasing"


class Augment(nn.Module):
    """Apply random transforms to batches of images in training mode; in evaluation mode, they are returned unchanged.

    Parameters
    ----------
    affine, resized_crop, crop, mirror, color, gray, blur, erasing : bool, dict or transform
        Transforms to apply, in this order: True for one with its default settings, a dict of settings, or an instance
        such as `Erasing(p=0.3)`.
    generator : torch.Generator, optional
        CPU generator of the random numbers. By default, the global one of torch.

    Raises
    ------
    DataError
        If a transform does not have a given setting.

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
        "color": Color,
        "gray": Gray,
        "blur": Blur,
        "erasing": Erasing,
    }

    def __init__(
        self,
        *,
        affine: bool | Mapping[str, Any] | Affine = False,
        resized_crop: bool | Mapping[str, Any] | ResizedCrop = False,
        crop: bool | Mapping[str, Any] | Crop = False,
        mirror: bool | Mapping[str, Any] | Mirror = False,
        color: bool | Mapping[str, Any] | Color = False,
        gray: bool | Mapping[str, Any] | Gray = False,
        blur: bool | Mapping[str, Any] | Blur = False,
        erasing: bool | Mapping[str, Any] | Erasing = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        given = (affine, resized_crop, crop, mirror, color, gray, blur, erasing)
        settings = dict(zip(self.PARTS, given, strict=True))
        self.parts: list[Callable[[Tensor, Draw], Tensor]] = [
            _part(name, value) for name, value in settings.items() if value is not False
        ]
        self.generator = generator

    @classmethod
    def parse(cls, text: str | Mapping[str, Any], generator: torch.Generator | None = None) -> Augment:
        """Build the transforms from text such as "affine(degrees=15), erasing", or from a dict of settings.

        The text is parsed, never evaluated. An empty text or dict gives no transform.
        """
        settings = _parse(text) if isinstance(text, str) else dict(text)
        unknown = [name for name in settings if name not in cls.PARTS]
        if unknown:
            raise DataError(
                f"augmentation: unknown transform {quoted(unknown[0])}; expected some of {', '.join(cls.PARTS)}"
            )
        return cls(**settings, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        """Transform images (b, C, H, W), floats in [0, 1]; geometric transforms accept any range."""
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


@lru_cache(maxsize=64)
def transforms_of(text: str) -> tuple[Callable[[Tensor, Draw], Tensor], ...]:
    """Return the transforms that a text names, in the order in which they are applied; each text is parsed once."""
    return tuple(Augment.parse(text).parts)


def _uniform(generator: torch.Generator | None, device: torch.device, low: float, high: float, *shape: int) -> Tensor:
    return (torch.rand(shape, generator=generator) * (high - low) + low).to(device)


def _part(name: str, value: Any) -> Any:
    kind = Augment.PARTS[name]
    if isinstance(value, kind):
        return value
    if value is True:
        return kind()
    if not isinstance(value, Mapping):
        raise DataError(f"augmentation: {name}={quoted(value)}; expected true, false or settings of {name}")
    known = [field.name for field in fields(kind)]
    unknown = [key for key in value if key not in known]
    if unknown:
        raise DataError(f"augmentation: {name} has no setting {quoted(unknown[0])}; it has {some(known, 9)}")
    try:
        part = msgspec.convert(dict(value), kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`").partition("[")[0]
        expected = text.partition(", got ")[0].replace("`array` of length 2", "two numbers")
        expected = expected.replace("`array`", "two numbers")
        raise DataError(f"augmentation: {name}: {key}: {expected}, got {quoted(value[key])}") from None
    for field in fields(kind):
        span = getattr(part, field.name)
        if isinstance(span, tuple) and span[0] > span[1]:
            raise DataError(f"augmentation: {name}: {field.name}: the second must not be below the first, got {span}")
    return part


def _parse(text: str) -> dict[str, Any]:
    """Read "name, name(key=literal)" into settings by name."""
    try:
        return dict(map(_entry, parse_list(text, EXPECTED)))
    except ExpressionError as error:
        raise DataError(f"augmentation: {error}") from error


def _entry(entry: Node) -> tuple[str, Any]:
    if not isinstance(entry, Call):
        raise ExpressionError(f"{shown(str(entry))} is not {EXPECTED}")
    return entry.name, settings_of(entry, {}, hands_on=True) or True


def to_float(images: Tensor) -> Tensor:
    """Bring uint8 images to float32 in [0, 1]; floats pass unchanged."""
    if images.is_floating_point():
        return images
    return images.to(torch.float32) / 255
