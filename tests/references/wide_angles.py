"""Triplets by the angle of the angular loss."""

import math


def reference(x, y, angle=20.0):
    """Return the set {(anchor, positive, negative)} of vectors, given as lists of numbers."""
    chosen = set()
    for a in range(len(y)):
        for p in range(len(y)):
            for n in range(len(y)):
                if a == p or y[a] != y[p] or y[n] == y[a] or -1 in (y[a], y[n]):
                    continue
                middle = [(one + other) / 2 for one, other in zip(x[a], x[p], strict=True)]
                wide = math.degrees(math.atan2(math.dist(x[a], x[p]), 2 * math.dist(x[n], middle)))
                if wide > angle:
                    chosen.add((a, p, n))
    return chosen
