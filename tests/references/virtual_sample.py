"""Virtual samples over explicit pairs of pairs, with explicit scatter matrices and their eigenvalues."""

import torch

from tests.references.probabilistic_discriminant import traces

DETACHED = True  # the virtual samples and the eigenvalues are constants


def scatters(h, y):
    """Return the matrices of the scatter within and between classes, each divided by n."""
    n, l = h.shape
    mean = sum(h) / n
    within, between = torch.zeros(l, l, dtype=h.dtype), torch.zeros(l, l, dtype=h.dtype)
    for i in range(n):
        mates = [h[j] for j in range(n) if y[j] == y[i]]
        own = sum(mates) / len(mates)
        within = within + torch.outer(h[i] - own, h[i] - own) / n
        between = between + torch.outer(own - mean, own - mean) / n
    return within, between


def mean_eigenvalue(h, y):
    within, between = scatters(h.detach(), y)
    ridge = 1e-4 * within.trace() / len(within) * torch.eye(len(within), dtype=h.dtype)
    return torch.linalg.eigvals(torch.linalg.inv(within + ridge) @ between).real.mean()


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    margin=0.1,
    eps=0.01,
    normalize=True,
    above_zero=True,
    ratio=1e-5,
    seed=0,
):
    h = [row / row.norm() if normalize else row for row in pooled]
    similar, dissimilar = [], []
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            (similar if y[i] == y[j] else dissimilar).append(torch.exp(-(h[i] @ h[j])))
    q = len(similar)
    center = ((sum(similar) / q + sum(dissimilar) / len(dissimilar)) / 2).detach()
    width = eps * mean_eigenvalue(pooled, y)
    width = min(width, center) if above_zero else width
    u = torch.rand(q, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    norm = sum(abs(center - width + 2 * width * value) for value in u)
    total = 0.0
    for s in similar:
        for t in dissimilar:
            total = total + (s * norm / q - t * norm / q + margin).clamp_min(0)
    W, B = traces(x, y)
    return total / (q * len(dissimilar)) - ratio * B / (W + 1e-6 * (W + B))
