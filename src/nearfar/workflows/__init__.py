"""What a command does to data from end to end, as one call: train, fit, score, compare, report, adapt, export.

>>> from nearfar import workflows
>>> print(workflows.evaluate("features.npz").text)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from ..lazy_names import lazy_name

HOMES = {
    "adapt": "adapting",
    "add_to_samples": "exported_samples",
    "compare": "comparing",
    "describe": "listing",
    "diagnosis": "diagnosing",
    "duplicates": "near_duplicates",
    "embed": "embedding",
    "evaluate": "evaluating",
    "export": "exporting",
    "fit": "fitting",
    "groups": "grouping",
    "label_next": "labeling",
    "report": "reporting",
    "suspects": "suspecting",
    "train_and_score": "training",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    return lazy_name(__name__, HOMES, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
