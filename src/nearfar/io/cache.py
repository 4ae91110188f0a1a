"""The folder of the cache, for files that can be made or downloaded again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the environment variable NEARFAR_CACHE, or by default ~/.cache/nearfar."""
    return Path(os.environ.get("NEARFAR_CACHE") or Path.home() / ".cache" / "nearfar")
