"""Real roots of many polynomials of one degree at once.

Between neighbouring roots of its derivative a polynomial is monotone and meets zero once at most. Hence its roots lie
between those of the derivative, which lie between those of the second derivative, and so on.
"""

from __future__ import annotations

import numpy as np

from ..types import Array, Ints

CLOSE = 1e-6  # a step, relative to the root, that ends the search for it
STEPS = 100  # at most


def real_roots(a: Array) -> Array:
    """Candidates (e, n), ascending, that hold all real roots of n polynomials of degree e >= 1.

    Coefficients (e + 1, n) rise, the last are not zero. Of roots that are not real, other points take the places.
    Simple roots are accurate to 6 digits at least; Newton's next step doubles them.
    """
    degree = len(a) - 1
    if degree == 1:
        return -a[:1] / a[1:]
    reach = 2 * np.max([np.abs(a[k] / a[-1]) ** (1 / (degree - k)) for k in range(degree)], axis=0)  # Fujiwara, 1916
    turns = real_roots(a[1:] * np.arange(1, degree + 1)[:, None])
    return _between(a, np.concatenate([-reach[None], np.clip(turns, -reach, reach), reach[None]]))


def _between(a: Array, ends: Array) -> Array:
    """The root in each interval in which the polynomial changes sign, the better end of the others."""
    value = horner(a[:, None], ends)
    found = np.where(np.abs(value[:-1]) < np.abs(value[1:]), ends[:-1], ends[1:])
    negative = value < 0
    interval, of = np.nonzero(negative[:-1] != negative[1:])
    first = negative[interval, of]
    under, over = ends[interval + ~first, of], ends[interval + first, of]
    found[interval, of] = _bracketed(a, of, under, over)
    return found


def _bracketed(a: Array, of: Ints, under: Array, over: Array) -> Array:
    """Roots of the listed polynomials between points where they are negative and not: Newton's steps, or bisection."""
    t, step, a = (under + over) / 2, np.abs(over - under), a[:, of]
    found, left = t.copy(), np.arange(len(t))
    for _ in range(STEPS):
        value, slope = value_and_slope(a, t)
        below = value < 0
        under, over = np.where(below, t, under), np.where(below, over, t)
        new = t - np.divide(value, slope, out=np.full_like(t, np.inf), where=slope != 0)
        shrinks = ((new - under) * (new - over) < 0) & (np.abs(new - t) <= step / 2)
        new = np.where(shrinks, new, (under + over) / 2)
        step = np.abs(new - t)
        found[left] = t = new
        go_on = step > CLOSE * np.abs(t)
        if not go_on.any():
            break
        left, a, t, step = left[go_on], a[:, go_on], t[go_on], step[go_on]
        under, over = under[go_on], over[go_on]
    return found


def horner(a: Array, t: Array) -> Array:
    """Polynomials with coefficients a[0], a[1], ..., rising, at t."""
    value = np.broadcast_to(a[-1], t.shape).copy()
    for k in range(len(a) - 2, -1, -1):
        value *= t
        value += a[k]
    return value


def value_and_slope(a: Array, t: Array) -> tuple[Array, Array]:
    """As `horner`, and the derivatives."""
    value, slope = np.broadcast_to(a[-1], t.shape).copy(), np.zeros_like(t)
    for k in range(len(a) - 2, -1, -1):
        slope *= t
        slope += value
        value *= t
        value += a[k]
    return value, slope
