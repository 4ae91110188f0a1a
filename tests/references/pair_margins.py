"""Positives that are too far and negatives that are too near."""


def reference(d, y, pos_margin=0.2, neg_margin=0.8):
    """Return the sets {(anchor, positive)} and {(anchor, negative)} from a matrix of distances."""
    near, far = set(), set()
    for a in range(len(y)):
        for k in range(len(y)):
            if k == a or -1 in (y[a], y[k]):
                continue
            if y[k] == y[a] and d[a][k] > pos_margin:
                near.add((a, k))
            if y[k] != y[a] and d[a][k] < neg_margin:
                far.add((a, k))
    return near, far
