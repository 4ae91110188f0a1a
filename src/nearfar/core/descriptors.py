"""The old name of `nearfar.numerics.descriptors`."""

from ..moved import forward

__getattr__ = forward(__name__, "nearfar.numerics.descriptors")
