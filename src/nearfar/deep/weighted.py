"""Weighted sums as text."""

from __future__ import annotations

from collections.abc import Sequence


def sum_text(parts: Sequence[tuple[float, object]]) -> str:
    """Return the text of a weighted sum, whose numbers are read back as they are.

    >>> sum_text([(1.0, "x"), (-0.5, "y"), (1 / 3, "z")])
    "'x' - 0.5*'y' + 0.3333333333333333*'z'"
    """
    text = ""
    for weight, part in parts:
        size = abs(weight)
        short = f"{size:g}"
        number = "" if size == 1 else f"{short if float(short) == size else repr(size)}*"
        sign = ("-" if weight < 0 else "") if not text else (" - " if weight < 0 else " + ")
        text += f"{sign}{number}{part!r}"
    return text
