"""Drawn photos: things in front of shelves, whose place, size, tilt, light and background change."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image, ImageDraw, ImageEnhance

SIDE = 96
COLORS = {
    "red": (200, 60, 50),
    "green": (60, 150, 70),
    "blue": (60, 90, 200),
    "yellow": (215, 180, 50),
    "violet": (150, 80, 170),
    "white": (225, 225, 220),
}
SHAPES = ("carton", "fruit")
THINGS = [f"{color}-{shape}" for shape in SHAPES for color in COLORS]


def photo(thing: str, rng: np.random.Generator) -> Image.Image:
    """One photo of a thing."""
    color, shape = thing.split("-")
    paper = tuple(int(value) for value in rng.integers(120, 190, 3))
    picture = Image.new("RGB", (SIDE, SIDE), paper)
    pen = ImageDraw.Draw(picture)
    for height in rng.integers(10, SIDE - 10, 2):
        pen.line((0, int(height), SIDE, int(height)), fill=(70, 60, 55), width=3)
    half = rng.uniform(16, 24)
    tall = 1.5 * half if shape == "carton" else half
    layer = Image.new("RGBA", (SIDE, SIDE))
    box = (SIDE / 2 - half, SIDE / 2 - tall, SIDE / 2 + half, SIDE / 2 + tall)
    if shape == "carton":
        ImageDraw.Draw(layer).rectangle(box, fill=COLORS[color], outline=(30, 30, 30), width=2)
    else:
        ImageDraw.Draw(layer).ellipse(box, fill=COLORS[color], outline=(30, 30, 30), width=2)
    shift = tuple(int(value) for value in rng.integers(-12, 13, 2))
    layer = layer.rotate(rng.uniform(-25, 25), translate=shift)
    picture.paste(layer, (0, 0), layer)
    return ImageEnhance.Brightness(picture).enhance(rng.uniform(0.7, 1.2))


def draw_photos(folder: Path, things: list[str], each: int, seed: int = 0) -> Path:
    """Write a folder with one folder for each thing."""
    rng = np.random.default_rng(seed)
    for thing in things:
        (folder / thing).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            photo(thing, rng).save(folder / thing / f"{number}.jpg", quality=90)
    return folder
