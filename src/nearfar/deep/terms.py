"""The old name of `nearfar.deep.objective.terms`."""

from ..moved import forward

__getattr__ = forward(__name__, "nearfar.deep.objective.terms")
