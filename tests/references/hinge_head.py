"""Hinges of a linear head, output by output."""

from .mse_head import average, outputs


def reference(x, y, *, pooled=None, scores=None, proxies=None, bias=None, margin=1.0, squared=False, reduction="mean"):
    """With one row of weights: two classes, the second is positive."""
    losses = []
    for z, label in zip(x, y.tolist(), strict=True):
        if label < 0:
            continue
        o = outputs(z, proxies, bias)
        signs = [2 * label - 1] if len(o) == 1 else [1 if c == label else -1 for c in range(len(o))]
        hinges = [(margin - s * v).clamp_min(0) for s, v in zip(signs, o, strict=True)]
        losses.append(sum(h**2 if squared else h for h in hinges))
    return average(losses, x, reduction)
