"""The chance of every negative for a positive pair, from the density of distances on the sphere."""

import math


def density(r, dim):
    return r ** (dim - 2) * (1 - r * r / 4) ** ((dim - 3) / 2)


def reference(d, y, dim, cutoff=0.5, limit=1.4):
    """Return {(anchor, positive): {negative: probability}}; d holds squared distances of unit vectors."""
    chances = {}
    for a in range(len(y)):
        negatives = [k for k in range(len(y)) if y[k] != y[a] and -1 not in (y[a], y[k])]
        near = [k for k in negatives if math.sqrt(d[a][k]) < limit]
        weights = {k: 1 / density(max(math.sqrt(d[a][k]), cutoff), dim) for k in near} or dict.fromkeys(negatives, 1.0)
        total = sum(weights.values())
        for p in range(len(y)):
            if p != a and y[p] == y[a] != -1 and negatives:
                chances[a, p] = {k: weight / total for k, weight in weights.items()}
    return chances
