"""A web page to search an index by picture, and its JSON API; `nearfar serve photos.index` starts them. Extra `serve`.

No data of requests are stored, except for labels that are marked as wrong, and for items where writes are allowed.
"""

from .app import make_app
from .collection import Collection
from .guard import Limits
from .marks import WrongLabels
from .opening import open_app

__all__ = ["Collection", "Limits", "WrongLabels", "make_app", "open_app"]
