"""Seeded distortions of small drawings: warp, clutter, light and noise, on all images at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Strength:
    """Strength of the distortions of `distort`.

    Parameters
    ----------
    degrees : float
        Maximum rotation in degrees, in either direction.
    scale : (float, float)
        Minimum and maximum scale factor.
    stretch : float
        Logarithm of the maximum ratio of the width to its mean with the height.
    shear : float
        Maximum shear factor, in either direction.
    shift : float
        Maximum shift as a fraction of the side, in either direction.
    perspective : float
        Maximum change of depth over half the image, in either direction.
    elastic : float
        Standard deviation of the smooth displacement of 5 x 5 knots, in half sides.
    lines : int
        Number of dim lines in the background.
    ghost : float
        Maximum brightness of the lines and of the other drawing in the background.
    light : float
        Maximum brightness of the uneven light.
    contrast : (float, float)
        Minimum and maximum brightness of the ink.
    noise : float
        Maximum standard deviation of the noise.
    """

    degrees: float = 15.0
    scale: tuple[float, float] = (0.8, 1.15)
    stretch: float = 0.15
    shear: float = 0.2
    shift: float = 0.09
    perspective: float = 0.1
    elastic: float = 0.03
    lines: int = 1
    ghost: float = 0.4
    light: float = 0.2
    contrast: tuple[float, float] = (0.6, 1.0)
    noise: float = 0.08


def distort(
    drawn: NDArray[np.uint8], size: int, rng: np.random.Generator, strength: Strength | None = None, block: int = 512
) -> NDArray[np.uint8]:
    """Turn clean drawings into small, distorted pictures of them.

    Parameters
    ----------
    drawn : ndarray of uint8, shape (n, S, S)
        Centered drawings, with bright ink on 0.
    size : int
        Side of the result in pixels.
    rng : numpy.random.Generator
        Generator of all random numbers.
    strength : Strength, optional
        Settings. By default, those of `Strength()`.
    block : int
        Number of images to process at a time.

    Returns
    -------
    ndarray of uint8, shape (n, size, size)
        The pictures.

    Notes
    -----
    Each image is warped (rotation, scale, stretch, shear, shift, perspective, and a smooth random displacement) and
    drawn over a background of the dim ghost of another drawing, dim lines and a light gradient. Then noise is added.
    """
    strength = strength or Strength()
    ghosts = rng.permutation(len(drawn))
    out = np.empty((len(drawn), size, size), np.uint8)
    for start in range(0, len(drawn), block):
        rows = slice(start, start + block)
        glyph = _warp(drawn[rows], size, rng, strength)
        ground = _ground(drawn[ghosts[rows]], size, rng, strength)
        out[rows] = _develop(glyph, ground, rng, strength)
    return out


def _warp(drawn: NDArray[np.uint8], size: int, rng: np.random.Generator, s: Strength) -> Floats:
    """Sample the drawings at distorted positions, with four samples per pixel."""
    n = len(drawn)
    fine = 2 * size
    x, y = _grid(fine)  # (fine, fine) each, in [-1, 1]
    m = _affine(n, rng, s)  # (n, 2, 3): output position -> drawing position
    tilt = rng.uniform(-s.perspective, s.perspective, (n, 2)).astype(np.float32)
    depth = 1 + tilt[:, :1, None] * x + tilt[:, 1:, None] * y
    bend = _smooth(rng.normal(0, s.elastic, (2 * n, 5, 5)), fine).reshape(2, n, fine, fine)
    u = (m[:, 0, 0, None, None] * x + m[:, 0, 1, None, None] * y) / depth + m[:, 0, 2, None, None] + bend[0]
    v = (m[:, 1, 0, None, None] * x + m[:, 1, 1, None, None] * y) / depth + m[:, 1, 2, None, None] + bend[1]
    return _pool(_sample(drawn, u, v))


def _affine(n: int, rng: np.random.Generator, s: Strength) -> Floats:
    angle = np.deg2rad(rng.uniform(-s.degrees, s.degrees, n))
    zoom = 1 / rng.uniform(*s.scale, n)
    stretch = np.exp(rng.uniform(-s.stretch, s.stretch, n))
    shear = rng.uniform(-s.shear, s.shear, n)
    cos = np.cos(angle)
    sin = np.sin(angle)
    shift = rng.uniform(-2 * s.shift, 2 * s.shift, (n, 2))
    a = zoom * stretch
    b = zoom / stretch
    rows = [[a * cos, a * (shear * cos - sin), shift[:, 0]], [b * sin, b * (shear * sin + cos), shift[:, 1]]]
    return np.array(rows, dtype=np.float32).transpose(2, 0, 1)


def _grid(side: int) -> tuple[Floats, Floats]:
    """Return the pixel centers of a square over [-1, 1], without a small margin of the drawing."""
    line: Floats = (((np.arange(side) + 0.5) / side * 2 - 1) * 0.85).astype(np.float32)
    y, x = np.meshgrid(line, line, indexing="ij")
    return x, y


def _sample(drawn: NDArray[np.uint8], u: Floats, v: Floats) -> Floats:
    """Return bilinear values in [0, 1] at positions (u, v) in [-1, 1]; 0 outside."""
    side = drawn.shape[1]
    padded = np.zeros((len(drawn), side + 2, side + 2), np.float32)
    padded[:, 1:-1, 1:-1] = drawn
    px = np.clip((u + 1) * (side / 2) + 0.5, 0, side + 0.999)
    py = np.clip((v + 1) * (side / 2) + 0.5, 0, side + 0.999)
    ix = px.astype(np.int64)
    iy = py.astype(np.int64)
    fx = px - ix
    fy = py - iy
    base = np.arange(len(drawn))[:, None, None] * (side + 2) ** 2 + iy * (side + 2) + ix
    flat = padded.ravel()
    upper = flat[base] * (1 - fx) + flat[base + 1] * fx
    lower = flat[base + side + 2] * (1 - fx) + flat[base + side + 3] * fx
    return (upper * (1 - fy) + lower * fy) / 255


def _smooth(coarse: NDArray[np.float64], side: int) -> Floats:
    """Enlarge (n, k, k) values to (n, side, side) smoothly: linear between knots with eased positions."""
    k = coarse.shape[1]
    position = (np.arange(side) + 0.5) / side * (k - 1)
    i = np.minimum(position.astype(int), k - 2)
    t = position - i
    t = t * t * (3 - 2 * t)
    weights = np.zeros((side, k))
    weights[np.arange(side), i] = 1 - t
    weights[np.arange(side), i + 1] = t
    return np.einsum("ak,nkl,bl->nab", weights, coarse, weights, optimize=True).astype(np.float32)


def _pool(fine: Floats) -> Floats:
    n, side = fine.shape[:2]
    return fine.reshape(n, side // 2, 2, side // 2, 2).mean(axis=(2, 4))


def _ground(other: NDArray[np.uint8], size: int, rng: np.random.Generator, s: Strength) -> Floats:
    """Return backgrounds: a dim piece of another drawing, lines, and uneven light."""
    n = len(other)
    x, y = _grid(size)
    side = rng.choice([-1.0, 1.0], (2, n, 1, 1)) * rng.uniform(0.5, 1.0, (2, n, 1, 1))
    ghost = _sample(other, (x + side[0]).astype(np.float32), (y + side[1]).astype(np.float32))
    ghost *= rng.uniform(0, s.ghost, (n, 1, 1))
    lines = np.zeros_like(ghost)
    for _ in range(s.lines):
        angle = rng.uniform(0, np.pi, (n, 1, 1))
        offset = rng.uniform(-0.8, 0.8, (n, 1, 1))
        distance = np.abs(np.cos(angle) * x + np.sin(angle) * y - offset)
        width = rng.uniform(0.02, 0.1, (n, 1, 1))
        lines = np.maximum(lines, rng.uniform(0, s.ghost, (n, 1, 1)) * np.clip(1.5 - distance / width, 0, 1))
    light = _smooth(rng.uniform(0, s.light, (n, 3, 3)), size)
    return (np.maximum(ghost, lines) + light).astype(np.float32)


def _develop(glyph: Floats, ground: Floats, rng: np.random.Generator, s: Strength) -> NDArray[np.uint8]:
    """Draw the glyph over the background with some contrast, add noise, and convert to uint8."""
    ink = rng.uniform(*s.contrast, (len(glyph), 1, 1)).astype(np.float32)
    picture = ground * (1 - glyph) + ink * glyph + 0.5 * ground * glyph
    picture += rng.normal(0, 1, picture.shape).astype(np.float32) * rng.uniform(0, s.noise, (len(glyph), 1, 1))
    return np.clip(np.round(picture * 255), 0, 255).astype(np.uint8)
