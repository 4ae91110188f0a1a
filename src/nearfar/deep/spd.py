"""The old name of `nearfar.deep.networks.spd`."""

from ..deprecation import moved_module

__getattr__ = moved_module(__name__, "nearfar.deep.networks.spd")
