"""Classes and functions of a user's own modules, which a text names: ``package.module:name(option=value)``."""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from typing import Any

LIBRARIES = (
    *sys.stdlib_module_names,
    "torch",
    "numpy",
    "scipy",
    "sklearn",
    "joblib",
    "accelerate",
    "pandas",
    "pip",
    "setuptools",
)
"""What these hold is never a user's own, even if a run from elsewhere names it."""


def is_library(module: str) -> bool:
    """Return whether a module belongs to Python or to a common library."""
    return module.partition(".")[0] in LIBRARIES


def import_attribute(module: str, attribute: str) -> Any:
    """Return what a module calls so.

    Raises
    ------
    ImportError
        If there is no such module, or it holds nothing of the name; the message says what may help.
    """
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        hint = "; the folder that holds it must be on PYTHONPATH" if absent else ""
        raise ImportError(f"{module}:{attribute}: {error}{hint}") from error


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(option=value, ...)``; values are literals.

    Raises
    ------
    ValueError
        If the text is anything else.

    Examples
    --------
    >>> parse_call("conv4(width=32)")
    ('conv4', {'width': 32})
    """
    found = re.fullmatch(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if found is None:
        raise ValueError("expected a name, or a name with options: name(option=value)")
    try:
        call = ast.parse(f"f({found[2] or ''})", mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("not one call")
        if call.args or not all(word.arg for word in call.keywords):
            raise ValueError("not keywords")
        return found[1], {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError("options are written name=value, with literal values") from error
