"""Not supported: importing it says what to use instead."""

from ..absent import refuse_module
from . import MISSING

refuse_module(__package__, MISSING, "logging_presets")
