"""The joint kernel and the joint representation similarity in plain loops."""

import torch

DETACHED = "the bandwidth tau follows the batch but is a constant of the gradient, as in the paper's code"


def distance(a, b, kernel):
    return (a - b).abs().sum() if kernel == "laplace" else (a - b).square().sum()


def layer_kernel(x, kernel, count, degree):
    """Return k(x_i, x_j) for all i, j as nested lists."""
    n = len(x)
    if kernel in ("gaussian", "laplace"):
        total = sum(distance(x[i], x[j], kernel).item() for i in range(n) for j in range(n))
        tau = total / (n * n - n) if total > 0 else 1.0
        widths = [tau * 2.0 ** (k - count // 2) for k in range(count)]
        return [
            [sum(torch.exp(-distance(x[i], x[j], kernel) / w) for w in widths) / count for j in range(n)]
            for i in range(n)
        ]
    u = [row / row.norm() for row in x]
    of = {"linear": lambda s: s, "polynomial": lambda s: (s + 1) ** degree, "exponential": torch.exp}[kernel]
    return [[of(u[i] @ u[j]) for j in range(n)] for i in range(n)]


def joint_kernel(x, y, pooled, scores, layers, kernel, kernels, class_kernels, degree):
    """Return the joint kernel of the samples of known class, and their classes."""
    keep = [i for i in range(len(x)) if y[i] >= 0]
    data = {"pooled": pooled, "embedding": [row / row.norm() for row in x], "class": scores}
    values = [[1.0 for _ in keep] for _ in keep]
    for layer in layers:
        rows = [data[layer][i] for i in keep]
        k = layer_kernel(rows, kernel, class_kernels if layer == "class" else kernels, degree)
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
    **_,
):
    k, labels = joint_kernel(x, y, pooled, scores, layers, kernel, kernels, class_kernels, degree)
    n = len(labels)
    values = [k[i][j] for i in range(n) for j in range(n) if labels[i] != labels[j]]
    return sum(values) / len(values) if values else x.sum() * 0
