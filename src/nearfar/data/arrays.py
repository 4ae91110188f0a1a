"""Rows, embeddings or images with labels in one .npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset, Source
from .folder import ROLES

DATA = ("X", "x", "embeddings")
LABELS = ("y", "labels")


def read_npz(path: str | Path, *, image_size: int | None = None) -> Source:
    """Read `X` (or `embeddings`) with `y` (or `labels`), and `split` where it is there.

    Parameters
    ----------
    path : str or Path
        An .npz file. `X` is (n, d), taken as float32 rows, or (n, H, W) or (n, H, W, C) uint8, taken as images;
        `y` is (n,) integers or strings; `split` is (n,) strings such as "train" and "test".
    image_size : int, optional
        Make every image a square of this side; rows are left as they are.

    Raises
    ------
    DataError
        Where an array is missing, of unfit shape or kind, holds Python objects, or holds NaN or infinity.
    """
    arrays = _load(Path(path))
    key, label_key = _first(path, arrays, DATA), _first(path, arrays, LABELS)
    array, labels = _items(path, key, arrays[key]), arrays[label_key]
    if labels.shape != (len(array),):
        raise DataError(f"{path}: {label_key} has shape {labels.shape}; expected ({len(array)},), one per row of {key}")
    if len(array) == 0:
        raise DataError(f"{path}: {key} is empty")
    if image_size is not None and array.ndim == 4 and array.shape[1:3] != (image_size, image_size):
        from .decode import fit

        array = np.stack([fit(image, image_size) for image in array])
    items = Dataset.from_array(Path(path).stem, array, labels)
    if "split" not in arrays:
        return Source(items)
    return Source(items, _roles(path, arrays["split"], len(array)), "split by the array split")


def _load(path: Path) -> dict[str, NDArray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "arrays of Python objects are not read" if "allow_pickle" in str(error) else str(error)
        raise DataError(f"{path}: not a readable .npz file ({reason})") from error


def _first(path: str | Path, arrays: dict[str, NDArray], names: tuple[str, ...]) -> str:
    for name in names:
        if name in arrays:
            return name
    raise DataError(f"{path}: has no array {' or '.join(names)}; it has {', '.join(sorted(arrays)) or 'none'}")


def _items(path: str | Path, key: str, array: NDArray) -> NDArray:
    if array.ndim == 2 and array.dtype.kind in "fiub":
        rows = array.astype(np.float32)
        if not np.isfinite(rows).all():
            row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise DataError(f"{path}: {key} holds NaN or infinity, first in row {row}")
        return rows
    images = array[..., None] if array.ndim == 3 else array
    if images.ndim == 4 and images.dtype == np.uint8 and images.shape[3] in (1, 3):
        return images
    expected = "(n, d) numbers, or (n, H, W) or (n, H, W, 1 or 3) uint8"
    raise DataError(f"{path}: {key} has shape {array.shape} and type {array.dtype}; expected {expected}")


def _roles(path: str | Path, split: NDArray, n: int) -> NDArray[np.str_]:
    unknown = sorted({str(role) for role in split.ravel()} - ROLES.keys())
    if split.shape != (n,) or unknown:
        got = f"value {unknown[0]!r}" if unknown else f"shape {split.shape}"
        raise DataError(f"{path}: split has {got}; expected ({n},) of {', '.join(ROLES)}")
    return np.array([ROLES[str(role)] for role in split])
