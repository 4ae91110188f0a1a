"""Crop boxes of images in the columns `x1`, `y1`, `x2` and `y2` of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...quoting import quoted
from ..dataset import DataError
from ..decode import Box
from .shown_tables import shown

SIDES = ("x1", "y1", "x2", "y2")
MAX_COORDINATE = 2**31 - 1  # pixels; no image is larger


def boxes_in(path: Path, table: Mapping[str, Sequence[Any]]) -> list[Box | None] | None:
    """Return the crop box of every row, None for the whole image; None if the table has no crop boxes."""
    given = [side for side in SIDES if side in table]
    if not given:
        return None
    if len(given) < 4:
        missing = ", ".join(f"{side} (or {side[0]}_{side[1]})" for side in SIDES if side not in given)
        raise DataError(f"{path}: a crop box needs the columns {', '.join(SIDES)}; {missing} missing; {shown(table)}")
    return [_box(path, i, [table[side][i] for side in SIDES]) for i in range(len(table["path"]))]


def _box(path: Path, row: int, values: Sequence[Any]) -> Box | None:
    if all(str(value).lower() in ("", "none", "nan") for value in values):
        return None
    try:
        left, top, right, bottom = (_pixel(value) for value in values)
    except (TypeError, ValueError):
        raise DataError(f"{path}: row {row + 1} has the crop box {_shown_box(values)}; expected four numbers") from None
    except OverflowError:
        expected = f"four numbers of pixels, at most {MAX_COORDINATE:,}"
        raise DataError(f"{path}: row {row + 1} has the crop box {_shown_box(values)}; expected {expected}") from None
    if left >= right or top >= bottom:
        expected = "x1 < x2 and y1 < y2"
        if all(0 <= float(value) <= 1 for value in values):
            expected = "pixels, not shares of the sides of the image"
        raise DataError(f"{path}: row {row + 1} has the crop box {_shown_box(values)}; expected {expected}")
    return left, top, right, bottom


def _pixel(value: Any) -> int:
    number = float(value)
    if abs(number) > MAX_COORDINATE:
        raise OverflowError
    return round(number)


def _shown_box(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(quoted, values))}]"
