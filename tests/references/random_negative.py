"""The chance of every negative for a positive pair."""


def reference(d, y):
    """Return {(anchor, positive): {negative: probability}}: uniform on the negatives."""
    chances = {}
    for a in range(len(y)):
        negatives = [k for k in range(len(y)) if y[k] != y[a] and -1 not in (y[a], y[k])]
        for p in range(len(y)):
            if p != a and y[p] == y[a] != -1 and negatives:
                chances[a, p] = {k: 1 / len(negatives) for k in negatives}
    return chances
