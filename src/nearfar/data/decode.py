"""Decode images with Pillow, and put those that are small enough into memory."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..progress import counted
from .dataset import ArrayReader, BadItemError, DataError, Dataset, Source, number_labels, unwrapped
from .image_formats import open_image
from .readers.files import Files, ReadsFiles, file_behind
from .shrunk import ShrunkCopies, open_copies

GRAY_SAMPLE = 32  # number of images from which to guess whether all images of a set are gray
MOST_USED_BITS = 14  # of 16; fewer of them are dark
LONG_SIDES = 20  # a longer side of more squares is not resized as a whole, which would fill the memory
ORIENTATION = 0x0112  # EXIF tag
SAMPLES_PER_PIXEL = 277  # tag of TIFF
MOST_COLORS = 4
"""Channels of an image with colors: more are bands of a spectrum, or dyes."""
TRANSPOSED = (5, 6, 7, 8)
"""Orientations that swap height and width."""
GRAY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")
SIXTEEN = ("PNG", "PPM")
"""Formats without 32-bit pixels. If Pillow reports such pixels in them, they are 16-bit gray."""
IMAGE_MEMORY_BYTES = 2**26
"""Sets whose decoded images have at most this many bytes in total are kept in memory."""
WHOLE = 512
"""Images whose shorter side has at most this many pixels are decoded at full size. Only sets of such images are kept in
memory."""
DECODING = "reduced"
"""Version of the decoding. It changes if images are decoded to other pixels, so that cached results are made again."""
SPARE = 2
"""A JPEG is decoded at a reduced size with sides that are at least this many times the requested ones."""

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Resizing:
    """How images are resized for a pretrained network, as in torchvision and timm.

    Parameters
    ----------
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"}
        Filter of Pillow, with antialiasing.
    squash : bool
        Resize both sides to the same length, which changes the aspect ratio.
    round_down : bool
        Whether the corner of the center crop is rounded down if it lies between two pixels. Otherwise, it is rounded to
        the even number.
    """

    interpolation: str = "bilinear"
    squash: bool = False
    round_down: bool = False

    def sides(self, width: int, height: int, resize: int) -> tuple[int, int]:
        """Return width and height after resizing; the longer side is rounded down."""
        if self.squash:
            return resize, resize
        if width <= height:
            return resize, int(resize * height / width)
        return int(resize * width / height), resize


class BadImageError(BadItemError):
    """An image cannot be read or decoded. The message names it."""


def decode(data: bytes, name: str, *, channels: int = 3, box: Box | None = None) -> NDArray[np.uint8]:
    """Decode one image.

    Parameters
    ----------
    data : bytes
        Content of the file.
    name : str
        Name of the image in errors.
    channels : {1, 3}
        1 gives gray values, 3 gives RGB. Transparent pixels become white.
    box : tuple of int, optional
        Left, top, right and bottom in pixels of the upright image; what lies outside of the image is cropped.

    Returns
    -------
    ndarray of uint8, shape (H, W, channels)
        The image, turned upright according to its EXIF orientation.

    Raises
    ------
    BadImageError
        If the file is corrupt or truncated, its pixels have 32 bits, or the box lies outside of the image.
    """
    with _opened(data, name) as image:
        pixels = _upright(image, channels)
    return pixels if box is None else _crop(pixels, box, name)


def decode_square(
    data: bytes,
    name: str,
    resize: int,
    size: int | None = None,
    resizing: Resizing | None = None,
    *,
    channels: int = 3,
) -> NDArray[np.uint8]:
    """Decode one image and `fit` it; a JPEG whose shorter side is above 512 pixels is decoded at reduced size.

    A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, which takes a fraction of the time. The shorter side remains
    at least twice `resize`, and the position of every pixel is preserved exactly. After resizing, the difference from
    decoding at full size is below one gray level on average.

    Parameters
    ----------
    data : bytes
        Content of the file.
    name : str
        Name of the image in errors.
    resize : int
        Length of the shorter side in pixels.
    size : int, optional
        Side of the square in pixels. By default, `resize`.
    resizing : Resizing, optional
        Filter and rounding of a pretrained network, as for `fit`.
    channels : {1, 3}
        1 gives gray values, 3 gives RGB.

    Returns
    -------
    ndarray of uint8, shape (size, size, channels)

    Raises
    ------
    BadImageError
        If the file is corrupt or truncated, or its pixels have 32 bits.
    """
    from PIL import ImageOps

    with _opened(data, name) as image:
        width, height = image.size
        extent = _reduce(image, resize)
        if extent is None:
            pixels = _upright(image, channels)
        else:
            # resize before turning upright, because the last row and column may cover less than a pixel
            flat = _flatten(image, "L" if channels == 1 else "RGB")
            target = _scaled(width, height, resize, size or resize, resizing)
            small = flat.resize(target, _filter(resizing), box=(0, 0, *extent))
            pixels = np.asarray(ImageOps.exif_transpose(small), dtype=np.uint8)
    if extent is None:
        return fit(pixels, resize, size, resizing)
    return _center(pixels.reshape(*pixels.shape[:2], channels), size or resize, resizing)


def decode_small(data: bytes, name: str, side: int, *, channels: int = 3) -> NDArray[np.uint8]:
    """Decode one image for display: a large JPEG at a reduced size with a shorter side of at least twice `side` pixels.

    Other images are decoded at full size. The arguments, the result and the errors are those of `decode`.
    """
    with _opened(data, name) as image:
        _reduce(image, side)
        return _upright(image, channels)


def upright_shape(data: bytes, name: str) -> tuple[int, int]:
    """Return height and width of an image turned upright, decoding only its header."""
    with _opened(data, name) as image:
        width, height = image.size
        # Pillow would decode all pixels of a PNG to look for an orientation behind them
        has_orientation = image.format != "PNG" or "exif" in image.info
        turned = has_orientation and image.getexif().get(ORIENTATION, 1) in TRANSPOSED
    return (width, height) if turned else (height, width)


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Any]:
    """Open an image in a context in which all errors become a BadImageError."""
    try:
        with open_image(data) as image:
            yield image
    except Exception as error:  # decoders raise nearly anything on a corrupt file
        raise BadImageError(f"{name}: cannot be decoded ({_channels_of_tiff(data) or _reason(error)})") from error


def pixels_of(image: Any, name: str, channels: int = 3) -> NDArray[np.uint8]:
    """Return a picture of Pillow in memory as uint8 (H, W, channels), as a file of it is decoded.

    Raises
    ------
    BadImageError
        If it cannot be converted, such as pixels of 32 bits in an unknown range.
    """
    try:
        return _upright(image.copy(), channels)
    except Exception as error:  # as for files
        raise BadImageError(f"{name}: cannot be read ({_reason(error)})") from error


def _upright(image: Any, channels: int) -> NDArray[np.uint8]:
    """Decode an opened image to (H, W, channels), turned upright."""
    from PIL import ImageOps

    kind = image.format
    ImageOps.exif_transpose(image, in_place=True)  # without a copy of an image that is upright
    turned = _eight_bits(image) if _has_sixteen_bits(image, kind) else image
    mode = "L" if channels == 1 else "RGB"
    pixels = np.asarray(_flatten(turned, mode), dtype=np.uint8)
    return pixels.reshape(*pixels.shape[:2], channels)


def _reduce(image: Any, side: int) -> tuple[float, float] | None:
    """Set a large JPEG to be decoded at 1/2, 1/4 or 1/8 of its size, with sides of at least SPARE times `side`.

    Returns
    -------
    tuple of float or None
        Width and height of the image in reduced pixels, which need not be integers, because the last pixel may be
        covered only partly; None if the image is decoded at full size.
    """
    if min(image.size) <= WHOLE:
        return None
    whole = image.size
    drafted = image.draft(None, (SPARE * side, SPARE * side))
    if drafted is None or image.size == whole:
        return None
    _, (_, _, width, height) = drafted
    return width, height


def _flatten(image: Any, mode: str) -> Any:
    """Convert to `mode`, with transparent pixels on white."""
    from PIL import Image

    if image.mode in ("I", "F"):
        image = _bytes_of_wide(image)
    if image.mode in ("La", "RGBa"):  # whose colors are multiplied by alpha
        image = image.convert(image.mode.upper())
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _bytes_of_wide(image: Any) -> Any:
    """Convert gray values of 32 bits, which are in [0, 1], [0, 255] or [0, 65535], to 8 bits."""
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    least = values.min()
    most = values.max()
    limits = (1, 255, 65535) if image.mode == "F" else (255, 65535)
    limit = next((limit for limit in limits if most <= limit), None)
    if limit is None or not least >= 0:  # `not >=` also refuses NaN
        ranges = " or ".join(f"0 to {limit:,}" for limit in limits)
        raise ValueError(f"its pixels of 32 bits have values from {least:g} to {most:g}; expected {ranges}")
    return Image.fromarray(np.round(values * (255 / limit)).astype(np.uint8))


def _eight_bits(image: Any) -> Any:
    """Convert 16-bit gray values to 8 bits."""
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


def _channels_of_tiff(data: bytes) -> str:
    """Return why a TIFF of a microscope or a satellite is not decoded: it has more channels than colors; else ""."""
    from PIL import TiffImagePlugin

    if not data.startswith((b"II*\0", b"MM\0*")):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error says what is wrong
            directory = TiffImagePlugin.ImageFileDirectory_v2(data[:8])
            directory.load(_at(data, directory.next))
        channels = int(directory.get(SAMPLES_PER_PIXEL, 1))
    except Exception:  # the file is damaged, too
        return ""
    if channels <= MOST_COLORS:
        return ""
    return f"it has {channels} channels; save those that show the classes best as an RGB image, or all as rows"


def _at(data: bytes, place: int) -> io.BytesIO:
    """Return the content of a file, to be read from a place."""
    file = io.BytesIO(data)
    file.seek(place)
    return file


def fit(
    pixels: NDArray[np.uint8], resize: int, size: int | None = None, resizing: Resizing | None = None
) -> NDArray[np.uint8]:
    """Resize the shorter side to `resize` (with antialiasing) and crop the central `size` x `size` pixels.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, C)
        An image; C is 1 or 3.
    resize : int
        Length of the shorter side in pixels.
    size : int, optional
        Side of the square in pixels. By default, `resize`.
    resizing : Resizing, optional
        Filter and rounding of a pretrained network. By default, bilinear, with the longer side rounded to the nearest
        pixel.

    Returns
    -------
    ndarray of uint8, shape (size, size, C)
    """
    from PIL import Image

    size = size or resize
    height, width = pixels.shape[:2]
    target = _scaled(width, height, resize, size, resizing)
    if (width, height) != target:
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        if max(target) > LONG_SIDES * size:
            part = part_that_fits(width, height, resize, size, resizing)
            return np.asarray(image.resize((size, size), _filter(resizing), box=part)).reshape(size, size, -1)
        pixels = np.asarray(image.resize(target, _filter(resizing))).reshape(target[1], target[0], -1)
    return _center(pixels, size, resizing)


def _filter(resizing: Resizing | None) -> Any:
    """Return the filter of Pillow."""
    from PIL import Image

    if resizing is None:
        return Image.Resampling.BILINEAR
    return Image.Resampling[resizing.interpolation.upper()]


def _scaled(width: int, height: int, resize: int, size: int, resizing: Resizing | None) -> tuple[int, int]:
    """Return width and height after resizing the shorter side to `resize`."""
    if resizing is not None:
        return resizing.sides(width, height, resize)
    scale = resize / min(height, width)
    return max(size, round(width * scale)), max(size, round(height * scale))


def _center(pixels: NDArray[np.uint8], size: int, resizing: Resizing | None) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    left, top = _corner(width, height, size, resizing)
    return pixels[top : top + size, left : left + size]


def _corner(width: int, height: int, size: int, resizing: Resizing | None) -> tuple[int, int]:
    """Return left and top of the central square."""
    if resizing is None or resizing.round_down:
        return (width - size) // 2, (height - size) // 2
    return round((width - size) / 2), round((height - size) / 2)


def part_that_fits(
    width: int, height: int, resize: int, size: int | None = None, resizing: Resizing | None = None
) -> tuple[float, float, float, float]:
    """Return which part of an image `fit` keeps: left, top, right and bottom, in pixels of the image.

    >>> part_that_fits(300, 200, 100, 80)  # resized to 150 x 100, of which the central 80 x 80 are kept
    (70.0, 20.0, 230.0, 180.0)
    """
    size = size or resize
    across, down = _scaled(width, height, resize, size, resizing)
    left, top = _corner(across, down, size, resizing)
    x = width / across
    y = height / down
    return left * x, top * y, (left + size) * x, (top + size) * y


@dataclass(frozen=True, eq=False)
class ImageReader(ReadsFiles):
    """Read item i from a file of a folder or zip, cropped to its box, and made square if `size` is set."""

    bad = BadImageError

    channels: int = 3
    boxes: Sequence[Box | None] | None = None
    size: int | None = None
    invert: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the paths, with boxes if several items are cropped from one image."""
        if self.boxes is None:
            return tuple(self.paths)
        times = Counter(self.paths)
        cut = zip(self.paths, self.boxes, strict=True)
        return tuple(path if box is None or times[path] == 1 else f"{path} {tuple(box)}" for path, box in cut)

    def __call__(self, i: int) -> NDArray[np.uint8]:
        if self.size is not None:
            return self._square(i, self.size, self.size)
        box = None if self.boxes is None else self.boxes[i]
        pixels = decode(self._data(i), self._name(i), channels=self.channels, box=box)
        return 255 - pixels if self.invert else pixels

    def square(
        self, i: int, resize: int, size: int | None = None, resizing: Resizing | None = None
    ) -> NDArray[np.uint8]:
        """Return item i, decoded no larger than needed and resized to `size` x `size` as by `fit`."""
        if self.size is not None:
            return fit(self(i), resize, size, resizing)
        return self._square(i, resize, size or resize, resizing)

    def small(self, i: int, side: int) -> NDArray[np.uint8]:
        """Return item i for display; a large JPEG is decoded to at least `side` pixels on its shorter side only."""
        if self._cut(i) or self.invert or self.size is not None:
            return self(i)
        return decode_small(self._data(i), self._name(i), side, channels=self.channels)

    def shape(self, i: int) -> tuple[int, int]:
        """Return height and width of item i, decoding no more than needed."""
        if self.size is not None:
            return self.size, self.size
        if self._cut(i):
            height, width = self(i).shape[:2]
            return height, width
        return upright_shape(self._data(i), self._name(i))

    def _square(self, i: int, resize: int, size: int, resizing: Resizing | None = None) -> NDArray[np.uint8]:
        """Return item i from its shrunk copy, or decode it, and keep a copy if the file is large."""
        stamp = self._stamp(i)
        copies = None if stamp is None else self._copies(resize, size, resizing)
        if copies is None or stamp is None:
            return self._shrunk(i, resize, size, resizing)[0]
        found = copies.get(i, stamp)
        if found is not None:
            return found
        pixels, read = self._shrunk(i, resize, size, resizing)
        if read > pixels.nbytes:  # smaller files are read as fast as a copy
            copies.put(i, stamp, pixels)
        return pixels

    def _copies(self, resize: int, size: int, resizing: Resizing | None) -> ShrunkCopies | None:
        opened = _open_copies.setdefault(self, {})
        key = (resize, size, resizing)
        if key not in opened:
            how = (*key, self.invert, self.boxes, DECODING)
            shape = (size, size, self.channels)
            opened[key] = open_copies(self.files.root, self.paths, shape, how)
        return opened[key]

    def _stamp(self, i: int) -> tuple[int, int] | None:
        """Return the size and the date of the file of item i, or of its archive; None if it is missing."""
        try:
            found = file_behind(self.files, self.paths[i]).stat()
        except (OSError, ValueError):  # reading the item will raise the error
            return None
        return found.st_size, found.st_mtime_ns

    def _shrunk(self, i: int, resize: int, size: int, resizing: Resizing | None) -> tuple[NDArray[np.uint8], int]:
        """Return item i, decoded and resized, and the number of bytes of its file."""
        data = self._data(i)
        name = self._name(i)
        if not self._cut(i) and not self.invert:
            return decode_square(data, name, resize, size, resizing, channels=self.channels), len(data)
        box = None if self.boxes is None else self.boxes[i]
        pixels = decode(data, name, channels=self.channels, box=box)
        return fit(255 - pixels if self.invert else pixels, resize, size, resizing), len(data)

    def _cut(self, i: int) -> bool:
        return self.boxes is not None and self.boxes[i] is not None


_open_copies: WeakKeyDictionary[ImageReader, dict[Any, ShrunkCopies | None]] = WeakKeyDictionary()
"""Shrunk copies of each reader of this process, by size."""

Read: TypeAlias = Callable[[int], NDArray[Any]]


@runtime_checkable
class ReadsSmall(Protocol):
    """A reader that can read an item for display, at little cost."""

    def small(self, i: int, side: int) -> NDArray[Any]: ...


@runtime_checkable
class ReadsSquare(Protocol):
    """A reader that decodes no more of an image than a network sees of it."""

    def square(self, i: int, resize: int, size: int | None = None, resizing: Resizing | None = None) -> Any: ...

    def shape(self, i: int) -> tuple[int, ...]: ...


def read_square(
    read: Read, i: int, resize: int, size: int | None = None, resizing: Resizing | None = None
) -> NDArray[np.uint8]:
    """Return item i of a reader, resized and cropped as by `fit`.

    Training, evaluation, `embed` and the comparison of hits all get their pixels here, or from an `ImageReader` with a
    `size`, which does the same: large JPEGs are decoded at a reduced size.
    """
    reader, at = unwrapped(read, i)
    if isinstance(reader, ReadsSquare):
        pixels: NDArray[np.uint8] = reader.square(at, resize, size, resizing)
        return pixels
    return fit(reader(at), resize, size, resizing)


def read_small(read: Read, i: int, side: int) -> NDArray[Any]:
    """Return item i of a reader for display; a large JPEG is decoded to at least `side` pixels only."""
    reader, at = unwrapped(read, i)
    if isinstance(reader, ReadsSmall):
        return reader.small(at, side)
    return reader(at)


def read_shape(read: Read, i: int) -> tuple[int, ...]:
    """Return the height and the width of item i of a reader of images."""
    reader, at = unwrapped(read, i)
    if isinstance(reader, ReadsSquare):
        return reader.shape(at)
    return reader(at).shape[:2]


def guess_channels(files: Files, paths: Sequence[str]) -> int:
    """Return 1 if all of some evenly chosen images are gray, else 3; images that cannot be decoded are ignored."""
    modes = set(_of_sample(files, paths, lambda image: image.mode))
    return 1 if modes and modes.issubset(GRAY_MODES) else 3


def _of_sample(files: Files, paths: Sequence[str], fact: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield a fact on each of up to GRAY_SAMPLE evenly chosen images, but those that cannot be opened."""
    for i in np.unique(np.linspace(0, len(paths) - 1, GRAY_SAMPLE).astype(int)):
        try:
            with open_image(files.read(paths[i])) as image:
                yield fact(image)
        except Exception:  # the file is corrupt, or far too large; `decode` will say so
            continue


def remarks_on_depth(reader: ImageReader) -> tuple[str, ...]:
    """Return a remark on gray images of 16 bits that use only the lowest ones, as those of many cameras and scanners.

    Up to 32 evenly chosen images are decoded, if they have 16 bits.
    """

    def largest_value(image: Any) -> int:
        return int(np.asarray(image).max()) if _has_sixteen_bits(image, image.format) else 0

    bits = max(_of_sample(reader.files, reader.paths, largest_value), default=0).bit_length()
    if not 0 < bits <= MOST_USED_BITS:
        return ()
    advice = f"multiply their values by {2 ** (16 - bits)} when you save them"
    return (f"gray images of 16 bits use only the lowest {bits} bits, and are read as nearly black: {advice}",)


def _has_sixteen_bits(image: Any, format: str | None) -> bool:
    """Return whether the pixels of an image are gray values of 16 bits; `format` is that of its file."""
    return bool(image.mode.startswith("I;16") or (image.mode == "I" and format in SIXTEEN))


def image_source(
    name: str,
    reader: ImageReader,
    labels: Sequence[Any] | NDArray[Any],
    *,
    classes: Sequence[str] | None = None,
    roles: Sequence[str] | NDArray[np.str_] | None = None,
    split: str = "",
    groups: NDArray[Any] | None = None,
    texts: NDArray[np.object_] | None = None,
    names: Sequence[str] | None = None,
    unnamed: bool = False,
    skip_bad: bool = False,
) -> Source:
    """Make a `Source` of image files.

    Parameters
    ----------
    name : str
        Name of the data set.
    reader : ImageReader
        Reads the files.
    labels : sequence
        One label per file: class names, or indices into `classes` if these are given.
    classes : sequence of str, optional
        Names of the classes in their order. By default, the sorted labels.
    roles, split
        As in `Source`.
    groups, texts : ndarray of str, optional
        As in `Dataset`.
    names : sequence of str, optional
        One name per file. By default, the paths.
    unnamed : bool
        As in `Dataset`.
    skip_bad : bool
        Whether to decode every file once now and leave out those that fail; their names are in `items.bad`.
    """
    if classes is None:
        classes, indices = number_labels(labels)
    else:
        indices = np.asarray(labels, dtype=np.int64)
    items = Dataset(
        name=name,
        labels=indices,
        classes=tuple(classes),
        kind="image",
        read=reader,
        names=reader.names if names is None else tuple(names),
        groups=groups,
        texts=texts,
        unnamed=unnamed,
        notes=remarks_on_depth(reader),
    )
    if skip_bad:
        items, roles = _without_bad(items, roles)
    array = load(items.read, len(items))
    if array is not None:
        items = replace(items, array=array, read=ArrayReader(array), stored=items.read)
    return Source(items, None if roles is None else np.asarray(roles, dtype=np.str_), split)


def load(read: Callable[[int], NDArray[Any]], n: int, memory: int = IMAGE_MEMORY_BYTES) -> NDArray[Any] | None:
    """Read all items into one array; return None if they are too large or differ in shape.

    Large images are not kept in memory, because they are decoded at a reduced size once the requested size is known.
    """
    first = read(0)
    if n * first.nbytes > memory or (first.ndim == 3 and min(first.shape[:2]) > WHOLE):
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
    good = np.array([not _why_unreadable(items.read, i) for i in counted(range(n), "reading", n)])
    bad = tuple(items.names[i] for i in np.flatnonzero(~good))
    if not good.any():
        first = _why_unreadable(items.read, 0)
        raise DataError(f"{items.name}: none of its {n} images can be decoded; {first}")
    kept = items.subset(good)
    return replace(kept, bad=bad), None if roles is None else np.asarray(roles)[good]


def _why_unreadable(read: Callable[[int], NDArray[Any]], i: int) -> str:
    """Return why an item cannot be read, or "" if it can."""
    try:
        read_small(read, i, 1)
    except BadImageError as error:
        return str(error)
    return ""
