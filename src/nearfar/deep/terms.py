"""The old name of `nearfar.deep.objective.terms`."""

from ..deprecation import moved_module

__getattr__ = moved_module(__name__, "nearfar.deep.objective.terms")
