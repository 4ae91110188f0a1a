"""What a command does to data from end to end, as one call: fit, score, compare, report, find suspects, adapt.

>>> from nearfar import workflows
>>> print(workflows.evaluate("features.npz").text)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOMES = {
    "adapt": "adapting",
    "compare": "comparing",
    "describe": "listing",
    "diagnosis": "diagnosing",
    "evaluate": "evaluating",
    "fit": "fitting",
    "report": "reporting",
    "suspects": "suspecting",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
