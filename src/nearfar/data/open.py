"""Open data by one string."""

from __future__ import annotations

from collections.abc import Sequence

from .dataset import Dataset, Task


def open_dataset(
    source: str,
    *,
    classes: Sequence[str] = (),
    image_size: int | None = None,
    skip_bad: bool = False,
    seed: int = 0,
) -> Dataset:
    """Open everything that `source` holds as one set."""
    raise NotImplementedError


def open_task(
    source: str,
    *,
    test: str | None = None,
    test_classes: Sequence[str] = (),
    validation: float = 0.15,
    seed: int = 0,
    image_size: int | None = None,
    skip_bad: bool = False,
) -> Task:
    """Open `source` as a zero-shot retrieval task."""
    raise NotImplementedError
