"""Stopping rules of searches, and gradient descent on batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .optimize import Report, Solution, Stop, stopped
from .types import Array


def hardly_changes(tol: float, least: float = 1.0) -> Stop:
    """Return a rule that stops a search once an iteration lowers the value by at most ``tol * max(least, |value|)``."""
    return lambda before, now: bool(before - now <= tol * max(least, abs(now)))


class Stalls:
    """Rule that stops a search once several iterations together lower the value by too little; use one per search.

    Parameters
    ----------
    tol : float
        Stop when the decrease is at most ``tol * max(1, |value|)``.
    iterations : int
        Number of iterations over which the decrease is measured.
    """

    def __init__(self, tol: float, iterations: int) -> None:
        self.tol = tol
        self.values: deque[float] = deque(maxlen=iterations)  # before each of the last iterations

    def __call__(self, before: float, now: float) -> bool:
        self.values.append(before)
        if len(self.values) < (self.values.maxlen or 1):
            return False
        return self.values[0] - now <= self.tol * max(1.0, abs(now))


class Adam:
    """Steps of Adam (Kingma & Ba, 2015), whose state is kept between calls.

    Parameters
    ----------
    step : float
        Initial step length of each entry.
    state : list of ndarray, optional
        `state` of earlier steps to continue from, which takes precedence over `step`.
    """

    def __init__(self, step: float, state: list[Array] | None = None) -> None:
        self.step = step
        self.k = 0
        self.mean: Array | float = 0.0
        self.square: Array | float = 0.0
        if state is not None:
            (self.step, k), self.mean, self.square = state
            self.k = int(k)

    @property
    def state(self) -> list[Array]:
        """Length and number of the steps, and the two running means, as arrays that can be saved to a file."""
        return [np.array([self.step, self.k]), np.asarray(self.mean), np.asarray(self.square)]

    def __call__(self, x: Array, gradient: Array, share: float = 1.0) -> Array:
        """Return x after one step of `share` times the usual length."""
        # m <- 0.9 m + 0.1 g,  v <- 0.999 v + 0.001 g^2,  x - step (m / (1 - 0.9^k)) / sqrt(v / (1 - 0.999^k))
        self.k += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean = self.mean / (1 - 0.9**self.k)
        square = self.square / (1 - 0.999**self.k)
        return x - self.step * share * mean / (np.sqrt(square) + 1e-12)


def descend(
    gradient: Callable[[Array, Any], tuple[float, Array]],
    batches: Callable[[], Iterable[Any]],
    x0: Array,
    *,
    step: float,
    max_iter: int,
    tol: float,
    report: Report | None = None,
) -> Solution:
    """Run Adam over batches, with steps that shrink from epoch to epoch (a cosine schedule, down to a hundredth).

    Parameters
    ----------
    gradient : callable
        Function that takes (x, batch) and returns (value, gradient) of the batch. The values of the batches of an
        epoch are summed.
    batches : callable
        Function that returns the batches of one epoch.
    x0 : ndarray
        Starting point.
    step : float
        Initial step length.
    max_iter : int
        Maximum number of epochs.
    tol : float
        Stop when the mean value of three epochs is less than ``tol * max(1, |value|)`` below that of the previous
        three. The search counts as not converged if this mean is above the value of the first epoch, because the steps
        were then too long. A search through all epochs counts as converged, because its steps have shrunk, unless
        there were fewer than eight.
    report : callable or None
        Function that is called with the progress.
    """
    adam = Adam(step)
    x = x0
    values = []
    for k in range(max_iter):
        # from 1 down to a hundredth along a cosine
        share = 0.01 + 0.99 * (1 + np.cos(np.pi * k / max_iter)) / 2
        total = 0.0
        for batch in batches():
            value, g = gradient(x, batch)
            x = adam(x, g, share)
            total = total + value
        values.append(total)
        if report is not None:
            report(k + 1, total, adam.step * share)
        least = tol * max(1.0, abs(total))
        # means of three epochs, because the value of one depends on the order of its batches
        if k >= 5 and np.mean(values[-6:-3]) - np.mean(values[-3:]) <= least:
            message = ""
            break
    else:
        # the schedule has run out, with steps too short to change much
        if k >= 5 and share < 0.05:
            message = ""
        else:
            message = stopped("Adam", max_iter, "step length", adam.step * share, tol)
    epochs = len(values)
    if epochs > 5 and np.mean(values[-3:]) > values[0] + least:
        message = f"Adam increased the value from {values[0]:.3g} to {total:.3g} in {epochs} epochs; use larger batches"
    return Solution(
        x=x, objective=total, n_iter=epochs, converged=not message, message=message, history=np.array(values)
    )


def step_length(x0: Array) -> float:
    """Return a step length for a search from x0: a twentieth of the root mean square of its nonzero entries."""
    if x0.any():
        return 0.05 * float(np.sqrt(np.mean(x0[x0 != 0] ** 2)))
    return 0.05
