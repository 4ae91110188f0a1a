"""Formats of images: the endings of their files, and how Pillow opens them."""

from __future__ import annotations

import io
from functools import cache
from importlib.util import find_spec
from typing import Any

SUFFIXES = (
    *(
        ".apng",
        ".bmp",
        ".dds",
        ".dib",
        ".gif",
        ".j2k",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpf",
        ".jpg",
        ".jpx",
        ".mpo",
    ),
    *(".pbm", ".pcx", ".pgm", ".png", ".pnm", ".ppm", ".psd", ".qoi", ".ras", ".sgi", ".tga", ".tif", ".tiff", ".webp"),
)
"""Endings of the images that every Pillow opens."""
HEIF = (".heic", ".heif", ".hif")
"""Endings of images that Pillow opens with pillow-heif."""
AVIF = (".avif", ".avifs")
"""Endings of images that Pillow opens since 11.3, or with pillow-heif."""
KNOWN = (*SUFFIXES, *HEIF, *AVIF)
EXPECTED = ".jpg, .png, .webp, .tif or another format that Pillow opens"
FORMATS = (
    *("JPEG", "PNG", "PPM", "GIF", "BMP", "WEBP", "TIFF", "DIB", "JPEG2000", "TGA", "PCX", "SGI", "SUN", "DDS"),
    *("PSD", "QOI"),
)
"""Formats of Pillow by which a file is read, whatever its ending. Others, such as EPS, would start other programs."""


@cache
def suffixes() -> tuple[str, ...]:
    """Return the endings of the images that can be read here, in lower case."""
    found: tuple[str, ...] = SUFFIXES
    if _has_heif():
        found += HEIF
    if _has_heif() or _has_avif():
        found += AVIF
    return found


def advice_on(ending: str) -> str:
    """Return how images of an ending could be read; "" if they are read already, or not at all."""
    if ending in suffixes():
        return ""
    if ending in HEIF:
        return "pip install pillow-heif reads them"
    if ending in AVIF:
        return "pip install 'pillow>=11.3' reads them"
    return ""


def open_image(data: bytes) -> Any:
    """Open an image with Pillow, decoding only its header; any exception means that the data are damaged."""
    from PIL import Image

    return Image.open(io.BytesIO(data), formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    found: tuple[str, ...] = FORMATS
    if _has_avif():
        found += ("AVIF",)
    if _has_heif():
        from pillow_heif import register_heif_opener

        register_heif_opener()
        found += ("HEIF",)
    return found


@cache
def _has_heif() -> bool:
    return find_spec("pillow_heif") is not None


@cache
def _has_avif() -> bool:
    from PIL import features

    return bool(features.check("avif")) if "avif" in features.modules else False
