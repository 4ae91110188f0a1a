"""Missing names of the other library: they can be imported, and raise an error with advice when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


class Absent:
    """Placeholder for a missing name."""

    advice = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse(type(self).__name__, self.advice)


def _refuse(name: str, advice: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not supported; {advice}")


def refuse_module(package: str, modules: Mapping[str, str], name: str) -> NoReturn:
    """Raise an ImportError that says what to use instead of a module; for other names, an AttributeError."""
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    advice = f"{modules[name]} (see docs/switching.md#what-is-missing)"
    raise ImportError(f"{package} has no {name}: {advice}", name=f"{package}.{name}")


def find(module: str, names: dict[str, str], name: str) -> type[Absent]:
    """Return a class that raises a NotImplementedError with the advice of `names`, or raise an AttributeError."""
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return type(name, (Absent,), {"advice": names[name]})
