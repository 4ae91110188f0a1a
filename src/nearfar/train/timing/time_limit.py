"""The minutes that a training may take, with all that belongs to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real

from ..config import TrainConfig, TrainError

MOST_SLOWDOWN = 4.0  # by which the time that is kept for the scores may grow


class TooFewMinutes(TrainError):
    """A training does not fit into its minutes.

    Attributes
    ----------
    untrained : TrainConfig or None
        Settings, with an image size, with which features that are not trained fit, which the run may keep instead.
    """

    def __init__(self, message: str, *, untrained: TrainConfig | None) -> None:
        super().__init__(message)
        self.untrained = untrained


class TimeLimit:
    """A number of minutes.

    Parameters
    ----------
    minutes : float
        Their number, above 0.
    clock : callable
        Function that returns the time in seconds.
    begun : float, optional
        Time from which the minutes count; by default, from now on.

    Raises
    ------
    TrainError
        If the number is not positive and finite.

    Examples
    --------
    >>> now = [0.0]
    >>> limit = TimeLimit(4, clock=lambda: now[0])
    >>> now[0] = 30.0
    >>> limit.seconds_left
    210.0
    """

    minutes: float
    clock: Callable[[], float]
    _end: float

    def __init__(
        self, minutes: float, clock: Callable[[], float] = time.perf_counter, begun: float | None = None
    ) -> None:
        if isinstance(minutes, bool) or not isinstance(minutes, Real) or not isfinite(minutes) or minutes <= 0:
            raise TrainError(f"minutes: expected a number above 0, such as 4 or 0.5, got {minutes!r}")
        self.minutes = float(minutes)
        self.clock = clock
        self._end = (clock() if begun is None else begun) + 60 * self.minutes

    @classmethod
    def of(cls, minutes: float | TimeLimit) -> TimeLimit:
        """Return a limit that has begun already, or one that begins now."""
        return minutes if isinstance(minutes, TimeLimit) else cls(minutes)

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, negative after it."""
        return self._end - self.clock()

    def __str__(self) -> str:
        return f"{self.minutes:g} minute{'' if self.minutes == 1 else 's'}"


@dataclass(frozen=True)
class TimePlan:
    """A training that ends in time.

    Attributes
    ----------
    config : TrainConfig
        Settings as they were given, with the number of batches, the image size and what depends on these.
    after : float
        Seconds that are kept for what follows after the last batch.
    sentence : str
        What was planned, in words.
    limit : TimeLimit
        The time.
    batch : float
        Seconds of a batch, as planned.
    frozen_sizes : dict
        Settings with which images become features of the pretrained trunk, if the training sees smaller images.
    """

    config: TrainConfig
    after: float
    sentence: str
    limit: TimeLimit
    batch: float = 0.0
    frozen_sizes: dict[str, int | None] = field(default_factory=dict)

    def slowdown(self, batch: float) -> float:
        """Return how many times slower the machine has become, from the seconds of a batch; at least 1."""
        return min(MOST_SLOWDOWN, max(1.0, batch / self.batch)) if self.batch else 1.0

    def seconds_to_train(self, slowdown: float = 1.0) -> float:
        """Return the seconds until the last batch has to end, if the rest becomes slower by the same factor."""
        return self.limit.seconds_left - slowdown * self.after
