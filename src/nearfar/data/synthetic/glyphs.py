"""Glyphs: hundreds of classes of small distorted characters, drawn from the fonts that matplotlib ships.

A class is a character (Latin, Greek, Cyrillic, Armenian, Georgian letters, digits, mathematical signs). An image shows
it in one font face, distorted, with noise and a cluttered background. Nothing is downloaded and nothing is cached: the
same seed draws the same images.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataset import DataError, Dataset, Source, unseen_half
from .distortions import distort

FAMILIES = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral")
ASCII_FACES = ("cmb10.ttf", "cmr10.ttf", "cmss10.ttf", "cmti10.ttf", "cmtt10.ttf")
"""Computer Modern has letters and digits at their ASCII codes, and other glyphs at the remaining codes."""
RANGES = (
    (0x30, 0x39),  # digits
    (0x41, 0x5A),  # Latin
    (0x61, 0x7A),
    (0x391, 0x3A9),  # Greek
    (0x3B1, 0x3C9),
    (0x410, 0x44F),  # Cyrillic
    (0x452, 0x45B),
    (0x531, 0x556),  # Armenian
    (0x561, 0x587),
    (0x10D0, 0x10F0),  # Georgian
    (0x23, 0x26),  # signs
    (0xA3, 0xA7),
    (0x20A0, 0x20B5),
    (0x2190, 0x21BB),  # arrows
    (0x2200, 0x224C),  # mathematical operators
    (0x2295, 0x22A5),
    (0x25B2, 0x25CF),  # shapes
)
FEWEST_FACES = 6
SIDE = 64
"""Side in pixels of the square on which a glyph is drawn before it is distorted."""
DEFAULT_SIDE = 28
"""Side in pixels of the images."""
REFERENCE_FACES = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "STIXGeneral.ttf")
SAME_GLYPH_CORRELATION = 0.87
"""Two characters whose normalized drawings correlate more than this in one face are the same glyph."""


@dataclass(frozen=True)
class Face:
    """One font file and the code points that it can draw."""

    path: Path
    points: frozenset[int]


def read_glyphs(*, image_size: int | None = None, per_class: int = 20, seed: int = 0) -> Source:
    """Draw the glyph images.

    Parameters
    ----------
    image_size : int, optional
        Side of the square gray images in pixels. By default, 28.
    per_class : int
        Number of images of each class.
    seed : int
        Seed of the generator that draws the fonts, the distortions, and the half of the classes that is not seen in
        training.

    Returns
    -------
    Source
        uint8 images with ink brighter than the background; half of the classes are "train", half "test". Calls with the
        same arguments return the same images and the same halves.

    Raises
    ------
    DataError
        If matplotlib or its fonts are not installed.
    """
    faces = find_faces()
    points = distinct(faces)
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(points)), per_class)
    drawn = np.empty((len(labels), SIDE, SIDE), np.uint8)
    names = []
    for i, (point, face, weight) in enumerate(_choices(faces, points, per_class, rng)):
        drawn[i] = draw(face.path, point, weight)
        names.append(f"{_class_name(point)} in {face.path.stem}, image {i}")
    array = distort(drawn, image_size or DEFAULT_SIDE, rng)[..., None]
    held = unseen_half(len(points), seed)
    items = Dataset.from_array("glyphs", array, labels, names=names)
    items = replace(items, classes=tuple(_class_name(point) for point in points))
    roles = np.where(held[labels], "test", "train").astype(np.str_)
    return Source(items, roles, f"half of the characters unseen in training, drawn with seed {seed}")


def find_faces() -> list[Face]:
    """List the faces of matplotlib's text fonts, in a fixed order."""
    try:
        import matplotlib
        from matplotlib.ft2font import FT2Font
    except ImportError as error:
        raise DataError("glyphs: needs matplotlib for its fonts; pip install matplotlib pillow") from error
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces = []
    for path in sorted(folder.glob("*.ttf")):
        if path.stem.split("-")[0] in FAMILIES or path.stem.startswith("STIXGeneral"):
            faces.append(Face(path, frozenset(FT2Font(str(path)).get_charmap())))
        elif path.name in ASCII_FACES:
            faces.append(Face(path, frozenset(p for p in range(0x30, 0x7B) if chr(p).isalnum())))
    if not faces:
        raise DataError(f"glyphs: no known font in {folder}")
    return faces


def distinct(faces: Sequence[Face]) -> list[int]:
    """List the code points that several faces can draw, without those that look like an earlier one."""
    wanted = [p for a, b in RANGES for p in range(a, b + 1)]
    points = np.array([p for p in wanted if sum(p in face.points for face in faces) >= FEWEST_FACES])
    alike = np.zeros((len(points), len(points)), dtype=bool)
    for face in faces:
        if face.path.name in REFERENCE_FACES:
            has = np.array([p in face.points for p in points])
            shapes = np.stack([draw(face.path, int(p), 0) for p in points[has]])
            alike[np.ix_(has, has)] |= _correlation(shapes) > SAME_GLYPH_CORRELATION
    kept = np.zeros(len(points), dtype=bool)
    for i in range(len(points)):
        kept[i] = not alike[i, :i][kept[:i]].any()
    return [int(p) for p in points[kept]]


def _correlation(shapes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the correlation of slightly blurred drawings, so that shapes shifted by a pixel still agree."""
    blocks = shapes.reshape(len(shapes), SIDE // 4, 4, SIDE // 4, 4).mean(axis=(2, 4), dtype=np.float32)
    rows = blocks.reshape(len(shapes), -1)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9
    return rows @ rows.T


def _choices(
    faces: Sequence[Face], points: Sequence[int], per_class: int, rng: np.random.Generator
) -> Iterator[tuple[int, Face, int]]:
    """Choose a character, a face and a stroke weight for every image; all faces are used before any repeats."""
    for point in points:
        able = [face for face in faces if point in face.points]
        order = np.concatenate([rng.permutation(len(able)) for _ in range(-(-per_class // len(able)))])
        weights = rng.integers(0, 2, per_class)
        for i in range(per_class):
            yield point, able[order[i]], int(weights[i])


def draw(path: Path, point: int, weight: int) -> NDArray[np.uint8]:
    """Draw one character, bright on dark, its larger side 40 of the 64 pixels.

    Parameters
    ----------
    path : Path
        Font file.
    point : int
        Unicode code point.
    weight : int
        Pixels by which the strokes grow on each side.
    """
    from PIL import Image, ImageDraw, ImageFilter

    font = _font(path)
    left, top, right, bottom = font.getbbox(chr(point))
    image = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), chr(point), font=font, fill=255)
    scale = 40 / max(image.size)
    image = image.resize([max(1, round(side * scale)) for side in image.size], Image.Resampling.BILINEAR)
    canvas = Image.new("L", (SIDE, SIDE))
    canvas.paste(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    return np.asarray(canvas.filter(ImageFilter.MaxFilter(2 * weight + 1)) if weight else canvas)


@cache
def _font(path: Path) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(str(path), 48, layout_engine=ImageFont.Layout.BASIC)


def _class_name(point: int) -> str:
    return f"{chr(point)} {unicodedata.name(chr(point), f'U+{point:04X}').lower()}"
