"""For every positive pair the nearest negative farther than the positive, else the farthest one."""


def reference(d, y):
    """Return {(anchor, positive): negative} from a matrix of distances."""
    chosen = {}
    for a in range(len(y)):
        negatives = [k for k in range(len(y)) if y[k] != y[a]]
        for p in range(len(y)):
            if p == a or y[p] != y[a] or not negatives:
                continue
            farther = [k for k in negatives if d[a][k] > d[a][p]]
            chosen[a, p] = min(farther, key=lambda k: d[a][k]) if farther else max(negatives, key=lambda k: d[a][k])
    return chosen
