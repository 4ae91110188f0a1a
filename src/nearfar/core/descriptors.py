"""The old name of `nearfar.numerics.descriptors`."""

from ..deprecation import moved_module

__getattr__ = moved_module(__name__, "nearfar.numerics.descriptors")
