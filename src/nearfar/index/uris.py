"""What the URI of a collection says of where it is kept."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = ".lance"
"""The ending of a folder that LanceDB keeps; any other name is that of our one file."""


def is_folder(uri: str | os.PathLike[str]) -> bool:
    """Return whether a URI names a folder of LanceDB."""
    return Path(uri).suffix == FOLDER
