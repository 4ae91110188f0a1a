"""Items as small pictures inside the page: images as PNG or WebP, rows as bar glyphs, the map as one canvas."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.decode import read_small
from ..data.sounds import encoded_sound, wave_of
from .content import Items
from .tsne import assign_to_grid

if TYPE_CHECKING:
    from PIL.Image import Image

PIXEL_ART = 48  # images up to this side are shown with sharp pixels
MAP = 2000, 1400  # maximum width and height in pixels
FILLED = 0.64  # share of the map that is covered by images
SOUND_SECONDS = 10.0  # of each sound that a page plays
SOUND_BYTES = 2**22  # of all sounds of a page; further ones are only drawn
GRAY = "#8b93a1"  # the frame of a class without a color
BARS = 48  # bars of a row's glyph
UNEVEN_FEATURES = 10.0  # if the ratio of the largest to the smallest feature is above this, each has its own scale
GLYPH_COLOR = "#7b8494"  # readable on light and dark paper


class Picture(NamedTuple):
    """A picture in a page: its data URI ("" if there is none), its alternative text, and whether pixels stay sharp.

    That of a sound has the data URI of the sound, too, and that of an image its width and height.
    """

    uri: str
    alt: str
    sharp: bool = False
    sound: str = ""
    size: tuple[int, int] = (0, 0)


class Thumbnails:
    """Pictures of the items of one set, each created once.

    Parameters
    ----------
    items : Items
        What to show; without `read`, every picture is only its text.
    side : int
        Longest side of an image in pixels.
    like : Thumbnails, optional
        Another set whose scales are used to draw rows, so that equal rows look equal in both.
    """

    def __init__(self, items: Items, side: int = 112, like: Thumbnails | None = None) -> None:
        self.items = items
        self.side = side
        self.like = like
        self._made: dict[int, Picture] = {}
        self._sound_bytes = 0
        self._range: tuple[NDArray[np.float64], float, float] | None = None

    def __call__(self, i: int) -> Picture:
        """Picture of item i."""
        if i not in self._made:
            self._made[i] = self._make(i)
        return self._made[i]

    def read(self, i: int, side: int | None = None) -> NDArray[Any] | None:
        """Read item i, at most `side` pixels large for display; return None if it cannot be read."""
        if self.items.read is None:
            return None
        try:
            item = self.items.read(i) if side is None else read_small(self.items.read, i, side)
            return np.asarray(item)
        except (OSError, ValueError):
            return None

    def _make(self, i: int) -> Picture:
        kind = self.items.class_name(i)
        if kind:
            alt = f"{self.items.name(i)}, class {kind}"
        else:
            alt = self.items.name(i)
        item = self.read(i, self.side)
        if item is None:
            return Picture("", alt)
        if item.ndim == 1:
            shared = None if self.like is None else self.like._limits()
            if shared is not None and len(shared[0]) == len(item):
                sizes, low, high = shared
            else:
                sizes, low, high = self._limits()
            return Picture(row_glyph(item / sizes, low, high), alt)
        return image_picture(item, alt, self.side)._replace(sound=self._sound(i))

    def _sound(self, i: int) -> str:
        """Return item i for an element that plays it; "" if it is no sound, or the page has enough of them."""
        if self.items.read is None or self._sound_bytes > SOUND_BYTES:
            return ""
        try:
            wave = wave_of(self.items.read, i)
            if wave is None:
                return ""
            data = base64.b64encode(encoded_sound(wave, SOUND_SECONDS)).decode()
        except (OSError, ValueError, RuntimeError, ImportError):  # an old libsndfile writes no MP3
            return ""
        self._sound_bytes += len(data)
        return f"data:audio/mpeg;base64,{data}"

    def _limits(self) -> tuple[NDArray[np.float64], float, float]:
        """Return the scales of the features and the range of the scaled values, from evenly spaced rows.

        The scales are 1 if all features have similar sizes. Otherwise, a feature in large units would dwarf the others.
        """
        if self._range is None:
            sampled = np.unique(np.linspace(0, len(self.items) - 1, min(64, len(self.items))).astype(int))
            read = [self.read(i) for i in sampled.tolist()]
            rows = np.array([row for row in read if row is not None] or [np.zeros(1)], dtype=np.float64)
            rows[~np.isfinite(rows)] = 0.0
            largest = np.abs(rows).max(axis=0)
            used = largest[largest > 0]
            even = not len(used) or used.max() <= UNEVEN_FEATURES * used.min()
            if even:
                sizes = np.ones(len(largest))
            else:
                sizes = np.where(largest > 0, largest, 1.0)
            values = rows / sizes
            self._range = sizes, float(values.min(initial=0.0)), float(values.max(initial=0.0))
        return self._range


def image_picture(image: NDArray[np.uint8], alt: str, side: int) -> Picture:
    """Encode an image (H, W, C) with its longest side at most `side` pixels."""
    picture = as_image(image)
    sharp = max(picture.size) <= PIXEL_ART
    picture.thumbnail((side, side))
    return Picture(data_uri(picture), alt, sharp, size=picture.size)


def as_image(image: NDArray[Any]) -> Image:
    """Make a Pillow image of (H, W), (H, W, 1) or (H, W, 3) values in 0..255."""
    from PIL import Image

    values = np.clip(np.asarray(image), 0, 255).astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values)


def data_uri(picture: Image) -> str:
    """Encode as PNG and as WebP, and keep the shorter."""
    from PIL import features

    options: list[tuple[str, dict[str, Any]]] = [("png", {"optimize": True})]
    if features.check("webp"):
        options.append(("webp", {"quality": 80, "method": 4}))
    encoded = [(_encode(picture, kind, settings), kind) for kind, settings in options]
    best, kind = min(encoded, key=lambda pair: len(pair[0]))
    return f"data:image/{kind};base64,{base64.b64encode(best).decode()}"


def _encode(picture: Image, kind: str, settings: dict[str, Any]) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, kind, **settings)
    return buffer.getvalue()


def row_glyph(row: NDArray[Any], low: float, high: float) -> str:
    """Draw a row (d,) as bars from zero on the common range [low, high]; neighboring values share a bar."""
    finite = np.nan_to_num(np.asarray(row, dtype=np.float64), posinf=high, neginf=low)
    values = np.array([part.mean() for part in np.array_split(finite, min(BARS, len(finite)))])
    scale = 60 / (high - low) if high > low else 0.0
    zero = 62 - (0 - low) * scale
    width = 60 / max(len(values), 1)
    top = np.minimum(zero, zero - values * scale)
    bars = "".join(
        f'<rect x="{2 + i * width:.2f}" y="{y:.2f}" width="{0.8 * width:.2f}" height="{max(abs(v) * scale, 0.6):.2f}"/>'
        for i, (y, v) in enumerate(zip(top, values, strict=True))
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" fill="{GLYPH_COLOR}">{bars}</svg>'
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


class Canvas(NamedTuple):
    """A map of images as one picture, and the square (left, top, side) of every item in pixels."""

    picture: Picture
    width: int
    height: int
    squares: list[tuple[int, int, int]]


def map_canvas(
    thumbnails: Thumbnails,
    index: NDArray[np.int64],
    positions: NDArray[np.float64],
    frames: Sequence[str | None],
) -> Canvas:
    """Place the framed images of items near their positions in the unit square, without overlap."""
    from PIL import Image

    width, height = MAP
    pitch = int(min(np.sqrt(FILLED * width * height / len(index)), 160))
    columns = width // pitch
    rows = height // pitch
    corners = assign_to_grid(positions, columns, rows) * pitch
    side = pitch - max(2, pitch // 12)
    canvas = Image.new("RGBA", (columns * pitch, rows * pitch), (0, 0, 0, 0))
    for i, (left, top), frame in zip(index, corners, frames, strict=True):
        canvas.paste(_tile(thumbnails, int(i), side, frame), (int(left), int(top)))
    squares = [(int(left), int(top), side) for left, top in corners]
    width, height = canvas.size
    alt = f"Map of {len(index):,} items, each drawn as its image; similar embeddings lie close together."
    return Canvas(Picture(data_uri(canvas), alt), width, height, squares)


def _tile(thumbnails: Thumbnails, i: int, side: int, frame: str | None) -> Image:
    """Return the central square of an item's image in a frame of this color, or in a thin gray frame."""
    from PIL import Image, ImageOps

    border = max(2, side // 9) if frame else 1
    tile = Image.new("RGB", (side, side), frame or GRAY)
    item = thumbnails.read(i, side)
    if item is not None:
        inside = (side - 2 * border, side - 2 * border)
        middle = ImageOps.fit(as_image(item).convert("RGB"), inside, Image.Resampling.LANCZOS)
        tile.paste(middle, (border, border))
    return tile
