"""Decode images with Pillow, and put those that are small enough into memory."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import counted
from .dataset import ArrayReader, DataError, Dataset, Source, number_labels
from .readers.files import Files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LOOKED_AT = 32  # images of a set that tell whether all are gray
GRAY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
SIXTEEN = ("PNG", "PPM")
"""Formats without 32-bit pixels: what Pillow opens in them as such is 16-bit gray."""
MEMORY = 2**26
"""Sets whose decoded images take at most this many bytes are kept in memory."""

Box = tuple[int, int, int, int]


class BadImageError(DataError):
    """An image that cannot be read or decoded; the message names it."""


def decode(data: bytes, name: str, *, channels: int = 3, box: Box | None = None) -> NDArray[np.uint8]:
    """Decode one image.

    Parameters
    ----------
    data : bytes
        The file's content.
    name : str
        What an error calls it.
    channels : {1, 3}
        1 gives gray values, 3 gives RGB. Transparent pixels become white.
    box : tuple of int, optional
        Left, top, right, bottom in pixels of the upright image; what lies outside of the image is cut off.

    Returns
    -------
    ndarray of uint8, shape (H, W, channels)
        Turned upright as its EXIF orientation says.

    Raises
    ------
    BadImageError
        Where the file is corrupt or truncated, its pixels are of 32 bits, or the box lies outside of the image.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data)) as opened:
            image = ImageOps.exif_transpose(opened)
            sixteen = image.mode.startswith("I;16") or (image.mode == "I" and opened.format in SIXTEEN)
            image = _flatten(_eight_bits(image) if sixteen else image, "L" if channels == 1 else "RGB")
    except Exception as error:  # decoders raise nearly anything on a corrupt file
        raise BadImageError(f"{name}: cannot be decoded ({_reason(error)})") from error
    pixels = np.asarray(image, dtype=np.uint8)
    if box is not None:
        pixels = _crop(pixels, box, name)
    return pixels.reshape(*pixels.shape[:2], channels)


def _flatten(image: Any, mode: str) -> Any:
    """Convert to `mode`, with transparent pixels on white."""
    from PIL import Image

    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels, whose values of black and white are unknown; save it with 8 or 16 bits")
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _eight_bits(image: Any) -> Any:
    """Scale 16-bit grays."""
    from PIL import Image

    return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))


def _crop(pixels: NDArray[np.uint8], box: Box, name: str) -> NDArray[np.uint8]:
    left, top, right, bottom = (max(0, int(side)) for side in box)
    cut = pixels[top:bottom, left:right]
    if cut.size == 0:
        height, width = pixels.shape[:2]
        raise BadImageError(f"{name}: the crop box {tuple(box)} holds no pixel of the {width}x{height} image")
    return cut


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if text.startswith("cannot identify image file"):
        return "not an image"
    return text


def fit(pixels: NDArray[np.uint8], resize: int, size: int | None = None) -> NDArray[np.uint8]:
    """Resize the shorter side to `resize` (bilinear, antialiased) and cut the central `size` x `size`.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, C)
        C is 1 or 3.
    resize : int
        Length of the shorter side, in pixels.
    size : int, optional
        Side of the square; `resize` where it is not given.
    """
    from PIL import Image

    size = size or resize
    height, width = pixels.shape[:2]
    scale = resize / min(height, width)
    target = (max(size, round(width * scale)), max(size, round(height * scale)))
    if (width, height) != target:
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        pixels = np.asarray(image.resize(target, Image.Resampling.BILINEAR)).reshape(target[1], target[0], -1)
    top = (target[1] - size) // 2
    left = (target[0] - size) // 2
    return pixels[top : top + size, left : left + size]


@dataclass(frozen=True, eq=False)
class ImageReader:
    """Item i decoded from a file of a folder or zip, cropped to its box, made square where `size` is set."""

    files: Files
    paths: Sequence[str]
    channels: int = 3
    boxes: Sequence[Box | None] | None = None
    size: int | None = None
    invert: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The paths, with their boxes where several are cut from one image."""
        if self.boxes is None:
            return tuple(self.paths)
        times = Counter(self.paths)
        cut = zip(self.paths, self.boxes, strict=True)
        return tuple(path if box is None or times[path] == 1 else f"{path} {tuple(box)}" for path, box in cut)

    def __call__(self, i: int) -> NDArray[np.uint8]:
        name = (Path(self.files.root) / self.paths[i]).as_posix()
        box = None if self.boxes is None else self.boxes[i]
        try:
            data = self.files.read(self.paths[i])
        except DataError as error:
            raise BadImageError(str(error)) from error
        pixels = decode(data, name, channels=self.channels, box=box)
        if self.invert:
            pixels = 255 - pixels
        return pixels if self.size is None else fit(pixels, self.size)


def guess_channels(files: Files, paths: Sequence[str]) -> int:
    """1 where every one of some evenly chosen images is gray, else 3; undecodable ones have no say."""
    from PIL import Image

    modes = set()
    for i in np.unique(np.linspace(0, len(paths) - 1, LOOKED_AT).astype(int)):
        try:
            with Image.open(io.BytesIO(files.read(paths[i]))) as image:
                modes.add(image.mode)
        except Exception:  # as in `decode`: the file is corrupt, or far too large
            continue
    return 1 if modes and modes.issubset(GRAY_MODES) else 3


def image_source(
    name: str,
    reader: ImageReader,
    labels: Sequence[Any] | NDArray[Any],
    *,
    classes: Sequence[str] | None = None,
    roles: Sequence[str] | NDArray[np.str_] | None = None,
    split: str = "",
    groups: NDArray[np.str_] | None = None,
    skip_bad: bool = False,
) -> Source:
    """Make a `Source` of image files.

    Parameters
    ----------
    name : str
        What the set is called.
    reader : ImageReader
        Reads the files.
    labels : sequence
        One per file: class names, or indices into `classes` where those are given.
    classes : sequence of str, optional
        The class names in their order; the sorted labels where not given.
    roles, split
        As in `Source`.
    groups : ndarray of str, optional
        As in `Dataset`.
    skip_bad : bool
        Decode every file once now and leave out those that fail; their names are in `items.bad`.
    """
    if classes is None:
        classes, indices = number_labels(labels)
    else:
        indices = np.asarray(labels, dtype=np.int64)
    items = Dataset(name, indices, tuple(classes), "image", reader, reader.names, groups=groups)
    if skip_bad:
        items, roles = _without_bad(items, roles)
    array = load(items.read, len(items))
    if array is not None:
        items = replace(items, array=array, read=ArrayReader(array))
    return Source(items, None if roles is None else np.asarray(roles, dtype=np.str_), split)


def load(read: Callable[[int], NDArray[Any]], n: int, memory: int = MEMORY) -> NDArray[Any] | None:
    """Read all items into one array, or None where they are too large or differ in shape."""
    first = read(0)
    if n * first.nbytes > memory:
        return None
    array = np.empty((n, *first.shape), first.dtype)
    array[0] = first
    for i in counted(range(1, n), "reading", n - 1):
        item = read(i)
        if item.shape != first.shape:
            return None
        array[i] = item
    return array


def _without_bad(items: Dataset, roles: Any) -> tuple[Dataset, NDArray[np.str_] | None]:
    n = len(items)
    good = np.array([_readable(items.read, i) for i in counted(range(n), "reading", n)])
    bad = tuple(items.names[i] for i in np.flatnonzero(~good))
    if not good.any():
        raise DataError(f"{items.name}: none of its {n} images can be decoded")
    kept = items.subset(good)
    return replace(kept, bad=bad), None if roles is None else np.asarray(roles)[good]


def _readable(read: Callable[[int], NDArray[Any]], i: int) -> bool:
    try:
        read(i)
    except DataError:
        return False
    return True
