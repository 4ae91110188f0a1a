"""Estimate of how long a run would take, from a few batches of a temporary run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any

from ..checkpoint import preserve_random_state
from ..config import TrainConfig
from ..interrupts import Interrupts
from ..run import RunFolder
from ..setup import build, checked
from ..trainer import Trainer
from ..watchers import Watcher
from .duration import SHORT_RUN, RunTimer


class EnoughTimed(Exception):
    """Enough batches were timed, so the temporary run can end."""


class Stopwatch(Watcher):
    """Ends a run as soon as its timer knows how long it takes."""

    def __init__(self, timer: RunTimer) -> None:
        self.timer = timer

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        self.timer.on_step(step, epoch)
        if self.timer.known:
            raise EnoughTimed

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        self.timer.on_epoch()


def forecast(config: TrainConfig) -> str:
    """Time a few batches of a temporary run, and return how long the whole run would take.

    Parameters
    ----------
    config : TrainConfig
        Settings, as for `train`.

    Returns
    -------
    str
        Such as "about 8 min: 20 epochs of 35 steps, with the trunk conv4 and SupConLoss() in batches of 128".

    Raises
    ------
    TrainError, or the ValueError of the part that is wrong
        As `train` does.
    """
    # time epochs that train all weights, as most do
    config = checked(config).replace(freeze_epochs=None, track=())
    with preserve_random_state(), TemporaryDirectory(prefix="nearfar-") as path:
        loop = build(config)
        timer = RunTimer.of(loop)
        with Interrupts() as interrupts:
            trainer = Trainer(loop, RunFolder(path), interrupts, watchers=[Stopwatch(timer)])
            with suppress(EnoughTimed):
                trainer.run()
    seconds = timer.seconds(loop.data.steps) if timer.known else 0.0  # a shorter run has ended before
    if seconds < SHORT_RUN:
        about = "a few seconds"
    else:
        about = timer.about(seconds)
    made = loop.config
    how = f"with the trunk {made.trunk} and {made.objective} in batches of {made.batch_size}"
    return f"{about}: {timer.length()}, {how}"
