"""Deprecated location of names that `nearfar.deep` exports."""

from ..deprecation import moved_module

__getattr__ = moved_module(__name__, "nearfar.deep", "nearfar.deep.networks.spd")
