"""The old name of `nearfar.numerics.manifolds`."""

from ..moved import forward

__getattr__ = forward(__name__, "nearfar.numerics.manifolds")
