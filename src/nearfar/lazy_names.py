"""Public names of a package whose modules are imported when a name is first used, because torch takes long."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def lazy_name(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Return what a package calls `name`, from the module in it that `homes` gives; for its ``__getattr__``.

    >>> lazy_name("nearfar.numerics", {"whiten": "whitening"}, "bleach")
    Traceback (most recent call last):
    AttributeError: module 'nearfar.numerics' has no attribute 'bleach'
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(f"{package}.{homes[name]}"), name)
