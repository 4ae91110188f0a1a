"""What came, in an error: short enough to be read, whatever came."""

from __future__ import annotations

from typing import Any

__all__ = ["in_brief", "quoted"]

MAX_QUOTED_LENGTH = 60
"""Characters of one value that an error shows."""

PATH = 200
"""Characters of a path that an error shows: most are shorter, and the longest that systems take have 4,096."""


def quoted(value: Any, most: int = MAX_QUOTED_LENGTH) -> str:
    """Return the `repr` of a value, cut where it is long.

    Parameters
    ----------
    value : object
        What a user or a file gave.
    most : int
        Characters that are shown at most, beside the dots that stand for the rest.

    Examples
    --------
    >>> quoted("cat"), quoted("x" * 100, most=8)
    ("'cat'", "'xxxxxxxx...'")
    """
    if isinstance(value, str):
        return repr(in_brief(value, most))
    try:
        return in_brief(repr(value), most)
    except (RecursionError, ValueError):  # nested without end, or an integer of more digits than Python prints
        return f"a very large {type(value).__name__}"


def in_brief(text: str, most: int = MAX_QUOTED_LENGTH) -> str:
    """Return a text, cut where it is long.

    Examples
    --------
    >>> in_brief("a name of a file", most=6)
    'a name...'
    """
    return text if len(text) <= most else f"{text[:most]}..."
