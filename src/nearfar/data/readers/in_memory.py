"""Items in memory: arrays of images, or paths of image files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...quoting import PATH, quoted
from ..dataset import DataError, Dataset
from ..decode import GRAY_MODES, pixels_of
from .files import FolderFiles
from .media import files_of_a_kind, source_of_files

GIVEN = "items given in Python"
"""Value in a config instead of a source."""
ROWS = "; pass other kinds of items as rows, X.reshape(len(X), -1), which a trunk of your own unpacks"


def as_column(X: Any) -> Any:
    """Return items; for a table with one column of paths, return that column."""
    shape: Any = getattr(X, "shape", ())
    if len(shape) != 2 or shape[1] != 1:
        return X
    column = np.asarray(X, dtype=object)[:, 0]
    return column if are_paths(column) else X


def are_rows(X: Any) -> bool:
    """Return whether items are rows of numbers, not images or paths."""
    shape = getattr(X, "shape", ())
    if len(shape) > 1:
        return len(shape) == 2
    return not are_paths(X) and not _are_separate(X)


def are_paths(X: Any) -> bool:
    """Return whether items are paths: a list, an array or a column of them."""
    if isinstance(X, str | os.PathLike) or not hasattr(X, "__len__") or len(getattr(X, "shape", (0,))) != 1:
        return False
    return any(isinstance(path, str | os.PathLike) for path in X)


def are_pictures(X: Any) -> bool:
    """Return whether items are images in memory: uint8 of shape (n, H, W) or (n, H, W, C), or a list of pictures."""
    shape = getattr(X, "shape", ())
    if len(shape) > 1:
        return len(shape) > 2 and X.dtype == np.uint8
    return _are_separate(X) and (is_of_pillow(X[0]) or np.asarray(X[0]).dtype == np.uint8)


def even(X: Any) -> Any:
    """Return rows unchanged; raise a DataError if they differ in length."""
    if not isinstance(X, Mapping) and len(getattr(X, "shape", (0,))) == 1 and hasattr(X, "__len__"):
        lengths = sorted({len(row) for row in X if hasattr(row, "__len__")})
        if len(lengths) > 1:
            raise DataError(f"X: rows must be of one length, got {lengths[0]} to {lengths[-1]}; pad the shorter ones")
    return X


def _are_separate(X: Any) -> bool:
    """Return whether items are a list of arrays or pictures."""
    if isinstance(X, Mapping) or not hasattr(X, "__len__") or len(getattr(X, "shape", (0,))) != 1:
        return False
    return np.ndim(next(iter(X), 0)) > 1


def images(X: Any, labels: NDArray[np.int64] | Sequence[str], name: str = "X") -> Dataset:
    """Return images with their labels as a data set.

    Parameters
    ----------
    X : array-like
        uint8 images of shape (n, H, W) or (n, H, W, C) with C 1 or 3, a list of such images or of pictures of Pillow,
        which have one size, or a list of paths of image files.
    labels : ndarray of int64, or sequence of str, shape (n,)
        Class of each image.
    name : str
        Name of the data set.

    Returns
    -------
    Dataset
        The images. Files are read when they are needed, except for a few that determine whether they are gray.

    Raises
    ------
    DataError
        If X is something else.
    """
    if are_paths(X):
        return files_given(X, labels, name)
    if hasattr(X, "ndim") and X.ndim > 1:
        array = np.asarray(X)
    else:
        array = _stacked(name, X)
    pixels = array[..., None] if array.ndim == 3 else array
    if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[3] not in (1, 3):
        expected = "images must be (n, H, W) or (n, H, W, 1 or 3) uint8"
        raise DataError(f"{name}: {expected}; got shape {array.shape} of {array.dtype}{ROWS}")
    if not len(pixels):
        raise DataError(f"{name}: expected at least one image, got none")
    return Dataset.from_array(name, pixels, labels)


def is_of_pillow(item: Any) -> bool:
    """Return whether an item is a picture of Pillow, whose numbers alone are not its colors."""
    return all(hasattr(item, name) for name in ("mode", "convert", "getpixel"))


def _stacked(name: str, X: Any) -> NDArray[Any]:
    if all(map(is_of_pillow, X)):
        channels = 1 if all(image.mode in GRAY_MODES for image in X) else 3
        arrays = [pixels_of(image, f"{name}[{i}]", channels) for i, image in enumerate(X)]
    else:
        arrays = [np.asarray(image) for image in X]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(shapes) > 1:
        raise DataError(f"{name}: images in memory must be of one shape, got {shapes[0]} and {shapes[1]}")
    return np.stack(arrays)


def files_given(column: Any, labels: NDArray[np.int64] | Sequence[str], name: str = "X") -> Dataset:
    """Return the images or the sounds of a list of paths as a data set, as `images` does."""
    column = list(column)
    no_paths = [i for i, path in enumerate(column) if not isinstance(path, str | os.PathLike)]
    if no_paths:
        first = f"number {no_paths[0]} is {quoted(column[no_paths[0]])}"
        raise DataError(f"{name}: {len(no_paths)} of {len(column)} items are not paths; {first}")
    paths = [os.fspath(path) for path in column]
    missing = [path for path in paths if not os.path.isfile(path)]
    folder = next((path for path in missing if os.path.isdir(path)), None)
    if folder is not None:
        expected = "expected paths of files; a folder is given alone, without a list"
        raise DataError(f"{name}: {quoted(folder, PATH)} is a folder; {expected}")
    if missing:
        first = quoted(missing[0], PATH)
        raise DataError(
            f"{name}: {len(missing)} of {len(paths)} files do not exist, first {first}; texts are read as paths"
        )
    files = FolderFiles(os.sep)
    absolute = tuple(os.path.abspath(path) for path in paths)
    return source_of_files(files_of_a_kind(absolute)[0], name, files, absolute, labels).items
