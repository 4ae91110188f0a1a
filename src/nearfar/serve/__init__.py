"""A page to search an index by picture, and its JSON API; `nearfar serve photos.index` starts it. Extra `serve`.

Nothing of a request is kept but the labels that are marked as wrong, in a table.
"""

from .app import Limits, make_app
from .collection import Collection
from .marks import WrongLabels

__all__ = ["Collection", "Limits", "WrongLabels", "make_app"]
