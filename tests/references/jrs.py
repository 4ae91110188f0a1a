"""The joint kernel and the joint representation similarity in plain loops."""

import torch

DETACHED = "the bandwidth tau follows the batch but is a constant of the gradient, as in the paper's code"


def distance(a, b, kernel):
    return (a - b).abs().sum() if kernel == "laplace" else (a - b).square().sum()


def of_layer(setting, place):
    """Return a setting of the layer at a place, from one for all or from one of each."""
    return setting[place] if isinstance(setting, (tuple, list)) else setting


def layer_kernel(x, kernel, count, degree, multiplier=2.0, multiples=None, raw=False):
    """Return k(x_i, x_j) for all i, j as nested lists."""
    n = len(x)
    if kernel in ("gaussian", "laplace"):
        total = sum(distance(x[i], x[j], kernel).item() for i in range(n) for j in range(n))
        tau = total / (n * n - n) if total > 0 else 1.0
        widths = [tau * multiplier ** (k - count // 2) for k in range(count)]
        if multiples is not None:
            widths = [tau * multiple for multiple in multiples]
        return [
            [sum(torch.exp(-distance(x[i], x[j], kernel) / w) for w in widths) / len(widths) for j in range(n)]
            for i in range(n)
        ]
    u = x if raw else [row / row.norm() for row in x]
    of = {"linear": lambda s: s, "polynomial": lambda s: (s + 1) ** degree, "exponential": torch.exp}[kernel]
    return [[of(u[i] @ u[j]) for j in range(n)] for i in range(n)]


def joint_kernel(
    x,
    y,
    pooled,
    scores,
    layers,
    kernel,
    kernels,
    class_kernels,
    degree,
    multiplier=2.0,
    bandwidths=None,
    raw=False,
    named=None,
):
    """Return the joint kernel of the samples of known class, and their classes."""
    keep = [i for i in range(len(x)) if y[i] >= 0]
    data = {"pooled": pooled, "embedding": [row / row.norm() for row in x], "class": scores, **(named or {})}
    values = [[1.0 for _ in keep] for _ in keep]
    for place, layer in enumerate(layers):
        rows = [data[layer][i] for i in keep]
        count = of_layer(kernels, place)
        if layer == "class" and isinstance(kernels, int):
            count = class_kernels
        multiples = bandwidths
        if bandwidths is not None and isinstance(bandwidths[0], tuple):
            multiples = bandwidths[place]
        k = layer_kernel(
            rows, of_layer(kernel, place), count, degree, of_layer(multiplier, place), multiples=multiples, raw=raw
        )
        values = [[values[a][b] * k[a][b] for b in range(len(keep))] for a in range(len(keep))]
    return values, [int(y[i]) for i in keep]


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    layers=("embedding",),
    kernel="gaussian",
    kernels=3,
    class_kernels=1,
    degree=2,
    **more,
):
    k, labels = joint_kernel(x, y, pooled, scores, layers, kernel, kernels, class_kernels, degree, **more)
    n = len(labels)
    values = [k[i][j] for i in range(n) for j in range(n) if labels[i] != labels[j]]
    return sum(values) / len(values) if values else x.sum() * 0
