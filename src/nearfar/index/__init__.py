"""Embeddings kept with their names and labels: searched, grown, cut, saved.

>>> from nearfar.index import Index
>>> index = Index([[1.0, 0.0], [0.0, 1.0]], names=["east", "north"])
>>> index.names[index.search([[0.9, 0.1]], k=1).positions]
array([['east']], dtype='<U5')
"""

from ..neighbors.near_pairs import Groups, NearPairs
from .index import Found, Index

__all__ = ["Found", "Groups", "Index", "NearPairs"]
