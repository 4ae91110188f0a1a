"""Not supported: importing it says what to use instead."""

from . import MISSING
from .absent import refuse_module

refuse_module(__package__, MISSING, "testers")
