"""Squared errors of a linear head, sample by sample."""


def outputs(z, W, b):
    return [sum(w * v for w, v in zip(row, z, strict=True)) + (0 if b is None else b[c]) for c, row in enumerate(W)]


def targets(label, classes, target):
    return [label] if target == "index" else [1.0 if c == label else 0.0 for c in range(classes)]


def average(losses, x, reduction):
    total = sum(losses) + x.sum() * 0
    return total if reduction == "sum" else total / max(len(losses), 1)


def residuals(x, y, W, b, target):
    """Return the outputs minus the targets of every sample of known class."""
    classes = len(W)
    for z, label in zip(x, y.tolist(), strict=True):
        if label >= 0:
            yield [o - t for o, t in zip(outputs(z, W, b), targets(label, classes, target), strict=True)]


def reference(x, y, *, pooled=None, scores=None, proxies=None, bias=None, target="onehot", reduction="mean"):
    losses = [sum(r**2 for r in sample) for sample in residuals(x, y, proxies, bias, target)]
    return average(losses, x, reduction)
