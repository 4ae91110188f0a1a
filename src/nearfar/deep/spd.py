"""The old name of `nearfar.deep.networks.spd`."""

from ..moved import forward

__getattr__ = forward(__name__, "nearfar.deep.networks.spd")
