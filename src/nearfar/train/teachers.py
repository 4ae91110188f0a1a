"""Teachers of a run: other runs, whose embeddings of the training items its objective compares with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..data import Dataset
from ..data.open import resolve_source
from ..deep.memory.distill import Distill
from .config import TrainConfig, TrainError


def ask_teachers(terms: Iterable[Distill], items: Dataset, config: TrainConfig, start: Path | None) -> None:
    """Give terms of an objective the embeddings that their teachers give the training items.

    Raises
    ------
    TrainError
        If there is no such run, it is damaged, or takes items of another kind.
    TrustError
        If its trunk is of a module that is not trusted.
    """
    from .estimator import embed_run  # for start-up time: it loads scikit-learn

    for term in terms:
        if term.run is None:
            continue
        try:
            rows = embed_run(resolve_source(term.run, start), items, trust=config.modules())
        except TrainError as error:
            raise TrainError(f"Distill: teacher: {error}") from error
        term.learn(rows)
