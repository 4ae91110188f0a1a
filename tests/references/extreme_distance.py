"""An extreme positive and an extreme negative of every anchor."""


def reference(d, y, positive="hardest", negative="hardest"):
    """Return {(anchor, positive): negative} from a matrix of distances."""
    chosen = {}
    for a in range(len(y)):
        positives = sorted((d[a][p], p) for p in range(len(y)) if p != a and y[p] == y[a] != -1)
        negatives = sorted((d[a][k], k) for k in range(len(y)) if y[k] != y[a] and -1 not in (y[a], y[k]))
        if positives and negatives:
            p = positives[-1 if positive == "hardest" else 0][1]
            chosen[a, p] = negatives[0 if negative == "hardest" else -1][1]
    return chosen
