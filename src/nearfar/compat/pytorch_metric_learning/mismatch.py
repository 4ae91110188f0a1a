"""The error of calls that do not fit: the other library raises some of them as ValueError, others as AssertionError."""

from __future__ import annotations


class Mismatch(ValueError, AssertionError):
    """A setting or an input that a method does not take; a script may catch it as either of the two."""
