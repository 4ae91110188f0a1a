"""Items to embed or to look up: any data set, and also what has no classes: one image, loose images, rows alone."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import DATA, LABELS, names_in
from .dataset import DataError, Dataset
from .decode import SUFFIXES, ImageReader, guess_channels, image_source
from .files import FolderFiles, open_files
from .open import open_dataset

UNKNOWN = ""
"""The class of items that have none."""


def open_items(source: str, *, skip_bad: bool = False) -> Dataset:
    """Open what `open_dataset` opens, or one image file, or a folder or zip of loose images.

    Items without a class have the class "".

    Parameters
    ----------
    source : str
        A path, or a name as in `open_dataset`.
    skip_bad : bool
        Leave out images that cannot be decoded; their names are in `bad`.

    Raises
    ------
    DataError
        One line that says what is wrong with the data.
    """
    path = Path(source)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return _loose(path.name, ImageReader(FolderFiles(str(path.parent)), (path.name,)), skip_bad)
    if path.is_dir() or (path.is_file() and path.suffix == ".zip"):
        files = open_files(path)
        names = [name for name in files.names() if name.lower().endswith(SUFFIXES)]
        if names and not any("/" in name for name in names):
            return _loose(path.stem, ImageReader(files, tuple(names)), skip_bad)
    if path.is_file() and path.suffix in (".npy", ".npz"):
        content = _loaded(path)
        if path.suffix == ".npy" or not any(key in content for key in LABELS):
            return _rows(path, content)
    return open_dataset(source, skip_bad=skip_bad)


def _loose(name: str, reader: ImageReader, skip_bad: bool) -> Dataset:
    reader = ImageReader(reader.files, reader.paths, guess_channels(reader.files, reader.paths))
    return image_source(name, reader, [UNKNOWN] * len(reader.paths), skip_bad=skip_bad).items


def _rows(path: Path, content: Any) -> Dataset:
    rows = content if isinstance(content, np.ndarray) else next((content[key] for key in DATA if key in content), None)
    if rows is None:
        raise DataError(f"{path}: has no array {' or '.join(DATA)}; it has {', '.join(content) or 'none'}")
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or not np.isfinite(rows).all():
        raise DataError(f"{path}: expected (n, d) finite numbers, got shape {rows.shape} of type {rows.dtype}")
    names = None if isinstance(content, np.ndarray) else names_in(content, len(rows))
    return Dataset.from_array(path.stem, rows.astype(np.float32), [UNKNOWN] * len(rows), names=names)


def _loaded(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable {path.suffix} file ({error})") from error
