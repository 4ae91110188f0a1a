"""Classes and functions of a user's own modules, which a text names: ``package.module:name``."""

from __future__ import annotations

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
