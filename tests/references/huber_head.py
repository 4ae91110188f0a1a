"""Huber losses of a linear head, residual by residual."""

from .mse_head import average, residuals


def huber(r, delta):
    return r**2 / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)


def reference(x, y, *, pooled=None, scores=None, proxies=None, bias=None, target="onehot", reduction="mean", delta=1.0):
    losses = [sum(huber(r, delta) for r in sample) for sample in residuals(x, y, proxies, bias, target)]
    return average(losses, x, reduction)
