"""Text for an output: without control characters of data, and where the encoding lacks some of its characters."""

from __future__ import annotations

import codecs
import re
from typing import Any

WRITABLE = "nearfar-writable"
"""Name under which `escaped` is registered with Python's codecs."""


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the direction of its text, without line breaks and tabs."""


def say(*texts: object, **how: Any) -> None:
    """Print texts, which may contain names and labels of data, without control characters."""
    print(*(printable(str(text)) for text in texts), **how)


def printable(text: str) -> str:
    r"""Return a text with escapes for control characters, with which names in data could rewrite a terminal.

    >>> printable("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters that the encoding lacks: by the bytes of a file name that is not UTF-8, or by escapes."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error(WRITABLE, escaped)
