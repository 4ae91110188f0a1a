"""Modules that have moved: their old names work for two minor releases, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def forward(old: str, new: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that takes every name from the module's new place."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(import_module(new), name)
        warnings.warn(f"{old} is now {new}; the old name works until 0.3", FutureWarning, stacklevel=2)
        return value

    return find
