"""Items that are given in Python: arrays of images, or paths of image files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset
from .decode import ImageReader, guess_channels, image_source
from .files import FolderFiles


def are_rows(X: Any) -> bool:
    """Return whether items are rows of numbers, and neither images nor paths."""
    return len(getattr(X, "shape", ())) < 3 and not are_paths(X)


def are_paths(X: Any) -> bool:
    """Return whether items are paths: a list, an array or a column of them."""
    if isinstance(X, str | os.PathLike) or not hasattr(X, "__len__") or len(getattr(X, "shape", (0,))) != 1:
        return False
    return len(X) > 0 and all(isinstance(path, str | os.PathLike) for path in X)


def images(X: Any, labels: NDArray[np.int64], name: str = "X") -> Dataset:
    """Return images with their labels as a set.

    Parameters
    ----------
    X : array-like
        (n, H, W) or (n, H, W, C) uint8 with C 1 or 3, or (n,) paths of image files.
    labels : (n,) int64
    name : str
        What the set is called.

    Raises
    ------
    DataError
        For other arrays. Files are read when they are needed, but for some that tell whether they are grey.
    """
    if are_paths(X):
        return _files(name, [os.fspath(path) for path in X], labels)
    array = np.asarray(X)
    pixels = array[..., None] if array.ndim == 3 else array
    if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[3] not in (1, 3):
        expected = "images must be (n, H, W) or (n, H, W, 1 or 3) uint8"
        raise DataError(f"{name}: {expected}; got shape {array.shape} of {array.dtype}")
    return Dataset.from_array(name, pixels, labels)


def _files(name: str, paths: Sequence[str], labels: NDArray[np.int64]) -> Dataset:
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        raise DataError(f"{name}: {len(missing)} of {len(paths)} files are not there, first {missing[0]!r}")
    files, absolute = FolderFiles(os.sep), tuple(os.path.abspath(path) for path in paths)
    return image_source(name, ImageReader(files, absolute, guess_channels(files, absolute)), labels).items
