"""Every positive pair; nothing is narrowed."""


def reference(d, y):
    """Return {(anchor, positive): None}: any negative counts."""
    n = len(y)
    return {(a, p): None for a in range(n) for p in range(n) if a != p and y[a] == y[p]}
