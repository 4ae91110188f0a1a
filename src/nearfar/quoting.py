"""Values and counts in messages: quoted values that are cut where they are long, and nouns in singular or plural."""

from __future__ import annotations

from typing import Any

__all__ = ["count_of", "quoted", "shorten"]

MAX_QUOTED_LENGTH = 60
"""Maximum number of characters of a value in a message."""

PATH = 200
"""Maximum number of characters of a path in a message. Most paths are shorter; systems allow 4,096."""


def quoted(value: Any, most: int = MAX_QUOTED_LENGTH) -> str:
    """Return the `repr` of a value, shortened if it is long.

    Parameters
    ----------
    value : object
        Value from a user or a file.
    most : int
        Maximum number of characters, without the dots at the end of a shortened value.

    Examples
    --------
    >>> quoted("cat"), quoted("x" * 100, most=8)
    ("'cat'", "'xxxxxxxx...'")
    """
    if isinstance(value, str):
        return repr(shorten(value, most))
    try:
        return shorten(repr(value), most)
    except (RecursionError, ValueError):  # nested in itself, or an integer with more digits than Python prints
        return f"a very large {type(value).__name__}"


def shorten(text: str, most: int = MAX_QUOTED_LENGTH) -> str:
    """Return a text, shortened if it is long.

    Examples
    --------
    >>> shorten("a name of a file", most=6)
    'a name...'
    """
    return text if len(text) <= most else f"{text[:most]}..."


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in singular or plural; give the plural unless it ends in -s or -es.

    Examples
    --------
    >>> count_of(1, "training class"), count_of(3, "training class"), count_of(1200, "item")
    ('1 training class', '3 training classes', '1,200 items')
    >>> count_of(2, "query", "queries")
    '2 queries'
    """
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {plural or noun + ending}"
