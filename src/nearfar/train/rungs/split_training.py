"""The trainings of a ladder: on the items that a split does not hold out; then the others are embedded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...data import Dataset, Task
from ...data.readers.in_memory import GIVEN
from ...deep.networks.embedder import Embedder
from ...numerics.types import Bools
from ..config import TrainConfig
from ..features import Floats, all_rows, embed, sizes_of
from ..interrupts import Interrupts
from ..loop import Loop
from ..network import Trainable
from ..run import RunFolder
from ..setup import build
from ..start import start_from_whitening
from ..timing.expected_work import ExpectedWork
from ..trainer import TrainerInMemory
from ..watchers import Watcher
from ..weight_averages import Averages
from .frozen import KeptStage
from .rung_settings import stage_config


def trained_embeddings(
    config: TrainConfig,
    items: Dataset,
    out: Bools,
    start: Path | None = None,
    *,
    watchers: Sequence[Watcher] = (),
    features: Dataset | None = None,
) -> Floats:
    """Train on the items that are not held out, and return the embeddings of those that are.

    The embedding layer starts from a whitening of the `features` of all items, if they are given, instead of computing
    them again.
    """
    known = None
    if features is not None and config.embedding_start == "whitening":
        known = features.subset(~out)
        config = config.replace(embedding_start="random")
    with Interrupts() as interrupts:
        loop = _loop_of(items.subset(~out), config, start)
        if known is not None:
            start_from_whitening(loop.trainable.embedder, all_rows(known), known.labels)
        return _train_and_embed(loop, items.subset(out), interrupts, watchers)


def stage_embeddings(
    config: TrainConfig,
    stage: KeptStage,
    features: Dataset,
    out: Bools,
    start: Path | None = None,
    *,
    watchers: Sequence[Watcher] = (),
) -> Floats:
    """Train a copy of the last stage, and a layer behind it, in the same way."""
    settings = stage_config(config)
    known = features.subset(~out)
    with Interrupts() as interrupts:
        loop = _loop_of(stage.items.subset(~out), settings, start)
        # the loop has a layer for activations; here the last stage comes before it
        embedder = Embedder(deepcopy(stage.network), settings.embedding_dim, freeze_bn=True)
        start_from_whitening(embedder, all_rows(known), known.labels)
        objective = loop.trainable.objective
        loop = replace(
            loop,
            trainable=Trainable(embedder, objective),
            averages=Averages(embedder, objective, settings.ema),
        )
        return _train_and_embed(loop, stage.items.subset(out), interrupts, watchers)


def _loop_of(train: Dataset, config: TrainConfig, start: Path | None) -> Loop:
    """Return a training on some items, without a test."""
    task = Task(train.name, train, validation=None, test=train, gallery=None, protocol=GIVEN)
    return build(config, start, given=task)


def _train_and_embed(loop: Loop, others: Dataset, interrupts: Interrupts, watchers: Sequence[Watcher]) -> Floats:
    """Run a training, and return the embeddings of other items, (n, d)."""
    with TemporaryDirectory(prefix="nearfar-") as path:
        TrainerInMemory(loop, RunFolder(path), interrupts, watchers=watchers).run()
        with loop.averages.in_place():
            return embed(loop.trainable.embedder, others, **sizes_of(loop.config))


class BatchCounter(Watcher):
    """Counts the batches of a rung that trains as work that is done."""

    def __init__(self, work: ExpectedWork, rung: str) -> None:
        self.work = work
        self.rung = rung

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        self.work.advance(self.rung)
