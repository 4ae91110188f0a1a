"""The parts of a network of metric layers: affine maps and the functions between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....numerics.manifolds import matrices, rectified, vectors
from ....numerics.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda Z: Z,
    "tanh": np.tanh,
    "relu": lambda Z: np.maximum(Z, 0.0),
    "reeig": lambda Z: vectors(rectified(matrices(Z), 1e-4)),
}


class Layer(NamedTuple):
    """Affine map x -> L (x - mean) / scale, with L (k, d) and mean (d,)."""

    L: Array
    mean: Array
    scale: float

    def __call__(self, X: Array) -> Array:
        return (X - self.mean) @ self.L.T / self.scale
