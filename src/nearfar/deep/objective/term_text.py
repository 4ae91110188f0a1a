"""Weighted sums as text."""

from __future__ import annotations

from collections.abc import Sequence


def sum_text(parts: Sequence[tuple[float, object]]) -> str:
    """Return the text of a weighted sum, whose numbers are read back as they are.

    >>> sum_text([(1.0, "x"), (-0.5, "y"), (1 / 3, "z")])
    "'x' + -0.5*'y' + 0.3333333333333333*'z'"
    """
    return " + ".join(f"{_factor(weight)}{part!r}" for weight, part in parts)


def _factor(weight: float) -> str:
    if weight == 1:
        return ""
    short = f"{weight:g}"
    return f"{short}*" if float(short) == weight else f"{weight!r}*"
