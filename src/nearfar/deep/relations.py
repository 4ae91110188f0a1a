"""Deprecated location of names that `nearfar.deep` exports."""

from ..deprecation import forward_to_new_modules

__getattr__ = forward_to_new_modules(__name__, "nearfar.deep", "nearfar.deep.objective.relations")
