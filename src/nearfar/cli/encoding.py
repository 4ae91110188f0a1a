"""Text for an output whose encoding may lack some of its characters."""

from __future__ import annotations

import codecs

WRITABLE = "nearfar-writable"
"""Name under which `escaped` is registered with Python's codecs."""


def escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters that the encoding lacks: by the bytes of a file name that is not UTF-8, or by escapes."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error(WRITABLE, escaped)
