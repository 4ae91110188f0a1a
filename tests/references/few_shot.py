"""One episode classified query by query, class by class."""

import numpy as np


def distance(a, b, kind):
    if kind == "cosine":
        length = np.sqrt((a**2).sum()) * np.sqrt((b**2).sum())
        return 1 - (a * b).sum() / length if length > 0 else 1.0
    return ((a - b) ** 2).sum()


def classify(query, support, labels, classifier, kind):
    """Return the class of a query; support (s, d), labels (s,)."""
    best, found = np.inf, None
    if classifier == "nearest":
        for z, label in zip(support, labels, strict=True):
            if distance(query, z, kind) < best:
                best, found = distance(query, z, kind), label
        return found
    for label in sorted(set(labels)):
        own = [z for z, other in zip(support, labels, strict=True) if other == label]
        if kind == "cosine":
            own = [z / np.sqrt((z**2).sum()) for z in own]
        prototype = sum(own) / len(own)
        if distance(query, prototype, kind) < best:
            best, found = distance(query, prototype, kind), label
    return found
