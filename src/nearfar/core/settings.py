"""Settings that came as text on a command line, held against what a method says it takes."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

NUMBERS = {"int": "a whole number", "float": "a number"}


def misfit(parameter: Parameter, value: Any) -> str:
    """Say what is wrong with text or a collection where a number is asked for; nothing for whatever else.

    >>> misfit(Parameter("factor", Parameter.KEYWORD_ONLY, annotation="float"), "big")
    "factor: expected a number, got 'big'"
    """
    kinds = {kind.strip() for kind in str(parameter.annotation).split("|")} - {"None"}
    if not kinds or not kinds <= NUMBERS.keys() or not isinstance(value, (str, list, tuple, dict)):
        return ""
    expected = NUMBERS["float" if "float" in kinds else "int"]
    return f"{parameter.name}: expected {expected}, got {value!r}"
