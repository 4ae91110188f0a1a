"""Positives and negatives that are hard to tell apart, by their cosines."""


def reference(s, y, epsilon=0.1):
    """Return the sets {(anchor, positive)} and {(anchor, negative)} from a matrix of similarities."""
    near, far = set(), set()
    for a in range(len(y)):
        positives = [p for p in range(len(y)) if p != a and y[p] == y[a] != -1]
        negatives = [n for n in range(len(y)) if y[n] != y[a] and -1 not in (y[a], y[n])]
        if positives and negatives:
            near |= {(a, p) for p in positives if s[a][p] - epsilon < max(s[a][n] for n in negatives)}
            far |= {(a, n) for n in negatives if s[a][n] + epsilon > min(s[a][p] for p in positives)}
    return near, far
