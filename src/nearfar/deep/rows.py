"""The old name of `nearfar.deep.pairwise.comparison`."""

from ..deprecation import moved_module

__getattr__ = moved_module(__name__, "nearfar.deep.pairwise.comparison")
