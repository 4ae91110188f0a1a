"""What `scores.json` in the folder of a run holds: read strictly, since folders come from elsewhere too."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec

from ..quoting import PATH, in_brief
from .untrusted import read_json

Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]  # which a float can hold
Number = Whole | float | None
Part = Whole | float | list[Number] | dict[str, Whole | float | list[Number] | None] | None
Score = Whole | float | str | list[Number] | dict[str, Part] | None


class ScoresFile(msgspec.Struct, kw_only=True):
    """The scores of one run on its test classes.

    Attributes
    ----------
    protocol, split : dataset, classes, items and what chose the checkpoint; the same without the latter
    scores, raw : of the embeddings, and of the items themselves
    images_to_texts : of images that search texts, where items are pairs; `scores` are then the other way, without `raw`
    remarks : sentences on what stands out
    checkpoint : which one was scored, at which epoch and step, and what it scored on validation classes
    """

    protocol: str
    scores: dict[str, Score]
    raw: dict[str, Score] | None = None
    images_to_texts: dict[str, Score] | None = None
    split: str = ""
    remarks: list[Any] | None = None  # for readers: what is damaged here costs remarks only
    checkpoint: dict[str, float | str | None] = {}

    def __post_init__(self) -> None:
        if self.raw is None and self.images_to_texts is None:
            raise ValueError("Object missing required field `raw`")


def read_scores(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `evaluate_run` wrote.

    Raises
    ------
    ValueError
        It is damaged.
    OSError
        It is not there, or no regular file.
    """
    try:
        content: dict[str, Any] = msgspec.to_builtins(msgspec.convert(read_json(path), ScoresFile))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {damaged(error)}") from error
    return content


def damaged(error: ValueError) -> str:
    """Say what to do where the scores of a run are not what they should be."""
    return f"damaged ({in_brief(str(error), PATH)}); remove it, and the run is scored again"
