"""The content of `scores.json` in the folder of a run, read strictly, because folders may come from strangers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..quoting import PATH, shorten
from .untrusted import read_json

Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]  # exact as a float
Number = Whole | float | None
Part = Whole | float | list[Number] | dict[str, Whole | float | list[Number] | dict[str, Number] | None] | None
Score = Whole | float | str | list[Number] | dict[str, Part] | None


RAW = "raw inputs"
STANDARDIZED = "standardized inputs"
FROZEN = "features of the pretrained trunk"
"""What the scores of a run are compared with."""
CALIBRATED = "calibrated.json"
"""File in the folder of a run: what an export that computes in 8 bits cost, for the card."""


class ScoresFile(msgspec.Struct, kw_only=True):
    """The scores of one run on its test classes.

    Attributes
    ----------
    protocol, split : sentences on data set, classes, items and choice of the checkpoint; `split` omits the latter
    scores, raw : scores of the embeddings, and of the raw inputs
    images_to_texts : for pairs, scores of images that search texts; `scores` is then of texts, and `raw` is None
    frozen : scores of the features of the pretrained trunk before the training; None if there is none
    remarks : sentences on what was unusual
    checkpoint : which checkpoint was scored, its epoch and step, and its score on validation classes
    """

    protocol: str
    scores: dict[str, Score]
    raw: dict[str, Score] | None = None
    standardized: bool = False  # whether `raw` are scores of standardized columns
    images_to_texts: dict[str, Score] | None = None
    frozen: dict[str, Score] | None = None
    split: str = ""
    remarks: list[Any] | None = None  # only for display, so a damaged value is tolerated
    checkpoint: dict[str, float | str | None] = {}


def baseline_of(content: Mapping[str, Any], raw_name: str = RAW) -> tuple[str, Any]:
    """Return what scores have to be compared with, and its scores: the pretrained trunk's features, or the raw inputs.

    `raw_name` is what raw inputs are called whose columns are not standardized. Without either, the scores are None.
    """
    if content.get("frozen") is not None:
        return FROZEN, content["frozen"]
    if content.get("standardized"):
        return STANDARDIZED, content.get("raw")
    return raw_name, content.get("raw")


def read_scores(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the scores that `evaluate_run` wrote.

    Raises
    ------
    ValueError
        If the file is damaged.
    OSError
        If the file does not exist, or is not a regular file.
    """
    try:
        content: dict[str, Any] = msgspec.to_builtins(msgspec.convert(read_json(path), ScoresFile))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {damaged(error)}") from error
    return content


def damaged(error: ValueError) -> str:
    """Return the part of a message that says why the scores of a run are damaged, and what to do."""
    return f"damaged ({shorten(str(error), PATH)}); remove the file, and the run is scored again"
