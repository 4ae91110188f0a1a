"""VICReg in plain loops, entry by entry."""

import torch

from .nt_xent import others


def spread(z, gamma, eps):
    n, D = z.shape
    means = [sum(z[:, k]) / n for k in range(D)]

    def cov(k, m):
        return sum((z[i, k] - means[k]) * (z[i, m] - means[m]) for i in range(n)) / max(n - 1, 1)

    v = sum(torch.relu(gamma - torch.sqrt(cov(k, k) + eps)) for k in range(D)) / D
    c = sum(cov(k, m) ** 2 for k in range(D) for m in range(D) if m != k) / D
    return v, c


def reference(
    x,
    y,
    *,
    ref=None,
    ref_labels=None,
    pooled=None,
    scores=None,
    proxies=None,
    invariance=25.0,
    variance=25.0,
    covariance=1.0,
    gamma=1.0,
    eps=1e-4,
    **_,
):
    if ref is None:
        pairs = [(x[i], x[j]) for i in range(len(x)) for j in others(y, i)[0]]
    else:
        pairs = [(a, b) for a, i in zip(x, y, strict=True) for b, j in zip(ref, ref_labels, strict=True) if i == j]
    apart = sum((a - b).square().mean() for a, b in pairs) / max(len(pairs), 1)
    v, c = (
        one + other
        for one, other in zip(spread(x, gamma, eps), spread(x if ref is None else ref, gamma, eps), strict=True)
    )
    return invariance * apart + variance * v + covariance * c
