"""Old names that work for two minor releases, with a warning: of modules that moved and of settings."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

UNTIL = "0.4"
"""The release without the old names: they are deprecated in 0.2, and work in two minor releases, 0.2 and 0.3."""

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


def forward_to_new_modules(old: str, *new: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that takes every name from the first new place that has it."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        for place in new:
            module = import_module(place)
            if hasattr(module, name):
                detail = f"{old}.{name} is now {place}.{name}; the old name works until {UNTIL}"
                warnings.warn(detail, FutureWarning, stacklevel=2)
                return getattr(module, name)
        raise AttributeError(f"module {old!r} has no attribute {name!r}")

    return find


def renamed_settings(**present: str) -> Callable[[AnyCallable], AnyCallable]:
    """Let a function take settings by their old names: ``@renamed_settings(old="present")``."""

    def decorated(function: AnyCallable) -> AnyCallable:
        @functools.wraps(function)
        def called(*args: Any, **settings: Any) -> Any:
            for old, new in present.items():
                if old in settings:
                    if new in settings:
                        raise TypeError(f"{old} is the old name of {new}; both were given")
                    settings[new] = settings.pop(old)
                    warnings.warn(
                        f"the setting {old} is now {new}; the old name works until {UNTIL}", FutureWarning, stacklevel=2
                    )
            return function(*args, **settings)

        vars(called)["present_names"] = present
        return cast("AnyCallable", called)

    return decorated


def current_name(kind: Any, setting: str) -> str:
    """Return the present name of a setting of a class, where it was given by its old one."""
    names: dict[str, str] = getattr(getattr(kind, "__init__", None), "present_names", {})
    return names.get(setting, setting)
