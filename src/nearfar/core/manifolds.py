"""The old name of `nearfar.numerics.manifolds`."""

from ..deprecation import moved_module

__getattr__ = moved_module(__name__, "nearfar.numerics.manifolds")
