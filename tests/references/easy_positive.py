"""The nearest positive and the nearest negative of every anchor."""


def reference(d, y):
    """Return {(anchor, positive): negative} from a matrix of distances."""
    chosen = {}
    for a in range(len(y)):
        positives = [p for p in range(len(y)) if p != a and y[p] == y[a] != -1]
        negatives = [k for k in range(len(y)) if y[k] != y[a] and -1 not in (y[a], y[k])]
        if positives and negatives:
            chosen[a, min(positives, key=lambda p: d[a][p])] = min(negatives, key=lambda k: d[a][k])
    return chosen
