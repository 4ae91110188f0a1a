"""Progress of work whose parts take very different times: by the seconds that they take, or are expected to take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class WorkPart:
    """A part of the work: a number of equal units, and the seconds of one, until one was measured."""

    units: float
    guess: float
    done: float = 0.0
    seconds: float = 0.0

    @property
    def per_unit(self) -> float:
        """Seconds of a unit."""
        return self.seconds / self.done if self.done else self.guess

    @property
    def left(self) -> float:
        """Seconds that the other units are expected to take."""
        return max(0.0, self.units - self.done) * self.per_unit


class ExpectedWork:
    """Measures the parts of some work, and the share of it that is done.

    Parameters
    ----------
    on_progress : callable, optional
        Function that is called with the share that is done and the seconds that are left. The share falls where
        parts turn out to take longer than expected.
    clock : callable
        Function that returns the time in seconds.

    Examples
    --------
    >>> times = iter([0.0, 10.0, 12.0])
    >>> work = ExpectedWork(print, clock=lambda: next(times))
    >>> work.expect("reading", 1, 5.0)
    >>> work.expect("training", 4, 1.0)
    >>> work.advance("reading")  # took 10 s, and training is expected to take 4 s
    0.7142857142857143 4.0
    >>> work.advance("training")  # took 2 s, as the three other units will
    0.6666666666666666 6.0
    """

    def __init__(
        self,
        on_progress: Callable[[float, float], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tell = on_progress
        self._clock = clock
        self._last = clock()
        self._parts: dict[str, WorkPart] = {}

    def expect(self, part: str, units: float, seconds: float) -> None:
        """Add a part of so many units of about so many seconds, or replace what was expected of it."""
        known = self._parts.setdefault(part, WorkPart(units, seconds))
        known.units = units
        known.guess = seconds

    def advance(self, part: str, units: float = 1.0) -> None:
        """Count units of a part as done, which took all the time since the call before."""
        now = self._clock()
        known = self._parts[part]
        known.seconds += now - self._last
        known.done += units
        self._last = now
        if self._tell is not None:
            left = self.seconds_left
            spent = sum(other.seconds for other in self._parts.values())
            self._tell(spent / (spent + left) if left > 0 else 1.0, left)

    @property
    def seconds_left(self) -> float:
        return sum(part.left for part in self._parts.values())

    def seconds_left_of(self, *parts: str) -> float:
        """Return the seconds that the rest of some of the parts is expected to take."""
        return sum(self._parts[part].left for part in parts if part in self._parts)

    def seconds(self, part: str) -> float:
        """Return the seconds that a part has taken."""
        return self._parts[part].seconds

    def seconds_per_unit(self, part: str) -> float:
        """Return the seconds of a unit of a part: as measured, or as expected before."""
        return self._parts[part].per_unit
