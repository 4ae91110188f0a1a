"""How long a run will take, told after a few of its batches were timed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..data.readers.in_memory import GIVEN

if TYPE_CHECKING:
    from .setup import Parts

TIMED_BATCHES = 5
"""Batches that are timed at least; the first of an epoch never is, for it waits for what is read."""

TIMED_SECONDS = 2.0
"""They are timed for so long, unless they are `ENOUGH_BATCHES` before."""

ENOUGH_BATCHES = 50

FEW_STEPS = 3
"""Epochs of fewer steps are timed as a whole: their first batches are most of them."""

SHORT_RUN = 10.0
"""Seconds of a run of which nothing is said beforehand."""

FORWARD = 1 / 3
"""Of the time of a batch, what embedding one takes: a step has a backward pass of twice the operations besides."""


class RunTimer:
    """Times the batches of a run as they are done, and says once how long the rest will take.

    Parameters
    ----------
    steps, epochs : int
        Length of the run.
    done : int
        Steps that were done before it was resumed.
    evaluation : float
        What the evaluation after an epoch takes, in steps.
    from_epoch : int
        The first epoch, from 0, that is as most are: those before may leave the trunk as it is.
    most : bool
        Whether the run may end earlier.
    kept : str
        What Ctrl-C keeps; empty where it keeps nothing.
    """

    def __init__(
        self,
        steps: int,
        epochs: int,
        done: int = 0,
        *,
        evaluation: float = 0.0,
        from_epoch: int = 0,
        most: bool = False,
        kept: str = "the best",
    ) -> None:
        self.steps = steps
        self.epochs = epochs
        self.done = done
        self.whole = steps < FEW_STEPS * epochs  # time whole epochs, evaluations and all, where they are so short
        self.evaluation = 0.0 if self.whole else evaluation
        self.from_epoch = from_epoch
        self.most = most
        self.kept = kept
        self._last: float | None = None
        self._timed = 0
        self._seconds = 0.0
        self._told = False

    @classmethod
    def of(cls, parts: Parts, done: int = 0) -> RunTimer:
        """Return the timer of a run whose parts are built."""
        config = parts.config
        evaluated = len(parts.seen) + (0 if parts.unseen is None else len(parts.unseen))
        if parts.unseen is None:
            kept = "the last"
        else:
            kept = "the best"
        freeze_epochs = config.freeze_epochs or 0
        return cls(
            parts.steps,
            config.epochs,
            done,
            evaluation=FORWARD * evaluated / config.batch_size / config.eval_every,
            from_epoch=freeze_epochs if freeze_epochs < config.epochs else 0,
            most=config.patience is not None,
            kept="" if config.data == GIVEN else kept,
        )

    def on_step(self, step: int, epoch: int, now: float | None = None) -> str:
        """Count a batch that is done, the `step`-th of the run; returns the line once it is known, else nothing."""
        if self._told or epoch < self.from_epoch:
            return ""
        self._count(time.perf_counter() if now is None else now)
        if not self.known:
            return ""
        self._told = True
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
        """Leave out of the times what lies between two epochs."""
        if not self.whole:
            self._last = None

    @property
    def known(self) -> bool:
        """Whether enough batches were timed."""
        enough = self._timed >= TIMED_BATCHES and self._seconds >= TIMED_SECONDS
        return enough or self._timed >= ENOUGH_BATCHES

    def seconds(self, steps: int) -> float:
        """Return how long the given number of steps takes, including evaluations."""
        per_step = self._seconds / self._timed
        per_epoch = self.steps / self.epochs
        return per_step * steps * (1 + self.evaluation / per_epoch)

    def about(self, seconds: float) -> str:
        """Say how long the run takes."""
        return f"{'at most ' if self.most else ''}about {duration(seconds)}"

    def length(self) -> str:
        """Say how long the run is, in epochs and steps."""
        epochs = f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}"
        return f"{epochs} of {round(self.steps / self.epochs):,} steps"

    def _count(self, now: float) -> None:
        if self._last is not None:
            self._timed += 1
            self._seconds += now - self._last
        self._last = now


def duration(seconds: float) -> str:
    """Return a time in the unit in which one would say it.

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
