"""One positive and one negative of each anchor, by how hard they are, within ranges of distances."""


def inside(value, limits):
    return limits is None or limits[0] <= value <= limits[1]


def reference(d, y, positive="easy", negative="semi_hard", positive_range=None, negative_range=None):
    """Return the sets {(anchor, positive)} and {(anchor, negative)} from a matrix of distances."""
    near, far = set(), set()
    for a in range(len(y)):
        row = d[a].__getitem__
        known = [k for k in range(len(y)) if k != a and -1 not in (y[a], y[k])]
        positives = [k for k in known if y[k] == y[a] and inside(row(k), positive_range)]
        negatives = [k for k in known if y[k] != y[a] and inside(row(k), negative_range)]
        if positive == "semi_hard":
            rival = (max if negative == "easy" else min)(negatives, key=row, default=None)
            positives = [k for k in positives if rival is not None and row(k) < row(rival)]
        if negative == "semi_hard":
            mate = (min if positive == "easy" else max)(positives, key=row, default=None)
            negatives = [k for k in negatives if mate is not None and row(k) > row(mate)]
        if "all" not in (positive, negative) and not (positives and negatives):
            continue
        if positive != "all" and positives:
            positives = [(min if positive == "easy" else max)(positives, key=row)]
        if negative != "all" and negatives:
            negatives = [(max if negative == "easy" else min)(negatives, key=row)]
        near |= {(a, k) for k in positives}
        far |= {(a, k) for k in negatives}
    return near, far
