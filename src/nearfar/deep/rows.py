"""The old name of `nearfar.deep.pairwise.comparison`."""

from ..moved import forward

__getattr__ = forward(__name__, "nearfar.deep.pairwise.comparison")
