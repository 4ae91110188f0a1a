"""Where what can be made or fetched again is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder: the environment variable NEARFAR_CACHE, else ~/.cache/nearfar."""
    return Path(os.environ.get("NEARFAR_CACHE") or Path.home() / ".cache" / "nearfar")
