"""Text on an output whose encoding need not have all of its signs."""

from __future__ import annotations

import codecs

WRITABLE = "nearfar-writable"
"""The name of `escaped` among Python's handlers of encoding errors."""


def escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for text that the encoding lacks: bytes of a name that is not UTF-8, or escapes."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error(WRITABLE, escaped)
