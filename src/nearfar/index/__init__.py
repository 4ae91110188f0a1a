"""Collections of embeddings with names and labels: search, change and save them.

>>> from nearfar.index import Index
>>> index = Index([[1.0, 0.0], [0.0, 1.0]], names=["east", "north"])
>>> index.search([[0.9, 0.1]], k=1).names
array([['east']], dtype='<U5')

`open` and `create` give the same on a URI, a file or a folder that an approximate index stays in; see `Store`.
"""

from importlib import import_module
from typing import Any

from ..neighbors.near_pairs import Groups, NearPairs
from .adapter import QueryAdapter
from .index import Index
from .records import Hits, Records, records_of
from .stores import Store, create, open_store

open = open_store  # nearfar.index.open("photos.index"), as of a file
LATER = {
    "Found": "searching",
    "build": "building",
    "finish_upgrade": "upgrading",
    "from_frame": "frames",
    "search": "searching",
    "search_fused": "words",
    "to_frame": "frames",
    "undo_upgrade": "upgrading",
    "upgrade": "upgrading",
    "upgrade_status": "upgrading",
}
"""Names whose modules are imported when they are needed, because some of them load models."""

__all__ = [
    "Found",
    "Groups",
    "Hits",
    "Index",
    "NearPairs",
    "QueryAdapter",
    "Records",
    "Store",
    "build",
    "create",
    "finish_upgrade",
    "from_frame",
    "open",
    "open_store",
    "records_of",
    "search",
    "search_fused",
    "to_frame",
    "undo_upgrade",
    "upgrade",
    "upgrade_status",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
