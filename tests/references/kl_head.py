"""Kullback-Leibler divergences of a softmax head, class by class."""

import math

from .mse_head import average, outputs


def softmax(o):
    total = sum(v.exp() for v in o)
    return [v.exp() / total for v in o]


def rows(y, classes):
    """Return one target distribution per sample, None for unknown classes; y may be a matrix of targets."""
    if y.ndim == 2:
        return [[v / sum(row) for v in row] if sum(row) else None for row in y.tolist()]
    return [None if label < 0 else [float(c == label) for c in range(classes)] for label in y.tolist()]


def divergence(p, q, direction):
    if direction == "reverse":
        return sum(b * (b / a).log() for a, b in zip(p, q, strict=True))
    return sum(a * (math.log(a) - b.log()) for a, b in zip(p, q, strict=True) if a)


def reference(
    x, y, *, pooled=None, scores=None, proxies=None, bias=None, direction="forward", smoothing=0.0, reduction="mean"
):
    losses = []
    for z, target in zip(x, rows(y, len(proxies)), strict=True):
        if target is not None:
            target = [(1 - smoothing) * t + smoothing / len(target) for t in target]
            losses.append(divergence(target, softmax(outputs(z, proxies, bias)), direction))
    return average(losses, x, reduction)
