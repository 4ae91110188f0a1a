"""Teachers of a run: other runs, whose embeddings of the training items its objective compares with."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ..data import Dataset
from ..data.open import resolve_source
from ..deep.memory.distill import Distill
from .config import TrainConfig, TrainError


def ask_teachers(objective: nn.Module, items: Dataset, config: TrainConfig, start: Path | None) -> None:
    """Give every `Distill` of an objective the embeddings that its teacher gives the training items.

    Raises
    ------
    TrainError
        If there is no such run, it is damaged, or takes items of another kind.
    TrustError
        If its trunk is of a module that is not trusted.
    """
    for part in objective.modules():
        if isinstance(part, Distill) and part.run is not None:
            from .estimator import embed_run  # for start-up time: it loads scikit-learn

            try:
                rows = embed_run(resolve_source(part.run, start), items, trust=config.modules())
            except TrainError as error:
                raise TrainError(f"Distill: teacher: {error}") from error
            part.learn(rows)
