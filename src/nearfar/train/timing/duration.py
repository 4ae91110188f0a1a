"""Estimate of the duration of a run, from the times of its first batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...data.readers.in_memory import GIVEN
from ...quoting import count_of

if TYPE_CHECKING:
    from ..config import TrainConfig
    from ..loop import Loop

TIMED_BATCHES = 5
"""Minimum number of batches that are timed, without the first of an epoch, which waits for the data."""

TIMED_SECONDS = 2.0
"""Seconds for which batches are timed, unless `ENOUGH_BATCHES` were timed before."""

ENOUGH_BATCHES = 50

FEW_STEPS = 3
"""Epochs with fewer steps are timed as a whole, because their first batches take most of the time."""

SHORT_RUN = 10.0
"""Seconds of a run below which no estimate is printed."""

FORWARD = 1 / 3
"""Share of the time of a batch that the forward pass takes; the backward pass has twice as many operations."""


class RunTimer:
    """Times the batches of a run, and estimates once how long the rest will take.

    Parameters
    ----------
    steps, epochs : int
        Length of the run.
    done : int
        Number of steps before the run was resumed.
    evaluation : float
        Time of the evaluation after an epoch, in units of a step.
    after : float
        Time of the comparison with cheaper models and of the scores after the last epoch, in the same units.
    from_epoch : int
        First epoch to time, counted from 0; earlier ones may train the embedding layer only, and are faster.
    most : bool
        Whether the run may end earlier.
    kept : str
        What Ctrl-C keeps; empty if it keeps nothing.
    """

    def __init__(
        self,
        steps: int,
        epochs: int,
        done: int = 0,
        *,
        evaluation: float = 0.0,
        after: float = 0.0,
        from_epoch: int = 0,
        most: bool = False,
        kept: str = "the best",
    ) -> None:
        self.steps = steps
        self.epochs = epochs
        self.done = done
        self.whole = steps < FEW_STEPS * epochs  # short epochs are timed as a whole, including evaluations
        self.evaluation = 0.0 if self.whole else evaluation
        self.after = after
        self.from_epoch = from_epoch
        self.most = most
        self.kept = kept
        self._last: float | None = None
        self._timed = 0
        self._seconds = 0.0
        self._estimated = False

    @classmethod
    def of(cls, loop: Loop, done: int = 0) -> RunTimer:
        """Create the timer of a run."""
        config = loop.config
        task = loop.data.task
        unseen = 0 if task.validation is None else len(task.validation)
        test = len(task.test) + (0 if task.gallery is None else len(task.gallery))
        evaluated = len(loop.data.seen) + (0 if loop.data.unseen is None else len(loop.data.unseen))
        if loop.data.unseen is None:
            kept = "the last"
        else:
            kept = "the best"
        freeze_epochs = config.freeze_epochs or 0
        return cls(
            loop.data.steps,
            config.epochs,
            done,
            evaluation=FORWARD * evaluated / config.batch_size / config.eval_every,
            after=FORWARD * items_after(config, len(task.train), unseen, test) / config.batch_size,
            from_epoch=freeze_epochs if freeze_epochs < config.epochs else 0,
            most=config.patience is not None,
            kept="" if config.data == GIVEN else kept,
        )

    def on_step(self, step: int, epoch: int, now: float | None = None) -> str:
        """Count a finished batch, number `step` of the run. Return the line with the estimate once, otherwise ""."""
        if self._estimated or epoch < self.from_epoch:
            return ""
        self._count(time.perf_counter() if now is None else now)
        if not self.known:
            return ""
        self._estimated = True
        seconds = self.seconds(self.steps - step)
        if seconds < SHORT_RUN:
            return ""
        if self.done:
            length = f"{self.steps - step:,} of the {self.steps:,} steps of {self.epochs} epochs are left"
        else:
            length = self.length()
        kept = f"; Ctrl-C keeps {self.kept}" if self.kept else ""
        return f"{self.about(seconds)}: {length}{kept}"

    def on_epoch(self) -> None:
        """Exclude the time between two epochs."""
        if not self.whole:
            self._last = None

    @property
    def known(self) -> bool:
        """Whether enough batches were timed for an estimate."""
        enough = self._timed >= TIMED_BATCHES and self._seconds >= TIMED_SECONDS
        return enough or self._timed >= ENOUGH_BATCHES

    def seconds(self, steps: int) -> float:
        """Return how long the given number of steps takes, including evaluations, and what follows."""
        per_step = self._seconds / self._timed
        per_epoch = self.steps / self.epochs
        return per_step * (steps * (1 + self.evaluation / per_epoch) + self.after)

    def about(self, seconds: float) -> str:
        """Return how long the run takes, as text."""
        return f"{'at most ' if self.most else ''}about {duration(seconds)}"

    def length(self) -> str:
        """Return the length of the run in epochs and steps, as text."""
        return f"{count_of(self.epochs, 'epoch')} of {count_of(round(self.steps / self.epochs), 'step')}"

    def _count(self, now: float) -> None:
        if self._last is not None:
            self._timed += 1
            self._seconds += now - self._last
        self._last = now


def items_after(config: TrainConfig, train: int, unseen: int, test: int) -> int:
    """Return how many items are embedded after the last epoch, to choose a model and for the scores.

    With a pretrained trunk, there are also the features before the training, and interpolated weights.
    """
    if config.data == GIVEN:  # of an estimator, which scores nothing
        return 0
    if config.starts_pretrained:
        return 2 * train + 6 * unseen + 2 * test
    return train + 2 * unseen + 2 * test


def duration(seconds: float) -> str:
    """Return a duration in its most natural unit.

    >>> duration(34), duration(200), duration(5 * 3600), duration(3 * 86400)
    ('35 s', '3 min', '5 h', '3 days')
    """
    if seconds < 90:
        return f"{5 * max(1, round(seconds / 5))} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{round(minutes)} min"
    hours = minutes / 60
    if hours < 10:
        return f"{hours:.1f}".removesuffix(".0") + " h"
    if hours < 48:
        return f"{round(hours)} h"
    return f"{round(hours / 24)} days"
