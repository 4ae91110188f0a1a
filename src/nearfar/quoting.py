"""Values and counts as text: quoted values that are cut where they are long, nouns in singular or plural, digits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["count_of", "quoted", "shorten", "significant", "without_folders"]

MAX_QUOTED_LENGTH = 60
"""Maximum number of characters of a value in a message."""

PATH = 200
"""Maximum number of characters of a path in a message. Most paths are shorter; systems allow 4,096."""

FOLDERS = re.compile(r"(?<![\w./~\\-])(?:~|[A-Za-z]:)?[/\\](?:[^/\\\s'\"(),;]+[/\\])+(?=[^/\\\s])")
"""The folders of an absolute path in a text: /home/me/ of /home/me/photos, C:\\data\\ of C:\\data\\rows.csv."""


def without_folders(value: Any) -> Any:
    """Return a text, or the texts in a mapping or list, with absolute paths cut to the name at their end.

    What is given to others must not tell where files lie on a machine. Relative paths and addresses stay as they are.

    >>> without_folders("data: /home/me/photos, runs/a, https://hub/owner/name")
    'data: photos, runs/a, https://hub/owner/name'
    >>> without_folders({"data": "/home/my name/rows.csv", "trunk": "transformers:/models/clip(pool='cls')"})
    {'data': 'rows.csv', 'trunk': "transformers:clip(pool='cls')"}
    """
    if isinstance(value, Mapping):
        return {name: without_folders(part) for name, part in value.items()}
    if isinstance(value, list):
        return [without_folders(part) for part in value]
    if not isinstance(value, str):
        return value
    if (
        re.match(r"~?/|[A-Za-z]:[/\\]", value) and "\n" not in value and ", " not in value
    ):  # a path alone may have spaces
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return FOLDERS.sub("", value)


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
    >>> count_of(10, "batch"), count_of(2, "epoch"), count_of(2, "query", "queries")
    ('10 batches', '2 epochs', '2 queries')
    """
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "sh", "tch")) else "s"
    return f"{number:,} {plural or noun + ending}"


def significant(value: float, digits: int) -> str:
    """Return a number with this many significant digits, including zeros at the end, so that numbers of a list align.

    Examples
    --------
    >>> significant(0.76, 3), significant(0.0345, 3), significant(12.5, 3), significant(120.4, 3), significant(4321, 3)
    ('0.760', '0.0345', '12.5', '120', '4321')
    """
    if 10 ** (digits - 1) <= abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".rstrip(".")
