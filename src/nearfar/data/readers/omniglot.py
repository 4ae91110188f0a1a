"""Omniglot: handwritten characters of many alphabets (Lake et al., 2015), from its official zip archives."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from ..dataset import DataError, Source
from ..decode import ImageReader, image_source
from ..image_formats import suffixes
from .files import FolderFiles, open_files, stem_of

CHARACTER = re.compile(r"[^/]+/character\d+/\d{4}_\d{2}\.png$")


def read_omniglot(path: str | Path, *, image_size: int | None = None, skip_bad: bool = False) -> Source:
    """Read an Omniglot archive such as `images_background_small1.zip`, or its extracted folder.

    Parameters
    ----------
    path : str or Path
        A zip or folder with `<top>/<alphabet>/character<NN>/<NNNN>_<MM>.png`.
    image_size : int, optional
        Side of the square images in pixels. By default, 28.
    skip_bad : bool
        Leave out images that cannot be decoded, instead of raising an error.

    Returns
    -------
    Source
        Classes are named "Sanskrit/character01"; there is no split.

    Notes
    -----
    The originals are 105x105 pixels, black ink on white. They are inverted, so that ink is bright (255) on a dark
    background (0), and resized to 28x28 with an antialiasing bilinear filter.
    """
    files = open_files(path)
    names = [name for name in files.names() if is_character(name)]
    if not names:
        raise DataError(f"{path}: is not an Omniglot archive; expected <alphabet>/character<NN>/<image>.png")
    labels = ["/".join(name.split("/")[-3:-1]) for name in names]
    reader = ImageReader(files, tuple(names), channels=1, size=image_size or 28, invert=True)
    return image_source(f"Omniglot {stem_of(path)}", reader, labels, skip_bad=skip_bad)


def is_character(name: str) -> bool:
    """Return whether a path is that of an Omniglot image."""
    return CHARACTER.search(name) is not None


def is_omniglot(path: str | Path) -> bool:
    """Return whether a folder or zip contains only Omniglot images."""
    files = open_files(path)
    names = files.walk() if isinstance(files, FolderFiles) else files.names()  # the first other image decides
    images = (name for name in names if name.lower().endswith(suffixes()))
    first = next(images, None)
    return first is not None and all(map(is_character, chain([first], images)))
