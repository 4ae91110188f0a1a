"""The old name of `nearfar.numerics.descriptors`."""

from ..deprecation import forward_to_new_modules

__getattr__ = forward_to_new_modules(__name__, "nearfar.numerics.descriptors")
