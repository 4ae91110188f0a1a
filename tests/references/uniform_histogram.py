"""Bins of distances of each anchor, from which pairs are drawn."""


def reference(d, y, similar, bins=10):
    """Return {(anchor, bin): columns} of the similar or dissimilar samples of each anchor."""
    found = {}
    for a in range(len(y)):
        known = [k for k in range(len(y)) if k != a and -1 not in (y[a], y[k])]
        columns = [k for k in known if (y[k] == y[a]) == similar]
        if not columns:
            continue
        low = min(d[a][k] for k in columns)
        high = max(d[a][k] for k in columns)
        for k in columns:
            place = int((d[a][k] - low) / (high - low) * bins) if high > low else 0
            found.setdefault((a, min(place, bins - 1)), set()).add(k)
    return found
