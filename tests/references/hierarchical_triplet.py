"""The tree of the classes by repeated joining, and every triplet with the margin that follows from it."""

import math

DETACHED = "the tree of the classes has no gradient"


def margins(u, y, beta, levels):
    """Return M(I, J) for all ordered pairs of classes."""
    classes = sorted({int(c) for c in y})
    members = {c: [u[i] for i in range(len(u)) if y[i] == c] for c in classes}

    def mean(values):
        return sum(values) / len(values)

    def apart(a, b):
        return (a - b).square().sum().item()

    between = {}
    for I in classes:
        for J in classes:
            centers = [sum(members[c]) / len(members[c]) for c in (I, J)]
            between[I, J] = 2 - 2 * (centers[0] @ centers[1]).item()
    within = {}
    for c in classes:
        m = members[c]
        pairs = [apart(m[i], m[j]) for i in range(len(m)) for j in range(len(m)) if i != j]
        within[c] = mean(pairs) if pairs else 0.0
    several = [within[c] for c in classes if len(members[c]) > 1]
    least = mean(several) if several else 0.0
    thresholds = [least + level * (4 - least) / levels for level in range(levels + 1)]
    found = {}
    for I in classes:
        for J in classes:
            if I == J:
                continue
            for level in range(1, levels + 1):
                group = {I}
                while True:  # all that steps below the threshold lead to
                    more = {c for c in classes for g in group if between[g, c] < thresholds[level]} - group
                    if not more:
                        break
                    group |= more
                if J in group or level == levels:
                    found[I, J] = beta + thresholds[level] - within[I]
                    break
    assert all(math.isfinite(value) for value in found.values())
    return found


def reference(x, y, *, pooled=None, scores=None, proxies=None, beta=0.1, levels=16):
    u = [row / row.norm() for row in x]
    margin = margins([row.detach() for row in u], y, beta, levels)
    total, active, n = x.sum() * 0, 0, len(x)
    for a in range(n):
        for p in range(n):
            if a == p or y[a] != y[p] or y[a] == -1:
                continue
            for k in range(n):
                if y[k] in (y[a], -1):
                    continue
                near = (u[a] - u[p]).square().sum()
                far = (u[a] - u[k]).square().sum()
                hinge = near - far + margin[int(y[a]), int(y[k])]
                if hinge > 0:
                    total = total + hinge / 2
                    active += 1
    return total / max(active, 1)
