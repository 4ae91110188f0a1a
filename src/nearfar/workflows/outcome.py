"""What `nearfar evaluate` found: the text that it prints, and the same scores as plain data for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """Scores as text and as plain data: `protocol`, `scores`, and other scores by their names."""

    text: str
    data: dict[str, Any]


def as_json(data: Mapping[str, Any]) -> str:
    """Return data as JSON; numbers that are not finite, such as scores that are undefined, become null."""
    return json.dumps(_plain(data), indent=2, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
