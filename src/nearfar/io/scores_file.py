"""What `scores.json` in the folder of a run holds: read strictly, since folders come from elsewhere too."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from ..quoting import PATH, in_brief
from .untrusted import read_json

Number = float | None
Part = float | list[Number] | dict[str, float | list[Number] | None] | None
Score = float | str | list[Number] | dict[str, Part] | None


class ScoresFile(msgspec.Struct, kw_only=True):
    """The scores of one run on its test classes.

    Attributes
    ----------
    protocol, split : dataset, classes, items and what chose the checkpoint; the same without the latter
    scores, raw : of the embeddings, and of the items themselves
    remarks : sentences on what stands out
    checkpoint : which one was scored, at which epoch and step, and what it scored on validation classes
    """

    protocol: str
    scores: dict[str, Score]
    raw: dict[str, Score]
    split: str = ""
    remarks: list[Any] | None = None  # for readers: what is damaged here costs remarks only
    checkpoint: dict[str, float | str | None] = {}


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
        why = in_brief(str(error), PATH)
        raise ValueError(f"{os.fspath(path)}: damaged ({why}); remove it, and the run is scored again") from error
    return content
