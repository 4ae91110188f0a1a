"""The old name of `nearfar.numerics.manifolds`."""

from ..deprecation import forward_to_new_modules

__getattr__ = forward_to_new_modules(__name__, "nearfar.numerics.manifolds")
