"""Attention maps: where the last convolutional layer responds.

A = mean over channels of F (C, H, W);  (A - min A) / (max A - min A), bilinear to the size of the image
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def attention_map(features: NDArray[Any], size: tuple[int, int]) -> NDArray[np.float64]:
    """Return where a convolutional layer responds to an image.

    Parameters
    ----------
    features : ndarray, shape (C, H, W) or (H, W)
        Last convolutional map of one image, or its mean over channels.
    size : (int, int)
        Height and width of the image.

    Returns
    -------
    ndarray, shape (height, width)
        Values in [0, 1]; zeros if the map is constant or not finite.
    """
    values = np.asarray(features, dtype=np.float64)
    values = values.mean(axis=0) if values.ndim == 3 else values
    if values.ndim != 2:
        raise ValueError(f"features must be (C, H, W) or (H, W), got shape {np.shape(features)}")
    low = values.min()
    high = values.max()
    if not np.isfinite(values).all() or high - low <= 1e-12 * max(abs(low), abs(high)):
        return np.zeros(size)
    return _bilinear((values - low) / (high - low), size)


def _bilinear(values: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    from PIL import Image

    picture = Image.fromarray(values.astype(np.float32), mode="F")
    resized = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, dtype=np.float64), 0, 1)


def center_square(image: NDArray[Any]) -> NDArray[Any]:
    """Return the largest central square (S, S, C) of an image (H, W, C), which is the part that a network sees."""
    height, width = image.shape[:2]
    side = min(height, width)
    top = (height - side) // 2
    left = (width - side) // 2
    return image[top : top + side, left : left + side]


def overlay(image: NDArray[np.uint8], attention: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Color an image (H, W, C) by its attention (H, W): dark for a weak response, yellow for a strong one."""
    from matplotlib import colormaps

    gray = np.asarray(image, dtype=np.float64).mean(axis=2, keepdims=True) / 255
    colors = colormaps["inferno"](attention)[..., :3]
    return np.round(255 * (0.45 * gray + 0.55 * colors)).astype(np.uint8)
