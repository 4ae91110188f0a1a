"""Real roots of many polynomials of one degree at once.

Between neighboring roots of its derivative, a polynomial is monotone and has at most one root. Its roots are therefore
separated by those of the derivative, which are separated by those of the second derivative, and so on.
"""

from __future__ import annotations

import numpy as np

from ....numerics.types import Array

ROOT_TOL = 1e-6  # size of a step, relative to the root, that ends the search for it
MAX_ROOT_STEPS = 100
CROWD = 0.75  # share of unfinished roots above which removing the finished ones costs more than it saves


def real_roots(a: Array, known: Array | None = None) -> Array:
    """Return candidates (e, n), in ascending order, that include all real roots of n polynomials of degree e >= 1.

    Coefficients (e + 1, n) are in ascending order, and the last is not zero. Other points fill the places of roots
    that are not real. Simple roots are accurate to at least 6 digits, which one further Newton step doubles. `known`
    holds the candidates of a derivative, if it has already been solved.
    """
    degree = len(a) - 1
    if known is not None and degree == len(known):
        return known
    if degree == 1:
        return -a[:1] / a[1:]
    reach = 2 * np.max([np.abs(a[k] / a[-1]) ** (1 / (degree - k)) for k in range(degree)], axis=0)  # Fujiwara, 1916
    turns = real_roots(a[1:] * np.arange(1, degree + 1)[:, None], known)
    return _between(a, np.concatenate([-reach[None], np.clip(turns, -reach, reach), reach[None]]))


def _between(a: Array, ends: Array) -> Array:
    """Return the root in each interval in which the polynomial changes sign, and the better end of any other."""
    value = horner(a[:, None], ends)
    found = np.where(np.abs(value[:-1]) < np.abs(value[1:]), ends[:-1], ends[1:])
    negative = value < 0
    interval, of = np.nonzero(negative[:-1] != negative[1:])
    first = negative[interval, of]
    under = ends[interval + ~first, of]
    over = ends[interval + first, of]
    found[interval, of] = _bracketed(a.take(of, 1), under, over)
    return found


def _bracketed(a: Array, under: Array, over: Array) -> Array:
    """Find roots between points `under`, where values are negative, and `over`, by Newton's steps or bisection."""
    t = (under + over) / 2
    step = np.abs(over - under)
    found = t.copy()
    left = np.arange(len(t))
    goes_on = np.ones(len(t), dtype=bool)
    for _ in range(MAX_ROOT_STEPS):
        value, slope = value_and_slope(a, t)
        below = value < 0
        under = np.where(below, t, under)
        over = np.where(below, over, t)
        move = np.divide(value, slope, out=value, where=slope != 0)
        new = t - move
        # bisect instead if Newton's step leaves the bracket, converges slowly, or does not exist
        leaves = ((new - under) * (new - over) >= 0) | (np.abs(move) > step / 2) | (slope == 0)
        np.copyto(new, (under + over) / 2, where=leaves)
        np.copyto(new, t, where=~goes_on)
        step = np.abs(new - t)
        t = new
        goes_on &= step > ROOT_TOL * np.abs(t)
        number = np.count_nonzero(goes_on)
        if number < CROWD * len(t):
            # remove the finished roots, which would take part in all further steps
            found[left] = t
            at = np.flatnonzero(goes_on)
            left = left[at]
            a = a.take(at, 1)
            t = t[at]
            step = step[at]
            under = under[at]
            over = over[at]
            goes_on = np.ones(number, dtype=bool)
        if number == 0:
            break
    found[left] = t
    return found


def horner(a: Array, t: Array) -> Array:
    """Return the values at t of polynomials with ascending coefficients a[0], a[1], ..."""
    value = np.broadcast_to(a[-1], t.shape).copy()
    for k in range(len(a) - 2, -1, -1):
        value *= t
        value += a[k]
    return value


def value_and_slope(a: Array, t: Array) -> tuple[Array, Array]:
    """Return the values as `horner` does, and the derivatives; the degree is at least 1."""
    slope = np.broadcast_to(a[-1], t.shape).copy()
    value = slope * t
    value += a[-2]
    for k in range(len(a) - 3, -1, -1):
        slope *= t
        slope += value
        value *= t
        value += a[k]
    return value, slope
